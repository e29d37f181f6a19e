/* SPDX-License-Identifier: Apache-2.0 */
/* Evaluates a tile plan of several axes on the host, byte by byte: which source byte each load brings to
 * which place in shared memory, and which of these each row writes to which place. No data is moved. It knows
 * the arguments (kernels/cuda/strategy/permute_args.h) but neither the planner nor the kernels. */
#ifndef TESTS_SUPPORT_PERMUTE_WALK_H
#define TESTS_SUPPORT_PERMUTE_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/strategy/plan.h"
#include "oracle.h"

/* Returns whether the tiles write every byte of the destination once, each from the byte that the oracle
 * says, and whether the arguments for alignment, pieces and groups of rows are consistent. If not, writes
 * what is wrong to text. The case need not be prepared. */
bool permute_walk(const struct tma_route_plan *tma, const struct oracle_case *c, char *text,
                  size_t text_size);

#endif
