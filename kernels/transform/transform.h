/* SPDX-License-Identifier: Apache-2.0 */
/* The one operation of the service: dst[...] = pad(cast(permute(src, perm) * scale + bias), before, after,
 * mode, value), where each function means what it means in NumPy. Without a cast, elements are moved as they
 * are. Instead of using a given scale and bias, a transform may compute scales on the way (amax).
 *
 * transform_init validates a request once, without addresses, and reduces it to axes in the destination's
 * order with strides in bytes. Everything that follows (subregions, loop nests, plans) is derived from the
 * result and cannot fail.
 */
#ifndef KERNELS_TRANSFORM_TRANSFORM_H
#define KERNELS_TRANSFORM_TRANSFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "amax_scale.h"
#include "proto/scalar.h"
#include "proto/status.h"
#include "proto/tensor.h"

/* ---- Families ------------------------------------------------------------------------------------------ */

/* The family of a transform: the way in which its interior, that is, everything but its padding, is moved.
 * Every reply carries the family. */
enum family {
	FAMILY_MEMCPY,         /* one contiguous run of bytes on both sides */
	FAMILY_TILE_COPY,      /* rows, because the inner dimension is contiguous on both sides */
	FAMILY_TILE_TRANSPOSE, /* 2-D tiles, because the sides are contiguous along different dimensions */
	FAMILY_STRIDED,        /* everything else */
	FAMILY_FILL,           /* no source is read */
	FAMILY_CONVERT,        /* elements are converted (struct conversion) */
	FAMILY_COUNT
};

extern const char *const family_names[FAMILY_COUNT];

/* The reason why a family that is better than the chosen one was not legal. */
struct family_rule {
	enum family family;
	char text[120];
};

#define FAMILY_MOST_RULES 12

struct family_rules {
	int n;
	struct family_rule rule[FAMILY_MOST_RULES];
};

/* Adds a rule. Rules beyond FAMILY_MOST_RULES are dropped. */
__attribute__((format(printf, 3, 4))) void family_rules_add(struct family_rules *rules, enum family family,
                                                            const char *format, ...);

/* ---- Scales that are computed on the way --------------------------------------------------------------- */

/* With amax, elements are scaled block by block. The largest magnitude of a block's source elements gives two
 * numbers: the scale, by which a reader of the destination multiplies, and its inverse, by which elements are
 * multiplied before they are cast. amax_result_spec describes a tensor for one of the two, as requested. */
struct amax_result_spec {
	bool is_given;
	struct tensor_layout layout;
};

struct amax_spec {
	bool is_given;
	bool power_of_two;
	double least;
	int n_block;
	int64_t block[TENSOR_MAX_RANK];
	struct amax_result_spec scale, inverse;
};

/* One of the two result tensors, which has one number for each block. */
struct amax_result {
	bool is;
	enum dtype dtype; /* float32, or uint8 for the biased exponent of a power of two */
	/* Bytes from one block's number to the next, by axis of the destination. */
	int64_t stride[TENSOR_MAX_RANK];
	struct tensor_layout layout; /* layout as requested, for checks against regions */
	struct tensor_extent extent;
};

struct amax {
	bool is; /* false: the other fields have no meaning */
	struct amax_rule rule;
	/* Block extents by axis of the destination, each at most the axis's extent. */
	int64_t block[TENSOR_MAX_RANK];
	struct amax_result scale, inverse;
};

/* Checks a request for block scales of the destination dst, and reduces the result tensors to strides by
 * axis. Refuses types that are float64 or not floating, a block of another rank or with an extent less than
 * 1, and results of another shape or type. */
int amax_init(struct amax *ret, const struct amax_spec *spec, const struct tensor_layout *dst,
              enum dtype from, struct error *err);

/* Writes a scale or an inverse in the result's type, little-endian. Returns the number of bytes. */
static inline uint32_t amax_encode(enum dtype dtype, float value, uint8_t ret[4])
{
	const uint32_t bits = amax_bits_of(value);

	if (dtype == DTYPE_UINT8) {
		ret[0] = amax_exponent_of(value);
		return 1;
	}
	for (int i = 0; i < 4; i++)
		ret[i] = (uint8_t)(bits >> 8 * i);
	return 4;
}

