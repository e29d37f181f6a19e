/* SPDX-License-Identifier: Apache-2.0 */
#include "pass.h"

#include "admission.h"
#include "driver.h"
#include "proto/clock.h"

static void start(struct scheduler *scheduler, struct engine_stream *stream);

/* ---- Starting: under the lock --------------------------------------------------------------------- */

void pass_start(struct scheduler *scheduler)
{
	struct fair_stream *fair;

	scheduler->scratch_full = false;
	while ((fair = fair_queue_next_if(&scheduler->queue.fair_queue, admission_can_start, scheduler)))
		start(scheduler, (struct engine_stream *)fair);
}

/* Whether the owner's jobs may pass the long ones under way: not if it has had so much more of the device
 * than the owner of one of them. */
static bool may_pass(const struct scheduler *scheduler, const struct engine_owner *owner, uint64_t ahead_ns)
{
	const struct in_flight_job *in_flight;

	TAILQ_FOREACH(in_flight, &scheduler->under_way, entry) {
		const struct engine_owner *other = in_flight->stream->fair.owner;

		if (in_flight->weight != JOB_SHORT && owner->ns > other->ns + ahead_ns)
			return false;
	}
	return true;
}

static enum job_weight weigh(const struct scheduler *scheduler, const struct engine_owner *owner,
                             const struct engine_job *job)
{
	const enum job_weight weight = job_weight(job, &scheduler->limits);

	switch (weight) {
	case JOB_SHORT: /* for a while, or they would for ever, if they never cease */
		return may_pass(scheduler, owner, scheduler->limits.ahead_ns) ? JOB_SHORT : JOB_BESIDE;
	case JOB_URGENT: /* takes nothing from others */
		return may_pass(scheduler, owner, 0) ? JOB_URGENT : JOB_LONG;
	default:
		return weight;
	}
}

/* Whether a job is one move from the device's memory to the device's. */
static bool is_on_device(const struct engine_job *job)
{
	return !job_is_many(job) && !cuda_memory(job->move.dst)->host && !cuda_memory(job->move.src)->host &&
	       !job_has_peers(job);
}

/* Nothing else is under way, nor are others seen on the device: what they take would count for the job. */
static bool is_quick(const struct scheduler *scheduler, const struct engine_job *job,
                     const struct staging *staging)
{
	return TAILQ_EMPTY(&scheduler->under_way) && job_bytes(job) <= QUICK_BYTES && is_on_device(job) &&
	       staging->rounds == 1 && !staging_is_needed(staging) && !job->signal.memory &&
	       clock_ns() >= scheduler->sharing.until_ns;
}

static void start(struct scheduler *scheduler, struct engine_stream *stream)
{
	struct in_flight_job *in_flight = TAILQ_FIRST(&scheduler->free);
	struct engine_owner *owner = stream->fair.owner;
	struct engine_job *job = queue_take(stream);
	struct in_flight_job *last = TAILQ_LAST(&stream->in_flight, in_flight_list);
	const enum job_weight weight = weigh(scheduler, owner, job);
	struct stream_slot *slot;
	bool is_first;

	job->begun = true;
	stream->n_in_flight++;
	slot = stream_slots_take(&scheduler->slots, owner, last ? last->slot : NULL, weight, &is_first);
	in_flight->weight = weight;
	in_flight->contention = contention_start(&scheduler->contention, is_first);
	owner->running++;
	if (weight != JOB_LONG && weight != JOB_URGENT)
		owner->running_bytes += job_bytes(job);
	if (staging_is_needed(&stream->staging)) {
		scheduler->staged++;
		owner->staging++;
	}
	if (stream->staging.scratch_bytes > 0)
		scratch_take(&scheduler->scratch, stream->staging.scratch_bytes, &in_flight->scratch);
	in_flight_start(in_flight, job, &stream->staging, slot,
	                is_quick(scheduler, job, &stream->staging) ? &scheduler->quick : NULL);
	in_flight->stream = stream;
	TAILQ_REMOVE(&scheduler->free, in_flight, entry);
	TAILQ_INSERT_TAIL(&scheduler->under_way, in_flight, entry);
	TAILQ_INSERT_TAIL(&stream->in_flight, in_flight, stream_entry);
	queue_settle(stream);
	scheduler->moved_ns = in_flight->started_ns;
}

/* ---- Polling: without the lock -------------------------------------------------------------------- */

/* What a job has to wait for on the device: the job before it of its engine stream, if that is on another of
 * the device's streams. */
static CUevent end_before(struct in_flight_job *in_flight)
{
	struct in_flight_job *before = in_flight;

	while ((before = TAILQ_PREV(before, in_flight_list, stream_entry)))
		if (in_flight_is_launched(before))
			return before->slot == in_flight->slot ? NULL : in_flight_end(before);
	return NULL;
}

/* Jobs of one stream end in their order, so those behind one that has not ended are not polled. Whether
 * anything moved. */
