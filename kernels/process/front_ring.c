/* SPDX-License-Identifier: Apache-2.0 */
/* The ends of both rings: jobs on their way to the child, and what comes back.
 *
 * A job waits in its stream until the child is to have it: while the ring has room, and the stream has not
 * sent more than STREAM_BYTES of jobs that have not ended. So no stream waits for another one's jobs to end,
 * which might wait for its own. Among streams that have something to send it is one of the owner's that has
 * sent the least.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "front.h"

/* Of messages of one stream that the child has, but for one job. */
#define STREAM_BYTES ((uint64_t)1 << 20)

/* What is kept of a buffer that is empty. */
#define KEEP_BYTES ((size_t)1 << 16)

/* A job that is worth a spin of the owner's: it takes less than it takes to wake a thread. */
#define SMALL_BYTES ((uint64_t)1 << 22)

static void lose(struct front *front);

/* ---- Jobs that end ------------------------------------------------------------------------------------ */

/* Until the owner reaps. */
static void end_job(struct front *front, struct engine_job *job)
{
	if (job_list_add(&front->done, job))
		front->wake(front->wake_arg);
}

/* Of one that the child has not told of. */
void front_end_job(struct front *front, struct engine_job *job, int status, bool begun)
{
	job->ns = 0;
	job->begun = begun;
	job_end_all(job, status);
	end_job(front, job);
}

/* All that the stream has not sent. */
void front_end_unsent(struct engine_stream *stream, int status)
{
	fair_queue_remove(&stream->front->unsent, &stream->fair);
	while (stream->unsent.first)
		front_end_job(stream->front, job_list_take(&stream->unsent), status, false);
}

/* ---- To the child ------------------------------------------------------------------------------------- */

/* It learns of it when the owner drives, if the owner does; until then that is awake. */
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

/* What is to be sent, as far as there is room; false: there is not, and the child will say when there is. */
static bool flush(struct front *front)
{
	struct ring *to = &front->own->to_child;
	bool any = false;

	while (buffer_len(&front->out) > 0) {
		const size_t n = ring_write(to, front->out.data + front->out.start, buffer_len(&front->out));

		any |= n > 0;
		buffer_consume(&front->out, n, KEEP_BYTES);
		if (n == 0 && ring_wait_for_room(to)) {
			shared_ring(front->own->shared); /* it has to make room */
			return false;
		}
	}
	if (any)
		ring(front);
	return true;
}

/* A message that does not wait for room: there are few of them. */
static void send(struct front *front, const void *message, size_t size)
{
	if (buffer_append(&front->out, message, size) < 0)
		front_give_up(front->own);
	else
		flush(front);
}

void front_send_number(struct front *front, enum wire_kind kind, uint32_t number, uint32_t cancel)
{
	const struct wire_number message = { { sizeof message, kind }, number, cancel };

	send(front, &message, sizeof message);
}

/* A number for a job; false: out of memory. */
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

/* What the child cannot be told of ends with it. */
static void send_job(struct engine_stream *stream, struct engine_job *job)
{
	struct front *front = stream->front;
	size_t bytes = 0;
	uint32_t number;

	if (!front_job_is_mapped(front->own, job)) {
		front_end_job(front, job, STATUS_DEVICE_LOST, false);
		return;
	}
	if (!number_job(front, &number)) {
		front_end_job(front, job, STATUS_NO_MEMORY, false);
		return;
	}
	front->is_small = front->n_sent == 0 && moved_bytes(job) <= SMALL_BYTES;
	if (front_job_write(front, stream, number, job, &bytes) < 0)
		front_give_up(front->own);
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

/* It stands in the queue while it may. */
void front_offer(struct engine_stream *stream)
{
	struct fair_queue *unsent = &stream->front->unsent;

	if (stream->fair.queued &&
	    (!may_send(stream) || stream->fair.priority != stream->unsent.first->priority))
		fair_queue_remove(unsent, &stream->fair);
	if (stream->fair.queued || !may_send(stream))
		return;
	stream->fair.priority = stream->unsent.first->priority;
	fair_queue_add(unsent, &stream->fair);
}

void front_send_jobs(struct front *front)
{
	struct engine_stream *stream;

	front_forget_plans(front);
	while (flush(front) && (stream = (struct engine_stream *)fair_queue_next(&front->unsent))) {
		send_job(stream, job_list_take(&stream->unsent));
		front_offer(stream);
	}
}

/* ---- From the child ----------------------------------------------------------------------------------- */

/* false: it is about no job that the child has. */
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
	front_offer(stream);
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

/* What has come of a message that has not come completely; whether it then has, and what follows it may be
 * looked at. Out of memory, as what makes no sense, is the end of the child. */
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
		front_give_up(front->own);
		return false;
	}
	if (ring_drop(&front->own->to_front, n))
		shared_ring(front->own->shared);
	if (buffer_len(&front->in) < size)
		return false;
	head = (const void *)front->in.data;
	if (!on_message(front, head))
		front_give_up(front->own);
	buffer_consume(&front->in, size, KEEP_BYTES);
	return true;
}

/* The next message in the ring; false: there is none that is complete. */
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
		front_give_up(front->own);
		return false;
	}
	if (head->size > RING_ROOM / 2)
		return collect(front);
	if (n < head->size)
		return false;
	n = head->size;
	if (!on_message(front, head))
		front_give_up(front->own);
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

/* Of those whose end the child has not told of. When its engine was lost it has told of all that had begun;
 * else the first of each stream was under way, unless it waited. */
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
		front_end_job(stream->front, job, STATUS_DEVICE_LOST, begun && !job->wait.memory);
		begun = false;
	}
	front_end_unsent(stream, STATUS_DEVICE_LOST);
}

/* Everything that the child has, or was to have. */
static void lose(struct front *front)
{
	struct engine_stream *stream;

	front_receive(front); /* what it has done before */
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