/* ---- Conversions --------------------------------------------------------------------------------------- */

/* A conversion is dst = cast(src * scale + bias), for a destination of another type, or with amax dst =
 * cast(src * inverse).
 *
 * Elements are converted to the type of the calculation (enum arithmetic), multiplied and then added to,
 * which rounds twice, and finally rounded to the destination's type; kernels/transform/lanes.h has the
 * formulas. scale and bias are numbers, or tensors that broadcast against the permuted source as in NumPy,
 * before it is cropped and padded: shapes are aligned at the last dimension, and an extent of 1 repeats.
 */
enum operand_kind {
	OPERAND_NONE,
	OPERAND_NUMBER, /* the number comes with the job, so that one plan serves all numbers */
	OPERAND_TENSOR,
};

/* A scale or bias as requested. */
struct operand_spec {
	enum operand_kind kind;
	struct tensor_layout layout; /* layout of the tensor; valid only for OPERAND_TENSOR */
};

struct conversion_spec {
	bool is_given; /* false: the types must be equal and there is no operand */
	enum cast cast;
	struct operand_spec scale, bias;
	struct amax_spec amax;
};

/* The type in which values are calculated. */
enum arithmetic {
	ARITHMETIC_FLOAT32,
	ARITHMETIC_FLOAT64, /* used if one side is float64 or an integer of 32 or 64 bits */
	ARITHMETIC_NONE,    /* used from integers to integers without operands: no value is rounded */
};

struct operand {
	enum operand_kind kind;
	enum dtype dtype;                /* float32 or float64; a number is a float64 whose strides are 0 */
	int64_t stride[TENSOR_MAX_RANK]; /* bytes, by axis of the destination */
	/* Bytes from the operand's element [0, ..., 0] to the one that belongs to the first element not
	 * cropped. */
	int64_t shift;
	/* Layout as requested, for checks against regions; valid, as is extent, only for OPERAND_TENSOR. */
	struct tensor_layout layout;
	struct tensor_extent extent;
};

struct conversion {
	bool is; /* false: elements are moved as they are, and the other fields have no meaning */
	enum cast cast;
	enum arithmetic arithmetic;
	/* Loading an element into the type of the calculation may lose something: a bfloat16 NaN its payload,
	 * and a 64-bit integer the bits that float64 lacks, in which case it is rounded to odd. */
	bool is_lossy;
	enum dtype from, to;
	struct operand scale, bias; /* with amax, scale is a number: the inverse of a block's scale */
	struct amax amax;
};

/* Returns whether integers become integers by keeping their low bits. */
static inline bool conversion_wraps(const struct conversion *conversion)
{
	return conversion->cast == CAST_IEEE && conversion->arithmetic == ARITHMETIC_NONE;
}

/* Checks a conversion and reduces its operands to strides by axis. shape is the shape of the permuted source,
 * and cropped[d] the number of its elements in front of the first one that is used, both by axis of the
 * destination. Refuses complex types, operands that are neither float32 nor float64 or do not broadcast, and
 * an operand or another type without a cast. */
int conversion_init(struct conversion *ret, const struct conversion_spec *spec, enum dtype to,
                    enum dtype from, int rank, const int64_t *shape, const int64_t *cropped,
                    struct error *err);

/* ---- Transforms ---------------------------------------------------------------------------------------- */

/* A transform as requested. before and after have an entry for each dimension of the destination; a negative
 * one crops. Cropping comes first, then what is left is padded: mode reflect with before = -1, after = 1
 * reflects the cropped edge. */
struct transform_spec {
	struct tensor_layout dst;
	struct tensor_layout src;
	int n_perm;   /* -1: no perm given, identity; else must be src.rank */
	int n_before; /* -1: not given, zeros; else must be src.rank */
	int n_after;
	int64_t perm[TENSOR_MAX_RANK];
	int64_t before[TENSOR_MAX_RANK];
	int64_t after[TENSOR_MAX_RANK];
	enum pad_mode mode;
	struct scalar value;
	struct conversion_spec conversion;
	bool dst_is_checked; /* the caller knows that no two elements of dst share a byte */
};

