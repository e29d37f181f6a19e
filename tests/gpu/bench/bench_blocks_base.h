/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's ways to make many copies: a loop of calls, and its own batch call, if it has one. */
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

/* Copies with a cuMemcpyAsync for each block. */
void base_loop(const struct copies *copies, CUstream stream);

/* Returns NULL, or why there is no cuMemcpyBatchAsync. */
const char *base_batch_missing(void);

/* Copies with one cuMemcpyBatchAsync. */
void base_batch(const struct copies *copies, CUstream stream);

#endif
