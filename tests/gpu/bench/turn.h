/* SPDX-License-Identifier: Apache-2.0 */
/* A row of the GPU benchmark in the device's memory: its plans, its moves, and whether they are right.
 *
 * Its memory consists of places, each for one call, all of which together are twice as large as the L2, so
 * that nothing is found in it. The rig and what rows share are opened once.
 */
#ifndef TESTS_GPU_BENCH_TURN_H
#define TESTS_GPU_BENCH_TURN_H

#include "kernels/cuda/strategy/plan.h"
#include "tests/bench/program.h"
#include "tests/gpu/rig.h"

#define TURN_MAX_LEADS 64
#define TURN_EVENTS    4

extern struct rig turn_rig;

/* A row, ready to be moved. */
struct turn {
	const struct bench_row *row;
	struct transform_spec spec;
	struct transform transform;
	struct alternatives alternatives;
	const struct plan *chosen; /* of these, the one predicted to be the fastest */
	const struct plan *plan;   /* the one to be launched */
	size_t dst_offset;         /* of element [0, ..., 0] in a place */
	size_t src_offset;
	size_t dst_bytes; /* from the start of a place to the end of the tensor */
	size_t src_bytes;
	size_t pitch; /* from a place to the next, on either side */
	uint64_t n_places;
	uint64_t place; /* of the last call */
	uint64_t held;  /* whose source the host has: place + 1, or 0 */
	int calls;      /* of either side in a run */
	int leads;      /* copies ahead of them, */
	size_t lead;    /* of that many bytes each */
	CUdeviceptr dst;
	CUdeviceptr src;
	CUdeviceptr scales; /* of a row with amax; 0: it has none */
	CUevent event[TURN_EVENTS];
};

/* false: there is no device that will do. */
bool turn_open(struct error *err);
/* Also after a turn_open that failed. */
void turn_close(void);

int turn_init(struct turn *turn, const struct bench_row *row, const struct program_options *options,
              struct error *err);
void turn_deinit(struct turn *turn);

/* Enqueue a call in the next place: of the device's copy of as many bytes, of turn->plan. */
void turn_copy(struct turn *turn);
void turn_launch(struct turn *turn);

/* Enqueues what keeps the device busy, and event 0 after it. */
void turn_lead(struct turn *turn);

/* What the last launch left. */
int turn_check(struct turn *turn, struct error *err);

/* Launches turn->plan in the first place, where nothing of the result is, and checks that. */
int turn_try(struct turn *turn, struct error *err);

#endif
