/* SPDX-License-Identifier: Apache-2.0 */
/* A request that waits for a word and signals another one: the time between the two. */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_ORDER_H
#define TESTS_GPU_BENCH_NEIGHBOUR_ORDER_H

#include "neighbour.h"
#include "neighbour_load.h"
#include "neighbour_sample.h"

/* The words lie on the device, where a stream signals the first and waits for the second, or on the host,
 * where this process does so. */
struct hand_over {
	struct bench *bench;
	enum side side;
	double age_us; /* how long the request has waited when its word is signalled */
	struct memory words, dst, src;
	struct load load; /* a transpose with sides of bench->scale->call_side */
	uint64_t round;
	CUevent begin, end;
};

void hand_over_init(struct hand_over *hand_over, struct bench *bench, enum side side, double age_us);
void hand_over_deinit(struct hand_over *hand_over);

/* arg is a struct hand_over. */
latency_sample hand_over_sample;

#endif
