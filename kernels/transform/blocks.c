/* SPDX-License-Identifier: Apache-2.0 */
/* Checks lists of blocks. Stretches are computed in 128 bits, where no sum of theirs overflows; regular
 * layouts are treated as repeated ones (overlap.h). */
#include "blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "layer_aliases.h"
#include "layer_table.h"
#include "proto/overlap.h"

#define GREATEST_ALIGN 16

static int check_range(const char *name, const struct engine_blocks *blocks,
                       const struct engine_blocks_side *side, uint64_t n, struct tensor_extent extent,
                       const struct tensor_place *place, struct error *err);
static int check_work(const struct engine_blocks *blocks, const struct transform *t, struct error *err);
static int check_apart(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, int64_t *sorted, struct error *err);
static int check_sides(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *src, struct error *err);

static uint64_t dst_count(const struct engine_blocks *blocks)
{
	return blocks->scatter ? blocks->limit : blocks->n;
}

static uint64_t src_count(const struct engine_blocks *blocks)
{
	return blocks->scatter ? blocks->n : blocks->limit;
}

/* Of n > 0 blocks of a layer, from its block 0. */
static struct stretch layer_stretch(const struct engine_blocks_side *side, uint64_t n,
                                    struct tensor_extent extent)
{
	return (struct stretch){ extent.low, int128_product(n - 1, side->step) + extent.high };
}

/* Of n > 0 blocks in every layer, with block 0 of the side at offset, from the first byte of its region. */
static struct stretch stretch_of(const struct engine_blocks_side *side, uint64_t n, uint32_t layers,
                                 struct tensor_extent extent, uint64_t offset)
{
	int128 first = 0, last = int128_product(layers - 1, side->layer_step);

	if (side->layers)
		first = last = side->layers[0];
	for (uint32_t l = 1; side->layers && l < layers; l++) {
		first = side->layers[l] < first ? side->layers[l] : first;
		last = side->layers[l] > last ? side->layers[l] : last;
	}
	const struct stretch layer = layer_stretch(side, n, extent);

	return (struct stretch){ .low = offset + first + layer.low, .high = offset + last + layer.high };
}

/* ---- Tables of layers -------------------------------------------------------------------------------- */

void blocks_use_table(struct engine_blocks_side *side, struct layer_table *table)
{
	side->table = table;
	side->layers = table->is_even ? NULL : table->layers;
	side->layer_step = table->step;
}

struct engine_memory *blocks_memory(const struct engine_blocks_side *side, uint32_t layer,
                                    struct engine_memory *the_move)
{
	return side->table ? side->table->memories[layer] : the_move;
}

/* Bytes that the move's offset adds to each entry. */
static uint64_t added(const struct engine_blocks_side *side, const struct tensor_place *place)
{
	return place->offset - side->table->places[0].at.offset;
}

/* Of n > 0 blocks of a layer, from its entry's place. */
static struct stretch entry_stretch(const struct engine_blocks_side *side, uint64_t n,
                                    struct tensor_extent extent, const struct tensor_place *place)
{
	return stretch_shift(layer_stretch(side, n, extent), added(side, place));
}

/* ---- What is left out -------------------------------------------------------------------------------- */

uint64_t blocks_default_step(struct tensor_extent extent)
{
	return (uint64_t)extent.high - (uint64_t)extent.low;
}

int blocks_default_limit(struct engine_blocks *blocks, struct tensor_extent extent,
                         const struct tensor_place *place, struct error *err)
{
	const struct engine_blocks_side *side = blocks->scatter ? &blocks->dst : &blocks->src;
	const char *name = blocks->scatter ? "dst" : "src";
	int128 room, most;
	int r;

	if (side->step == 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "limit: missing; with a %s_step of 0 the region could hold any number of blocks", name);
	r = check_range(name, blocks, side, 1, extent, place, err);
	if (r < 0)
		return r;
	/* Negative where blocks without bytes are said to lie beyond it. */
	if (side->table)
		room = (int128)side->table->room - added(side, place) - extent.high;
	else
		room = place->size - stretch_of(side, 1, blocks->layers, extent, place->offset).high;
	most = 1 + (room < 0 ? 0 : room / side->step);
	blocks->limit = most > UINT64_MAX ? UINT64_MAX : (uint64_t)most;
	return 0;
}

uint64_t blocks_side_bits(const struct engine_blocks_side *side, uint64_t n, uint32_t layers)
{
	uint64_t bits = n > 1 ? side->step : 0;

	if (side->table)
		return bits | side->table->bits;
	for (uint32_t l = 0; side->layers && l < layers; l++)
		bits |= (uint64_t)side->layers[l];
	return side->layers || layers == 1 ? bits : bits | side->layer_step;
}

