/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that compute the scales of their blocks (kernels/transform/amax.h).
 *
 * Where a block is small, tiles and pieces of the move have whole blocks, and a block is done at once: its
 * largest magnitude is looked for, its scale is made and written, and its elements are converted, while they
 * are in the cache. Larger blocks are done in groups, each in two passes over pieces that need not have whole
 * blocks (amax_groups.h).
 */
#ifndef KERNELS_CPU_MOVE_AMAX_H
#define KERNELS_CPU_MOVE_AMAX_H

#include <stdint.h>

#include "kernels/nest/loop_nest.h"

struct cpu_scratch;
struct move;
struct tile_box;

/* Chooses is_direct, tiles and pieces of a move of such a nest, which becomes AMAX_WHOLE or AMAX_REDUCE. */
void amax_choose(struct move *move, const struct loop_nest *nest, int64_t piece_bytes);

/* Runs a box, whose first element has these indices in the move's dimensions. */
void amax_run(const struct move *move, const struct tile_box *box, const int64_t *from,
              struct cpu_scratch *scratch);

#endif
