/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's calls for chunks and stretches, and the steps from one state to the next. */
#include "pack_job.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "in_flight.h"
#include "kernels/cuda/launch/many.h"
#include "kernels/host/memory.h"
#include "memory.h"
#include "proto/arithmetic.h"

static bool poll_slots(struct pack_job *job);
static bool advance(struct pack_job *job, uint64_t i);
static void issue(struct pack_job *job, struct pack_slot *slot);

static bool is_wanted(const struct pack_job *job)
{
	return job->in_flight->status == 0 &&
	       !atomic_load_explicit(&job->in_flight->stopped, memory_order_relaxed);
}

/* The first failure counts, but for the device's. */
static void fail(struct pack_job *job, int status)
{
	if (job->in_flight->status == 0 || status == STATUS_DEVICE_LOST)
		job->in_flight->status = status;
}

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
	fail(job, error_set(&job->in_flight->why, STATUS_DEVICE, "the memory of the list failed"));
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

static void set_places(struct pack_job *job, const struct engine_move *move)
{
	const struct cuda_memory *dst = cuda_memory(move->dst), *src = cuda_memory(move->src);

	job->dst = dst->address + move->dst_offset;
	job->src = src->address + move->src_offset;
	job->host_dst = dst->data ? dst->data + move->dst_offset : NULL;
	job->host_src = src->data ? src->data + move->src_offset : NULL;
}

static bool has_slots(struct pack_job *job)
{
	int r = pack_slots_open(&job->pool->pack_slots, &job->in_flight->why);

	if (r == STATUS_DEVICE_LOST)
		fail(job, r);
	return r == 0;
}

bool pack_job_begin(struct in_flight_pool *pool, struct in_flight_job *in_flight)
{
	struct pack_job *job = &in_flight->pack;
	struct engine_blocks *blocks = in_flight->job->blocks;

	job->pool = pool;
	job->in_flight = in_flight;
	job->packing = in_flight->staging.packing;
	if (!has_slots(job) || !packers_start(&pool->packers) || !has_lists(job) || !read_guarded(job))
		return false;
	if (!packing_judge(&job->packing, pool->pack_slots.bytes)) {
		blocks->passed = blocks->beyond = 0;
		return false;
	}
	TAILQ_INIT(&job->slots);
	job->group = (struct pack_group){ .most = pool->packers.most };
	job->coming = job->going = 0;
	job->begun = job->ended = 0;
	set_places(job, &in_flight->job->move);
	pool->pack_slots.jobs++;
	return job->is_active = true;
}

/* ---- Steps --------------------------------------------------------------------------------------------- */

static struct pack_stretch *stretch_at(struct pack_job *job, uint64_t i)
{
	return &job->stretch[i % job->packing.slots];
}

static bool open_stretches(struct pack_job *job)
{
	bool moved = false;

	while (job->begun < job->packing.stretches && job->begun - job->ended < job->packing.slots) {
		struct pack_stretch *stretch = stretch_at(job, job->begun);

		*stretch = (struct pack_stretch){ .state = PACK_STRETCH_COMING };
		packing_stretch_at(&job->packing, job->begun++, &stretch->part);
		moved = true;
	}
	return moved;
}

/* What is on the device is waited for, whatever has become of the job. */
static bool poll_moving(struct pack_job *job, uint64_t i)
{
	struct pack_stretch *stretch = stretch_at(job, i);
	CUevent event = job->in_flight->end[i % job->packing.slots];
	CUresult result;

	if (stretch->state != PACK_STRETCH_MOVING)
		return false;
	result = driver.cuEventQuery(event);
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result != CUDA_SUCCESS) {
		driver_fail(&job->in_flight->why, result, "cuEventQuery(event)");
		fail(job, STATUS_DEVICE_LOST);
		return true;
	}
	stretch->state = job->packing.dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