uint64_t blocks_bits(const struct engine_blocks *blocks, uint64_t dst, uint64_t src)
{
	return dst | src | blocks_side_bits(&blocks->dst, dst_count(blocks), blocks->layers) |
	       blocks_side_bits(&blocks->src, src_count(blocks), blocks->layers);
}

/* ---- Where the blocks lie ---------------------------------------------------------------------------- */

int blocks_check(const struct engine_blocks *blocks, const struct transform *t,
                 const struct tensor_place *dst, const struct tensor_place *src, int64_t *sorted,
                 struct error *err)
{
	int r = check_range("dst", blocks, &blocks->dst, dst_count(blocks), t->dst_extent, dst, err);

	if (r == 0)
		r = check_range("src", blocks, &blocks->src, src_count(blocks), t->src_extent, src, err);
	if (r == 0)
		r = check_work(blocks, t, err);
	if (r == 0)
		r = check_apart(blocks, t, dst, sorted, err);
	if (r == 0)
		r = check_sides(blocks, t, dst, src, err);
	return r;
}

static int check_range(const char *name, const struct engine_blocks *blocks,
                       const struct engine_blocks_side *side, uint64_t n, struct tensor_extent extent,
                       const struct tensor_place *place, struct error *err)
{
	const struct tensor_extent nothing = { 0, 0 };
	struct stretch stretch;

	if (n == 0 || extent.high == extent.low || place->offset > place->size)
		return side->table ? layer_table_check_range(side->table, name, 1, 0, nothing,
		                                             added(side, place), err)
		                   : tensor_check_range(nothing, place->offset, place->size, name, err);
	if (side->table)
		return layer_table_check_range(side->table, name, n, side->step, extent, added(side, place),
		                               err);
	stretch = stretch_of(side, n, blocks->layers, extent, place->offset);
	if (stretch.low < 0)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: its first byte would be %" PRIu64 " bytes before the region starts",
		                 name, (uint64_t)-stretch.low);
	if (stretch.high > UINT64_MAX)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: the last byte of %" PRIu64 " blocks in %" PRIu32
		                 " layers overflows 64 bits, but the region has %" PRIu64 " bytes",
		                 name, n, blocks->layers, place->size);
	if (stretch.high > place->size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: the last byte of %" PRIu64 " blocks in %" PRIu32
		                 " layers is byte %" PRIu64 ", but the region has %" PRIu64 " bytes",
		                 name, n, blocks->layers, (uint64_t)stretch.high - 1, place->size);
	return 0;
}

/* A list in a region may have one entry over and over, so that regions bound nothing. */
static int check_work(const struct engine_blocks *blocks, const struct transform *t, struct error *err)
{
	const int128 moves = int128_product(blocks->n, blocks->layers);

	if (moves > (int128)BLOCKS_MOVES_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "layers: %" PRIu64 " entries in each of %" PRIu32 " layers exceed %" PRIu64
		                 " blocks",
		                 blocks->n, blocks->layers, BLOCKS_MOVES_MOST);
	if (t->bytes > BLOCKS_BYTES_MOST || moves * t->bytes > (int128)BLOCKS_BYTES_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "layers: %" PRIu64 " entries in each of %" PRIu32 " layers, %" PRIu64
		                 " bytes each, exceed %" PRIu64 " bytes",
		                 blocks->n, blocks->layers, t->bytes, BLOCKS_BYTES_MOST);
	return 0;
}

/* ---- Blocks of the destination ------------------------------------------------------------------------ */

static int check_repeated(const struct transform *t, const struct overlap_repeat *repeat, int n,
                          const char *what, struct error *err)
{
	switch (overlap_self_repeated(&t->dst_layout, repeat, n)) {
	case OVERLAP_NONE:
		return 0;
	case OVERLAP_SOME:
		return error_set(err, STATUS_OVERLAP,
		                 "%s: two blocks of the destination share bytes: there are %" PRIu64
		                 ", %" PRIu64 " bytes apart",
		                 what, repeat[n - 1].n, repeat[n - 1].step);
	default:
		return error_set(err, STATUS_OVERLAP,
		                 "%s: too complex to prove that no two blocks of the destination share bytes",
		                 what);
	}
}

static int compare_offsets(const void *a, const void *b)
{
	const int64_t *left = a, *right = b;

	return (*left > *right) - (*left < *right);
}

/* Layers sorted by where they lie, the least distance of two and whether all are the same. */
static int128 least_distance(const int64_t *sorted, uint32_t layers, bool *ret_regular)
{
	int128 least = (int128)sorted[1] - sorted[0];

	*ret_regular = true;
	for (uint32_t l = 2; l < layers; l++) {
		int128 distance = (int128)sorted[l] - sorted[l - 1];

		*ret_regular &= distance == least;
		if (distance < least)
			least = distance;
	}
	return least;
}

