/* SPDX-License-Identifier: Apache-2.0 */
/* The planner for the Tensor Memory Accelerator consists of these parts, some of which it shares with
 * strategies (strategy.h). Each is asked with a loop nest: the whole destination or the window alone. */
#ifndef KERNELS_CUDA_STRATEGY_PLANNER_H
#define KERNELS_CUDA_STRATEGY_PLANNER_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"
#include "proto/arithmetic.h"
#include "strategy.h"

#define TMA_LONGEST INT32_MAX /* extent of a dimension that coordinates of 32 bits can count */

/* Plans tiles of many axes, without a map and whatever the pad. Returns false if none costs less than
 * `most`. */
bool tma_try_permute(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                     enum pad_mode mode, double most);

/* Adds plans with tiles of many axes to the list: copies of base, each with a tile for `inner` that costs
 * less than `most` and resembles no other. base's border is that of nest's `outer` outermost dimensions. */
void tma_add_permutes(struct alternatives *list, const struct plan *base, const struct loop_nest *inner,
                      const struct loop_nest *nest, int outer, const struct plan_facts *facts,
                      enum pad_mode mode, double most);

/* Makes this tile, of this box, the plan's. */
struct permute_tile;
struct permute_box;
void tma_set_permute(struct plan *plan, const struct permute_tile *tile, const struct permute_box *box);

/* Adds to the list, which has the chosen plan, the others that plan_init considers and some that it need
 * not. */
void tma_plan_alternatives(struct alternatives *list, const struct transform *transform,
                           const struct plan_facts *facts);

/* Plans a conversion, which is always legal. */
void tma_set_convert(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                     const struct loop_nest *nest);

/* Plans a conversion that computes the scales of blocks. aligned says that elements of both sides lie at
 * multiples of their size. */
void tma_set_amax(struct tma_route_plan *tma, const struct loop_nest *nest, bool aligned);

/* Leaves only the window of so many dimensions of the nest, the outermost. */
void tma_shrink(struct loop_nest *nest, int outer, uint32_t align, enum pad_mode mode);

/* Returns what a byte of the destination takes, border included, in units of what a copy takes for it. The
 * plan's border, if it has one, is that of the `outer` outermost dimensions. */
double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* Returns what a byte of the window may cost at most so that the whole costs at most `most`; the border is
 * that of tma_cost. */
double tma_cost_left(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode,
                     double most);

/* The border of so many dimensions of the nest, the outermost; that of the others is written with the window.
 */
void tma_set_border(struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* ---- What they share --------------------------------------------------------------------------------- */

/* Returns whether both sides run along the innermost dimension. There must be one. */
static inline bool nest_has_rows(const struct loop_nest *nest)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];

	return inner->dst == nest->element && inner->src == nest->element;
}

/* Returns whether the destination runs along the innermost dimension, and the source along another one. */
static inline bool nest_is_turned(const struct strategy_case *c)
{
	const struct loop_nest_dim *inner = &c->nest->dim[c->nest->rank - 1];

	return inner->dst == c->nest->element && inner->src != c->nest->element && c->src_inner >= 0;
}

/* Returns whether rows of the destination are not multiples of `align` apart. */
bool tma_is_ragged(const struct tma_route_plan *tma, uint64_t align);

/* Sets what all strategies without a map have in common: element, offsets and repeats. */
void tma_begin_strided(struct tma_route_plan *tma, const struct loop_nest *nest);

/* Sets tma->whole. */
void tma_set_whole(struct tma_route_plan *tma, const struct loop_nest *nest);

/* Sets tma->tiles: `tiles` for each index of the dimensions from `outer` on. */
void tma_count_tiles(struct tma_route_plan *tma, uint64_t tiles, uint32_t outer);

/* Returns the bytes of rows along which both sides run, one of them maybe backwards; 0 if there are none, or
 * if they are too short to be worth it. */
uint64_t tma_row_bytes(const struct strategy_case *c);

/* No dimension is padded. */
bool tma_is_whole(const struct loop_nest *nest);

/* tma->dim, innermost first: the loop nest's dimension `first`, then `second` unless it is -1, then the
 * others in their order. */
void tma_set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int first, int second);

/* Which dimension of the nest is tma->dim[i], if the first one is the innermost. */
static inline int tma_nest_dim(const struct loop_nest *nest, int second, int i)
{
	if (second < 0 || i == 0)
		return nest->rank - 1 - i;
	if (i == 1)
		return second;
	return nest->rank - i > second ? nest->rank - i : nest->rank - 1 - i;
}

/* The dimension of a conversion's nest that is contiguous in the source; -1: none, or the destination's. */
int tma_source_row(const struct loop_nest *nest);

/* Parts of n that are as equal as can be, of at most `most`. */
static inline uint64_t part_of(uint64_t n, uint64_t most)
{
	return divide_up_u64(n, divide_up_u64(n, most));
}

#endif
