/* SPDX-License-Identifier: Apache-2.0 */
/* Describes tensor maps: the layout that the Tensor Memory Accelerator (TMA) reads, every rule that it must
 * keep, and its key in a cache.
 *
 * A layout has no address: maps are cached by layout, and the address is patched in. The code is pure and
 * knows no driver. The enums have the values of those in cuda.h (CUtensorMapDataType and so on);
 * launch/map_cache.c asserts that. The rules are those of cuTensorMapEncodeTiled in the CUDA Driver API.
 *
 * Driver 580.159 with an H200 deviates from the documentation in these respects; the rules here follow the
 * documentation:
 *
 * - dim: Values up to 2^32 are documented, and the driver encodes them, but a load through a map with a
 * dimension of 2^32 - 4 or more ends the context. The actual limit is not known; plans stay below 2^31.
 *
 * - box: The driver refuses a box[0] that is not a multiple of 16 bytes, with interleave too, and a box of
 * more than 228 KiB, which does not fit in shared memory.
 *
 * - interleave: The driver accepts 32B with every swizzle.
 */
#ifndef KERNELS_CUDA_STRATEGY_TENSOR_MAP_H
#define KERNELS_CUDA_STRATEGY_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

#define TENSOR_MAP_MAX_RANK 5

enum tensor_map_type {
	TENSOR_MAP_UINT8,
	TENSOR_MAP_UINT16,
	TENSOR_MAP_UINT32,
	TENSOR_MAP_INT32,
	TENSOR_MAP_UINT64,
	TENSOR_MAP_INT64,
	TENSOR_MAP_FLOAT16,
	TENSOR_MAP_FLOAT32,
	TENSOR_MAP_FLOAT64,
	TENSOR_MAP_BFLOAT16,
	TENSOR_MAP_FLOAT32_FTZ,
	TENSOR_MAP_TFLOAT32,
	TENSOR_MAP_TFLOAT32_FTZ,
	TENSOR_MAP_16U4_ALIGN8B,  /* not available on sm_90 */
	TENSOR_MAP_16U4_ALIGN16B, /* not available on sm_90 */
	TENSOR_MAP_16U6_ALIGN16B, /* not available on sm_90 */
	TENSOR_MAP_TYPE_COUNT
};

enum tensor_map_interleave {
	TENSOR_MAP_INTERLEAVE_NONE,
	TENSOR_MAP_INTERLEAVE_16B,
	TENSOR_MAP_INTERLEAVE_32B,
	TENSOR_MAP_INTERLEAVE_COUNT
};

enum tensor_map_swizzle {
	TENSOR_MAP_SWIZZLE_NONE,
	TENSOR_MAP_SWIZZLE_32B,
	TENSOR_MAP_SWIZZLE_64B,
	TENSOR_MAP_SWIZZLE_128B,
	TENSOR_MAP_SWIZZLE_128B_ATOM_32B,         /* not available on sm_90 */
	TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, /* not available on sm_90 */
	TENSOR_MAP_SWIZZLE_128B_ATOM_64B,         /* not available on sm_90 */
	TENSOR_MAP_SWIZZLE_COUNT
};

enum tensor_map_l2 { TENSOR_MAP_L2_NONE, TENSOR_MAP_L2_64B, TENSOR_MAP_L2_128B, TENSOR_MAP_L2_256B };

enum tensor_map_fill { TENSOR_MAP_FILL_ZERO, TENSOR_MAP_FILL_NAN };

/* A tensor map without its address. Dimensions are innermost first. Initialize it with zeros: array entries
 * beyond the rank must be 0 so that equal layouts have equal keys. */
struct tensor_map_layout {
	enum tensor_map_type type;
	uint32_t rank;
	uint64_t dim[TENSOR_MAP_MAX_RANK];        /* elements */
	uint64_t stride[TENSOR_MAP_MAX_RANK - 1]; /* bytes; entry d belongs to dimension d + 1 */
	/* Elements of the tensor that a tile spans, gaps by element_stride included. */
	uint32_t box[TENSOR_MAP_MAX_RANK];
	uint32_t element_stride[TENSOR_MAP_MAX_RANK]; /* 1: every element of the box is moved */
	enum tensor_map_interleave interleave;
	enum tensor_map_swizzle swizzle;
	enum tensor_map_l2 l2;
	enum tensor_map_fill fill;
};

extern const char *const tensor_map_type_names[TENSOR_MAP_TYPE_COUNT];             /* "uint8" */
extern const char *const tensor_map_interleave_names[TENSOR_MAP_INTERLEAVE_COUNT]; /* "none", "16B" */
extern const char *const tensor_map_swizzle_names[TENSOR_MAP_SWIZZLE_COUNT];       /* "none", "128B" */

/* Returns the bytes of an element, or 0 for the packed types. */
uint32_t tensor_map_type_size(enum tensor_map_type type);

/* Returns the number of elements of a tile along dimension d: ceil(box / element stride). Without interleave,
 * the TMA ignores the element stride of dimension 0 and moves the whole box. With interleave, dimension 0
 * counts slices of 16 or 32 bytes, and the last dimension but one is the group of channels, of which a tile
 * has one. This function and the next three require a layout that passes tensor_map_check. */
uint32_t tensor_map_tile_extent(const struct tensor_map_layout *layout, uint32_t d);

/* Returns the bytes that a tile moves, which its barrier has to expect. */
uint64_t tensor_map_tile_bytes(const struct tensor_map_layout *layout);

/* Returns the bytes of shared memory that a tile takes. They exceed tensor_map_tile_bytes if the rows are
 * narrower than the swizzle or if, with interleave, the tile is not a multiple of the swizzle. */
uint64_t tensor_map_tile_span(const struct tensor_map_layout *layout);

/* Returns the number of bytes, 16 or 32, that the address and the strides must be multiples of. */
uint32_t tensor_map_align(const struct tensor_map_layout *layout);

/* An upper bound on the number of rules that one layout can break. */
#define TENSOR_MAP_MAX_RULES 40

/* The rules that a layout and an address break. Each text is a sentence that names the field, the rule and
 * the value. */
struct tensor_map_rules {
	int n;
	char text[TENSOR_MAP_MAX_RULES][112];
};

/* Sets *ret to all broken rules and returns their number. Address 0 meets every alignment. */
int tensor_map_check(const struct tensor_map_layout *layout, uint64_t address, struct tensor_map_rules *ret);

/* tensor_map_hash returns a hash of the layout, mixed with seed. tensor_map_equal returns whether two layouts
 * are the same. */
uint64_t tensor_map_hash(const struct tensor_map_layout *layout, uint64_t seed);
bool tensor_map_equal(const struct tensor_map_layout *a, const struct tensor_map_layout *b);

#endif
