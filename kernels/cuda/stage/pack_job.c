/* SPDX-License-Identifier: Apache-2.0 */
/* The list, stretches, and the steps of a job from one state to the next. */
#include "pack_job.h"

#include <stdlib.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/host/memory.h"
#include "many.h"
#include "proto/arithmetic.h"

static bool advance(struct pack_job *pack, uint64_t i);

/* ---- The beginning ------------------------------------------------------------------------------------- */

static const void *list_of(const struct engine_blocks *blocks)
{
	if (blocks->index)
		return blocks->index;
	return cuda_memory(blocks->index_memory)->data + blocks->index_offset;
}

static void read_list(void *arg)
{
	struct pack_job *pack = arg;

	packing_read(&pack->packing, list_of(pack->packing.blocks), pack->lists.memory);
}

static bool read_guarded(struct pack_job *pack)
{
	const struct engine_blocks *blocks = pack->packing.blocks;

	if (blocks->index) {
		read_list(pack);
		return true;
	}
	const struct fault_range range = host_memory(cuda_memory(blocks->index_memory)->host)->mapped;
	const struct fault_range ranges[2] = { range, range };

	if (fault_guard(ranges, read_list, pack))
		return true;
	fate_fail(pack->fate, STATUS_DEVICE);
	return false;
}

/* Makes room for so many bytes, whatever was there. */
static bool has_room(struct pack_room *room, size_t bytes)
{
	if (bytes <= room->bytes)
		return true;
	free(room->memory);
	room->memory = malloc(bytes);
	room->bytes = room->memory ? bytes : 0;
	return room->memory != NULL;
}

static struct fault_range range_of(struct engine_memory *memory)
{
	return host_memory(cuda_memory(memory)->host)->mapped;
}

