/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes are drawn along the contiguous runs of either side, so that most of them are accepted. */
#include "random_tile.h"

#include "kernels/cuda/strategy/permute_plan.h"
#include "kernels/cuda/strategy/strategy.h"
#include "kernels/nest/narrow.h"
#include "tests/support/oracle.h"

#define TRIES      20
#define MOST_TILES 300 /* most tiles of a grid, since softgpu takes long for each */

/* Takes whole dimensions, and then some indexes of the next one. */
static void draw_run(uint64_t *state, const struct permute_chain *chain, const struct loop_nest *nest,
                     struct permute_box *box)
{
	const int64_t whole = oracle_between(state, 0, chain->n);

	for (int i = 0; i < chain->n && i <= whole; i++) {
		const int d = chain->dim[i];
		const int64_t n = i < whole ? nest->dim[d].n : oracle_between(state, 1, nest->dim[d].n);

		if (n > box->n[d])
			box->n[d] = (uint32_t)n;
	}
}

static struct permute_box draw_box(uint64_t *state, const struct permute_sides *sides)
{
	const struct loop_nest *nest = sides->nest;
	struct permute_box box;

	for (int d = 0; d <= TENSOR_MAX_RANK; d++)
		box.n[d] = 1;
	draw_run(state, &sides->src, nest, &box);
	draw_run(state, &sides->dst, nest, &box);
	for (int d = 0; d < nest->rank; d++)
		if (box.n[d] == 1 && oracle_between(state, 0, 3) == 0)
			box.n[d] = (uint32_t)oracle_between(state, 1, nest->dim[d].n);
	return box;
}

/* Tries first the kinds that suit only a few boxes. */
static enum permute_how draw_how(uint64_t *state, const struct loop_nest *nest, int tries)
{
	if (tries < TRIES / 4)
		return PERMUTE_SQUARES;
	if (tries < TRIES / 2 && nest->element <= 2)
		return PERMUTE_WORDS;
	return (enum permute_how)oracle_between(state, 0, PERMUTE_HOWS - 1);
}

bool random_tile_plan(uint64_t *state, const struct transform *transform, const struct plan_facts *facts,
                      struct plan *ret)
{
	struct permute_sides sides;
	struct loop_nest nest;

	plan_init(ret, transform, facts); /* provides the plan of the border */
	if (ret->tma.strategy == STRATEGY_none || !loop_nest_window(&nest, transform, facts->align))
		return false;
	if (facts->align < nest.element)
		loop_nest_narrow(&nest, facts->align, transform->mode);
	permute_sides_init(&sides, &nest, facts, transform->mode);
	for (int i = 0; i < TRIES; i++) {
		const enum permute_how how = draw_how(state, &nest, i);
		const struct permute_box box = draw_box(state, &sides);
		struct permute_tile tile;

		if (!permute_tile_init(&tile, &sides, &box, how) || tile.tiles > MOST_TILES)
			continue;
		permute_lay_out(&tile);
		if (oracle_between(state, 0, 1)) {
			permute_arrange(&tile, PERMUTE_NEVER);
			permute_lay_out(&tile);
		} else if (how != PERMUTE_PIECES && oracle_between(state, 0, 1)) {
			tile.args.skew = (uint32_t)oracle_between(state, 4, 12);
			permute_lay_out(&tile);
		}
		if (permute_cost(&tile) >= PERMUTE_NEVER)
			continue;
		ret->tma.border_rank = 0;
		ret->tma.border_tiles = 0;
		ret->tma.patched = false;
		tma_set_permute(ret, &tile, &box);
		return true;
	}
	return false;
}
