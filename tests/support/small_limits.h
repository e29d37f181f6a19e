/* SPDX-License-Identifier: Apache-2.0 */
/* Lowers the limits of the CUDA engine, so that small jobs take the same paths as large ones: several rounds,
 * little scratch memory, and one job after the other. */
#ifndef TESTS_SUPPORT_SMALL_LIMITS_H
#define TESTS_SUPPORT_SMALL_LIMITS_H

#include "kernels/cuda/stage/jobs.h"

static inline struct cuda_limits small_limits(void)
{
	return (struct cuda_limits){
		.jobs = 8,
		.stream_jobs = 4,
		.owner_bytes = 1 << 20,
		.short_bytes = 1 << 19,
		.short_host_bytes = 1 << 16,
		.long_jobs = 2,
		.ahead_ns = 5000000,
		.quick_moves = 8,
		.pack_alone = true,
		.staged_jobs = 4,
		.direct_bytes = 256,
		.round_bytes = 1000,
		.row_bytes = 20,
		.shared_row_bytes = 4,
		.tile_bytes = 600,
		.tile_row_bytes = 20,
		.scratch_bytes = 64 << 10,
		.scratch_idle_ns = 10000000000,
		.sharing_slack_ns = 500000,
		.spin_ns = 20000,
		.most_sleep_ns = 1000000,
	};
}

#endif
