/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that compute the scales of large blocks go group by group, each in two passes: one in which all
 * threads look for the largest magnitudes, and then, when all of its pieces have ended, one in which they
 * convert.
 */
#ifndef KERNELS_CPU_MOVE_AMAX_GROUPS_H
#define KERNELS_CPU_MOVE_AMAX_GROUPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "move.h"

/* Blocks of a group at most. */
#define AMAX_GROUP_BLOCKS 1024

/* Large blocks, in groups: boxes of whole blocks. */
struct amax_groups {
	struct loop_nest nest;
	int64_t step[TENSOR_MAX_RANK]; /* elements of a group by dimension, whole blocks */
	uint64_t n;
	_Atomic uint32_t magnitude[AMAX_GROUP_BLOCKS]; /* of the group under way */
};

void amax_groups_init(struct amax_groups *groups, const struct loop_nest *nest);

/* Makes the move of a group. No magnitude of its blocks is known yet if pass is AMAX_REDUCE, which must have
 * ended before AMAX_CONVERT. The move points into groups. */
void amax_groups_move(struct amax_groups *groups, uint64_t i, enum amax_pass pass, const struct cpu_isa *isa,
                      const struct move_place *place, struct move *ret);

/* All groups, one after the other. stopped: NULL, or what ends it before that: false. */
bool amax_run_groups(const struct loop_nest *nest, const struct cpu_isa *isa, const struct move_place *place,
                     const atomic_bool *stopped, struct cpu_scratch *scratch);

#endif
