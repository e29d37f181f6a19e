/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the pieces of a tile. A row is what dimension 0 moves. Without interleave it is the contiguous
 * elements of the box in dimension 0, which has no element stride. With interleave (NC/8HWC8, NC/16HWC16),
 * dimension 0 counts slices of 16 or 32 bytes that lie side by side, and the last but one dimension selects a
 * single group of channels, whatever its box. Without interleave, a swizzled row occupies at least the
 * swizzle's width; rows of slices follow each other without gaps.
 *
 * Sources: CUDA Driver API, cuTensorMapEncodeTiled; PTX ISA, "Tensors"; CUDA C++ Programming Guide, 10.29.3.
 * They do not fully specify interleaved layouts, the NaN that fills, and the rounding of tfloat32; these
 * follow what tests/gpu/conformance found on an H200.
 *
 * The following, also found there, is not documented. An illegal instruction, which ends the context, is
 * raised by a load or store whose dimension 0 begins within a piece of 16 bytes (a load may begin 16 bytes
 * before the tensor); by a store at a negative coordinate in any dimension, even if none of the tile lies
 * inside; and by a load or store through a map with a dimension of 2^32 - 4 or more, at any coordinates.
 */
#include "tile.h"

#include <string.h>

#define OOB_NAN       0x7ff7 /* the fill of every two bytes, whatever the element type */
#define TFLOAT32_NAN  UINT32_C(0x7fffe000)
#define TFLOAT32_DROP 13 /* bits of a float32 that a tfloat32 lacks */

static uint32_t slice_bytes(const struct tensor_map_layout *layout)
{
	return layout->interleave == TENSOR_MAP_INTERLEAVE_16B   ? 16
	       : layout->interleave == TENSOR_MAP_INTERLEAVE_32B ? 32
	                                                         : 0;
}

/* Returns the bytes of one unit of dimension 0: an element, or a slice with interleave. */
static uint32_t unit_bytes(const struct tensor_map_layout *layout)
{
	uint32_t slice = slice_bytes(layout);

	return slice ? slice : tensor_map_type_size(layout->type);
}

static uint32_t extent(const struct tensor_map_layout *layout, uint32_t d)
{
	if (d == 0 && !slice_bytes(layout))
		return layout->box[0];
	if (d + 2 == layout->rank && slice_bytes(layout))
		return 1;
	return (layout->box[d] + layout->element_stride[d] - 1) / layout->element_stride[d];
}

static uint32_t row_bytes(const struct tensor_map_layout *layout)
{
	return extent(layout, 0) * unit_bytes(layout);
}

static uint32_t rows_of(const struct tensor_map_layout *layout)
{
	uint32_t rows = 1;

	for (uint32_t d = 1; d < layout->rank; d++)
		rows *= extent(layout, d);
	return rows;
}

/* Returns how many bits of an address the swizzle changes: it permutes chunks of 16 bytes within groups of 2,
 * 4 or 8. */
static uint32_t swizzle_bits(enum tensor_map_swizzle swizzle)
{
	return swizzle <= TENSOR_MAP_SWIZZLE_128B ? (uint32_t)swizzle : 0;
}

static uint32_t swizzle_width(enum tensor_map_swizzle swizzle)
{
	return (uint32_t)TILE_PIECE << swizzle_bits(swizzle);
}

static uint32_t row_pitch(const struct tensor_map_layout *layout)
{
	uint32_t bytes = row_bytes(layout), width = swizzle_width(layout->swizzle);

	return bytes > width || slice_bytes(layout) ? bytes : width;
}

uint32_t tile_bytes(const struct tensor_map_layout *layout)
{
	return row_bytes(layout) * rows_of(layout);
}

uint32_t tile_span(const struct tensor_map_layout *layout)
{
	uint32_t bytes = row_pitch(layout) * rows_of(layout), width = swizzle_width(layout->swizzle);

	return (bytes + width - 1) / width * width;
}

uint32_t tile_align(enum tensor_map_swizzle swizzle)
{
	return UINT32_C(128) << swizzle_bits(swizzle);
}

uint32_t tile_swizzle(enum tensor_map_swizzle swizzle, uint32_t address)
{
	uint32_t mask = (1u << swizzle_bits(swizzle)) - 1;

	return address ^ ((address >> 7 & mask) << 4);
}

bool tile_takes_dim(uint64_t dim)
{
	return dim <= INT32_MAX;
}

bool tile_may_begin(const struct tensor_map_layout *layout, int32_t c0)
{
	return c0 * (int64_t)unit_bytes(layout) % TILE_PIECE == 0;
}

