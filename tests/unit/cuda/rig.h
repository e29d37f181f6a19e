/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of the engine share: one engine on the stand-in driver, one owner of its streams, memory of
 * every kind, and jobs. Failures are Criterion's. Device memory of the stand-in is this process's, so it is
 * read and written here as it is. */
#ifndef TESTS_UNIT_CUDA_RIG_H
#define TESTS_UNIT_CUDA_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cuda/limits.h"
#include "kernels/engine.h"

#define MOST_JOBS 512

extern struct engine *engine;
extern struct engine_owner owner;
extern int wakeups; /* an eventfd */

/* Jobs in the order that they came back. */
extern struct engine_job *done[MOST_JOBS];
extern size_t n_done;

/* Small ones, so that small jobs go every way. */
struct cuda_limits small_limits(void);

/* Of lists of blocks on the host, all that is decided by size: small or at random. */
struct cuda_limits random_pack_limits(uint64_t *state);

/* NULL: the engine's own. */
void open_engine(const struct cuda_limits *limits);

/* The same for an owner that calls engine_drive. */
void open_driven_engine(const struct cuda_limits *limits);

/* Everything of the driver's has to have been given back. */
void close_engine(void);

/* Until n jobs have come back in all. */
void wait_done(size_t n);

struct engine_memory *new_memory(enum region_kind kind, uint64_t size);
unsigned char *data(struct engine_memory *memory);

/* A job with its transform and plan. */
struct work {
	struct engine_job job;
	struct transform transform;
	struct plan plan;
};

/* Of float32 [n, n]; perm 1, 0 when transposed. */
void work_init(struct work *work, int64_t n, bool transposed, struct engine_memory *dst,
               struct engine_memory *src);

/* Of any transform; offsets are of elements [0, ..., 0] in the regions. */
void work_init_spec(struct work *work, const struct transform_spec *spec, struct engine_memory *dst,
                    uint64_t dst_offset, struct engine_memory *src, uint64_t src_offset);

#endif
