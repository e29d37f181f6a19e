/* SPDX-License-Identifier: Apache-2.0 */
/* Divides one transform between two places into partitions, which threads can run side by side.
 *
 * A partition is one piece of a subregion, or a few whole subregions where all of them are smaller than a
 * piece, or one scratch block of them. Subregions are made as they are reached; nothing is stored for those
 * to come. A partition does not depend on its partitioner, only on the transform and its plan.
 *
 * There are two ways to move a padded transform together with its border, where its subregions would be slow
 * one by one: they share cache lines with their neighbours, the more so the shorter rows and borders are, and
 * read the source's once more.
 *
 * Windows (loop_nest.h): axes whose border is short in the destination, or lies across the source, are put
 * together with it in tiles.
 *
 * Scratch blocks: a destination with short rows is divided into blocks that fit a thread's scratch memory.
 * Each is put together there and then written once, line by line, past the cache. A scratch block is a
 * stretch of one axis with all the axes inside it, as long as fits; that axis and those outside it are not
 * padded, some of those inside it are, and the destination is contiguous there.
 */
#ifndef KERNELS_CPU_PLAN_PARTITION_H
#define KERNELS_CPU_PLAN_PARTITION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/move/amax.h"
#include "kernels/cpu/move/move.h"
#include "kernels/transform/transform.h"

struct cpu_plan;

/* A task is what is divided. The transform and the plan must outlive the partitioner and its partitions. */
struct task {
	const struct cpu_isa *isa;
	const struct transform *transform;
	const struct cpu_plan *plan;
	struct move_place place;
	/* Room for large blocks; NULL: the task is not handed out in partitions. */
	struct amax_groups *groups;
	int64_t probe_bytes; /* bytes of a piece's destination; larger ones are looked for in the cache */
	uint64_t cold_ns;    /* as cold_is takes it */
};

struct partition {
	struct task task;
	int64_t piece; /* piece of `move`; -1: the partition is the subregions from first to end */
	uint64_t first, end;
	bool uses_scratch; /* first and end count scratch blocks */
	uint32_t windowed; /* the axes that are moved as windows, a bit for each */
	struct move move;
};

struct partitioner {
	struct task task;
	struct subregions subregions;
	bool uses_scratch;
	uint64_t n, next;   /* counted in subregions or scratch blocks */
	uint64_t batch;     /* subregions or scratch blocks of a partition; 0: each piece is a partition */
	struct move move;   /* move of subregion next - 1, if each piece is a partition */
	int64_t next_piece; /* next piece of `move` */
	/* These are the task's groups of large blocks; NULL: there are none. Then n is twice the number of
	 * groups, for each has two passes; move is that of pass next - 1, and the next pass begins when all
	 * partitions of this one have ended. */
	struct amax_groups *groups;
	unsigned active; /* partitions of the current pass that have not ended */
};

/* Returns about what a transform costs: the bytes of the lines that it touches on the side where they are
 * more, plus something for each subregion, or INT64_MAX if the cost does not fit. */
int64_t task_cost(const struct transform *transform, const struct cpu_plan *plan);

/* Returns subregion i, which is made in room if the plan does not hold it. */
const struct loop_nest *task_subregion(const struct task *task, const struct subregions *subregions,
                                       uint64_t i, struct loop_nest *room);

/* Divides the task. What has to be planned for that takes some microseconds, and is kept for the next time.
 */
void partitioner_init(struct partitioner *partitioner, const struct task *task, uint32_t threads);

/* Returns about how many partitions are left, capped at most; 0 is exact. A zeroed partitioner has none. */
unsigned partitioner_left(const struct partitioner *partitioner, unsigned most);

/* Returns whether all has been handed out. */
bool partitioner_is_over(const struct partitioner *partitioner);

/* Returns whether there is no partition until one has ended. Then no other partitioner may be put in its
 * place. */
bool partitioner_waits(const struct partitioner *partitioner);

/* Tells a partitioner, which is still there, that one of its partitions has ended. */
void partitioner_end(struct partitioner *partitioner);

/* Sets *ret to the next partition. There must be one. */
void partitioner_next(struct partitioner *partitioner, struct partition *ret);

/* Ends it: there are no more partitions from now on. */
void partitioner_stop(struct partitioner *partitioner);

/* Makes one partition that is all of a task. */
void partition_whole(struct partition *ret, const struct task *task);

/* Runs a partition. Returns false if it was stopped before all was done. scratch is as for move_run. */
bool partition_run(struct partition *partition, const atomic_bool *stopped, struct cpu_scratch *scratch);

/* ---- Borders ---------------------------------------------------------------------------------------- */

/* Chooses the axes that are moved as windows. Returns a bit for each axis, or 0 if there are none. */
uint32_t windows_choose(const struct transform *transform, const struct cpu_isa *isa,
                        const struct move_place *place);

struct scratch_blocks {
	const struct transform *transform;
	int axis;
	int64_t step;  /* indices of the axis that a scratch block has */
	int64_t bytes; /* bytes of the destination for each index of the axis */
	uint64_t n;
};

/* Returns false if the transform is better off subregion by subregion, or cannot be cut. It must outlive
 * *ret. */
bool scratch_blocks_init(struct scratch_blocks *ret, const struct transform *transform);

/* Makes scratch block i and writes it. place is that of the whole destination and source; scratch is as for
 * move_run. */
void scratch_blocks_run(const struct scratch_blocks *scratch_blocks, uint64_t i, const struct cpu_isa *isa,
                        const struct move_place *place, struct cpu_scratch *scratch);

#endif
