/* SPDX-License-Identifier: Apache-2.0 */
/* This says what a list of blocks is, what a request may leave out of it, and what has to hold before an
 * engine may run it. The functions have no side effects, and the only memory that they read is a list in host
 * memory.
 *
 * A side has its blocks in each layer: n of them, or, if the list indexes it, as many as its limit says
 * (blocks_dst_count, blocks_src_count). Its stretch goes from the first byte of any of them to the last one's
 * end.
 */
#ifndef KERNELS_TRANSFORM_BLOCKS_H
#define KERNELS_TRANSFORM_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "transform.h"
#include "proto/status.h"
#include "proto/tensor.h"

struct engine_memory;
struct layer_table;

/* One side of a list of blocks: block i of layer l lies i * step + (layers ? layers[l] : l * layer_step)
 * bytes past the move's offset. If layers come from a table, these are distances between addresses, and the
 * move's memory and offset are those of the first entry. */
struct engine_blocks_side {
	uint64_t step;
	uint64_t layer_step;
	const int64_t *layers;     /* bytes, one for each layer; NULL: layers are layer_step apart */
	struct layer_table *table; /* of the layers, each in its own memory; NULL: all in the move's */
};

/* The move is done once for each entry of a list, in each layer. Entry i is one number, the block index[i] of
 * the indexed side, and the other side's is block i; or, with pairs, two numbers, the block of src and then
 * that of dst. An entry with a -1 is passed over; one with a number that names no block of its side is passed
 * over and counted. The submitter has checked that all blocks of both sides lie in their regions, and a list
 * in host memory as well; one in a region may change at any time, so each number is read once. */
struct engine_blocks {
	uint64_t n;          /* entries; > 0 */
	uint32_t layers;     /* > 0 */
	bool scatter;        /* the indexed side is dst; else src */
	bool pairs;          /* both sides are indexed; scatter is false */
	uint8_t index_bytes; /* bytes of a number, signed and little-endian: 4 or 8 */
	uint64_t limit;      /* blocks of the indexed side, which is src with pairs */
	uint64_t dst_limit;  /* blocks of dst with pairs */
	const void *index;   /* in host memory, not aligned; NULL: in a region */
	struct engine_memory *index_memory;
	uint64_t index_offset; /* bytes; a multiple of index_bytes */
	struct engine_blocks_side dst, src;
	bool is_one_pool; /* blocks_check sets this: the sides are the same blocks, and the list decides
	                     whether one is read and written */

	/* The engine sets these. The counts are of entries, not of entries times layers. */
	enum family family; /* family of what moved each block */
	uint64_t passed;    /* entries with a -1 */
	uint64_t beyond;    /* other entries with a number that names no block */
};

/* These tell which sides the list indexes, how many blocks each side has in a layer, and how many bytes an
 * entry takes. */
static inline bool blocks_dst_is_indexed(const struct engine_blocks *blocks)
{
	return blocks->scatter || blocks->pairs;
}

static inline bool blocks_src_is_indexed(const struct engine_blocks *blocks)
{
	return !blocks->scatter;
}

static inline uint64_t blocks_dst_count(const struct engine_blocks *blocks)
{
	if (blocks->pairs)
		return blocks->dst_limit;
	return blocks->scatter ? blocks->limit : blocks->n;
}

static inline uint64_t blocks_src_count(const struct engine_blocks *blocks)
{
	return blocks->scatter ? blocks->n : blocks->limit;
}

static inline uint32_t blocks_entry_bytes(const struct engine_blocks *blocks)
{
	return (uint32_t)blocks->index_bytes << blocks->pairs;
}

/* blocks_check_list takes lists of at most so many entries. */
#define BLOCKS_LIST_MOST 16384

/* blocks_check_entries takes lists of at most so many entries. */
#define BLOCKS_ENTRIES_MOST (1 << 30)

