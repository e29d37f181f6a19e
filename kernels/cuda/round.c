/* SPDX-License-Identifier: Apache-2.0 */
/* A round brings the source in, runs the kernel and takes the destination out; when there are several rounds,
 * each of the three has a stream of its own, so that stages of different rounds overlap. */
#include "round.h"

#include "admission.h"
#include "changed.h"
#include "driver.h"
#include "kernels/cuda/launch/convert.h"
#include "kernels/cuda/launch/many.h"
#include "kernels/plan/narrow.h"
#include "magnitudes.h"
#include "queue.h"
#include "timeline.h"

struct round {
	struct in_flight_pool *pool;
	struct in_flight_job *in_flight;
	struct staging_round part;
	CUstream last; /* that something of the round was put on, and that waits for all of it; or NULL */
	uint64_t dst;  /* addresses of the job's elements [0, ..., 0] */
	uint64_t src;
};

static int bring_in(struct round *round, CUstream in, struct error *err);
static int move(struct round *round, CUstream own, struct error *err);
static int take_out(struct round *round, CUstream out, struct error *err);

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
	const uint64_t place = staging_dst_place(&in_flight->staging, in_flight->scratch.start,
	                                         in_flight->launched, round->dst + low);

	return in_flight->staging.dst == STAGING_STRIPE ? place : place - low;
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
	if (last && in_flight->is_timed && !in_flight->after && first == in_flight->slot->stream) {
		in_flight->predecessor = last;
		in_flight->has_followed = true;
		last->successor = in_flight;
		return 0;
	}
	if (in_flight->after)
		r = driver_call(err, cuStreamWaitEvent, (first, in_flight->after, CU_EVENT_WAIT_DEFAULT));
	return r < 0 || !in_flight->is_timed ? r : driver_call(err, cuEventRecord, (in_flight->start, first));
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

/* With exact casts it comes behind what has moved, as a round of its own (changed.h). */
static bool is_signal_alone(const struct in_flight_job *in_flight)
{
	return in_flight->is_signal_alone || (in_flight->changed && in_flight->launched > 0);
}

/* Whichever ends are waited for. */
static int mark_end(struct round *round)
{
	struct in_flight_job *in_flight = round->in_flight;
	CUevent end = in_flight->end[in_flight->launched % in_flight->staging.slots];
	int r = 0;

	if (in_flight->quick)
		r = driver_call(&in_flight->why, cuEventRecord, (in_flight->done, round->last));
	if (r == 0 && in_flight->is_timed)
		r = driver_call(&in_flight->why, cuEventRecord, (end, round->last));
	return r;
}

/* The signal is behind all of the last round, and so behind all rounds: they end on the same stream.
 *
 * Counts the round as soon as anything of it is on the device, and then it has to be known when that is over:
 * where not even that can be had, the device is given up. */
int round_launch(struct in_flight_pool *pool, struct in_flight_job *in_flight)
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

	if (s->run || (s->transform && staging_is_needed(s)))
		staging_round(s, in_flight->launched, &round.part);
	r = begin(&round, s->src == STAGING_DIRECT ? in_flight->slot->stream : in, &in_flight->why);
	if (r == 0)
		r = is_signal_alone(in_flight) ? pass(&round, in_flight->slot->stream, &in_flight->why)
		                               : carry(&round, in, out, &in_flight->why);
	if (r == 0 && job->signal.memory && in_flight->launched + 1 == s->rounds && !job_first_failure(job))
		r = timelines_put(&job->signal, round.last, &in_flight->why);
	if (!round.last)
		return r;
	end = mark_end(&round);
	if (end < 0)
		return in_flight->status = STATUS_DEVICE_LOST;
	in_flight->launched++;
	if (s->rounds == 1 && in_flight->is_timed && round.last == in_flight->slot->stream)
		in_flight->slot->last = in_flight;
	return r;
}