/* One dimension of the destination. Output index o in [0, extent) reads source index o - before if that is in
 * [0, source); elsewhere the border rule of the mode applies. All strides are in bytes. */
struct transform_axis {
	int64_t extent;
	int64_t before; /* >= 0 */
	int64_t source; /* extent of the source after cropping */
	int64_t dst_stride;
	int64_t src_stride;
};

struct transform {
	int rank;
	uint32_t element; /* bytes of an element of the destination: 1, 2, 4, 8 or 16 */
	/* Bytes of an element of the source; differs from `element` only in a conversion. */
	uint32_t src_element;
	struct conversion conversion;
	enum pad_mode mode;
	uint8_t fill[TENSOR_MAX_ELEMENT]; /* bits of the padding value */
	struct transform_axis axis[TENSOR_MAX_RANK];
	int64_t src_shift; /* bytes from the source's element [0, ..., 0] to the first element not cropped */
	int64_t count;     /* number of elements of the destination */
	/* Bytes read plus written: all elements of the destination, and the source elements that are read. */
	uint64_t bytes;
	/* Layouts and extents as requested, for range and overlap checks against regions. */
	struct tensor_layout dst_layout;
	struct tensor_layout src_layout;
	struct tensor_extent dst_extent;
	struct tensor_extent src_extent;
};

/* Validates spec and sets *t. Refuses, with one sentence that names the argument, the rule and the value:
 * shapes, ranks or dtypes that do not agree; a perm that is no permutation; a crop that leaves nothing of a
 * dimension; padding of an empty dimension with a mode other than constant; a value that the dtype cannot
 * hold; a destination that overlaps itself. */
int transform_init(struct transform *t, const struct transform_spec *spec, struct error *err);

/* The place of a tensor's element [0, ..., 0]. memory is the identity of the underlying memory (equal for two
 * regions of one memory), base the bytes from its start to the region, and offset the bytes from the region's
 * start to the element. */
struct tensor_place {
	uint64_t memory[2];
	uint64_t base;
	uint64_t offset;
	uint64_t size; /* bytes of the region */
	/* Allocations of the memory; NULL: no other memory shares any of them. */
	const struct memory_chunks *chunks;
};

static inline bool places_in_one_memory(const struct tensor_place *a, const struct tensor_place *b)
{
	return a->memory[0] == b->memory[0] && a->memory[1] == b->memory[1];
}

/* Two tensors as requested, and the range of bytes that each touches. */
struct transform_sides {
	const struct tensor_layout *dst;
	const struct tensor_layout *src;
	struct tensor_extent dst_extent;
	struct tensor_extent src_extent;
	const char *dst_name; /* what errors call dst; NULL: "dst" */
};

static inline struct transform_sides transform_sides(const struct transform *t)
{
	return (struct transform_sides){ .dst = &t->dst_layout,
		                         .src = &t->src_layout,
		                         .dst_extent = t->dst_extent,
		                         .src_extent = t->src_extent };
}

/* Checks that a transform may run between these places: both tensors lie within their regions, and they share
 * no byte (OVERLAP). The check is exact, also for interleaved views, with two exceptions that are refused:
 * tensors whose common allocations lie at different distances in the two memories, and tensors of which only
 * some allocations are common. */
int transform_check_sides(const struct transform_sides *sides, const struct tensor_place *dst,
                          const struct tensor_place *src, struct error *err);

/* Does the same for the destination and another tensor, which takes the place of src and is called `name` in
 * errors. Only that tensor's range is checked. */
int transform_check_side(const struct transform_sides *sides, const struct tensor_place *dst,
                         const struct tensor_place *place, const char *name, struct error *err);

/* Refuses a destination of which two elements share a byte (OVERLAP). */
int transform_check_self_overlap(const struct tensor_layout *dst, const char *name, struct error *err);

#endif
