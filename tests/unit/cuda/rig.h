/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the tests of the CUDA engine: one engine on the stand-in driver, one owner of its streams, memory
 * of every kind, and jobs. Failures are Criterion's. The stand-in's device memory is memory of this process,
 * so tests read and write it directly. */
#ifndef TESTS_UNIT_CUDA_RIG_H
#define TESTS_UNIT_CUDA_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/stage/jobs.h"
#include "kernels/engine.h"
#include "tests/support/small_limits.h"

#define MOST_JOBS 512

extern struct engine *engine;
extern struct engine_owner owner;
extern int wakeups; /* an eventfd that the engine signals when jobs have come back */

/* Jobs in the order in which they came back. */
extern struct engine_job *done[MOST_JOBS];
extern size_t n_done;

/* Returns limits for lists of blocks on the host, with every size small or random. */
struct cuda_limits random_pack_limits(uint64_t *state);

/* Opens the engine; limits NULL: with its own limits. */
void open_engine(const struct cuda_limits *limits);

/* Opens the engine for an owner that calls engine_drive. */
void open_driven_engine(const struct cuda_limits *limits);

/* Closes the engine. Fails unless everything has been given back to the driver. */
void close_engine(void);

/* Waits until n jobs in all have come back. */
void wait_done(size_t n);

struct engine_memory *new_memory(enum region_kind kind, uint64_t size);
unsigned char *data(struct engine_memory *memory);

/* A job with the transform that it runs. */
struct work {
	struct engine_job job;
	struct transform transform;
};

/* Makes a job that copies or, with perm 1, 0, transposes float32 [n, n]. */
void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Makes a job of any transform. Offsets are those of elements [0, ..., 0] in the regions, in bytes. */
void work_init_spec(struct work *work, const struct transform_spec *spec, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset);

#endif
