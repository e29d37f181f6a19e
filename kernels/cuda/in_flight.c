/* SPDX-License-Identifier: Apache-2.0 */
/* Launches and polls the rounds of an in-flight job. A round brings the source in, runs the kernel and takes
 * the destination out; when there are several rounds, each of the three has a stream of its own, so that
 * stages of different rounds overlap. */
#include "in_flight.h"

#include <sys/random.h>

#include "driver.h"
#include "kernels/host/timeline.h"
#include "kernels/plan/narrow.h"
#include "kernels/cuda/launch/many.h"
#include "proto/clock.h"
#include "timeline.h"

struct round {
	struct in_flight_pool *pool;
	struct in_flight_job *in_flight;
	struct staging_round part;
	CUstream last; /* that something of the round was put on, and that waits for all of it; or NULL */
	uint64_t dst;  /* addresses of the job's elements [0, ..., 0] */
	uint64_t src;
};

static int launch_round(struct in_flight_pool *pool, struct in_flight_job *in_flight);
static int bring_in(struct round *round, CUstream in, struct error *err);
static int move(struct round *round, CUstream own, struct error *err);
static int take_out(struct round *round, CUstream out, struct error *err);

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
	if (in_flight->start)
		driver.cuEventDestroy(in_flight->start);
}

/* ---- An in-flight job ----------------------------------------------------------------------------- */

void in_flight_start(struct in_flight_job *in_flight, struct engine_job *job, const struct staging *staging,
                     struct stream_slot *slot)
{
	in_flight->job = job;
	in_flight->slot = slot;
	in_flight->after = NULL;
	in_flight->predecessor = in_flight->successor = NULL;
	in_flight->staging = *staging;
	in_flight->is_new = true;
	in_flight->is_signal_alone = staging->rounds == 0 && job->signal.memory;
	if (in_flight->is_signal_alone)
		in_flight->staging.rounds = in_flight->staging.slots = 1;
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
	return in_flight->end[(in_flight->launched - 1) % in_flight->staging.slots];
}

void in_flight_stop(struct in_flight_job *in_flight)
{
	atomic_store_explicit(&in_flight->stopped, true, memory_order_relaxed);
}

static bool has_more(const struct in_flight_job *in_flight)
{
	return in_flight->launched < in_flight->staging.rounds && in_flight->status == 0 &&
	       !atomic_load_explicit(&in_flight->stopped, memory_order_relaxed);
}

