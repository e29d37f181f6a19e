/* SPDX-License-Identifier: Apache-2.0 */
/* Divides one transform between two places into partitions, which threads can run concurrently.
 *
 * A partition is one piece of a subregion, or a few whole subregions if all of them are smaller than a piece,
 * or one scratch block. Subregions are computed when they are reached; nothing is stored for those to come. A
 * partition does not depend on its partitioner, only on the transform and its plan.
 *
 * There are two ways to move a padded transform together with its border. They are used where moving its
 * subregions one by one would be slow: subregions share cache lines of the destination with their neighbours,
 * the more so the shorter rows and borders are, and each reads the source's lines once more.
 *
 * Windows (loop_nest.h): axes whose border is short in the destination, or that have several indices in each
 * cache line of the source, are put together with their border in tiles.
 *
 * Scratch blocks: a destination with short rows is divided into blocks that fit a thread's scratch memory.
 * Each block is assembled there and then written once, line by line, past the cache. A scratch block is a
 * range of indices of one axis, as long as fits, with all axes inside that axis. That axis and those outside
 * it must not be padded. Some of those inside it are padded, and the destination must be contiguous over
 * them.
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

/* A transform to be divided. It and its plan must outlive the partitioner and its partitions. */
struct task {
	const struct cpu_isa *isa;
	const struct transform *transform;
	const struct cpu_plan *plan;
	struct move_place place;
	/* Storage for groups of large blocks (amax.h). NULL: the task is not divided into partitions. */
	struct amax_groups *groups;
	/* If a piece has more bytes of destination than this, it is checked whether they are in the cache. */
	int64_t probe_bytes;
	uint64_t cold_ns; /* as for cold_is */
};

struct partition {
	struct task task;
	int64_t piece; /* index of a piece of `move`; -1: the partition is the subregions [first, end) */
	uint64_t first, end;
	bool uses_scratch; /* first and end count scratch blocks, not subregions */
	uint32_t windowed; /* bitmap of the axes that are moved as windows */
	struct move move;
};

struct partitioner {
	struct task task;
	struct subregions subregions;
	bool uses_scratch;
	uint64_t n, next;   /* number of subregions or scratch blocks, and index of the next one */
	uint64_t batch;     /* subregions or scratch blocks of a partition; 0: each piece is a partition */
	struct move move;   /* move of subregion next - 1; valid if each piece is a partition */
	int64_t next_piece; /* next piece of `move` */
	/* Groups of large blocks of the task; NULL: there are none. If set, n is twice the number of groups,
	 * because each has two passes; `move` is that of pass next - 1, and the next pass begins when all
	 * partitions of this one have ended. */
	struct amax_groups *groups;
	unsigned active; /* number of partitions of the current pass that have not ended */
};

/* Returns the approximate cost of a transform in bytes: the bytes of the lines that it touches on the side
 * where it touches more, plus an amount for each subregion, or INT64_MAX if that overflows. */
int64_t task_cost(const struct transform *transform, const struct cpu_plan *plan);

/* Returns subregion i. It is computed into *room unless the plan holds it. */
const struct loop_nest *task_subregion(const struct task *task, const struct subregions *subregions,
                                       uint64_t i, struct loop_nest *room);

/* Divides the task for `threads` threads. The planning that this needs takes some microseconds; its result is
 * kept for the next time. */
void partitioner_init(struct partitioner *partitioner, const struct task *task, uint32_t threads);

/* Returns approximately how many partitions are left, but at most `most`; 0 means exactly none. A zeroed
 * partitioner has none. */
unsigned partitioner_left(const struct partitioner *partitioner, unsigned most);

/* Returns whether all partitions have been handed out. */
bool partitioner_is_over(const struct partitioner *partitioner);

/* Returns whether the next partition can be had only once those that were handed out have ended. Until then
 * the partitioner must not be initialized for another task. */
bool partitioner_waits(const struct partitioner *partitioner);

/* Tells the partitioner that one of its partitions has ended. The partitioner must not have been initialized
 * for another task since it handed that partition out. */
void partitioner_end(struct partitioner *partitioner);

/* Sets *ret to the next partition. There must be one. */
void partitioner_next(struct partitioner *partitioner, struct partition *ret);

/* Stops handing out partitions. */
void partitioner_stop(struct partitioner *partitioner);

/* Sets *ret to a single partition that is the whole task. */
void partition_whole(struct partition *ret, const struct task *task);

/* Runs a partition. Returns false if *stopped was set before everything was done. scratch is as for
 * move_run. */
bool partition_run(struct partition *partition, const atomic_bool *stopped, struct cpu_scratch *scratch);

/* ---- Borders ---------------------------------------------------------------------------------------- */

/* Chooses the axes that are moved as windows. Returns a bitmap of them, 0 if there are none. */
uint32_t windows_choose(const struct transform *transform, const struct cpu_isa *isa,
                        const struct move_place *place);

struct scratch_blocks {
	const struct transform *transform;
	int axis;
	int64_t step;  /* indices of the axis in a scratch block */
	int64_t bytes; /* bytes of the destination for each index of the axis */
	uint64_t n;
};

/* Returns false if the transform is faster subregion by subregion, or cannot be cut into scratch blocks. The
 * transform must outlive *ret. */
bool scratch_blocks_init(struct scratch_blocks *ret, const struct transform *transform);

/* Assembles scratch block i and writes it. place is that of the whole destination and source; scratch is as
 * for move_run. */
void scratch_blocks_run(const struct scratch_blocks *scratch_blocks, uint64_t i, const struct cpu_isa *isa,
                        const struct move_place *place, struct cpu_scratch *scratch);

#endif
