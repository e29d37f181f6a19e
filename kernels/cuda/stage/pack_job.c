/* SPDX-License-Identifier: Apache-2.0 */
/* Moves the chunks of a packed job (packing.h): threads copy between the blocks on the host and the slots,
 * and the copy engines between the slots and the device. Also advances the list, the stretches and the job
 * itself from one state to the next. */
#include "pack_job.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "jobs.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/host/memory.h"
#include "kernels/host/threads.h"
#include "proto/arithmetic.h"
#include "proto/clock.h"
#include "round.h"

/* ---- Chunks -------------------------------------------------------------------------------------------- */

/* Number of packed chunks whose copies are held back. If the copy engine reads a chunk that still lies,
 * modified, in the caches of the threads' cores, threads and copy engine slow down to less than half of their
 * speed. Once this many more chunks have been packed, the caches no longer hold it
 * (tests/bench/EXPERIMENTS.md). */
#define HELD_BACK 4

static void issue(struct pack_job *pack, struct pack_slot *slot);
static bool advance(struct pack_job *pack, uint64_t i);

static struct pack_stretch *pack_stretch_at(struct pack_job *pack, uint64_t i)
{
	return &pack->stretch[i % pack->packing.slots];
}

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

/* Copies one part of a chunk between its slot and the blocks on the host. Runs on a packer thread. */
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

/* Returns whether the device has reached the event, or is lost. Events are awaited even after the job has
 * failed, because its buffers are in use until then. */
static bool is_over(struct pack_job *pack, CUevent event)
{
	const int r = driver_query(event, &pack->fate->why);

	if (r < 0)
		fate_fail(pack->fate, r);
	return r != 0;
}

static bool poll_copied(struct pack_job *pack, struct pack_slot *slot)
{
	if (!is_over(pack, slot->copied))
		return false;
	if (pack->fate->status == STATUS_DEVICE_LOST)
		return true;
	if (slot->state == PACK_SLOT_GOING_OUT && pack->packing.dst.way == PACKING_BY_THREADS &&
	    fate_is_open(pack->fate)) {
		copy_by_threads(pack, slot, PACK_SLOT_UNPACKING);
	} else {
		land(pack, slot);
	}
	return true;
}

/* Issues the copies of packed chunks, the oldest first. Holds some back only while other chunks are being
 * packed, which push them out of the caches. */
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

/* Advances the chunks under way. Returns whether any has changed its state. Copies in one direction end in
 * the order in which they were issued, so those behind one that has not ended are not queried. */
static bool poll_chunks(struct pack_job *pack)
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

/* ---- Copies -------------------------------------------------------------------------------------------- */

/* Copies one piece between the host and the device, in the direction of the slot. */
static int copy_piece(const struct pack_slot *slot, uint64_t device, char *host, uint64_t bytes,
                      struct error *err)
{
	const struct pack_job *pack = slot->pack;

	if (is_out(slot))
		return driver_call(err, cuMemcpyDtoHAsync, (host, device, bytes, pack->equipment->copy_out));
	return driver_call(err, cuMemcpyHtoDAsync, (device, host, bytes, pack->equipment->copy_in));
}

/* Returns where the packed bytes of the chunk's stretch are on the device, or 0 if its blocks are copied from
 * or to their own places there. */
static uint64_t device_place(const struct pack_job *pack, const struct pack_slot *slot)
{
	const struct packing *p = &pack->packing;
	const uint32_t i = (uint32_t)(slot->stretch % p->slots);

	if (p->is_plain && (p->dst.way == PACKING_IN_PLACE || p->src.way == PACKING_IN_PLACE))
		return 0;
	return is_out(slot) ? packing_dst_place(p, pack->scratch, i) : packing_src_place(p, pack->scratch, i);
}

/* Copies the chunk directly between the packed stretch on the device, at `packed`, and the blocks on the
 * host. */
static int copy_rows(struct pack_job *pack, struct pack_slot *slot, uint64_t packed, struct error *err)
{
	const struct packing_stretch *stretch = &pack_stretch_at(pack, slot->stretch)->part;
	const bool out = is_out(slot);
	const struct packing_side *host = out ? &pack->packing.dst : &pack->packing.src;
	char *client = out ? pack->host_dst : (char *)(uintptr_t)pack->host_src;
	struct packing_rows rows;
	uint64_t at = slot->from;
	int r = 0;

	while (r == 0 &&
	       (rows = packing_next_rows(&pack->packing, host, stretch, &at, slot->to)).first.bytes > 0) {
		char *place = client + rows.first.place;
		const struct copied_rows copied = { .host = (uint64_t)(uintptr_t)place,
			                            .device = packed + rows.first.at,
			                            .host_step = rows.step,
			                            .device_step = host->pitch,
			                            .bytes = rows.first.bytes,
			                            .n = rows.n };

		r = rows.n == 1
		        ? copy_piece(slot, copied.device, place, copied.bytes, err)
		        : driver_copy_rows(&copied, out,
		                           out ? pack->equipment->copy_out : pack->equipment->copy_in, err);
	}
	return r;
}

