/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks: what one is, what a request may leave out of it, and what has to hold before an engine may
 * run it. Pure: of memory it reads only a list that the host has.
 *
 * A side has its blocks in each layer: n of them, but `limit` on the side that the list indexes. Its stretch
 * goes from the first byte of any of them to the last one's end.
 */
#ifndef KERNELS_TRANSFORM_BLOCKS_H
#define KERNELS_TRANSFORM_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "family.h"
#include "proto/status.h"
#include "proto/tensor.h"
#include "transform.h"

struct engine_memory;
struct layer_table;

/* One side of a list of blocks: block i of layer l lies i * step + (layers ? layers[l] : l * layer_step)
 * bytes past the move's offset. By a table these are distances between addresses, and the move's memory and
 * offset are those of the first entry. */
struct engine_blocks_side {
	uint64_t step;
	uint64_t layer_step;
	const int64_t *layers;     /* bytes, one a layer; NULL: layer_step apart */
	struct layer_table *table; /* of the layers, each in a memory of its own; NULL: all in the move's */
};

/* The move done once for each entry of a list, in each layer. Entry i names block index[i] of the indexed
 * side; the other side's is block i. An index of -1 is passed over; one that is not in [0, limit) is passed
 * over and counted. The submitter has checked that every block in [0, limit) and every one of [0, n) lies in
 * its region, and an index in host memory as well; one in a region may change at any time: each entry is read
 * once. */
struct engine_blocks {
	uint64_t n;          /* entries; > 0 */
	uint32_t layers;     /* > 0 */
	bool scatter;        /* the indexed side is dst; else src */
	uint8_t index_bytes; /* of an entry, signed and little-endian: 4 or 8 */
	uint64_t limit;      /* blocks of the indexed side */
	const void *index;   /* in host memory, not aligned; NULL: in a region */
	struct engine_memory *index_memory;
	uint64_t index_offset; /* bytes; a multiple of index_bytes */
	struct engine_blocks_side dst, src;

	/* By the engine; the counts are of entries, not of entries times layers. */
	enum family family; /* of what moved each block */
	uint64_t passed;    /* -1 */
	uint64_t beyond;    /* not in [0, limit) */
};

/* Entries of a list that blocks_check_list takes. */
#define BLOCKS_LIST_MOST 16384

/* Entries of a list that blocks_check_entries takes. */
#define BLOCKS_ENTRIES_MOST (1 << 30)

/* What one request may be for an engine that cannot stop half-way: entries times layers, and bytes read plus
 * written. Far more than memory holds. */
#define BLOCKS_MOVES_MOST (UINT64_C(1) << 32)
#define BLOCKS_BYTES_MOST (UINT64_C(1) << 44)

/* Where blocks_check_list notes what it has seen: reused from list to list. */
struct blocks_seen {
	uint64_t seed;                       /* random, so that collisions cannot be chosen */
	uint32_t slot[2 * BLOCKS_LIST_MOST]; /* a position and 1, 0: free; or a bit a block */
};

/* One after the other: bytes from a block's first to its last. */
uint64_t blocks_default_step(struct tensor_extent extent);

/* Sets limit to as many blocks of the indexed side as lie in its region in every layer; extent is one
 * block's. OUT_OF_RANGE when not even one does, INVALID_ARGUMENT when its step is 0. */
int blocks_default_limit(struct engine_blocks *blocks, struct tensor_extent extent,
                         const struct tensor_place *place, struct error *err);

/* What all distances between blocks of the side are multiples of, if n blocks of a layer count, as an or of
 * them. */
uint64_t blocks_side_bits(const struct engine_blocks_side *side, uint64_t n, uint32_t layers);

/* Returns the bitwise or of the addresses of all blocks, which are all multiples of its lowest set bit. dst
 * and src are the addresses of element [0, ..., 0] of block 0. A plan for the places of many moves
 * (plan_key.h) with these bits is right for every block. */
uint64_t blocks_bits(const struct engine_blocks *blocks, uint64_t dst, uint64_t src);

/* Takes the layers of the side from a table. */
void blocks_use_table(struct engine_blocks_side *side, struct layer_table *table);

/* The memory of a layer; the_move: the memory of the move's side. */
struct engine_memory *blocks_memory(const struct engine_blocks_side *side, uint32_t layer,
                                    struct engine_memory *the_move);

/* Whether the list may run between these places, of block 0 of layer 0. Refused are blocks that leave their
 * region (OUT_OF_RANGE), more work than the most (INVALID_ARGUMENT), blocks of the destination that share
 * bytes, and stretches of the two sides that do (OVERLAP). Exact, but for layers that are neither evenly
 * spaced nor groups that are, of which each has to end before the next one begins, or which have to be
 * interleaved (layers_are_interleaved); and for the stretches, within which the sides could lie between each
 * other; layers of a table have a stretch each. sorted: room for blocks->layers offsets where dst has a list
 * of layers without a table; else unused. */
int blocks_check(const struct engine_blocks *blocks, const struct transform *t,
                 const struct tensor_place *dst, const struct tensor_place *src, int64_t *sorted,
                 struct error *err);

/* Whether a list in a region may be read there while dst is written: place is its first entry. It lies in its
 * region, at a multiple of an entry (base + offset), and not within the stretch of dst. */
int blocks_check_index(const struct engine_blocks *blocks, const struct transform *t,
                       const struct tensor_place *dst, const struct tensor_place *place, struct error *err);

/* A list in host memory: each entry is -1 or in [0, limit) (OUT_OF_RANGE), and no two name one block of a
 * destination (OVERLAP). INVALID_ARGUMENT past BLOCKS_LIST_MOST. */
int blocks_check_list(const struct engine_blocks *blocks, struct blocks_seen *seen, struct error *err);

/* Does the same for a list of at most BLOCKS_ENTRIES_MOST entries. slot: room for n_slots, which are at least
 * blocks_slots(n) for the n entries of a scatter; a gather needs none. */
int blocks_check_entries(const struct engine_blocks *blocks, uint64_t seed, uint32_t *slot, size_t n_slots,
                         struct error *err);
size_t blocks_slots(uint64_t n);

#endif
