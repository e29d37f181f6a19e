/* SPDX-License-Identifier: Apache-2.0 */
/* The engine guesses whether other processes compute on the device.
 *
 * A kernel that reads or writes host memory occupies multiprocessors while it waits for the bus. Alone it is
 * the fastest way for blocks that are scattered on the host; beside a model that computes, both lose more
 * than half of their speed, and the threads and the copy engines carry the bytes instead
 * (tests/bench/EXPERIMENTS.md). Under MPS kernels run side by side and the engine sees nothing, so that
 * others are taken for granted. Without it the processes alternate by time slices of milliseconds, and jobs
 * take far longer than their bytes account for.
 */
#ifndef KERNELS_CUDA_SCHED_SHARING_H
#define KERNELS_CUDA_SCHED_SHARING_H

#include <stdbool.h>
#include <stdint.h>

/* Neighbours that were seen count for so long. Then a job tries again, at their expense. */
#define SHARING_HOLDS_NS UINT64_C(2000000000)

struct sharing {
	bool by_mps;
	uint64_t slack_ns; /* A job may take so much longer than its bytes account for. */
	uint64_t until_ns; /* Neighbours count until then, by the monotonic clock; 0: none were seen. */
};

/* Returns whether work that reads and writes so many bytes must have waited for others. by_bus says that some
 * of the bytes lie on the host. */
static inline bool sharing_is_late(uint64_t slack_ns, uint64_t took_ns, uint64_t bytes, bool by_bus)
{
	const uint64_t bytes_a_us = by_bus ? 90000 : 1000000;
	const uint64_t expected_ns = bytes / bytes_a_us * 1000;

	return took_ns > expected_ns + expected_ns / 2 + slack_ns;
}

/* Notes that work had to wait for others. */
static inline void sharing_see(struct sharing *sharing, uint64_t now_ns)
{
	sharing->until_ns = now_ns + SHARING_HOLDS_NS;
}

/* Notes how long a job took that had the engine to itself. */
static inline void sharing_note(struct sharing *sharing, uint64_t now_ns, uint64_t took_ns, uint64_t bytes,
                                bool by_bus)
{
	if (sharing_is_late(sharing->slack_ns, took_ns, bytes, by_bus))
		sharing_see(sharing, now_ns);
}

/* Returns whether work has waited for others of late. */
static inline bool sharing_is_felt(const struct sharing *sharing, uint64_t now_ns)
{
	return now_ns < sharing->until_ns;
}

static inline bool sharing_is_seen(const struct sharing *sharing, uint64_t now_ns)
{
	return sharing->by_mps || sharing_is_felt(sharing, now_ns);
}

#endif