static uint32_t count_ranges(const struct engine_blocks_side *side)
{
	return side->table ? side->table->n : 0;
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

static void set_guards(struct pack_job *pack, const struct engine_move *move)
{
	const struct engine_blocks *blocks = pack->packing.blocks;
	struct fault_range *ranges = pack->ranges.memory;
	const uint32_t n = count_ranges(&blocks->dst);

	pack->host_out = guard_of(&blocks->dst, move->dst, &pack->own[0], ranges);
	pack->host_in = guard_of(&blocks->src, move->src, &pack->own[1], n > 0 ? ranges + n : ranges);
}

static void set_places(struct pack_job *pack, const struct engine_move *move)
{
	const struct cuda_memory *dst = cuda_memory(move->dst), *src = cuda_memory(move->src);

	pack->dst = dst->address + move->dst_offset;
	pack->src = src->address + move->src_offset;
	pack->host_dst = dst->data ? dst->data + (int64_t)move->dst_offset : NULL;
	pack->host_src = src->data ? src->data + (int64_t)move->src_offset : NULL;
}

static bool has_slots(struct pack_job *pack)
{
	int r = pack_slots_open(&pack->equipment->pack_slots, &pack->fate->why);

	if (r == STATUS_DEVICE_LOST)
		fate_fail(pack->fate, r);
	return r == 0;
}

/* More would only be in each other's way, and in the copy engine's: six write more than the bus brings. */
#define MOST_UNPACKERS 6

static uint32_t threads_of(const struct pack_job *pack, uint32_t most)
{
	most = min_u32(most, pack->equipment->packers.most);
	return pack->job->host_threads > 0 ? min_u32(most, pack->job->host_threads) : most;
}

bool pack_job_begin(struct pack_job *pack, struct engine_job *job, const struct packing *packing,
                    struct stream_slot *slot, uint64_t scratch)
{
	struct packers *packers = &pack->equipment->packers;
	struct pack_slots *slots = &pack->equipment->pack_slots;
	const uint32_t n_ranges = count_ranges(&job->blocks->dst) + count_ranges(&job->blocks->src);

	pack->job = job;
	pack->packing = *packing;
	pack->slot = slot;
	pack->scratch = scratch;
	if (!has_slots(pack) || !packers_start(packers) ||
	    !has_room(&pack->lists, packing_list_bytes(&pack->packing)) ||
	    !has_room(&pack->ranges, n_ranges * sizeof(struct fault_range)) || !read_guarded(pack))
		return false;
	if (!packing_judge(&pack->packing, slots->bytes)) {
		job->blocks->passed = job->blocks->beyond = 0;
		return false;
	}
	if (pack->packing.n == 0) /* No packing will set the family. */
		job->blocks->family = cuda_plan(job->move.plan)->family;
	TAILQ_INIT(&pack->slots);
	pack->in_group = (struct pack_group){ .most = threads_of(pack, packers->most) };
	pack->out_group = (struct pack_group){ .most = threads_of(pack, MOST_UNPACKERS) };
	pack->coming = pack->going = 0;
	pack->begun = pack->ended = 0;
	set_places(pack, &job->move);
	set_guards(pack, &job->move);
	slots->jobs++;
	return true;
}

/* ---- Steps --------------------------------------------------------------------------------------------- */

static bool open_stretches(struct pack_job *pack)
{
	bool moved = false;

	while (pack->begun < pack->packing.stretches && pack->begun - pack->ended < pack->packing.slots) {
		struct pack_stretch *stretch = pack_stretch_at(pack, pack->begun);

		*stretch = (struct pack_stretch){ .state = PACK_STRETCH_COMING };
		packing_stretch_at(&pack->packing, pack->begun++, &stretch->part);
		moved = true;
	}
	return moved;
}

/* What is on the device is waited for, whatever has become of the job. */
static bool poll_moving(struct pack_job *pack, uint64_t i)
{
	struct pack_stretch *stretch = pack_stretch_at(pack, i);
	CUresult result;

	if (stretch->state != PACK_STRETCH_MOVING)
		return false;
	result = driver.cuEventQuery(pack->moved[i % pack->packing.slots]);
	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result != CUDA_SUCCESS) {
		driver_fail(&pack->fate->why, result, "cuEventQuery(event)");
		fate_fail(pack->fate, STATUS_DEVICE_LOST);
		return true;
	}
	stretch->state = pack->packing.dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

bool pack_job_poll(struct pack_job *pack)
{
	bool moved = pack_chunks_poll(pack);

	if (fate_is_open(pack->fate))
		moved |= open_stretches(pack);
	for (uint64_t i = pack->ended; i < pack->begun && pack->fate->status != STATUS_DEVICE_LOST; i++) {
		moved |= poll_moving(pack, i);
		if (fate_is_open(pack->fate))
			moved |= advance(pack, i);
	}
	while (pack->ended < pack->begun && pack_stretch_at(pack, pack->ended)->state == PACK_STRETCH_DONE) {
		pack->ended++;
		moved = true;
	}
	return moved;
}

bool pack_job_is_moved(const struct pack_job *pack)
{
	return pack->ended == pack->packing.stretches;
}

bool pack_job_is_over(const struct pack_job *pack)
{
	if (pack_job_is_moved(pack))
		return true;
	if (fate_is_open(pack->fate) || !TAILQ_EMPTY(&pack->slots))
		return false;
	for (uint64_t i = pack->ended; i < pack->begun; i++)
		if (pack->stretch[i % pack->packing.slots].state == PACK_STRETCH_MOVING)
			return false;
	return true;
}

/* ---- Stretches ----------------------------------------------------------------------------------------- */

static bool is_one_moving(struct pack_job *pack)
{
	for (uint64_t i = pack->ended; i < pack->begun; i++)
		if (pack_stretch_at(pack, i)->state == PACK_STRETCH_MOVING)
			return true;
	return false;
}

static int launch(struct pack_job *pack, uint64_t i)
{
	const struct packing *p = &pack->packing;
	const uint32_t slot = (uint32_t)(i % p->slots);
	const struct many many = { &pack->equipment->launcher, pack->upload_buffer, pack->job,
		                   pack->slot->stream };
	struct error *err = &pack->fate->why;
	struct engine_blocks blocks;
	int64_t dst, src;
	int r = 0;

	launcher_set_job(many.launcher, pack->job->multiprocessors);
	packing_list(p, &pack_stretch_at(pack, i)->part, &blocks, &dst, &src);
	if (p->src.way != PACKING_IN_PLACE)
		r = equipment_pass(pack->equipment, pack->equipment->copy_in, many.stream, err);
	if (r == 0)
		r = many_launch_blocks(&many, &blocks,
		                       (uint64_t)dst + (p->dst.way == PACKING_IN_PLACE
		                                            ? pack->dst
		                                            : packing_dst_place(p, pack->scratch, slot)),
		                       (uint64_t)src + (p->src.way == PACKING_IN_PLACE
		                                            ? pack->src
		                                            : packing_src_place(p, pack->scratch, slot)),
		                       err);
	if (r == 0)
		pack->job->blocks->family = blocks.family;
	return r;
}

/* Behind all that comes. The kernel's list may lie in the flight's one upload buffer, so that a job
 * has one on the device at a time. */
static bool move(struct pack_job *pack, uint64_t i)
{
	int r, end;

	if (is_one_moving(pack))
		return false;
	r = launch(pack, i);
	if (r < 0)
		fate_fail(pack->fate, r);
	end = driver_call(&pack->fate->why, cuEventRecord,
	                  (pack->moved[i % pack->packing.slots], pack->slot->stream));
	if (end < 0)
		fate_fail(pack->fate, STATUS_DEVICE_LOST);
	pack->slot->last = NULL;
	pack_stretch_at(pack, i)->state = PACK_STRETCH_MOVING;
	return true;
}

static bool advance_coming(struct pack_job *pack, uint64_t i)
{
	const struct packing *p = &pack->packing;
	struct pack_stretch *stretch = pack_stretch_at(pack, i);
	const bool comes = p->src.way != PACKING_IN_PLACE;
	const uint64_t chunks = comes ? packing_chunks(&p->src, &stretch->part) : 0;
	bool moved = comes && pack_chunks_begin(pack, i, &p->src, &pack->coming, PACK_SLOT_PACKING);

	if (!fate_is_open(pack->fate) || (p->is_plain ? stretch->in.landed : stretch->in.copied) < chunks)
		return moved;
	if (!p->is_plain)
		return move(pack, i) || moved;
	stretch->state = p->dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

static bool advance_going(struct pack_job *pack, uint64_t i)
{
	const struct packing_side *dst = &pack->packing.dst;
	struct pack_stretch *stretch = pack_stretch_at(pack, i);
	bool moved = pack_chunks_begin(pack, i, dst, &pack->going, PACK_SLOT_GOING_OUT);

	if (stretch->out.landed < packing_chunks(dst, &stretch->part))
		return moved;
	stretch->state = PACK_STRETCH_DONE;
	return true;
}

static bool advance(struct pack_job *pack, uint64_t i)
{
	switch (pack_stretch_at(pack, i)->state) {
	case PACK_STRETCH_COMING:
		return advance_coming(pack, i);
	case PACK_STRETCH_GOING:
		return advance_going(pack, i);
	default:
		return false;
	}
}

/* ---- The end ------------------------------------------------------------------------------------------- */

void pack_job_end(struct pack_job *pack)
{
	pack_chunks_drop(pack);
	pack->equipment->pack_slots.jobs--;
}

void pack_job_deinit(struct pack_job *pack)
{
	free(pack->lists.memory);
	free(pack->ranges.memory);
}
