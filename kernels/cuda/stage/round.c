/* SPDX-License-Identifier: Apache-2.0 */
/* A round brings the source in, runs the kernel and takes the destination out; when there are several rounds,
 * each of the three has a stream of its own, so that stages of different rounds overlap. */
#include "round.h"

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/nest/narrow.h"
#include "many.h"

void round_init(struct round *round)
{
	const struct staging *s = round->staging;
	const struct engine_job *job = round->job;

	if (!job->moves) {
		round->dst = cuda_memory(job->move.dst)->address + job->move.dst_offset;
		round->src = cuda_memory(job->move.src)->address + job->move.src_offset;
	}
	if (s->run || (s->transform && staging_is_needed(s)))
		staging_round(s, round->i, &round->part);
}

static uint64_t scratch_src(const struct round *round)
{
	const struct staging *s = round->staging;
	uint64_t low = s->src == STAGING_WHOLE ? (uint64_t)transform_reads(round->job->move.transform).low
	                                       : (uint64_t)round->part.reads.low;

	if (s->src == STAGING_STRIPE) /* whose first element is the first that is read */
		low = 0;
	return staging_src_place(s, round->scratch, round->i, round->src + low) - low;
}

static uint64_t scratch_dst(const struct round *round)
{
	const struct staging *s = round->staging;
	const uint64_t low = (uint64_t)round->part.writes.low;

	if (s->run)
		return scratch_src(round) + (uint64_t)round->part.reads.low - low;
	const uint64_t place = staging_dst_place(s, round->scratch, round->i, round->dst + low);

	return s->dst == STAGING_STRIPE ? place : place - low;
}

int round_pass(struct round *round, CUstream to, struct error *err)
{
	if (round->last && round->last != to) {
		int r = equipment_pass(round->equipment, round->last, to, err);

		if (r < 0)
			return r;
	}
	round->last = to;
	return 0;
}

/* ---- Bringing the source in --------------------------------------------------------------------------- */

/* Bytes [low, high) of the source. */
static int copy_in(struct round *round, int64_t low, int64_t high, struct error *err)
{
	const struct engine_job *job = round->job;
	const char *from = cuda_memory(job->move.src)->data + (int64_t)job->move.src_offset + low;

	if (low >= high)
		return 0;
	round->last = round->in;
	return driver_call(err, cuMemcpyHtoDAsync,
	                   (scratch_src(round) + (uint64_t)low, from, (size_t)(high - low), round->in));
}

/* A source that is brought as a whole grows on both ends, without gaps. A round that reads over most of it
 * brings all of it. */
