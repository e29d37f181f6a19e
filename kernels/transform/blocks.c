/* SPDX-License-Identifier: Apache-2.0 */
/* Checks lists of blocks. Stretches are computed in 128 bits, so that no sum overflows. Regular layouts are
 * checked as repetitions of one block (overlap.h). */
#include "blocks.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
static bool is_one_pool(const struct engine_blocks *blocks, const struct transform *t,
                        const struct tensor_place *dst, const struct tensor_place *src);

/* Returns the stretch of n > 0 blocks of a layer, relative to the layer's block 0. */
static struct stretch layer_stretch(const struct engine_blocks_side *side, uint64_t n,
                                    struct tensor_extent extent)
{
	return (struct stretch){ extent.low, int128_product(n - 1, side->step) + extent.high };
}

/* Returns the stretch of n > 0 blocks in every layer, relative to the start of the region, in which block 0
 * of layer 0 lies at `offset`. */
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

/* Returns the bytes that the move's offset adds to the place of each entry. */
static uint64_t added(const struct engine_blocks_side *side, const struct tensor_place *place)
{
	return place->offset - side->table->places[0].at.offset;
}

/* Returns the stretch of n > 0 blocks of a layer, relative to its entry's place. */
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

/* Returns the name of the request's field for the limit of an indexed side. */
static const char *limit_name(const struct engine_blocks *blocks, bool is_dst)
{
	return blocks->pairs && is_dst ? "dst_limit" : "limit";
}

int blocks_default_limit(struct engine_blocks *blocks, bool is_dst, struct tensor_extent extent,
                         const struct tensor_place *place, struct error *err)
{
	const struct engine_blocks_side *side = is_dst ? &blocks->dst : &blocks->src;
	const char *name = is_dst ? "dst" : "src";
	int128 room, most;
	int r;

	if (side->step == 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "%s: missing; with a %s_step of 0 the region could hold any number of blocks",
		    limit_name(blocks, is_dst), name);
	r = check_range(name, blocks, side, 1, extent, place, err);
	if (r < 0)
		return r;
	/* `room` is negative if blocks without bytes are placed beyond the region. */
	if (side->table)
		room = (int128)side->table->room - added(side, place) - extent.high;
	else
		room = place->size - stretch_of(side, 1, blocks->layers, extent, place->offset).high;
	most = 1 + (room < 0 ? 0 : room / side->step);
	*(blocks->pairs && is_dst ? &blocks->dst_limit : &blocks->limit) =
	    most > UINT64_MAX ? UINT64_MAX : (uint64_t)most;
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
	return dst | src | blocks_side_bits(&blocks->dst, blocks_dst_count(blocks), blocks->layers) |
	       blocks_side_bits(&blocks->src, blocks_src_count(blocks), blocks->layers);
}

/* ---- Where the blocks lie ---------------------------------------------------------------------------- */

