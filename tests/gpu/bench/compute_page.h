/* SPDX-License-Identifier: Apache-2.0 */
/* What the process that computes tells the one that started it, in a page that both map, and is told: a byte
 * for each command on its standard input, whose end ends it.
 */
#ifndef TESTS_GPU_BENCH_COMPUTE_PAGE_H
#define TESTS_GPU_BENCH_COMPUTE_PAGE_H

#include <stdatomic.h>
#include <stdint.h>

enum compute_command { COMPUTE_GO = 'g', COMPUTE_PAUSE = 'p' };

struct compute_page {
	_Atomic uint64_t pauses;   /* how often it has become idle; 1: it is ready */
	_Atomic uint64_t launches; /* that have ended */

	/* Known when it is ready. */
	double launch_flop;
	double launch_us; /* of one, with nothing beside it */
	uint32_t multiprocessors;
};

#endif
