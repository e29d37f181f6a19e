/* SPDX-License-Identifier: Apache-2.0 */
/* A strategy is a way to move a window on the GPU. It says when it is legal, what it costs, what its tile is,
 * and how it is launched. Each strategy is one constant in a file of this folder. strategies.def lists them
 * all, and the planner (planner.c) goes through that list. The launch functions are compiled only where there
 * is a CUDA engine.
 *
 * The planner's parts that strategies share are declared here, too. Each is asked with a loop nest: the whole
 * destination or the window alone. */
#ifndef KERNELS_CUDA_STRATEGY_STRATEGY_H
#define KERNELS_CUDA_STRATEGY_STRATEGY_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"
#include "proto/arithmetic.h"
#include "tensor_map.h"

struct alternatives;
struct convert_operands;
struct error;
struct launcher;
struct permute_box;
struct permute_tile;
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

	/* Returns the time of a byte of the window, in units of what a copy takes for it. NULL: it is always
	 * flat_cost. */
	double (*cost)(const struct plan *plan, enum pad_mode mode);
	double flat_cost;

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

/* ---- Planning ------------------------------------------------------------------------------------------ */

#define TMA_LONGEST INT32_MAX /* extent of a dimension that coordinates of 32 bits can count */

/* Plans tiles of many axes, without a map and whatever the pad. Returns false if none costs less than
 * `most`. */
bool tma_try_permute(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                     enum pad_mode mode, double most);

/* Adds plans with tiles of many axes to the list: copies of base, each with a tile for `inner` that costs
 * less than `most` and resembles no other. base's border is that of nest's `outer` outermost dimensions. */
void tma_add_permutes(struct alternatives *list, const struct plan *base, const struct loop_nest *inner,
                      const struct loop_nest *nest, int outer, const struct plan_facts *facts,
                      enum pad_mode mode, double most);

/* Makes this tile, of this box, the plan's. */
void tma_set_permute(struct plan *plan, const struct permute_tile *tile, const struct permute_box *box);

/* Plans a conversion, which is always legal. */
void tma_set_convert(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                     const struct loop_nest *nest);

/* Leaves only the window of so many dimensions of the nest, the outermost. */
void tma_shrink(struct loop_nest *nest, int outer, uint32_t align, enum pad_mode mode);

/* Sets the border of so many dimensions of the nest, the outermost; that of the others is written with the
 * window. */
void tma_set_border(struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* Returns what a byte of the destination takes, border included, in units of what a copy takes for it. The
 * plan's border, if it has one, is that of the `outer` outermost dimensions. */
double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* ---- What they share --------------------------------------------------------------------------------- */

/* Returns whether the destination runs along the innermost dimension, and the source along another one. */
static inline bool nest_is_turned(const struct strategy_case *c)
{
	const struct loop_nest_dim *inner = &c->nest->dim[c->nest->rank - 1];

	return inner->dst == c->nest->element && inner->src != c->nest->element && c->src_inner >= 0;
}

/* Returns whether rows of the destination are not multiples of `align` apart. */
bool tma_is_ragged(const struct tma_route_plan *tma, uint64_t align);

/* Sets what all strategies without a map have in common: element, offsets and repeats. */
void tma_begin_strided(struct tma_route_plan *tma, const struct loop_nest *nest);

/* Sets tma->whole. */
void tma_set_whole(struct tma_route_plan *tma, const struct loop_nest *nest);

/* Sets tma->tiles: `tiles` for each index of the dimensions from `outer` on. */
void tma_count_tiles(struct tma_route_plan *tma, uint64_t tiles, uint32_t outer);

/* Returns the bytes of rows along which both sides run, one of them maybe backwards; 0 if there are none, or
 * if they are too short to be worth it. */
uint64_t tma_row_bytes(const struct strategy_case *c);

/* Returns whether no dimension is padded. */
bool tma_is_whole(const struct loop_nest *nest);

/* Sets tma->dim, innermost first: the loop nest's dimension `first`, then `second` unless it is -1, then the
 * others in their order. */
void tma_set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int first, int second);

/* Returns the length of parts of n that are as equal as can be, and at most `most` long. */
static inline uint64_t part_of(uint64_t n, uint64_t most)
{
	return divide_up_u64(n, divide_up_u64(n, most));
}

/* ---- Tensor maps --------------------------------------------------------------------------------------- */

extern const enum tensor_map_type map_types[9]; /* indexed by the bytes of an element, up to 8 */

/* Returns the bytes of the map's elements, which are at most 8. */
uint32_t map_unit(uint32_t element);

/* Returns how many bytes past a multiple of 16 the first element lies. */
uint32_t map_phase(uint32_t base_phase, int64_t offset);

/* Checks the rules of a map. side is "load" or "store", for the rules' texts. */
bool map_check(struct plan *plan, enum family family, const char *side, const struct tensor_map_layout *map);

/* Checks for what no map can say about either side of a dimension. A tile extends along dimension 0 and
 * the one that `also` names; at most `most` dimensions belong to the grid. */
bool map_check_dims(struct plan *plan, enum family family, uint32_t also, uint32_t most);

/* Sets tma->load to a map of the source along tma->dim, and where a tile is loaded from. */
bool map_set_load(struct plan *plan, enum family family, const struct loop_nest *nest, uint32_t phase);

#endif