int blocks_check(struct engine_blocks *blocks, const struct transform *t, const struct tensor_place *dst,
                 const struct tensor_place *src, int64_t *sorted, struct error *err)
{
	int r = check_range("dst", blocks, &blocks->dst, blocks_dst_count(blocks), t->dst_extent, dst, err);

	if (r == 0)
		r = check_range("src", blocks, &blocks->src, blocks_src_count(blocks), t->src_extent, src,
		                err);
	if (r == 0)
		r = check_work(blocks, t, err);
	if (r == 0)
		r = check_apart(blocks, t, dst, sorted, err);
	if (r == 0 && !(blocks->is_one_pool = is_one_pool(blocks, t, dst, src)))
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

/* Checks the total work, which the regions do not bound: a list in a region may name one block over and
 * over. */
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

/* Returns the least distance between two of the layers, whose offsets must be sorted, and sets *ret_regular
 * to whether all distances between neighbours are equal. */
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

/* Returns whether sorted layers form groups of the same size, evenly spaced within each group and from group
 * to group, and if so, sets ret to the repetitions within a group and of groups. The layers of a cache form
 * such groups if keys and values each count as a layer. */
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
	const uint64_t n = blocks_dst_count(blocks), block = blocks_default_step(t->dst_extent);
	struct overlap_repeat repeat[3] = { { n, blocks->dst.step }, { layers, 0 } };
	int128 least, reach;
	bool is_regular;

	memcpy(sorted, blocks->dst.layers, layers * sizeof *sorted);
	layers_sort(sorted, layers);
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

/* Checks that no two blocks of the destination share bytes. Blocks of one layer are checked first, so that
 * the error names the step at fault. */
static int check_apart(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, int64_t *sorted, struct error *err)
{
	const struct overlap_repeat repeat[] = { { blocks_dst_count(blocks), blocks->dst.step },
		                                 { blocks->layers, blocks->dst.layer_step } };
	int r;

	if (t->count == 0 || blocks_dst_count(blocks) == 0)
		return 0;
	r = check_repeated(t, repeat, 1, "dst_step", err);
	if (r < 0 || blocks->layers == 1)
		return r;
	if (blocks->dst.table)
		return layer_table_check_apart(
		    blocks->dst.table, t,
		    entry_stretch(&blocks->dst, blocks_dst_count(blocks), t->dst_extent, dst),
		    blocks_dst_count(blocks), blocks->dst.step, err);
	if (blocks->dst.layers)
		return check_layer_list(blocks, t, sorted, err);
	return check_repeated(t, repeat, 2, "dst_layer_step", err);
}

/* ---- Two places in one memory -------------------------------------------------------------------------- */

/* A side without a table, which is compared as a whole. */
struct whole {
	const struct tensor_place *place;
	struct stretch stretch; /* relative to the start of its memory */
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

/* Checks the entries of a table against the stretch of the other side. The error names an entry that overlaps
 * it, and calls the other side `what`. */
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
	const uint64_t n_dst = blocks_dst_count(blocks), n_src = blocks_src_count(blocks);
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

/* Returns whether two tables have the same places. Tables that one request sends may be distinct but
 * equal. */
static bool are_same_tables(const struct layer_table *a, const struct layer_table *b)
{
	if (a == b || !a || !b || a->n != b->n)
		return a == b;
	for (uint32_t i = 0; i < a->n; i++)
		if (!places_in_one_memory(&a->places[i].at, &b->places[i].at) ||
		    layer_position(a, i) != layer_position(b, i))
			return false;
	return true;
}

static bool are_same_layers(const struct engine_blocks *blocks)
{
	const struct engine_blocks_side *dst = &blocks->dst, *src = &blocks->src;

	if (dst->table || src->table)
		return are_same_tables(dst->table, src->table);
	if (!dst->layers && !src->layers)
		return blocks->layers == 1 || dst->layer_step == src->layer_step;
	return dst->layers && src->layers &&
	       memcmp(dst->layers, src->layers, blocks->layers * sizeof *dst->layers) == 0;
}

/* Returns whether the elements of a block of dst occupy the same bytes as those of one of src. */
static bool are_same_blocks(const struct tensor_layout *dst, const struct tensor_layout *src)
{
	const size_t bytes = (size_t)dst->rank * sizeof *dst->shape;

	return dtype_size(dst->dtype) == dtype_size(src->dtype) && dst->rank == src->rank &&
	       memcmp(dst->shape, src->shape, bytes) == 0 && memcmp(dst->stride, src->stride, bytes) == 0;
}

/* Returns whether the sides are the same blocks. check_apart must have found that no two of these share
 * bytes. */
static bool is_one_pool(const struct engine_blocks *blocks, const struct transform *t,
                        const struct tensor_place *dst, const struct tensor_place *src)
{
	return blocks->pairs && t->count > 0 && blocks->limit == blocks->dst_limit &&
	       places_in_one_memory(dst, src) && dst->base + dst->offset == src->base + src->offset &&
	       blocks->dst.step == blocks->src.step && are_same_blocks(&t->dst_layout, &t->src_layout) &&
	       are_same_layers(blocks);
}

/* ---- A list in a region -------------------------------------------------------------------------------- */

int blocks_check_unread(const struct engine_blocks *blocks, struct error *err)
{
	if (!blocks->is_one_pool || blocks->n == 0)
		return 0;
	return error_set(
	    err, STATUS_OVERLAP,
	    "index_at: dst and src are the same blocks, and a list in a region, which may change, "
	    "does not prove that none is read and written; send the list in the message");
}

int blocks_check_index(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *place, struct error *err)
{
	const uint32_t size = blocks->index_bytes, entry = blocks_entry_bytes(blocks);
	const int128 end = place->offset + int128_product(blocks->n, entry);
	const struct whole list = { place, { (int128)place->base + place->offset, place->base + end } };
	struct stretch to;

	if (end > place->size)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "index_at: %" PRIu64 " entries of %" PRIu32 " bytes from byte %" PRIu64
		                 " exceed a region of %" PRIu64 " bytes",
		                 blocks->n, entry, place->offset, place->size);
	if ((place->base + place->offset) % size)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index_at: byte %" PRIu64 " of the region is not aligned to the %" PRIu32
		                 " bytes of a number",
		                 place->offset, size);
	if (t->count == 0 || blocks_dst_count(blocks) == 0 || blocks->n == 0)
		return 0;
	if (blocks->dst.table)
		return check_entries(
		    "dst", blocks->dst.table,
		    entry_stretch(&blocks->dst, blocks_dst_count(blocks), t->dst_extent, dst), &list,
		    "the entries at index_at", err);
	to = stretch_of(&blocks->dst, blocks_dst_count(blocks), blocks->layers, t->dst_extent, dst->offset);
	if (!places_meet(dst, stretch_shift(to, dst->base), place, list.stretch))
		return 0;
	return error_set(err, STATUS_OVERLAP,
	                 "index_at: the entries overlap bytes [%" PRIu64 ", %" PRIu64
	                 ") of dst's region, which are written",
	                 (uint64_t)to.low, (uint64_t)to.high);
}