bool pack_job_poll(struct pack_job *job)
{
	bool moved = poll_slots(job);

	if (is_wanted(job))
		moved |= open_stretches(job);
	for (uint64_t i = job->ended; i < job->begun && job->in_flight->status != STATUS_DEVICE_LOST; i++) {
		moved |= poll_moving(job, i);
		if (is_wanted(job))
			moved |= advance(job, i);
	}
	while (job->ended < job->begun && stretch_at(job, job->ended)->state == PACK_STRETCH_DONE) {
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
	if (is_wanted(job) || !TAILQ_EMPTY(&job->slots))
		return false;
	for (uint64_t i = job->ended; i < job->begun; i++)
		if (job->stretch[i % job->packing.slots].state == PACK_STRETCH_MOVING)
			return false;
	return true;
}

/* ---- Slots --------------------------------------------------------------------------------------------- */

static bool is_out(const struct pack_slot *slot)
{
	return slot->state == PACK_SLOT_GOING_OUT || slot->state == PACK_SLOT_UNPACKING;
}

static void give(struct pack_job *job, struct pack_slot *slot)
{
	if (is_out(slot))
		job->going--;
	else
		job->coming--;
	TAILQ_REMOVE(&job->slots, slot, entry);
	pack_slots_give(&job->pool->pack_slots, slot);
}

static struct pack_count *count_of(struct pack_job *job, const struct pack_slot *slot)
{
	struct pack_stretch *stretch = stretch_at(job, slot->stretch);

	return is_out(slot) ? &stretch->out : &stretch->in;
}

static void land(struct pack_job *job, struct pack_slot *slot)
{
	count_of(job, slot)->landed++;
	give(job, slot);
}

/* One part of a chunk between its slot and the blocks. */
static void copy_part(void *arg, uint32_t part)
{
	struct pack_slot *slot = arg;
	struct pack_job *job = slot->job;
	const bool out = is_out(slot);
	const struct packing_side *side = out ? &job->packing.dst : &job->packing.src;
	const struct packing_stretch *stretch = &stretch_at(job, slot->stretch)->part;
	uint64_t at = slot->from + part * (uint64_t)PACKING_PART_BYTES;
	const uint64_t end = min_u64(at + PACKING_PART_BYTES, slot->to);

	while (at < end) {
		const struct packing_piece piece = packing_next(side, stretch, &at, end);
		char *packed = slot->bytes + (piece.at - slot->from);

		if (piece.bytes == 0)
			return;
		if (out)
			memcpy(job->host_dst + piece.place, packed, piece.bytes);
		else
			memcpy(packed, job->host_src + piece.place, piece.bytes);
	}
}

static void copy_by_threads(struct pack_job *job, struct pack_slot *slot, enum pack_slot_state state)
{
	const struct engine_move *move = &job->in_flight->job->move;
	struct engine_memory *memory = state == PACK_SLOT_PACKING ? move->src : move->dst;

	slot->state = state;
	slot->task.group = &job->group;
	slot->task.run = copy_part;
	slot->task.arg = slot;
	slot->task.range = host_memory(cuda_memory(memory)->host)->mapped;
	slot->task.parts = (uint32_t)divide_up_u64(slot->to - slot->from, PACKING_PART_BYTES);
	packers_add(&job->pool->packers, &slot->task);
}

static void on_packed(struct pack_job *job, struct pack_slot *slot)
{
	if (pack_task_has_failed(&slot->task))
		fail(job, error_set(&job->in_flight->why, STATUS_DEVICE, "the memory failed under a copy"));
	if (slot->state == PACK_SLOT_PACKING && is_wanted(job))
		issue(job, slot);
	else
		land(job, slot);
}

static bool poll_packed(struct pack_job *job, struct pack_slot *slot)
{
	if (!is_wanted(job))
		packers_drop(&job->pool->packers, &slot->task);
	if (!pack_task_is_over(&slot->task))
		return false;
	on_packed(job, slot);
	return true;
}

static bool poll_copied(struct pack_job *job, struct pack_slot *slot)
{
	CUresult result = driver.cuEventQuery(slot->copied);

	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result != CUDA_SUCCESS) {
		driver_fail(&job->in_flight->why, result, "cuEventQuery(event)");
		fail(job, STATUS_DEVICE_LOST);
	} else if (slot->state == PACK_SLOT_GOING_OUT && job->packing.dst.way == PACKING_BY_THREADS &&
	           is_wanted(job)) {
		copy_by_threads(job, slot, PACK_SLOT_UNPACKING);
	} else {
		land(job, slot);
	}
	return true;
}

