/* SPDX-License-Identifier: Apache-2.0 */
/* Whether other processes compute on the device, as far as the engine can tell.
 *
 * A kernel that reads or writes host memory occupies multiprocessors while it waits for the bus. Alone it is
 * the fastest way for a list of blocks; beside a model that computes, both lose more than half of their
 * speed, and the threads and the copy engines carry the bytes instead (tests/bench/EXPERIMENTS.md). Under MPS
 * kernels run side by side and the engine sees nothing, so that others are taken for granted. Without it the
 * processes alternate by time slices of milliseconds, and jobs take far longer than their bytes account for.
 */
#ifndef KERNELS_CUDA_SHARING_H
#define KERNELS_CUDA_SHARING_H

#include <stdbool.h>
#include <stdint.h>

/* How long what was seen counts: then a job tries again, at the neighbours' expense. */
#define SHARING_HOLDS_NS UINT64_C(2000000000)

struct sharing {
	bool by_mps;
	uint64_t slack_ns; /* that a job may take longer than its bytes account for */
	uint64_t until_ns; /* by the monotonic clock; 0: nobody was seen */
};

/* A job that no other job of the engine ran beside took so long. by_bus: some of its bytes lie on the host.
 */
static inline void sharing_note(struct sharing *sharing, uint64_t now_ns, uint64_t took_ns, uint64_t bytes,
                                bool by_bus)
{
	const uint64_t bytes_a_us = by_bus ? 90000 : 1000000; /* read and written */
	const uint64_t expected_ns = bytes / bytes_a_us * 1000;

	if (took_ns > expected_ns + expected_ns / 2 + sharing->slack_ns)
		sharing->until_ns = now_ns + SHARING_HOLDS_NS;
}

static inline bool sharing_is_seen(const struct sharing *sharing, uint64_t now_ns)
{
	return sharing->by_mps || now_ns < sharing->until_ns;
}

#endif
