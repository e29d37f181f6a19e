/* SPDX-License-Identifier: Apache-2.0 */
/* A running job: one job under way, handed out to threads as work items.
 *
 * A job is one move, a batch of moves, or a move over a list of blocks. A work item is one partition of a
 * large move or block (partition.h), or some small moves or blocks whole, or the reading of the next group of
 * an index list in a region (index_list.h). After everything has been moved and the signal has been given, it
 * wakes some of the many threads that sleep on the signal. A running job goes through its moves or blocks one
 * after the other, so that work items executed at the same time are of places close together. It owns
 * nothing. All calls but work_item_execute are made under one lock.
 */
#ifndef KERNELS_CPU_RUN_RUNNING_JOB_H
#define KERNELS_CPU_RUN_RUNNING_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "index_list.h"
#include "kernels/cpu/plan/partition.h"
#include "kernels/engine.h"
#include "tuning.h"

#define WORK_ITEM_BLOCKS_MOST 128

/* How far a list of blocks has been handed out: group by group, in each layer by layer. */
struct running_blocks {
	uint32_t most;  /* blocks of a work item; 0: a block is handed out in partitions */
	uint32_t layer; /* of the group that is handed out; all of them: it is done */
	uint32_t at;    /* entry of it */
	uint64_t left;  /* blocks to come, in all layers, or UINT64_MAX and less */
	uint64_t next;  /* entry to be read */
	bool reading;   /* by a work item, into the group that comes after */
	bool ahead;     /* that one has been read */
	int current;
	struct index_list_group group[2];
};

struct running_job {
	struct engine_job *job; /* NULL: idle */
	const struct cpu_tuning *tuning;
	uint32_t threads;
	int64_t piece; /* a work item's cost, about */
	bool stream;
	struct partitioner partitioner;  /* of the move or block that is handed out in partitions */
	struct amax_groups groups;       /* of it */
	struct engine_move *partitioned; /* that move */
	uint32_t partitioned_layer;      /* of that block */
	struct engine_move *moves;       /* of a batch, or the job's one */
	uint32_t n_moves, next_move;
	uint64_t left; /* cost of the moves to come */
	struct running_blocks blocks;
	unsigned active;     /* work items being executed */
	bool is_waking;      /* nothing is moved any more */
	bool is_counted;     /* those who sleep on the signal */
	uint32_t wakes_left; /* when it is: sleepers to wake */
	uint64_t start_ns;
	int status; /* why it was stopped */
	atomic_bool stopped;
};

enum work_item_kind {
	WORK_ITEM_PARTITION,
	WORK_ITEM_MOVES,
	WORK_ITEM_BLOCKS,
	WORK_ITEM_READ,
	WORK_ITEM_COUNT,
	WORK_ITEM_WAKE
};

struct work_item {
	struct running_job *running;
	enum work_item_kind kind;
	struct engine_move *move; /* the first; the partition's; where blocks are relative to */
	uint32_t n;               /* moves, blocks; sleepers to wake, and then: that there are, were woken */
	struct partition partition;

	/* The same blocks of some layers, or the block that a partition is of. */
	uint32_t layer; /* the first; while they are moved: the one that is */
	uint32_t layers;
	uint64_t entry; /* the first */
	int64_t block[WORK_ITEM_BLOCKS_MOST];
};

/* Of a job that comes in: it has no result yet, and none of its moves is done until something says so. */
void running_job_clear(struct engine_job *job);

/* Starts a cleared job; threads: how many may take work items of it. *tuning must live as long as *running.
 */
void running_job_start(struct running_job *running, struct engine_job *job, const struct cpu_tuning *tuning,
                       uint32_t threads);

/* Starts waking everybody who sleeps on the signal of a job that has ended and given it; that cannot be
 * stopped. The job's result stays as it is. */
void running_job_start_waking(struct running_job *running, struct engine_job *job);

/* About how many work items are left, capped at most and at the job's host_threads, less those being
 * executed. 0: there is none now; one that is being executed may bring more. */
unsigned running_job_work_items(const struct running_job *running, unsigned most);

/* The task that a move of the job is. */
struct task running_job_task(const struct running_job *running, struct engine_move *move);

/* How it converts, where its transform does. */
struct convert_place running_job_conversion(struct engine_move *move);

/* The memory that a move touches. Gives how many ranges. */
#define RUNNING_JOB_RANGES 6
uint32_t running_job_ranges(const struct engine_move *move, struct fault_range ret[RUNNING_JOB_RANGES]);

/* A move that has ended without an error: it has one if its cast was to be exact, and was not. */
void running_job_judge(struct engine_move *move);

/* One work item, for work_item_execute and then running_job_end_work_item. There must be one. */
void running_job_work_item(struct running_job *running, struct work_item *ret);

/* Runs a work item in this thread: 0, CANCELED when the job was stopped meanwhile, DEVICE when the memory
 * failed under it. Of the moves of a batch that were small each has its own status, and the work item's is 0.
 * scratch as for move_run. */
int work_item_execute(struct work_item *work_item, struct cpu_scratch *scratch);

/* status: what work_item_execute gave. */
void running_job_end_work_item(struct running_job *running, const struct work_item *work_item, int status);

/* No more work items; the job ends with status when those being executed have. */
void running_job_stop(struct running_job *running, int status);

/* Whether all is done; fills the job's result and leaves *running idle. */
bool running_job_end(struct running_job *running, struct engine_job **ret);

#endif
