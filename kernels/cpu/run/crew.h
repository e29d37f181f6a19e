/* SPDX-License-Identifier: Apache-2.0 */
/* A crew is a set of streams with the threads that execute their jobs: workers and a watcher.
 *
 * A stream whose job has work items left stands in the fair queue. A worker takes a work item of the first
 * stream in the queue, executes it without the lock, and comes back for another. Thus owners and their
 * streams share the threads, whatever the size of their jobs. Workers wait while the queue is empty.
 *
 * Each untrusted owner has a crew of its own, whose threads touch memory that may stall (struct
 * engine_memory). Neither the engine's own crew nor the caller's thread ever touches such memory. If such a
 * thread hangs in an access to that memory, only its owner suffers: no other thread waits for it, and neither
 * does the end of the process. A stream starts in the engine's crew. When its first job that touches such
 * memory is due, the stream moves to the crew of its owner, which is started at that point if it does not
 * exist yet. The stream then stays there, so that its jobs keep their order.
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
	struct streams streams; /* must be the first field */
	/* Protected by the streams' lock, as is `asked`. */
	bool closing;
	uint32_t asked; /* number of probes so far */

	bool is_apart;
	uint32_t n_workers; /* number of workers that have been started */
	struct worker *workers;
};

/* Starts the threads, by thread_start_apart if is_apart is set. The threads of a guest (is_guest of
 * engine_options) are started only for the first job that needs them. Returns 0 or NO_MEMORY. */
int crew_init(struct crew *crew, const struct engine_options *options, uint32_t threads, bool is_apart,
              struct error *err);

/* Tells the threads to end, which each does as soon as it has finished its work. Every stream must have been
 * freed, and nothing may be left to reap. */
void crew_close(struct crew *crew);

/* Waits for the threads to end, after crew_close. */
void crew_deinit(struct crew *crew);

/* Implements engine_probe for one crew. A thread answers when it next looks for work; one that sleeps is
 * woken for that. */
int crew_probe(struct crew *crew, struct error *err);

/* ---- Crews of untrusted owners: the engine's caller makes all calls, on its thread ------------------ */

struct own {
	LIST_ENTRY(own) entry;
	/* The user's owner in the engine; may have been freed once the crew has no streams. */
	struct engine_owner *user;
	struct engine_owner owner; /* stands for the user in the crew's fair queue */
	struct crew crew;
};

struct owns {
	struct engine_options options;
	uint32_t threads;              /* number of threads of each crew */
	LIST_HEAD(own_list, own) live; /* crews that have streams */
	struct own_list ending;        /* crews whose threads have been told to end */
};

void owns_init(struct owns *owns, const struct engine_options *options, uint32_t threads);

/* Frees all crews. Every stream must have been freed. */
void owns_deinit(struct owns *owns);

/* Implements engine_submit, for a stream of the engine's crew or of one of these. */
void owns_submit(struct owns *owns, struct engine_stream *stream, struct engine_job *job);

/* The caller reports that a job of the stream has been reaped, before it calls the job's on_done. */
void owns_on_reaped(struct owns *owns, struct engine_stream *stream);

/* These functions cancel jobs that are held, as engine_stream_cancel and engine_cancel do.
 * owns_cancel_held_job returns whether the job was held. */
void owns_cancel_held(struct engine_stream *stream);
bool owns_cancel_held_job(struct engine_stream *stream, const struct engine_job *job);

/* Implements engine_stream_free. */
void owns_stream_free(struct owns *owns, struct engine_stream *stream);

/* Returns the finished jobs of all these crews, linked by next. */
struct engine_job *owns_reap(struct owns *owns);

/* Implements engine_note_stuck. */
void owns_note_stuck(struct owns *owns);

#endif
