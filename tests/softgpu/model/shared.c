/* SPDX-License-Identifier: Apache-2.0 */
/* A block's shared memory, and for each byte who wrote it last, who read it since, whether a load is to fill
 * it, whether a store has yet to read it, and which atomic access wrote it, if one did. The memory is reused
 * for the next block.
 *
 * The bytes of a load count as written by its barrier, in the phase that the load completes: a thread that
 * has not waited for that phase does not know of them, whether or not they have come.
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory of each block of a cluster, allocated when first needed. */
static unsigned char *memories[MODEL_MAX_CLUSTER];

enum { SWIZZLE_REPEAT = 1024 };

bool shared_prepare(struct model_block *block, uint32_t bytes)
{
	unsigned char **memory = &memories[block->rank];
	size_t chunks = MODEL_MAX_SHARED / TILE_PIECE, all = MODEL_MAX_SHARED;
	size_t used_chunks = (bytes + TILE_PIECE - 1) / TILE_PIECE;

	if (!*memory) {
		size_t size =
		    all + 3 * all * sizeof(order_stamp) + 2 * chunks * sizeof(uint16_t) + all / 8 + 1;

		*memory = aligned_alloc(SWIZZLE_REPEAT,
		                        (size + SWIZZLE_REPEAT - 1) / SWIZZLE_REPEAT * SWIZZLE_REPEAT);
		if (!*memory)
			return false;
	}
	block->shared = *memory;
	block->shared_bytes = bytes;
	block->written = (order_stamp *)(block->shared + all);
	block->read = block->written + all;
	block->combined = block->read + all;
	block->loading = (uint16_t *)(block->combined + all);
	block->storing = block->loading + chunks;
	block->barrier_at = (uint8_t *)(block->storing + chunks);

	memset(block->shared, MODEL_POISON, bytes);
	memset(block->written, 0, bytes * sizeof(order_stamp));
	memset(block->read, 0, bytes * sizeof(order_stamp));
	memset(block->combined, 0, bytes * sizeof(order_stamp));
	memset(block->loading, 0, used_chunks * sizeof(uint16_t));
	memset(block->storing, 0, used_chunks * sizeof(uint16_t));
	memset(block->barrier_at, 0, bytes / 8 + 1);
	return true;
}

void shared_free(void)
{
	for (int b = 0; b < MODEL_MAX_CLUSTER; b++) {
		free(memories[b]);
		memories[b] = NULL;
	}
}

uint32_t shared_offset(const void *p, uint32_t bytes, uint32_t align, const char *what)
{
	struct model_block *block = machine.self->block;
	uintptr_t offset = (uintptr_t)p - (uintptr_t)block->shared;

	if (offset >= block->shared_bytes || bytes > block->shared_bytes - offset)
		model_fail(
		    "%s of %u bytes at shared + %lld, but the block has %u bytes of dynamic shared memory",
		    what, bytes, (long long)(intptr_t)offset, block->shared_bytes);
	if (offset % align)
		model_fail("%s at shared + %u, which is not a multiple of %u", what, (uint32_t)offset, align);
	return (uint32_t)offset;
}

const char *shared_whose(const struct model_block *block)
{
	static char text[24];

	if (block == machine.self->block)
		return "";
	snprintf(text, sizeof(text), " of block %u", block->rank);
	return text;
}

/* ---- Accesses of a thread -------------------------------------------------------------------------- */

/* Fails with the event that the thread does not know of; thread_word is the verb for what a thread did to the
 * byte. */
static void fail_unordered(const char *what, uint32_t offset, order_stamp stamp, const char *thread_word)
{
	uint32_t actor = order_actor(stamp);

	if (actor >= machine.n_threads) {
		const struct model_barrier *barrier = &machine.barriers[actor - machine.n_threads];

		model_fail("%s at shared + %u, but the %s it completes on the barrier at shared + %u%s, and "
		           "the thread has not waited for that phase",
		           what, offset, strcmp(thread_word, "read") ? "load that fills" : "copy that reads",
		           barrier->offset, shared_whose(barrier->block));
	}
	model_fail("%s at shared + %u, which thread %u of block %u %s, with no barrier in between", what,
	           offset, actor % machine.block_threads, actor / machine.block_threads, thread_word);
}

/* Fails unless the thread knows of all events in [offset, offset + bytes). */
static void check_known(const order_stamp *stamps, uint32_t offset, uint32_t bytes, const char *what,
                        const char *thread_word)
{
	order_stamp known = 0;

	for (uint32_t i = offset; i < offset + bytes; i++) {
		if (stamps[i] == known)
			continue;
		if (!order_knows(machine.self->number, stamps[i]))
			fail_unordered(what, i, stamps[i], thread_word);
		known = stamps[i];
	}
}

static void stamp(order_stamp *stamps, uint32_t offset, uint32_t bytes, order_stamp value)
{
	for (uint32_t i = offset; i < offset + bytes; i++)
		stamps[i] = value;
}

