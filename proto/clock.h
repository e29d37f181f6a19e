/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock by which all times and deadlines are measured, and histograms of latencies. The clock
 * starts at an arbitrary time, and nobody can set it. */
#ifndef PROTO_CLOCK_H
#define PROTO_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static inline int64_t clock_ms(void)
{
	return (int64_t)(clock_ns() / 1000000);
}

static inline double clock_s(void)
{
	return (double)clock_ns() / 1e9;
}

/* ---- Histograms of latencies --------------------------------------------------------------------------- */

/* Bar i counts latencies of at least 1 us << (i - 1) and less than 1 us << i; bar 0 counts those below 1 us,
 * and the last bar all others. */
#define LATENCY_BARS 26

/* Returns the bar of a latency: the number of bits of its whole microseconds, limited to the last bar. */
static inline int latency_bar(uint64_t ns)
{
	const uint64_t us = ns / 1000;
	const int bar = us ? 64 - __builtin_clzll(us) : 0;

	return bar < LATENCY_BARS ? bar : LATENCY_BARS - 1;
}

/* Returns the exclusive upper bound of a bar in nanoseconds; 0 for the last bar, which has none. */
static inline uint64_t latency_bound(int bar)
{
	return bar == LATENCY_BARS - 1 ? 0 : UINT64_C(1000) << bar;
}

#endif
