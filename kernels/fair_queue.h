/* Whose turn it is: owners by the time that they had, and the streams of one owner in turn.
 *
 * The ring holds the streams that have something to run, by owner: what one turn gives out, an engine says (a
 * claim of a job, a whole job). The next turn is of the owner that had the least of the engine's time, and of
 * that owner's first stream, which then goes last. An owner that comes back
 * saved nothing up: it starts where the others are. An owner with several streams in the ring pays a quarter
 * more for its time, so that one that waits for each of its jobs keeps more than half of its speed beside it.
 * The ring owns and allocates nothing; the links are in the streams and their owners. All calls are made
 * under one lock.
 */
#ifndef KERNELS_RING_H
#define KERNELS_RING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "engine.h"

/* Zero-initialised but for owner: not in the ring. */
struct ring_stream {
	struct engine_owner *owner;
	TAILQ_ENTRY(ring_stream) entry; /* in owner->ready */
	bool in_ring;
};

struct ring {
	TAILQ_HEAD(ring_owners, engine_owner) owners; /* that have a stream in the ring, least time first */
	uint64_t now;                                 /* the time of the owner served last, when it was */
};

void ring_init(struct ring *ring);

/* The stream goes last in its owner. It must not be in the ring. */
void ring_add(struct ring *ring, struct ring_stream *stream);

/* A stream that is not in the ring is allowed. */
void ring_remove(struct ring *ring, struct ring_stream *stream);

/* The stream whose turn it is; it stays in the ring. NULL: the ring is empty. */
struct ring_stream *ring_next(struct ring *ring);

/* The same, past streams that cannot run now: they keep their place. NULL: none can. */
struct ring_stream *ring_next_if(struct ring *ring, bool (*can_run)(struct ring_stream *stream, void *arg),
                                 void *arg);

/* A turn of the owner's took ns. The owner need not be in the ring. */
void ring_charge(struct ring *ring, struct engine_owner *owner, uint64_t ns);

#endif
