/* SPDX-License-Identifier: Apache-2.0 */
/* The page that the compute process and the process that started it both map. Commands are bytes on the
 * compute process's standard input; it ends when that ends. */
#ifndef TESTS_GPU_BENCH_COMPUTE_PAGE_H
#define TESTS_GPU_BENCH_COMPUTE_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

enum compute_command { COMPUTE_GO = 'g', COMPUTE_PAUSE = 'p' };

struct compute_page {
	_Atomic uint64_t pauses;   /* how often it has become idle; the first time means that it is ready */
	_Atomic uint64_t launches; /* launches that have ended */

	/* Set before it is ready: floating-point operations of a launch. */
	double launch_flop;
	double launch_us; /* duration of a launch when nothing else runs */
	uint32_t multiprocessors;
};

#endif
