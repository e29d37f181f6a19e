/* SPDX-License-Identifier: Apache-2.0 */
/* The list, stretches, and the steps of a job from one state to the next. */
#include "pack_job.h"

#include <stdlib.h>

#include "driver.h"
#include "in_flight.h"
#include "pack_chunk.h"
#include "kernels/cuda/launch/many.h"
#include "kernels/host/memory.h"
#include "memory.h"
#include "proto/arithmetic.h"

static bool advance(struct pack_job *job, uint64_t i);

/* ---- The beginning ------------------------------------------------------------------------------------- */

static const void *list_of(const struct engine_blocks *blocks)
{
	if (blocks->index)
		return blocks->index;
	return cuda_memory(blocks->index_memory)->data + blocks->index_offset;
}

static void read_list(void *arg)
{
	struct pack_job *job = arg;

	packing_read(&job->packing, list_of(job->packing.blocks), job->lists);
}

static bool read_guarded(struct pack_job *job)
{
	const struct engine_blocks *blocks = job->packing.blocks;

	if (blocks->index) {
		read_list(job);
		return true;
	}
	const struct fault_range range = host_memory(cuda_memory(blocks->index_memory)->host)->mapped;
	const struct fault_range ranges[2] = { range, range };

	if (fault_guard(ranges, read_list, job))
		return true;
	pack_job_fail(job, STATUS_DEVICE);
	return false;
}

static bool has_lists(struct pack_job *job)
{
	const uint64_t bytes = packing_list_bytes(&job->packing);

	if (bytes <= job->lists_bytes)
		return true;
	free(job->lists);
	job->lists = malloc(bytes);
	job->lists_bytes = job->lists ? bytes : 0;
	return job->lists != NULL;
}

static struct fault_range range_of(struct engine_memory *memory)
{
	return host_memory(cuda_memory(memory)->host)->mapped;
}

static uint32_t count_ranges(const struct engine_blocks_side *side)
{
	return side->table ? side->table->n : 0;
}

static bool has_ranges(struct pack_job *job)
{
	const struct engine_blocks *blocks = job->packing.blocks;
	const uint32_t n = count_ranges(&blocks->dst) + count_ranges(&blocks->src);

	if (n <= job->n_ranges)
		return true;
	free(job->ranges);
	job->ranges = malloc(n * sizeof *job->ranges);
	job->n_ranges = job->ranges ? n : 0;
	return job->ranges != NULL;
}

/* What a side's guard names; more: room for the memories of a table. */
static struct pack_guard guard_of(const struct engine_blocks_side *side, struct engine_memory *memory,
                                  struct fault_range *own, struct fault_range *more)
{
	if (!cuda_memory(memory)->host)
		return (struct pack_guard){ NULL, 0 };
	if (!side->table) {
		*own = range_of(memory);
		return (struct pack_guard){ own, 1 };
	}
	for (uint32_t l = 0; l < side->table->n; l++)
		more[l] = range_of(side->table->memories[l]);
	return (struct pack_guard){ more, side->table->n };
}

static void set_guards(struct pack_job *job, const struct engine_move *move)
{
	const struct engine_blocks *blocks = job->packing.blocks;
	const uint32_t n = count_ranges(&blocks->dst);

	job->host_out = guard_of(&blocks->dst, move->dst, &job->own[0], job->ranges);
	job->host_in = guard_of(&blocks->src, move->src, &job->own[1], n > 0 ? job->ranges + n : job->ranges);
}

static void set_places(struct pack_job *job, const struct engine_move *move)
{
	const struct cuda_memory *dst = cuda_memory(move->dst), *src = cuda_memory(move->src);

	job->dst = dst->address + move->dst_offset;
	job->src = src->address + move->src_offset;
	job->host_dst = dst->data ? dst->data + (int64_t)move->dst_offset : NULL;
	job->host_src = src->data ? src->data + (int64_t)move->src_offset : NULL;
}

static bool has_slots(struct pack_job *job)
{
	int r = pack_slots_open(&job->pool->pack_slots, &job->in_flight->why);

	if (r == STATUS_DEVICE_LOST)
		pack_job_fail(job, r);
	return r == 0;
}

