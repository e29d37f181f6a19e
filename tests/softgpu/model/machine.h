/* SPDX-License-Identifier: Apache-2.0 */
/* The model's internal state: the running cluster's blocks, threads and shared memory, and the queue of the
 * TMA unit. There is one machine: it runs one kernel at a time, one cluster of it after the other, on one
 * host thread.
 *
 * Code runs in one of two contexts: on a thread's fiber, or in the scheduler. model_fail is for fibers and
 * does not return; model_fail_for may be called in either, records a failure in the name of a thread, and
 * returns.
 */
#ifndef TESTS_SOFTGPU_MODEL_MACHINE_H
#define TESTS_SOFTGPU_MODEL_MACHINE_H

#include "fiber.h"
#include "instructions.h"
#include "order.h"
#include "table.h"
#include "tile.h"

#include "tests/softgpu/model.h"

#define MODEL_WARP        32
#define MODEL_MAX_CLUSTER 16
#define MODEL_MAX_THREADS 1024        /* threads of a block */
#define MODEL_MAX_SHARED  (227 << 10) /* bytes of a block */
#define MODEL_MAX_LOOPS   15          /* depth of nested loops */
/* Fills shared memory that was not written yet, or is the target of a load under way. */
#define MODEL_POISON 0xcb

enum thread_state {
	THREAD_READY,
	THREAD_AT_SYNC,
	THREAD_AT_WARP_SYNC,
	THREAD_AT_CLUSTER_SYNC,
	THREAD_AT_BARRIER,
	THREAD_AT_STORES,
	THREAD_DONE
};

/* An iteration of a loop, or the kernel's body. Maintained only while a launch is counted. */
struct model_iteration {
	uint64_t path; /* hash that identifies it among all iterations */
	uint32_t loop; /* the loop directly inside it that was entered last */
	uint32_t n;    /* iterations of that loop so far */
};

struct model_thread {
	struct model_here here;
	struct model_block *block;
	uint32_t number; /* index in the cluster, which is also its actor and its fiber */
	enum thread_state state;
	uint32_t mask;                 /* THREAD_AT_WARP_SYNC: the lanes that synchronize */
	struct model_barrier *barrier; /* THREAD_AT_BARRIER: the barrier waited for */
	uint32_t parity;
	uint32_t group; /* THREAD_AT_STORES: it waits for its groups below this one */
	bool read;      /* THREAD_AT_STORES: it waits until they have read; false: have written */
	uint32_t next_group;
	bool has_open;  /* has issued stores since its last commit */
	uint32_t value; /* its operand of a shuffle */
	bool waited;    /* has waited for the previous grids */
	uint32_t depth; /* number of loops that it is in */
	struct model_iteration iterations[MODEL_MAX_LOOPS + 1];
};

/* An mbarrier. A phase is over when neither arrivals nor bytes are pending. */
struct model_barrier {
	struct model_block *block;
	uint32_t number; /* number of its views in the order */
	uint32_t actor;
	uint32_t offset; /* offset in shared memory, in bytes */
	bool live;
	uint32_t arrivals;
	uint32_t pending;
	int64_t pending_bytes;
	uint64_t expected;  /* bytes expected in this phase */
	uint64_t announced; /* bytes of the loads issued in this phase */
	uint32_t phase;
	uint32_t loaded_phase; /* number of the last phase with a load, plus 1 */
	uint32_t waited_phase; /* number of the last phase that a thread has waited for, plus 1 */
	uint32_t init_thread;
	order_stamp init;
	bool fenced;    /* init_thread has fenced since the init */
	bool has_peers; /* threads of other blocks have arrived on it */
};

struct model_block {
	uint32_t rank; /* rank in the cluster */
	struct model_dim3 index;
	unsigned char *shared;
	uint32_t shared_bytes;
	struct model_thread *threads;
	uint32_t n_alive;
	uint32_t n_copies;     /* copies to other blocks that have not read this block's shared memory yet */
	order_stamp *written;  /* per byte: the last write */
	order_stamp *read;     /* per byte: the last read since that write */
	order_stamp *combined; /* per byte: the last atomic access */
	uint16_t *loading;     /* per 16 bytes: number of loads under way into them */
	uint16_t *storing;     /* per 16 bytes: number of stores whose read the issuer has not waited for */
	uint8_t *barrier_at;   /* per 8 bytes: number of the live barrier there, plus 1 */
	uint64_t in_flight;    /* bytes of the loads under way to this block */
};

