/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for a list of blocks depends on what is here, besides the plan for one of them. Pure. */
#ifndef KERNELS_CUDA_STRATEGY_BLOCK_PLAN_H
#define KERNELS_CUDA_STRATEGY_BLOCK_PLAN_H

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

/* Returns whether a kernel for lists alone can move the list, given the plan for one of its blocks. There is
 * one for `memcpy`, where each block is one aligned run, and one for `copy`, where maps can express the
 * blocks' places: those of block_plan_map, applied to the plan's maps. */
bool block_plan_has_kernel(const struct plan *plan, const struct engine_blocks *blocks);

#endif
