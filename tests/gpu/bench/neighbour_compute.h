/* SPDX-License-Identifier: Apache-2.0 */
/* The process that computes beside the service (compute.c): started, told to go and to pause, and asked how
 * much it has done. One at a time; what fails ends the program, and with the program the process.
 */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_COMPUTE_H
#define TESTS_GPU_BENCH_NEIGHBOUR_COMPUTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct compute_page;

struct neighbour {
	pid_t pid;
	int commands; /* write end */
	struct compute_page *page;
};

/* program: its path. percentage: of the multiprocessors that MPS lets it use; 0: all of them. */
void neighbour_start(struct neighbour *neighbour, const char *program, unsigned percentage, bool tiny);
void neighbour_stop(struct neighbour *neighbour);

/* Returns once it computes, or once it is idle. */
void neighbour_go(struct neighbour *neighbour);
void neighbour_pause(struct neighbour *neighbour);

/* What it has done by now: the difference of two over their time is its rate. */
struct progress {
	double us;
	uint64_t launches;
};
struct progress neighbour_progress(const struct neighbour *neighbour);

/* After so long, and after at least one launch more than by then. */
struct progress neighbour_progress_since(const struct neighbour *neighbour, const struct progress *from,
                                         double seconds);
double progress_tflops(const struct neighbour *neighbour, const struct progress *from,
                       const struct progress *to);

#endif