void in_flight_launch(struct in_flight_pool *pool, struct in_flight_job *in_flight)
{
	if (in_flight->is_new && in_flight->staging.is_packed && has_more(in_flight))
		pack_job_begin(pool, in_flight);
	in_flight->is_new = false;
	if (in_flight->pack.is_active)
		return;
	while (has_more(in_flight) && in_flight->launched - in_flight->landed < in_flight->staging.slots) {
		int r = launch_round(pool, in_flight);

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

static void end(struct in_flight_job *in_flight)
{
	struct engine_job *job = in_flight->job;

	if (in_flight->status == 0 && in_flight->launched < in_flight->staging.rounds)
		in_flight->status = STATUS_CANCELED;
	if (in_flight->status)
		job_end_all(job, job_status(in_flight->status));
	else
		job->status = has_many(in_flight) ? job_status(many_land(in_flight)) : 0;
	pack_job_end(&in_flight->pack);
	in_flight->is_waking = true;
	if (job->status == 0 && job->signal.memory)
		in_flight->wakes_left = timelines_wakes(&job->signal);
}

/* Few at a time: all in-flight jobs share the thread, which polls one after the other. */
static enum in_flight_state wake_some(struct in_flight_job *in_flight)
{
	uint64_t start_ns = clock_ns();
	uint32_t woken;

	if (in_flight->wakes_left == 0)
		return IN_FLIGHT_ENDED;
	woken = timelines_wake(&in_flight->job->signal, TIMELINE_WAKE_FIRST);
	in_flight->wakes_left -= woken < TIMELINE_WAKE_FIRST ? in_flight->wakes_left : woken;
	in_flight->waking_ns += clock_ns() - start_ns;
	return in_flight->wakes_left == 0 ? IN_FLIGHT_ENDED : IN_FLIGHT_MOVED;
}

static CUevent *last_end(struct in_flight_job *in_flight)
{
	return &in_flight->end[(in_flight->launched - 1) % in_flight->staging.slots];
}

/* By the clock where threads had a part in it. */
static int measure(struct in_flight_job *in_flight)
{
	struct in_flight_job *predecessor = in_flight->predecessor;
	CUevent start = predecessor ? *last_end(predecessor) : in_flight->start;
	float ms;

	if (in_flight->pack.is_active) {
		in_flight->job->ns = clock_ns() - in_flight->started_ns;
		return 0;
	}
	int r = driver_call(&in_flight->why, cuEventElapsedTime, (&ms, start, *last_end(in_flight)));

	if (r == 0)
		in_flight->job->ns = (uint64_t)((double)ms * 1e6);
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
		CUevent event = in_flight->end[in_flight->landed % in_flight->staging.slots];
		CUresult result = driver.cuEventQuery(event);

		if (result == CUDA_ERROR_NOT_READY)
			return state;
		if (result != CUDA_SUCCESS) {
			driver_fail(&in_flight->why, result, "cuEventQuery(event)");
			in_flight->status = STATUS_DEVICE_LOST;
			break;
		}
		in_flight->landed++;
		state = IN_FLIGHT_MOVED;
	}
	if (has_more(in_flight))
		return state;
	if (in_flight->landed > 0 && in_flight->status == 0)
		in_flight->status = measure(in_flight);
	part(in_flight);
	end(in_flight);
	return wake_some(in_flight);
}

/* ---- A round ------------------------------------------------------------------------------------------- */

static uint64_t scratch_src(const struct round *round)
{
	const struct in_flight_job *in_flight = round->in_flight;
	uint64_t low = in_flight->staging.src == STAGING_WHOLE
	                   ? (uint64_t)transform_reads(in_flight->job->move.transform).low
	                   : (uint64_t)round->part.reads.low;

	if (in_flight->staging.src == STAGING_STRIPE) /* whose first element is the first that is read */
		low = 0;
	return staging_src_place(&in_flight->staging, in_flight->scratch.start, in_flight->launched,
	                         round->src + low) -
	       low;
}

static uint64_t scratch_dst(const struct round *round)
{
	const struct in_flight_job *in_flight = round->in_flight;
	uint64_t low = (uint64_t)round->part.writes.low;

	if (in_flight->staging.run)
		return scratch_src(round) + (uint64_t)round->part.reads.low - low;
	return staging_dst_place(&in_flight->staging, in_flight->scratch.start, in_flight->launched,
	                         round->dst + low) -
	       low;
}

/* What follows on to waits for all that is on from. */
static int pass(struct round *round, CUstream to, struct error *err)
{
	CUevent passed = round->pool->passed;
	int r = 0;

	if (round->last && round->last != to) {
		r = driver_call(err, cuEventRecord, (passed, round->last));
		if (r == 0)
			r = driver_call(err, cuStreamWaitEvent, (to, passed, CU_EVENT_WAIT_DEFAULT));
	}
	if (r == 0)
		round->last = to;
	return r;
}

/* A job that waits for others on the device runs in one round, on one stream (admission.c). One that directly
 * follows another begins with the other's end: one event less for the device to record in between, and no
 * time that belongs to nobody. */
static int begin(struct round *round, CUstream first, struct error *err)
{
	struct in_flight_job *in_flight = round->in_flight, *last = in_flight->slot->last;
	int r = 0;

	in_flight->slot->last = NULL;
	if (in_flight->launched > 0)
		return 0;
	if (last && !in_flight->after && first == in_flight->slot->stream) {
		in_flight->predecessor = last;
		last->successor = in_flight;
		return 0;
	}
	if (in_flight->after)
		r = driver_call(err, cuStreamWaitEvent, (first, in_flight->after, CU_EVENT_WAIT_DEFAULT));
	return r < 0 ? r : driver_call(err, cuEventRecord, (in_flight->start, first));
}

static int carry(struct round *round, CUstream in, CUstream out, struct error *err)
{
	int r = bring_in(round, in, err);

	if (r == 0)
		r = move(round, round->in_flight->slot->stream, err);
	if (r == 0)
		r = take_out(round, out, err);
	return r;
}

/* The signal is behind all of the last round, and so behind all rounds: they end on the same stream.
 *
 * Counts the round as soon as anything of it is on the device, and then it has to be known when that is over:
 * where not even that can be had, the device is given up. */
static int launch_round(struct in_flight_pool *pool, struct in_flight_job *in_flight)
{
	const struct staging *s = &in_flight->staging;
	const struct engine_job *job = in_flight->job;
	bool alone = s->rounds == 1 || !s->scratch_bytes;
	CUstream in = alone ? in_flight->slot->stream : pool->copy_in;
	CUstream out = alone ? in_flight->slot->stream : pool->copy_out;
	struct round round = {
		.pool = pool,
		.in_flight = in_flight,
	};
	int r, end;

	if (!job->moves) {
		round.dst = cuda_memory(job->move.dst)->address + job->move.dst_offset;
		round.src = cuda_memory(job->move.src)->address + job->move.src_offset;
	}

	if (s->run || (staging_is_needed(s) && !s->is_packed))
		staging_round(s, in_flight->launched, &round.part);
	r = begin(&round, s->src == STAGING_DIRECT ? in_flight->slot->stream : in, &in_flight->why);
	if (r == 0)
		r = in_flight->is_signal_alone ? pass(&round, in_flight->slot->stream, &in_flight->why)
		                               : carry(&round, in, out, &in_flight->why);
	if (r == 0 && job->signal.memory && in_flight->launched + 1 == s->rounds && !job_first_failure(job))
		r = timelines_put(&job->signal, round.last, &in_flight->why);
	if (!round.last)
		return r;
	end = driver_call(&in_flight->why, cuEventRecord,
	                  (in_flight->end[in_flight->launched % s->slots], round.last));
	if (end < 0)
		return in_flight->status = STATUS_DEVICE_LOST;
	in_flight->launched++;
	if (s->rounds == 1 && round.last == in_flight->slot->stream)
		in_flight->slot->last = in_flight;
	return r;
}

/* Bytes [low, high) of the source. */
static int copy_in(struct round *round, CUstream in, int64_t low, int64_t high, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;
	const char *from = cuda_memory(job->move.src)->data + job->move.src_offset + low;

	if (low >= high)
		return 0;
	round->last = in;
	return driver_call(err, cuMemcpyHtoDAsync,
	                   (scratch_src(round) + (uint64_t)low, from, (size_t)(high - low), in));
}

/* A source that is brought as a whole grows on both ends, without gaps. A round that reads over most of it
 * brings all of it. */
static int bring_more(struct round *round, CUstream in, struct error *err)
{
	struct tensor_extent *brought = &round->in_flight->brought, reads = round->part.reads;
	struct tensor_extent whole = transform_reads(round->in_flight->job->move.transform);
	int r;

	if (reads.low == reads.high)
		return 0;
	if (reads.high - reads.low > (whole.high - whole.low) / 2)
		reads = whole;
	if (brought->low == brought->high)
		*brought = (struct tensor_extent){ reads.low, reads.low };
	r = copy_in(round, in, reads.low, brought->low, err);
	if (r == 0)
		r = copy_in(round, in, brought->high, reads.high, err);
	if (reads.low < brought->low)
		brought->low = reads.low;
	if (reads.high > brought->high)
		brought->high = reads.high;
	return r;
}

/* Rows one nearest axis at a time; the others count like the digits of a number. */
static int bring_rows(struct round *round, CUstream in, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;
	const struct source_box *box = &round->part.box;
	const char *from = cuda_memory(job->move.src)->data + job->move.src_offset + round->part.reads.low;
	uint64_t at[TENSOR_MAX_RANK] = { 0 };
	CUDA_MEMCPY2D copy = { .srcMemoryType = CU_MEMORYTYPE_HOST,
		               .srcPitch = box->rank > 0 ? box->axis[0].stride : box->row_bytes,
		               .dstMemoryType = CU_MEMORYTYPE_DEVICE,
		               .dstDevice = scratch_src(round),
		               .dstPitch = box->row_bytes,
		               .WidthInBytes = box->row_bytes,
		               .Height = box->rank > 0 ? box->axis[0].n : 1 };
	int r = 0, d = 0;

	round->last = in;
	while (r == 0) {
		copy.srcHost = from;
		r = driver_call(err, cuMemcpy2DAsync, (&copy, in));
		copy.dstDevice += copy.Height * copy.WidthInBytes;
		for (d = 1; d < box->rank; d++) {
			from += box->axis[d].stride;
			if (++at[d] < box->axis[d].n)
				break;
			from -= at[d] * box->axis[d].stride;
			at[d] = 0;
		}
		if (d >= box->rank)
			break;
	}
	return r;
}

static int bring_in(struct round *round, CUstream in, struct error *err)
{
	switch (round->in_flight->staging.src) {
	case STAGING_DIRECT:
		return 0;
	case STAGING_WHOLE:
		return bring_more(round, in, err);
	case STAGING_STRIPE:
		return bring_rows(round, in, err);
	default:
		return copy_in(round, in, round->part.reads.low, round->part.reads.high, err);
	}
}

/* A run with a side on the device. */
static int copy_run(struct round *round, CUstream own, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;
	struct tensor_extent reads = round->part.reads, writes = round->part.writes;
	size_t bytes = (size_t)(reads.high - reads.low);
	char *dst = cuda_memory(job->move.dst)->data;
	const char *src = cuda_memory(job->move.src)->data;

	round->last = own;
	if (src)
		return driver_call(
		    err, cuMemcpyHtoDAsync,
		    (round->dst + (uint64_t)writes.low, src + job->move.src_offset + reads.low, bytes, own));
	return driver_call(
	    err, cuMemcpyDtoHAsync,
	    (dst + job->move.dst_offset + writes.low, round->src + (uint64_t)reads.low, bytes, own));
}

/* The largest power of two, up to a tensor map's alignment, that both are a multiple of. */
static uint32_t common_align(uint64_t dst, uint64_t src)
{
	uint64_t bits = dst | src | 16;
	return (uint32_t)(bits & -bits);
}

static int move(struct round *round, CUstream own, struct error *err)
{
	struct in_flight_job *in_flight = round->in_flight;
	const struct staging *s = &in_flight->staging;
	uint64_t dst = s->dst == STAGING_DIRECT ? round->dst : scratch_dst(round);
	uint64_t src = s->src == STAGING_DIRECT ? round->src : scratch_src(round);
	struct plan_facts facts = round->pool->facts;
	struct plan plan;
	int r;

	round->pool->launcher.multiprocessors = in_flight->job->multiprocessors;
	if (s->run)
		return s->src == STAGING_DIRECT ? copy_run(round, own, err) : 0;
	r = pass(round, own, err);
	if (r < 0)
		return r;
	if (job_is_many(in_flight->job))
		return many_launch(round->pool, in_flight, own, err);
	if (s->rounds == 1)
		return launch_transform(&round->pool->launcher, own, s->transform, s->plan, dst, src, err);
	dst += (uint64_t)round->part.dst_offset;
	facts.align = common_align(dst, src);
	facts.dst_phase = dst % PLAN_PHASE;
	facts.src_phase = src % PLAN_PHASE;
	plan_init(&plan, &round->part.transform, &facts);
	return launch_transform(&round->pool->launcher, own, &round->part.transform, &plan, dst, src, err);
}

static int take_out(struct round *round, CUstream out, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;
	struct tensor_extent writes = round->part.writes;
	int r;

	if (round->in_flight->staging.dst == STAGING_DIRECT)
		return 0;
	r = pass(round, out, err);
	if (r < 0)
		return r;
	return driver_call(err, cuMemcpyDtoHAsync,
	                   (cuda_memory(job->move.dst)->data + job->move.dst_offset + writes.low,
	                    scratch_dst(round) + (uint64_t)writes.low, (size_t)(writes.high - writes.low),
	                    out));
}
