/* SPDX-License-Identifier: Apache-2.0 */
/* The fair queue: which stream an engine serves next. Owners are served by the time that they have had, and
 * the streams of one owner by priority, those of one priority in rotation. Background streams are served
 * while no other stream is in the queue.
 *
 * The queue holds the streams that have something to run, by owner. What a time slice is, an engine decides:
 * a work item of a job, or a whole job. The next slice goes to the owner that has had the least of the
 * engine's time, and to that owner's first stream, which then goes last. An owner that comes back has saved
 * nothing up: it starts where the others are. An owner with several streams in the queue pays a quarter more
 * for its time, so that one that waits for each of its jobs keeps more than half of its speed beside it.
 * Time in which an owner has only background streams is not saved up, either. The queue owns and allocates
 * nothing; the links are in the streams and their owners. All calls are made under one lock.
 */
#ifndef KERNELS_QUEUE_FAIR_QUEUE_H
#define KERNELS_QUEUE_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/engine.h"

/* Zero-initialised but for owner: not in the queue. */
struct fair_stream {
	struct engine_owner *owner;
	TAILQ_ENTRY(fair_stream) entry; /* in owner->ready */
	bool queued;
	enum job_priority priority; /* of what it runs next; changes only while it is not in the queue */
};

struct fair_queue {
	TAILQ_HEAD(fair_owners, engine_owner) owners; /* that have a stream in the queue, least time first */
	uint64_t now;                                 /* the time of the owner served last, when it was */
};

void fair_queue_init(struct fair_queue *fair_queue);

/* The stream goes last among those of its owner and priority. It must not be in the queue. */
void fair_queue_add(struct fair_queue *fair_queue, struct fair_stream *stream);

/* A stream that is not in the queue is allowed. */
void fair_queue_remove(struct fair_queue *fair_queue, struct fair_stream *stream);

/* The stream that gets the next time slice; it stays in the queue. NULL: the queue is empty. */
struct fair_stream *fair_queue_next(struct fair_queue *fair_queue);

/* The same, past streams that cannot run now: they keep their place. NULL: none can. */
struct fair_stream *fair_queue_next_if(struct fair_queue *fair_queue,
                                       bool (*can_run)(struct fair_stream *stream, void *arg), void *arg);

/* A time slice of the owner's took ns. The owner need not be in the queue. */
void fair_queue_charge(struct fair_queue *fair_queue, struct engine_owner *owner, uint64_t ns);

#endif
