/* SPDX-License-Identifier: Apache-2.0 */
/* A running job is a job under way, handed out to threads as work items.
 *
 * A job is one move, a batch of moves, or a move over a list of blocks. A work item is one partition of a
 * large move or block (partition.h), or some small moves or blocks whole, or the reading of the next group of
 * an index list in a region. After everything has been moved and the signal has been given, it
 * wakes some of the many threads that sleep on the signal. A running job goes through its moves or blocks one
 * after the other, so that work items executed at the same time are of places close together. It owns
 * nothing. All calls but work_item_execute are made under one lock.
 */
#ifndef KERNELS_CPU_RUN_RUNNING_JOB_H
#define KERNELS_CPU_RUN_RUNNING_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/plan/partition.h"
#include "kernels/engine.h"
#include "kernels/host/fault.h"
#include "tuning.h"

/* ---- Index lists ------------------------------------------------------------------------------------ */

/* Each entry of the index list of a list of blocks is read once, checked, and kept, a group at a time. A list
 * in a region is a client's memory, which may change or fail: index_list_read runs under the guard (fault.h),
 * and nothing else reads the list. */
#define INDEX_LIST_GROUP 1024 /* entries */

/* An entry moves block src to block dst. Both are -1 if it is passed over. */
struct index_list_entry {
	int64_t dst, src;
};

struct index_list_group {
	uint64_t first; /* entry */
	uint32_t n;
	uint32_t named; /* entries of the group that are not passed over */
	struct index_list_entry entry[INDEX_LIST_GROUP];
};

/* Reads the entries from `first` on into *ret, and counts those that are passed over. */
void index_list_read(struct engine_blocks *blocks, uint64_t first, struct index_list_group *ret);

/* Returns how many entries of a list that the host brought (index) have no -1. */
uint32_t index_list_named(const struct engine_blocks *blocks);

/* Returns whether the job has such a list, which names no block: the job uses none of its memories. */
bool index_list_names_nothing(const struct engine_job *job);

/* Returns the memory that index_list_read reads, which is empty when it is the host's own. */
struct fault_range index_list_range(const struct engine_blocks *blocks);

/* Sets ret to the memory that the blocks of a layer lie in, on either side. */
void index_list_layer_ranges(const struct engine_job *job, uint32_t layer, struct fault_range ret[2]);

/* Sets where the blocks of an entry lie in a layer. */
void index_list_place(const struct engine_job *job, const struct index_list_entry *entry, uint32_t layer,
                      struct move_place *ret);

/* ---- Running jobs ----------------------------------------------------------------------------------- */

#define WORK_ITEM_BLOCKS_MOST 128

/* Says how far a list of blocks has been handed out: group by group, and in each group layer by layer. */
struct running_blocks {
	uint32_t most; /* blocks of a work item at most; 0: each block is handed out in partitions */
	/* Layer that is handed out of the current group; the number of layers: the group is done. */
	uint32_t layer;
	uint32_t at;   /* next entry of the current group */
	uint64_t left; /* blocks to come, in all layers; UINT64_MAX if they are more */
	uint64_t next; /* first entry that has not been read */
	bool reading;  /* a work item reads the group that comes next */
	bool ahead;    /* the next group has been read */
	int current;
	struct index_list_group group[2];
};

struct running_job {
	struct engine_job *job; /* NULL: idle */
	const struct cpu_tuning *tuning;
	uint32_t threads;
	int64_t piece; /* about what a work item should cost */
	bool stream;
	struct partitioner partitioner;  /* divides the move or block that is handed out in partitions */
	struct amax_groups groups;       /* its large blocks */
	struct engine_move *partitioned; /* the move that partitioner divides */
	uint32_t partitioned_layer;      /* layer of the block that partitioner divides */
	struct engine_move *moves;       /* moves of a batch, or the job's one move */
	uint32_t n_moves, next_move;
	uint64_t left; /* cost of the moves to come */
	struct running_blocks blocks;
	unsigned active;     /* work items being executed */
	bool is_waking;      /* Everything has been moved, and sleepers are woken. */
	bool is_counted;     /* The sleepers on the signal have been counted. */
	uint32_t wakes_left; /* sleepers still to be woken; valid if is_counted */
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
	/* The first move; the partition's move; the move whose place blocks are relative to. */
	struct engine_move *move;
	uint32_t n; /* number of moves or blocks; sleepers to wake, then those that were found or woken */
	struct partition partition;

	/* The work item moves the same blocks in some layers, or a partition of one block. */
	uint32_t layer; /* first layer; while they are moved, the current one */
	uint32_t layers;
	struct index_list_entry entry[WORK_ITEM_BLOCKS_MOST];
};

/* Clears the result of a job that comes in; none of its moves is done until something says so. */
void running_job_clear(struct engine_job *job);

/* Starts a cleared job, of which so many threads may take work items. *tuning must live as long as *running.
 */
void running_job_start(struct running_job *running, struct engine_job *job, const struct cpu_tuning *tuning,
                       uint32_t threads);

/* Starts waking everybody who sleeps on the signal of a job that has ended and given it; that cannot be
 * stopped. The job's result stays as it is. */
void running_job_start_waking(struct running_job *running, struct engine_job *job);

/* Returns about how many work items are left, capped at most and at the job's host_threads, less those being
 * executed. 0 means that there is none now; one that is being executed may bring more. */
unsigned running_job_work_items(const struct running_job *running, unsigned most);

/* Returns the task that a move of the job is. */
struct task running_job_task(const struct running_job *running, struct engine_move *move);

/* Returns the task of a move, or a block, that one thread moves whole. It is planned for the largest piece,
 * so that requests of all lengths find one plan. */
struct task running_job_whole_task(const struct running_job *running, struct engine_move *move);

/* Returns where a move that converts has its operands and results. */
struct convert_place running_job_conversion(struct engine_move *move);

/* Sets ret to the memory that a move touches, and returns how many ranges that is. */
#define RUNNING_JOB_RANGES 6
uint32_t running_job_ranges(const struct engine_move *move, struct fault_range ret[RUNNING_JOB_RANGES]);

/* Sets the status of a move that has ended without an error to OUT_OF_RANGE if its cast was to be exact, and
 * was not. */
void running_job_judge(struct engine_move *move);

/* Sets *ret to the next work item, for work_item_execute and then running_job_end_work_item. There must be
 * one. */
void running_job_work_item(struct running_job *running, struct work_item *ret);

/* Runs a work item in this thread. Returns 0, CANCELED if the job was stopped meanwhile, or DEVICE if the
 * memory failed under it. In a batch each small move has its own status, and the work item's is 0. scratch is
 * as for move_run. */
int work_item_execute(struct work_item *work_item, struct cpu_scratch *scratch);

/* Ends a work item with the status that work_item_execute returned. */
void running_job_end_work_item(struct running_job *running, const struct work_item *work_item, int status);

/* Hands out no more work items; the job ends with status when those being executed have. */
void running_job_stop(struct running_job *running, int status);

/* Returns whether all is done; fills the job's result and leaves *running idle. */
bool running_job_end(struct running_job *running, struct engine_job **ret);

#endif