/* More would only be in each other's way, and in the copy engine's: six write more than the bus brings. */
#define MOST_UNPACKERS 6

static uint32_t threads_of(const struct in_flight_pool *pool, const struct engine_job *job, uint32_t most)
{
	most = min_u32(most, pool->packers.most);
	return job->host_threads > 0 ? min_u32(most, job->host_threads) : most;
}

bool pack_job_begin(struct in_flight_pool *pool, struct in_flight_job *in_flight)
{
	struct pack_job *job = &in_flight->pack;
	struct engine_blocks *blocks = in_flight->job->blocks;

	job->pool = pool;
	job->in_flight = in_flight;
	job->packing = in_flight->staging.packing;
	if (!has_slots(job) || !packers_start(&pool->packers) || !has_lists(job) || !has_ranges(job) ||
	    !read_guarded(job))
		return false;
	if (!packing_judge(&job->packing, pool->pack_slots.bytes)) {
		blocks->passed = blocks->beyond = 0;
		return false;
	}
	TAILQ_INIT(&job->slots);
	job->in_group = (struct pack_group){ .most = threads_of(pool, in_flight->job, pool->packers.most) };
	job->out_group = (struct pack_group){ .most = threads_of(pool, in_flight->job, MOST_UNPACKERS) };
	job->coming = job->going = 0;
	job->begun = job->ended = 0;
	set_places(job, &in_flight->job->move);
	set_guards(job, &in_flight->job->move);
	pool->pack_slots.jobs++;
	return job->is_active = true;
}

/* ---- Steps --------------------------------------------------------------------------------------------- */

static bool open_stretches(struct pack_job *job)
{
	bool moved = false;

	while (job->begun < job->packing.stretches && job->begun - job->ended < job->packing.slots) {
		struct pack_stretch *stretch = pack_stretch_at(job, job->begun);

		*stretch = (struct pack_stretch){ .state = PACK_STRETCH_COMING };
		packing_stretch_at(&job->packing, job->begun++, &stretch->part);
		moved = true;
	}
	return moved;
}

/* What is on the device is waited for, whatever has become of the job. */
static bool poll_moving(struct pack_job *job, uint64_t i)
{
	struct pack_stretch *stretch = pack_stretch_at(job, i);
	CUevent event = job->in_flight->end[i % job->packing.slots];
	CUresult result;

	if (stretch->state != PACK_STRETCH_MOVING)
		return false;
	result = driver.cuEventQuery(event);
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result != CUDA_SUCCESS) {
		driver_fail(&job->in_flight->why, result, "cuEventQuery(event)");
		pack_job_fail(job, STATUS_DEVICE_LOST);
		return true;
	}
	stretch->state = job->packing.dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

bool pack_job_poll(struct pack_job *job)
{
	bool moved = pack_chunks_poll(job);

	if (pack_job_is_wanted(job))
		moved |= open_stretches(job);
	for (uint64_t i = job->ended; i < job->begun && job->in_flight->status != STATUS_DEVICE_LOST; i++) {
		moved |= poll_moving(job, i);
		if (pack_job_is_wanted(job))
			moved |= advance(job, i);
	}
	while (job->ended < job->begun && pack_stretch_at(job, job->ended)->state == PACK_STRETCH_DONE) {
		job->ended++;
		moved = true;
	}
	return moved;
}

bool pack_job_is_moved(const struct pack_job *job)
{
	return job->ended == job->packing.stretches;
}

bool pack_job_is_over(const struct pack_job *job)
{
	if (pack_job_is_moved(job))
		return true;
	if (pack_job_is_wanted(job) || !TAILQ_EMPTY(&job->slots))
		return false;
	for (uint64_t i = job->ended; i < job->begun; i++)
		if (job->stretch[i % job->packing.slots].state == PACK_STRETCH_MOVING)
			return false;
	return true;
}

/* ---- Stretches ----------------------------------------------------------------------------------------- */

static bool is_one_moving(struct pack_job *job)
{
	for (uint64_t i = job->ended; i < job->begun; i++)
		if (pack_stretch_at(job, i)->state == PACK_STRETCH_MOVING)
			return true;
	return false;
}