static bool poll_in_flight(struct scheduler *scheduler, struct in_flight_list *ret_ended)
{
	struct in_flight_job *in_flight, *next;
	bool moved = false;

	scheduler->pass++;
	for (in_flight = TAILQ_FIRST(&scheduler->under_way); in_flight; in_flight = next) {
		enum in_flight_state state = IN_FLIGHT_UNDER_WAY;

		next = TAILQ_NEXT(in_flight, entry);
		if (in_flight->launched == 0)
			in_flight->after = end_before(in_flight);
		in_flight_launch(&scheduler->pool, in_flight);
		if (in_flight->stream->held != scheduler->pass)
			state = in_flight_poll(in_flight);
		if (in_flight->status == STATUS_DEVICE_LOST) {
			queue_lose(&scheduler->queue, in_flight->why.message);
			break;
		}
		if (state == IN_FLIGHT_ENDED) {
			TAILQ_REMOVE(&scheduler->under_way, in_flight, entry);
			TAILQ_INSERT_TAIL(ret_ended, in_flight, entry);
		} else {
			in_flight->stream->held = scheduler->pass;
		}
		moved |= state != IN_FLIGHT_UNDER_WAY;
	}
	return moved;
}

/* ---- Ending: under the lock; whether the owner has to be woken ------------------------------------ */

/* By a job that is one launch, and whose bytes tell how long it takes: a list of blocks, or a short move on
 * the device. */
static void note_sharing(struct scheduler *scheduler, const struct in_flight_job *in_flight)
{
	const struct engine_job *job = in_flight->job;
	const bool by_bus = job_has_moves_by_bus(job);
	const uint64_t now = clock_ns();

	if (staging_is_needed(&in_flight->staging) || in_flight->is_signal_alone || in_flight->after ||
	    job->moves || job->multiprocessors > 0 ||
	    (by_bus ? !job->blocks : in_flight->weight != JOB_SHORT) || job_has_peers(job))
		return;
	sharing_note(&scheduler->sharing, now,
	             in_flight->has_followed ? job->ns : now - in_flight->started_ns, job_bytes(job), by_bus);
}

static bool land_one(struct scheduler *scheduler, struct in_flight_job *in_flight)
{
	struct engine_stream *stream = in_flight->stream;
	struct engine_owner *owner = stream->fair.owner;
	struct engine_job *job = in_flight->job;
	bool is_last, wake;

	owner->running--;
	if (in_flight->weight != JOB_LONG && in_flight->weight != JOB_URGENT)
		owner->running_bytes -= job_bytes(job);
	if (staging_is_needed(&in_flight->staging)) {
		scheduler->staged--;
		owner->staging--;
	}
	fair_queue_charge(&scheduler->queue.fair_queue, owner, job->ns + in_flight->waking_ns);
	scratch_give(&scheduler->scratch, &in_flight->scratch);
	TAILQ_REMOVE(&stream->in_flight, in_flight, stream_entry);
	stream->n_in_flight--;
	is_last = stream_slot_give(in_flight->slot, owner, in_flight->weight);
	const bool was_alone = contention_end(&scheduler->contention, in_flight->contention, is_last);
	job->is_measured = was_alone && in_flight->is_timed && is_on_device(job);
	if (was_alone && job->status == 0)
		note_sharing(scheduler, in_flight);
	TAILQ_INSERT_HEAD(&scheduler->free, in_flight, entry);
	wake = queue_done(&scheduler->queue, job);
	return queue_settle(stream) || wake;
}

/* When the device is lost meanwhile, nothing that it says counts any more. */
static bool land(struct scheduler *scheduler, struct in_flight_list *ended)
{
	struct in_flight_job *in_flight;
	bool wake = false;

	while ((in_flight = TAILQ_FIRST(ended))) {
		TAILQ_REMOVE(ended, in_flight, entry);
		if (scheduler->queue.lost) {
			in_flight_abandon(in_flight);
			job_end_all(in_flight->job, STATUS_DEVICE_LOST);
		}
		wake |= land_one(scheduler, in_flight);
		scheduler->queue.changed = true;
	}
	return wake;
}

bool pass_work(struct scheduler *scheduler, bool *ret_wake)
{
	struct queue *queue = &scheduler->queue;
	struct in_flight_list ended = TAILQ_HEAD_INITIALIZER(ended);
	bool moved;

	pthread_mutex_unlock(&queue->lock);
	moved = poll_in_flight(scheduler, &ended);
	pthread_mutex_lock(&queue->lock);
	*ret_wake = land(scheduler, &ended);
	if (moved)
		scheduler->moved_ns = scheduler->landed_ns = clock_ns();
	return moved;
}

bool pass_lose(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	bool wake = land(scheduler, &scheduler->under_way);

	wake |= timelines_lose(&scheduler->timelines);
	wake |= queue_lose_waiting(queue);
	scheduler->scratch_missing = false;
	queue->changed = false;
	return wake;
}
