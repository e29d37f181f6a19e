/* SPDX-License-Identifier: Apache-2.0 */
/* The compute kernel's arguments, and constants that its process shares with the one that started it. */
#ifndef TESTS_GPU_BENCH_COMPUTE_ARGS_H
#define TESTS_GPU_BENCH_COMPUTE_ARGS_H

#include <cuda.h>
#include <stdint.h>

#define COMPUTE_THREADS 256
#define COMPUTE_CHAINS  8  /* independent chains of sums */
#define COMPUTE_ROUNDS  80 /* multiply-adds of each chain in a step */

/* Floating-point operations of a step of one thread. */
#define COMPUTE_STEP_FLOP (2.0 * COMPUTE_CHAINS * COMPUTE_ROUNDS)

struct compute_args {
	uint64_t data;  /* 16-byte words; the blocks of a step read adjacent ones */
	uint64_t words; /* a power of two */
	uint64_t from;  /* the first word that this launch reads */
	uint64_t sums;  /* where a sum would be stored in a case that cannot occur */
	uint32_t steps;
};

#endif
