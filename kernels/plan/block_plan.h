/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine's own plan for a move of many blocks: one that is right for each block, wherever it lies,
 * whatever plan came with the move. Pure. */
#ifndef KERNELS_PLAN_BLOCK_PLAN_H
#define KERNELS_PLAN_BLOCK_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

struct engine_blocks;

/* What the distances between blocks are all multiples of: a power of two of at most 16, in bytes. */
uint32_t block_align(const struct engine_blocks *blocks);

/* One block's map with the block, and where there are layers these, as further dimensions: of that side.
 * false: no map can say it. */
enum block_side { BLOCK_DST, BLOCK_SRC };
bool block_plan_map(const struct tensor_map_layout *one, const struct engine_blocks *blocks,
                    enum block_side side, struct tensor_map_layout *ret);

/* The route is MEMCPY where each block is one aligned run; COPY where maps can say where the blocks are, with
 * block_plan_map of the plan's; else one without a map.
 *
 * dst and src: addresses of elements [0, ..., 0] of block 0 of layer 0. facts: the engine's; the phases and
 * the alignment are set here. */
void block_plan_init(struct plan *plan, const struct transform *transform, const struct engine_blocks *blocks,
                     const struct plan_facts *facts, uint64_t dst, uint64_t src);

#endif
