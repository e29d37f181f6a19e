/* SPDX-License-Identifier: Apache-2.0 */
/* The TMA unit's operations that were issued and have not completed. A load takes effect in one step at some
 * later time; a store reads shared memory at some time and writes later. The next operation to make progress
 * is drawn at random, so that a kernel that relies on an order meets another one. Whatever can be checked at
 * the issue is checked there, in the name of the issuing thread. */
#include "unit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct unit_op *ops;
	uint32_t n;
	uint32_t room;
} queue;

static void load_comes(struct unit_op *op);
static void store_reads(struct unit_op *op);
static void store_writes(struct unit_op *op);
static void drop(struct unit_op *op);

/* ---- Issue ----------------------------------------------------------------------------------------- */

static struct unit_op *push(struct unit_op op)
{
	if (queue.n == queue.room) {
		uint32_t room = queue.room ? 2 * queue.room : 64;
		struct unit_op *ops = realloc(queue.ops, room * sizeof(*ops));

		if (!ops)
			model_fail("no memory for the unit's queue of %u", room);
		queue.ops = ops;
		queue.room = room;
	}
	queue.ops[queue.n] = op;
	return &queue.ops[queue.n++];
}

static void decode_map(const void *map, struct tensor_map_layout *ret, uint64_t *ret_address,
                       const char *what)
{
	if ((uintptr_t)map % 64)
		model_fail("%s through a map at %p, which is not a multiple of 64", what, map);
	if (!model_map_decode((const CUtensorMap *)map, ret, ret_address))
		model_fail("%s through a map at %p, where no map is", what, map);
}

struct unit_op unit_tile(const void *tile, const void *map, uint32_t rank, const int32_t *c, bool write)
{
	const char *what = write ? "store_tile" : "load_tile";
	struct unit_op op = { .issuer = machine.self, .block = machine.self->block, .is_tile = true };
	struct tile_walk walk;
	struct tile_piece piece;

	global_begin(what);
	decode_map(map, &op.layout, &op.address, what);
	if (rank != op.layout.rank)
		model_fail("%s of rank %u through a map of rank %u", what, rank, op.layout.rank);
	for (uint32_t d = 0; d < rank; d++) {
		op.c[d] = c[d];
		if (!tile_takes_dim(op.layout.dim[d]))
			model_fail("%s through a map whose dimension %u is %" PRIu64
			           " long, which the unit does not take",
			           what, d, op.layout.dim[d]);
		if (write && c[d] < 0)
			model_fail(
			    "store_tile at coordinate %d of dimension %u; a store may not start before 0",
			    c[d], d);
	}
	if (!tile_may_begin(&op.layout, c[0]))
		model_fail("%s at coordinate %d of dimension 0, which is %" PRId64
		           " bytes, not a multiple of %u",
		           what, c[0], c[0] * (int64_t)tensor_map_type_size(op.layout.type), TILE_PIECE);
	op.bytes = tile_bytes(&op.layout);
	op.span = tile_span(&op.layout);
	op.offset = shared_offset(tile, op.span, tile_align(op.layout.swizzle), what);

	tile_begin(&walk, &op.layout, op.address, op.c, op.offset);
	while (tile_next(&walk, &piece)) {
		uint32_t bytes = piece.last - piece.first;

		if (!bytes)
			continue;
		if (write && bytes < TILE_PIECE)
			model_fail("store_tile past a ragged inner extent: dimension 0 has %" PRIu64
			           " bytes, not a multiple of %u, and the unit writes up to the next one",
			           op.layout.dim[0] * tensor_map_type_size(op.layout.type), TILE_PIECE);
		if (!global_check(piece.global + piece.first, bytes, write))
			model_fail("%s touches %u bytes at global address 0x%" PRIx64
			           ", which is no memory that may be so accessed",
			           what, bytes, piece.global + piece.first);
	}
	return op;
}

struct unit_op unit_bulk(const void *shared, uint64_t global, uint32_t bytes, bool write)
{
	const char *what = write ? "store_bulk" : "load_bulk";
	struct unit_op op = {
		.issuer = machine.self, .block = machine.self->block, .span = bytes, .bytes = bytes
	};

