/* SPDX-License-Identifier: Apache-2.0 */
/* Describes tensor maps: the layout that the Tensor Memory Accelerator reads, every rule it must keep, and
 * its key.
 *
 * A layout has no address: maps are cached by layout, and the address is patched in. Pure; knows no driver.
 * Values of the enums are those of cuda.h (CUtensorMapDataType and its kin); the driver's side asserts it.
 * Source of the rules: CUDA Driver API, cuTensorMapEncodeTiled.
 *
 * Driver 580.159 and an H200 differ from the documentation in these places; the rules here stay those of the
 * documentation:
 *
 * - dim: up to 2^32 is documented and encoded, but a load through a map with a dimension of 2^32 - 4 or more
 *   ends the context; how long one may be is not known, and plans keep below 2^30.
 *
 * - box: refused where box[0] is no multiple of 16 bytes with interleave, and where all of the box is more
 * than 228 KiB, which fits no shared memory.
 *
 * - interleave: 32B is taken with every swizzle.
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
	TENSOR_MAP_16U4_ALIGN8B,  /* not on sm_90 */
	TENSOR_MAP_16U4_ALIGN16B, /* not on sm_90 */
	TENSOR_MAP_16U6_ALIGN16B, /* not on sm_90 */
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
	TENSOR_MAP_SWIZZLE_128B_ATOM_32B,         /* not on sm_90 */
	TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B, /* not on sm_90 */
	TENSOR_MAP_SWIZZLE_128B_ATOM_64B,         /* not on sm_90 */
	TENSOR_MAP_SWIZZLE_COUNT
};

enum tensor_map_l2 { TENSOR_MAP_L2_NONE, TENSOR_MAP_L2_64B, TENSOR_MAP_L2_128B, TENSOR_MAP_L2_256B };

enum tensor_map_fill { TENSOR_MAP_FILL_ZERO, TENSOR_MAP_FILL_NAN };

/* Dimensions are innermost first. A layout is initialised with zeros: what lies past the rank stays 0, so
 * that keys are equal. */
struct tensor_map_layout {
	enum tensor_map_type type;
	uint32_t rank;
	uint64_t dim[TENSOR_MAP_MAX_RANK];            /* elements */
	uint64_t stride[TENSOR_MAP_MAX_RANK - 1];     /* bytes, of dimensions 1 to rank - 1 */
	uint32_t box[TENSOR_MAP_MAX_RANK];            /* elements of the tensor that a tile spans */
	uint32_t element_stride[TENSOR_MAP_MAX_RANK]; /* 1: every element of the box is moved */
	enum tensor_map_interleave interleave;
	enum tensor_map_swizzle swizzle;
	enum tensor_map_l2 l2;
	enum tensor_map_fill fill;
};

extern const char *const tensor_map_type_names[TENSOR_MAP_TYPE_COUNT];             /* "uint8" */
extern const char *const tensor_map_interleave_names[TENSOR_MAP_INTERLEAVE_COUNT]; /* "none", "16B" */
extern const char *const tensor_map_swizzle_names[TENSOR_MAP_SWIZZLE_COUNT];       /* "none", "128B" */

/* Returns the bytes of an element; 0 for the packed types. */
uint32_t tensor_map_type_size(enum tensor_map_type type);

/* Returns how many of dimension d a tile has: ceil(box / element stride). Without interleave the unit knows
 * no stride for dimension 0 and moves the whole box. With it, dimension 0 counts slices of 16 or 32 bytes,
 * and the last dimension but one is the group of channels, of which a tile has one. This and what follows: of
 * layouts that pass the check. */
uint32_t tensor_map_tile_extent(const struct tensor_map_layout *layout, uint32_t d);

/* Returns the bytes that a tile moves, which its barrier is to expect. */
uint64_t tensor_map_tile_bytes(const struct tensor_map_layout *layout);

/* Returns the bytes of shared memory that a tile takes: more where its rows are narrower than the swizzle,
 * or, with interleave, where the whole is no multiple of it. */
uint64_t tensor_map_tile_span(const struct tensor_map_layout *layout);

/* Returns what the address and the strides must be a multiple of, in bytes: 16 or 32. */
uint32_t tensor_map_align(const struct tensor_map_layout *layout);

/* A layout cannot break so many rules at once. */
#define TENSOR_MAP_MAX_RULES 40

/* A layout and an address break these rules, each a sentence that names the field, the rule and the value.
 */
struct tensor_map_rules {
	int n;
	char text[TENSOR_MAP_MAX_RULES][112];
};

/* Sets *ret to all rules that are broken, and returns ret->n. address 0 is aligned to everything. */
int tensor_map_check(const struct tensor_map_layout *layout, uint64_t address, struct tensor_map_rules *ret);

/* tensor_map_hash returns a hash of the layout, mixed with seed, and tensor_map_equal whether two layouts are
 * the same. */
uint64_t tensor_map_hash(const struct tensor_map_layout *layout, uint64_t seed);
bool tensor_map_equal(const struct tensor_map_layout *a, const struct tensor_map_layout *b);

#endif
