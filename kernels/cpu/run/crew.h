/* SPDX-License-Identifier: Apache-2.0 */
/* A crew is streams with the threads that execute their jobs: workers and a watcher.
 *
 * A stream whose job has work items left stands in the fair queue. A worker takes the next stream's next work
 * item, executes it without the lock, and comes back for another, so owners and their streams share the
 * threads whatever the size of their jobs. Workers wait while the queue is empty.
 *
 * Each untrusted owner has a crew of its own, whose threads touch memory that may stall (engine_memory); the
 * engine's own crew and the caller's thread never do. A thread that does not come back is that owner's loss:
 * nobody waits for it, and the end of the process does not either. A stream begins as one of the engine's.
 * When it is the turn of its first job that touches such memory, the stream moves to the crew of its owner,
 * which is started for that, and stays there, so that its jobs keep their order.
 */
#ifndef KERNELS_CPU_RUN_CREW_H
#define KERNELS_CPU_RUN_CREW_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "stream.h"

struct worker;

struct crew {
	struct streams streams; /* first */
	/* The streams' lock guards these two. */
	bool closing;
	uint32_t asked; /* The threads have been probed so many times. */

	bool is_apart;
	uint32_t n_workers; /* that have been started */
	struct worker *workers;
};

/* Starts the threads, by thread_start_apart if is_apart is set; those of a guest (engine_options) start with
 * the first job that needs them. Returns 0 or NO_MEMORY. */
int crew_init(struct crew *crew, const struct engine_options *options, uint32_t threads, bool is_apart,
              struct error *err);

/* Tells the threads to end, which they do as soon as they come back from their work. Every stream must have
 * been freed, and nothing may be left to reap. */
void crew_close(struct crew *crew);

/* Waits for the threads to end, after crew_close. */
void crew_deinit(struct crew *crew);

/* Does what engine_probe does. A thread answers when it next looks for work; one that sleeps is woken for
 * that. */
int crew_probe(struct crew *crew, struct error *err);

/* ---- Crews of untrusted owners: the engine's caller makes all calls, on its thread ------------------ */

struct own {
	LIST_ENTRY(own) entry;
	struct engine_owner *user; /* The crew belongs to it. It may be gone once the crew has no streams. */
	struct engine_owner owner; /* The crew's queue knows the user by this one. */
	struct crew crew;
};

struct owns {
	struct engine_options options;
	uint32_t threads;              /* Each crew has so many. */
	LIST_HEAD(own_list, own) live; /* These have streams. */
	struct own_list ending;        /* The threads of these have been told to end. */
};

void owns_init(struct owns *owns, const struct engine_options *options, uint32_t threads);

/* Every stream must have been freed. */
void owns_deinit(struct owns *owns);

/* Does what engine_submit does, for a stream of the engine's crew or of one of these. */
void owns_submit(struct owns *owns, struct engine_stream *stream, struct engine_job *job);

/* The caller tells that a job of the stream has been reaped, before it calls the job's on_done. */
void owns_on_reaped(struct owns *owns, struct engine_stream *stream);

/* These two cancel jobs that are held, as engine_stream_cancel and engine_cancel do. The second one returns
 * whether the job was held. */
void owns_cancel_held(struct engine_stream *stream);
bool owns_cancel_held_job(struct engine_stream *stream, const struct engine_job *job);

/* Frees the stream, as engine_stream_free does. */
void owns_stream_free(struct owns *owns, struct engine_stream *stream);

/* Returns the finished jobs of all of these crews, linked by next. */
struct engine_job *owns_reap(struct owns *owns);

/* Does what engine_note_stuck does. */
void owns_note_stuck(struct owns *owns);

#endif
