/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of latencies. Bar i counts latencies below 1 us << i and not below half of that; the last bar
 * counts everything else. */
#ifndef PROTO_LATENCY_H
#define PROTO_LATENCY_H

#include <stdint.h>

#define LATENCY_BARS 26

/* Returns the bar of a latency: the number of bits of the whole microseconds. */
static inline int latency_bar(uint64_t ns)
{
	const uint64_t us = ns / 1000;
	const int bar = us ? 64 - __builtin_clzll(us) : 0;

	return bar < LATENCY_BARS ? bar : LATENCY_BARS - 1;
}

/* Returns the upper bound of a bar in nanoseconds, exclusive; 0 for the last. */
static inline uint64_t latency_bound(int bar)
{
	return bar == LATENCY_BARS - 1 ? 0 : UINT64_C(1000) << bar;
}

#endif
