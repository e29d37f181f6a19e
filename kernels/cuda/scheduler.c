/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of the engine's thread: poll the points that jobs wait for, start what can be started, launch and
 * poll everything in flight, end what has completed, rest. */
#include "scheduler.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "admission.h"
#include "driver.h"
#include "kernels/thread.h"
#include "proto/clock.h"

#define TIMER_SLACK_NS 1000

static void *thread_main(void *arg);
static void start_all(struct scheduler *scheduler);
static void start(struct scheduler *scheduler, struct engine_stream *stream);
static bool poll_in_flight(struct scheduler *scheduler, struct in_flight_list *ret_ended);
static bool land(struct scheduler *scheduler, struct in_flight_list *ended);
static void lose_all(struct scheduler *scheduler);

/* ---- The beginning and the end ------------------------------------------------------------------------ */

static int make_pool(struct scheduler *scheduler, struct error *err)
{
	uint32_t n = scheduler->limits.jobs;
	int r = 0;

	scheduler->all_in_flight = calloc(n, sizeof *scheduler->all_in_flight);
	if (!scheduler->all_in_flight)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct in_flight_job *in_flight = &scheduler->all_in_flight[i];

		TAILQ_INSERT_TAIL(&scheduler->free, in_flight, entry);
		r = in_flight_init(in_flight, err);
	}
	return r;
}

int scheduler_init(struct scheduler *scheduler, const struct device *device, const struct plan_facts *facts,
                   const struct engine_options *options, struct error *err)
{
	int r;

	*scheduler = (struct scheduler){ .device = device, .limits = cuda_limits_get(device->memory_bytes) };
	queue_init(&scheduler->queue, options->wake, options->wake_arg);
	TAILQ_INIT(&scheduler->under_way);
	TAILQ_INIT(&scheduler->free);
	scratch_init(&scheduler->scratch);
	r = timelines_init(&scheduler->timelines, scheduler->limits.most_sleep_ns, err);
	if (r == 0)
		r = in_flight_pool_init(&scheduler->pool, device, facts, options->tensor_maps, err);
	if (r == 0)
		r = stream_slots_init(&scheduler->slots, err);
	if (r == 0)
		r = make_pool(scheduler, err);
	if (r < 0)
		return r;
	r = thread_start(&scheduler->thread, thread_main, scheduler);
	if (r)
		return error_set(err, STATUS_NO_MEMORY, "the engine's thread cannot be started: %s",
		                 strerror(r));
	scheduler->started = true;
	return 0;
}

enum cuda_health scheduler_stop(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;

	if (!scheduler->started)
		return CUDA_HEALTHY;
	pthread_mutex_lock(&queue->lock);
	queue->closing = true;
	pthread_cond_signal(&queue->work);
	pthread_mutex_unlock(&queue->lock);
	pthread_join(scheduler->thread, NULL);
	assert(TAILQ_EMPTY(&scheduler->under_way));
	return queue->lost ? CUDA_LOST : CUDA_HEALTHY;
}

static void destroy_all(struct scheduler *scheduler)
{
	struct error ignored;
	struct in_flight_job *in_flight;

	TAILQ_FOREACH(in_flight, &scheduler->free, entry)
		in_flight_deinit(in_flight);
	stream_slots_deinit(&scheduler->slots);
	scratch_close(&scheduler->scratch, &ignored);
}

void scheduler_deinit(struct scheduler *scheduler, enum cuda_health health)
{
	if (!scheduler->device)
		return;
	if (health == CUDA_HEALTHY)
		destroy_all(scheduler);
	free(scheduler->all_in_flight);
	timelines_deinit(&scheduler->timelines, health);
	heartbeat_deinit(&scheduler->heartbeat, health);
	in_flight_pool_deinit(&scheduler->pool, health);
	queue_deinit(&scheduler->queue);
}

/* ---- The thread ------------------------------------------------------------------------------------------
 */

/* Under the lock. Nothing was startable, so the queue is empty. Scratch memory that has not been used for
 * long goes back to the device. */
