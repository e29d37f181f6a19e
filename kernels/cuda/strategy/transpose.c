/* SPDX-License-Identifier: Apache-2.0 */
/* `transpose` loads tiles by a tensor map, transposes them in registers and writes them with ordinary stores.
 * Dimension 0 is contiguous in the source, dimension 1 in the destination. */
#include "strategy_launch.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "plan.h"
#include "strategy.h"

#define SECTOR 32
#define TRANSPOSE_SHARED \
	(RING_BYTES(TRANSPOSE_STAGES, TRANSPOSE_TILE_BYTES) + TRANSPOSE_STAGES * TRANSPOSE_NOTE_BYTES)

static_assert(TRANSPOSE_TILE_BYTES % (TRANSPOSE_X_BYTES * TRANSPOSE_ROW_BYTES) == 0,
              "boxes make a whole tile");
static_assert(TRANSPOSE_READERS(16) == TRANSPOSE_MOST_READERS && TRANSPOSE_READERS(1) % WARP_THREADS == 0,
              "the loading warp follows whole warps");

/* Sets the plan's dimensions. Dimension 2 is the one along which the destination continues, and dimension 3
 * the one along which the source does: a tile that is narrower than it could be also extends along these.
 * Broadcast dimensions come last. */
static void set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int src_inner)
{
	tma_set_dims(tma, nest, src_inner, nest->rank - 1);
	for (uint32_t place = 2; place < tma->rank; place++) {
		uint32_t best = place;

		for (uint32_t d = place + 1; d < tma->rank; d++) {
			bool repeats = tma->dim[d].src == 0, best_repeats = tma->dim[best].src == 0;
			bool closer = place == 2 ? tma->dim[d].dst < tma->dim[best].dst
			                         : tma->dim[d].src < tma->dim[best].src;

			if (repeats < best_repeats || (repeats == best_repeats && closer))
				best = d;
		}
		struct strided_dim kept = tma->dim[place];

		tma->dim[place] = tma->dim[best];
		tma->dim[best] = kept;
	}
}

/* Returns the binary logarithm of the least power of two that is at least n, or `most` if that is less. */
static uint32_t log_enough(int64_t n, uint32_t most)
{
	uint32_t log = 0;

	while (log < most && (int64_t)1 << log < n)
		log++;
	return log;
}

static bool destination_is_aligned(struct plan *plan, const struct loop_nest *nest,
                                   const struct plan_facts *facts)
{
	const struct tma_route_plan *tma = &plan->tma;
	int64_t row = tma->dim[1].n * tma->element;
	uint64_t bits = facts->dst_phase + (uint64_t)nest->dst_offset;

	for (uint32_t d = 0; d < tma->rank; d++)
		if (d != 1)
			bits |= (uint64_t)tma->dim[d].dst;
	if (row % 16 == 0 && bits % 16 == 0)
		return true;
	family_rules_add(&plan->rules, FAMILY_TILE_TRANSPOSE,
	                 "destination rows of %" PRId64 " bytes do not all start and end at multiples of 16",
	                 row);
	return false;
}

/* x is dimension 1, along the destination; y is dimension 0, along the source (see tile_transpose.cu). */
static bool probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct plan_facts *facts = c->facts;
	struct tma_route_plan *tma = &plan->tma;
	uint32_t x = transpose_tile_x(nest->element), y = transpose_tile_y(nest->element);
	uint32_t log_x = (uint32_t)__builtin_ctz(x);
	uint32_t box_y = TRANSPOSE_ROW_BYTES / nest->element, log_y = (uint32_t)__builtin_ctz(y / box_y);
	bool legal, aligned;

	if (!nest_is_turned(c))
		return false;
	tma->element = nest->element;
	tma->repeats = 1;
	set_dims(tma, nest, c->src_inner);
	legal = map_check_dims(plan, FAMILY_TILE_TRANSPOSE, 1, ARGS_GRID_RANK) &&
	        map_set_load(plan, FAMILY_TILE_TRANSPOSE, nest, facts->src_phase);
	aligned = destination_is_aligned(plan, nest, facts);
	if (!legal || !aligned)
		return false;
	tma->dst_offset = nest->dst_offset;
	tma->shift_x = tma->rank > 2 && tma->repeat[2] == 1 ? log_enough(tma->dim[1].n, log_x) : log_x;
	tma->shift_y = tma->rank > 3 && tma->repeat[3] == 1
	                   ? log_enough((tma->dim[0].n + box_y - 1) / box_y, log_y)
	                   : log_y;
	/* The rows that one thread reads must lie along dimension 1. */
	if (tma->shift_x < (uint32_t)__builtin_ctz(16 / nest->element))
		tma->shift_x = (uint32_t)__builtin_ctz(16 / nest->element);
	uint32_t tile[ARGS_GRID_RANK] = { box_y << tma->shift_y,
		                          1u << tma->shift_x,
		                          x >> tma->shift_x,
		                          1u << (log_y - tma->shift_y),
		                          1,
		                          1,
		                          1,
		                          1 };

	tma->load.swizzle = TENSOR_MAP_SWIZZLE_128B;
	for (uint32_t d = 0; d < tma->load.rank; d++)
		tma->load.box[d] = d == 1 || d == 2 ? tile[d] : 1;
	tma->load.box[0] = TRANSPOSE_ROW_BYTES / map_unit(nest->element);
	if (!map_check(plan, FAMILY_TILE_TRANSPOSE, "load", &tma->load))
		return false;
	tma->tiles = 1;
	for (uint32_t d = 0; d < tma->rank; d++) {
		tma->grid[d] =
		    tma->repeat[d] > 1 ? 1 : (uint32_t)divide_up_u64((uint64_t)tma->dim[d].n, tile[d]);
		tma->tiles *= tma->grid[d];
	}
	if (tma->tiles > UINT32_MAX || tma->repeats > UINT32_MAX)
		return false;
	plan->swizzle = tensor_map_swizzle_names[tma->load.swizzle];
	plan->tile_rank = (int)tma->load.rank;
	for (uint32_t d = 0; d < tma->load.rank; d++)
		plan->tile[tma->load.rank - 1 - d] = tile[d];
	return true;
}

