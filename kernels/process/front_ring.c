/* SPDX-License-Identifier: Apache-2.0 */
/* The front's streams, and its ends of both rings: jobs on their way to the child, and what comes back. The
 * owner's thread owns all of it.
 *
 * A job waits in its stream until it may be sent: the ring must have room, and the messages of those jobs of
 * its stream that have been sent and have not ended must take less than STREAM_BYTES. There is no such limit
 * for all streams together: a job that was sent may wait for a job of another stream, which could then not be
 * sent. Among the streams that may send, the next is one whose owner has sent the fewest bytes.
 */
#include "front.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"

/* A stream sends no further job while the child has jobs of it whose messages take at least this many
 * bytes. */
#define STREAM_BYTES ((uint64_t)1 << 20)

/* Bytes of memory that an empty buffer keeps. */
#define KEEP_BYTES ((size_t)1 << 16)

/* The owner's thread may spin until a job that moves at most this many bytes has ended, because such a job
 * takes less time than waking a thread. */
#define SMALL_BYTES ((uint64_t)1 << 22)

/* ---- Jobs that end ------------------------------------------------------------------------------------ */

/* Puts a job in the list of those that wait to be reaped, and wakes the owner for the first one. */
static void end_job(struct front *front, struct engine_job *job)
{
	if (job_list_add(&front->done, job))
		front->wake(front->wake_arg);
}

/* Ends a job whose end the child has not reported. */
static void end_untold(struct front *front, struct engine_job *job, int status, bool begun)
{
	job->ns = 0;
	job->begun = begun;
	job_end_all(job, status);
	end_job(front, job);
}

/* Ends all jobs of the stream that have not been sent. */
static void end_unsent(struct engine_stream *stream, int status)
{
	fair_queue_remove(&stream->front->unsent, &stream->fair);
	while (stream->unsent.first)
		end_untold(stream->front, job_list_take(&stream->unsent), status, false);
}

/* ---- To the child ------------------------------------------------------------------------------------- */

/* Notes that there is something for the child, or wakes it. If the owner drives the engine, the child is
 * woken at engine_drive, which follows soon; until then the owner is awake and need not be woken. */
static void ring(struct front *front)
{
	if (!front->drives) {
		shared_ring(front->own->shared);
		return;
	}
	front->bell_is_due = true;
	if (front->may_be_woken)
		atomic_store(&front->own->shared->front_sleeps, false);
	front->may_be_woken = false;
}

/* Writes front->out to the ring as far as there is room. Returns false if there is not enough room for all;
 * the child then wakes the owner when there is room again. */
static bool flush(struct front *front)
{
	struct ring *to = &front->own->to_child;
	bool any = false;

	while (buffer_len(&front->out) > 0) {
		const size_t n = ring_write(to, front->out.data + front->out.start, buffer_len(&front->out));

		any |= n > 0;
		buffer_consume(&front->out, n, KEEP_BYTES);
		if (n == 0 && ring_wait_for_room(to)) {
			shared_ring(front->own->shared); /* The child has to make room. */
			return false;
		}
	}
	if (any)
		ring(front);
	return true;
}

/* Sends a message that is queued even if the ring has no room, because there are few such messages. */
static void send(struct front *front, const void *message, size_t size)
{
	if (buffer_append(&front->out, message, size) < 0)
		child_kill(front->own);
	else
		flush(front);
}

void front_send_number(struct front *front, enum wire_kind kind, uint32_t number, uint32_t cancel)
{
	const struct wire_number message = { { sizeof message, kind }, number, cancel };

	send(front, &message, sizeof message);
}

/* Assigns a number to a job. Returns false if there is no memory. */
static bool number_job(struct front *front, uint32_t *ret)
{
	if (!numbers_take(&front->job_numbers, ret))
		return false;
	if (*ret >= front->jobs_room) {
		const uint32_t room = front->job_numbers.room;
		struct front_job *grown = realloc(front->jobs, room * sizeof *grown);

		if (!grown) {
			numbers_give(&front->job_numbers, *ret);
			return false;
		}
		memset(grown + front->jobs_room, 0, (room - front->jobs_room) * sizeof *grown);
		front->jobs = grown;
		front->jobs_room = room;
	}
	return true;
}

static uint64_t moved_bytes(const struct engine_job *job)
{
	if (job->wait.memory || job->moves || job->blocks)
		return UINT64_MAX;
	return job->move.transform->bytes;
}

/* Sends a job. If the child lacks memory that the job names, or the job cannot be numbered, it ends at
 * once. */