/* Copies the chunk piece by piece. A piece is as long as the bytes are contiguous on both sides. */
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

	if (packed && !p->is_plain && host->way == PACKING_BY_COPIES)
		return copy_rows(pack, slot, packed, err);
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

/* Issues the copy of a chunk. The copy counts as issued even after a failure, because part of it may be under
 * way. If the event behind it cannot be recorded, nothing would tell when it ends, so the device is treated
 * as lost. */
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

/* Begins chunks of stretch i, as many as there are free slots and the job's share of these allows. The side
 * must be on the host. *n counts the slots that the job uses in that direction. state is PACK_SLOT_PACKING
 * for the source and PACK_SLOT_GOING_OUT for the destination. Returns whether any chunk was begun. */
static bool begin_chunks(struct pack_job *pack, uint64_t i, const struct packing_side *side, uint32_t *n,
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

/* Gives all slots back, after waiting for threads that still use them. The device must no longer use the
 * slots, or be lost. */
static void drop_chunks(struct pack_job *pack)
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

/* ---- The list ------------------------------------------------------------------------------------------ */

static uint64_t index_bytes(const struct engine_blocks *blocks)
{
	return blocks->n * blocks_entry_bytes(blocks);
}

/* Returns whether the list lies on the device and has to be copied to the host. */
static bool is_fetched(const struct engine_blocks *blocks)
{
	return !blocks->index && !cuda_memory(blocks->index_memory)->host;
}

/* Returns where a list from the device is copied to: behind the arrays of packing_read. */
static char *fetched_list(const struct pack_job *pack)
{
	return (char *)pack->list->memory + divide_up_u64(packing_list_bytes(&pack->packing), 8) * 8;
}

static const void *list_of(const struct pack_job *pack)
{
	const struct engine_blocks *blocks = pack->packing.blocks;

	if (blocks->index)
		return blocks->index;
	if (is_fetched(blocks))
		return fetched_list(pack);
	return cuda_memory(blocks->index_memory)->data + blocks->index_offset;
}

static void read_list(void *arg)
{
	struct pack_job *pack = arg;

	packing_read(&pack->packing, list_of(pack), pack->list->memory);
}

static bool read_guarded(struct pack_job *pack)
{
	const struct engine_blocks *blocks = pack->packing.blocks;

	if (blocks->index || is_fetched(blocks)) {
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

/* Begins to copy the list from the device. If the event behind the copy cannot be recorded, the device is
 * treated as lost. */
static bool fetch_list(struct pack_job *pack)
{
	const struct engine_blocks *blocks = pack->packing.blocks;
	const uint64_t from = cuda_memory(blocks->index_memory)->address + blocks->index_offset;
	struct error *err = &pack->fate->why;
	CUstream stream = pack->slot->stream;
	int r = driver_call(err, cuMemcpyDtoHAsync, (fetched_list(pack), from, index_bytes(blocks), stream));

	pack->slot->last = NULL;
	if (driver_call(err, cuEventRecord, (pack->moved[0], stream)) < 0)
		r = STATUS_DEVICE_LOST;
	if (r < 0)
		fate_fail(pack->fate, r);
	return r == 0;
}

/* Copies the list to the device, where all launches of the job read it. */
static int send_list(struct pack_job *pack)
{
	int r = 0;

	for (enum packing_part part = 0; part < PACKING_PARTS && r == 0; part++) {
		struct packing_upload upload;

		packing_upload(&pack->packing, part, &upload);
		if (upload.size > 0)
			r = driver_call(
			    &pack->fate->why, cuMemcpyHtoDAsync,
			    (pack->scratch + upload.at, upload.bytes, upload.size, pack->slot->stream));
	}
	pack->is_sent = r == 0;
	return r;
}

/* ---- The beginning ------------------------------------------------------------------------------------- */

/* Grows the buffer to at least `bytes` bytes if it is smaller; its contents are lost then. Returns false if
 * there is no memory. */
static bool grow_room(struct pack_room *room, size_t bytes)
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

/* Returns the ranges that a side's guard covers, none for a side on the device. They are stored in *own if
 * the side lies in one region, or in `more`, which has room for the regions of a table. */
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

/* Maximum number of threads that unpack for one job. Six write faster than the bus delivers; more would get
 * in each other's way and in that of the copy engine. */
#define MOST_UNPACKERS 6

static uint32_t threads_of(const struct pack_job *pack, uint32_t most)
{
	most = min_u32(most, pack->equipment->packers.most);
	return pack->job->share.host_threads > 0 ? min_u32(most, pack->job->share.host_threads) : most;
}

static bool has_rooms(struct pack_job *pack)
{
	const struct engine_blocks *blocks = pack->packing.blocks;
	const uint32_t n_ranges = count_ranges(&blocks->dst) + count_ranges(&blocks->src);
	const uint64_t fetched = is_fetched(blocks) ? index_bytes(blocks) : 0;

	pack->list = pack_slots_take_list(&pack->equipment->pack_slots,
	                                  packing_list_bytes(&pack->packing) + 8 + fetched, &pack->fate->why);
	return pack->list && grow_room(&pack->ranges, n_ranges * sizeof(struct fault_range));
}

/* Reads the list and starts the moving stage. Returns false if the list cannot be read, which is a failure,
 * or if the job is not to travel packed after all. */
static bool begin_moving(struct pack_job *pack)
{
	struct engine_blocks *blocks = pack->packing.blocks;

	if (!read_guarded(pack))
		return false;
	if (!packing_judge(&pack->packing, pack->equipment->pack_slots.bytes)) {
		blocks->passed = blocks->beyond = 0;
		return false;
	}
	if (pack->packing.n == 0) /* No launch will set the family. */
		blocks->family = cuda_plan(pack->job->move.plan)->family;
	pack->stage = PACK_MOVING;
	return true;
}

static void init_job(struct pack_job *pack, struct engine_job *job, const struct packing *packing,
                     struct stream_slot *slot, uint64_t scratch)
{
	pack->job = job;
	pack->packing = *packing;
	pack->slot = slot;
	pack->scratch = scratch;
	pack->stage = PACK_FETCHING;
	pack->list = NULL;
	pack->is_sent = pack->is_late = false;
	pack->moved_ns = 0;
	pack->next = (struct packing_cursor){ 0 };
	TAILQ_INIT(&pack->slots);
	pack->in_group = (struct pack_group){ .most = threads_of(pack, pack->equipment->packers.most) };
	pack->out_group = (struct pack_group){ .most = threads_of(pack, MOST_UNPACKERS) };
	pack->coming = pack->going = 0;
	pack->begun = pack->ended = 0;
}

bool pack_job_begin(struct pack_job *pack, struct engine_job *job, const struct packing *packing,
                    struct stream_slot *slot, uint64_t scratch)
{
	init_job(pack, job, packing, slot, scratch);
	if (!has_slots(pack) || !packers_start(&pack->equipment->packers))
		return false;
	pack->equipment->pack_slots.jobs++;
	if (has_rooms(pack)) {
		set_places(pack, &job->move);
		set_guards(pack, &job->move);
		if (is_fetched(job->blocks) ? fetch_list(pack) : begin_moving(pack))
			return true;
	}
	pack_job_end(pack);
	return false;
}

/* ---- Steps --------------------------------------------------------------------------------------------- */

static bool is_ended(const struct pack_job *pack)
{
	return pack->ended == pack->begun && packing_is_at_end(&pack->packing, &pack->next);
}

static bool open_stretches(struct pack_job *pack)
{
	const struct packing *p = &pack->packing;
	bool moved = false;

	while (!packing_is_at_end(p, &pack->next) && pack->begun - pack->ended < p->slots) {
		struct pack_stretch *stretch = pack_stretch_at(pack, pack->begun++);

		*stretch = (struct pack_stretch){ .state = PACK_STRETCH_COMING };
		packing_stretch_next(p, &pack->next, p->is_busy || pack->is_late, &stretch->part);
		moved = true;
	}
	return moved;
}

static bool poll_fetching(struct pack_job *pack)
{
	if (pack->stage != PACK_FETCHING || !is_over(pack, pack->moved[0]))
		return false;
	if (!fate_is_open(pack->fate) || !begin_moving(pack))
		pack->stage = PACK_REFUSED;
	return true;
}

/* Notes whether the launch of a stretch, which has just ended, had to wait for other processes. It had to if
 * too much time has passed since the previous launch ended and the stretch's blocks had arrived. */
static void note_wait(struct pack_job *pack, const struct pack_stretch *stretch)
{
	const struct packing *p = &pack->packing;
	const uint64_t now = clock_ns();
	const uint64_t since = stretch->ready_ns > pack->moved_ns ? stretch->ready_ns : pack->moved_ns;
	const uint64_t bytes =
	    packing_bytes(&p->dst, &stretch->part) + packing_bytes(&p->src, &stretch->part);

	pack->is_late |= sharing_is_late(pack->slack_ns, now - since, bytes, false);
	pack->moved_ns = now;
}

static bool is_there(const struct pack_job *pack, const struct pack_stretch *stretch)
{
	const struct packing_side *src = &pack->packing.src;

	return src->way == PACKING_IN_PLACE || stretch->in.landed == packing_chunks(src, &stretch->part);
}

static bool poll_moving(struct pack_job *pack, uint64_t i)
{
	struct pack_stretch *stretch = pack_stretch_at(pack, i);

	if (stretch->state != PACK_STRETCH_MOVING)
		return false;
	if (!is_over(pack, pack->moved[i % pack->packing.slots])) {
		if (!is_there(pack, stretch))
			stretch->ready_ns = clock_ns();
		return false;
	}
	if (pack->fate->status == STATUS_DEVICE_LOST)
		return true;
	note_wait(pack, stretch);
	stretch->state = pack->packing.dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

bool pack_job_poll(struct pack_job *pack)
{
	bool moved = poll_chunks(pack);

	moved |= poll_fetching(pack);
	if (pack->stage != PACK_MOVING)
		return moved;
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
	return pack->stage == PACK_MOVING && is_ended(pack);
}

bool pack_job_is_over(const struct pack_job *pack)
{
	if (pack->stage != PACK_MOVING)
		return pack->stage == PACK_REFUSED;
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

static int launch(struct pack_job *pack, uint64_t i)
{
	const struct packing *p = &pack->packing;
	const uint32_t slot = (uint32_t)(i % p->slots);
	struct launcher *launcher = &pack->equipment->launcher;
	CUstream stream = pack->slot->stream;
	struct error *err = &pack->fate->why;
	struct packing_launch list;
	int r = pack->is_sent ? 0 : send_list(pack);

	launcher_set_job(launcher, pack->job->share.multiprocessors);
	packing_launch(p, &pack_stretch_at(pack, i)->part, pack->scratch, &list);
	if (r == 0 && p->src.way != PACKING_IN_PLACE)
		r = equipment_pass(pack->equipment, pack->equipment->copy_in, stream, err);
	if (r < 0)
		return r;
	r = many_launch_listed(
	    launcher, stream, &pack->job->move, &list.blocks,
	    &(struct many_list){ list.index, list.dst_layers, list.src_layers, 0 },
	    (uint64_t)list.dst +
		(p->dst.way == PACKING_IN_PLACE ? pack->dst : packing_dst_place(p, pack->scratch, slot)),
	    (uint64_t)list.src +
		(p->src.way == PACKING_IN_PLACE ? pack->src : packing_src_place(p, pack->scratch, slot)),
	    err);
	if (r == 0)
		pack->job->blocks->family = list.blocks.family;
	return r;
}

/* Launches the move of stretch i behind the copies that bring its blocks in. */
static void move(struct pack_job *pack, uint64_t i)
{
	struct pack_stretch *stretch = pack_stretch_at(pack, i);
	int r = launch(pack, i), end;

	if (r < 0)
		fate_fail(pack->fate, r);
	end = driver_call(&pack->fate->why, cuEventRecord,
	                  (pack->moved[i % pack->packing.slots], pack->slot->stream));
	if (end < 0)
		fate_fail(pack->fate, STATUS_DEVICE_LOST);
	pack->slot->last = NULL;
	stretch->ready_ns = clock_ns();
	stretch->state = PACK_STRETCH_MOVING;
}

static bool advance_coming(struct pack_job *pack, uint64_t i)
{
	const struct packing *p = &pack->packing;
	struct pack_stretch *stretch = pack_stretch_at(pack, i);
	const bool comes = p->src.way != PACKING_IN_PLACE;
	const uint64_t chunks = comes ? packing_chunks(&p->src, &stretch->part) : 0;
	bool moved = comes && begin_chunks(pack, i, &p->src, &pack->coming, PACK_SLOT_PACKING);

	if (!fate_is_open(pack->fate) || (p->is_plain ? stretch->in.landed : stretch->in.copied) < chunks)
		return moved;
	if (!p->is_plain) {
		move(pack, i);
		return true;
	}
	stretch->state = p->dst.way == PACKING_IN_PLACE ? PACK_STRETCH_DONE : PACK_STRETCH_GOING;
	return true;
}

static bool advance_going(struct pack_job *pack, uint64_t i)
{
	const struct packing_side *dst = &pack->packing.dst;
	struct pack_stretch *stretch = pack_stretch_at(pack, i);
	bool moved = begin_chunks(pack, i, dst, &pack->going, PACK_SLOT_GOING_OUT);

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
	struct pack_slots *slots = &pack->equipment->pack_slots;

	drop_chunks(pack);
	pack_slots_give_list(slots, pack->list);
	slots->jobs--;
}

void pack_job_deinit(struct pack_job *pack)
{
	free(pack->ranges.memory);
}
