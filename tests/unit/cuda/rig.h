/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the engine share: one engine on the stand-in driver, one owner of its streams, memory of
 * every kind, and jobs. Failures are Criterion's. Device memory of the stand-in is this process's, so it is
 * read and written here as it is. */
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
extern int wakeups; /* an eventfd */

/* Jobs stand here in the order in which they came back. */
extern struct engine_job *done[MOST_JOBS];
extern size_t n_done;

/* Returns limits for lists of blocks on the host, in which all that sizes decide is small or random. */
struct cuda_limits random_pack_limits(uint64_t *state);

/* Opens the engine; limits is NULL for its own limits. */
void open_engine(const struct cuda_limits *limits);

/* Opens the engine for an owner that calls engine_drive. */
void open_driven_engine(const struct cuda_limits *limits);

/* Fails unless everything of the driver's has been given back. */
void close_engine(void);

/* Waits until n jobs have come back in all. */
void wait_done(size_t n);

struct engine_memory *new_memory(enum region_kind kind, uint64_t size);
unsigned char *data(struct engine_memory *memory);

/* A work is a job with its transform. */
struct work {
	struct engine_job job;
	struct transform transform;
};

/* Makes a job of float32 [n, n], with perm 1, 0 if it is transposed. */
void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Makes a job of any transform. Offsets are of elements [0, ..., 0] in the regions. */
void work_init_spec(struct work *work, const struct transform_spec *spec, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset);

#endif
