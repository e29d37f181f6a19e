/* Without interleave a row is the box's dimension 0, contiguous, and has no element stride of its own. With
 * it (NC/8HWC8, NC/16HWC16), dimension 0 counts slices of 16 or 32 bytes that lie side by side, so that a
 * "row" is one slice and dimension 0 walks like any other, by the slice's length.
 *
 * Sources: CUDA Driver API, cuTensorMapEncodeTiled; PTX ISA, "Tensors". The NaN of the fill and the rounding
 * of tfloat32 are in neither: they are what others read back from sm_100 and sm_120.
 */
#include "tile.h"

#include <string.h>

#define OOB_NAN       0x7ff7 /* in every two bytes, whatever the type */
#define TFLOAT32_NAN  UINT32_C(0x7fffe000)
#define TFLOAT32_DROP 13 /* bits of a float32 that a tfloat32 does not have */

static uint32_t slice_bytes(const struct tensor_map_layout *layout)
{
	return layout->interleave == TENSOR_MAP_INTERLEAVE_16B   ? 16
	       : layout->interleave == TENSOR_MAP_INTERLEAVE_32B ? 32
	                                                         : 0;
}

static uint32_t row_bytes(const struct tensor_map_layout *layout)
{
	uint32_t slice = slice_bytes(layout);

	return slice ? slice : layout->box[0] * tensor_map_type_size(layout->type);
}

static uint32_t extent(const struct tensor_map_layout *layout, uint32_t d)
{
	if (d >= layout->rank || (d == 0 && !slice_bytes(layout)))
		return 1;
	return (layout->box[d] + layout->element_stride[d] - 1) / layout->element_stride[d];
}

uint32_t tile_bytes(const struct tensor_map_layout *layout)
{
	uint32_t bytes = row_bytes(layout);

	for (uint32_t d = 0; d < layout->rank; d++)
		bytes *= extent(layout, d);
	return bytes;
}

static uint32_t swizzle_bits(enum tensor_map_swizzle swizzle)
{
	return swizzle <= TENSOR_MAP_SWIZZLE_128B ? (uint32_t)swizzle : 0;
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

/* ---- The walk -------------------------------------------------------------------------------------------
 */

void tile_begin(struct tile_walk *walk, const struct tensor_map_layout *layout, uint64_t address,
                const int32_t *c, uint32_t base)
{
	*walk = (struct tile_walk){
		.layout = layout,
		.address = address,
		.base = base,
		.row_bytes = row_bytes(layout),
		.pieces = tile_bytes(layout) / TILE_PIECE,
	};
	for (uint32_t d = 0; d < TENSOR_MAP_MAX_RANK; d++) {
		walk->extent[d] = extent(layout, d);
		walk->start[d] = d < layout->rank ? c[d] : 0;
	}
}

/* Where the row at walk->index starts, relative to the tensor's first byte; false: outside of the tensor. */
static bool row_start(const struct tile_walk *walk, int64_t *ret)
{
	const struct tensor_map_layout *layout = walk->layout;
	uint32_t slice = slice_bytes(layout);

	*ret = 0;
	for (uint32_t d = 0; d < layout->rank; d++) {
		int64_t at = walk->start[d] + (int64_t)walk->index[d] * layout->element_stride[d];

		if (d == 0 && !slice) {
			*ret += walk->start[0] * (int64_t)tensor_map_type_size(layout->type);
			continue;
		}
		if (at < 0 || (uint64_t)at >= layout->dim[d])
			return false;
		*ret += at * (int64_t)(d == 0 ? slice : layout->stride[d - 1]);
	}
	return true;
}

static uint32_t clamp(int64_t value)
{
	return value < 0 ? 0 : value > TILE_PIECE ? TILE_PIECE : (uint32_t)value;
}

bool tile_next(struct tile_walk *walk, struct tile_piece *ret)
{
	const struct tensor_map_layout *layout = walk->layout;
	uint32_t in_row = walk->next % walk->row_bytes;
	int64_t start;

	if (!walk->pieces)
		return false;
	*ret = (struct tile_piece){
		.shared = tile_swizzle(layout->swizzle, walk->base + walk->next) - walk->base,
	};
	if (row_start(walk, &start)) {
		ret->global = walk->address + (uint64_t)(start + in_row);
		if (slice_bytes(layout)) {
			ret->last = TILE_PIECE;
		} else {
			int64_t at = walk->start[0] * (int64_t)tensor_map_type_size(layout->type) + in_row;
			int64_t end = (int64_t)(layout->dim[0] * tensor_map_type_size(layout->type));

			ret->first = clamp(-at);
			ret->last = clamp(end - at);
		}
		if (ret->first > ret->last)
			ret->first = ret->last;
	}

	walk->pieces--;
	walk->next += TILE_PIECE;
	if (in_row + TILE_PIECE == walk->row_bytes)
		for (uint32_t d = 0; d < layout->rank && ++walk->index[d] == walk->extent[d]; d++)
			walk->index[d] = 0;
	return true;
}

/* ---- Values ----------------------------------------------------------------------------------------------
 */

void tile_fill(const struct tensor_map_layout *layout, unsigned char piece[TILE_PIECE])
{
	uint16_t nan = OOB_NAN;

	memset(piece, 0, TILE_PIECE);
	if (layout->fill == TENSOR_MAP_FILL_NAN)
		for (int i = 0; i < TILE_PIECE; i += 2)
			memcpy(piece + i, &nan, 2);
}

/* To the nearest, ties to even; a NaN becomes the one. */
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
