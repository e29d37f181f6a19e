/* A run: one job under way, handed out to threads in work items.
 *
 * A job is one move, a batch of them, or a move over a list of blocks. A work item is a part of a large move
 * or block (cut.h), or some small ones whole, or a look at what an index list in a region says next (list.h);
 * or, when all has been moved and the signal has been given, some of the many that sleep on it are woken. A
 * run goes through its moves or blocks one after the other, so that work items that are executed at once are
 * of places that lie together. It owns nothing. All calls but work_item_execute are made under one lock.
 */
#ifndef KERNELS_CPU_RUNNING_JOB_H
#define KERNELS_CPU_RUNNING_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "partition.h"
#include "kernels/engine.h"
#include "index_list.h"
#include "tuning.h"

#define WORK_ITEM_BLOCKS_MOST 128

/* How far a list of blocks has been handed out: group by group, in each layer by layer. */
struct run_blocks {
	uint32_t most;  /* blocks of a work item; 0: a block is handed out in parts */
	uint32_t layer; /* of the group that is handed out; all of them: it is done */
	uint32_t at;    /* entry of it */
	uint64_t left;  /* blocks to come, in all layers, or UINT64_MAX and less */
	uint64_t next;  /* entry to be read */
	bool reading;   /* by a work item, into the group that comes after */
	bool ahead;     /* that one has been read */
	int current;
	struct list_group group[2];
};

struct run {
	struct engine_job *job; /* NULL: idle */
	const struct cpu_tuning *tuning;
	uint32_t threads;
	int64_t piece; /* a work item's cost, about */
	bool stream;
	struct cut cut;             /* what is handed out in parts */
	struct engine_move *cut_of; /* the move that it is of */
	struct engine_move *moves;  /* of a batch, or the job's one */
	uint32_t n_moves, next_move;
	uint64_t left; /* cost of the moves to come */
	struct run_blocks blocks;
	unsigned active;     /* work items being executed */
	bool is_waking;      /* nothing is moved any more */
	bool is_counted;     /* who sleeps on the signal */
	uint32_t wakes_left; /* when it is: sleepers to wake */
	uint64_t start_ns;
	int status; /* why it was stopped */
	atomic_bool stopped;
};

enum work_item_kind {
	WORK_ITEM_PART,
	WORK_ITEM_MOVES,
	WORK_ITEM_BLOCKS,
	WORK_ITEM_READ,
	WORK_ITEM_COUNT,
	WORK_ITEM_WAKE
};

struct work_item {
	struct run *run;
	enum work_item_kind kind;
	struct engine_move *move; /* the first; of the part; where blocks are relative to */
	uint32_t n;               /* moves, blocks; sleepers to wake, and then: that there are, were woken */
	struct part part;

	/* Blocks of one layer. */
	uint32_t layer;
	uint64_t entry; /* the first */
	int64_t block[WORK_ITEM_BLOCKS_MOST];
};

/* Of a job that comes in: it has no result yet, and none of its moves is done until something says so. */
void run_clear(struct engine_job *job);

/* Takes a cleared job up; threads: how many may work item from it. *tuning must live as long as the run. */
void run_start(struct run *run, struct engine_job *job, const struct cpu_tuning *tuning, uint32_t threads);

/* Takes up a job that has ended and has given its signal, for all who sleep on that to be woken: that cannot
 * be stopped. Its result stays as it is. */
void run_start_waking(struct run *run, struct engine_job *job);

/* About how many work items are left, capped at most. 0: there is none now; one that is being executed may
 * bring more. */
unsigned run_work_items(const struct run *run, unsigned most);

/* What a move of the run's job is to whoever runs it. */
struct task run_task(const struct run *run, const struct engine_move *move);

/* One work item, for work_item_execute and then run_end_claim. There must be one. */
void run_work_item(struct run *run, struct work_item *ret);

/* Runs a work item in this thread: 0, CANCELED when the run was stopped meanwhile, DEVICE when the memory
 * failed under it. Of the moves of a batch that were small each has its own status, and the work item's is 0.
 * scratch as for move_run. */
int work_item_execute(struct work_item *work_item, char *scratch);

/* status: what work_item_execute gave. */
void run_end_work_item(struct run *run, const struct work_item *work_item, int status);

/* No more work items; the job ends with status when those being executed have. */
void run_stop(struct run *run, int status);

/* Whether all is done; fills the job's result and makes the run idle. */
bool run_end(struct run *run, struct engine_job **ret);

#endif
