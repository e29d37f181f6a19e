/* SPDX-License-Identifier: Apache-2.0 */
/* A row of the GPU benchmark in device memory: its plans, its moves, and the check of the result.
 *
 * Its memory consists of places, one for each call, which together are twice as large as the L2, so that no
 * call finds its data there. The rig and what rows share are opened once.
 */
#ifndef TESTS_GPU_BENCH_TURN_H
#define TESTS_GPU_BENCH_TURN_H

#include "kernels/cuda/strategy/plan.h"
#include "tests/bench/program.h"
#include "tests/gpu/rig.h"

#define TURN_MAX_LEADS 64
#define TURN_EVENTS    4

extern struct rig turn_rig;

/* A row that is ready to be moved. */
struct turn {
	const struct bench_row *row;
	struct transform_spec spec;
	struct transform transform;
	struct alternatives alternatives;
	const struct plan *chosen; /* among plans, the one predicted to be the fastest */
	const struct plan *plan;   /* the plan that is launched */
	size_t dst_offset;         /* bytes from the start of a place to element [0, ..., 0] */
	size_t src_offset;
	size_t dst_bytes; /* bytes from the start of a place to the end of the tensor */
	size_t src_bytes;
	size_t pitch; /* bytes from one place to the next, on either side */
	uint64_t n_places;
	uint64_t place; /* place of the last call */
	uint64_t held;  /* the place whose source the host has, plus 1; 0: none */
	int calls;      /* calls of either side in a run */
	int leads;      /* copies that precede them, to keep the device busy */
	size_t lead;    /* bytes of each such copy */
	CUdeviceptr dst;
	CUdeviceptr src;
	CUdeviceptr scales; /* for a row with amax; else 0 */
	CUevent event[TURN_EVENTS];
};

/* Returns false if no suitable device is found. */
bool turn_open(struct error *err);
/* May also be called after turn_open has failed. */
void turn_close(void);

int turn_init(struct turn *turn, const struct bench_row *row, const struct program_options *options,
              struct error *err);
void turn_deinit(struct turn *turn);

/* Enqueue a call in the next place: the device's copy of as many bytes, or turn->plan. */
void turn_copy(struct turn *turn);
void turn_launch(struct turn *turn);

/* Enqueues copies that keep the device busy, and event 0 after them. */
void turn_lead(struct turn *turn);

/* Checks the result of the last launch. */
int turn_check(struct turn *turn, struct error *err);

/* Launches turn->plan in the first place, after clearing the result there, and checks it. */
int turn_try(struct turn *turn, struct error *err);

#endif
