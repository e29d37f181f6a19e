/* SPDX-License-Identifier: Apache-2.0 */
/* Minimum, maximum, magnitude, greatest common divisor and quotients that are rounded up, each for the types
 * that use it. */
#ifndef PROTO_ARITHMETIC_H
#define PROTO_ARITHMETIC_H

#include <stdint.h>

static inline int64_t min_i64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static inline uint32_t max_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* The greatest common divisor of 0 and a is a. */
static inline uint64_t gcd_u64(uint64_t a, uint64_t b)
{
	while (b) {
		const uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* a must not be INT64_MIN. */
static inline int64_t magnitude_i64(int64_t a)
{
	return a < 0 ? -a : a;
}

/* Returns a / b, rounded up; a >= 0, b > 0. Quotients up to 1, which are the most frequent ones in plans of
 * moves, need no division. */
static inline int64_t divide_up_i64(int64_t a, int64_t b)
{
	return a <= b ? a > 0 : a / b + (a % b != 0);
}

static inline uint64_t divide_up_u64(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

#endif