/* Whether layers, sorted, are groups of equally many, evenly spaced within each and from one to the next: as
 * the keys and values of layers are, if both count as layers. */
static bool find_groups(const int64_t *sorted, uint32_t layers, struct overlap_repeat ret[2])
{
	const int128 within = (int128)sorted[1] - sorted[0];
	uint32_t n = 2;

	while (n < layers && (int128)sorted[n] - sorted[n - 1] == within)
		n++;
	if (layers % n)
		return false;
	for (uint32_t l = n; l < layers; l++)
		if ((int128)sorted[l] - sorted[l - n] != (int128)sorted[n] - sorted[0])
			return false;
	ret[0] = (struct overlap_repeat){ n, (uint64_t)within };
	ret[1] =
	    (struct overlap_repeat){ layers / n, n < layers ? (uint64_t)((int128)sorted[n] - sorted[0]) : 0 };
	return true;
}

static int check_layer_list(const struct engine_blocks *blocks, const struct transform *t, int64_t *sorted,
                            struct error *err)
{
	const uint32_t layers = blocks->layers;
	const uint64_t n = dst_count(blocks), block = blocks_default_step(t->dst_extent);
	struct overlap_repeat repeat[3] = { { n, blocks->dst.step }, { layers, 0 } };
	int128 least, reach;
	bool is_regular;

	memcpy(sorted, blocks->dst.layers, layers * sizeof *sorted);
	qsort(sorted, layers, sizeof *sorted, compare_offsets);
	least = least_distance(sorted, layers, &is_regular);
	if (is_regular) {
		repeat[1].step = (uint64_t)least;
		return check_repeated(t, repeat, 2, "dst_layers", err);
	}
	reach = int128_product(n - 1, blocks->dst.step) + block;
	if (least >= reach)
		return 0;
	if (least >= block && (int128)sorted[layers - 1] - sorted[0] + block <= blocks->dst.step)
		return 0;
	if (find_groups(sorted, layers, &repeat[1]))
		return check_repeated(t, repeat, 3, "dst_layers", err);
	if (layers_are_interleaved(sorted, layers, blocks->dst.step, block, reach))
		return 0;
	return error_set(
	    err, STATUS_OVERLAP,
	    "dst_layers: two are %" PRIu64 " bytes apart; if unevenly spaced they must be at least %" PRIu64
	    " apart (the blocks of a layer), or %" PRIu64 " (one block) with all layers within one dst_step",
	    (uint64_t)least, (uint64_t)reach, block);
}

/* Blocks of a layer first, so that an error says what is too near to what. */
static int check_apart(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, int64_t *sorted, struct error *err)
{
	const struct overlap_repeat repeat[] = { { dst_count(blocks), blocks->dst.step },
		                                 { blocks->layers, blocks->dst.layer_step } };
	int r;

	if (t->count == 0 || dst_count(blocks) == 0)
		return 0;
	r = check_repeated(t, repeat, 1, "dst_step", err);
	if (r < 0 || blocks->layers == 1)
		return r;
	if (blocks->dst.table)
		return layer_table_check_apart(
		    blocks->dst.table, t, entry_stretch(&blocks->dst, dst_count(blocks), t->dst_extent, dst),
		    dst_count(blocks), blocks->dst.step, err);
	if (blocks->dst.layers)
		return check_layer_list(blocks, t, sorted, err);
	return check_repeated(t, repeat, 2, "dst_layer_step", err);
}

/* ---- Two places in one memory -------------------------------------------------------------------------- */

/* A side without a table: all of it. */
struct whole {
	const struct tensor_place *place;
	struct stretch stretch; /* in its memory */
};

static struct whole whole_of(const struct engine_blocks_side *side, uint64_t n, uint32_t layers,
                             struct tensor_extent extent, const struct tensor_place *place)
{
	return (struct whole){ place, stretch_shift(stretch_of(side, n, layers, extent, place->offset),
		                                    place->base) };
}

static int refuse_wholes(struct stretch to, struct stretch from, struct error *err)
{
	return error_set(
	    err, STATUS_OVERLAP,
	    "dst: bytes [%" PRIu64 ", %" PRIu64 ") of its region and [%" PRIu64 ", %" PRIu64
	    ") of src's overlap in one memory; with a list of blocks the two sides must not overlap as a "
	    "whole, even if no two blocks do",
	    (uint64_t)to.low, (uint64_t)to.high, (uint64_t)from.low, (uint64_t)from.high);
}