void model_tile_read(const void *p, uint32_t size, bool whole, uint32_t line)
{
	struct model_block *block = machine.self->block;
	uint32_t offset = shared_offset(p, size, size, "tile_read");

	for (uint32_t i = offset; whole && i < offset + size; i++)
		if (!block->written[i])
			model_fail("tile_read at shared + %u, which nobody has written", i);
	check_known(block->written, offset, size, "tile_read", "wrote");
	stamp(block->read, offset, size, order_now(machine.self->number));
	if (model_is_counting)
		count_instruction(SOFTGPU_SHARED_READ, offset, size, line);
}

void model_tile_write(void *p, uint32_t size, uint32_t line)
{
	struct model_block *block = machine.self->block;
	uint32_t offset = shared_offset(p, size, size, "tile_write");

	if (block->storing[offset / TILE_PIECE])
		model_fail(
		    "tile_write at shared + %u, which a store has still to read: nobody has waited for it",
		    offset);
	if (block->barrier_at[offset / 8])
		model_fail("tile_write at shared + %u, where a barrier lives", offset);
	check_known(block->written, offset, size, "tile_write", "wrote");
	check_known(block->read, offset, size, "tile_write", "read");
	stamp(block->written, offset, size, order_now(machine.self->number));
	stamp(block->read, offset, size, 0);
	if (model_is_counting)
		count_instruction(SOFTGPU_SHARED_WRITE, offset, size, line);
}

/* The thread has to know of the last write, unless that was an atomic access as well. */
void model_tile_combine(void *p, uint32_t size, uint32_t line)
{
	struct model_block *block = machine.self->block;
	uint32_t offset = shared_offset(p, size, size, "atomic access");

	for (uint32_t i = offset; i < offset + size; i++) {
		if (!block->written[i])
			model_fail("atomic access at shared + %u, which nobody has written", i);
		if (block->written[i] != block->combined[i])
			check_known(block->written, i, 1, "atomic access", "wrote");
	}
	check_known(block->read, offset, size, "atomic access", "read");
	stamp(block->written, offset, size, order_now(machine.self->number));
	stamp(block->combined, offset, size, order_now(machine.self->number));
	if (model_is_counting)
		count_instruction(SOFTGPU_SHARED_WRITE, offset, size, line);
}

/* ---- Accesses of the unit -------------------------------------------------------------------------- */

/* Fails unless the threads' writes are fenced and the thread that issues the unit's access knows of the
 * fence. */
static void check_fenced(const struct model_block *block, uint32_t offset, uint32_t bytes, const char *what)
{
	order_stamp known = 0;

	for (uint32_t i = offset; i < offset + bytes; i++) {
		order_stamp by = block->written[i];
		uint32_t actor = order_actor(by);

		if (by == known)
			continue;
		known = by;
		if (actor >= machine.n_threads || order_knows_fenced(machine.self->number, by))
			continue;
		if (!order_has_fenced(by))
			model_fail(
			    "%s of shared + %u, which thread %u of block %u wrote and has not fenced for the "
			    "unit (fence_proxy_async)",
			    what, i, actor % machine.block_threads, actor / machine.block_threads);
		model_fail(
		    "%s of shared + %u: no barrier leads here from thread %u of block %u, which wrote and "
		    "fenced it",
		    what, i, actor % machine.block_threads, actor / machine.block_threads);
	}
}

void shared_load_begins(struct model_block *block, uint32_t offset, uint32_t bytes,
                        const struct model_barrier *barrier)
{
	const char *whose = shared_whose(block);

	for (uint32_t at = offset; at < offset + bytes; at += TILE_PIECE) {
		if (block->storing[at / TILE_PIECE])
			model_fail("load into shared + %u%s, which a store has still to read: nobody has "
			           "waited for it",
			           at, whose);
		if (block->loading[at / TILE_PIECE])
			model_fail("load into shared + %u%s, which another load is still to fill", at, whose);
		if (block->barrier_at[at / 8] || block->barrier_at[at / 8 + 1])
			model_fail("load into shared + %u%s, where a barrier lives", at, whose);
		block->loading[at / TILE_PIECE]++;
	}
	check_fenced(block, offset, bytes, "load into what lies");
	check_known(block->written, offset, bytes, "load into what lies", "wrote");
	check_known(block->read, offset, bytes, "load into what lies", "read");
	memset(block->shared + offset, MODEL_POISON, bytes);
	stamp(block->written, offset, bytes, order_now(barrier->actor));
	stamp(block->read, offset, bytes, 0);
}

void shared_load_ends(struct model_block *block, uint32_t offset, uint32_t bytes,
                      const struct model_barrier *barrier)
{
	for (uint32_t at = offset; at < offset + bytes; at += TILE_PIECE)
		block->loading[at / TILE_PIECE]--;
	stamp(block->written, offset, bytes, order_now(barrier->actor));
}

void shared_store_begins(uint32_t offset, uint32_t bytes)
{
	struct model_block *block = machine.self->block;

	check_fenced(block, offset, bytes, "store");
	check_known(block->written, offset, bytes, "store of what lies", "wrote");
	for (uint32_t at = offset; at < offset + bytes; at += TILE_PIECE)
		block->storing[at / TILE_PIECE]++;
}

void shared_store_ends(struct model_block *block, uint32_t offset, uint32_t bytes, uint32_t actor)
{
	for (uint32_t at = offset; at < offset + bytes; at += TILE_PIECE)
		block->storing[at / TILE_PIECE]--;
	stamp(block->read, offset, bytes, order_now(actor));
}
