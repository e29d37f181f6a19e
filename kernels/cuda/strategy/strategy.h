/* SPDX-License-Identifier: Apache-2.0 */
/* A strategy is a way to move a window on the GPU. It says when it applies, what it costs, what its tile is
 * and how it is launched. Each strategy is one constant in a file of this folder. strategies.def lists them
 * all, and the planner (planner.c) goes through that list. The launch functions are compiled only where there
 * is a CUDA engine.
 *
 * The second half declares the parts of the planner that strategies share. They take a loop nest, which is
 * either the whole destination or the window alone.
 */
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

/* The time at which the planner probes a strategy. */
enum strategy_turn {
	STRATEGY_NEVER,   /* The planner chooses the strategy without probing it. */
	STRATEGY_FIRST,   /* The planner probes it in order, until one strategy applies. */
	STRATEGY_INSTEAD, /* The planner probes it after that, and takes it if it costs less. */
	STRATEGY_EITHER,  /* The planner probes it at both times. */
};

struct strategy_case {
	const struct loop_nest *nest;
	const struct plan_facts *facts;
	enum pad_mode mode;
	/* Dimension along which the source, but not the destination, is contiguous; -1: none. */
	int src_inner;
	bool instead; /* a plan exists already, which this strategy would replace */
	double most;  /* a plan that costs this much or more is of no use */
};

struct strategy_launch {
	struct launcher *launcher;
	struct CUstream_st *stream;
	const struct transform *transform;
	const struct plan *plan;
	uint64_t dst; /* address of the destination's element [0, ..., 0]; src: that of the source's */
	uint64_t src;
	const struct convert_operands *operands;
};

typedef uint32_t strategy_kernel(const struct transform *transform, const struct tma_route_plan *tma);

struct strategy {
	const char *name;
	enum family family;
	enum strategy_turn turn;
	bool has_border; /* The strategy also writes the border of its window. */
	bool spreads;    /* The strategy can be one of many moves in a launch. */

	/* Sets the plan up and returns true, or adds the rules that the nest breaks to the plan and returns
	 * false. */
	bool (*probe)(struct plan *plan, const struct strategy_case *c);

	/* Returns the time of a byte of the window relative to the time that a copy takes for it. NULL: the
	 * cost is always flat_cost. */
	double (*cost)(const struct plan *plan, enum pad_mode mode);
	double flat_cost;

	/* Completes the tile of a plan that has one. The caller has set *ret to the plan's extents and
	 * element. NULL: the strategy has no tile in memory. */
	void (*describe)(const struct plan *plan, struct plan_tile *ret);

	int (*launch)(const struct strategy_launch *launch, struct error *err);

	/* Set only by strategies without a tensor map. `kernel` returns the kernel for a single move, and
	 * `many_kernel` the kernel that moves the window among other moves of a launch. `slots` returns the
	 * number of slots that a thread block takes at a time; a slot is one of the parts of the window that
	 * tma->tiles counts. A strategy that lacks one of these functions has NULL there. */
	strategy_kernel *kernel;
	uint32_t (*slots)(const struct tma_route_plan *tma, const struct strided_args *args);
	strategy_kernel *many_kernel;
};

#define STRATEGY(name) extern const struct strategy strategy_##name;
#include "strategies.def"

/* The strategies, indexed by enum strategy_id. */
extern const struct strategy *const strategies[STRATEGY_COUNT];

static inline const struct strategy *strategy_of(const struct plan *plan)
{
	return strategies[plan->tma.strategy];
}

/* ---- Planning ------------------------------------------------------------------------------------------ */

#define TMA_LONGEST INT32_MAX /* maximum extent of a dimension whose coordinates have 32 bits */

/* Plans tiles of many axes, without a tensor map and for any pad. Returns false if no such tile costs less
 * than `most`. */
bool tma_try_permute(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                     enum pad_mode mode, double most);

/* Adds plans with tiles of many axes to the list. Each is a copy of base with a tile for `inner` that costs
 * less than `most` and resembles no other. The border of base is that of the `outer` outermost dimensions of
 * nest. */
void tma_add_permutes(struct alternatives *list, const struct plan *base, const struct loop_nest *inner,
                      const struct loop_nest *nest, int outer, const struct plan_facts *facts,
                      enum pad_mode mode, double most);

