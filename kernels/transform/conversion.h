/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of elements on the way: dst = cast(src * scale + bias), for a destination of another type; or,
 * with scales that are computed on the way (amax.h), dst = cast(src * inverse).
 *
 * Elements are taken to the type that is calculated in (arithmetic), multiplied and added to, which rounds
 * twice, and then rounded to the destination's type; kernels/transform/lanes.h has the formulas. scale and
 * bias are numbers or tensors that broadcast against the permuted source, before it is cropped and padded, as
 * in NumPy: aligned at the last dimension, an extent of 1 repeats.
 */
#ifndef KERNELS_TRANSFORM_CONVERSION_H
#define KERNELS_TRANSFORM_CONVERSION_H

#include <stdbool.h>
#include <stdint.h>

#include "amax.h"
#include "proto/status.h"
#include "proto/tensor.h"

enum operand_kind {
	OPERAND_NONE,
	OPERAND_NUMBER, /* it comes with the job: plans are the same for all of them */
	OPERAND_TENSOR,
};

/* scale or bias, as requested. */
struct operand_spec {
	enum operand_kind kind;
	struct tensor_layout layout; /* of a tensor */
};

struct conversion_spec {
	bool is_given; /* else the types have to be the same, and there is no operand */
	enum cast cast;
	struct operand_spec scale, bias;
	struct amax_spec amax;
};

/* What is calculated in. */
enum arithmetic {
	ARITHMETIC_FLOAT32,
	ARITHMETIC_FLOAT64, /* where one side is float64, or an integer of 32 or 64 bits */
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

/* Returns whether integers become integers by their bits, of which the low ones stay. */
static inline bool conversion_wraps(const struct conversion *conversion)
{
	return conversion->cast == CAST_IEEE && conversion->arithmetic == ARITHMETIC_NONE;
}

/* shape: of the permuted source; from[d]: how many of its elements a crop takes away before the first, by
 * axis of the destination. Refuses complex types, operands of types other than float32 and float64 and those
 * that do not broadcast, and an operand or another type without a cast. */
int conversion_init(struct conversion *ret, const struct conversion_spec *spec, enum dtype to,
                    enum dtype from, int rank, const int64_t *shape, const int64_t *cropped,
                    struct error *err);

#endif
