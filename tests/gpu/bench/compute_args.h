/* SPDX-License-Identifier: Apache-2.0 */
/* What the compute kernel is called with, and what its process shares with the one that started it. */
#ifndef TESTS_GPU_BENCH_COMPUTE_ARGS_H
#define TESTS_GPU_BENCH_COMPUTE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#define COMPUTE_THREADS 256
#define COMPUTE_CHAINS  8  /* of sums that do not wait for each other */
#define COMPUTE_ROUNDS  80 /* of a step: multiply-adds of each chain */

/* Floating-point operations of a step of one thread. */
#define COMPUTE_STEP_FLOP (2.0 * COMPUTE_CHAINS * COMPUTE_ROUNDS)

struct compute_args {
	uint64_t data;  /* words of 16 bytes; blocks read a step's, side by side */
	uint64_t words; /* a power of two */
	uint64_t from;  /* the first word of this launch */
	uint64_t sums;  /* where a sum would go that cannot be */
	uint32_t steps;
};

#endif
