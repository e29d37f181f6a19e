/* Whose turn it is: owners by the time that they had, and the streams of one owner in turn.
 *
 * The queue holds the streams that have something to run, by owner: what one turn gives out, an engine says
 * (a claim of a job, a whole job). The next turn is of the owner that had the least of the engine's time, and
 * of that owner's first stream, which then goes last. An owner that comes back saved nothing up: it starts
 * where the others are. An owner with several streams in the queue pays a quarter more for its time, so that
 * one that waits for each of its jobs keeps more than half of its speed beside it. The queue owns and
 * allocates nothing; the links are in the streams and their owners. All calls are made under one lock.
 */
#ifndef KERNELS_FAIR_QUEUE_H
#define KERNELS_FAIR_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "engine.h"

/* Zero-initialised but for owner: not in the queue. */
struct fair_stream {
	struct engine_owner *owner;
	TAILQ_ENTRY(fair_stream) entry; /* in owner->ready */
	bool queued;
};

struct fair_queue {
	TAILQ_HEAD(fair_owners, engine_owner) owners; /* that have a stream in the queue, least time first */
	uint64_t now;                                 /* the time of the owner served last, when it was */
};

void fair_queue_init(struct fair_queue *fair_queue);

/* The stream goes last in its owner. It must not be in the queue. */
void fair_queue_add(struct fair_queue *fair_queue, struct fair_stream *stream);

/* A stream that is not in the queue is allowed. */
void fair_queue_remove(struct fair_queue *fair_queue, struct fair_stream *stream);

/* The stream whose turn it is; it stays in the queue. NULL: the queue is empty. */
struct fair_stream *fair_queue_next(struct fair_queue *fair_queue);

/* The same, past streams that cannot run now: they keep their place. NULL: none can. */
struct fair_stream *fair_queue_next_if(struct fair_queue *fair_queue,
                                       bool (*can_run)(struct fair_stream *stream, void *arg), void *arg);

/* A turn of the owner's took ns. The owner need not be in the queue. */
void fair_queue_charge(struct fair_queue *fair_queue, struct engine_owner *owner, uint64_t ns);

#endif
