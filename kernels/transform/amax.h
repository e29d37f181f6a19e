/* SPDX-License-Identifier: Apache-2.0 */
/* Scales that are computed on the way: for each block of the destination, the largest magnitude of its
 * source, and from that the scale by which a reader multiplies, and its inverse, by which elements are
 * multiplied before they are cast.
 */
#ifndef KERNELS_TRANSFORM_AMAX_H
#define KERNELS_TRANSFORM_AMAX_H

#include <stdbool.h>
#include <stdint.h>

#include "amax_scale.h"
#include "proto/status.h"
#include "proto/tensor.h"

/* One of scale and inverse, as requested. */
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

/* Where one number of each block is written. */
struct amax_result {
	bool is;
	enum dtype dtype;                /* float32; or uint8, the biased exponent of a power of two */
	int64_t stride[TENSOR_MAX_RANK]; /* bytes from block to block, by axis of the destination */
	struct tensor_layout layout;     /* as requested, for checks against regions */
	struct tensor_extent extent;
};

struct amax {
	bool is; /* false: nothing else has a meaning */
	struct amax_rule rule;
	int64_t block[TENSOR_MAX_RANK]; /* extents by axis of the destination, of which they are at most */
	struct amax_result scale, inverse;
};

/* dst: the destination. Refuses types that are not floating or are float64, blocks of another rank or less
 * than 1, and results of another shape or type. */
int amax_init(struct amax *ret, const struct amax_spec *spec, const struct tensor_layout *dst,
              enum dtype from, struct error *err);

/* As it is written, little-endian. Gives its bytes. */
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

#endif