	global_begin(what);
	if (bytes % TILE_PIECE)
		model_fail("%s of %u bytes, not a multiple of %u", what, bytes, TILE_PIECE);
	if (global % TILE_PIECE)
		model_fail("%s at global address 0x%" PRIx64 ", which is not a multiple of %u", what, global,
		           TILE_PIECE);
	op.offset = shared_offset(shared, bytes, TILE_PIECE, what);
	op.address = global;
	if (!global_check(global, bytes, write))
		model_fail("%s touches %u bytes at global address 0x%" PRIx64
		           ", which is no memory that may be so accessed",
		           what, bytes, global);
	return op;
}

void unit_issue_load(struct unit_op op, uint32_t barrier, uint32_t mask, const char *what)
{
	op.state = LOAD_ISSUED;
	op.barrier = barrier;
	op.mask = mask;
	op.in_flight = count_op(&op);
	for (uint32_t rank = 0; rank < machine.n_blocks; rank++) {
		struct model_barrier *peer;

		if (!(mask >> rank & 1))
			continue;
		peer = barrier_in(&machine.blocks[rank], barrier, what);
		barrier_announce(peer, op.bytes);
		shared_load_begins(&machine.blocks[rank], op.offset, op.span, peer);
		count_in_flight(&machine.blocks[rank], (int64_t)op.in_flight);
	}
	push(op);
	model_breathe();
}

void model_prefetch_map(const void *map)
{
	struct tensor_map_layout layout;
	uint64_t address;

	decode_map(map, &layout, &address, "tensor_map_prefetch");
}

void model_load_tile(void *tile, const void *map, uint32_t rank, const int32_t *c, void *p)
{
	uint32_t barrier = barrier_at(p, "load_tile")->offset;

	unit_issue_load(unit_tile(tile, map, rank, c, false), barrier, 1u << machine.self->block->rank,
	                "load_tile");
}

void model_load_bulk(void *to, const void *from, uint32_t bytes, void *p)
{
	uint32_t barrier = barrier_at(p, "load_bulk")->offset;

	unit_issue_load(unit_bulk(to, (uintptr_t)from, bytes, false), barrier,
	                1u << machine.self->block->rank, "load_bulk");
}

static void issue_store(struct unit_op op)
{
	struct model_thread *self = machine.self;

	op.state = STORE_ISSUED;
	op.group = self->next_group;
	shared_store_begins(op.offset, op.span);
	count_op(&op);
	push(op);
	self->has_open = true;
	model_breathe();
}

void model_store_tile(const void *map, uint32_t rank, const int32_t *c, const void *tile)
{
	issue_store(unit_tile(tile, map, rank, c, true));
}

void model_store_bulk(void *to, const void *from, uint32_t bytes)
{
	issue_store(unit_bulk(from, (uintptr_t)to, bytes, true));
}

/* ---- Groups ---------------------------------------------------------------------------------------- */

void model_store_commit(void)
{
	machine.self->next_group++;
	machine.self->has_open = false;
}

/* Returns whether the groups that the thread waits for have read, or have written, as it requires. */
static bool stores_are_there(const struct model_thread *thread)
{
	enum op_state far = thread->read ? STORE_READ : STORE_WRITTEN;

	for (uint32_t i = 0; i < queue.n; i++) {
		const struct unit_op *op = &queue.ops[i];

		if (op->issuer == thread && op->state != LOAD_ISSUED && op->group < thread->group &&
		    op->state < far)
			return false;
	}
	return true;
}

static void wait_stores(uint32_t n, bool read)
{
	struct model_thread *self = machine.self;

	self->group = self->next_group > n ? self->next_group - n : 0;
	self->read = read;
	if (!stores_are_there(self))
		model_rest(THREAD_AT_STORES);
	for (uint32_t i = queue.n; i-- > 0;) {
		struct unit_op *op = &queue.ops[i];

		if (op->issuer != self || op->state == LOAD_ISSUED || op->group >= self->group)
			continue;
		if (!op->waited)
			shared_store_ends(op->block, op->offset, op->span, self->number);
		op->waited = true;
		if (op->state == STORE_WRITTEN)
			drop(op);
	}
}

void model_store_wait_read(uint32_t n)
{
	wait_stores(n, true);
}

void model_store_wait(uint32_t n)
{
	wait_stores(n, false);
}

bool unit_has_unread(const struct model_thread *thread)
{
	for (uint32_t i = 0; i < queue.n; i++)
		if (queue.ops[i].issuer == thread && queue.ops[i].state != LOAD_ISSUED &&
		    !queue.ops[i].waited)
			return true;
	return false;
}

void model_fence_proxy_async(void)
{
	order_fence(machine.self->number);
}

/* ---- What happens ---------------------------------------------------------------------------------- */

