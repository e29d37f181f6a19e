/* SPDX-License-Identifier: Apache-2.0 */
/* A strategy is a way to move a window on the GPU. It says when it is legal, what it costs, what its tile is,
 * and how it is launched. Each strategy is one constant in a file of kernels/cuda/strategy/. strategies.def
 * there lists them all, and the planner (choose.c) goes through that list. The launch functions are
 * compiled only where there is a CUDA engine. */
#ifndef KERNELS_CUDA_STRATEGY_STRATEGY_H
#define KERNELS_CUDA_STRATEGY_STRATEGY_H

#include "plan.h"

struct alternatives;
struct convert_operands;
struct error;
struct launcher;
struct plan_tile;
struct strided_args;
struct CUstream_st;

/* The turn says when the planner asks the strategy. */
enum strategy_turn {
	STRATEGY_NEVER,   /* The planner sets it without asking. */
	STRATEGY_FIRST,   /* It is asked in order, until one is legal. */
	STRATEGY_INSTEAD, /* It is asked afterwards, and taken if it costs less. */
	STRATEGY_EITHER,  /* It is asked both times. */
};

struct strategy_case {
	const struct loop_nest *nest;
	const struct plan_facts *facts;
	enum pad_mode mode;
	int src_inner; /* the dimension that is contiguous in the source alone; -1: none */
	bool instead;  /* another strategy has been found, which it would replace */
	double most;   /* a plan that costs this or more is of no use */
};

struct strategy_launch {
	struct launcher *launcher;
	struct CUstream_st *stream;
	const struct transform *transform;
	const struct plan *plan;
	uint64_t dst; /* addresses of elements [0, ..., 0] */
	uint64_t src;
	const struct convert_operands *operands;
};

typedef uint32_t strategy_kernel(const struct transform *transform, const struct tma_route_plan *tma);

struct strategy {
	const char *name;
	enum family family;
	enum strategy_turn turn;
	bool has_border; /* writes the border of its window as well */
	bool spreads;    /* can be one of many moves of a launch */

	/* Sets the plan up and returns true, or adds the rules that it breaks to the plan and returns
	 * false. */
	bool (*probe)(struct plan *plan, const struct strategy_case *c);

	/* Returns the time of a byte of the window, in units of what a copy takes for it. */
	double (*cost)(const struct plan *plan, enum pad_mode mode);

	/* Completes the tile of a plan that has one; *ret already has the plan's extents and element. NULL:
	 * the strategy has no tile in memory. */
	void (*describe)(const struct plan *plan, struct plan_tile *ret);

	int (*launch)(const struct strategy_launch *launch, struct error *err);

	/* Strategies without a tensor map have these: the kernel, the slots that a block of threads takes at
	 * a time, and the kernel that moves the window among others of a launch, NULL if there is none. */
	strategy_kernel *kernel;
	uint32_t (*slots)(const struct tma_route_plan *tma, const struct strided_args *args);
	strategy_kernel *many_kernel;
};

#define STRATEGY(name) extern const struct strategy strategy_##name;
#include "strategies.def"

/* The table is indexed by enum strategy_id. */
extern const struct strategy *const strategies[STRATEGY_COUNT];

static inline const struct strategy *strategy_of(const struct plan *plan)
{
	return strategies[plan->tma.strategy];
}

#endif
