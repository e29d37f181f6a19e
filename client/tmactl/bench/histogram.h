/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram on a logarithmic scale: 64 bars per octave over all of 64 bits, so that a percentile is at
 * most 1.6 % too high. A zero-initialised histogram is empty; it allocates nothing. */
#ifndef CLIENT_TMACTL_BENCH_HISTOGRAM_H
#define CLIENT_TMACTL_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS 6
#define HISTOGRAM_BARS ((64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
	uint64_t count;
	uint64_t max;
	uint64_t bar[HISTOGRAM_BARS];
};

void histogram_add(struct histogram *h, uint64_t value);

/* The smallest value that at least percent of all are no greater than, up to the end of its bar; never more
 * than the greatest. 0 when there is none. */
uint64_t histogram_percentile(const struct histogram *h, double percent);

/* The bar of a value, and its last value. */
unsigned histogram_bar(uint64_t value);
uint64_t histogram_bar_last(unsigned bar);

#endif
