/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's thread makes one pass after another, with rests in between. While it sleeps, the owner's
 * thread may work in its place. */
#include "scheduler.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/stage/jobs.h"
#include "kernels/thread.h"
#include "proto/clock.h"

#define TIMER_SLACK_NS 1000

/* Maximum number of late jobs that are ended in one pass, because ending them delays those under way. */
#define LATE_MOST 64

static void *thread_main(void *arg);

/* ---- The heartbeat ------------------------------------------------------------------------------------- */

/* There is one probe at a time. If the event of the probe before is still pending, a new probe records none
 * and waits for that one. */

/* Frees a heartbeat, which may be zeroed. On a lost device no driver call is made. */
static void heartbeat_deinit(struct heartbeat *heartbeat, enum cuda_health health)
{
	if (health == CUDA_LOST)
		return;
	if (heartbeat->event)
		driver.cuEventDestroy(heartbeat->event);
	if (heartbeat->stream)
		driver.cuStreamDestroy(heartbeat->stream);
}

/* Returns whether a probe is unanswered, so that the thread has to make a pass. Caller holds queue->lock. */
static bool heartbeat_is_asked(const struct heartbeat *heartbeat)
{
	return heartbeat->answered != heartbeat->asked;
}

int heartbeat_probe(struct heartbeat *heartbeat, struct queue *queue, struct error *err)
{
	pthread_mutex_lock(&queue->lock);
	bool is_answered = !heartbeat_is_asked(heartbeat), is_taken = heartbeat->taken == heartbeat->asked;

	if (is_answered) {
		heartbeat->asked++;
		queue_stir(queue);
	}
	pthread_mutex_unlock(&queue->lock);
	if (is_answered)
		return 0;
	return error_set(err, STATUS_TIMEOUT, "%s: no sign of life",
	                 is_taken ? "the device" : "the thread that drives the device");
}

/* Creates what is missing. If something fails, the rest is kept, and the next probe tries again. */
static int open_stream(struct heartbeat *heartbeat, struct error *err)
{
	int r = heartbeat->stream ? 0 : driver_stream(&heartbeat->stream, STREAM_HIGHEST, err);

	if (r == 0 && !heartbeat->event)
		r = driver_call(err, cuEventCreate, (&heartbeat->event, CU_EVENT_DISABLE_TIMING));
	return r;
}

static int ask(struct heartbeat *heartbeat, struct error *err)
{
	int r = open_stream(heartbeat, err);

	if (r == 0)
		r = driver_call(err, cuEventRecord, (heartbeat->event, heartbeat->stream));
	heartbeat->is_under_way = r == 0;
	return r;
}

/* Returns 1 if the device has reached the event, 0 if it has not, or DEVICE_LOST. */
static int query_beat(struct heartbeat *heartbeat, struct error *err)
{
	const int r = driver_query(heartbeat->event, err);

	heartbeat->is_under_way = r == 0;
	return r;
}

/* Returns whether the device has answered. An error other than DEVICE_LOST, such as no memory for an event,
 * is an answer, too. If the device is lost, tells the queue and returns true. */
static bool is_alive(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns)
{
	struct error err;
	int r = heartbeat->is_under_way ? 0 : ask(heartbeat, &err);

	if (r == 0)
		r = query_beat(heartbeat, &err);
	if (r == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	return r != 0 || landed_ns > heartbeat->taken_ns;
}

/* Takes up a probe, or checks whether it is answered. Caller holds queue->lock, which is released in between.
 * landed_ns is the time at which a round was last seen to have completed. */
static void heartbeat_poll(struct heartbeat *heartbeat, struct queue *queue, uint64_t landed_ns)
{
	if (heartbeat->taken != heartbeat->asked)
		heartbeat->taken_ns = clock_ns();
	heartbeat->taken = heartbeat->asked;
	if (queue->lost) {
		heartbeat->answered = heartbeat->taken;
		return;
	}
	pthread_mutex_unlock(&queue->lock);
	bool alive = is_alive(heartbeat, queue, landed_ns);
	pthread_mutex_lock(&queue->lock);
	if (alive)
		heartbeat->answered = heartbeat->taken;
}

/* ---- The beginning and the end ------------------------------------------------------------------------ */

static int make_flights(struct scheduler *scheduler, struct error *err)
{
	uint32_t n = scheduler->limits.jobs;
	int r = 0;

	scheduler->flights = calloc(n, sizeof *scheduler->flights);
	if (!scheduler->flights)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct flight *flight = &scheduler->flights[i];

		TAILQ_INSERT_TAIL(&scheduler->free, flight, entry);
		r = flight_init(flight, &scheduler->equipment, &scheduler->limits, err);
	}
	return r;
}