/* Makes the plan use this tile, which was built from this box. */
void tma_set_permute(struct plan *plan, const struct permute_tile *tile, const struct permute_box *box);

/* Plans a conversion. This always succeeds. */
void tma_set_convert(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                     const struct loop_nest *nest);

/* Reduces the `outer` outermost dimensions of the nest to their windows and brings the nest to canonical form
 * again (loop_nest_canonicalise explains `align` and `mode`). */
void tma_shrink(struct loop_nest *nest, int outer, uint32_t align, enum pad_mode mode);

/* Sets the plan's border to that of the `outer` outermost dimensions of the nest. The border of the other
 * dimensions is written with the window. */
void tma_set_border(struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* Returns the time of a byte of the destination, border included, relative to the time that a copy takes for
 * it. If a second launch writes the plan's border, it must be that of the `outer` outermost dimensions. */
double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode);

/* ---- What they share --------------------------------------------------------------------------------- */

/* Returns whether the destination is contiguous along the innermost dimension and the source along another
 * one. */
static inline bool nest_is_turned(const struct strategy_case *c)
{
	const struct loop_nest_dim *inner = &c->nest->dim[c->nest->rank - 1];

	return inner->dst == c->nest->element && inner->src != c->nest->element && c->src_inner >= 0;
}

/* Returns whether some rows of the destination do not begin at a multiple of `align`, relative to the base
 * address. */
bool tma_is_ragged(const struct tma_route_plan *tma, uint64_t align);

/* Sets what all strategies without a tensor map have in common: the element, the offsets and repeats. */
void tma_begin_strided(struct tma_route_plan *tma, const struct loop_nest *nest);

/* Sets tma->whole. */
void tma_set_whole(struct tma_route_plan *tma, const struct loop_nest *nest);

/* Sets tma->tiles to `tiles` times the number of indices of the dimensions from `outer` on. */
void tma_count_tiles(struct tma_route_plan *tma, uint64_t tiles, uint32_t outer);

/* Returns the bytes of a row that is contiguous on both sides, where the source may run backwards; 0 if there
 * are no such rows or they are too short to be worth it. */
uint64_t tma_row_bytes(const struct strategy_case *c);

/* Returns whether no dimension is padded. */
bool tma_is_whole(const struct loop_nest *nest);

/* Sets tma->dim, innermost first: the loop nest's dimension `first`, then `second` unless it is -1, then the
 * others from the innermost to the outermost. */
void tma_set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int first, int second);

/* Returns the length of the parts into which n is divided so that each is at most `most` long and all are as
 * equal as possible. */
static inline uint64_t part_of(uint64_t n, uint64_t most)
{
	return divide_up_u64(n, divide_up_u64(n, most));
}

/* ---- Tensor maps --------------------------------------------------------------------------------------- */

extern const enum tensor_map_type map_types[9]; /* indexed by the bytes of an element, 1 to 8 */

/* Returns the bytes of the tensor map's elements for elements of this many bytes; a map's elements have at
 * most 8. */
uint32_t map_unit(uint32_t element);

/* Returns the address of the first element modulo 16. It lies `offset` bytes from a base address, of which
 * base_phase is the remainder modulo 16 or a multiple of 16. */
uint32_t map_phase(uint32_t base_phase, int64_t offset);

/* Checks the rules of a tensor map and adds the broken ones to the plan. Returns whether there are none. side
 * is "load" or "store", for the rules' texts. */
bool map_check(struct plan *plan, enum family family, const char *side, const struct tensor_map_layout *map);

/* Checks that a tensor map can express every dimension on both sides, adds the broken rules to the plan and
 * returns whether there are none. A tile extends along dimension 0 and along dimension `also`. The grid has
 * at most `most` dimensions. */
bool map_check_dims(struct plan *plan, enum family family, uint32_t also, uint32_t most);

/* Sets tma->load to a tensor map of the source along tma->dim, and the fields that say where a tile is loaded
 * from. phase is that of the source's base address (plan_facts.src_phase). Returns false, with the broken
 * rule added to the plan, if there is no such map. */
bool map_set_load(struct plan *plan, enum family family, const struct loop_nest *nest, uint32_t phase);

#endif
