/* SPDX-License-Identifier: Apache-2.0 */
/* Checks lists of blocks. Stretches are computed in 128 bits, where no sum of theirs overflows; regular
 * layouts are treated as repeated ones (overlap.h). */
#include "blocks.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "overlap.h"

#define GREATEST_ALIGN 16
#define FARTHEST       ((wide)1 << 100) /* for what 64 bits do not hold: past every region */

typedef __int128 wide;

/* Bytes of a side, from the first byte of its region. */
struct stretch {
	wide low;
	wide high;
};

static int check_range(const char *name, const struct engine_blocks *blocks,
                       const struct engine_blocks_side *side, uint64_t n, struct tensor_extent extent,
                       const struct tensor_place *place, struct error *err);
static int check_work(const struct engine_blocks *blocks, const struct transform *t, struct error *err);
static int check_apart(const struct engine_blocks *blocks, const struct transform *t, int64_t *sorted,
                       struct error *err);
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

static wide product(uint64_t a, uint64_t b)
{
	uint64_t ab;

	return __builtin_mul_overflow(a, b, &ab) ? FARTHEST : (wide)ab;
}

/* Of n > 0 blocks in every layer, with block 0 of the side at offset. */
static struct stretch stretch_of(const struct engine_blocks_side *side, uint64_t n, uint32_t layers,
                                 struct tensor_extent extent, uint64_t offset)
{
	wide first = 0, last = product(layers - 1, side->layer_step);

	if (side->layers)
		first = last = side->layers[0];
	for (uint32_t l = 1; side->layers && l < layers; l++) {
		first = side->layers[l] < first ? side->layers[l] : first;
		last = side->layers[l] > last ? side->layers[l] : last;
	}
	return (struct stretch){ .low = offset + first + extent.low,
		                 .high = offset + last + product(n - 1, side->step) + extent.high };
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
	wide room, most;
	int r;

	if (side->step == 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "limit: missing; with a %s_step of 0 the region could hold any number of blocks", name);
	r = check_range(name, blocks, side, 1, extent, place, err);
	if (r < 0)
		return r;
	/* Negative where blocks without bytes are said to lie beyond it. */
	room = place->size - stretch_of(side, 1, blocks->layers, extent, place->offset).high;
	most = 1 + (room < 0 ? 0 : room / side->step);
	blocks->limit = most > UINT64_MAX ? UINT64_MAX : (uint64_t)most;
	return 0;
}

static uint64_t side_bits(const struct engine_blocks_side *side, uint64_t n, uint32_t layers)
{
	uint64_t bits = n > 1 ? side->step : 0;

	for (uint32_t l = 0; side->layers && l < layers; l++)
		bits |= (uint64_t)side->layers[l];
	return side->layers || layers == 1 ? bits : bits | side->layer_step;
}