static int bring_more(struct round *round, struct error *err)
{
	struct tensor_extent *brought = round->brought, reads = round->part.reads;
	struct tensor_extent whole = transform_reads(round->job->move.transform);
	int r;

	if (reads.low == reads.high)
		return 0;
	if (reads.high - reads.low > (whole.high - whole.low) / 2)
		reads = whole;
	if (brought->low == brought->high)
		*brought = (struct tensor_extent){ reads.low, reads.low };
	r = copy_in(round, reads.low, brought->low, err);
	if (r == 0)
		r = copy_in(round, brought->high, reads.high, err);
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

static int bring_rows(struct round *round, struct error *err)
{
	const struct engine_job *job = round->job;

	round->last = round->in;
	return copy_rows(&round->part.src_box,
	                 cuda_memory(job->move.src)->data + (int64_t)job->move.src_offset +
	                     round->part.reads.low,
	                 scratch_src(round), false, round->in, err);
}

static int bring_in(struct round *round, struct error *err)
{
	switch (round->staging->src) {
	case STAGING_DIRECT:
		return 0;
	case STAGING_WHOLE:
		return bring_more(round, err);
	case STAGING_STRIPE:
		return bring_rows(round, err);
	default:
		return copy_in(round, round->part.reads.low, round->part.reads.high, err);
	}
}

/* ---- Moving ------------------------------------------------------------------------------------------- */

/* A run with a side on the device. */
static int copy_run(struct round *round, struct error *err)
{
	const struct engine_job *job = round->job;
	struct tensor_extent reads = round->part.reads, writes = round->part.writes;
	size_t bytes = (size_t)(reads.high - reads.low);
	char *dst = cuda_memory(job->move.dst)->data;
	const char *src = cuda_memory(job->move.src)->data;

	round->last = round->own;
	if (src)
		return driver_call(err, cuMemcpyHtoDAsync,
		                   (round->dst + (uint64_t)writes.low, src + job->move.src_offset + reads.low,
		                    bytes, round->own));
	return driver_call(
	    err, cuMemcpyDtoHAsync,
	    (dst + job->move.dst_offset + writes.low, round->src + (uint64_t)reads.low, bytes, round->own));
}

/* What a kernel needs that is as fast as the bus; the rest of the device is others'. */
#define BUS_MULTIPROCESSORS 32

/* Whether the kernel reads or writes host memory itself. */
static bool is_over_bus(const struct round *round)
{
	const struct engine_job *job = round->job;
	const struct staging *s = round->staging;

	if (job_is_many(job))
		return job_is_by_bus(job);
	return (s->src == STAGING_DIRECT && cuda_memory(job->move.src)->host) ||
	       (s->dst == STAGING_DIRECT && cuda_memory(job->move.dst)->host);
}

/* Copies of many rows of host memory lose a third of their speed when a kernel fills the L2 meanwhile, it
 * seems because the tables that lead to those rows' pages are kept there. */
static void set_launcher(const struct round *round)
{
	const struct staging *s = round->staging;
	const bool has_rows = s->src == STAGING_STRIPE || s->dst == STAGING_STRIPE;
	struct launcher *launcher = &round->equipment->launcher;

	launcher_set_job(launcher, round->job->multiprocessors);
	if (has_rows) {
		launcher->passing.start = staging_slot_place(s, round->scratch, round->i);
		launcher->passing.bytes = staging_slot_bytes(s);
	}
	if (((has_rows && s->src == s->dst) || is_over_bus(round)) &&
	    (launcher->multiprocessors == 0 || launcher->multiprocessors > BUS_MULTIPROCESSORS))
		launcher->multiprocessors = BUS_MULTIPROCESSORS;
}

/* A part of a transform, which has a plan of its own. */
static int move_part(struct round *round, uint64_t dst, uint64_t src, struct error *err)
{
	struct engine_plan *plan =
	    cuda_plan_of_round(round->equipment->plans, &round->part.transform, dst, src);
	int r;

	if (!plan)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	r = launch_transform(&round->equipment->launcher, round->own, &plan->transform, cuda_plan(plan), dst,
	                     src, NULL, err);
	engine_plan_unref(plan);
	return r;
}

static int move(struct round *round, struct error *err)
{
	const struct staging *s = round->staging;
	struct launcher *launcher = &round->equipment->launcher;
	uint64_t dst = s->dst == STAGING_DIRECT ? round->dst : scratch_dst(round);
	uint64_t src = s->src == STAGING_DIRECT ? round->src : scratch_src(round);
	int r;

	set_launcher(round);
	if (s->run)
		return s->src == STAGING_DIRECT ? copy_run(round, err) : 0;
	r = round_pass(round, round->own, err);
	if (r < 0)
		return r;
	if (job_is_many(round->job) || round->job->move.transform->conversion.is)
		return many_launch(&(struct many){ launcher, round->upload_buffer, round->job, round->own },
		                   err);
	if (s->rounds == 1 && s->src != STAGING_STRIPE && s->dst != STAGING_STRIPE)
		return launch_transform(launcher, round->own, s->transform, s->plan, dst, src, NULL, err);
	if (s->dst != STAGING_STRIPE)
		dst += (uint64_t)round->part.dst_offset;
	return move_part(round, dst, src, err);
}

/* ---- Taking the destination out ----------------------------------------------------------------------- */

static int take_out(struct round *round, struct error *err)
{
	const struct engine_job *job = round->job;
	struct tensor_extent writes = round->part.writes;
	char *host;
	int r;

	if (round->staging->dst == STAGING_DIRECT)
		return 0;
	r = round_pass(round, round->out, err);
	if (r < 0)
		return r;
	host = cuda_memory(job->move.dst)->data + (int64_t)job->move.dst_offset + writes.low;
	if (round->staging->dst == STAGING_STRIPE)
		return copy_rows(&round->part.dst_box, host, scratch_dst(round), true, round->out, err);
	return driver_call(err, cuMemcpyDtoHAsync,
	                   (host, scratch_dst(round) + (uint64_t)writes.low,
	                    (size_t)(writes.high - writes.low), round->out));
}

int round_carry(struct round *round, struct error *err)
{
	int r = bring_in(round, err);

	if (r == 0)
		r = move(round, err);
	return r < 0 ? r : take_out(round, err);
}
