/* SPDX-License-Identifier: Apache-2.0 */
/* Streams of the front: what their owner does with them. */
#include <assert.h>
#include <stdlib.h>

#include "front.h"
#include "proto/clock.h"

/* The owner waits so long for the child to take a request to cancel, which takes a few us unless the child is
 * stuck; then it withdraws the request. Once the child has taken it, only the child knows what became of the
 * job. It answers within another few us of its time, and is waited for as long as it may be kept from
 * running: longer, and it fails its probes. */
#define CANCEL_NS       2000000
#define CANCEL_TAKEN_NS 1000000000

/* ---- Streams ------------------------------------------------------------------------------------------ */

struct engine_stream *front_stream_new(struct engine *engine, struct engine_owner *owner)
{
	struct front *front = front_of(engine);
	struct engine_stream *stream = calloc(1, sizeof *stream);

	if (!stream || !numbers_take(&front->stream_numbers, &stream->number)) {
		free(stream);
		return NULL;
	}
	stream->front = front;
	stream->fair.owner = owner;
	job_list_init(&stream->unsent);
	job_list_init(&stream->sent);
	owner->streams++;
	LIST_INSERT_HEAD(&front->streams, stream, entry);
	return stream;
}

void front_stream_free(struct engine_stream *stream)
{
	struct front *front = stream->front;

	assert(!stream->unsent.first && !stream->sent.first && stream->fair.owner->streams > 0);
	front_catch_up(front);
	if (stream->is_known)
		front_send_number(front, WIRE_FREE_STREAM, stream->number, 0);
	numbers_give(&front->stream_numbers, stream->number);
	LIST_REMOVE(stream, entry);
	stream->fair.owner->streams--;
	free(stream);
}

static void clear(struct engine_job *job)
{
	job->status = 0;
	job->ns = 0;
	job->begun = false;
	job->is_measured = false;
	job->move.changed = 0;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++) {
		job->moves[i].status = STATUS_CANCELED;
		job->moves[i].changed = 0;
	}
	if (job->blocks)
		job->blocks->passed = job->blocks->beyond = 0;
}

void front_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct front *front = stream->front;

	assert(job->moves || job->move.dst->writable);
	assert(!job->signal.memory || job->signal.memory->writable);
	clear(job);
	front_catch_up(front);
	if (!front->own) {
		front_end_job(front, job, STATUS_DEVICE_LOST, false);
		return;
	}
	job_list_add(&stream->unsent, job);
	front_offer(stream);
	front_send_jobs(front);
}

void front_stream_cancel(struct engine_stream *stream)
{
	struct front *front = stream->front;

	front_catch_up(front);
	front_end_unsent(stream, STATUS_CANCELED);
	if (stream->sent.first)
		front_send_number(front, WIRE_CANCEL_STREAM, stream->number, 0);
	if (front->own && front->bell_is_due)
		shared_ring(front->own->shared);
}

/* ---- Canceling a job ---------------------------------------------------------------------------------- */

static bool cancel_unsent(struct engine_stream *stream, struct engine_job *job)
{
	if (!job_list_remove(&stream->unsent, job))
		return false;
	front_end_job(stream->front, job, STATUS_CANCELED, false);
	front_offer(stream);
	return true;
}

/* Returns what has become of the request. */
static enum shared_cancel await_cancel(struct shared *shared, unsigned asked)
{
	const uint64_t since_ns = clock_ns();
	unsigned word;

	while ((word = atomic_load(&shared->cancel)) == asked || word == (asked | CANCEL_TAKEN)) {
		const uint64_t until_ns = since_ns + (word == asked ? CANCEL_NS : CANCEL_TAKEN_NS);
		const uint64_t now_ns = clock_ns();

		if (now_ns < until_ns)
			shared_sleep(&shared->cancel, word, until_ns - now_ns);
		else if (word != asked)
			return CANCEL_TAKEN;
		else if (atomic_compare_exchange_strong(&shared->cancel, &word, asked | CANCEL_WITHDRAWN))
			return CANCEL_WITHDRAWN;
	}
	return (enum shared_cancel)(word & ((1 << SHARED_CANCEL_BITS) - 1));
}

/* Only the engine knows whether it has started. A child that has not answered once is asked again when it has
 * come so far. */
static bool cancel_sent(struct front *front, struct engine_job *job)
{
	struct shared *shared = front->own->shared;
	const unsigned asked = ++front->cancels << SHARED_CANCEL_BITS | CANCEL_ASKED;
	enum shared_cancel answer;

	if (front->cancels_fail && !ring_is_empty(&front->own->to_child))
		return false;
	atomic_store(&shared->cancel, asked);
	front_send_number(front, WIRE_CANCEL, (uint32_t)job->ns, asked);
	shared_ring(shared);
	answer = await_cancel(shared, asked);
	front->cancels_fail = answer == CANCEL_WITHDRAWN || answer == CANCEL_TAKEN;
	return answer == CANCEL_DONE;
}

bool front_cancel(struct engine_stream *stream, struct engine_job *job)
{
	struct front *front = stream->front;

	front_catch_up(front);
	if (front->own)
		front_receive(front);
	if (job_list_has(&stream->sent, job))
		return cancel_sent(front, job);
	return cancel_unsent(stream, job);
}
