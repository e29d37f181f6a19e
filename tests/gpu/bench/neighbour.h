/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of bench_neighbour share: how much they do, and whom they ask. What fails ends the program.
 */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_H
#define TESTS_GPU_BENCH_NEIGHBOUR_H

#include "client/tmaclient.h"
#include "neighbour_compute.h"
#include "tests/gpu/rig.h"

struct scale {
	double seconds;  /* of one measurement */
	double settle_s; /* that the compute goes before something is measured beside it */
	double idle_s;   /* of a wait for which nothing comes */
	int warm_up;     /* requests before the first that is measured */
	int samples;     /* of a latency, at most */

	int64_t squares[4];  /* sides: back to back */
	double back_to_back; /* bytes read and written by those of a side */
	int64_t long_side;   /* of requests that another connection's pass */

	int64_t call_side;   /* of the one at a time by a call, and by a ring */
	int64_t short_side;  /* of the other one at a time */
	int64_t device_side; /* of those between device memory, 4 under way */
	int64_t host_side;   /* of those between host memory; copies with host memory have as many bytes */
	uint32_t blocks;     /* of lists */
	uint32_t block_bytes;
};

struct bench {
	const char *socket;
	const struct scale *scale;
	struct rig rig;
	tma_client *client;
	struct neighbour neighbour;
};

/* Requests of one connection back to back, and a short one beside those of another (neighbour_pair.c). */
void pairs_run(struct bench *bench);

/* Everything alone and beside the process that computes (neighbour_rows.c). */
void rows_run(struct bench *bench);

/* What the service computes while a request waits for a word (neighbour_order.c). */
void idle_wait_run(struct bench *bench);

#endif
