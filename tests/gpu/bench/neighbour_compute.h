/* SPDX-License-Identifier: Apache-2.0 */
/* Controls the process that computes beside the service (compute.c): starts it, resumes and pauses it, and
 * reads how much it has done. There is one at a time. A failure ends the program, and the process ends with
 * it. */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_COMPUTE_H
#define TESTS_GPU_BENCH_NEIGHBOUR_COMPUTE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct compute_page;

struct neighbour {
	pid_t pid;
	int commands; /* write end of its standard input */
	struct compute_page *page;
};

/* program is its path. percentage is the share of the multiprocessors that MPS lets it use; 0: all. */
void neighbour_start(struct neighbour *neighbour, const char *program, unsigned percentage, bool tiny);
void neighbour_stop(struct neighbour *neighbour);

/* Return once the process computes, or once it is idle. */
void neighbour_go(struct neighbour *neighbour);
void neighbour_pause(struct neighbour *neighbour);

/* What the process has done so far. Its rate is the difference between two of these over their time. */
struct progress {
	double us;
	uint64_t launches;
};
struct progress neighbour_progress(const struct neighbour *neighbour);

/* Returns the progress after so many seconds and after at least one more launch. */
struct progress neighbour_progress_since(const struct neighbour *neighbour, const struct progress *from,
                                         double seconds);
double progress_tflops(const struct neighbour *neighbour, const struct progress *from,
                       const struct progress *to);

#endif
