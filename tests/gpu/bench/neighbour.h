/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of bench_neighbour share: sizes and durations, and the connections that they use. A failure
 * ends the program. */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_H
#define TESTS_GPU_BENCH_NEIGHBOUR_H

#include "client/tmaclient.h"
#include "neighbour_compute.h"
#include "tests/gpu/rig.h"

struct scale {
	double seconds;  /* duration of one measurement */
	double settle_s; /* how long the compute process runs before something is measured beside it */
	double idle_s;   /* duration of a wait for a signal that does not come */
	int warm_up;     /* requests before the first measured one */
	int samples;     /* most samples of a latency */

	int64_t squares[4];  /* sides of the squares that are transposed back to back */
	double back_to_back; /* bytes read and written by all requests of a side */
	int64_t long_side;   /* side of the long requests, which those of another connection overtake */

	int64_t call_side;   /* side of the square that calls and a ring move one at a time */
	int64_t short_side;  /* side of the short requests */
	int64_t device_side; /* side of squares in device memory; 4 are under way */
	int64_t host_side;   /* side of squares in host memory; copies with host memory have as many bytes */
	uint32_t blocks;     /* blocks of a list */
	uint32_t block_bytes;
};

struct bench {
	const char *socket;
	const struct scale *scale;
	struct rig rig;
	tma_client *client;
	struct neighbour neighbour;
};

/* Measures requests of one connection back to back, and a short one beside those of another
 * (neighbour_pair.c). */
void pairs_run(struct bench *bench);

/* Measures everything alone and beside the process that computes (neighbour_rows.c). */
void rows_run(struct bench *bench);

/* Measures the CPU time of the service while a request waits for a word (neighbour_order.c). */
void idle_wait_run(struct bench *bench);

#endif