struct model_machine {
	const struct model_kernel *kernel;
	const struct model_launch *launch;
	const void *args;
	struct fiber_set *fibers;
	uint32_t block_threads;
	uint32_t n_blocks; /* blocks in the cluster */
	struct model_block blocks[MODEL_MAX_CLUSTER];
	struct model_thread *threads; /* threads of all blocks of the cluster */
	uint32_t n_threads;
	struct model_thread *self; /* the running thread; NULL in the scheduler */
	struct model_barrier barriers[ORDER_MAX_BARRIERS];
	uint32_t n_barriers;
	uint64_t random;
	bool failed;
	char report[512];
};

extern struct model_machine machine;

/* ---- run.c */
void model_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
void model_fail_for(const struct model_thread *thread, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
uint32_t model_random(uint32_t below);
/* Puts the running thread into that state until someone makes it ready. */
void model_rest(enum thread_state state);
/* Gives the other threads and the unit a turn now and then. */
void model_breathe(void);

/* ---- meet.c */
/* Releases the threads that waited for this one, which has ended. */
void meet_thread_ended(struct model_thread *thread);

/* ---- shared.c */
bool shared_prepare(struct model_block *block, uint32_t bytes);
void shared_free(void);
/* Returns the offset of [p, p + bytes) in the running thread's block. Fails if it is not there or misaligned;
 * what names the access in the report. */
uint32_t shared_offset(const void *p, uint32_t bytes, uint32_t align, const char *what);
/* Returns " of block N" for a report, or "" for the running thread's block. */
const char *shared_whose(const struct model_block *block);
/* Called when a load is issued, when its bytes have come, when a store is issued, and when its issuer has
 * waited for it. A copy to another block counts as a store in its source block; the barrier's actor waits for
 * it once the bytes have come. */
void shared_load_begins(struct model_block *block, uint32_t offset, uint32_t bytes,
                        const struct model_barrier *barrier);
void shared_load_ends(struct model_block *block, uint32_t offset, uint32_t bytes,
                      const struct model_barrier *barrier);
void shared_store_begins(uint32_t offset, uint32_t bytes);
void shared_store_ends(struct model_block *block, uint32_t offset, uint32_t bytes, uint32_t actor);

/* ---- global.c */
void global_forget(void);
/* Fails if the running thread, about to perform what, may not access global memory because previous grids may
 * still run. */
void global_begin(const char *what);
/* Returns false if the driver knows no such memory. */
bool global_check(uint64_t address, uint64_t bytes, bool write);

/* ---- count.c */
struct unit_op;

void count_cluster_begins(void);
void count_cluster_ends(void);
void count_free(void);
/* Called while model_is_counting when the running thread reaches an instruction. at and size describe its
 * access, if it makes one. */
void count_instruction(enum softgpu_instruction kind, uint64_t at, uint32_t size, uint32_t line);
/* The warps of threads [first, first + n) synchronize. */
void count_meeting(enum softgpu_instruction kind, uint32_t first, uint32_t n);
/* Counts a request to the unit at its issue. Returns the bytes of global memory that it moves; 0 while
 * nothing is counted. */
uint64_t count_op(const struct unit_op *op);
/* Adds bytes, which may be negative, to the bytes under way to the block. */
void count_in_flight(struct model_block *block, int64_t bytes);

/* ---- barrier.c */
/* Returns the live barrier at p. Fails if there is none; what names the attempt. */
struct model_barrier *barrier_at(const void *p, const char *what);
/* Does the same for a barrier in any block of the cluster. */
struct model_barrier *barrier_in(const struct model_block *block, uint32_t offset, const char *what);
/* Notes that the running thread has issued a load for the barrier. */
void barrier_announce(struct model_barrier *barrier, uint32_t bytes);
/* Notes that the load's bytes have come. issuer is blamed if that breaks a rule. */
void barrier_complete(struct model_barrier *barrier, uint32_t bytes, const struct model_thread *issuer);

/* ---- unit.c */
void unit_reset(void);
void unit_free(void);
bool unit_is_idle(void);
/* Lets one operation, drawn at random, make progress. */
void unit_step(void);
/* Returns whether the thread has a store whose read of shared memory it has not waited for. */
bool unit_has_unread(const struct model_thread *thread);

/* ---- cluster.c */
void cluster_forget(void);
void cluster_free(void);
/* Notes that another block touched this block's shared memory, which this block has to know before it ends.
 * Returns false if out of memory. */
bool cluster_touched(const struct model_block *block, order_stamp by, const char *what);
/* Called when the running thread has learned of events. */
void cluster_hears(void);
/* Called when the running thread ends. Fails if its block ends with it and does not know of everything done
 * to its shared memory. */
void cluster_thread_ends(void);

#endif