static void send_job(struct engine_stream *stream, struct engine_job *job)
{
	struct front *front = stream->front;
	size_t bytes = 0;
	uint32_t number;

	if (!front_job_is_mapped(front->own, job)) {
		end_untold(front, job, STATUS_DEVICE_LOST, false);
		return;
	}
	if (!number_job(front, &number)) {
		end_untold(front, job, STATUS_NO_MEMORY, false);
		return;
	}
	front->is_small = front->n_sent == 0 && moved_bytes(job) <= SMALL_BYTES;
	if (front_job_write(front, stream, number, job, &bytes) < 0)
		child_kill(front->own);
	job->ns = number;
	job_list_add(&stream->sent, job);
	stream->sent_bytes += bytes;
	stream->is_known = true;
	front->n_sent++;
	front->jobs[number] = (struct front_job){ job, stream, (uint32_t)bytes };
	fair_queue_charge(&front->unsent, stream->fair.owner, bytes);
}

static bool may_send(const struct engine_stream *stream)
{
	return stream->unsent.first && (stream->sent_bytes < STREAM_BYTES || !stream->sent.first);
}

/* Puts the stream in the queue of those that have a job to send and may send it, or removes the stream from
 * there if it has none or may not. */
static void offer(struct engine_stream *stream)
{
	struct fair_queue *unsent = &stream->front->unsent;

	if (stream->fair.queued &&
	    (!may_send(stream) || stream->fair.priority != stream->unsent.first->share.priority))
		fair_queue_remove(unsent, &stream->fair);
	if (stream->fair.queued || !may_send(stream))
		return;
	stream->fair.priority = stream->unsent.first->share.priority;
	fair_queue_add(unsent, &stream->fair);
}

void front_send_jobs(struct front *front)
{
	struct engine_stream *stream;

	front_forget_plans(front);
	while (flush(front) && (stream = (struct engine_stream *)fair_queue_next(&front->unsent))) {
		send_job(stream, job_list_take(&stream->unsent));
		offer(stream);
	}
}

/* ---- From the child ----------------------------------------------------------------------------------- */

/* Returns false if the message is not about a job that the child has. */
static bool on_done(struct front *front, const struct wire_done *done)
{
	struct front_job *sent = done->job < front->jobs_room ? &front->jobs[done->job] : NULL;
	struct engine_stream *stream;
	struct engine_job *job;

	if (!sent || !sent->job || !front_job_read(done, sent->job))
		return false;
	job = sent->job;
	stream = sent->stream;
	job_list_remove(&stream->sent, job);
	stream->sent_bytes -= sent->bytes;
	front->n_sent--;
	sent->job = NULL;
	numbers_give(&front->job_numbers, done->job);
	offer(stream);
	end_job(front, job);
	return true;
}

static bool on_message(struct front *front, const struct wire_head *head)
{
	switch (head->kind) {
	case WIRE_DONE:
		return head->size >= sizeof(struct wire_done) && on_done(front, (const void *)head);
	case WIRE_PINS_LOST:
		if (head->size != sizeof(struct wire_number))
			return false;
		front_memory_lose_pins(front, ((const struct wire_number *)(const void *)head)->number);
		return true;
	default:
		return false;
	}
}

/* Collects a message that does not come in one piece. Returns true if it has been completed and handled, so
 * that the next one may be looked at. If there is no memory, or the message makes no sense, the child is
 * killed. */
static bool collect(struct front *front)
{
	const struct wire_head *head;
	size_t n;
	const char *data = ring_peek(&front->own->to_front, &n);
	const size_t has = buffer_len(&front->in);
	const size_t size = has >= sizeof *head
	                        ? ((const struct wire_head *)(const void *)front->in.data)->size
	                        : ((const struct wire_head *)(const void *)data)->size;

	n = n < size - has ? n : size - has;
	if (buffer_append(&front->in, data, n) < 0) {
		child_kill(front->own);
		return false;
	}
	if (ring_drop(&front->own->to_front, n))
		shared_ring(front->own->shared);
	if (buffer_len(&front->in) < size)
		return false;
	head = (const void *)front->in.data;
	if (!on_message(front, head))
		child_kill(front->own);
	buffer_consume(&front->in, size, KEEP_BYTES);
	return true;
}

