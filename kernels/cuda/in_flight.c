/* SPDX-License-Identifier: Apache-2.0 */
/* Launches and polls the rounds of an in-flight job, or what packs it; and its end. */
#include "in_flight.h"

#include <sys/random.h>

#include "changed.h"
#include "driver.h"
#include "kernels/host/backing.h"
#include "kernels/host/timeline.h"
#include "kernels/cuda/launch/many.h"
#include "proto/clock.h"
#include "round.h"
#include "timeline.h"

/* ---- What in-flight jobs share -------------------------------------------------------------------- */

int in_flight_pool_init(struct in_flight_pool *pool, const struct device *device,
                        const struct plan_facts *facts, const struct cuda_limits *limits,
                        uint64_t map_entries, struct error *err)
{
	uint64_t seed = 0;
	int r;

	*pool = (struct in_flight_pool){ .facts = *facts };
	pack_slots_init(&pool->pack_slots, limits->pack_slots, limits->pack_slot_bytes);
	packers_init(&pool->packers, limits->pack_threads);
	if (getrandom(&seed, sizeof seed, 0) < 0)
		seed = clock_ns();
	r = driver_stream(&pool->copy_in, STREAM_HIGHEST, err);
	if (r == 0)
		r = driver_stream(&pool->copy_out, STREAM_HIGHEST, err);
	if (r == 0)
		r = driver_call(err, cuEventCreate, (&pool->passed, CU_EVENT_DISABLE_TIMING));
	if (r == 0)
		r = launcher_init(&pool->launcher, device, map_entries, seed, err);
	return r;
}

void in_flight_pool_deinit(struct in_flight_pool *pool, enum cuda_health health)
{
	launcher_deinit(&pool->launcher);
	packers_deinit(&pool->packers);
	if (health == CUDA_LOST) {
		pack_slots_leave(&pool->pack_slots);
		return;
	}
	pack_slots_close(&pool->pack_slots);
	if (pool->passed)
		driver.cuEventDestroy(pool->passed);
	if (pool->copy_out)
		driver.cuStreamDestroy(pool->copy_out);
	if (pool->copy_in)
		driver.cuStreamDestroy(pool->copy_in);
}