/* Returns the ratio of the elements of all tiles to those of the tensor. */
static double tile_waste(const struct plan *plan)
{
	const struct tma_route_plan *tma = &plan->tma;
	double waste = 1;

	for (uint32_t d = 0; d < tma->rank && d < (uint32_t)plan->tile_rank; d++) {
		const uint64_t n = (uint64_t)tma->dim[d].n;
		const uint64_t tile = (uint64_t)plan->tile[plan->tile_rank - 1 - (int)d];

		waste *= (double)(divide_up_u64(n, tile) * tile) / (double)n;
	}
	return waste;
}

static double cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;

	(void)mode;
	return 1.09 + (tma->element <= 4 ? 0.25 : 0.45) * (tile_waste(plan) - 1) +
	       (tma->element <= 2 && tma_is_ragged(tma, SECTOR) ? 0.5 : 0);
}

static void describe(const struct plan *plan, struct plan_tile *ret)
{
	ret->row_bytes = TRANSPOSE_ROW_BYTES;
	for (int d = 0; d < plan->tile_rank; d++)
		plan_tile_set_dim(ret, plan, d, plan->tile_rank - 1 - d);
}

#ifdef HAVE_CUDA
static int launch(const struct strategy_launch *launch, struct error *err)
{
	struct launcher *const launcher = launch->launcher;
	const struct tma_route_plan *tma = &launch->plan->tma;
	const uint64_t dst = strategy_dst(launch), src = strategy_src(launch);
	uint32_t e = tma->element;
	struct tile_transpose_args args = {
		.dst = dst,
		.rank = tma->load.rank,
		.tiles = (uint32_t)tma->tiles,
		.repeats = (uint32_t)tma->repeats,
		.shift_x = tma->shift_x,
		.shift_y = tma->shift_y,
	};
	int r = map_cache_get(launcher->maps, &tma->load, src, &args.load, err);

	if (r < 0)
		return r;
	memcpy(args.grid, tma->grid, sizeof args.grid);
	memcpy(args.repeat, tma->repeat, sizeof args.repeat);
	memcpy(args.load_step, tma->load_step, sizeof args.load_step);
	memcpy(args.load_shift, tma->load_shift, sizeof args.load_shift);
	for (uint32_t d = 0; d < ARGS_GRID_RANK; d++) {
		args.n[d] = d < tma->rank ? (uint32_t)tma->dim[d].n : 1;
		args.dst_stride[d] = d < tma->rank ? tma->dim[d].dst : 0;
	}
	return shape_launch(&(struct shape){ .kernel = by_element(KERNEL_tile_transpose_1, e),
	                                     .blocks = tma->tiles,
	                                     .threads = TRANSPOSE_READERS(e) + WARP_THREADS,
	                                     .shared = TRANSPOSE_SHARED,
	                                     .a_multiprocessor = TRANSPOSE_BLOCKS },
	                    launcher, launch->stream, &args, err);
}
#endif

const struct strategy strategy_transpose = {
	.name = "transpose",
	.family = FAMILY_TILE_TRANSPOSE,
	.turn = STRATEGY_FIRST,
	.probe = probe,
	.cost = cost,
	.describe = describe,
	.launch = WITH_CUDA(launch),
};
