/* SPDX-License-Identifier: Apache-2.0 */
/* Start-time fair queueing: owners are kept in the order of the time that they have been charged. */
#include "fair_queue.h"

#include <assert.h>

#define PREMIUM 4 /* a quarter of the time is charged on top */

static void place(struct fair_queue *fair_queue, struct engine_owner *owner);

void fair_queue_init(struct fair_queue *fair_queue)
{
	TAILQ_INIT(&fair_queue->owners);
	fair_queue->now = 0;
}

void fair_queue_add(struct fair_queue *fair_queue, struct fair_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	assert(!stream->queued);
	if (TAILQ_EMPTY(&owner->ready)) {
		if (owner->ns < fair_queue->now)
			owner->ns = fair_queue->now;
		place(fair_queue, owner);
	}
	TAILQ_INSERT_TAIL(&owner->ready, stream, entry);
	stream->queued = true;
}

void fair_queue_remove(struct fair_queue *fair_queue, struct fair_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	if (!stream->queued)
		return;
	TAILQ_REMOVE(&owner->ready, stream, entry);
	stream->queued = false;
	if (TAILQ_EMPTY(&owner->ready))
		TAILQ_REMOVE(&fair_queue->owners, owner, entry);
}

/* The owner is charged when the time slice has ended. Until then it goes after those that had as much time,
 * so that threads that come at once go to different owners. */
static struct fair_stream *take_slice(struct fair_queue *fair_queue, struct fair_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	TAILQ_REMOVE(&owner->ready, stream, entry);
	TAILQ_INSERT_TAIL(&owner->ready, stream, entry);
	if (fair_queue->now < owner->ns)
		fair_queue->now = owner->ns;
	fair_queue_charge(fair_queue, owner, 0);
	return stream;
}

struct fair_stream *fair_queue_next(struct fair_queue *fair_queue)
{
	struct engine_owner *owner = TAILQ_FIRST(&fair_queue->owners);
	return owner ? take_slice(fair_queue, TAILQ_FIRST(&owner->ready)) : NULL;
}

struct fair_stream *fair_queue_next_if(struct fair_queue *fair_queue,
                                       bool (*can_run)(struct fair_stream *stream, void *arg), void *arg)
{
	struct engine_owner *owner;
	struct fair_stream *stream;
	TAILQ_FOREACH(owner, &fair_queue->owners, entry)
		TAILQ_FOREACH(stream, &owner->ready, entry)
			if (can_run(stream, arg))
				return take_slice(fair_queue, stream);
	return NULL;
}

static bool has_several(const struct engine_owner *owner)
{
	struct fair_stream *first = TAILQ_FIRST(&owner->ready);
	return first && TAILQ_NEXT(first, entry);
}

void fair_queue_charge(struct fair_queue *fair_queue, struct engine_owner *owner, uint64_t ns)
{
	owner->ns += has_several(owner) ? ns + ns / PREMIUM : ns;
	if (TAILQ_EMPTY(&owner->ready))
		return;
	TAILQ_REMOVE(&fair_queue->owners, owner, entry);
	place(fair_queue, owner);
}

/* After all that had no more time. */
static void place(struct fair_queue *fair_queue, struct engine_owner *owner)
{
	struct engine_owner *before;
	TAILQ_FOREACH_REVERSE(before, &fair_queue->owners, fair_owners, entry)
		if (before->ns <= owner->ns) {
			TAILQ_INSERT_AFTER(&fair_queue->owners, before, owner, entry);
			return;
		}
	TAILQ_INSERT_HEAD(&fair_queue->owners, owner, entry);
}
