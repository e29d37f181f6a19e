/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's thread, pass after pass, with rests in between; and the owner's thread in its place. */
#include "scheduler.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "admission.h"
#include "driver.h"
#include "kernels/thread.h"
#include "pass.h"
#include "proto/clock.h"

#define TIMER_SLACK_NS 1000

static void *thread_main(void *arg);

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
	scheduler->queue.drives = options->drives;
	scheduler->sharing =
	    (struct sharing){ .by_mps = device->by_mps, .slack_ns = scheduler->limits.sharing_slack_ns };
	TAILQ_INIT(&scheduler->under_way);
	TAILQ_INIT(&scheduler->free);
	scratch_init(&scheduler->scratch);
	r = timelines_init(&scheduler->timelines, scheduler->limits.most_sleep_ns, err);
	if (r == 0)
		r = in_flight_pool_init(&scheduler->pool, device, facts, &scheduler->limits,
		                        options->tensor_maps, err);
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
	for (uint32_t i = 0; scheduler->all_in_flight && i < scheduler->limits.jobs; i++)
		pack_job_deinit(&scheduler->all_in_flight[i].pack);
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
	bool keeps = scheduler->scratch.address || scheduler->pool.pack_slots.slots;
	uint64_t until = keeps ? scheduler->moved_ns + scheduler->limits.scratch_idle_ns : 0;
	struct error err;

	assert(TAILQ_EMPTY(&queue->fair_queue.owners));
	queue->is_parked = true;
	const bool is_late = !queue_wait(queue, until);
	queue->is_parked = false;
	if (!is_late)
		return;
	pthread_mutex_unlock(&queue->lock);
	pack_slots_close(&scheduler->pool.pack_slots);
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
static void wake_owner(struct scheduler *scheduler)
{
	queue_unlock_and_wake(&scheduler->queue, true);
	pthread_mutex_lock(&scheduler->queue.lock);
}

/* Under the lock. */
static void work(struct scheduler *scheduler)
{
	bool wake, moved = pass_work(scheduler, &wake);

	if (wake)
		wake_owner(scheduler);
	if (!moved && !scheduler->queue.changed)
		rest(scheduler);
}

/* Under the lock. */
static void poll_points(struct scheduler *scheduler)
{
	if (timelines_poll(&scheduler->timelines, &scheduler->queue))
		wake_owner(scheduler);
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
		if (!queue->lost)
			pass_start(scheduler);
		else if (pass_lose(scheduler))
			wake_owner(scheduler);
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

/* ---- The owner's thread ------------------------------------------------------------------------------- */

/* The only stream that has a job, whose point may have to come first; NULL: there are several, or none. */
static struct fair_stream *only_stream(const struct queue *queue)
{
	const struct engine_owner *owner = TAILQ_FIRST(&queue->fair_queue.owners);
	struct fair_stream *fair = owner ? TAILQ_FIRST(&owner->ready) : NULL;
	struct engine_stream *waiting = TAILQ_FIRST(&queue->waiting);

	if (owner ? TAILQ_NEXT(owner, entry) || TAILQ_NEXT(fair, entry) || waiting
	          : !waiting || TAILQ_NEXT(waiting, waiting_entry))
		return NULL;
	return owner ? fair : &waiting->fair;
}

/* Whether the only job that there is is short work for this thread. Under the lock. */
static bool can_drive(struct scheduler *scheduler)
{
	const struct queue *queue = &scheduler->queue;
	struct fair_stream *fair = only_stream(queue);

	return queue->is_parked && !queue->lost && fair && TAILQ_EMPTY(&scheduler->under_way) &&
	       scheduler->timelines.n == 0 && !heartbeat_is_asked(&scheduler->heartbeat) &&
	       admission_is_quick(fair, scheduler) && (!fair->queued || admission_can_start(fair, scheduler));
}

/* Under the lock, which it lets go. The engine's thread sleeps on meanwhile. */
static void drive(struct scheduler *scheduler, uint64_t until)
{
	struct queue *queue = &scheduler->queue;
	struct error err;
	bool wake;

	queue->is_driven = true;
	if (!device_is_entered(scheduler->device)) {
		pthread_mutex_unlock(&queue->lock);
		if (device_enter(scheduler->device, &err) < 0)
			queue_lose(queue, err.message);
		pthread_mutex_lock(&queue->lock);
	}
	timelines_poll(&scheduler->timelines,
	               queue); /* of a client's stream that has nothing else to do it has come */
	pass_start(scheduler);
	do
		pass_work(scheduler, &wake);
	while (!queue->lost && !TAILQ_EMPTY(&scheduler->under_way) && clock_ns() < until);
	queue->is_driven = false;
	queue->changed = queue->lost || !is_idle(scheduler) || !TAILQ_EMPTY(&queue->fair_queue.owners);
}

bool scheduler_drive(struct scheduler *scheduler, uint64_t ns)
{
	struct queue *queue = &scheduler->queue;
	bool any;

	pthread_mutex_lock(&queue->lock);
	if (ns > 0 && can_drive(scheduler))
		drive(scheduler, clock_ns() + ns);
	if (queue->is_parked && queue->changed)
		pthread_cond_signal(&queue->work);
	any = queue->done != NULL;
	pthread_mutex_unlock(&queue->lock);
	return any;
}
