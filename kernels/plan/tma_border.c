/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the launch that writes a border by itself: its dimensions, and how many blocks it takes. */
#include "tma_route.h"

/* A value is not read, so that rows of a border with a value go on wherever the destination does. false: the
 * dimension that steps over `inner` is another one. */
static bool extend_border(struct strided_dim *inner, const struct loop_nest_dim *dim)
{
	if (inner->source != inner->n || dim->dst != inner->dst * inner->n)
		return false;
	inner->before = dim->before * inner->n;
	inner->source = dim->source * inner->n;
	inner->n *= dim->n;
	return true;
}

void tma_set_border(struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode)
{
	struct tma_route_plan *tma = &plan->tma;
	uint32_t rank = 0, inner = 0; /* dimensions whose border is written with the window */

	if (nest->rank == 0 || nest->dim[nest->rank - 1].dst != nest->element)
		tma->border[rank++] = tma_unit_dim(nest->element);
	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];

		if (mode != PAD_MODE_CONSTANT || rank == 0 || !extend_border(&tma->border[rank - 1], dim))
			tma->border[rank++] =
			    (struct strided_dim){ dim->n, dim->dst, dim->src, dim->before, dim->source };
		inner = d >= outer ? rank : min_u32(inner, rank - 1);
	}
	if (nest->fill) { /* no window at all: everything is before it */
		tma->border[rank - 1].before = tma->border[rank - 1].n;
		tma->border[rank - 1].source = 0;
	}
	tma->border_rank = rank;
	tma->border_element = nest->element;
	tma->border_dst_offset = nest->dst_offset;
	tma->border_src_offset = nest->src_offset;
	for (uint32_t b = 0; b < 2 * (nest->fill ? rank : rank - inner); b++)
		tma->border_tiles += border_tiles(tma->border, rank, b, nest->element);
	if (tma->border_tiles == 0)
		tma->border_rank = 0;
}