/* ---- The walk -------------------------------------------------------------------------------------- */

void tile_begin(struct tile_walk *walk, const struct tensor_map_layout *layout, uint64_t address,
                const int32_t *c, uint32_t base)
{
	*walk = (struct tile_walk){
		.layout = layout,
		.address = address,
		.base = base,
		.row_bytes = row_bytes(layout),
		.pitch = row_pitch(layout),
		.rows = rows_of(layout),
	};
	for (uint32_t d = 0; d < layout->rank; d++) {
		walk->extent[d] = extent(layout, d);
		walk->start[d] = c[d];
	}
}

static bool is_inside(const struct tensor_map_layout *layout, uint32_t d, int64_t at)
{
	return at >= 0 && (uint64_t)at < layout->dim[d];
}

static uint32_t clamp(int64_t value)
{
	return value < 0 ? 0 : value > TILE_PIECE ? TILE_PIECE : (uint32_t)value;
}

/* Computes where the piece at byte in_row of the row lies in the tensor's row, and which of its bytes are
 * inside the tensor. */
static void place_in_row(const struct tile_walk *walk, uint32_t in_row, struct tile_piece *ret)
{
	const struct tensor_map_layout *layout = walk->layout;
	int64_t unit = unit_bytes(layout), at;

	if (slice_bytes(layout)) {
		int64_t slice = walk->start[0] + (int64_t)(in_row / unit) * layout->element_stride[0];

		at = slice * unit + in_row % unit;
		ret->last = is_inside(layout, 0, slice) ? TILE_PIECE : 0;
	} else {
		at = walk->start[0] * unit + in_row;
		ret->last = clamp((int64_t)layout->dim[0] * unit - at);
		ret->first = clamp(-at);
		if (ret->first > ret->last)
			ret->first = ret->last;
	}
	ret->global += (uint64_t)at;
}

bool tile_next(struct tile_walk *walk, struct tile_piece *ret)
{
	const struct tensor_map_layout *layout = walk->layout;
	bool inside = true;

	if (walk->row == walk->rows)
		return false;
	*ret = (struct tile_piece){ .global = walk->address };
	ret->shared = walk->base + walk->row * walk->pitch + walk->in_row;
	ret->shared = tile_swizzle(layout->swizzle, ret->shared) - walk->base;
	place_in_row(walk, walk->in_row, ret);
	for (uint32_t d = 1; d < layout->rank; d++) {
		int64_t at = walk->start[d] + (int64_t)walk->index[d] * layout->element_stride[d];

		inside = inside && is_inside(layout, d, at);
		ret->global += (uint64_t)at * layout->stride[d - 1];
	}
	if (!inside)
		ret->first = ret->last = 0;

	walk->in_row += TILE_PIECE;
	if (walk->in_row == walk->row_bytes) {
		walk->in_row = 0;
		walk->row++;
		for (uint32_t d = 1; d < layout->rank && ++walk->index[d] == walk->extent[d]; d++)
			walk->index[d] = 0;
	}
	return true;
}

/* ---- Values ---------------------------------------------------------------------------------------- */

void tile_fill(const struct tensor_map_layout *layout, unsigned char piece[TILE_PIECE])
{
	uint16_t nan = OOB_NAN;

	memset(piece, 0, TILE_PIECE);
	if (layout->fill == TENSOR_MAP_FILL_NAN)
		for (int i = 0; i < TILE_PIECE; i += 2)
			memcpy(piece + i, &nan, 2);
}

/* Rounds to the nearest, ties to even. Every NaN becomes the same NaN. */
static uint32_t round_tfloat32(uint32_t bits)
{
	uint32_t half = UINT32_C(1) << (TFLOAT32_DROP - 1), odd = bits >> TFLOAT32_DROP & 1;

	if ((bits & UINT32_C(0x7fffffff)) > UINT32_C(0x7f800000))
		return TFLOAT32_NAN;
	return (bits + half - 1 + odd) & ~((UINT32_C(1) << TFLOAT32_DROP) - 1);
}

void tile_convert(const struct tensor_map_layout *layout, unsigned char *piece, uint32_t first, uint32_t last)
{
	if (layout->type != TENSOR_MAP_TFLOAT32 && layout->type != TENSOR_MAP_TFLOAT32_FTZ)
		return;
	for (uint32_t i = first; i < last; i += 4) {
		uint32_t bits;

		memcpy(&bits, piece + i, 4);
		bits = round_tfloat32(bits);
		memcpy(piece + i, &bits, 4);
	}
}
