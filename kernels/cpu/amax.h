/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that compute the scales of their blocks (kernels/plan/amax.h).
 *
 * Where a block is small, tiles and pieces of the move have whole blocks, and a block is done at once: its
 * largest magnitude is looked for, its scale is made and written, and its elements are converted, while they
 * are in the cache. Larger blocks are done in groups, each in two passes over pieces that need not have whole
 * blocks: one in which all threads look for the largest, and then, when all of its pieces have ended, one in
 * which they convert.
 */
#ifndef KERNELS_CPU_AMAX_H
#define KERNELS_CPU_AMAX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/plan/loop_nest.h"

struct cpu_isa;
struct cpu_scratch;
struct move;
struct move_place;
struct tile_box;

enum amax_pass {
	AMAX_NONE, /* the move computes no scales */
	AMAX_WHOLE,
	AMAX_REDUCE,
	AMAX_CONVERT,
};

/* Blocks of a group at most. */
#define AMAX_GROUP_BLOCKS 1024

/* Large blocks, in groups: boxes of whole blocks. */
struct amax_groups {
	struct loop_nest nest;
	int64_t step[TENSOR_MAX_RANK]; /* elements of a group by dimension, whole blocks */
	uint64_t n;
	_Atomic uint32_t magnitude[AMAX_GROUP_BLOCKS]; /* of the group under way */
};

/* Chooses is_direct, tiles and pieces of a move of such a nest, which becomes AMAX_WHOLE or AMAX_REDUCE. */
void amax_choose(struct move *move, const struct loop_nest *nest, int64_t piece_bytes);

/* Runs a box, whose first element has these indices in the move's dimensions. */
void amax_run(const struct move *move, const struct tile_box *box, const int64_t *from,
              struct cpu_scratch *scratch);

void amax_groups_init(struct amax_groups *groups, const struct loop_nest *nest);

/* Makes the move of a group. No magnitude of its blocks is known yet if pass is AMAX_REDUCE, which must have
 * ended before AMAX_CONVERT. The move points into groups. */
void amax_groups_move(struct amax_groups *groups, uint64_t i, enum amax_pass pass, const struct cpu_isa *isa,
                      const struct move_place *place, struct move *ret);

/* All groups, one after the other. stopped: NULL, or what ends it before that: false. */
bool amax_run_groups(const struct loop_nest *nest, const struct cpu_isa *isa, const struct move_place *place,
                     const atomic_bool *stopped, struct cpu_scratch *scratch);

#endif