/* Bytes [low, high) of the source. */
static int copy_in(struct round *round, CUstream in, int64_t low, int64_t high, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;
	const char *from = cuda_memory(job->move.src)->data + (int64_t)job->move.src_offset + low;

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

/* Rows of the host and the same without gaps in scratch memory: one nearest axis at a time; the others count
 * like the digits of a number. */
static int copy_rows(const struct row_box *box, char *host, uint64_t scratch, bool out, CUstream stream,
                     struct error *err)
{
	const uint64_t pitch = box->rank > 0 ? box->axis[0].stride : box->row_bytes;
	uint64_t at[TENSOR_MAX_RANK] = { 0 };
	CUDA_MEMCPY2D copy = { .srcMemoryType = out ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
		               .dstMemoryType = out ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
		               .srcPitch = out ? box->row_bytes : pitch,
		               .dstPitch = out ? pitch : box->row_bytes,
		               .WidthInBytes = box->row_bytes,
		               .Height = box->rank > 0 ? box->axis[0].n : 1 };
	int r = 0, d = 0;

	while (r == 0) {
		if (out) {
			copy.dstHost = host;
			copy.srcDevice = scratch;
		} else {
			copy.srcHost = host;
			copy.dstDevice = scratch;
		}
		r = driver_call(err, cuMemcpy2DAsync, (&copy, stream));
		scratch += copy.Height * copy.WidthInBytes;
		for (d = 1; d < box->rank; d++) {
			host += box->axis[d].stride;
			if (++at[d] < box->axis[d].n)
				break;
			host -= at[d] * box->axis[d].stride;
			at[d] = 0;
		}
		if (d >= box->rank)
			break;
	}
	return r;
}

static int bring_rows(struct round *round, CUstream in, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;

	round->last = in;
	return copy_rows(&round->part.src_box,
	                 cuda_memory(job->move.src)->data + (int64_t)job->move.src_offset +
	                     round->part.reads.low,
	                 scratch_src(round), false, in, err);
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

/* What a kernel needs that is as fast as the bus; the rest of the device is others'. */
#define BUS_MULTIPROCESSORS 32

/* Whether the kernel reads or writes host memory itself. */
static bool is_over_bus(const struct in_flight_job *in_flight)
{
	const struct engine_job *job = in_flight->job;
	const struct staging *s = &in_flight->staging;

	if (job_is_many(job))
		return job_has_moves_by_bus(job);
	return (s->src == STAGING_DIRECT && cuda_memory(job->move.src)->host) ||
	       (s->dst == STAGING_DIRECT && cuda_memory(job->move.dst)->host);
}

/* Copies of many rows of host memory lose a third of their speed when a kernel fills the L2 meanwhile, it
 * seems because the tables that lead to those rows' pages are kept there. */
static void set_launcher(const struct round *round)
{
	const struct in_flight_job *in_flight = round->in_flight;
	const struct staging *s = &in_flight->staging;
	const bool has_rows = s->src == STAGING_STRIPE || s->dst == STAGING_STRIPE;
	struct launcher *launcher = &round->pool->launcher;

	launcher_set_job(launcher, in_flight->job->multiprocessors);
	if (has_rows) {
		launcher->passing.start =
		    staging_slot_place(s, in_flight->scratch.start, in_flight->launched);
		launcher->passing.bytes = staging_slot_bytes(s);
	}
	if (((has_rows && s->src == s->dst) || is_over_bus(in_flight)) &&
	    (launcher->multiprocessors == 0 || launcher->multiprocessors > BUS_MULTIPROCESSORS))
		launcher->multiprocessors = BUS_MULTIPROCESSORS;
}

/* In one round, each side where it is. */
static int convert(struct round *round, CUstream own, uint64_t dst, uint64_t src, struct error *err)
{
	struct in_flight_job *in_flight = round->in_flight;
	const struct engine_move *move = &in_flight->job->move;
	struct convert_operands operands;
	uint64_t base = 0;
	int r = 0;

	in_flight->magnitudes = 0;
	if (changed_is_counted(in_flight->job) || magnitudes_are_needed(in_flight->job)) {
		r = upload_buffer_begin(&in_flight->upload_buffer, err);
		if (r == 0)
			r = magnitudes_take(in_flight, err);
		if (r == 0)
			r = changed_take(in_flight, err);
		if (r == 0)
			r = upload_buffer_send(&in_flight->upload_buffer, own, &base, err);
		if (r < 0)
			return r;
	}
	convert_operands_init(&operands, move, changed_place(in_flight, move, 0, base),
	                      in_flight->magnitudes);
	r = launch_transform(&round->pool->launcher, own, move->transform, move->plan, dst, src, &operands,
	                     err);
	if (r == 0 && in_flight->changed)
		r = changed_fetch(in_flight, own, err);
	return r;
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

	set_launcher(round);
	if (s->run)
		return s->src == STAGING_DIRECT ? copy_run(round, own, err) : 0;
	r = pass(round, own, err);
	if (r < 0)
		return r;
	if (job_is_many(in_flight->job))
		return many_launch(round->pool, in_flight, own, err);
	if (in_flight->job->move.transform->conversion.is)
		return convert(round, own, dst, src, err);
	if (s->rounds == 1 && s->src != STAGING_STRIPE && s->dst != STAGING_STRIPE)
		return launch_transform(&round->pool->launcher, own, s->transform, s->plan, dst, src, NULL,
		                        err);
	if (s->dst != STAGING_STRIPE)
		dst += (uint64_t)round->part.dst_offset;
	facts.align = common_align(dst, src);
	facts.dst_phase = dst % PLAN_PHASE;
	facts.src_phase = src % PLAN_PHASE;
	plan_init(&plan, &round->part.transform, &facts);
	return launch_transform(&round->pool->launcher, own, &round->part.transform, &plan, dst, src, NULL,
	                        err);
}

static int take_out(struct round *round, CUstream out, struct error *err)
{
	const struct engine_job *job = round->in_flight->job;
	struct tensor_extent writes = round->part.writes;
	char *host;
	int r;

	if (round->in_flight->staging.dst == STAGING_DIRECT)
		return 0;
	r = pass(round, out, err);
	if (r < 0)
		return r;
	host = cuda_memory(job->move.dst)->data + (int64_t)job->move.dst_offset + writes.low;
	if (round->in_flight->staging.dst == STAGING_STRIPE)
		return copy_rows(&round->part.dst_box, host, scratch_dst(round), true, out, err);
	return driver_call(
	    err, cuMemcpyDtoHAsync,
	    (host, scratch_dst(round) + (uint64_t)writes.low, (size_t)(writes.high - writes.low), out));
}
