/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a job: it waits in its stream, is in flight, and ends in the done list, for which the owner is
 * woken once until it has reaped. Jobs of a stream end in the order that they came in, even when they are
 * cancelled. */
#include "queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NS_A_SECOND UINT64_C(1000000000)
#define MOST_BYTES  (UINT64_C(1) << 62) /* of a job */

void queue_init(struct queue *queue, void (*wake)(void *arg), void *wake_arg)
{
	pthread_condattr_t attr;

	*queue = (struct queue){ .wake = wake, .wake_arg = wake_arg };
	queue->done_end = &queue->done;
	fair_queue_init(&queue->fair_queue);
	TAILQ_INIT(&queue->waiting);
	pthread_mutex_init(&queue->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&queue->work, &attr);
	pthread_condattr_destroy(&attr);
}

void queue_deinit(struct queue *queue)
{
	assert(TAILQ_EMPTY(&queue->fair_queue.owners) && TAILQ_EMPTY(&queue->waiting) && !queue->done);
	pthread_cond_destroy(&queue->work);
	pthread_mutex_destroy(&queue->lock);
}

struct engine_stream *queue_stream_new(struct queue *queue, struct engine_owner *owner)
{
	struct engine_stream *stream = calloc(1, sizeof *stream);

	if (!stream)
		return NULL;
	stream->queue = queue;
	stream->fair.owner = owner;
	stream->end = &stream->first;
	TAILQ_INIT(&stream->in_flight);
	owner->streams++;
	return stream;
}

void queue_stream_free(struct engine_stream *stream)
{
	assert(!stream->first && stream->n_in_flight == 0 && stream->fair.owner->streams > 0);
	stream->fair.owner->streams--;
	free(stream);
}

/* ---- Waiting, and done -------------------------------------------------------------------------------- */

struct engine_job *queue_take(struct engine_stream *stream)
{
	struct engine_job *job = stream->first;

	stream->first = job->next;
	if (!stream->first)
		stream->end = &stream->first;
	stream->planned = false;
	stream->has_come = false;
	stream->since_ns = stream->poll_ns = 0;
	return job;
}

/* The owner takes the whole list, so it is woken for the first. */
bool queue_done(struct queue *queue, struct engine_job *job)
{
	bool wake = !queue->done;

	job->next = NULL;
	*queue->done_end = job;
	queue->done_end = &job->next;
	return wake;
}

/* Among those that wait for a point, or not. */
static void set_waiting(struct engine_stream *stream, bool waits)
{
	if (waits && !stream->is_waiting)
		TAILQ_INSERT_TAIL(&stream->queue->waiting, stream, waiting_entry);
	else if (!waits && stream->is_waiting)
		TAILQ_REMOVE(&stream->queue->waiting, stream, waiting_entry);
	stream->is_waiting = waits;
}

/* By the first job's priority. */
static void enqueue(struct engine_stream *stream)
{
	struct fair_queue *fair_queue = &stream->queue->fair_queue;
	const enum job_priority priority = stream->first->priority;

	if (stream->fair.queued && stream->fair.priority == priority)
		return;
	fair_queue_remove(fair_queue, &stream->fair);
	stream->fair.priority = priority;
	fair_queue_add(fair_queue, &stream->fair);
}

bool queue_settle(struct engine_stream *stream)
{
	struct queue *queue = stream->queue;
	bool wake = false;

	if (stream->n_in_flight == 0 && !stream->is_polled)
		while (stream->first && stream->first->status)
			wake |= queue_done(queue, queue_take(stream));
	bool lives = stream->first && !stream->first->status;
	bool waits = lives && stream->first->wait.memory && !stream->has_come;
	set_waiting(stream, waits);
	if (!lives || waits)
		fair_queue_remove(&queue->fair_queue, &stream->fair);
	else
		enqueue(stream);
	return wake;
}

static bool lose_stream(struct engine_stream *stream)
{
	for (struct engine_job *job = stream->first; job; job = job->next)
		if (job->status == 0)
			job_end_all(job, STATUS_DEVICE_LOST);
	return queue_settle(stream);
}

bool queue_lose_waiting(struct queue *queue)
{
	struct engine_stream *stream;
	bool wake = false;

	while ((stream = (struct engine_stream *)fair_queue_next(&queue->fair_queue)))
		wake |= lose_stream(stream);
	while ((stream = TAILQ_FIRST(&queue->waiting)))
		wake |= lose_stream(stream);
	return wake;
}

void queue_stir(struct queue *queue)
{
	queue->changed = true;
	pthread_cond_signal(&queue->work);
}

