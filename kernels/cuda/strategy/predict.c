/* SPDX-License-Identifier: Apache-2.0 */
/* The model of a copy: a fixed time, and a share of the bandwidth that the memory has on paper.
 *
 * On an H200 (tests/bench/EXPERIMENTS.md), 8.6 GB take 2020 us and 0.54 GB take 134 us: 4.27 TB/s, which are
 * 89 % of the 4.81 TB/s of its 6016 bits at 3.2 GHz, and 8 us more for a copy of any size.
 */
#include "predict.h"

#define COPY_SHARE    0.887
#define COPY_FIXED_NS 8000

struct copy_speed copy_speed_of(uint32_t memory_khz, uint32_t bus_bits)
{
	const double bytes_per_ns = 2.0 * memory_khz * 1e-6 * bus_bits / 8;

	return (struct copy_speed){ .bytes_per_ns = COPY_SHARE * bytes_per_ns, .fixed_ns = COPY_FIXED_NS };
}

double copy_speed_ns(const struct copy_speed *speed, uint64_t bytes)
{
	return speed->bytes_per_ns > 0 ? speed->fixed_ns + (double)bytes / speed->bytes_per_ns : 0;
}