int scheduler_init(struct scheduler *scheduler, const struct device *device, struct cuda_plans *plans,
                   const struct engine_options *options, struct error *err)
{
	int r;

	*scheduler = (struct scheduler){ .device = device, .limits = cuda_limits_get(device->memory_bytes) };
	queue_init(&scheduler->queue, options->wake, options->wake_arg);
	scheduler->queue.drives = options->drives;
	admission_init(&scheduler->admission, &scheduler->limits, device->by_mps);
	TAILQ_INIT(&scheduler->under_way);
	TAILQ_INIT(&scheduler->free);
	r = timelines_init(&scheduler->timelines, scheduler->limits.most_sleep_ns, err);
	if (r == 0)
		r = equipment_init(&scheduler->equipment, device, plans, &scheduler->limits,
		                   options->tensor_maps, err);
	if (r == 0)
		r = stream_slots_init(&scheduler->slots, err);
	if (r == 0)
		r = make_flights(scheduler, err);
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

void scheduler_deinit(struct scheduler *scheduler, enum cuda_health health)
{
	struct error ignored;

	if (!scheduler->device)
		return;
	for (uint32_t i = 0; scheduler->flights && i < scheduler->limits.jobs; i++)
		flight_deinit(&scheduler->flights[i], health);
	free(scheduler->flights);
	if (health == CUDA_HEALTHY) {
		stream_slots_deinit(&scheduler->slots);
		scratch_close(&scheduler->admission.scratch, &ignored);
	}
	timelines_deinit(&scheduler->timelines, health);
	heartbeat_deinit(&scheduler->heartbeat, health);
	equipment_deinit(&scheduler->equipment, health);
	queue_deinit(&scheduler->queue);
}

/* ---- Starting; the lock must be held -------------------------------------------------------------- */

/* Returns whether the owner's jobs may pass those jobs under way that are not short. They may not if the
 * owner has used over ahead_ns more of the device's time than the owner of any of those. */
static bool may_pass(const struct scheduler *scheduler, const struct engine_owner *owner, uint64_t ahead_ns)
{
	const struct flight *flight;

	TAILQ_FOREACH(flight, &scheduler->under_way, entry) {
		const struct engine_owner *other = flight->owner;

		if (flight->weight != JOB_SHORT && owner->ns > other->ns + ahead_ns)
			return false;
	}
	return true;
}

static enum job_weight weigh(const struct scheduler *scheduler, const struct engine_owner *owner,
                             const struct engine_job *job)
{
	const enum job_weight weight = job_weight(job, &scheduler->limits);

	switch (weight) {
	/* Short jobs pass only for a while; if they kept coming, they would otherwise pass for ever. */
	case JOB_SHORT:
		return may_pass(scheduler, owner, scheduler->limits.ahead_ns) ? JOB_SHORT : JOB_BESIDE;
	case JOB_URGENT: /* An urgent job must not take time from other owners. */
		return may_pass(scheduler, owner, 0) ? JOB_URGENT : JOB_LONG;
	default:
		return weight;
	}
}

/* Returns whether the job is a single launch by the plan of its move, so that an alternative plan can be
 * tried in its place. */
static bool is_tried(const struct engine_job *job, const struct staging *staging)
{
	return !job_is_many(job) && !job->move.transform->conversion.is && staging->rounds == 1 &&
	       !staging_is_needed(staging);
}

/* Returns whether the job is quick (flight.h). Nothing else may be under way, and no other process may have
 * been noticed on the device, because waiting for them would count as the job's time. */
static bool is_quick(const struct scheduler *scheduler, const struct engine_job *job,
                     const struct staging *staging)
{
	return TAILQ_EMPTY(&scheduler->under_way) && job_bytes(job) <= QUICK_BYTES && job_is_on_device(job) &&
	       staging->rounds == 1 && !staging_is_needed(staging) && !job->signal.memory &&
	       clock_ns() >= scheduler->admission.sharing.until_ns;
}

static void start(struct scheduler *scheduler, struct engine_stream *stream)
{
	struct flight *flight = TAILQ_FIRST(&scheduler->free);
	struct engine_owner *owner = stream->fair.owner;
	struct engine_job *job = queue_take(stream);
	struct flight *last = TAILQ_LAST(&stream->flights, flight_list);
	const bool quick = is_quick(scheduler, job, &stream->staging);
	bool is_first;

	job->begun = true;
	flight->stream = stream;
	flight->owner = owner;
	flight->weight = weigh(scheduler, owner, job);
	flight->slot =
	    stream_slots_take(&scheduler->slots, owner, last ? last->slot : NULL, flight->weight, &is_first);
	flight->contention = contention_start(&scheduler->contention, is_first);
	if (is_tried(job, &stream->staging))
		stream->staging.plan = trials_take(job->move.plan, job_is_on_device(job));
	flight_start(flight, job, &stream->staging, quick ? &scheduler->quick : NULL);
	admission_start(&scheduler->admission, flight);
	TAILQ_REMOVE(&scheduler->free, flight, entry);
	TAILQ_INSERT_TAIL(&scheduler->under_way, flight, entry);
	TAILQ_INSERT_TAIL(&stream->flights, flight, stream_entry);
	stream->n_flights++;
	queue_settle(stream);
	scheduler->moved_ns = flight->started_ns;
}

/* Starts the jobs that may start, and ends some of those whose deadline has passed; the next pass ends more.
 * Returns whether the owner has to be woken. */
static bool start_jobs(struct scheduler *scheduler)
{
	struct fair_queue *fair_queue = &scheduler->queue.fair_queue;
	struct fair_stream *fair;
	uint32_t late = 0;
	bool wake = false;

	scheduler->admission.scratch_full = false;
	while (!TAILQ_EMPTY(&scheduler->free) && late < LATE_MOST &&
	       (fair = fair_queue_next_if(fair_queue, admission_can_start, &scheduler->admission))) {
		struct engine_stream *stream = (struct engine_stream *)fair;

		if (job_is_late(stream->unstarted.first)) {
			job_end_all(stream->unstarted.first, STATUS_TIMEOUT);
			wake |= queue_settle(stream);
			late++;
		} else {
			start(scheduler, stream);
		}
	}
	scheduler->queue.changed |= late == LATE_MOST;
	return wake;
}

/* ---- Polling, without the lock -------------------------------------------------------------------- */

/* Returns the event that a job has to wait for on the device: the end of the job before it in its engine
 * stream, if that runs on another CUDA stream. NULL: none. */
static CUevent end_before(struct flight *flight)
{
	struct flight *before = flight;

	while ((before = TAILQ_PREV(before, flight_list, stream_entry)))
		if (flight_is_launched(before))
			return before->slot == flight->slot ? NULL : flight_end(before);
	return NULL;
}

/* Launches and polls all flights; those that have ended are moved to *ret_ended. Jobs of one engine stream
 * end in order, so those behind one that has not ended are not polled. Returns whether anything has
 * changed. */
static bool poll_flights(struct scheduler *scheduler, struct flight_list *ret_ended)
{
	struct flight *flight, *next;
	bool moved = false;

	scheduler->pass++;
	for (flight = TAILQ_FIRST(&scheduler->under_way); flight; flight = next) {
		enum flight_progress state = FLIGHT_STANDS;

		next = TAILQ_NEXT(flight, entry);
		if (flight->launched == 0)
			flight->after = end_before(flight);
		flight_launch(&scheduler->equipment, flight);
		if (flight->stream->held != scheduler->pass)
			state = flight_poll(flight);
		if (flight->fate.status == STATUS_DEVICE_LOST) {
			queue_lose(&scheduler->queue, flight->fate.why.message);
			break;
		}
		if (state == FLIGHT_ENDED) {
			TAILQ_REMOVE(&scheduler->under_way, flight, entry);
			TAILQ_INSERT_TAIL(ret_ended, flight, entry);
		} else {
			flight->stream->held = scheduler->pass;
		}
		moved |= state != FLIGHT_STANDS;
	}
	return moved;
}

/* ---- Ending; the lock must be held, and true says that the owner has to be woken ------------------- */

/* Finds out from the time of a job whether it had to wait for other processes on the device. That is possible
 * if the job was one launch whose number of bytes tells how long it should take: a list of blocks, or a short
 * move on the device. The launches of a packed list have been timed one by one (pack_job.c). */
static void note_sharing(struct scheduler *scheduler, const struct flight *flight)
{
	const struct engine_job *job = flight->job;
	const bool by_bus = job_is_by_bus(job);
	const uint64_t now = clock_ns();

	if (job->share.multiprocessors > 0 || job_has_peers(job))
		return;
	if (flight->staging.is_packed && flight->pack.is_late)
		sharing_see(&scheduler->admission.sharing, now);
	if (staging_is_needed(&flight->staging) || flight->is_signal_alone || flight->after || job->moves ||
	    (by_bus ? !job->blocks : flight->weight != JOB_SHORT))
		return;
	sharing_note(&scheduler->admission.sharing, now,
	             flight->has_followed ? job->ns : now - flight->started_ns, job_bytes(job), by_bus);
}

static bool land_one(struct scheduler *scheduler, struct flight *flight)
{
	struct engine_stream *stream = flight->stream;
	struct engine_owner *owner = flight->owner;
	struct engine_job *job = flight->job;
	bool is_last, wake;

	admission_end(&scheduler->admission, flight);
	fair_queue_charge(&scheduler->queue.fair_queue, owner, job->ns + flight->waking_ns);
	TAILQ_REMOVE(&stream->flights, flight, stream_entry);
	stream->n_flights--;
	is_last = stream_slot_give(flight->slot, owner, flight->weight);
	const bool was_alone = contention_end(&scheduler->contention, flight->contention, is_last);
	job->is_measured = was_alone && flight->is_timed && job_is_on_device(job);
	if (is_tried(job, &flight->staging))
		trials_ran(job->move.plan, flight->staging.plan, job->status, job->is_measured ? job->ns : 0);
	if (was_alone && job->status == 0)
		note_sharing(scheduler, flight);
	TAILQ_INSERT_HEAD(&scheduler->free, flight, entry);
	wake = job_list_add(&scheduler->queue.done, job);
	return queue_settle(stream) || wake;
}

/* Ends the jobs of these flights. If the device was lost meanwhile, their results do not count and they end
 * as DEVICE_LOST. */
static bool land(struct scheduler *scheduler, struct flight_list *ended)
{
	struct flight *flight;
	bool wake = false;

	while ((flight = TAILQ_FIRST(ended))) {
		TAILQ_REMOVE(ended, flight, entry);
		if (scheduler->queue.lost) {
			flight_abandon(flight);
			job_end_all(flight->job, STATUS_DEVICE_LOST);
		}
		wake |= land_one(scheduler, flight);
		scheduler->queue.changed = true;
	}
	return wake;
}

/* Launches and polls everything under way, without the lock, and ends what has completed. Returns whether
 * anything has changed; sets *ret_wake to whether the owner has to be woken. */
static bool pass(struct scheduler *scheduler, bool *ret_wake)
{
	struct queue *queue = &scheduler->queue;
	struct flight_list ended = TAILQ_HEAD_INITIALIZER(ended);
	bool moved;

	pthread_mutex_unlock(&queue->lock);
	moved = poll_flights(scheduler, &ended);
	pthread_mutex_lock(&queue->lock);
	*ret_wake = land(scheduler, &ended);
	if (moved)
		scheduler->moved_ns = scheduler->landed_ns = clock_ns();
	return moved;
}

/* Ends all jobs, because the device is lost. Returns whether the owner has to be woken. */
static bool lose(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	bool wake = land(scheduler, &scheduler->under_way);

	wake |= timelines_lose(&scheduler->timelines);
	wake |= queue_lose_waiting(queue);
	scheduler->admission.scratch_missing = false;
	queue->changed = false;
	return wake;
}

/* ---- The thread ------------------------------------------------------------------------------------ */

/* Sleeps until there is work. The fair queue is empty, because nothing could be started. Scratch memory and
 * pinned slots that have been idle for long are freed. Caller holds queue->lock, which is released in
 * between. */
static void wait_for_work(struct scheduler *scheduler)
{
	struct queue *queue = &scheduler->queue;
	bool keeps = scheduler->admission.scratch.address || scheduler->equipment.pack_slots.slots;
	uint64_t until = keeps ? scheduler->moved_ns + scheduler->limits.scratch_idle_ns : 0;
	struct error err;

	assert(TAILQ_EMPTY(&queue->fair_queue.owners));
	queue->thread = QUEUE_PARKED;
	const bool is_late = !queue_wait(queue, until);
	queue->thread = QUEUE_POLLED;
	if (!is_late)
		return;
	pthread_mutex_unlock(&queue->lock);
	pack_slots_close(&scheduler->equipment.pack_slots);
	if (scratch_close(&scheduler->admission.scratch, &err) == STATUS_DEVICE_LOST)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
}

/* Yields or sleeps between two passes. A sleep is at most an eighth as long as the time since something last
 * changed, so that the next change is noticed in time, and it ends when a timeline is due. Caller holds
 * queue->lock, which is released meanwhile. */
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

/* Caller holds queue->lock, which is released in between. */
static void wake_owner(struct scheduler *scheduler)
{
	queue_unlock_and_wake(&scheduler->queue, true);
	pthread_mutex_lock(&scheduler->queue.lock);
}

/* Makes a pass and wakes the owner if need be. Caller holds queue->lock, which is released in between.
 * Returns whether anything has changed. */
static bool work(struct scheduler *scheduler)
{
	bool wake, moved = pass(scheduler, &wake);

	if (wake)
		wake_owner(scheduler);
	return moved;
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
	struct admission *admission = &scheduler->admission;
	struct error err;
	bool wake;

	pthread_setname_np(pthread_self(), "engine-cuda");
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	if (device_enter(scheduler->device, &err) < 0)
		queue_lose(queue, err.message);
	pthread_mutex_lock(&queue->lock);
	while (!queue->closing) {
		queue->changed = false;
		if (!queue->lost && timelines_poll(&scheduler->timelines, queue))
			wake_owner(scheduler);
		if (heartbeat_is_asked(&scheduler->heartbeat))
			heartbeat_poll(&scheduler->heartbeat, queue, scheduler->landed_ns);
		wake = queue->lost ? lose(scheduler) : start_jobs(scheduler);
		admission_charge_plans(admission, queue); /* before wake_owner, which releases the lock */
		if (wake)
			wake_owner(scheduler);
		if (admission->n_wanted > 0) {
			admission_make_plans(admission, queue);
			work(scheduler); /* Jobs under way must not stand still while plans are made. */
		} else if (admission->scratch_missing) {
			admission_open_scratch(admission, queue);
		} else if (!queue->changed && is_idle(scheduler)) {
			wait_for_work(scheduler);
		} else if (!work(scheduler) && !queue->changed) {
			rest(scheduler);
		}
	}
	admission_drop_plans(admission, admission->n_wanted);
	pthread_mutex_unlock(&queue->lock);
	return NULL;
}

/* ---- The owner's thread ------------------------------------------------------------------------------- */

/* Returns the only stream that has an unstarted job, whether or not that job waits for a point. Returns NULL
 * if there are several such streams, or none. */
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

/* Returns whether the engine has only one job and the owner's thread can start that job quickly. Caller holds
 * queue->lock. */
static bool can_drive(struct scheduler *scheduler)
{
	const struct queue *queue = &scheduler->queue;
	struct fair_stream *fair = only_stream(queue);

	return queue->thread == QUEUE_PARKED && !queue->lost && fair && TAILQ_EMPTY(&scheduler->under_way) &&
	       scheduler->timelines.n == 0 && !heartbeat_is_asked(&scheduler->heartbeat) &&
	       admission_is_quick(&scheduler->admission, fair, TAILQ_FIRST(&scheduler->free)) &&
	       (!fair->queued || admission_can_start(fair, &scheduler->admission));
}

/* Does the work of the engine's thread, which keeps sleeping meanwhile. Caller holds queue->lock, which is
 * released in between. */
static void drive(struct scheduler *scheduler, uint64_t until)
{
	struct queue *queue = &scheduler->queue;
	struct error err;
	bool wake;

	queue->thread = QUEUE_DRIVEN;
	if (!device_is_entered(scheduler->device)) {
		pthread_mutex_unlock(&queue->lock);
		if (device_enter(scheduler->device, &err) < 0)
			queue_lose(queue, err.message);
		pthread_mutex_lock(&queue->lock);
	}
	/* The job may wait for a point. If a client's stream that has no other work signals that point, the
	 * point has usually come by now. */
	timelines_poll(&scheduler->timelines, queue);
	start_jobs(scheduler);
	do
		pass(scheduler, &wake);
	while (!queue->lost && !TAILQ_EMPTY(&scheduler->under_way) && clock_ns() < until);
	queue->thread = QUEUE_PARKED;
	queue->changed = queue->lost || !is_idle(scheduler) || !TAILQ_EMPTY(&queue->fair_queue.owners);
}

bool scheduler_drive(struct scheduler *scheduler, uint64_t ns)
{
	struct queue *queue = &scheduler->queue;
	bool any;

	pthread_mutex_lock(&queue->lock);
	if (ns > 0 && can_drive(scheduler))
		drive(scheduler, clock_ns() + ns);
	admission_charge_plans(&scheduler->admission, queue);
	if (queue->thread == QUEUE_PARKED && queue->changed)
		pthread_cond_signal(&queue->work);
	any = queue->done.first != NULL;
	pthread_mutex_unlock(&queue->lock);
	return any;
}