/* An engine cannot stop half-way, so these bound one request: entries times layers, and bytes read plus
 * written. They are far more than memory holds. */
#define BLOCKS_MOVES_MOST (UINT64_C(1) << 32)
#define BLOCKS_BYTES_MOST (UINT64_C(1) << 44)

/* blocks_check_list notes here what it has seen. It is reused from list to list. */
struct blocks_seen {
	uint64_t seed;                       /* random, so that collisions cannot be chosen */
	uint32_t slot[2 * BLOCKS_LIST_MOST]; /* position plus 1, 0: free; or a bit for each block */
};

/* Returns the step of blocks that have none of their own, which lie one after the other: the bytes from a
 * block's first to its last. */
uint64_t blocks_default_step(struct tensor_extent extent);

/* Sets the limit of an indexed side to as many of its blocks as lie in its region in every layer. extent is
 * that of one block. Returns 0, OUT_OF_RANGE if not even one block does, or INVALID_ARGUMENT if its step is
 * 0.
 */
int blocks_default_limit(struct engine_blocks *blocks, bool is_dst, struct tensor_extent extent,
                         const struct tensor_place *place, struct error *err);

/* Returns the bitwise or of all distances between blocks of the side. n blocks of each layer count. */
uint64_t blocks_side_bits(const struct engine_blocks_side *side, uint64_t n, uint32_t layers);

/* Returns the bitwise or of the addresses of all blocks, which are all multiples of its lowest set bit. dst
 * and src are the addresses of element [0, ..., 0] of block 0. A plan for the places of many moves
 * (plan_key.h) with these bits is right for every block. */
uint64_t blocks_bits(const struct engine_blocks *blocks, uint64_t dst, uint64_t src);

/* Takes the layers of the side from a table. */
void blocks_use_table(struct engine_blocks_side *side, struct layer_table *table);

/* Returns the memory of a layer. the_move is the memory of the move's side. */
struct engine_memory *blocks_memory(const struct engine_blocks_side *side, uint32_t layer,
                                    struct engine_memory *the_move);

/* Checks that the list may run between these places, which are those of block 0 of layer 0. Refuses blocks
 * that leave their region (OUT_OF_RANGE), more work than the most (INVALID_ARGUMENT), blocks of the
 * destination that share bytes, and stretches of the two sides that do (OVERLAP).
 *
 * This is exact with two exceptions. Layers that are neither evenly spaced nor groups that are have to end
 * each before the next one begins, or to be interleaved (layers_are_interleaved). And the sides could lie
 * between each other within their stretches; layers of a table have a stretch each. Sides that are the same
 * blocks are not refused with pairs, but noted (is_one_pool). sorted is room for blocks->layers offsets where
 * dst has a list of layers without a table, and unused elsewhere. */
int blocks_check(struct engine_blocks *blocks, const struct transform *t, const struct tensor_place *dst,
                 const struct tensor_place *src, int64_t *sorted, struct error *err);

/* Checks that a list in a region may be read there while dst is written; place is its first entry. It lies in
 * its region, at a multiple of an entry (base + offset), and not within the stretch of dst. */
int blocks_check_index(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *place, struct error *err);

/* Refuses what only the entries of a list could settle (OVERLAP), for one that is not read before it runs. */
int blocks_check_unread(const struct engine_blocks *blocks, struct error *err);

/* Checks a list in host memory: each number is -1 or names a block (OUT_OF_RANGE), no two entries name one
 * block of a destination, and in one pool no block is named on both sides (OVERLAP). Returns INVALID_ARGUMENT
 * past BLOCKS_LIST_MOST. */
int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err);

/* Does the same for a list of at most BLOCKS_ENTRIES_MOST entries. slot is room for n_slots, which are at
 * least blocks_slots(n) for the n entries of a list that indexes dst; others need none. */
int blocks_check_entries(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, size_t n_slots,
                         struct error *err);
size_t blocks_slots(uint64_t n);

#endif