static void wait_for_work(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	uint64_t until =
	    scheduler->scratch.address ? scheduler->moved_ns + scheduler->limits.scratch_idle_ns : 0;
	struct error err;

	assert(TAILQ_EMPTY(&queue->fair_queue.owners));
	if (queue_wait(queue, until))
		return;
	pthread_mutex_unlock(&queue->lock);
	if (scratch_close(&scheduler->scratch, &err) == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
}

/* Under the lock. Sleeps an eighth of how long nothing has moved: what comes meanwhile is at most that late.
 */
static void rest(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	uint64_t now = clock_ns(), quiet = now - scheduler->moved_ns;
	uint64_t due = timelines_due_ns(&scheduler->timelines);

	if (quiet < scheduler->limits.spin_ns || due <= now) {
		pthread_mutex_unlock(&queue->lock);
		sched_yield();
		pthread_mutex_lock(&queue->lock);
	} else {
		uint64_t sleep = quiet / 8, most = scheduler->limits.most_sleep_ns;
		uint64_t until = now + (sleep < most ? sleep : most);
		queue_wait(queue, due < until ? due : until);
	}
}

/* Under the lock. A device that has none is asked again later; until then jobs do without. */
static void open_scratch(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	struct error err;
	int r;

	pthread_mutex_unlock(&queue->lock);
	r = scratch_open(&scheduler->scratch, scheduler->limits.scratch_bytes, &err);
	scheduler->scratch_failed_ns = r < 0 ? clock_ns() : 0;
	if (r == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
	scheduler->scratch_missing = false;
}

/* Under the lock. */
static void work(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	struct in_flight_list ended = TAILQ_HEAD_INITIALIZER(ended);
	bool moved, wake;

	pthread_mutex_unlock(&queue->lock);
	moved = poll_in_flight(scheduler, &ended);
	pthread_mutex_lock(&queue->lock);
	wake = land(scheduler, &ended);
	if (wake) {
		queue_unlock_and_wake(queue, true);
		pthread_mutex_lock(&queue->lock);
	}
	if (moved)
		scheduler->moved_ns = scheduler->landed_ns = clock_ns();
	else if (!queue->changed)
		rest(scheduler);
}

/* Under the lock. */
static void poll_points(struct scheduler *scheduler)
{
	if (!timelines_poll(&scheduler->timelines, &scheduler->queue))
		return;
	queue_unlock_and_wake(&scheduler->queue, true);
	pthread_mutex_lock(&scheduler->queue.lock);
}

static bool is_idle(const struct scheduler *scheduler)
{
	return TAILQ_EMPTY(&scheduler->under_way) && TAILQ_EMPTY(&scheduler->queue.waiting) &&
	       scheduler->timelines.n == 0 && !heartbeat_is_asked(&scheduler->heartbeat);
}

static void *thread_main(void *arg)
{
	struct scheduler *scheduler = arg;
	struct queue *queue = &scheduler->queue;
	struct error err;

	pthread_setname_np(pthread_self(), "engine-cuda");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	if (device_enter(scheduler->device, &err) < 0)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
	while (!queue->closing) {
		queue->changed = false;
		if (!queue->lost)
			poll_points(scheduler);
		if (heartbeat_is_asked(&scheduler->heartbeat))
			heartbeat_poll(&scheduler->heartbeat, queue, scheduler->landed_ns);
		if (queue->lost)
			lose_all(scheduler);
		else
			start_all(scheduler);
		if (scheduler->scratch_missing)
			open_scratch(scheduler);
		else if (is_idle(scheduler))
			wait_for_work(scheduler);
		else
			work(scheduler);
	}
	pthread_mutex_unlock(&queue->lock);
	return NULL;
}

/* ---- Starting: under the lock --------------------------------------------------------------------- */

static void start_all(struct scheduler *scheduler)
{
	struct fair_stream *fair;

	scheduler->scratch_full = false;
	while ((fair = fair_queue_next_if(&scheduler->queue.fair_queue, admission_can_start, scheduler)))
		start(scheduler, (struct engine_stream *)fair);
}

/* Whether the owner's short jobs may pass the long ones under way: not for ever, if they never cease. */
static bool may_pass(const struct scheduler *scheduler, const struct engine_owner *owner)
{
	const struct in_flight_job *in_flight;

	TAILQ_FOREACH(in_flight, &scheduler->under_way, entry) {
		const struct engine_owner *other = in_flight->stream->fair.owner;

		if (in_flight->weight != JOB_SHORT && owner->ns > other->ns + scheduler->limits.ahead_ns)
			return false;
	}
	return true;
}

static enum job_weight weigh(const struct scheduler *scheduler, const struct engine_owner *owner,
                             const struct engine_job *job)
{
	const enum job_weight weight = job_weight(job, &scheduler->limits);

	return weight == JOB_SHORT && !may_pass(scheduler, owner) ? JOB_BESIDE : weight;
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
	if (weight != JOB_LONG)
		owner->running_bytes += job_bytes(job);
	if (staging_is_needed(&stream->staging)) {
		scheduler->staged++;
		owner->staging++;
	}
	if (stream->staging.scratch_bytes > 0)
		scratch_take(&scheduler->scratch, stream->staging.scratch_bytes, &in_flight->scratch);
	in_flight_start(in_flight, job, &stream->staging, slot);
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

/* Jobs of one stream end in their order, so those behind one that has not ended are not polled. Gives back
 * whether anything moved. */
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

/* Whether a job is one move from the device's memory to the device's. */
static bool is_on_device(const struct engine_job *job)
{
	return !job_is_many(job) && !cuda_memory(job->move.dst)->host && !cuda_memory(job->move.src)->host;
}

static bool land_one(struct scheduler *scheduler, struct in_flight_job *in_flight)
{
	struct engine_stream *stream = in_flight->stream;
	struct engine_owner *owner = stream->fair.owner;
	struct engine_job *job = in_flight->job;
	bool is_last, wake;

	owner->running--;
	if (in_flight->weight != JOB_LONG)
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
	job->is_measured =
	    contention_end(&scheduler->contention, in_flight->contention, is_last) && is_on_device(job);
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
		if (scheduler->queue.lost)
			job_end_all(in_flight->job, STATUS_DEVICE_LOST);
		wake |= land_one(scheduler, in_flight);
		scheduler->queue.changed = true;
	}
	return wake;
}

static void lose_all(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	bool wake = land(scheduler, &scheduler->under_way);

	wake |= timelines_lose(&scheduler->timelines);
	wake |= queue_lose_waiting(queue);
	scheduler->scratch_missing = false;
	queue->changed = false;
	if (wake) {
		queue_unlock_and_wake(queue, true);
		pthread_mutex_lock(&queue->lock);
	}
}
