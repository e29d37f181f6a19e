/* SPDX-License-Identifier: Apache-2.0 */
/* One element at a time, the last dimension fastest. */
#include "walk.h"

#include <string.h>

void walk_nest(const struct loop_nest *nest, const struct transform *t, uint8_t *dst, const uint8_t *src)
{
	int64_t o[TENSOR_MAX_RANK] = { 0 };
	int d;

	do {
		uint8_t *to = dst + nest->dst_offset;
		const uint8_t *from = src + nest->src_offset;

		for (d = 0; d < nest->rank; d++) {
			to += o[d] * nest->dim[d].dst;
			from += o[d] * nest->dim[d].src;
		}
		memcpy(to, nest->fill ? t->fill : from, nest->element);
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