static int launch(struct pack_job *job, uint64_t i)
{
	const struct packing *p = &job->packing;
	const uint64_t scratch = job->in_flight->scratch.start;
	const uint32_t slot = (uint32_t)(i % p->slots);
	struct in_flight_job *in_flight = job->in_flight;
	CUstream own = in_flight->slot->stream;
	struct error *err = &in_flight->why;
	struct engine_blocks blocks;
	int64_t dst, src;
	int r = 0;

	launcher_set_job(&job->pool->launcher, in_flight->job->multiprocessors);
	packing_list(p, &pack_stretch_at(job, i)->part, &blocks, &dst, &src);
	if (p->src.way != PACKING_IN_PLACE) {
		r = driver_call(err, cuEventRecord, (job->pool->passed, job->pool->copy_in));
		if (r == 0)
			r = driver_call(err, cuStreamWaitEvent,
			                (own, job->pool->passed, CU_EVENT_WAIT_DEFAULT));
	}
	if (r == 0)
		r = many_launch_blocks(
		    job->pool, in_flight, own, p->transform, &blocks,
		    (uint64_t)dst +
			(p->dst.way == PACKING_IN_PLACE ? job->dst : packing_dst_place(p, scratch, slot)),
		    (uint64_t)src +
			(p->src.way == PACKING_IN_PLACE ? job->src : packing_src_place(p, scratch, slot)),
		    err);
	if (r == 0)
		in_flight->job->blocks->family = blocks.family;
	return r;
}

/* Behind all that comes. The kernel's list may lie in the in-flight job's one upload buffer, so that a job
 * has one on the device at a time. */
static bool move(struct pack_job *job, uint64_t i)
{
	int r, end;

	if (is_one_moving(job))
		return false;
	r = launch(job, i);
	if (r < 0)
		pack_job_fail(job, r);
	end = driver_call(&job->in_flight->why, cuEventRecord,
	                  (job->in_flight->end[i % job->packing.slots], job->in_flight->slot->stream));
	if (end < 0)
		pack_job_fail(job, STATUS_DEVICE_LOST);
	job->in_flight->slot->last = NULL;
	pack_stretch_at(job, i)->state = PACK_STRETCH_MOVING;
	return true;
}

static bool advance_coming(struct pack_job *job, uint64_t i)
{
	const struct packing *p = &job->packing;
	struct pack_stretch *stretch = pack_stretch_at(job, i);
	const bool comes = p->src.way != PACKING_IN_PLACE;
	const uint64_t chunks = comes ? packing_chunks(&p->src, &stretch->part) : 0;
	bool moved = comes && pack_chunks_begin(job, i, &p->src, &job->coming, PACK_SLOT_PACKING);

	if (!pack_job_is_wanted(job) || (p->is_plain ? stretch->in.landed : stretch->in.copied) < chunks)
		return moved;
	if (!p->is_plain)
		return move(job, i) || moved;
	stretch->state = p->dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

static bool advance_going(struct pack_job *job, uint64_t i)
{
	const struct packing_side *dst = &job->packing.dst;
	struct pack_stretch *stretch = pack_stretch_at(job, i);
	bool moved = pack_chunks_begin(job, i, dst, &job->going, PACK_SLOT_GOING_OUT);

	if (stretch->out.landed < packing_chunks(dst, &stretch->part))
		return moved;
	stretch->state = PACK_STRETCH_DONE;
	return true;
}

static bool advance(struct pack_job *job, uint64_t i)
{
	switch (pack_stretch_at(job, i)->state) {
	case PACK_STRETCH_COMING:
		return advance_coming(job, i);
	case PACK_STRETCH_GOING:
		return advance_going(job, i);
	default:
		return false;
	}
}

/* ---- The end ------------------------------------------------------------------------------------------- */

void pack_job_end(struct pack_job *job)
{
	if (!job->is_active)
		return;
	pack_chunks_drop(job);
	job->pool->pack_slots.jobs--;
	job->is_active = false;
}

void pack_job_deinit(struct pack_job *job)
{
	free(job->lists);
	job->lists = NULL;
	job->lists_bytes = 0;
	free(job->ranges);
	job->ranges = NULL;
	job->n_ranges = 0;
}
