/* SPDX-License-Identifier: Apache-2.0 */
/* What the blocks of a cluster do to each other's shared memory, and what a block therefore has to know
 * before it ends, when its shared memory becomes invalid. This file handles copies that read shared memory
 * and arrivals on barriers in it; finish_unit (run.c) handles loads into it. */
#include "unit.h"

#include <stdlib.h>

struct touch {
	const struct model_block *block; /* the block whose shared memory was touched */
	order_stamp by;
	const char *what; /* a sentence for the report */
};

static struct {
	struct touch *all; /* touches that the touched block does not know of yet */
	uint32_t n;
	uint32_t room;
} touches;

/* ---- What a block has to know ---------------------------------------------------------------------- */

void cluster_forget(void)
{
	touches.n = 0;
}

void cluster_free(void)
{
	free(touches.all);
	touches.all = NULL;
	touches.n = touches.room = 0;
}

bool cluster_touched(const struct model_block *block, order_stamp by, const char *what)
{
	if (touches.n == touches.room) {
		uint32_t room = touches.room ? 2 * touches.room : 64;
		struct touch *all = realloc(touches.all, room * sizeof(*all));

		if (!all)
			return false;
		touches.all = all;
		touches.room = room;
	}
	touches.all[touches.n++] = (struct touch){ block, by, what };
	return true;
}

void cluster_hears(void)
{
	for (uint32_t i = touches.n; i-- > 0;)
		if (touches.all[i].block == machine.self->block &&
		    order_knows(machine.self->number, touches.all[i].by))
			touches.all[i] = touches.all[--touches.n];
}

void cluster_thread_ends(void)
{
	const struct model_block *block = machine.self->block;

	cluster_hears();
	if (block->n_alive > 1)
		return;
	if (block->n_copies)
		model_fail("the block ends while a copy has still to read its shared memory (cluster_sync)");
	for (uint32_t i = 0; i < touches.n; i++)
		if (touches.all[i].block == block)
			model_fail("the block ends, and none of its threads knows that %s (cluster_sync)",
			           touches.all[i].what);
}

/* ---- Instructions ---------------------------------------------------------------------------------- */

static void check_mask(uint32_t mask, const char *what)
{
	if (!mask || mask >> machine.n_blocks)
		model_fail("%s to blocks 0x%x of a cluster of %u", what, mask, machine.n_blocks);
}

void model_load_tile_multicast(void *tile, const void *map, uint32_t rank, const int32_t *c, void *barrier,
                               uint32_t mask)
{
	const char *what = "load_tile_multicast";

	check_mask(mask, what);
	unit_issue_load(unit_tile(tile, map, rank, c, false), shared_offset(barrier, 8, 8, what), mask, what);
}

void model_load_bulk_multicast(void *to, const void *from, uint32_t bytes, void *barrier, uint32_t mask)
{
	const char *what = "load_bulk_multicast";

	check_mask(mask, what);
	unit_issue_load(unit_bulk(to, (uintptr_t)from, bytes, false), shared_offset(barrier, 8, 8, what),
	                mask, what);
}

void model_copy_bulk(void *to, const void *from, uint32_t bytes, void *barrier, uint32_t rank)
{
	const char *what = "copy_bulk";
	struct unit_op op = {
		.issuer = machine.self,
		.block = machine.self->block,
		.span = bytes,
		.bytes = bytes,
		.is_copy = true,
	};

	if (rank >= machine.n_blocks)
		model_fail("%s to block %u of a cluster of %u", what, rank, machine.n_blocks);
	if (bytes % TILE_PIECE)
		model_fail("%s of %u bytes, not a multiple of %u", what, bytes, TILE_PIECE);
	op.from = shared_offset(from, bytes, TILE_PIECE, "copy_bulk from");
	op.offset = shared_offset(to, bytes, TILE_PIECE, "copy_bulk to");
	shared_store_begins(op.from, bytes);
	op.block->n_copies++;
	unit_issue_load(op, shared_offset(barrier, 8, 8, what), 1u << rank, what);
}
