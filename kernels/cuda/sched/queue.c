/* SPDX-License-Identifier: Apache-2.0 */
/* A job waits in its stream, is in flight, and ends in the done list, for which the owner is woken once until
 * it has reaped. Jobs of a stream end in the order in which they came, even when they are cancelled. */
#include "queue.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NS_A_SECOND UINT64_C(1000000000)

void queue_init(struct queue *queue, void (*wake)(void *arg), void *wake_arg)
{
	pthread_condattr_t attr;

	*queue = (struct queue){ .wake = wake, .wake_arg = wake_arg };
	job_list_init(&queue->done);
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
	assert(TAILQ_EMPTY(&queue->fair_queue.owners) && TAILQ_EMPTY(&queue->waiting) && !queue->done.first);
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
	job_list_init(&stream->unstarted);
	TAILQ_INIT(&stream->flights);
	owner->streams++;
	return stream;
}

void queue_stream_free(struct engine_stream *stream)
{
	assert(!stream->unstarted.first && stream->n_flights == 0 && stream->fair.owner->streams > 0);
	stream->fair.owner->streams--;
	free(stream);
}

/* ---- Waiting, and done -------------------------------------------------------------------------------- */

struct engine_job *queue_take(struct engine_stream *stream)
{
	stream->planned = false;
	stream->has_come = false;
	stream->since_ns = stream->poll_ns = 0;
	return job_list_take(&stream->unstarted);
}

/* Puts the stream among those that wait for a point, or takes it out. */
static void set_waiting(struct engine_stream *stream, bool waits)
{
	if (waits && !stream->is_waiting)
		TAILQ_INSERT_TAIL(&stream->queue->waiting, stream, waiting_entry);
	else if (!waits && stream->is_waiting)
		TAILQ_REMOVE(&stream->queue->waiting, stream, waiting_entry);
	stream->is_waiting = waits;
}

/* Puts the stream in the fair queue, by the first job's priority. */
static void enqueue(struct engine_stream *stream)
{
	struct fair_queue *fair_queue = &stream->queue->fair_queue;
	const enum job_priority priority = stream->unstarted.first->priority;

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

	if (stream->n_flights == 0 && !stream->is_polled)
		while (stream->unstarted.first && stream->unstarted.first->status)
			wake |= job_list_add(&queue->done, queue_take(stream));
	bool lives = stream->unstarted.first && !stream->unstarted.first->status;
	bool waits = lives && stream->unstarted.first->wait.memory && !stream->has_come;
	set_waiting(stream, waits);
	if (!lives || waits)
		fair_queue_remove(&queue->fair_queue, &stream->fair);
	else
		enqueue(stream);
	return wake;
}

static bool lose_stream(struct engine_stream *stream)
{
	job_list_end_all(&stream->unstarted, STATUS_DEVICE_LOST);
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

	while (queue->thread == QUEUE_DRIVEN || (!queue->changed && !queue->closing && r == 0))
		r = until_ns && queue->thread != QUEUE_DRIVEN
		        ? pthread_cond_timedwait(&queue->work, &queue->lock, &until)
		        : pthread_cond_wait(&queue->work, &queue->lock);
	return r == 0 || queue->changed;
}

void queue_unlock_and_wake(struct queue *queue, bool wake)
{
	pthread_mutex_unlock(&queue->lock);
	if (wake)
		queue->wake(queue->wake_arg);
}

/* ---- The owner ------------------------------------------------------------------------------------- */

void queue_submit(struct engine_stream *stream, struct engine_job *job)
{
	struct queue *queue = stream->queue;
	bool wake;

	assert(job->moves || job->move.dst->writable);
	assert(!job->signal.memory || job->signal.memory->writable);
	job->ns = 0;
	job->begun = false;
	job->is_measured = false;
	if (job->blocks)
		job->blocks->passed = job->blocks->beyond = 0;
	pthread_mutex_lock(&queue->lock);
	job_end_all(job, queue->lost ? STATUS_DEVICE_LOST : 0);
	job_list_add(&stream->unstarted, job);
	wake = queue_settle(stream);
	queue->changed = true;
	if (!queue->drives || queue->thread == QUEUE_POLLED)
		pthread_cond_signal(&queue->work);
	queue_unlock_and_wake(queue, wake);
}

void queue_cancel(struct engine_stream *stream)
{
	struct queue *queue = stream->queue;
	struct flight *flight;
	bool wake;

	pthread_mutex_lock(&queue->lock);
	job_list_end_all(&stream->unstarted, STATUS_CANCELED);
	TAILQ_FOREACH(flight, &stream->flights, stream_entry)
		flight_stop(flight);
	wake = queue_settle(stream);
	queue_stir(queue);
	queue_unlock_and_wake(queue, wake);
}

bool queue_cancel_job(struct engine_stream *stream, struct engine_job *job)
{
	struct queue *queue = stream->queue;
	bool wake = false, waits;

	pthread_mutex_lock(&queue->lock);
	waits = job_list_has(&stream->unstarted, job);
	if (waits && job->status == 0) {
		job_end_all(job, STATUS_CANCELED);
		wake = queue_settle(stream);
		queue_stir(queue);
	}
	queue_unlock_and_wake(queue, wake);
	return waits;
}

struct engine_job *queue_reap(struct queue *queue, bool *lost, char *why, size_t size)
{
	struct engine_job *done;

	pthread_mutex_lock(&queue->lock);
	done = job_list_take_all(&queue->done);
	if (queue->lost) {
		*lost = true;
		snprintf(why, size, "%s", queue->lost_why);
	}
	pthread_mutex_unlock(&queue->lock);
	return done;
}

/* ---- The end --------------------------------------------------------------------------------------- */

/* The owner is woken to learn of the loss, whether or not it has a job. */
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
