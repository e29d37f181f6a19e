/* Turns by start time: an owner's time is what it was charged, or that of the others when it came back. */
#include "fair_queue.h"

#include <assert.h>

#define PREMIUM 4 /* a part of the time that is charged on top */

static void place(struct ring *ring, struct engine_owner *owner);

void ring_init(struct ring *ring)
{
	TAILQ_INIT(&ring->owners);
	ring->now = 0;
}

void ring_add(struct ring *ring, struct ring_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	assert(!stream->in_ring);
	if (TAILQ_EMPTY(&owner->ready)) {
		if (owner->ns < ring->now)
			owner->ns = ring->now;
		place(ring, owner);
	}
	TAILQ_INSERT_TAIL(&owner->ready, stream, entry);
	stream->in_ring = true;
}

void ring_remove(struct ring *ring, struct ring_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	if (!stream->in_ring)
		return;
	TAILQ_REMOVE(&owner->ready, stream, entry);
	stream->in_ring = false;
	if (TAILQ_EMPTY(&owner->ready))
		TAILQ_REMOVE(&ring->owners, owner, entry);
}

/* The owner is charged when the turn has ended. Until then it goes after those that had as much time, so
 * that threads that come at once go to different owners. */
static struct ring_stream *take_turn(struct ring *ring, struct ring_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	TAILQ_REMOVE(&owner->ready, stream, entry);
	TAILQ_INSERT_TAIL(&owner->ready, stream, entry);
	if (ring->now < owner->ns)
		ring->now = owner->ns;
	ring_charge(ring, owner, 0);
	return stream;
}

struct ring_stream *ring_next(struct ring *ring)
{
	struct engine_owner *owner = TAILQ_FIRST(&ring->owners);
	return owner ? take_turn(ring, TAILQ_FIRST(&owner->ready)) : NULL;
}

struct ring_stream *ring_next_if(struct ring *ring, bool (*can_run)(struct ring_stream *stream, void *arg),
                                 void *arg)
{
	struct engine_owner *owner;
	struct ring_stream *stream;
	TAILQ_FOREACH(owner, &ring->owners, entry)
	TAILQ_FOREACH(stream, &owner->ready, entry)
	if (can_run(stream, arg))
		return take_turn(ring, stream);
	return NULL;
}

static bool has_several(const struct engine_owner *owner)
{
	struct ring_stream *first = TAILQ_FIRST(&owner->ready);
	return first && TAILQ_NEXT(first, entry);
}

void ring_charge(struct ring *ring, struct engine_owner *owner, uint64_t ns)
{
	owner->ns += has_several(owner) ? ns + ns / PREMIUM : ns;
	if (TAILQ_EMPTY(&owner->ready))
		return;
	TAILQ_REMOVE(&ring->owners, owner, entry);
	place(ring, owner);
}

/* After all that had no more time. */
static void place(struct ring *ring, struct engine_owner *owner)
{
	struct engine_owner *before;
	TAILQ_FOREACH_REVERSE(before, &ring->owners, ring_owners, entry)
	if (before->ns <= owner->ns) {
		TAILQ_INSERT_AFTER(&ring->owners, before, owner, entry);
		return;
	}
	TAILQ_INSERT_HEAD(&ring->owners, owner, entry);
}
