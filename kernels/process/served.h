/* SPDX-License-Identifier: Apache-2.0 */
/* The child: an engine that a front uses.
 *
 * Its main thread (run.c) is the engine's owner: it takes what the front has written into the ring, and
 * writes what comes of it into the other one. A thread for each socket maps and unmaps memory
 * (served_memory.c). When the engine is lost, or memory runs out, the child says so if it can, and ends: the
 * front starts another one.
 */
#ifndef KERNELS_PROCESS_SERVED_H
#define KERNELS_PROCESS_SERVED_H

#include <pthread.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "kernels/plan_cache.h"
#include "proto/wire/buffer.h"
#include "shared.h"
#include "wire.h"

#define SERVED_MEMORIES ((uint32_t)1 << 22)

struct served_owner {
	LIST_ENTRY(served_owner) entry;
	uint64_t number;
	struct engine_owner owner;
};

struct served_stream {
	struct engine_stream *stream; /* NULL: the front has none of that number */
	struct served_owner *owner;
};

/* A job with all that it points to. */
struct served_job {
	struct engine_job job; /* first: what the engine gives back */
	struct served *served;
	uint32_t number;
	uint32_t stream;
	struct engine_blocks blocks;
	struct layer_table *tables[2]; /* of dst and src, or NULL */
	struct engine_move moves[];    /* of a batch */
};

struct served {
	struct engine *engine;
	struct shared *shared;
	struct ring from_front, to_front;
	int control;
	int doorbell;
	atomic_bool is_closing; /* the front has closed the control socket */

	/* The main thread's. */
	struct buffer in; /* of a message that has not come completely */
	struct buffer out;
	uint32_t n_layouts;
	struct engine_plan **layouts; /* by number */
	uint32_t n_streams;
	struct served_stream *streams; /* by number */
	uint32_t n_jobs;
	struct served_job **jobs; /* by number: that have not ended */
	uint32_t under_way;
	LIST_HEAD(, served_owner) owners;
	uint64_t stats_ns;      /* when they were written last */
	uint64_t idle_since_ns; /* it had nothing to do; and how long that lasted the last time */
	uint64_t gap_ns;
	uint64_t kept_plans; /* number that the front last wanted */

	/* By number; the front knows a memory once it is here, and names it no more before it goes. */
	_Atomic(struct engine_memory *) *memories;
	atomic_uint memories_end; /* past the greatest number that there was */

	/* Jobs that have ended. The front unmaps memory once it has seen the jobs that use it end; by way of
	 * this count, what the main thread has done with it comes before that here, too. */
	atomic_uint_fast64_t ended;
};

/* The end of the child, of which the front learns. */
_Noreturn void served_die(struct served *served, const char *why);

/* ---- served_message.c --------------------------------------------------------------------------------- */

/* Does what the next message asks for; false: none has come completely. */
bool served_take_message(struct served *served);

/* Writes what has come back, as far as there is room; the rest when the front has made some. */
void served_flush(struct served *served);

void served_free_stream(struct served *served, uint32_t number);

/* ---- Others ------------------------------------------------------------------------------------------- */

/* served_memory.c: its threads; they never end. NO_MEMORY. */
int served_memory_start(struct served *served, struct error *err);

/* NULL for WIRE_NONE. */
static inline struct engine_memory *served_memory(struct served *served, uint32_t number)
{
	return number == WIRE_NONE ? NULL : atomic_load(&served->memories[number]);
}

/* ---- served_job.c ------------------------------------------------------------------------------------- */

/* From a message to a job, and from that to what is written back. NULL: out of memory. */
struct served_job *served_job_new(struct served *served, const struct wire_job *wire);
void served_job_free(struct served_job *job);

/* Appends the message to what is to be written; NO_MEMORY. */
int served_job_write(struct served *served, const struct served_job *job);

#endif
