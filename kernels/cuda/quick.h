/* SPDX-License-Identifier: Apache-2.0 */
/* Quick jobs: short ones that have the engine to themselves when they start. For those it counts how soon
 * their end is seen, and an event that keeps the time is seen 2 to 3 us later than one that does not
 * (tests/bench/EXPERIMENTS.md). So only one in QUICK_TIMED is timed by the device. It tells how much longer
 * such jobs take by the clock than on the device, which is subtracted from the time of the others.
 *
 * An engine has one struct, zeroed at first, for its thread.
 */
#ifndef KERNELS_CUDA_QUICK_H
#define KERNELS_CUDA_QUICK_H

#include <stdbool.h>
#include <stdint.h>

#define QUICK_TIMED    16
#define QUICK_BYTES    (2 << 20) /* read and written, at most: the device takes some microseconds */
#define QUICK_LEAST_NS 1000      /* that one that is not timed is said to have taken */
#define QUICK_MOST_NS  20000     /* the rest is a wait for others */

struct quick {
	uint32_t n;        /* jobs so far */
	uint64_t extra_ns; /* by the clock, on average of the last few that were timed */
};

/* For each job, once. The first one is timed. */
static inline bool quick_is_timed(struct quick *quick)
{
	return quick->n++ % QUICK_TIMED == 0;
}

/* Of one that was timed. */
static inline void quick_learn(struct quick *quick, uint64_t clock_ns, uint64_t device_ns)
{
	const uint64_t extra = clock_ns > device_ns ? clock_ns - device_ns : 0;

	quick->extra_ns = quick->n <= QUICK_TIMED ? extra : (3 * quick->extra_ns + extra) / 4;
}

/* The device's time of one that was not. */
static inline uint64_t quick_ns(const struct quick *quick, uint64_t clock_ns)
{
	const uint64_t ns = clock_ns > quick->extra_ns ? clock_ns - quick->extra_ns : 0;

	if (ns < QUICK_LEAST_NS)
		return QUICK_LEAST_NS;
	return ns < QUICK_MOST_NS ? ns : QUICK_MOST_NS;
}

#endif