bool queue_wait(struct queue *queue, uint64_t until_ns)
{
	struct timespec until = { (time_t)(until_ns / NS_A_SECOND), (long)(until_ns % NS_A_SECOND) };
	int r = 0;

	while (queue->is_driven || (!queue->changed && !queue->closing && r == 0))
		r = until_ns && !queue->is_driven ? pthread_cond_timedwait(&queue->work, &queue->lock, &until)
		                                  : pthread_cond_wait(&queue->work, &queue->lock);
	return r == 0 || queue->changed;
}

void queue_unlock_and_wake(struct queue *queue, bool wake)
{
	pthread_mutex_unlock(&queue->lock);
	if (wake)
		queue->wake(queue->wake_arg);
}

/* ---- The owner ------------------------------------------------------------------------------------------
 */

void queue_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct queue *queue = stream->queue;
	bool wake;

	assert(job->moves || job->move.dst->writable);
	assert(!job->signal.memory || job->signal.memory->writable);
	job->ns = 0;
	job->begun = false;
	job->is_measured = false;
	if (job->blocks) {
		job->blocks->family = job->move.plan->family;
		job->blocks->passed = job->blocks->beyond = 0;
	}
	job->next = NULL;
	pthread_mutex_lock(&queue->lock);
	job_end_all(job, queue->lost ? STATUS_DEVICE_LOST : 0);
	*stream->end = job;
	stream->end = &job->next;
	wake = queue_settle(stream);
	queue->changed = true;
	if (!queue->drives || !queue->is_parked)
		pthread_cond_signal(&queue->work);
	queue_unlock_and_wake(queue, wake);
}

void queue_cancel(struct engine_stream *stream)
{
	struct queue *queue = stream->queue;
	struct in_flight_job *in_flight;
	bool wake;

	pthread_mutex_lock(&queue->lock);
	for (struct engine_job *job = stream->first; job; job = job->next)
		if (job->status == 0)
			job_end_all(job, STATUS_CANCELED);
	TAILQ_FOREACH(in_flight, &stream->in_flight, stream_entry)
		in_flight_stop(in_flight);
	wake = queue_settle(stream);
	queue_stir(queue);
	queue_unlock_and_wake(queue, wake);
}

bool queue_cancel_job(struct engine_stream *stream, struct engine_job *wanted)
{
	struct queue *queue = stream->queue;
	struct engine_job *job;
	bool wake = false;

	pthread_mutex_lock(&queue->lock);
	for (job = stream->first; job && job != wanted;)
		job = job->next;
	if (job && job->status == 0) {
		job_end_all(job, STATUS_CANCELED);
		wake = queue_settle(stream);
		queue_stir(queue);
	}
	queue_unlock_and_wake(queue, wake);
	return job != NULL;
}

struct engine_job *queue_reap(struct queue *queue, bool *lost, char *why, size_t size)
{
	struct engine_job *done;

	pthread_mutex_lock(&queue->lock);
	done = queue->done;
	queue->done = NULL;
	queue->done_end = &queue->done;
	if (queue->lost) {
		*lost = true;
		snprintf(why, size, "%s", queue->lost_why);
	}
	pthread_mutex_unlock(&queue->lock);
	return done;
}

/* ---- The end --------------------------------------------------------------------------------------------
 */

/* The owner is woken to learn of it, whether or not it has a job. */
void queue_lose(struct queue *queue, const char *why)
{
	pthread_mutex_lock(&queue->lock);
	bool first = !queue->lost;

	if (first)
		snprintf(queue->lost_why, sizeof queue->lost_why, "%s", why);
	queue->lost = true;
	queue_stir(queue);
	queue_unlock_and_wake(queue, first);
}

int queue_check(struct queue *queue, struct error *err)
{
	int r = 0;

	pthread_mutex_lock(&queue->lock);
	if (queue->lost)
		r = error_set(err, STATUS_DEVICE_LOST, "the device is lost; the service is restarting");
	pthread_mutex_unlock(&queue->lock);
	return r;
}

/* ---- Jobs of any kind --------------------------------------------------------------------------------- */

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) || product > MOST_BYTES ? MOST_BYTES : product;
}

uint64_t job_bytes(const struct engine_job *job)
{
	uint64_t sum = 0;

	if (!job->moves) {
		const uint64_t bytes = job->move.transform->bytes;

		return job->blocks ? times(times(bytes, job->blocks->n), job->blocks->layers) : bytes;
	}
	for (uint32_t i = 0; i < job->n_moves && sum < MOST_BYTES; i++)
		if (__builtin_add_overflow(sum, job->moves[i].transform->bytes, &sum))
			return MOST_BYTES;
	return sum < MOST_BYTES ? sum : MOST_BYTES;
}

void job_end_all(struct engine_job *job, int status)
{
	job->status = status;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		job->moves[i].status = status;
}

int job_first_failure(const struct engine_job *job)
{
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		if (job->moves[i].status)
			return job->moves[i].status;
	return 0;
}
