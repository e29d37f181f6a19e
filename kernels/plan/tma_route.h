/* SPDX-License-Identifier: Apache-2.0 */
/* The routes of a plan for the Tensor Memory Accelerator: each is tried with a loop nest, the whole
 * destination or the window alone, and either sets the plan up or leaves in it the rules that ruled it out.
 * Internal to the planner.
 */
#ifndef KERNELS_PLAN_TMA_ROUTE_H
#define KERNELS_PLAN_TMA_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"
#include "proto/arithmetic.h"

#define TMA_LONGEST INT32_MAX /* extent of a dimension that coordinates of 32 bits can count */

/* Without a map, where runs are aligned, whole and long. */
bool tma_try_bulk(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts);

/* Map to map. */
bool tma_try_copy(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts);

/* A map, registers, plain stores. src_inner: the loop nest's dimension that is contiguous in the source. */
bool tma_try_transpose(struct plan *plan, const struct loop_nest *nest, int src_inner,
                       const struct plan_facts *facts);

/* Without a map, where pixels of a few channels lie together on one side, and all is aligned. */
bool tma_try_channels(struct plan *plan, const struct loop_nest *nest, int src_inner,
                      const struct plan_facts *facts);

/* Rows that are contiguous on both sides, borders of any mode included. */
bool tma_try_padded_rows(struct plan *plan, const struct loop_nest *nest);

/* Without a map: tiles of many axes, whatever the pad. */
bool tma_try_permute(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                     enum pad_mode mode);

/* Adds tiles of many axes to the list, none of which resembles another: base, with each of them for `inner`.
 * The border of nest's outermost dimensions, `outer` of them, is base's. */
void tma_add_permutes(struct alternatives *list, const struct plan *base, const struct loop_nest *inner,
                      const struct loop_nest *nest, int outer, const struct plan_facts *facts,
                      enum pad_mode mode);

/* Makes this tile, of this box, the plan's. */
struct permute_tile;
struct permute_box;
void tma_set_permute(struct plan *plan, const struct permute_tile *tile, const struct permute_box *box);

/* Without a map: elements of 4 bytes and more one by one, with borders of a value. */
bool tma_try_elements(struct plan *plan, const struct loop_nest *nest);

/* Elements become others; always legal. */
void tma_set_convert(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                     const struct loop_nest *nest);

/* The same with the scales of blocks. aligned: elements of both sides lie at multiples of their size. */
void tma_set_amax(struct tma_route_plan *tma, const struct loop_nest *nest, bool aligned);

/* Leaves only the window of so many dimensions of the nest, the outermost. */
void tma_shrink(struct loop_nest *nest, int outer, uint32_t align, enum pad_mode mode);

/* Without a map: always legal. */
void tma_set_strided(struct plan *plan, const struct loop_nest *nest);

/* What a byte of the destination takes, border included, in units of what a copy takes for it. outer: of so
 * many dimensions, the outermost, the plan's border is, if it has one. */
double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* The border of so many dimensions of the nest, the outermost; that of the others is written with the window.
 */
void tma_set_border(struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* ---- What they share --------------------------------------------------------------------------------- */

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
