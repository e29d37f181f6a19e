/* SPDX-License-Identifier: Apache-2.0 */
/* There is one operation: dst[...] = pad(cast(permute(src, perm) * scale + bias), before, after, mode,
 * value), with NumPy's meaning; without a cast elements are moved as they are. In place of scale and bias
 * there may be scales that are computed on the way (amax).
 *
 * transform_init validates a request once, without addresses, and reduces it to axes in the destination's
 * order with strides in bytes. Everything below (subregions, loop nests, plans) is derived from it and cannot
 * fail.
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

/* The family of a transform says how its interior moves. Every reply carries it. */
enum family {
	FAMILY_MEMCPY,         /* one contiguous run on both sides */
	FAMILY_TILE_COPY,      /* rows: the inner dimension is contiguous on both sides */
	FAMILY_TILE_TRANSPOSE, /* 2-D tiles: the sides are contiguous along different dimensions */
	FAMILY_STRIDED,        /* everything else */
	FAMILY_FILL,           /* no source is read */
	FAMILY_CONVERT,        /* elements are converted (struct conversion) */
	FAMILY_COUNT
};

extern const char *const family_names[FAMILY_COUNT];

/* A rule says why a better family was not legal. */
struct family_rule {
	enum family family;
	char text[120];
};

#define FAMILY_MOST_RULES 12

struct family_rules {
	int n;
	struct family_rule rule[FAMILY_MOST_RULES];
};

/* Adds a rule. Rules past FAMILY_MOST_RULES are left out. */
__attribute__((format(printf, 3, 4))) void family_rules_add(struct family_rules *rules, enum family family,
                                                            const char *format, ...);

/* ---- Scales that are computed on the way --------------------------------------------------------------- */

/* For each block of the destination, the largest magnitude of its source gives the scale by which a reader
 * multiplies, and its inverse, by which elements are multiplied before they are cast. amax_result_spec is one
 * of the two, as requested. */
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

/* One number of each block is written here. */
struct amax_result {
	bool is;
	enum dtype dtype;                /* float32; or uint8 for the biased exponent of a power of two */
	int64_t stride[TENSOR_MAX_RANK]; /* bytes from block to block, by axis of the destination */
	struct tensor_layout layout;     /* as requested, for checks against regions */
	struct tensor_extent extent;
};

struct amax {
	bool is; /* false: nothing else has a meaning */
	struct amax_rule rule;
	int64_t block[TENSOR_MAX_RANK]; /* extents by axis of the destination, each at most the axis's */
	struct amax_result scale, inverse;
};

/* Checks a request for scales of the destination dst, and reduces their tensors to strides by axis. Refuses
 * types that are not floating or are float64, blocks of another rank or less than 1, and results of another
 * shape or type. */
int amax_init(struct amax *ret, const struct amax_spec *spec, const struct tensor_layout *dst,
              enum dtype from, struct error *err);

/* Writes a scale or an inverse as the result has it, little-endian, and returns its bytes. */
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

/* A conversion is dst = cast(src * scale + bias), for a destination of another type; or, with scales that are
 * computed on the way, dst = cast(src * inverse).
 *
 * Elements are taken to the type that is calculated in (arithmetic), multiplied and added to, which rounds
 * twice, and then rounded to the destination's type; kernels/transform/lanes.h has the formulas. scale and
 * bias are numbers or tensors that broadcast against the permuted source, before it is cropped and padded, as
 * in NumPy: they are aligned at the last dimension, and an extent of 1 repeats. */
enum operand_kind {
	OPERAND_NONE,
	OPERAND_NUMBER, /* the number comes with the job: plans are the same for all of them */
	OPERAND_TENSOR,
};

/* scale or bias, as requested. */
struct operand_spec {
	enum operand_kind kind;
	struct tensor_layout layout; /* layout of a tensor */
};

struct conversion_spec {
	bool is_given; /* false: the types have to be the same, and there is no operand */
	enum cast cast;
	struct operand_spec scale, bias;
	struct amax_spec amax;
};

/* Values are calculated in this type. */
enum arithmetic {
	ARITHMETIC_FLOAT32,
	ARITHMETIC_FLOAT64, /* if one side is float64, or an integer of 32 or 64 bits */
	ARITHMETIC_NONE,    /* from integers to integers, without operands: no value is rounded */
};

struct operand {
	enum operand_kind kind;
	enum dtype dtype;                /* float32 or float64; a number is float64 without strides */
	int64_t stride[TENSOR_MAX_RANK]; /* bytes, by axis of the destination */
	int64_t shift; /* bytes from its element [0, ..., 0] to the one of the first element that is not
	                  cropped */
	struct tensor_layout
	    layout; /* as requested, for checks against regions; as the next one of a tensor */
	struct tensor_extent extent;
};

struct conversion {
	bool is; /* false: elements are moved as they are, and nothing else has a meaning */
	enum cast cast;
	enum arithmetic arithmetic;
	bool is_lossy; /* Elements may lose what their new type lacks before they are rounded to it: a NaN of
	                  bfloat16 its payload, and a 64-bit integer the bits that float64 lacks, so that it
	                  is rounded to odd. */
	enum dtype from, to;
	struct operand scale, bias; /* with amax, scale is a number: a block's inverse */
	struct amax amax;
};