/* Copies of one direction end one after the other: behind one that has not ended none is asked for. */
static bool poll_slots(struct pack_job *job)
{
	struct pack_slot *slot, *next;
	bool moved = false, waits[2] = { false, false };

	for (slot = TAILQ_FIRST(&job->slots); slot && job->in_flight->status != STATUS_DEVICE_LOST;
	     slot = next) {
		next = TAILQ_NEXT(slot, entry);
		if (slot->state == PACK_SLOT_PACKING || slot->state == PACK_SLOT_UNPACKING) {
			moved |= poll_packed(job, slot);
		} else if (!waits[is_out(slot)]) {
			waits[is_out(slot)] = !poll_copied(job, slot);
			moved |= !waits[is_out(slot)];
		}
	}
	return moved;
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

/* Between the host and a place on the device where all of it lies packed, or where blocks lie in pieces. */
static int copy_piece(const struct pack_slot *slot, uint64_t device, char *host, uint64_t bytes,
                      struct error *err)
{
	const struct pack_job *job = slot->job;

	if (is_out(slot))
		return driver_call(err, cuMemcpyDtoHAsync, (host, device, bytes, job->pool->copy_out));
	return driver_call(err, cuMemcpyHtoDAsync, (device, host, bytes, job->pool->copy_in));
}

/* Where the stretch's packed bytes are on the device; 0: in pieces. */
static uint64_t device_place(const struct pack_job *job, const struct pack_slot *slot)
{
	const struct packing *p = &job->packing;
	const uint32_t i = (uint32_t)(slot->stretch % p->slots);

	if (p->is_plain && (p->dst.way == PACKING_IN_PLACE || p->src.way == PACKING_IN_PLACE))
		return 0;
	return is_out(slot) ? packing_dst_place(p, job->in_flight->scratch.start, i)
	                    : packing_src_place(p, job->in_flight->scratch.start, i);
}

/* Pieces of both sides at once: as far as the shorter of the two goes. */
static int copy_pieces(struct pack_job *job, struct pack_slot *slot, struct error *err)
{
	const struct packing *p = &job->packing;
	const struct packing_stretch *stretch = &stretch_at(job, slot->stretch)->part;
	const bool out = is_out(slot);
	const struct packing_side *host = out ? &p->dst : &p->src, *device = out ? &p->src : &p->dst;
	const uint64_t packed = device_place(job, slot), base = out ? job->src : job->dst;
	char *client = out ? job->host_dst : (char *)(uintptr_t)job->host_src;
	uint64_t at = slot->from;
	int r = 0;

	while (at < slot->to && r == 0) {
		struct packing_piece from = { .at = at, .bytes = slot->to - at }, to = from;
		uint64_t behind = slot->to;

		if (host->way == PACKING_BY_COPIES)
			from = packing_next(host, stretch, &at, slot->to);
		else
			at = slot->to;
		if (!packed)
			to = packing_next(device, stretch, &(uint64_t){ from.at }, slot->to);
		behind = min_u64(from.bytes, to.bytes);
		if (behind == 0)
			break;
		r = copy_piece(slot, packed ? packed + from.at : base + (uint64_t)to.place,
		               host->way == PACKING_BY_COPIES ? client + from.place
		                                              : slot->bytes + (from.at - slot->from),
		               behind, err);
		at = from.at + behind;
	}
	return r;
}

/* Counts as soon as anything of it may be on the device: where the end of that cannot be had, the device is
 * given up. */
static void issue(struct pack_job *job, struct pack_slot *slot)
{
	CUstream stream = is_out(slot) ? job->pool->copy_out : job->pool->copy_in;
	struct error *err = &job->in_flight->why;
	int r, end;

	if (!is_out(slot))
		slot->state = PACK_SLOT_COMING_IN;
	r = copy_pieces(job, slot, err);
	if (r < 0)
		fail(job, r);
	end = driver_call(err, cuEventRecord, (slot->copied, stream));
	if (end < 0)
		fail(job, STATUS_DEVICE_LOST);
	count_of(job, slot)->copied++;
}

/* As many chunks as there are slots for. */
static bool begin_chunks(struct pack_job *job, uint64_t i, const struct packing_side *side, uint32_t *n,
                         enum pack_slot_state state)
{
	struct pack_count *count =
	    state == PACK_SLOT_GOING_OUT ? &stretch_at(job, i)->out : &stretch_at(job, i)->in;
	struct pack_slots *slots = &job->pool->pack_slots;
	const struct packing_stretch *part = &stretch_at(job, i)->part;
	const uint64_t chunks = packing_chunks(side, part);
	struct pack_slot *slot;
	bool moved = false;

	while (count->begun < chunks && *n < pack_slots_share(slots) && is_wanted(job) &&
	       (slot = pack_slots_take(slots))) {
		slot->job = job;
		slot->stretch = i;
		slot->state = state;
		packing_chunk(side, part, count->begun++, &slot->from, &slot->to);
		TAILQ_INSERT_TAIL(&job->slots, slot, entry);
		++*n;
		if (state == PACK_SLOT_PACKING && side->way == PACKING_BY_THREADS)
			copy_by_threads(job, slot, state);
		else
			issue(job, slot);
		moved = true;
	}
	return moved;
}

/* ---- Stretches ----------------------------------------------------------------------------------------- */

static bool is_one_moving(struct pack_job *job)
{
	for (uint64_t i = job->ended; i < job->begun; i++)
		if (stretch_at(job, i)->state == PACK_STRETCH_MOVING)
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

	packing_list(p, &stretch_at(job, i)->part, &blocks, &dst, &src);
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
		fail(job, r);
	end = driver_call(&job->in_flight->why, cuEventRecord,
	                  (job->in_flight->end[i % job->packing.slots], job->in_flight->slot->stream));
	if (end < 0)
		fail(job, STATUS_DEVICE_LOST);
	job->in_flight->slot->last = NULL;
	stretch_at(job, i)->state = PACK_STRETCH_MOVING;
	return true;
}

static bool advance_coming(struct pack_job *job, uint64_t i)
{
	const struct packing *p = &job->packing;
	struct pack_stretch *stretch = stretch_at(job, i);
	const bool comes = p->src.way != PACKING_IN_PLACE;
	const uint64_t chunks = comes ? packing_chunks(&p->src, &stretch->part) : 0;
	bool moved = comes && begin_chunks(job, i, &p->src, &job->coming, PACK_SLOT_PACKING);

	if (!is_wanted(job) || (p->is_plain ? stretch->in.landed : stretch->in.copied) < chunks)
		return moved;
	if (!p->is_plain)
		return move(job, i) || moved;
	stretch->state = p->dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

static bool advance_going(struct pack_job *job, uint64_t i)
{
	const struct packing_side *dst = &job->packing.dst;
	struct pack_stretch *stretch = stretch_at(job, i);
	bool moved = begin_chunks(job, i, dst, &job->going, PACK_SLOT_GOING_OUT);

	if (stretch->out.landed < packing_chunks(dst, &stretch->part))
		return moved;
	stretch->state = PACK_STRETCH_DONE;
	return true;
}

static bool advance(struct pack_job *job, uint64_t i)
{
	switch (stretch_at(job, i)->state) {
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
	struct pack_slot *slot;

	if (!job->is_active)
		return;
	while ((slot = TAILQ_FIRST(&job->slots))) {
		if (slot->state == PACK_SLOT_PACKING || slot->state == PACK_SLOT_UNPACKING) {
			packers_drop(&job->pool->packers, &slot->task);
			while (!pack_task_is_over(&slot->task))
				sched_yield();
		}
		give(job, slot);
	}
	job->pool->pack_slots.jobs--;
	job->is_active = false;
}

void pack_job_deinit(struct pack_job *job)
{
	free(job->lists);
	job->lists = NULL;
	job->lists_bytes = 0;
}
