/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the family of a loop nest by its strides. */
#include "nest_family.h"

#include <inttypes.h>

enum family loop_nest_family(const struct loop_nest *nest, int *ret_src_inner)
{
	const struct loop_nest_dim *inner;
	int64_t element = nest->element;

	*ret_src_inner = -1;
	if (nest->fill)
		return FAMILY_FILL;
	if (nest->converted)
		return FAMILY_CONVERT;
	if (nest->rank == 0)
		return FAMILY_MEMCPY;
	inner = &nest->dim[nest->rank - 1];
	if (inner->dst != element)
		return FAMILY_STRIDED;
	if (inner->src == element)
		return nest->rank == 1 ? FAMILY_MEMCPY : FAMILY_TILE_COPY;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == element) {
			*ret_src_inner = d;
			return FAMILY_TILE_TRANSPOSE;
		}
	if (inner->src == 0 || inner->src == -element)
		return FAMILY_STRIDED;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == -element) {
			*ret_src_inner = d;
			return FAMILY_TILE_TRANSPOSE;
		}
	return FAMILY_STRIDED;
}

/* Strides are in bytes, and dimensions are counted from the outermost. */
void loop_nest_explain_memcpy(const struct loop_nest *nest, struct family_rules *rules)
{
	int64_t run = nest->element;

	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];

		if (dim->dst != run)
			family_rules_add(rules, FAMILY_MEMCPY,
			                 "destination stride %d is %" PRId64 " bytes, not %" PRId64, d,
			                 dim->dst, run);
		if (dim->src != run)
			family_rules_add(rules, FAMILY_MEMCPY,
			                 "source stride %d is %" PRId64 " bytes, not %" PRId64, d, dim->src,
			                 run);
		if (dim->source != dim->n)
			family_rules_add(rules, FAMILY_MEMCPY, "dimension %d is padded", d);
		if (rules->n)
			return;
		run *= dim->n;
	}
}
