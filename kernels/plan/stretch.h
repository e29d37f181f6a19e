/* SPDX-License-Identifier: Apache-2.0 */
/* Stretches of bytes, in 128 bits, where no sum of theirs overflows. */
#ifndef KERNELS_PLAN_STRETCH_H
#define KERNELS_PLAN_STRETCH_H

#include <stdbool.h>
#include <stdint.h>

typedef __int128 int128;

#define INT128_FARTHEST ((int128)1 << 100) /* for what 64 bits do not hold: past every region */

struct stretch {
	int128 low;
	int128 high;
};

static inline int128 int128_product(uint64_t a, uint64_t b)
{
	uint64_t ab;

	return __builtin_mul_overflow(a, b, &ab) ? INT128_FARTHEST : (int128)ab;
}

static inline struct stretch stretch_shift(struct stretch stretch, int128 by)
{
	return (struct stretch){ stretch.low + by, stretch.high + by };
}

static inline bool stretches_meet(struct stretch a, struct stretch b)
{
	return a.low < b.high && b.low < a.high;
}

#endif