struct plan_facts blocks_facts(const struct plan_facts *engine, const struct engine_blocks *blocks,
                               uint64_t dst, uint64_t src)
{
	struct plan_facts facts = *engine;
	uint64_t bits = dst | src | GREATEST_ALIGN;

	bits |= side_bits(&blocks->dst, dst_count(blocks), blocks->layers);
	bits |= side_bits(&blocks->src, src_count(blocks), blocks->layers);
	facts.align = (uint32_t)(bits & -bits); /* the largest power of two that all are a multiple of */
	if (facts.tma) {
		facts.dst_phase = dst % GREATEST_ALIGN;
		facts.src_phase = src % GREATEST_ALIGN;
		facts.spread = true;
	}
	return facts;
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
		r = check_apart(blocks, t, sorted, err);
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
		return tensor_check_range(nothing, place->offset, place->size, name, err);
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
	const wide moves = product(blocks->n, blocks->layers);

	if (moves > (wide)BLOCKS_MOVES_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "layers: %" PRIu64 " entries in each of %" PRIu32 " layers exceed %" PRIu64
		                 " blocks",
		                 blocks->n, blocks->layers, BLOCKS_MOVES_MOST);
	if (t->bytes > BLOCKS_BYTES_MOST || moves * t->bytes > (wide)BLOCKS_BYTES_MOST)
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
static wide least_distance(const int64_t *sorted, uint32_t layers, bool *ret_regular)
{
	wide least = (wide)sorted[1] - sorted[0];

	*ret_regular = true;
	for (uint32_t l = 2; l < layers; l++) {
		wide distance = (wide)sorted[l] - sorted[l - 1];

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
	const wide within = (wide)sorted[1] - sorted[0];
	uint32_t n = 2;

	while (n < layers && (wide)sorted[n] - sorted[n - 1] == within)
		n++;
	if (layers % n)
		return false;
	for (uint32_t l = n; l < layers; l++)
		if ((wide)sorted[l] - sorted[l - n] != (wide)sorted[n] - sorted[0])
			return false;
	ret[0] = (struct overlap_repeat){ n, (uint64_t)within };
	ret[1] =
	    (struct overlap_repeat){ layers / n, n < layers ? (uint64_t)((wide)sorted[n] - sorted[0]) : 0 };
	return true;
}

static int check_layer_list(const struct engine_blocks *blocks, const struct transform *t, int64_t *sorted,
                            struct error *err)
{
	const uint32_t layers = blocks->layers;
	const uint64_t n = dst_count(blocks), block = blocks_default_step(t->dst_extent);
	struct overlap_repeat repeat[3] = { { n, blocks->dst.step }, { layers, 0 } };
	wide least, reach;
	bool is_regular;

	memcpy(sorted, blocks->dst.layers, layers * sizeof *sorted);
	qsort(sorted, layers, sizeof *sorted, compare_offsets);
	least = least_distance(sorted, layers, &is_regular);
	if (is_regular) {
		repeat[1].step = (uint64_t)least;
		return check_repeated(t, repeat, 2, "dst_layers", err);
	}
	reach = product(n - 1, blocks->dst.step) + block;
	if (least >= reach)
		return 0;
	if (least >= block && (wide)sorted[layers - 1] - sorted[0] + block <= blocks->dst.step)
		return 0;
	if (find_groups(sorted, layers, &repeat[1]))
		return check_repeated(t, repeat, 3, "dst_layers", err);
	return error_set(
	    err, STATUS_OVERLAP,
	    "dst_layers: two are %" PRIu64 " bytes apart; if unevenly spaced they must be at least %" PRIu64
	    " apart (the blocks of a layer), or %" PRIu64 " (one block) with all layers within one dst_step",
	    (uint64_t)least, (uint64_t)reach, block);
}

/* Blocks of a layer first, so that an error says what is too near to what. */
static int check_apart(const struct engine_blocks *blocks, const struct transform *t, int64_t *sorted,
                       struct error *err)
{
	const struct overlap_repeat repeat[] = { { dst_count(blocks), blocks->dst.step },
		                                 { blocks->layers, blocks->dst.layer_step } };
	int r;

	if (t->count == 0 || dst_count(blocks) == 0)
		return 0;
	r = check_repeated(t, repeat, 1, "dst_step", err);
	if (r < 0 || blocks->layers == 1)
		return r;
	if (blocks->dst.layers)
		return check_layer_list(blocks, t, sorted, err);
	return check_repeated(t, repeat, 2, "dst_layer_step", err);
}

/* ---- Two places in one memory -------------------------------------------------------------------------- */

static bool is_one_memory(const struct tensor_place *a, const struct tensor_place *b)
{
	return a->memory[0] == b->memory[0] && a->memory[1] == b->memory[1];
}

static bool meet(struct stretch a, uint64_t a_base, struct stretch b, uint64_t b_base)
{
	return a_base + a.low < b_base + b.high && b_base + b.low < a_base + a.high;
}

static int check_sides(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *src, struct error *err)
{
	struct stretch to, from;

	if (!is_one_memory(dst, src) || t->count == 0 || t->src_extent.high == t->src_extent.low ||
	    dst_count(blocks) == 0 || src_count(blocks) == 0)
		return 0;
	to = stretch_of(&blocks->dst, dst_count(blocks), blocks->layers, t->dst_extent, dst->offset);
	from = stretch_of(&blocks->src, src_count(blocks), blocks->layers, t->src_extent, src->offset);
	if (!meet(to, dst->base, from, src->base))
		return 0;
	return error_set(
	    err, STATUS_OVERLAP,
	    "dst: bytes [%" PRIu64 ", %" PRIu64 ") of its region and [%" PRIu64 ", %" PRIu64
	    ") of src's overlap in one memory; with a list of blocks the two sides must not overlap as a "
	    "whole, even if no two blocks do",
	    (uint64_t)to.low, (uint64_t)to.high, (uint64_t)from.low, (uint64_t)from.high);
}

/* ---- The list ------------------------------------------------------------------------------------------ */

int blocks_check_index(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *place, struct error *err)
{
	const uint32_t size = blocks->index_bytes;
	const wide end = place->offset + product(blocks->n, size);
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
	if (!is_one_memory(dst, place) || t->count == 0 || dst_count(blocks) == 0)
		return 0;
	to = stretch_of(&blocks->dst, dst_count(blocks), blocks->layers, t->dst_extent, dst->offset);
	if (!meet(to, dst->base, (struct stretch){ place->offset, end }, place->base))
		return 0;
	return error_set(err, STATUS_OVERLAP,
	                 "index_at: the entries overlap bytes [%" PRIu64 ", %" PRIu64
	                 ") of dst's region, which are written",
	                 (uint64_t)to.low, (uint64_t)to.high);
}

static int64_t entry_at(const struct engine_blocks *blocks, uint64_t i)
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

/* A slot of a table of 2^bits. */
static uint32_t slot_of(uint64_t entry, uint64_t seed, int bits)
{
	const unsigned __int128 mixed =
	    (unsigned __int128)(entry ^ seed) * (seed * UINT64_C(0x9e3779b97f4a7c15) | 1);

	return (uint32_t)(((uint64_t)mixed ^ (uint64_t)(mixed >> 64)) >> (64 - bits));
}

/* Names the first two that are the same. */
static int check_twice(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err)
{
	int bits = 1;

	while (UINT64_C(1) << bits < 2 * blocks->n)
		bits++;
	memset(seen->slot, 0, sizeof *seen->slot << bits);
	for (uint32_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);
		uint32_t s = slot_of((uint64_t)entry, seen->seed, bits);

		if (entry == -1)
			continue;
		for (; seen->slot[s]; s = (s + 1) & ((UINT32_C(1) << bits) - 1))
			if (entry_at(blocks, seen->slot[s] - 1) == entry)
				return error_set(err, STATUS_OVERLAP,
				                 "index[%" PRIu32 "]: %" PRId64 ", as index[%" PRIu32
				                 "]: two blocks would be written to the same place in dst",
				                 i, entry, seen->slot[s] - 1);
		seen->slot[s] = i + 1;
	}
	return 0;
}

/* By a bit a block: where there are no more of those than the table has room for, much faster. */
static bool has_twice(const struct engine_blocks *blocks, struct blocks_seen *seen)
{
	bool twice = false;

	memset(seen->slot, 0, (blocks->limit + 31) / 32 * sizeof *seen->slot);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);
		const uint64_t block = entry < 0 ? 0 : (uint64_t)entry;
		const uint32_t bit = (uint32_t)(entry >= 0) << block % 32;

		twice |= (seen->slot[block / 32] & bit) != 0;
		seen->slot[block / 32] |= bit;
	}
	return twice;
}

int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err)
{
	if (blocks->n > BLOCKS_LIST_MOST)
		return error_set(err, STATUS_INVALID_ARGUMENT, "index: %" PRIu64 " entries, at most %d",
		                 blocks->n, BLOCKS_LIST_MOST);
	for (uint64_t i = 0; i < blocks->n; i++) {
		const int64_t entry = entry_at(blocks, i);

		if (entry < -1 || (entry >= 0 && (uint64_t)entry >= blocks->limit))
			return error_set(err, STATUS_OUT_OF_RANGE,
			                 "index[%" PRIu64 "]: %" PRId64 ", but %s has %" PRIu64
			                 " blocks (limit)",
			                 i, entry, blocks->scatter ? "dst" : "src", blocks->limit);
	}
	if (!blocks->scatter || (blocks->limit <= 8 * sizeof seen->slot && !has_twice(blocks, seen)))
		return 0;
	return check_twice(blocks, seen, err);
}
