/* SPDX-License-Identifier: Apache-2.0 */
/* Divides one transform between two places into partitions, which threads can run side by side.
 *
 * A partition is one piece of a subregion, or a few whole subregions where all of them are smaller than a
 * piece, or one scratch block of them. Borders that are short are windows of their subregion
 * (padded.h). Subregions are made as they are reached; nothing is stored for those to come. A
 * partition does not depend on its partitioner, only on the transform and its plan.
 */
#ifndef KERNELS_CPU_PLAN_PARTITION_H
#define KERNELS_CPU_PLAN_PARTITION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu_plan.h"
#include "kernels/cpu/move/amax_groups.h"
#include "padded.h"

/* Moves of more dimensions are planned anew each time. */
#define PARTITION_MEMO_RANK 6

/* The memo of a layout says how it was divided last, and begins as zeros. A thread that finds it taken by
 * another one divides anew. */
struct partition_memo {
	atomic_bool is_taken;
	bool is_set;
	/* It depends on these. */
	const struct cpu_isa *isa;
	int forced; /* as move_forced has it */
	uint32_t threads;
	bool stream;
	int64_t piece_bytes, tiled_bytes;
	/* It comes to these. */
	bool uses_scratch;
	uint32_t windowed;
	uint64_t n, batch;
	const char *dst, *src; /* where the first move was */
	int64_t pieces;        /* of that; 0: the first subregions are no moves of their own */
	bool is_fill;
	char move[offsetof(struct move, dim) + PARTITION_MEMO_RANK * sizeof(struct move_dim)];
};

/* What is divided; the transform and the plan must outlive the partitioner and its partitions. */
struct task {
	const struct cpu_isa *isa;
	const struct transform *transform;
	const struct cpu_plan *plan;
	struct move_place place;
	struct amax_groups *groups; /* room for large blocks; NULL: not to be handed out in partitions */
	int64_t probe_bytes;        /* of a piece's destination: larger ones are looked for in the cache */
	uint64_t cold_ns;           /* as of cold_is */
};

struct partition {
	struct task task;
	int64_t piece; /* of move; -1: the subregions from first to end */
	uint64_t first, end;
	bool uses_scratch; /* they are scratch blocks */
	uint32_t windowed; /* of the subregions */
	struct move move;
};

struct partitioner {
	struct task task;
	struct subregions subregions;
	bool uses_scratch;
	uint64_t n, next;   /* subregions or scratch blocks */
	uint64_t batch;     /* subregions or scratch blocks of a partition; 0: each piece is a partition */
	struct move move;   /* of subregion next - 1, when each piece is a partition */
	int64_t next_piece; /* of it */
	/* Of large blocks, the task's; NULL: there are none. Then n is twice their number, for each group has
	 * two passes; move is of pass next - 1, and the next one begins when all partitions of this one have
	 * ended. */
	struct amax_groups *groups;
	unsigned active; /* partitions of it that have not ended */
};

/* Bytes of the lines that a transform touches on the side where they are more, about, with something for each
 * subregion: what it costs. INT64_MAX: more than can be said. */
int64_t task_cost(const struct transform *transform, const struct cpu_plan *plan);

/* Subregion i; room is where it is made when the plan does not hold it. */
const struct loop_nest *task_subregion(const struct task *task, const struct subregions *subregions,
                                       uint64_t i, struct loop_nest *room);

/* Divides as the memo of the task's layout has it, if that suits. Otherwise dividing and planning the first
 * subregion take some microseconds, and the memo has the result for the next time. */
void partitioner_init(struct partitioner *partitioner, const struct task *task, uint32_t threads,
                      struct partition_memo *memo);

/* About how many partitions are left, capped at most; exact where it is 0. A zeroed partitioner has none. */
unsigned partitioner_left(const struct partitioner *partitioner, unsigned most);

/* All has been handed out. */
bool partitioner_is_over(const struct partitioner *partitioner);

/* There is no partition until one has ended: neither may another partitioner be put in its place. */
bool partitioner_waits(const struct partitioner *partitioner);

/* A partition has ended, of a partitioner that is still there. */
void partitioner_end(struct partitioner *partitioner);

/* The next partition. There must be one. */
void partitioner_next(struct partitioner *partitioner, struct partition *ret);

/* There are no more partitions from now on. */
void partitioner_stop(struct partitioner *partitioner);

/* One partition that is all of a task. */
void partition_whole(struct partition *ret, const struct task *task);

/* false: stopped before all was done. scratch as for move_run. */
bool partition_run(struct partition *partition, const atomic_bool *stopped, struct cpu_scratch *scratch);

#endif
