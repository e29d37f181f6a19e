/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces division by a number that is known before a kernel is launched by a multiplication and a shift,
 * because a division would cost twenty instructions. The result is exact for numerators below 2^31 (Granlund
 * and Montgomery, "Division by Invariant Integers using Multiplication"); larger ones use an ordinary
 * division. */
#ifndef KERNELS_NEST_DIVISOR_H
#define KERNELS_NEST_DIVISOR_H

#include <stdint.h>

#ifdef __CUDACC__
#define ON_BOTH_SIDES static __host__ __device__ __forceinline__
#else
#define ON_BOTH_SIDES static inline
#endif

struct divisor {
	uint64_t n;
	uint32_t factor; /* ceil(2^shift / n), or 0 if n is 0 or not below 2^31 */
	uint32_t shift;
};

ON_BOTH_SIDES struct divisor divisor_of(uint64_t n)
{
	struct divisor by = { n, 0, 31 };

	if (n == 0 || n >> 31)
		return by;
	while (UINT64_C(1) << (by.shift - 31) < n)
		by.shift++;
	by.factor = (uint32_t)(((UINT64_C(1) << by.shift) + n - 1) / n);
	return by;
}

ON_BOTH_SIDES uint64_t divide_by(uint64_t a, const struct divisor *by)
{
	if (a >> 31 || !by->factor)
		return a / by->n;
	return (uint32_t)((a * by->factor) >> by->shift);
}

/* Does the same for a and n, both of which must be below 2^31. */
ON_BOTH_SIDES uint32_t divide_u32(uint32_t a, const struct divisor *by)
{
	return (uint32_t)(((uint64_t)a * by->factor) >> by->shift);
}

#endif