int in_flight_init(struct in_flight_job *in_flight, struct error *err)
{
	int r = driver_call(err, cuEventCreate, (&in_flight->start, CU_EVENT_DEFAULT));
	if (r == 0)
		r = driver_call(err, cuEventCreate, (&in_flight->done, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < STAGING_MOST_SLOTS && r == 0; i++)
		r = driver_call(err, cuEventCreate, (&in_flight->end[i], CU_EVENT_DEFAULT));
	return r;
}

void in_flight_deinit(struct in_flight_job *in_flight)
{
	pack_job_deinit(&in_flight->pack);
	upload_buffer_close(&in_flight->upload_buffer);
	for (int i = 0; i < STAGING_MOST_SLOTS; i++)
		if (in_flight->end[i])
			driver.cuEventDestroy(in_flight->end[i]);
	if (in_flight->done)
		driver.cuEventDestroy(in_flight->done);
	if (in_flight->start)
		driver.cuEventDestroy(in_flight->start);
}

/* ---- An in-flight job ----------------------------------------------------------------------------- */

void in_flight_start(struct in_flight_job *in_flight, struct engine_job *job, const struct staging *staging,
                     struct stream_slot *slot, struct quick *quick)
{
	in_flight->job = job;
	in_flight->quick = quick;
	in_flight->is_timed = !quick || quick_is_timed(quick);
	in_flight->done_ns = 0;
	in_flight->slot = slot;
	in_flight->after = NULL;
	in_flight->predecessor = in_flight->successor = NULL;
	in_flight->has_followed = false;
	in_flight->staging = *staging;
	in_flight->is_new = true;
	in_flight->is_signal_alone = staging->rounds == 0 && job->signal.memory;
	if (in_flight->is_signal_alone)
		in_flight->staging.rounds = in_flight->staging.slots = 1;
	in_flight->changed = NULL;
	in_flight->has_changed = false;
	in_flight->launched = in_flight->landed = 0;
	in_flight->brought = (struct tensor_extent){ 0, 0 };
	in_flight->is_waking = false;
	in_flight->wakes_left = 0;
	in_flight->waking_ns = 0;
	in_flight->status = 0;
	in_flight->started_ns = clock_ns();
	atomic_store_explicit(&in_flight->stopped, false, memory_order_relaxed);
}

bool in_flight_is_launched(const struct in_flight_job *in_flight)
{
	return in_flight->launched > in_flight->landed;
}

CUevent in_flight_end(const struct in_flight_job *in_flight)
{
	return in_flight->is_timed ? in_flight->end[(in_flight->launched - 1) % in_flight->staging.slots]
	                           : in_flight->done;
}

void in_flight_stop(struct in_flight_job *in_flight)
{
	atomic_store_explicit(&in_flight->stopped, true, memory_order_relaxed);
}

static bool has_more(const struct in_flight_job *in_flight)
{
	return in_flight->launched < in_flight->staging.rounds && in_flight->status == 0 &&
	       !in_flight->has_changed && !atomic_load_explicit(&in_flight->stopped, memory_order_relaxed);
}

/* Known to be in memory that was lost before: then it signals nothing. Moves of a batch are judged one by
 * one, at the end. */
static void check_memory(struct in_flight_job *in_flight)
{
	struct engine_job *job = in_flight->job;

	if (job->moves || job->status != 0)
		return;
	backing_check(job);
	in_flight->status = job->status;
}

void in_flight_launch(struct in_flight_pool *pool, struct in_flight_job *in_flight)
{
	if (in_flight->is_new && in_flight->status == 0)
		check_memory(in_flight);
	if (in_flight->is_new && in_flight->staging.is_packed && has_more(in_flight))
		pack_job_begin(pool, in_flight);
	in_flight->is_new = false;
	if (in_flight->pack.is_active)
		return;
	while (has_more(in_flight) && in_flight->launched - in_flight->landed < in_flight->staging.slots) {
		int r = round_launch(pool, in_flight);

		if (r < 0 && in_flight->status != STATUS_DEVICE_LOST)
			in_flight->status = r;
	}
}

/* An error of the driver's says nothing of what the client asked for. */
static int job_status(int status)
{
	switch (status) {
	case 0:
	case STATUS_CANCELED:
	case STATUS_DEVICE_LOST:
	case STATUS_NO_MEMORY:
	case STATUS_OUT_OF_RANGE:
		return status;
	default:
		return STATUS_DEVICE;
	}
}

/* Whether moves of a job of more than one were launched. */
static bool has_many(const struct in_flight_job *in_flight)
{
	return in_flight->landed > 0 && !in_flight->is_signal_alone && !in_flight->pack.is_active &&
	       job_is_many(in_flight->job);
}

static int land(struct in_flight_job *in_flight)
{
	int status = has_many(in_flight) ? many_land(in_flight) : 0;

	if (in_flight->changed && in_flight->landed > 0)
		status = changed_land(in_flight);
	return job_status(status);
}

static void end(struct in_flight_job *in_flight)
{
	struct engine_job *job = in_flight->job;

	if (in_flight->status == 0 && in_flight->launched < in_flight->staging.rounds &&
	    !in_flight->has_changed)
		in_flight->status = STATUS_CANCELED;
	if (in_flight->status)
		job_end_all(job, job_status(in_flight->status));
	else
		job->status = land(in_flight);
	backing_check(job);
	pack_job_end(&in_flight->pack);
	in_flight->is_waking = true;
	if (job->status == 0 && job->signal.memory)
		in_flight->wakes_left = timelines_wakes(&job->signal);
}

/* Few at a time: all in-flight jobs share the thread, which polls one after the other. */
static enum in_flight_state wake_some(struct in_flight_job *in_flight)
{
	const uint64_t start_ns = clock_ns();
	uint64_t end_ns;
	uint32_t woken;

	if (in_flight->wakes_left == 0)
		return IN_FLIGHT_ENDED;
	woken = timelines_wake(&in_flight->job->signal, TIMELINE_WAKE_FIRST);
	in_flight->wakes_left -= woken < TIMELINE_WAKE_FIRST ? in_flight->wakes_left : woken;
	end_ns = clock_ns();
	timeline_note_wake(in_flight->stream->fair.owner, start_ns, end_ns);
	in_flight->waking_ns += end_ns - start_ns;
	return in_flight->wakes_left == 0 ? IN_FLIGHT_ENDED : IN_FLIGHT_MOVED;
}

static CUevent *last_end(struct in_flight_job *in_flight)
{
	return &in_flight->end[(in_flight->launched - 1) % in_flight->staging.slots];
}

/* By the clock where threads had a part in it, or the device keeps no time. */
static int measure(struct in_flight_job *in_flight)
{
	struct in_flight_job *predecessor = in_flight->predecessor;
	CUevent start = predecessor ? *last_end(predecessor) : in_flight->start;
	const uint64_t done_ns = in_flight->done_ns - in_flight->started_ns;
	float ms;

	if (in_flight->pack.is_active) {
		in_flight->job->ns = clock_ns() - in_flight->started_ns;
		return 0;
	}
	if (!in_flight->is_timed) {
		in_flight->job->ns = quick_ns(in_flight->quick, done_ns);
		return 0;
	}
	int r = driver_call(&in_flight->why, cuEventElapsedTime, (&ms, start, *last_end(in_flight)));

	if (r == 0)
		in_flight->job->ns = (uint64_t)((double)ms * 1e6);
	if (r == 0 && in_flight->quick)
		quick_learn(in_flight->quick, done_ns, in_flight->job->ns);
	return r;
}

/* Its events may be recorded again from now on: a successor keeps the one that it starts with, for its own.
 */
static void part(struct in_flight_job *in_flight)
{
	struct in_flight_job *successor = in_flight->successor;

	if (in_flight->slot->last == in_flight)
		in_flight->slot->last = NULL;
	if (in_flight->predecessor)
		in_flight->predecessor->successor = NULL;
	if (successor) {
		CUevent start = *last_end(in_flight);

		*last_end(in_flight) = successor->start;
		successor->start = start;
		successor->predecessor = NULL;
	}
	in_flight->predecessor = in_flight->successor = NULL;
}

/* Behind all that was moved, as the one thing that is launched as a round. */
static void signal_moved(struct in_flight_job *in_flight)
{
	const struct engine_job *job = in_flight->job;
	CUstream own = in_flight->slot->stream;
	int r = 0;

	if (!job->signal.memory) {
		in_flight->launched = in_flight->landed = in_flight->staging.rounds;
		return;
	}
	r = timelines_put(&job->signal, own, &in_flight->why);
	if (driver_call(&in_flight->why, cuEventRecord, (in_flight->end[0], own)) < 0)
		r = STATUS_DEVICE_LOST;
	in_flight->slot->last = NULL;
	in_flight->launched = in_flight->staging.rounds;
	in_flight->status = r;
}

void in_flight_abandon(struct in_flight_job *in_flight)
{
	pack_job_end(&in_flight->pack);
}

enum in_flight_state in_flight_poll(struct in_flight_job *in_flight)
{
	enum in_flight_state state = IN_FLIGHT_UNDER_WAY;

	if (in_flight->is_waking)
		return wake_some(in_flight);
	if (in_flight->pack.is_active && in_flight->launched == 0) {
		state = pack_job_poll(&in_flight->pack) ? IN_FLIGHT_MOVED : IN_FLIGHT_UNDER_WAY;
		if (in_flight->status == STATUS_DEVICE_LOST || !pack_job_is_over(&in_flight->pack))
			return state;
		if (pack_job_is_moved(&in_flight->pack) && in_flight->status == 0)
			signal_moved(in_flight);
	}
	while (in_flight->landed < in_flight->launched) {
		const bool is_marked = in_flight->quick && !in_flight->done_ns;
		CUevent end = in_flight->end[in_flight->landed % in_flight->staging.slots];
		CUresult result = driver.cuEventQuery(is_marked ? in_flight->done : end);

		if (result == CUDA_ERROR_NOT_READY)
			return state;
		if (result != CUDA_SUCCESS) {
			driver_fail(&in_flight->why, result, "cuEventQuery(event)");
			in_flight->status = STATUS_DEVICE_LOST;
			break;
		}
		if (is_marked)
			in_flight->done_ns = clock_ns();
		in_flight->landed += !is_marked || !in_flight->is_timed;
		state = IN_FLIGHT_MOVED;
	}
	if (in_flight->changed && in_flight->landed == in_flight->launched && in_flight->landed > 0)
		in_flight->has_changed = changed_land(in_flight) == STATUS_OUT_OF_RANGE;
	if (has_more(in_flight))
		return state;
	if (in_flight->landed > 0 && in_flight->status == 0)
		in_flight->status = measure(in_flight);
	part(in_flight);
	end(in_flight);
	return wake_some(in_flight);
}
