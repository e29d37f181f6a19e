/* SPDX-License-Identifier: Apache-2.0 */
/* The time that it takes to read a few lines tells whether memory that will be written is in a cache. */
#ifndef KERNELS_CPU_MOVE_COLD_H
#define KERNELS_CPU_MOVE_COLD_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/clock.h"

#define COLD_READS 4

/* Reads a few of the n bytes at start, and returns whether that took cold_ns or longer by the clock, which is
 * asked before the reads and after them. The answer is a guess, and either one is safe. If cold_ns is 0 or
 * UINT64_MAX, it is yes or no without a look. The call must be under a guard, as any access must.
 *
 * No distance between the lines repeats from one destination to the next. With lines a quarter of it apart,
 * 60 % of the destinations in memory that follow each other were answered as fast as by a cache, with these
 * none; uint8 [256,256] transposed 0.54 and 0.66 of memcpy's speed. Other threads may be writing there: what
 * is read is thrown away. */
__attribute__((no_sanitize("thread"))) static inline bool
cold_is_by(uint64_t (*clock)(void), const char *start, int64_t n, uint64_t cold_ns)
{
	const volatile char *p = start;
	uint64_t state = (uintptr_t)start;
	int64_t part = n / COLD_READS;
	if (cold_ns == 0 || cold_ns == UINT64_MAX || part == 0)
		return cold_ns == 0;
	uint64_t start_ns = clock();
	for (int64_t i = 0; i < COLD_READS; i++) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		(void)p[part * i + (int64_t)(state >> 33) % part];
	}
	return clock() - start_ns >= cold_ns;
}

static inline bool cold_is(const char *start, int64_t n, uint64_t cold_ns)
{
	return cold_is_by(clock_ns, start, n, cold_ns);
}

#endif