void unit_reset(void)
{
	while (queue.n)
		drop(&queue.ops[queue.n - 1]);
}

void unit_free(void)
{
	unit_reset();
	free(queue.ops);
	queue.ops = NULL;
	queue.room = 0;
}

bool unit_is_idle(void)
{
	for (uint32_t i = 0; i < queue.n; i++)
		if (queue.ops[i].state != STORE_WRITTEN)
			return false;
	return true;
}

void unit_step(void)
{
	uint32_t first = queue.n ? model_random(queue.n) : 0;

	for (uint32_t i = 0; i < queue.n; i++) {
		struct unit_op *op = &queue.ops[(first + i) % queue.n];

		switch (op->state) {
		case LOAD_ISSUED:
			load_comes(op);
			drop(op);
			return;
		case STORE_ISSUED:
			store_reads(op);
			break;
		case STORE_READ:
			store_writes(op);
			break;
		case STORE_WRITTEN:
			continue;
		}

		struct model_thread *issuer = &machine.threads[op->issuer->number];

		if (issuer->state == THREAD_AT_STORES && stores_are_there(issuer))
			issuer->state = THREAD_READY;
		if (op->state == STORE_WRITTEN && op->waited)
			drop(op);
		return;
	}
}

static void drop(struct unit_op *op)
{
	free(op->snapshot);
	*op = queue.ops[--queue.n];
}

/* Writes the tile into the shared memory of one block. */
static void load_into(const struct unit_op *op, unsigned char *shared)
{
	struct tile_walk walk;
	struct tile_piece piece;

	if (op->is_copy) {
		memmove(shared + op->offset, op->block->shared + op->from, op->bytes);
		return;
	}
	if (!op->is_tile) {
		memcpy(shared + op->offset, (const void *)(uintptr_t)op->address, op->bytes);
		return;
	}
	tile_begin(&walk, &op->layout, op->address, op->c, op->offset);
	while (tile_next(&walk, &piece)) {
		unsigned char *to = shared + op->offset + piece.shared;

		if (piece.last - piece.first < TILE_PIECE)
			tile_fill(&op->layout, to);
		if (piece.first == piece.last)
			continue;
		memcpy(to + piece.first, (const void *)(uintptr_t)(piece.global + piece.first),
		       piece.last - piece.first);
		tile_convert(&op->layout, to, piece.first, piece.last);
	}
}

/* Called when the copy has read its source. Everyone who waits for the phase that it completes, in whatever
 * block, knows of that. */
static void copy_has_read(struct unit_op *op, const struct model_barrier *barrier)
{
	op->block->n_copies--;
	shared_store_ends(op->block, op->from, op->bytes, barrier->actor);
	if (!cluster_touched(op->block, order_now(barrier->actor), "a copy has read its shared memory"))
		model_fail_for(op->issuer, "no memory for what blocks have to know");
}

static void load_comes(struct unit_op *op)
{
	for (uint32_t rank = 0; rank < machine.n_blocks; rank++) {
		struct model_block *block = &machine.blocks[rank];
		struct model_barrier *peer;

		if (!(op->mask >> rank & 1))
			continue;
		peer = &machine.barriers[block->barrier_at[op->barrier / 8] - 1];
		load_into(op, block->shared);
		count_in_flight(block, -(int64_t)op->in_flight);
		shared_load_ends(block, op->offset, op->span, peer);
		if (op->is_copy)
			copy_has_read(op, peer);
		barrier_complete(peer, op->bytes, op->issuer);
	}
}

static void store_reads(struct unit_op *op)
{
	op->snapshot = malloc(op->span);
	if (!op->snapshot) {
		model_fail_for(op->issuer, "no memory for a store of %u bytes", op->span);
		return;
	}
	memcpy(op->snapshot, op->block->shared + op->offset, op->span);
	op->state = STORE_READ;
}

static void store_writes(struct unit_op *op)
{
	struct tile_walk walk;
	struct tile_piece piece;

	op->state = STORE_WRITTEN;
	if (!op->is_tile) {
		memcpy((void *)(uintptr_t)op->address, op->snapshot, op->bytes);
		return;
	}
	tile_begin(&walk, &op->layout, op->address, op->c, op->offset);
	while (tile_next(&walk, &piece))
		if (piece.first < piece.last)
			memcpy((void *)(uintptr_t)(piece.global + piece.first),
			       op->snapshot + piece.shared + piece.first, piece.last - piece.first);
}