/* Tells if integers become integers by their bits, of which the low ones stay. */
static inline bool conversion_wraps(const struct conversion *conversion)
{
	return conversion->cast == CAST_IEEE && conversion->arithmetic == ARITHMETIC_NONE;
}

/* Checks a conversion and reduces its operands to strides by axis. shape is that of the permuted source, and
 * a crop takes cropped[d] of its elements away before the first one that is used, by axis of the destination.
 * Refuses complex types, operands of types other than float32 and float64 and those that do not broadcast,
 * and an operand or another type without a cast. */
int conversion_init(struct conversion *ret, const struct conversion_spec *spec, enum dtype to,
                    enum dtype from, int rank, const int64_t *shape, const int64_t *cropped,
                    struct error *err);

/* ---- Transforms ---------------------------------------------------------------------------------------- */

/* A transform_spec is a transform as it was requested. before and after are given for each dimension of the
 * destination; a negative one crops. A crop is taken first, then what is left is padded: mode reflect with
 * before = -1, after = 1 reflects the cropped edge. */
struct transform_spec {
	struct tensor_layout dst;
	struct tensor_layout src;
	int n_perm;   /* -1: no perm given, identity; else must be src.rank */
	int n_before; /* -1: none, zeros; else must be src.rank */
	int n_after;
	int64_t perm[TENSOR_MAX_RANK];
	int64_t before[TENSOR_MAX_RANK];
	int64_t after[TENSOR_MAX_RANK];
	enum pad_mode mode;
	struct scalar value;
	struct conversion_spec conversion;
	bool dst_is_checked; /* the caller knows that no two elements of dst share a byte */
};

/* An axis is one dimension of the destination. Output index o in [0, extent) reads source index o - before
 * when that is in [0, source), else the border rule of the mode applies. All strides are in bytes. */
struct transform_axis {
	int64_t extent;
	int64_t before; /* >= 0 */
	int64_t source; /* extent of the source after cropping */
	int64_t dst_stride;
	int64_t src_stride;
};

struct transform {
	int rank;
	uint32_t element;     /* bytes of an element of the destination: 1, 2, 4, 8 or 16 */
	uint32_t src_element; /* the same for the source; differs only in a conversion */
	struct conversion conversion;
	enum pad_mode mode;
	uint8_t fill[TENSOR_MAX_ELEMENT]; /* the value's bits */
	struct transform_axis axis[TENSOR_MAX_RANK];
	int64_t src_shift; /* bytes from the source's element [0, ..., 0] to the first one not cropped */
	int64_t count;     /* elements of the destination */
	uint64_t bytes;    /* read plus written: all elements of the destination, and those of the source that
	                      are read */
	/* These are as the request gave them, for range and overlap checks against regions. */
	struct tensor_layout dst_layout;
	struct tensor_layout src_layout;
	struct tensor_extent dst_extent;
	struct tensor_extent src_extent;
};

/* Refuses, with one sentence that names the argument, the rule and the value: shapes, ranks or dtypes that do
 * not agree; a perm that is none; a crop that leaves nothing of a dimension; padding an empty dimension
 * with a mode other than constant; a value that the dtype cannot hold; a destination that overlaps
 * itself. */
int transform_init(struct transform *t, const struct transform_spec *spec, struct error *err);

/* A tensor's element [0, ..., 0] lies here: memory identifies what is shared (equal for two regions of one
 * memory), base is the region's first byte in it, offset the tensor's in the region. */
struct tensor_place {
	uint64_t memory[2];
	uint64_t base;
	uint64_t offset;
	uint64_t size;                      /* size of the region */
	const struct memory_chunks *chunks; /* of the memory; NULL: no other memory has any of them */
};

static inline bool places_in_one_memory(const struct tensor_place *a, const struct tensor_place *b)
{
	return a->memory[0] == b->memory[0] && a->memory[1] == b->memory[1];
}

/* Two tensors as a request gave them, and the bytes that they touch. */
struct transform_sides {
	const struct tensor_layout *dst;
	const struct tensor_layout *src;
	struct tensor_extent dst_extent;
	struct tensor_extent src_extent;
	const char *dst_name; /* NULL: "dst" */
};

static inline struct transform_sides transform_sides(const struct transform *t)
{
	return (struct transform_sides){ .dst = &t->dst_layout,
		                         .src = &t->src_layout,
		                         .dst_extent = t->dst_extent,
		                         .src_extent = t->src_extent };
}

/* Checks that a transform may run between these places: both tensors lie within their regions, and no byte of
 * the destination is also the source's (OVERLAP). This is exact, also for interleaved views, unless they
 * share allocations that lie differently in the two memories, or only some of those between them. */
int transform_check_sides(const struct transform_sides *sides, const struct tensor_place *dst,
                          const struct tensor_place *src, struct error *err);

/* Does the same for the destination and another tensor, in the place of src, that is called `name`. */
int transform_check_side(const struct transform_sides *sides, const struct tensor_place *dst,
                         const struct tensor_place *place, const char *name, struct error *err);

/* Refuses a destination if two of its elements share a byte (OVERLAP). */
int transform_check_self_overlap(const struct tensor_layout *dst, const char *name, struct error *err);

#endif
