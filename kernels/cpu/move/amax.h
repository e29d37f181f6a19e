/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that compute the scales of their blocks (struct amax of kernels/transform/transform.h).
 *
 * Where a block is small, tiles and pieces of the move have whole blocks, and a block is done at once: its
 * largest magnitude is looked for, its scale is made and written, and its elements are converted, while they
 * are in the cache. Larger blocks are done in groups, each in two passes over pieces that need not have whole
 * blocks: one in which all threads look for the largest magnitudes, and then, when all of its pieces have
 * ended, one in which they convert.
 */
#ifndef KERNELS_CPU_MOVE_AMAX_H
#define KERNELS_CPU_MOVE_AMAX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/nest/loop_nest.h"
#include "move.h"

/* A group has so many blocks at most. */
#define AMAX_GROUP_BLOCKS 1024

/* Groups of large blocks are boxes of whole blocks. */
struct amax_groups {
	struct loop_nest nest;
	/* Extent of a group in each dimension, in elements; whole blocks. */
	int64_t step[TENSOR_MAX_RANK];
	uint64_t n;
	/* Largest magnitudes of the blocks of the group under way. */
	_Atomic uint32_t magnitude[AMAX_GROUP_BLOCKS];
};

void amax_groups_init(struct amax_groups *groups, const struct loop_nest *nest);

/* Makes the move of a group. No magnitude of its blocks is known yet if pass is AMAX_REDUCE, which must have
 * ended before AMAX_CONVERT. The move points into groups. */
void amax_groups_move(struct amax_groups *groups, uint64_t i, enum amax_pass pass, const struct cpu_isa *isa,
                      const struct move_place *place, struct move *ret);

/* Runs all groups, one after the other. Returns false if stopped, which may be NULL, ended that. */
bool amax_run_groups(const struct loop_nest *nest, const struct cpu_isa *isa, const struct move_place *place,
                     const atomic_bool *stopped, struct cpu_scratch *scratch);

#endif
