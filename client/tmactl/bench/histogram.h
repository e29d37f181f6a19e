/* SPDX-License-Identifier: Apache-2.0 */
/* A histogram on a logarithmic scale. It has 64 bars per octave over the whole range of 64 bits, so a
 * percentile is at most 1.6 % too high. A zero-initialized histogram is empty. Nothing is allocated. */
#ifndef CLIENT_TMACTL_BENCH_HISTOGRAM_H
#define CLIENT_TMACTL_BENCH_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BITS 6
#define HISTOGRAM_BARS ((64 - HISTOGRAM_BITS + 1) << HISTOGRAM_BITS)

struct histogram {
	uint64_t count;               /* values added */
	uint64_t max;                 /* greatest of them; 0 if there are none */
	uint64_t bar[HISTOGRAM_BARS]; /* values in each bar */
};

void histogram_add(struct histogram *h, uint64_t value);

/* Returns a value that at least `percent` percent of all values do not exceed: the upper end of the first bar
 * for which this is true, but at most the greatest value that was added. Returns 0 if the histogram is
 * empty. */
uint64_t histogram_percentile(const struct histogram *h, double percent);

/* histogram_bar() returns the index of the bar that a value belongs to, and histogram_bar_last() the greatest
 * value of a bar. */
unsigned histogram_bar(uint64_t value);
uint64_t histogram_bar_last(unsigned bar);

#endif
