/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine chooses when it is opened: the sizes at which it changes its method. Tests force others, so
 * that small cases take every path. */
#ifndef KERNELS_CUDA_SCHED_LIMITS_H
#define KERNELS_CUDA_SCHED_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

struct cuda_limits {
	uint32_t jobs;             /* under way at most; of one owner's half of them */
	uint32_t stream_jobs;      /* of one stream */
	uint64_t owner_bytes;      /* read and written, of one owner's jobs under way but for long ones on the
	                              device, unless it is one job */
	uint64_t short_bytes;      /* read and written, of a job that is not long: on the device */
	uint64_t short_host_bytes; /* the same where some of it is in host memory */
	uint32_t long_jobs;        /* of one owner under way, on the device */
	uint64_t ahead_ns;    /* of the device's time, that an owner may have had more than another whose long
	                         jobs its short ones pass */
	uint32_t quick_moves; /* of a list, in all layers, or a batch that the owner's thread may launch */
	uint32_t staged_jobs; /* that use scratch memory or run in rounds; of one owner's half of them */
	uint64_t direct_bytes;
	uint64_t round_bytes;
	uint64_t row_bytes;
	uint64_t shared_row_bytes; /* the same where others are seen on the device (sharing.h) */
	uint64_t tile_bytes;       /* of a transposed job between two places on the host */
	uint64_t tile_row_bytes;
	uint64_t scratch_bytes;    /* at most, of what the device has */
	uint64_t scratch_idle_ns;  /* after which scratch memory is given back */
	uint64_t sharing_slack_ns; /* beyond which a job's time says that others compute (sharing.h) */
	/* Of lists of blocks on the host (packing.h). */
	uint32_t pack_threads;
	uint32_t pack_slots; /* of both directions */
	uint64_t pack_slot_bytes;
	bool pack_alone; /* Threads pack blocks also where nobody else is seen on the device (sharing.h). */
	uint64_t pack_least_bytes;
	uint64_t pack_run_bytes;
	uint64_t pack_piece_bytes;
	uint64_t pack_stretch_bytes; /* of the first stretch */
	uint64_t spin_ns; /* since the last event, before the thread begins to sleep between passes */
	uint64_t most_sleep_ns;
};

/* For a device with that much memory; or the one forced. */
struct cuda_limits cuda_limits_get(uint64_t memory_bytes);

/* For tests: what cuda_limits_get gives from now on; NULL ends it. Not while an engine is being opened. */
void cuda_limits_force(const struct cuda_limits *limits);

#endif
