/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA engine's sizes and times, each with its reason. */
#include "limits.h"

#include <stdbool.h>

#include "kernels/host/packers.h"
#include "proto/arithmetic.h"

static struct cuda_limits forced;
static bool is_forced;

struct cuda_limits cuda_limits_get(uint64_t memory_bytes)
{
	if (is_forced)
		return forced;
	return (struct cuda_limits){
		/* What waits on the device cannot be cancelled, nor can others pass it. */
		.jobs = 64,
		/* So that the device has the next job at hand while the thread is busy elsewhere. */
		.stream_jobs = 8,
		/* Some hundred microseconds of a device that copies terabytes a second. */
		.owner_bytes = 256 << 20,
		/* What the device moves in some 30 us, and the bus. */
		.short_bytes = 128 << 20,
		.short_host_bytes = 2 << 20,
		/* One that runs, and the next. */
		.long_jobs = 2,
		/* Ten times what waits on the device: what has not ended has not been charged. */
		.ahead_ns = 5000000,
		/* They are laid out in some microseconds. */
		.quick_moves = 512,
		/* One comes in while another goes out; more would only share the same link. */
		.staged_jobs = 4,
		/* As long as a copy takes to begin. */
		.direct_bytes = 32 << 10,
		/* Long enough for the link's full speed, short against the whole. */
		.round_bytes = 16 << 20,
		/* Copies of rows of 1 KiB reach 27 GB/s, of 4 KiB 33, of 8 KiB 47, of 32 KiB 51; a kernel
		 * that reads the host's memory 47, but beside others less than copies of any. */
		.row_bytes = 8 << 10,
		.shared_row_bytes = 1 << 10,
		/* With both directions busy: rows of 4 KiB 29 to 33 GB/s, of 8 KiB 37 to 40, of 8 KiB in and
		 * 16 out, as such tiles have them, 45 to 47, of 32 KiB 50. */
		.tile_bytes = 32 << 20,
		.tile_row_bytes = 8 << 10,
		.scratch_bytes = min_u64(memory_bytes / 8, UINT64_C(1) << 30),
		.scratch_idle_ns = UINT64_C(10000000000),
		/* Time slices are milliseconds; the host is seldom late by half of one. */
		.sharing_slack_ns = 500000,
		/* Four threads pack faster than the bus is; they have other memory to wait for, too. */
		.pack_threads = packers_default_threads(),
		/* What stays in the last-level cache, and in each direction more than the bus takes while the
		 * thread is busy elsewhere. */
		.pack_slots = 16,
		.pack_slot_bytes = 2 << 20,
		/* A tenth of the time that a kernel needs for it would go by before it begins. */
		.pack_least_bytes = 1 << 20,
		/* Shorter ones take the threads longer than the bus. */
		.pack_run_bytes = 1 << 10,
		/* Copies take a microsecond or two to begin. */
		.pack_piece_bytes = 512 << 10,
		/* The bus has something to do after some 20 us, and then a launch for each half millisecond.
		 */
		.pack_stretch_bytes = 4 << 20,
		/* About what the smallest jobs take. */
		.spin_ns = 50000,
		.most_sleep_ns = 1000000,
	};
}

void cuda_limits_force(const struct cuda_limits *limits)
{
	is_forced = limits;
	if (limits)
		forced = *limits;
}