/* ---- A list that the host has -------------------------------------------------------------------------- */

/* Returns number i of the list. Entry i has number i, or with pairs numbers 2 i and 2 i + 1. */
static int64_t number_at(const struct engine_blocks *blocks, uint64_t i)
{
	const char *at = (const char *)blocks->index + i * blocks->index_bytes;
	uint32_t half;
	uint64_t whole;

	if (blocks->index_bytes == sizeof half) {
		memcpy(&half, at, sizeof half);
		return (int32_t)le32toh(half);
	}
	memcpy(&whole, at, sizeof whole);
	return (int64_t)le64toh(whole);
}

/* Returns the block of dst that entry i names, or -1 if the entry is skipped. */
static int64_t dst_at(const struct engine_blocks *blocks, uint64_t i)
{
	if (!blocks->pairs)
		return number_at(blocks, i);
	return number_at(blocks, 2 * i) == -1 ? -1 : number_at(blocks, 2 * i + 1);
}

/* Returns the slot that an entry's hash selects in a table of 2^bits slots. */
static uint32_t slot_of(uint64_t entry, uint64_t seed, int bits)
{
	const unsigned __int128 mixed =
	    (unsigned __int128)(entry ^ seed) * (seed * UINT64_C(0x9e3779b97f4a7c15) | 1);

	return (uint32_t)(((uint64_t)mixed ^ (uint64_t)(mixed >> 64)) >> (64 - bits));
}

static int bits_of(uint64_t n)
{
	int bits = 1;

	while (UINT64_C(1) << bits < 2 * n)
		bits++;
	return bits;
}

size_t blocks_slots(uint64_t n)
{
	return (size_t)1 << bits_of(n);
}

/* Writes to `name` what errors call number i of the list, and returns `name`. */
static const char *number_name(const struct engine_blocks *blocks, uint64_t i, char name[40])
{
	if (blocks->pairs)
		snprintf(name, 40, "index[%" PRIu64 "][%d]", i / 2, (int)(i % 2));
	else
		snprintf(name, 40, "index[%" PRIu64 "]", i);
	return name;
}

/* Returns the slot of the entry that names a block of dst, or the free slot where it belongs. */
static uint32_t find_slot(const struct engine_blocks *blocks, uint64_t seed, const uint32_t *slot,
                          int64_t block)
{
	const int bits = bits_of(blocks->n);
	uint32_t s = slot_of((uint64_t)block, seed, bits);

	while (slot[s] && dst_at(blocks, slot[s] - 1) != block)
		s = (s + 1) & ((UINT32_C(1) << bits) - 1);
	return s;
}

