/* SPDX-License-Identifier: Apache-2.0 */
/* Moves one element at a time; the last dimension varies fastest. */
#include "walk.h"

#include <stdbool.h>

void walk_nest(const struct loop_nest *nest, const struct transform *t, uint8_t *dst, const uint8_t *src)
{
	int64_t o[TENSOR_MAX_RANK] = { 0 };
	int d;

	do {
		uint8_t *to = dst + nest->dst_offset;
		const uint8_t *from = src + nest->src_offset;

		bool fill = nest->fill;

		for (d = 0; d < nest->rank; d++) {
			int64_t source = loop_nest_window_source(&nest->dim[d], t->mode, o[d]);

			to += o[d] * nest->dim[d].dst;
			from += source * nest->dim[d].src;
			fill |= source < 0;
		}
		for (uint32_t b = 0; b < nest->element; b++)
			to[b] = fill ? t->fill[b % t->element] : from[b];
		for (d = nest->rank - 1; d >= 0 && ++o[d] == nest->dim[d].n; d--)
			o[d] = 0;
	} while (d >= 0);
}

void walk_transform(const struct transform *t, uint8_t *dst, const uint8_t *src)
{
	struct subregions subregions;

	subregions_init(&subregions, t);
	for (uint64_t i = 0; i < subregions.n; i++) {
		struct loop_nest nest;

		subregions_get(&subregions, i, 1, &nest);
		walk_nest(&nest, t, dst, src);
	}
}
