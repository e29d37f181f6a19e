/* SPDX-License-Identifier: Apache-2.0 */
/* The pieces of 16 bytes that the TMA unit moves for one tile, each with its place in shared memory and in
 * the tensor. This is pure arithmetic over a layout that passed tensor_map_check; the model moves bytes by it
 * and tests query it. */
#ifndef TESTS_SOFTGPU_MODEL_TILE_H
#define TESTS_SOFTGPU_MODEL_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

#define TILE_PIECE 16

/* Bytes [first, last) of the 16 lie in the tensor; a load fills the others and a store leaves them out.
 * global is the address of byte 0, and has no meaning if first == last. */
struct tile_piece {
	uint32_t shared; /* offset from the tile's first byte in shared memory, swizzled */
	uint64_t global;
	uint32_t first;
	uint32_t last;
};

struct tile_walk {
	const struct tensor_map_layout *layout;
	uint64_t address;
	uint32_t base; /* address of the tile in shared memory, on which the swizzle depends */
	uint32_t row_bytes;
	uint32_t pitch; /* bytes between rows in shared memory */
	uint32_t rows;
	uint32_t extent[TENSOR_MAP_MAX_RANK]; /* extents of the tile */
	int64_t start[TENSOR_MAP_MAX_RANK];   /* coordinates of the tile in the tensor */
	uint32_t index[TENSOR_MAP_MAX_RANK];  /* indexes of the current row in the tile */
	uint32_t row;                         /* index in the row of the next piece */
	uint32_t in_row;
};

/* Returns the bytes that a tile moves, which is what its barrier counts. */
uint32_t tile_bytes(const struct tensor_map_layout *layout);

/* Returns the bytes of shared memory that a tile occupies. These are more than tile_bytes if rows are
 * narrower than the swizzle, or if an interleaved tile is no multiple of the swizzle's pattern, which then
 * moves its last bytes further. */
uint32_t tile_span(const struct tensor_map_layout *layout);

/* Returns the alignment of a tile in shared memory: the length of the swizzle's pattern, or 128. */
uint32_t tile_align(enum tensor_map_swizzle swizzle);

/* Returns the swizzled place of a byte address of shared memory. The number of the 16-byte chunk within its
 * line of 128 bytes is XORed with the line's number: 32B a[4] ^= a[7], 64B a[5:4] ^= a[8:7], 128B a[6:4] ^=
 * a[9:7]. */
uint32_t tile_swizzle(enum tensor_map_swizzle swizzle, uint32_t address);

/* Returns whether the unit accepts a map with a dimension of that length. An H200 does not from 2^32 - 4 on;
 * below, the limit is not known, and the model accepts what a coordinate can reach. */
bool tile_takes_dim(uint64_t dim);

/* Returns whether a tile may begin at c0 in dimension 0: at a whole number of pieces before or after the
 * tensor's first byte. With interleave any c0 will do, because slices are whole pieces. */
bool tile_may_begin(const struct tensor_map_layout *layout, int32_t c0);

/* Starts the walk over the tile at coordinates c (layout->rank of them), whose first byte is at base in
 * shared memory. */
void tile_begin(struct tile_walk *walk, const struct tensor_map_layout *layout, uint64_t address,
                const int32_t *c, uint32_t base);

/* Returns false if there are no more pieces. */
bool tile_next(struct tile_walk *walk, struct tile_piece *ret);

/* Writes what a load stores for bytes outside the tensor: zeros, or the unit's NaN. */
void tile_fill(const struct tensor_map_layout *layout, unsigned char piece[TILE_PIECE]);

/* Applies a load's conversion to bytes [first, last) of a piece: rounds tfloat32 and leaves other types
 * unchanged. */
void tile_convert(const struct tensor_map_layout *layout, unsigned char *piece, uint32_t first,
                  uint32_t last);

#endif
