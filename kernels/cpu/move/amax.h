/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that compute the scales of their blocks (struct amax of kernels/transform/transform.h).
 *
 * If blocks are small, tiles and pieces of the move contain whole blocks, and a block is processed in one
 * pass: its largest magnitude is found, its scale is computed and written, and its elements are converted,
 * all while they are in the cache. Larger blocks are processed in groups, and each group in two passes over
 * pieces that need not contain whole blocks. In the first pass all threads find the largest magnitudes; in
 * the second, which begins when all pieces of the first have ended, they convert.
 */
#ifndef KERNELS_CPU_MOVE_AMAX_H
#define KERNELS_CPU_MOVE_AMAX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/nest/loop_nest.h"
#include "move.h"

/* Maximum number of blocks of a group. */
#define AMAX_GROUP_BLOCKS 1024

/* The groups into which the large blocks of a loop nest are divided. Each is a box of whole blocks. */
struct amax_groups {
	struct loop_nest nest;
	/* Extent of a group in each dimension, in elements; a multiple of the block's. */
	int64_t step[TENSOR_MAX_RANK];
	uint64_t n;
	/* Largest magnitude of each block of the current group, as an integer (amax_scale.h). */
	_Atomic uint32_t magnitude[AMAX_GROUP_BLOCKS];
};

void amax_groups_init(struct amax_groups *groups, const struct loop_nest *nest);

/* Sets *ret to the move for pass `pass` over group i. AMAX_REDUCE resets the magnitudes of the group's
 * blocks, and must have ended before AMAX_CONVERT is made. The move points into groups. */
void amax_groups_move(struct amax_groups *groups, uint64_t i, enum amax_pass pass, const struct cpu_isa *isa,
                      const struct move_place *place, struct move *ret);

/* Runs all groups, one after the other. stopped may be NULL. Returns false if *stopped was set before
 * everything was done. */
bool amax_run_groups(const struct loop_nest *nest, const struct cpu_isa *isa, const struct move_place *place,
                     const atomic_bool *stopped, struct cpu_scratch *scratch);

#endif
