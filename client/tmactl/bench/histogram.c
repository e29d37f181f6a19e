/* SPDX-License-Identifier: Apache-2.0 */
/* The bars of a histogram: each value below 2^HISTOGRAM_BITS has a bar of its own, and each octave above,
 * from a power of two to the next, is divided into 2^HISTOGRAM_BITS bars of equal width. */
#include "histogram.h"

#define OCTAVE (1u << HISTOGRAM_BITS)

unsigned histogram_bar(uint64_t value)
{
	unsigned shift;

	if (value < OCTAVE)
		return (unsigned)value;
	shift = 63 - HISTOGRAM_BITS - (unsigned)__builtin_clzll(value);
	return (shift << HISTOGRAM_BITS) + (unsigned)(value >> shift);
}

uint64_t histogram_bar_last(unsigned bar)
{
	unsigned shift = bar < OCTAVE ? 0 : (bar >> HISTOGRAM_BITS) - 1;
	uint64_t first = (uint64_t)(bar - (shift << HISTOGRAM_BITS)) << shift;

	return first + ((UINT64_C(1) << shift) - 1);
}

void histogram_add(struct histogram *h, uint64_t value)
{
	h->count++;
	h->bar[histogram_bar(value)]++;
	if (value > h->max)
		h->max = value;
}

uint64_t histogram_percentile(const struct histogram *h, double percent)
{
	double wanted = (double)h->count * percent / 100;
	uint64_t seen = 0;
	uint64_t last;

	for (unsigned bar = 0; bar < HISTOGRAM_BARS; bar++) {
		seen += h->bar[bar];
		if (!h->bar[bar] || (double)seen < wanted)
			continue;
		last = histogram_bar_last(bar);
		return last < h->max ? last : h->max;
	}
	return h->max;
}