/* Refuses a list in which two entries name the same block of dst; the error names the first such pair. */
static int check_twice(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, struct error *err)
{
	memset(slot, 0, sizeof *slot << bits_of(blocks->n));
	for (uint32_t i = 0; i < blocks->n; i++) {
		const int64_t block = dst_at(blocks, i);
		char second[40], first[40];
		uint32_t s;

		if (block == -1)
			continue;
		s = find_slot(blocks, seed, slot, block);
		if (slot[s])
			return error_set(
			    err, STATUS_OVERLAP,
			    "%s: %" PRId64 ", as %s: two blocks would be written to the same place in dst",
			    number_name(blocks, blocks->pairs ? 2 * (uint64_t)i + 1 : i, second), block,
			    number_name(blocks, blocks->pairs ? 2 * (uint64_t)slot[s] - 1 : slot[s] - 1,
			                first));
		slot[s] = i + 1;
	}
	return 0;
}

/* Refuses a list of pairs over one pool if a block is both read and written. check_twice must have filled the
 * slots. */
static int check_pool(const struct engine_blocks *blocks, uint64_t seed, const uint32_t *slot,
                      struct error *err)
{
	for (uint32_t i = 0; i < blocks->n; i++) {
		const int64_t block = number_at(blocks, 2 * (uint64_t)i);
		uint32_t other;

		if (block == -1 || dst_at(blocks, i) == -1)
			continue;
		other = slot[find_slot(blocks, seed, slot, block)];
		if (other)
			return error_set(err, STATUS_OVERLAP,
			                 "index[%" PRIu32 "][0]: %" PRId64 ", as index[%" PRIu32
			                 "][1]: dst and src are the same blocks, and this one would be read "
			                 "and written",
			                 i, block, other - 1);
	}
	return 0;
}

/* Uses a bitmap of the blocks to find out whether two entries name the same block of dst, and returns whether
 * they do. This is much faster than check_twice, but needs as many bits at slot as dst has blocks. */
static bool has_twice(const struct engine_blocks *blocks, uint32_t *slot)
{
	bool twice = false;

	memset(slot, 0, (blocks_dst_count(blocks) + 31) / 32 * sizeof *slot);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = dst_at(blocks, i);
		const uint64_t block = entry < 0 ? 0 : (uint64_t)entry;
		const uint32_t bit = (uint32_t)(entry >= 0) << block % 32;

		twice |= (slot[block / 32] & bit) != 0;
		slot[block / 32] |= bit;
	}
	return twice;
}

static int check_numbers(const struct engine_blocks *blocks, struct error *err)
{
	const uint64_t numbers = blocks->n << blocks->pairs;
	char name[40];

	for (uint64_t i = 0; i < numbers; i++) {
		const int64_t number = number_at(blocks, i);
		const bool is_dst = blocks->pairs ? i % 2 : blocks->scatter;
		const uint64_t limit = is_dst ? blocks_dst_count(blocks) : blocks_src_count(blocks);

		if (number < -1 || (number >= 0 && (uint64_t)number >= limit))
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "%s: %" PRId64 ", but %s has %" PRIu64 " blocks (%s)",
			                 number_name(blocks, i, name), number, is_dst ? "dst" : "src", limit,
			                 limit_name(blocks, is_dst));
	}
	return 0;
}

int blocks_check_entries(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, size_t n_slots,
                         struct error *err)
{
	int r = check_numbers(blocks, err);

	if (r < 0 || !blocks_dst_is_indexed(blocks))
		return r;
	if (!blocks->is_one_pool && blocks_dst_count(blocks) <= 8 * sizeof *slot * n_slots &&
	    !has_twice(blocks, slot))
		return 0;
	r = check_twice(blocks, seed, slot, err);
	return r == 0 && blocks->is_one_pool ? check_pool(blocks, seed, slot, err) : r;
}

int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err)
{
	if (blocks->n > BLOCKS_LIST_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT, "index: %" PRIu64 " entries, at most %d",
		                 blocks->n, BLOCKS_LIST_MOST);
	return blocks_check_entries(blocks, seen->seed, seen->slot, 2 * BLOCKS_LIST_MOST, err);
}
