/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk's steps, and its copies by threads and by the driver. */
#include "pack_chunk.h"

#include <sched.h>
#include <string.h>

#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/host/stream_copy.h"
#include "proto/arithmetic.h"

/* Chunks that are held back once they are packed. What the copy engine reads while it still lies, modified,
 * in the caches of the threads' cores slows both down to less than half; after as many more chunks, it no
 * longer does (tests/bench/EXPERIMENTS.md). */
#define HELD_BACK 4

static void issue(struct pack_job *pack, struct pack_slot *slot);

static bool is_out(const struct pack_slot *slot)
{
	return slot->state == PACK_SLOT_GOING_OUT || slot->state == PACK_SLOT_UNPACKING;
}

static void give(struct pack_job *pack, struct pack_slot *slot)
{
	if (is_out(slot))
		pack->going--;
	else
		pack->coming--;
	TAILQ_REMOVE(&pack->slots, slot, entry);
	pack_slots_give(&pack->equipment->pack_slots, slot);
}

static struct pack_count *count_of(struct pack_job *pack, const struct pack_slot *slot)
{
	struct pack_stretch *stretch = pack_stretch_at(pack, slot->stretch);

	return is_out(slot) ? &stretch->out : &stretch->in;
}

static void land(struct pack_job *pack, struct pack_slot *slot)
{
	count_of(pack, slot)->landed++;
	give(pack, slot);
}

/* One part of a chunk between its slot and the blocks. */
static void copy_part(void *arg, uint32_t part)
{
	struct pack_slot *slot = arg;
	struct pack_job *pack = slot->pack;
	const bool out = is_out(slot);
	const struct packing_side *side = out ? &pack->packing.dst : &pack->packing.src;
	const struct packing_stretch *stretch = &pack_stretch_at(pack, slot->stretch)->part;
	uint64_t at = slot->from + part * (uint64_t)PACKING_PART_BYTES;
	const uint64_t end = min_u64(at + PACKING_PART_BYTES, slot->to);

	while (at < end) {
		const struct packing_piece piece = packing_next(side, stretch, &at, end);
		char *packed = slot->bytes + (piece.at - slot->from);

		if (piece.bytes == 0)
			return;
		if (out)
			stream_copy(pack->host_dst + piece.place, packed, piece.bytes);
		else
			memcpy(packed, pack->host_src + piece.place, piece.bytes);
	}
}

static void copy_by_threads(struct pack_job *pack, struct pack_slot *slot, enum pack_slot_state state)
{
	const struct pack_guard *guard = state == PACK_SLOT_PACKING ? &pack->host_in : &pack->host_out;

	slot->state = state;
	slot->task.group = state == PACK_SLOT_PACKING ? &pack->in_group : &pack->out_group;
	slot->task.run = copy_part;
	slot->task.arg = slot;
	slot->task.ranges = guard->ranges;
	slot->task.n_ranges = guard->n;
	slot->task.parts = (uint32_t)divide_up_u64(slot->to - slot->from, PACKING_PART_BYTES);
	packers_add(&pack->equipment->packers, &slot->task);
}

static void on_packed(struct pack_job *pack, struct pack_slot *slot)
{
	if (pack_task_has_failed(&slot->task))
		fate_fail(pack->fate, STATUS_DEVICE);
	if (slot->state == PACK_SLOT_PACKING && fate_is_open(pack->fate))
		slot->state = PACK_SLOT_PACKED;
	else
		land(pack, slot);
}

static bool poll_packed(struct pack_job *pack, struct pack_slot *slot)
{
	if (!fate_is_open(pack->fate))
		packers_drop(&pack->equipment->packers, &slot->task);
	if (!pack_task_is_over(&slot->task))
		return false;
	on_packed(pack, slot);
	return true;
}

static bool poll_copied(struct pack_job *pack, struct pack_slot *slot)
{
	CUresult result = driver.cuEventQuery(slot->copied);

	if (result == CUDA_ERROR_NOT_READY)
		return false;
	if (result != CUDA_SUCCESS) {
		driver_fail(&pack->fate->why, result, "cuEventQuery(event)");
		fate_fail(pack->fate, STATUS_DEVICE_LOST);
	} else if (slot->state == PACK_SLOT_GOING_OUT && pack->packing.dst.way == PACKING_BY_THREADS &&
	           fate_is_open(pack->fate)) {
		copy_by_threads(pack, slot, PACK_SLOT_UNPACKING);
	} else {
		land(pack, slot);
	}
	return true;
}

/* The oldest first; none is held back when nothing is being packed that could push it out of the caches. */
static bool issue_packed(struct pack_job *pack)
{
	struct pack_slot *slot, *next;
	uint32_t packing = 0, packed = 0;
	bool moved = false;

	TAILQ_FOREACH(slot, &pack->slots, entry) {
		packing += slot->state == PACK_SLOT_PACKING;
		packed += slot->state == PACK_SLOT_PACKED;
	}
	for (slot = TAILQ_FIRST(&pack->slots); slot && packed > (packing > 0 ? HELD_BACK : 0); slot = next) {
		next = TAILQ_NEXT(slot, entry);
		if (slot->state != PACK_SLOT_PACKED)
			continue;
		if (fate_is_open(pack->fate))
			issue(pack, slot);
		else
			land(pack, slot);
		packed--;
		moved = true;
	}
	return moved;
}

