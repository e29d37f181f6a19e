/* SPDX-License-Identifier: Apache-2.0 */
/* One poll of the points that jobs wait for: gathered under the lock, read without it, and applied under it.
 */
#include "timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/host/fault.h"
#include "kernels/host/timeline.h"
#include "proto/clock.h"

#define PAGE_BYTES 4096

/* Polling takes at most a fifth of the thread's time, so that jobs that wait do not slow down those that do
 * not.
 */
#define REST_PER_POLL 4

/* While a wait is young, polls take the thread's time: 256 of them in the first 1.3 ms, and then 177 each
 * time that the wait doubles. */
#define POLL_SHARE 256
#define LEAST_NS   5000

int timelines_init(struct timelines *timelines, uint64_t most_ns, struct error *err)
{
	int r = fault_init();

	*timelines = (struct timelines){ .is_guarded = r == 0, .most_ns = most_ns, .due_ns = UINT64_MAX };
	if (r < 0)
		return error_set(err, STATUS_INTERNAL, "SIGBUS cannot be handled: %s", strerror(-r));
	return 0;
}

/* What the device writes to is only freed when it is known that it does not. */
void timelines_deinit(struct timelines *timelines, enum cuda_health health)
{
	if (timelines->is_guarded)
		fault_deinit();
	if (health == CUDA_LOST)
		return;
	if (timelines->words && driver.cuMemHostUnregister(timelines->words) == CUDA_SUCCESS)
		free(timelines->words);
	if (timelines->read)
		driver.cuEventDestroy(timelines->read);
	if (timelines->stream)
		driver.cuStreamDestroy(timelines->stream);
}

/* What is there stays when something is missing, and the next poll tries the rest again. */
static int open_device(struct timelines *timelines, struct error *err)
{
	int r = timelines->stream ? 0 : driver_stream(&timelines->stream, STREAM_HIGHEST, err);

	if (r == 0 && !timelines->read)
		r = driver_call(err, cuEventCreate, (&timelines->read, CU_EVENT_DISABLE_TIMING));
	if (r == 0 && !timelines->words) {
		uint64_t *words = aligned_alloc(PAGE_BYTES, PAGE_BYTES);

		if (!words)
			return error_set(err, STATUS_NO_MEMORY, "out of memory");
		r = driver_call(err, cuMemHostRegister, (words, PAGE_BYTES, CU_MEMHOSTREGISTER_PORTABLE));
		if (r == 0)
			timelines->words = words;
		else
			free(words);
	}
	return r;
}

/* ---- Gathering: under the lock ------------------------------------------------------------------------ */

/* Those that are due, the one that was not polled for the longest time first; they then go last. */
static void gather(struct timelines *timelines, struct queue *queue, uint64_t now)
{
	struct engine_stream *stream, *next;
	uint64_t due = UINT64_MAX;

	if (now < timelines->earliest_ns)
		return;
	for (stream = TAILQ_FIRST(&queue->waiting); stream && timelines->n < TIMELINE_WORDS; stream = next) {
		next = TAILQ_NEXT(stream, waiting_entry);
		if (stream->since_ns == 0)
			stream->since_ns = now;
		if (stream->poll_ns > now) {
			due = stream->poll_ns < due ? stream->poll_ns : due;
			continue;
		}
		stream->is_polled = true;
		timelines->polls[timelines->n++] = (struct poll){ .stream = stream };
	}
	for (uint32_t i = 0; i < timelines->n; i++) {
		TAILQ_REMOVE(&queue->waiting, timelines->polls[i].stream, waiting_entry);
		TAILQ_INSERT_TAIL(&queue->waiting, timelines->polls[i].stream, waiting_entry);
	}
	timelines->due_ns = stream ? now : due;
}

/* ---- Reading: without the lock ------------------------------------------------------------------------ */

static int job_status(int r)
{
	return r == STATUS_NO_MEMORY || r == STATUS_DEVICE_LOST ? r : STATUS_DEVICE;
}

static int read_on_host(const struct engine_point *point, struct engine_memory *host)
{
	struct engine_point on_host = { .memory = host, .offset = point->offset, .value = point->value };
	uint32_t low;

	return timeline_read(&on_host, &low);
}

static int ask_device(struct timelines *timelines, uint32_t i, const struct engine_point *point,
                      struct error *err)
{
	int r = open_device(timelines, err);

	if (r == 0)
		r = driver_call(err, cuMemcpyDtoHAsync,
		                (&timelines->words[i], cuda_memory(point->memory)->address + point->offset,
		                 sizeof *timelines->words, timelines->stream));
	return r;
}