/* Handles the next message in the ring. Returns false if there is no complete one. */
static bool receive_one(struct front *front)
{
	struct ring *from = &front->own->to_front;
	const struct wire_head *head;
	size_t n;

	head = (const void *)ring_peek(from, &n);
	if (n < sizeof *head)
		return false;
	if (buffer_len(&front->in) > 0)
		return collect(front);
	if (head->size < sizeof *head || head->size % WIRE_ALIGN) {
		child_kill(front->own);
		return false;
	}
	if (head->size > RING_ROOM / 2)
		return collect(front);
	if (n < head->size)
		return false;
	n = head->size;
	if (!on_message(front, head))
		child_kill(front->own);
	if (ring_drop(from, n))
		shared_ring(front->own->shared);
	return true;
}

void front_receive(struct front *front)
{
	while (receive_one(front))
		continue;
}

/* ---- Losing the child, and having one again ----------------------------------------------------------- */

/* Ends those jobs of a stream whose end the child has not reported. A child whose engine was lost has
 * reported all jobs that had begun. Any other child may have begun the first job of the stream, unless that
 * job was waiting for a point. */
static void lose_stream(struct engine_stream *stream)
{
	bool begun = !atomic_load(&stream->front->own->shared->is_lost);

	stream->sent_bytes = 0;
	stream->is_known = false;
	while (stream->sent.first) {
		struct engine_job *job = job_list_take(&stream->sent);
		const uint32_t number = (uint32_t)job->ns;

		stream->front->jobs[number].job = NULL;
		numbers_give(&stream->front->job_numbers, number);
		end_untold(stream->front, job, STATUS_DEVICE_LOST, begun && !job->wait.memory);
		begun = false;
	}
	end_unsent(stream, STATUS_DEVICE_LOST);
}

/* Ends every job that the child has or was to have. */
static void lose(struct front *front)
{
	struct engine_stream *stream;

	front_receive(front); /* reads what the child has reported before its end */
	front_keep_stats(front);
	LIST_FOREACH(stream, &front->streams, entry)
		lose_stream(stream);
	front->n_sent = 0;
	front->cancels_fail = front->may_be_woken = front->bell_is_due = false;
	buffer_consume(&front->out, buffer_len(&front->out), KEEP_BYTES);
	buffer_consume(&front->in, buffer_len(&front->in), KEEP_BYTES);
	child_unref(front->own);
	front->own = NULL;
	front->engine.lost = true;
	front->engine.losses++;
}

static void see_news(struct front *front)
{
	struct child *child = NULL;

	pthread_mutex_lock(&front->lock);
	front->seen = atomic_load(&front->news);
	if (front->state == FRONT_UP)
		child = child_ref(front->child);
	if (front->failed.status)
		snprintf(front->engine.lost_why, sizeof front->engine.lost_why, "%s", front->failed.message);
	front->engine.dropped = front->dropped;
	front->engine.failures = front->failures;
	pthread_mutex_unlock(&front->lock);
	if (front->own && front->own != child)
		lose(front);
	if (child == front->own) {
		child_unref(child);
		return;
	}
	front->own = child;
	front->engine.lost = child == NULL;
}

void front_catch_up(struct front *front)
{
	if (atomic_load_explicit(&front->news, memory_order_acquire) != front->seen)
		see_news(front);
}

/* ---- Streams ------------------------------------------------------------------------------------------- */

/* A child that is not stuck takes a request to cancel within some microseconds. The owner's thread waits
 * CANCEL_NS nanoseconds for that, and then withdraws the request. Once the child has taken the request, only
 * the child knows what becomes of the job, and it needs only a few more microseconds of processor time to
 * answer. The owner's thread waits for the answer for up to CANCEL_TAKEN_NS, in case the child is kept from
 * running for a while. A child that is kept from running for much longer fails its probes (front_pulse). */
#define CANCEL_NS       2000000
#define CANCEL_TAKEN_NS 1000000000

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
		end_untold(front, job, STATUS_DEVICE_LOST, false);
		return;
	}
	job_list_add(&stream->unsent, job);
	offer(stream);
	front_send_jobs(front);
}

void front_stream_cancel(struct engine_stream *stream)
{
	struct front *front = stream->front;

	front_catch_up(front);
	end_unsent(stream, STATUS_CANCELED);
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
	end_untold(stream->front, job, STATUS_CANCELED, false);
	offer(stream);
	return true;
}

/* Waits for the outcome of the request and returns it. */
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

/* Asks the child to cancel a job, because only the engine knows whether it has started. If the child did not
 * answer the last request, it is not asked again until it has taken all that was sent. Returns whether the
 * job is cancelled. */
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
