/* SPDX-License-Identifier: Apache-2.0 */
/* A tile plan of many axes, worked out on the host byte by byte: which byte of the source each load brings
 * where in shared memory, and which of these each row writes where. Nothing of it moves; it knows the
 * arguments (kernels/cuda/strategy/permute_args.h) but neither the planner nor the kernels.
 */
#ifndef TESTS_SUPPORT_PERMUTE_WALK_H
#define TESTS_SUPPORT_PERMUTE_WALK_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/cuda/strategy/plan.h"
#include "oracle.h"

/* Whether the tiles write every byte of the destination once, each from the byte that the oracle says, and
 * whether what the arguments say of phases, pieces and groups of rows is so; else what is wrong is written to
 * text. The case need not be prepared. */
bool permute_walk(const struct tma_route_plan *tma, const struct oracle_case *c, char *text,
                  size_t text_size);

#endif
