/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a list of blocks, sets the defaults for what a request may leave out, and checks that an engine
 * may run the list. The functions have no side effects. Of clients' memory they read only a list in host
 * memory.
 *
 * A side has a number of blocks in each layer: as many as the list has entries, or, if the list indexes the
 * side, as many as its limit says (blocks_dst_count, blocks_src_count). The stretch of a side reaches from
 * its first byte to its last.
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

/* One side of a list of blocks: block i of layer l starts i * step + (layers ? layers[l] : l * layer_step)
 * bytes after the move's offset. If the layers come from a table, these are distances between addresses, and
 * the move's memory and offset are those of the first entry. */
struct engine_blocks_side {
	uint64_t step;
	uint64_t layer_step;
	const int64_t *layers; /* bytes to each layer; NULL: layers are layer_step bytes apart */
	/* Table of the layers, each of which has its own memory; NULL: all layers lie in the move's
	 * memory. */
	struct layer_table *table;
};

/* A list of blocks: a job's move is executed once for each of its entries, in each layer. Entry i is one
 * number, the block index[i] of the indexed side, and uses block i of the other side. With pairs it is two
 * numbers, first the block of src and then that of dst. An entry with a -1 is skipped; one with another
 * number that names no block of its side is skipped and counted. The submitter must have checked that all
 * blocks of both sides lie in their regions, and must have checked the entries of a list in host memory. A
 * list in a region may change at any time, so the engine reads each number only once. */
struct engine_blocks {
	uint64_t n;          /* number of entries; > 0 */
	uint32_t layers;     /* number of layers; > 0 */
	bool scatter;        /* the indexed side is dst, not src */
	bool pairs;          /* both sides are indexed; scatter is then false */
	uint8_t index_bytes; /* bytes of a number, which is signed and little-endian: 4 or 8 */
	uint64_t limit;      /* number of blocks of the indexed side; with pairs, of src */
	uint64_t dst_limit;  /* number of blocks of dst; used with pairs */
	const void *index;   /* the list in host memory, not aligned; NULL: it lies in a region */
	struct engine_memory *index_memory;
	uint64_t index_offset; /* bytes from the region's start to the list; a multiple of index_bytes */
	struct engine_blocks_side dst, src;
	/* Both sides are the same blocks, and the list decides whether any block is both read and written.
	 * Set by blocks_check. */
	bool is_one_pool;

	/* The engine sets the rest. Counts are of entries, not of entries times layers. */
	enum family family; /* how each block was moved */
	uint64_t passed;    /* number of entries with a -1 */
	uint64_t beyond;    /* number of other entries with a number that names no block */
};

/* The next functions return which sides the list indexes, how many blocks each side has in a layer, and the
 * bytes of an entry. */
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

/* Maximum number of entries of a list for blocks_check_list. */
#define BLOCKS_LIST_MOST 16384

/* Maximum number of entries of a list for blocks_check_entries. */
#define BLOCKS_ENTRIES_MOST (1 << 30)

/* An engine cannot stop half-way through a list, so these limits bound one request: its entries times its
 * layers, and the bytes that it reads plus those that it writes. Both limits are far more than fits into
 * memory. */
#define BLOCKS_MOVES_MOST (UINT64_C(1) << 32)
#define BLOCKS_BYTES_MOST (UINT64_C(1) << 44)

/* Scratch space of blocks_check_list, which can be reused from list to list. */
struct blocks_seen {
	uint64_t seed; /* random, so that clients cannot choose collisions */
	/* Hash table, whose slots have an entry's index plus 1 or, if free, 0; or a bitmap with a bit for
	 * each block. */
	uint32_t slot[2 * BLOCKS_LIST_MOST];
};

/* Returns the step for blocks that follow each other without gaps: the number of bytes that a block spans. */
uint64_t blocks_default_step(struct tensor_extent extent);

/* Sets the limit of an indexed side to the number of blocks that lie in its region in every layer. extent is
 * that of one block. Returns 0, OUT_OF_RANGE if not even one block does, or INVALID_ARGUMENT if the step is
 * 0. */
int blocks_default_limit(struct engine_blocks *blocks, bool is_dst, struct tensor_extent extent,
                         const struct tensor_place *place, struct error *err);

/* Returns the bitwise OR of all distances between blocks of the side, which has n blocks in each layer. */
uint64_t blocks_side_bits(const struct engine_blocks_side *side, uint64_t n, uint32_t layers);

/* Returns the bitwise OR of the addresses of all blocks; its lowest set bit divides all of them. dst and src
 * are the addresses of element [0, ..., 0] of block 0. A plan made for these bits (as places of many moves,
 * plan_key.h) is right for every block. */
uint64_t blocks_bits(const struct engine_blocks *blocks, uint64_t dst, uint64_t src);

/* Sets the layers of the side to those of a table. */
void blocks_use_table(struct engine_blocks_side *side, struct layer_table *table);

/* Returns the memory of a layer of the side. the_move is the move's memory on that side. */
struct engine_memory *blocks_memory(const struct engine_blocks_side *side, uint32_t layer,
                                    struct engine_memory *the_move);

/* Checks that the list may run between these places, which are those of block 0 of layer 0. Refuses blocks
 * that leave their region (OUT_OF_RANGE), more work than BLOCKS_MOVES_MOST or BLOCKS_BYTES_MOST
 * (INVALID_ARGUMENT), blocks of the destination that share bytes, and sides whose stretches overlap
 * (OVERLAP).
 *
 * The check is exact with two exceptions. Layers that are neither evenly spaced nor in evenly spaced groups
 * must each end before the next one begins, or be interleaved (layers_are_interleaved). Sides are compared by
 * their stretches, one for each layer of a table, so blocks of one side that lie between blocks of the other
 * are refused. With pairs, sides that are the same blocks are not refused but noted (is_one_pool). If dst has
 * a list of layers without a table, sorted must have space for blocks->layers offsets; otherwise it is
 * unused.
 */
int blocks_check(struct engine_blocks *blocks, const struct transform *t, const struct tensor_place *dst,
                 const struct tensor_place *src, int64_t *sorted, struct error *err);

/* Checks that a list in a region may be read there while dst is written. place is its first entry. The list
 * must lie in its region, at a multiple of index_bytes of the memory (base + offset), and outside the stretch
 * of dst. */
int blocks_check_index(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *place, struct error *err);

/* For a list that nobody reads before it runs: refuses sides that are one pool (OVERLAP), because only its
 * entries could prove that no block is both read and written. */
int blocks_check_unread(const struct engine_blocks *blocks, struct error *err);

/* Checks a list in host memory: each number is -1 or names a block (OUT_OF_RANGE), no two entries name the
 * same block of a destination, and if is_one_pool, no block is named on both sides (OVERLAP). Returns
 * INVALID_ARGUMENT if there are more than BLOCKS_LIST_MOST entries. */
int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err);

/* Does the same for a list of at most BLOCKS_ENTRIES_MOST entries. slot is scratch space of n_slots slots. A
 * list of n entries that indexes dst needs at least blocks_slots(n) of them; other lists need none. seed
 * should be random (struct blocks_seen). */
int blocks_check_entries(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, size_t n_slots,
                         struct error *err);
size_t blocks_slots(uint64_t n);

#endif
