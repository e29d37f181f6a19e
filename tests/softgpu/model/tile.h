/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit moves for one tile: pieces of 16 bytes, each with its place in shared memory and in the
 * tensor. Pure arithmetic over a layout that passed tensor_map_check; the model moves bytes by it and tests
 * ask it.
 */
#ifndef TESTS_SOFTGPU_MODEL_TILE_H
#define TESTS_SOFTGPU_MODEL_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

#define TILE_PIECE 16

/* Bytes first to last - 1 of the 16 lie in the tensor, global being the address of byte 0 (of no meaning
 * where first == last); the others are filled by a load and left out by a store. */
struct tile_piece {
	uint32_t shared; /* offset from the tile's first byte, swizzled */
	uint64_t global;
	uint32_t first;
	uint32_t last;
};

struct tile_walk {
	const struct tensor_map_layout *layout;
	uint64_t address;
	uint32_t base; /* of the tile in shared memory: a swizzle goes by the bits of the address */
	uint32_t row_bytes;
	uint32_t pitch; /* of rows in shared memory */
	uint32_t rows;
	uint32_t extent[TENSOR_MAP_MAX_RANK]; /* the tile's own */
	int64_t start[TENSOR_MAP_MAX_RANK];   /* coordinates */
	uint32_t index[TENSOR_MAP_MAX_RANK];  /* of the row */
	uint32_t row;                         /* the next piece */
	uint32_t in_row;
};

/* Bytes that a tile moves, and that its barrier gets. */
uint32_t tile_bytes(const struct tensor_map_layout *layout);

/* Bytes of shared memory that it takes: more where rows are narrower than the swizzle, or the whole is no
 * multiple of it (interleaved ones), so that it moves the last of them further. */
uint32_t tile_span(const struct tensor_map_layout *layout);

/* Where a tile has to start: the length of the swizzle's pattern, or 128. */
uint32_t tile_align(enum tensor_map_swizzle swizzle);

/* Where byte address of shared memory is found. The 16-byte chunk's number in a line of 128 bytes is XORed
 * with the line's: 32B a[4] ^= a[7], 64B a[5:4] ^= a[8:7], 128B a[6:4] ^= a[9:7]. */
uint32_t tile_swizzle(enum tensor_map_swizzle swizzle, uint32_t address);

/* Whether the unit goes through a map with a dimension so long. An H200 does not from 2^32 - 4 on; of less it
 * is not known, and the model takes what a coordinate can reach. */
bool tile_takes_dim(uint64_t dim);

/* Whether dimension 0 of a tile may begin there: a whole number of pieces from the tensor's first byte,
 * before it or after. With interleave it counts slices, which are whole pieces, and any will do. */
bool tile_may_begin(const struct tensor_map_layout *layout, int32_t c0);

/* The tile at c (layout->rank coordinates), its first byte at base of shared memory. */
void tile_begin(struct tile_walk *walk, const struct tensor_map_layout *layout, uint64_t address,
                const int32_t *c, uint32_t base);

/* false: there are no more. */
bool tile_next(struct tile_walk *walk, struct tile_piece *ret);

/* What a load puts where the tensor is not: zeros, or the unit's own NaN. */
void tile_fill(const struct tensor_map_layout *layout, unsigned char piece[TILE_PIECE]);

/* What a load does to a piece's bytes [first, last): a tfloat32 is rounded, everything else stays. */
void tile_convert(const struct tensor_map_layout *layout, unsigned char *piece, uint32_t first,
                  uint32_t last);

#endif
