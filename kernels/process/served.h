/* SPDX-License-Identifier: Apache-2.0 */
/* The child runs an engine that a front uses.
 *
 * Its main thread (run.c) is the engine's owner: it takes messages of the front from one ring, and writes the
 * outcome into the other one. A thread for each socket maps and unmaps memory (served.c). When the engine is
 * lost, or memory runs out, the child says so if it can, and ends: the front starts another one.
 */
#ifndef KERNELS_PROCESS_SERVED_H
#define KERNELS_PROCESS_SERVED_H

#include <pthread.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "kernels/plan_cache.h"
#include "proto/wire/frame.h"
#include "shared.h"

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

/* A served job holds all that it points to. */
struct served_job {
	struct engine_job job; /* first, because the engine gives this back */
	struct served *served;
	uint32_t number;
	uint32_t stream;
	struct engine_blocks blocks;
	struct layer_table *tables[2]; /* of dst and src, or NULL */
	struct engine_move moves[];    /* moves of a batch */
};

struct served {
	struct engine *engine;
	struct shared *shared;
	struct ring from_front, to_front;
	int control;
	int doorbell;
	atomic_bool is_closing; /* the front has closed the control socket */

	/* These belong to the main thread. */
	struct buffer in; /* beginning of a message that has not come completely */
	struct buffer out;
	uint32_t n_layouts;
	struct engine_plan **layouts; /* by number */
	uint32_t n_streams;
	struct served_stream *streams; /* by number */
	uint32_t n_jobs;
	struct served_job **jobs; /* jobs that have not ended, by number */
	uint32_t under_way;
	LIST_HEAD(, served_owner) owners;
	uint64_t stats_ns;      /* when the statistics were written last */
	uint64_t idle_since_ns; /* since when it has had nothing to do; gap_ns: for how long the last time */
	uint64_t gap_ns;
	uint64_t kept_plans; /* number of plans that the front last wanted */

	/* These are memories by number. The front names a memory only once it is here, and no more before it
	 * goes. */
	_Atomic(struct engine_memory *) *memories;
	atomic_uint memories_end; /* one past the greatest number that has been used */

	/* This counts the jobs that have ended. The front unmaps memory once it has seen the jobs that use it
	 * end. Whoever reads this count first sees all that the main thread has done with the memory. */
	atomic_uint_fast64_t ended;
};

/* Ends the child. The front learns why. */
_Noreturn void served_die(struct served *served, const char *why);

/* Starts the threads for calls, which never end. Returns 0 or NO_MEMORY. */
int served_memory_start(struct served *served, struct error *err);

/* Makes a job of a message, or returns NULL when out of memory. */
struct served_job *served_job_new(struct served *served, const struct wire_job *wire);
void served_job_free(struct served_job *job);

/* Appends the message about a job that has ended to what is to be written. Returns 0 or NO_MEMORY. */
int served_job_write(struct served *served, const struct served_job *job);

#endif
