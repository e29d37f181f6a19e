/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver has for many copies: the same by a loop, and by its own batch where it has one. */
#ifndef TESTS_GPU_BENCH_BENCH_BLOCKS_BASE_H
#define TESTS_GPU_BENCH_BENCH_BLOCKS_BASE_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/gpu/rig.h"

struct copies {
	CUdeviceptr *dst;
	CUdeviceptr *src;
	size_t *size;
	size_t n;
};

/* cuMemcpyAsync for each. */
void base_loop(const struct copies *copies, CUstream stream);

/* NULL, or why there is no cuMemcpyBatchAsync. */
const char *base_batch_missing(void);

/* By one cuMemcpyBatchAsync. */
void base_batch(const struct copies *copies, CUstream stream);

#endif