/* Copies of one direction end one after the other: behind one that has not ended none is asked for. */
bool pack_chunks_poll(struct pack_job *pack)
{
	struct pack_slot *slot, *next;
	bool moved = false, waits[2] = { false, false };

	for (slot = TAILQ_FIRST(&pack->slots); slot && pack->fate->status != STATUS_DEVICE_LOST;
	     slot = next) {
		next = TAILQ_NEXT(slot, entry);
		if (slot->state == PACK_SLOT_PACKING || slot->state == PACK_SLOT_UNPACKING) {
			moved |= poll_packed(pack, slot);
		} else if (slot->state != PACK_SLOT_PACKED && !waits[is_out(slot)]) {
			waits[is_out(slot)] = !poll_copied(pack, slot);
			moved |= !waits[is_out(slot)];
		}
	}
	return issue_packed(pack) || moved;
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

/* Between the host and a place on the device where all of it lies packed, or where blocks lie in pieces. */
static int copy_piece(const struct pack_slot *slot, uint64_t device, char *host, uint64_t bytes,
                      struct error *err)
{
	const struct pack_job *pack = slot->pack;

	if (is_out(slot))
		return driver_call(err, cuMemcpyDtoHAsync, (host, device, bytes, pack->equipment->copy_out));
	return driver_call(err, cuMemcpyHtoDAsync, (device, host, bytes, pack->equipment->copy_in));
}

/* Where the stretch's packed bytes are on the device; 0: in pieces. */
static uint64_t device_place(const struct pack_job *pack, const struct pack_slot *slot)
{
	const struct packing *p = &pack->packing;
	const uint32_t i = (uint32_t)(slot->stretch % p->slots);

	if (p->is_plain && (p->dst.way == PACKING_IN_PLACE || p->src.way == PACKING_IN_PLACE))
		return 0;
	return is_out(slot) ? packing_dst_place(p, pack->scratch, i) : packing_src_place(p, pack->scratch, i);
}

/* Pieces of both sides at once: as far as the shorter of the two goes. */
static int copy_pieces(struct pack_job *pack, struct pack_slot *slot, struct error *err)
{
	const struct packing *p = &pack->packing;
	const struct packing_stretch *stretch = &pack_stretch_at(pack, slot->stretch)->part;
	const bool out = is_out(slot);
	const struct packing_side *host = out ? &p->dst : &p->src, *device = out ? &p->src : &p->dst;
	const uint64_t packed = device_place(pack, slot), base = out ? pack->src : pack->dst;
	char *client = out ? pack->host_dst : (char *)(uintptr_t)pack->host_src;
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
static void issue(struct pack_job *pack, struct pack_slot *slot)
{
	CUstream stream = is_out(slot) ? pack->equipment->copy_out : pack->equipment->copy_in;
	struct error *err = &pack->fate->why;
	int r, end;

	if (!is_out(slot))
		slot->state = PACK_SLOT_COMING_IN;
	r = copy_pieces(pack, slot, err);
	if (r < 0)
		fate_fail(pack->fate, r);
	end = driver_call(err, cuEventRecord, (slot->copied, stream));
	if (end < 0)
		fate_fail(pack->fate, STATUS_DEVICE_LOST);
	count_of(pack, slot)->copied++;
}

/* As many chunks as there are slots for. */
bool pack_chunks_begin(struct pack_job *pack, uint64_t i, const struct packing_side *side, uint32_t *n,
                       enum pack_slot_state state)
{
	struct pack_count *count =
	    state == PACK_SLOT_GOING_OUT ? &pack_stretch_at(pack, i)->out : &pack_stretch_at(pack, i)->in;
	struct pack_slots *slots = &pack->equipment->pack_slots;
	const struct packing_stretch *part = &pack_stretch_at(pack, i)->part;
	const uint64_t chunks = packing_chunks(side, part);
	struct pack_slot *slot;
	bool moved = false;

	while (count->begun < chunks && *n < pack_slots_share(slots) && fate_is_open(pack->fate) &&
	       (slot = pack_slots_take(slots))) {
		slot->pack = pack;
		slot->stretch = i;
		slot->state = state;
		packing_chunk(side, part, count->begun++, &slot->from, &slot->to);
		TAILQ_INSERT_TAIL(&pack->slots, slot, entry);
		++*n;
		if (state == PACK_SLOT_PACKING && side->way == PACKING_BY_THREADS)
			copy_by_threads(pack, slot, state);
		else
			issue(pack, slot);
		moved = true;
	}
	return moved;
}

void pack_chunks_drop(struct pack_job *pack)
{
	struct pack_slot *slot;

	while ((slot = TAILQ_FIRST(&pack->slots))) {
		if (slot->state == PACK_SLOT_PACKING || slot->state == PACK_SLOT_UNPACKING) {
			packers_drop(&pack->equipment->packers, &slot->task);
			while (!pack_task_is_over(&slot->task))
				sched_yield();
		}
		give(pack, slot);
	}
}
