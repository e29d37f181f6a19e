/* SPDX-License-Identifier: Apache-2.0 */
/* The child's side: a process that runs an engine for a front (process.h).
 *
 * The main thread (run.c) is the engine's owner. It takes the front's messages from one ring and writes
 * outcomes to the other. Memory is mapped and unmapped by a thread for each socket (served.c). When the
 * engine is lost, or memory runs out, the child says so if it can, and ends; the front then starts another
 * one.
 */
#ifndef KERNELS_PROCESS_SERVED_H
#define KERNELS_PROCESS_SERVED_H

#include <pthread.h>
#include <sys/queue.h>

#include "kernels/engine.h"
#include "kernels/plan_cache.h"
#include "proto/wire/frame.h"
#include "shared.h"

#define SERVED_MEMORIES ((uint32_t)1 << 22) /* maximum number of memories */

struct served_owner {
	LIST_ENTRY(served_owner) entry;
	uint64_t number;
	struct engine_owner owner;
};

struct served_stream {
	struct engine_stream *stream; /* NULL: the number is not in use */
	struct served_owner *owner;
};

/* A job that the front has sent. Everything that it points to is in the same allocation, or belongs to it. */
struct served_job {
	struct engine_job job; /* must be first: the engine passes it to on_done */
	struct served *served;
	uint32_t number;
	uint32_t stream;
	struct engine_blocks blocks;
	struct layer_table *tables[2]; /* tables of dst and src; NULL: none */
	struct engine_move moves[];    /* the moves of a batch */
};

struct served {
	struct engine *engine;
	struct shared *shared;
	struct ring from_front, to_front;
	int control;
	int doorbell;
	atomic_bool is_closing; /* The front has closed the control socket. */

	/* The main thread owns the fields from here on. */
	struct buffer in;  /* beginning of a message that has not arrived completely */
	struct buffer out; /* bytes to be sent for which the ring had no room */
	uint32_t n_layouts;
	struct engine_plan **layouts; /* array indexed by number */
	uint32_t n_streams;
	struct served_stream *streams; /* array indexed by number */
	uint32_t n_jobs;
	struct served_job **jobs; /* jobs that have not ended, indexed by number */
	uint32_t under_way;       /* number of these jobs */
	LIST_HEAD(, served_owner) owners;
	uint64_t stats_ns; /* monotonic time at which the statistics were last written */
	/* idle_since_ns is the monotonic time since which there has been nothing to do. gap_ns is how long
	 * the last period with nothing to do lasted. */
	uint64_t idle_since_ns;
	uint64_t gap_ns;
	uint64_t kept_plans; /* the number of plans to keep that the front last asked for */

	/* Memories indexed by number. The front names a memory only after it has been mapped here, and not
	 * after it has asked to unmap it. */
	_Atomic(struct engine_memory *) *memories;
	atomic_uint memories_end; /* one more than the greatest number that has been used */

	/* Number of jobs that have ended. The front unmaps memory only once it has seen the jobs that use it
	 * end. A thread that reads this count first therefore sees everything that the main thread has done
	 * with the memory. */
	atomic_uint_fast64_t ended;
};

/* Ends the child, after telling the front why. */
_Noreturn void served_die(struct served *served, const char *why);

/* Starts the thread that accepts sockets for calls. It never ends. Returns 0 or NO_MEMORY. */
int served_memory_start(struct served *served, struct error *err);

/* Makes a job from a message. Returns NULL if there is no memory. */
struct served_job *served_job_new(struct served *served, const struct wire_job *wire);
void served_job_free(struct served_job *job);

/* Appends the message about a job that has ended to served->out. Returns 0 or NO_MEMORY. */
int served_job_write(struct served *served, const struct served_job *job);

#endif