/* The entries of a table and something on the other side: one that meets it is enough to say so. */
static int check_entries(const char *side, const struct layer_table *table, struct stretch of_layer,
                         const struct whole *other, const char *what, struct error *err)
{
	uint32_t entry;

	switch (layer_table_meets(table, of_layer, other->place, other->stretch, &entry)) {
	case LAYERS_APART:
	case LAYERS_FAR:
		return 0;
	case LAYERS_SHARE:
		return error_set(
		    err, STATUS_OVERLAP,
		    "%s_%s: the blocks of entry %" PRIu32
		    " and %s overlap in one memory; with a list of blocks they must not overlap as a "
		    "whole, even if no two blocks do",
		    side, table->noun, entry, what);
	default:
		return error_set(err, STATUS_OVERLAP,
		                 "%s_%s: too many allocations to prove that its blocks share no byte with %s",
		                 side, table->noun, what);
	}
}

static int check_tables(struct layer_table *dst, struct stretch of_dst, const struct layer_table *src,
                        struct stretch of_src, struct error *err)
{
	uint32_t to, from;

	switch (layer_tables_meet(dst, of_dst, src, of_src, &to, &from)) {
	case LAYERS_APART:
	case LAYERS_FAR:
		return 0;
	case LAYERS_SHARE:
		return error_set(
		    err, STATUS_OVERLAP,
		    "dst_%s: the blocks of entry %" PRIu32 " and those of entry %" PRIu32
		    " of src_%s overlap in one memory; with a list of blocks they must not overlap as a "
		    "whole, even if no two blocks do",
		    dst->noun, to, from, src->noun);
	default:
		return error_set(
		    err, STATUS_OVERLAP,
		    "dst_%s: too many allocations to prove that its blocks share no byte with those of src_%s",
		    dst->noun, src->noun);
	}
}

static int check_sides(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *src, struct error *err)
{
	const uint64_t n_dst = dst_count(blocks), n_src = src_count(blocks);
	struct stretch of_dst, of_src;
	struct whole to, from;

	if (t->count == 0 || t->src_extent.high == t->src_extent.low || n_dst == 0 || n_src == 0)
		return 0;
	if (blocks->dst.table)
		of_dst = entry_stretch(&blocks->dst, n_dst, t->dst_extent, dst);
	else
		to = whole_of(&blocks->dst, n_dst, blocks->layers, t->dst_extent, dst);
	if (blocks->src.table)
		of_src = entry_stretch(&blocks->src, n_src, t->src_extent, src);
	else
		from = whole_of(&blocks->src, n_src, blocks->layers, t->src_extent, src);

	if (blocks->dst.table && blocks->src.table)
		return check_tables(blocks->dst.table, of_dst, blocks->src.table, of_src, err);
	if (blocks->dst.table)
		return check_entries("dst", blocks->dst.table, of_dst, &from, "src", err);
	if (blocks->src.table)
		return check_entries("src", blocks->src.table, of_src, &to, "dst", err);
	if (!places_meet(dst, to.stretch, src, from.stretch))
		return 0;
	return refuse_wholes(stretch_shift(to.stretch, -(int128)dst->base),
	                     stretch_shift(from.stretch, -(int128)src->base), err);
}

/* ---- A list in a region -------------------------------------------------------------------------------- */

int blocks_check_index(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *place, struct error *err)
{
	const uint32_t size = blocks->index_bytes;
	const int128 end = place->offset + int128_product(blocks->n, size);
	const struct whole list = { place, { (int128)place->base + place->offset, place->base + end } };
	struct stretch to;

	if (end > place->size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "index_at: %" PRIu64 " entries of %" PRIu32 " bytes from byte %" PRIu64
		                 " exceed a region of %" PRIu64 " bytes",
		                 blocks->n, size, place->offset, place->size);
	if ((place->base + place->offset) % size)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index_at: byte %" PRIu64 " of the region is not aligned to the %" PRIu32
		                 " bytes of an entry",
		                 place->offset, size);
	if (t->count == 0 || dst_count(blocks) == 0 || blocks->n == 0)
		return 0;
	if (blocks->dst.table)
		return check_entries("dst", blocks->dst.table,
		                     entry_stretch(&blocks->dst, dst_count(blocks), t->dst_extent, dst),
		                     &list, "the entries at index_at", err);
	to = stretch_of(&blocks->dst, dst_count(blocks), blocks->layers, t->dst_extent, dst->offset);
	if (!places_meet(dst, stretch_shift(to, dst->base), place, list.stretch))
		return 0;
	return error_set(err, STATUS_OVERLAP,
	                 "index_at: the entries overlap bytes [%" PRIu64 ", %" PRIu64
	                 ") of dst's region, which are written",
	                 (uint64_t)to.low, (uint64_t)to.high);
}
