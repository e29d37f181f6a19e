/* SPDX-License-Identifier: Apache-2.0 */
/* The insides of the model: a cluster of blocks that runs, its threads, its shared memory, the unit's queue.
 *
 * One kernel runs at a time, one cluster of it after the other, on one thread of the host; there is one
 * machine. Two contexts: a thread's fiber, and the scheduler. model_fail is for fibers; model_fail_for
 * records a failure in the name of a thread from anywhere and returns.
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
#define MODEL_MAX_THREADS 1024        /* of a block */
#define MODEL_MAX_SHARED  (227 << 10) /* of a block, bytes */
#define MODEL_MAX_LOOPS   15          /* one in the other */
#define MODEL_POISON      0xcb /* what shared memory holds that nobody wrote, and what is being loaded */

enum thread_state {
	THREAD_READY,
	THREAD_AT_SYNC,
	THREAD_AT_WARP_SYNC,
	THREAD_AT_CLUSTER_SYNC,
	THREAD_AT_BARRIER,
	THREAD_AT_STORES,
	THREAD_DONE
};

/* An iteration of a loop, or the kernel itself; kept while a launch is counted. */
struct model_iteration {
	uint64_t path; /* tells it from all other iterations */
	uint32_t loop; /* the last one directly inside */
	uint32_t n;    /* iterations of that loop so far */
};

struct model_thread {
	struct model_here here;
	struct model_block *block;
	uint32_t number; /* in the cluster: its actor, and its fiber */
	enum thread_state state;
	uint32_t mask;                 /* at a warp's sync: the lanes that are to meet */
	struct model_barrier *barrier; /* waited for */
	uint32_t parity;
	uint32_t group; /* at stores: those of groups below it are waited for */
	bool read;      /* to have read; else to have written */
	uint32_t next_group;
	bool has_open;  /* stores after the last commit */
	uint32_t value; /* brought to a shuffle */
	bool waited;    /* for the grids before this one */
	uint32_t depth; /* loops that it is in */
	struct model_iteration iterations[MODEL_MAX_LOOPS + 1];
};

/* An mbarrier. Phase p is over when no arrivals and no bytes are pending. */
struct model_barrier {
	struct model_block *block;
	uint32_t number; /* its views in the order */
	uint32_t actor;
	uint32_t offset; /* in shared memory */
	bool live;
	uint32_t arrivals;
	uint32_t pending;
	int64_t pending_bytes;
	uint64_t expected;  /* bytes, in this phase */
	uint64_t announced; /* of them, by loads that were issued */
	uint32_t phase;
	uint32_t loaded_phase; /* number of the last phase with a load, + 1 */
	uint32_t waited_phase; /* the same of the last that a thread has waited for */
	uint32_t init_thread;
	order_stamp init;
	bool fenced;    /* since init, by that thread */
	bool has_peers; /* threads of other blocks have arrived */
};

struct model_block {
	uint32_t rank; /* in the cluster */
	struct model_dim3 index;
	unsigned char *shared;
	uint32_t shared_bytes;
	struct model_thread *threads;
	uint32_t n_alive;
	uint32_t n_copies;     /* to other blocks that are still to read its shared memory */
	order_stamp *written;  /* a byte: by whom last */
	order_stamp *read;     /* a byte: by whom since */
	order_stamp *combined; /* a byte: the same of atomic accesses */
	uint16_t *loading;     /* 16 bytes: loads that are to fill them */
	uint16_t *storing;     /* 16 bytes: stores whose issuer has not waited for their reading */
	uint8_t *barrier_at;   /* 8 bytes: number of the live barrier there, + 1 */
	uint64_t in_flight;    /* bytes of loads that have not come */
};

struct model_machine {
	const struct model_kernel *kernel;
	const struct model_launch *launch;
	const void *args;
	struct fiber_set *fibers;
	uint32_t block_threads;
	uint32_t n_blocks; /* in the cluster */
	struct model_block blocks[MODEL_MAX_CLUSTER];
	struct model_thread *threads; /* of the whole cluster */
	uint32_t n_threads;
	struct model_thread *self; /* NULL: the scheduler */
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
/* Puts the running thread to rest in that state until someone makes it ready. */
void model_rest(enum thread_state state);
/* Now and then, lets the others and the unit run. */
void model_breathe(void);

/* ---- meet.c */
/* The thread ended: those who waited for it may go on. */
void meet_thread_ended(struct model_thread *thread);

/* ---- shared.c */
bool shared_prepare(struct model_block *block, uint32_t bytes);
void shared_free(void);
/* Offset of [p, p + bytes) in the running thread's block; what names the access where that fails. */
uint32_t shared_offset(const void *p, uint32_t bytes, uint32_t align, const char *what);
/* " of block 1", or "" for the running thread's. */
const char *shared_whose(const struct model_block *block);
/* A load is issued, has come; a store is issued, has been waited for by its issuer. A copy to another block
 * is a store of its source, waited for by the barrier's actor once it has come. */
void shared_load_begins(struct model_block *block, uint32_t offset, uint32_t bytes,
                        const struct model_barrier *barrier);
void shared_load_ends(struct model_block *block, uint32_t offset, uint32_t bytes,
                      const struct model_barrier *barrier);
void shared_store_begins(uint32_t offset, uint32_t bytes);
void shared_store_ends(struct model_block *block, uint32_t offset, uint32_t bytes, uint32_t actor);

/* ---- global.c */
void global_forget(void);
/* The running thread is to touch it, by what: a failure where the grids before this one may still run. */
void global_begin(const char *what);
/* false: it is no memory that the driver knows. */
bool global_check(uint64_t address, uint64_t bytes, bool write);

/* ---- count.c */
struct unit_op;

void count_cluster_begins(void);
void count_cluster_ends(void);
void count_free(void);
/* While model_is_counting: the running thread reaches an instruction; at, size: of the access, if it is one.
 */
void count_instruction(enum softgpu_instruction kind, uint64_t at, uint32_t size, uint32_t line);
/* The warps of threads [first, first + n) meet. */
void count_meeting(enum softgpu_instruction kind, uint32_t first, uint32_t n);
/* A request to the unit, as it is issued. Returns the bytes of global memory that it moves, 0 while nothing
 * is counted. */
uint64_t count_op(const struct unit_op *op);
/* So many bytes more are on their way to the block. */
void count_in_flight(struct model_block *block, int64_t bytes);

/* ---- barrier.c */
/* The live barrier at p, or a failure that says what was tried. */
struct model_barrier *barrier_at(const void *p, const char *what);
/* The same in any block of the cluster. */
struct model_barrier *barrier_in(const struct model_block *block, uint32_t offset, const char *what);
/* A load of this thread is on its way. */
void barrier_announce(struct model_barrier *barrier, uint32_t bytes);
/* It has come. issuer is named where that breaks a rule. */
void barrier_complete(struct model_barrier *barrier, uint32_t bytes, const struct model_thread *issuer);

/* ---- unit.c */
void unit_reset(void);
void unit_free(void);
bool unit_is_idle(void);
/* One operation goes on, any. */
void unit_step(void);
/* The thread ends: false when a store of its has not been waited for. */
bool unit_has_unread(const struct model_thread *thread);

/* ---- cluster.c */
void cluster_forget(void);
void cluster_free(void);
/* What another block did to this one's shared memory: this one has to know of it before it ends. false: no
 * memory. */
bool cluster_touched(const struct model_block *block, order_stamp by, const char *what);
/* The running thread has heard something. */
void cluster_hears(void);
/* It ends: a failure when its block does, and does not know of all that was done. */
void cluster_thread_ends(void);

#endif
