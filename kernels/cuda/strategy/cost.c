/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the launch that writes a border by itself, and predicts what a plan costs with it, by formulas that
 * were fitted to measurements (tests/bench/EXPERIMENTS.md). */
#include "planner.h"

#define LAUNCH 6e6  /* bytes that a copy writes in the time that a second launch takes */
#define FIXED  17e6 /* and in the time that a copy of any size takes (predict.c) */

/* The border is written by another launch: in rows of the destination that are as long as what follows its
 * padded dimensions. */
static double border_cost(const struct loop_nest *nest, enum pad_mode mode)
{
	double run = nest->element;

	for (int d = nest->rank - 1; d >= 0 && nest->dim[d].source == nest->dim[d].n; d--)
		run *= (double)nest->dim[d].n;
	return mode == PAD_MODE_CONSTANT ? 0.6 + 100 / run : 20;
}

static double nest_bytes(const struct loop_nest *nest)
{
	double bytes = nest->element;

	for (int d = 0; d < nest->rank; d++)
		bytes *= (double)nest->dim[d].n;
	return bytes;
}

/* Returns the share of the destination that does not belong to the border. */
static double window_share(const struct loop_nest *nest, int outer)
{
	double window = 1;

	for (int d = 0; d < outer; d++)
		window *= (double)nest->dim[d].source / (double)nest->dim[d].n;
	return window;
}

static double around_cost(const struct loop_nest *nest, double window, enum pad_mode mode)
{
	return border_cost(nest, mode) * (1 - window) + LAUNCH / (FIXED + nest_bytes(nest));
}

double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode)
{
	const double window = window_share(nest, outer);

	if (plan->tma.border_rank == 0 || plan->tma.strategy == STRATEGY_none)
		return strategy_of(plan)->cost(plan, mode);
	return strategy_of(plan)->cost(plan, mode) * window + around_cost(nest, window, mode);
}

double tma_cost_left(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode,
                     double most)
{
	const double window = window_share(nest, outer);

	return plan->tma.border_rank == 0 ? most : (most - around_cost(nest, window, mode)) / window;
}

/* ---- The border --------------------------------------------------------------------------------------- */

/* Extends a dimension of the border by the next one. A border with a value reads nothing, so its rows go on
 * wherever the destination does. Returns false if the destination does not go on. */
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
