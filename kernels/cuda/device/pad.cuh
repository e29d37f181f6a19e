/* SPDX-License-Identifier: Apache-2.0 */
/* Maps an index of a padded destination to the index of the source that it reads, by the pad mode (enum
 * pad_mode). */
#ifndef KERNELS_CUDA_DEVICE_PAD_CUH
#define KERNELS_CUDA_DEVICE_PAD_CUH

#include "kernels/nest/border.h"
#include "tma.cuh"

enum pad_rule { PAD_RULE_CONSTANT, PAD_RULE_EDGE, PAD_RULE_REFLECT, PAD_RULE_SYMMETRIC, PAD_RULE_WRAP };

/* Returns a modulo b, which is never negative. */
DEVICE int64_t wrap_around(int64_t a, int64_t b)
{
	if (a >= 0 && a < b)
		return a;
	int64_t m = a % b;

	return m < 0 ? m + b : m;
}

/* Returns the source index that destination index i reads, as numpy.pad defines the modes. In mode constant,
 * indices of the border give the nearest edge. */
DEVICE int64_t source_index(const strided_dim &dim, uint32_t mode, int64_t i)
{
	int64_t at = i - dim.before, n = dim.source;

	if (at >= 0 && at < n)
		return at;
	switch (mode) {
	case PAD_RULE_REFLECT: {
		int64_t m = n > 1 ? wrap_around(at, 2 * n - 2) : 0;

		return m < n ? m : 2 * n - 2 - m;
	}
	case PAD_RULE_SYMMETRIC: {
		int64_t m = wrap_around(at, 2 * n);

		return m < n ? m : 2 * n - 1 - m;
	}
	case PAD_RULE_WRAP:
		return wrap_around(at, n);
	default:
		return at < 0 ? 0 : n - 1;
	}
}

#endif