/* A copy that cannot be known to be over is the device's end: its word may go away at any time. */
static int ask(struct timelines *timelines, struct error *err)
{
	bool any = false;

	for (uint32_t i = 0; i < timelines->n; i++) {
		struct poll *poll = &timelines->polls[i];
		const struct engine_point *point = &poll->stream->unstarted.first->wait;
		struct engine_memory *host = cuda_memory(point->memory)->host;

		if (host) {
			poll->result = read_on_host(point, host);
			continue;
		}
		int r = ask_device(timelines, i, point, err);
		if (r == STATUS_DEVICE_LOST)
			return r;
		poll->is_read_by_device = r == 0;
		poll->result = r < 0 ? job_status(r) : 0;
		any |= poll->is_read_by_device;
	}
	timelines->is_on_device = any;
	if (any && driver_call(err, cuEventRecord, (timelines->read, timelines->stream)) < 0)
		return STATUS_DEVICE_LOST;
	return 0;
}

/* 1: the poll is over; 0: it is not; or DEVICE_LOST. */
static int answer(struct timelines *timelines, struct error *err)
{
	CUresult result = timelines->is_on_device ? driver.cuEventQuery(timelines->read) : CUDA_SUCCESS;

	if (result == CUDA_ERROR_NOT_READY)
		return 0;
	if (result != CUDA_SUCCESS) {
		driver_fail(err, result, "cuEventQuery(event)");
		return STATUS_DEVICE_LOST;
	}
	for (uint32_t i = 0; i < timelines->n; i++) {
		struct poll *poll = &timelines->polls[i];

		if (poll->is_read_by_device)
			poll->result =
			    (int64_t)(timelines->words[i] - poll->stream->unstarted.first->wait.value) >= 0;
	}
	return 1;
}

/* ---- Applying: under the lock ------------------------------------------------------------------------- */

uint64_t timelines_pause_ns(uint64_t waited_ns, uint64_t most_ns)
{
	const uint64_t pause = waited_ns / POLL_SHARE;

	return pause < LEAST_NS ? LEAST_NS : pause < most_ns ? pause : most_ns;
}

static bool apply_one(struct timelines *timelines, const struct poll *poll, uint64_t now)
{
	struct engine_stream *stream = poll->stream;
	struct engine_job *job = stream->unstarted.first;

	stream->is_polled = false;
	stream->poll_ns = now + timelines_pause_ns(now - stream->since_ns, timelines->most_ns);
	if (job->status == 0 && poll->result == 1)
		stream->has_come = true;
	else if (job->status == 0 && poll->result < 0)
		job_end_all(job, poll->result);
	else if (job->status == 0 && timelines->started_ns >= job->wait_until_ns)
		job_end_all(job, STATUS_TIMEOUT);
	else if (stream->poll_ns < timelines->due_ns)
		timelines->due_ns = stream->poll_ns;
	return queue_settle(stream);
}

static bool apply(struct timelines *timelines)
{
	uint64_t now = clock_ns();
	bool wake = false;

	for (uint32_t i = 0; i < timelines->n; i++)
		wake |= apply_one(timelines, &timelines->polls[i], now);
	timelines->n = 0;
	return wake;
}

bool timelines_poll(struct timelines *timelines, struct queue *queue)
{
	uint64_t now = clock_ns();
	bool is_new = timelines->n == 0;
	struct error err;
	int r = 0;

	if (is_new)
		gather(timelines, queue, now);
	if (timelines->n == 0)
		return false;
	pthread_mutex_unlock(&queue->lock);
	if (is_new) {
		timelines->started_ns = now;
		r = ask(timelines, &err);
		now = clock_ns();
		timelines->earliest_ns = now + REST_PER_POLL * (now - timelines->started_ns);
	}
	if (r == 0)
		r = answer(timelines, &err);
	if (r < 0)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
	return r > 0 && apply(timelines);
}

uint64_t timelines_due_ns(const struct timelines *timelines)
{
	if (timelines->n > 0)
		return 0;
	return timelines->due_ns > timelines->earliest_ns ? timelines->due_ns : timelines->earliest_ns;
}

bool timelines_lose(struct timelines *timelines)
{
	bool wake = false;

	for (uint32_t i = 0; i < timelines->n; i++) {
		timelines->polls[i].stream->is_polled = false;
		wake |= queue_settle(timelines->polls[i].stream);
	}
	timelines->n = 0;
	return wake;
}
