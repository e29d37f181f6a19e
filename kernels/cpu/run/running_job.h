/* SPDX-License-Identifier: Apache-2.0 */
/* A running job is a job under way, handed out to threads as work items.
 *
 * A job is one move, a batch of moves, or a move over a list of blocks. A work item is one partition of a
 * large move or block (partition.h), or some small moves or blocks as a whole, or the reading of the next
 * group of an index list in a region. If many threads sleep on the job's signal, further work items wake them
 * after everything has been moved and the signal has been given. A running job goes through its moves or
 * blocks in order, so that work items executed at the same time touch places close together. It owns no
 * memory. Except for work_item_execute, all functions are called under the lock of the job's streams.
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

/* Each entry of a list of blocks is read once, checked and stored, one group of entries at a time. A list in
 * a region is a client's memory, which may change or fail: only index_list_read reads such a list, and it
 * must run under a guard (fault.h). */
#define INDEX_LIST_GROUP 1024 /* entries */

/* The entry moves block src to block dst. Both are -1 if the entry is skipped. */
struct index_list_entry {
	int64_t dst, src;
};

struct index_list_group {
	uint64_t first; /* index in the list of the group's first entry */
	uint32_t n;
	uint32_t named; /* number of entries of the group that are not skipped */
	struct index_list_entry entry[INDEX_LIST_GROUP];
};

/* Reads a group of entries, from entry `first` on, into *ret, and adds those that are skipped to the counts
 * in *blocks. */
void index_list_read(struct engine_blocks *blocks, uint64_t first, struct index_list_group *ret);

/* Returns the number of entries without a -1 in a list that lies in host memory (index). */
uint32_t index_list_named(const struct engine_blocks *blocks);

/* Returns whether the job has a list in host memory that names no block, so that the job uses none of its
 * memories. */
bool index_list_names_nothing(const struct engine_job *job);

/* Returns the range of client memory that index_list_read reads; empty if the list is in host memory
 * (index). */
struct fault_range index_list_range(const struct engine_blocks *blocks);

/* Sets ret[0] to the memory of dst, and ret[1] to that of src, in which the blocks of a layer lie. */
void index_list_layer_ranges(const struct engine_job *job, uint32_t layer, struct fault_range ret[2]);

/* Sets the addresses of the blocks of an entry in a layer. */
void index_list_place(const struct engine_job *job, const struct index_list_entry *entry, uint32_t layer,
                      struct move_place *ret);

/* ---- Running jobs ----------------------------------------------------------------------------------- */

#define WORK_ITEM_BLOCKS_MOST 128

/* The state of handing out a list of blocks: group by group, and within a group layer by layer. */
struct running_blocks {
	/* Maximum number of blocks of a work item; 0: each block is handed out in partitions. */
	uint32_t most;
	/* Layer of the current group that is being handed out. Equal to the number of layers if the group is
	 * done. */
	uint32_t layer;
	uint32_t at;   /* next entry of the current group */
	uint64_t left; /* number of blocks to come in all layers, or UINT64_MAX if there are more */
	uint64_t next; /* first entry of the list that has not been read */
	bool reading;  /* a work item is reading the group after the current one */
	bool ahead;    /* the group after the current one has been read */
	int current;
	struct index_list_group group[2];
};

struct running_job {
	struct engine_job *job; /* NULL: no job is running */
	const struct cpu_tuning *tuning;
	uint32_t threads;
	int64_t piece; /* approximate cost that a work item should have, in bytes (task_cost) */
	bool stream;
	struct partitioner partitioner;  /* divides the move or block that is handed out in partitions */
	struct amax_groups groups;       /* groups of its large amax blocks */
	struct engine_move *partitioned; /* move that partitioner divides */
	uint32_t partitioned_layer;      /* layer of the block that partitioner divides */
	struct engine_move *moves;       /* moves of a batch, or the job's single move */
	uint32_t n_moves, next_move;
	uint64_t left; /* sum of the costs of the moves to come */
	struct running_blocks blocks;
	unsigned active;     /* number of work items that are being executed */
	bool is_waking;      /* everything has been moved, and sleepers are being woken */
	bool is_counted;     /* the sleepers on the signal have been counted */
	uint32_t wakes_left; /* number of sleepers still to be woken; valid if is_counted */
	uint64_t start_ns;
	int status; /* why the job was stopped; 0: it was not */
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
	/* First move; move of the partition; or the move relative to which blocks are placed. */
	struct engine_move *move;
	/* Number of moves or blocks; or number of sleepers to wake, replaced by the number found or woken. */
	uint32_t n;
	struct partition partition;

	/* For WORK_ITEM_BLOCKS: the layers, in each of which the same blocks are moved. For a partition of a
	 * block: the block's layer. */
	uint32_t layer; /* first layer; while the blocks are moved, the current one */
	uint32_t layers;
	struct index_list_entry entry[WORK_ITEM_BLOCKS_MOST];
};

/* Clears the result of a new job. Its moves have the status CANCELED until they have been done. */
void running_job_clear(struct engine_job *job);

/* Starts a job that running_job_clear has cleared. At most `threads` threads may take its work items. *tuning
 * must live as long as *running. */
void running_job_start(struct running_job *running, struct engine_job *job, const struct cpu_tuning *tuning,
                       uint32_t threads);

/* Starts to wake everybody who sleeps on the signal of a job that has ended and given it. This cannot be
 * stopped, and does not change the job's result. */
void running_job_start_waking(struct running_job *running, struct engine_job *job);

/* Returns approximately how many work items can be taken now, but at most `most`, and no more than the job's
 * host_threads allow in addition to those that are being executed. 0 means exactly none; there may be more
 * once one that is being executed has ended. */
unsigned running_job_work_items(const struct running_job *running, unsigned most);

/* Returns the task for a move of the job. */
struct task running_job_task(const struct running_job *running, struct engine_move *move);

/* Returns the task for a move or block that one thread moves as a whole. It is planned for the largest size
 * of a piece, so that requests of any number of blocks or moves find the same plan. */
struct task running_job_whole_task(const struct running_job *running, struct engine_move *move);

/* Returns the addresses of the operands and results of a move that converts. */
struct convert_place running_job_conversion(struct engine_move *move);

/* Sets ret to the ranges of memory that a move touches. Returns their number. */
#define RUNNING_JOB_RANGES (2 + ROLE_COUNT)
uint32_t running_job_ranges(const struct engine_move *move, struct fault_range ret[RUNNING_JOB_RANGES]);

/* Sets the status of a move that has ended without an error to OUT_OF_RANGE if an exact cast has changed
 * values. */
void running_job_judge(struct engine_move *move);

/* Sets *ret to the next work item, which the caller passes to work_item_execute and then to
 * running_job_end_work_item. There must be one. */
void running_job_work_item(struct running_job *running, struct work_item *ret);

/* Executes a work item in the calling thread, which must not hold the lock. Returns 0, CANCELED if the job
 * was stopped meanwhile, or DEVICE if the memory failed. In a batch, each small move gets a status of its
 * own, and 0 is returned. scratch is as for move_run. */
int work_item_execute(struct work_item *work_item, struct cpu_scratch *scratch);

/* Ends a work item with the status that work_item_execute returned. */
void running_job_end_work_item(struct running_job *running, const struct work_item *work_item, int status);

/* Hands out no more work items. The job ends with `status` when the work items being executed have ended. */
void running_job_stop(struct running_job *running, int status);

/* Returns whether the job is over. If so, fills its result, sets *ret to it, and leaves *running without a
 * job. */
bool running_job_end(struct running_job *running, struct engine_job **ret);

#endif
