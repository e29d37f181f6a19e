/* SPDX-License-Identifier: Apache-2.0 */
/* Stretches of bytes, in 128 bits, where no sum of theirs overflows. */
#ifndef KERNELS_TRANSFORM_STRETCH_H
#define KERNELS_TRANSFORM_STRETCH_H

#include <stdbool.h>
#include <stdint.h>

typedef __int128 int128;

#define INT128_FARTHEST ((int128)1 << 100) /* for what 64 bits do not hold: past every region */

struct stretch {
	int128 low;
	int128 high;
};

/* All there is. */
static inline struct stretch stretch_farthest(void)
{
	return (struct stretch){ .low = -INT128_FARTHEST, .high = INT128_FARTHEST };
}

static inline int128 int128_product(uint64_t a, uint64_t b)
{
	uint64_t ab;

	return __builtin_mul_overflow(a, b, &ab) ? INT128_FARTHEST : (int128)ab;
}

static inline struct stretch stretch_shift(struct stretch stretch, int128 by)
{
	return (struct stretch){ stretch.low + by, stretch.high + by };
}

static inline bool stretch_is_within(struct stretch inner, struct stretch outer)
{
	return outer.low <= inner.low && inner.high <= outer.high;
}

static inline bool stretches_meet(struct stretch a, struct stretch b)
{
	return a.low < b.high && b.low < a.high;
}

#endif
