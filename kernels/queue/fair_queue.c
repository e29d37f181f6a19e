/* SPDX-License-Identifier: Apache-2.0 */
/* Start-time fair queueing. Owners are kept in ascending order of the time that they have been charged
 * for. */
#include "fair_queue.h"

#include <assert.h>

#define PREMIUM 4 /* An owner of several streams in the queue is charged 1 / PREMIUM more than its time. */

static void place(struct fair_queue *fair_queue, struct engine_owner *owner);
static void insert(struct engine_owner *owner, struct fair_stream *stream);

void fair_queue_init(struct fair_queue *fair_queue)
{
	TAILQ_INIT(&fair_queue->owners);
	fair_queue->now = 0;
}

/* Returns whether all streams that the owner has in the queue are background streams. */
static bool is_background(const struct engine_owner *owner)
{
	const struct fair_stream *first = TAILQ_FIRST(&owner->ready);
	return first && first->priority == JOB_PRIORITY_BACKGROUND;
}

void fair_queue_add(struct fair_queue *fair_queue, struct fair_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	assert(!stream->queued);
	bool is_new = TAILQ_EMPTY(&owner->ready);
	bool is_late = (is_new || is_background(owner)) && owner->ns < fair_queue->now;
	if (is_late)
		owner->ns = fair_queue->now;
	if (is_late && !is_new)
		TAILQ_REMOVE(&fair_queue->owners, owner, entry);
	if (is_late || is_new)
		place(fair_queue, owner);
	insert(owner, stream);
	stream->queued = true;
}

/* Returns the rank of the stream's priority; lower ranks go first. */
static int rank_of(const struct fair_stream *stream)
{
	switch (stream->priority) {
	case JOB_PRIORITY_URGENT:
		return 0;
	case JOB_PRIORITY_BACKGROUND:
		return 2;
	default:
		return 1;
	}
}

static void insert(struct engine_owner *owner, struct fair_stream *stream)
{
	struct fair_stream *before;
	TAILQ_FOREACH_REVERSE(before, &owner->ready, fair_streams, entry)
		if (rank_of(before) <= rank_of(stream)) {
			TAILQ_INSERT_AFTER(&owner->ready, before, stream, entry);
			return;
		}
	TAILQ_INSERT_HEAD(&owner->ready, stream, entry);
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

/* Gives a time slice to the stream, which goes behind its owner's other streams of the same priority. The
 * owner is charged when the slice has ended. Until then it goes behind other owners that have used as much
 * time, so that threads that ask at the same time serve different owners. */
static struct fair_stream *take_slice(struct fair_queue *fair_queue, struct fair_stream *stream)
{
	struct engine_owner *owner = stream->owner;
	TAILQ_REMOVE(&owner->ready, stream, entry);
	insert(owner, stream);
	if (fair_queue->now < owner->ns)
		fair_queue->now = owner->ns;
	fair_queue_charge(fair_queue, owner, 0);
	return stream;
}

struct fair_stream *fair_queue_next(struct fair_queue *fair_queue)
{
	struct engine_owner *first = TAILQ_FIRST(&fair_queue->owners), *owner;
	TAILQ_FOREACH(owner, &fair_queue->owners, entry)
		if (!is_background(owner))
			return take_slice(fair_queue, TAILQ_FIRST(&owner->ready));
	return first ? take_slice(fair_queue, TAILQ_FIRST(&first->ready)) : NULL;
}

struct fair_stream *fair_queue_next_if(struct fair_queue *fair_queue,
                                       bool (*can_run)(struct fair_stream *stream, void *arg), void *arg)
{
	struct engine_owner *owner;
	struct fair_stream *stream;
	TAILQ_FOREACH(owner, &fair_queue->owners, entry)
		TAILQ_FOREACH(stream, &owner->ready, entry)
			if (stream->priority != JOB_PRIORITY_BACKGROUND && can_run(stream, arg))
				return take_slice(fair_queue, stream);
	TAILQ_FOREACH(owner, &fair_queue->owners, entry)
		TAILQ_FOREACH(stream, &owner->ready, entry)
			if (stream->priority == JOB_PRIORITY_BACKGROUND && can_run(stream, arg))
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

/* Puts the owner behind all others that have used at most as much time. */
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

/* ---- Lists of jobs ---------------------------------------------------------------------------------- */

bool job_list_has(const struct job_list *list, const struct engine_job *wanted)
{
	const struct engine_job *job = list->first;

	while (job && job != wanted)
		job = job->next;
	return job != NULL;
}

bool job_list_remove(struct job_list *list, struct engine_job *job)
{
	struct engine_job **at = &list->first;

	while (*at && *at != job)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = job->next;
	if (!*at)
		list->end = at;
	return true;
}

void job_end_all(struct engine_job *job, int status)
{
	job->status = status;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		job->moves[i].status = status;
}

void job_list_end_all(struct job_list *list, int status)
{
	for (struct engine_job *job = list->first; job; job = job->next)
		if (job->status == 0)
			job_end_all(job, status);
}

void jobs_call_back(struct engine_job *first)
{
	while (first) {
		struct engine_job *next = first->next;

		first->on_done(first);
		first = next;
	}
}
