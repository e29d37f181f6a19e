/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of many axes (permute.h): boxes are tried for many lengths of the runs on either side, and the one is
 * taken whose tile is predicted to cost least.
 */
#include "tma_route.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "alternatives.h"
#include "permute_plan.h"

#define LEAST_RUN 8 /* bytes on either side; with less there is nothing to gain */
#define FINALISTS 6
#define MOST_KEPT (PLAN_ALTERNATIVES > FINALISTS ? PLAN_ALTERNATIVES : FINALISTS)
#define NEAR      (4.0 / 3) /* sizes of tiles that resemble each other, at most */
#define MOST_SEEN 1024      /* boxes: more than are made */

/* ---- Boxes --------------------------------------------------------------------------------------------- */

/* Extends the box along a chain until its run has this many bytes: by whole dimensions, and then by a part of
 * one that divides it evenly and, if possible, makes a multiple of a sector. */
static void extend(struct permute_box *box, const struct permute_chain *chain, const struct loop_nest *nest,
                   bool is_dst, uint64_t bytes)
{
	for (int i = 0; i < chain->n; i++) {
		const int d = chain->dim[i];
		const uint64_t step = (uint64_t)llabs(is_dst ? nest->dim[d].dst : nest->dim[d].src);
		const uint64_t n = (uint64_t)nest->dim[d].n, need = divide_up_u64(bytes, step);
		const uint64_t whole = SECTOR / gcd_u64(SECTOR, step);
		uint64_t part = divide_up_u64(n, divide_up_u64(n, need));

		if (step >= bytes)
			break;
		if (box->n[d] == n || n < need * 3 / 2) {
			box->n[d] = (uint32_t)n;
			continue;
		}
		if (whole < part)
			part = divide_up_u64(part, whole) * whole;
		part = min_u64(part, n);
		if (part > box->n[d])
			box->n[d] = (uint32_t)part;
		break;
	}
}

/* Extends the box along dimensions that no run needs, the destination's innermost first, until it has this
 * many bytes. */
static void extend_stack(struct permute_box *box, const struct loop_nest *nest, uint64_t bytes)
{
	uint64_t own = nest->element;

	for (int d = 0; d < nest->rank; d++)
		own *= box->n[d];
	for (int d = nest->rank - 1; d >= 0 && own * 2 <= bytes; d--) {
		const uint64_t n = (uint64_t)nest->dim[d].n, need = bytes / own;

		if (box->n[d] > 1 || n == 1)
			continue;
		box->n[d] = (uint32_t)(n < need * 3 / 2 ? n : divide_up_u64(n, divide_up_u64(n, need)));
		own *= box->n[d];
		if (box->n[d] < n)
			break;
	}
}

/* ---- The choice ---------------------------------------------------------------------------------------- */

struct choice {
	const struct permute_sides *sides;
	bool is_varied; /* no two tiles resemble each other */
	int n;
	struct permute_tile tile[MOST_KEPT]; /* the cheapest so far, in order */
	double cost[MOST_KEPT];
	struct permute_box box[MOST_KEPT];
	uint64_t seen[MOST_SEEN]; /* hashes of the boxes of these sides, or 0 */
};

/* Different lengths often make the same box. false: it has been considered. */
static bool is_new(struct choice *choice, const struct permute_box *box)
{
	uint64_t hash = 1;

	for (int d = 0; d < choice->sides->nest->rank; d++) {
		hash = (hash ^ box->n[d]) * UINT64_C(0x9e3779b97f4a7c15);
		hash ^= hash >> 32;
	}
	hash |= 1;
	for (uint64_t i = hash >> 1;; i++) {
		uint64_t *const seen = &choice->seen[i % MOST_SEEN];

		if (*seen == hash)
			return false;
		if (*seen)
			continue;
		*seen = hash;
		return true;
	}
}

/* What permute_tile_init would say only after all else. */
static bool may_suit(const struct permute_sides *sides, enum permute_how how)
{
	switch (how) {
	case PERMUTE_WORDS:
		return sides->nest->element <= 2;
	case PERMUTE_PIECES:
		return sides->src.n > 0 && sides->dst.n > 0 && sides->src.dim[0] == sides->dst.dim[0];
	case PERMUTE_SQUARES:
		return sides->src.n > 0 && sides->dst.n > 0 && sides->src.dim[0] != sides->dst.dim[0];
	default:
		return true;
	}
}

bool permute_sizes_are_near(const struct permute_sizes *a, const struct permute_sizes *b)
{
	const double sizes[][2] = { { a->tile, b->tile }, { a->load, b->load }, { a->row, b->row } };

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
		if (sizes[i][0] * NEAR < sizes[i][1] || sizes[i][1] * NEAR < sizes[i][0])
			return false;
	return true;
}

static struct permute_sizes sizes_of(const struct permute_tile *tile)
{
	return (struct permute_sizes){ tile->useful, tile->load_run, tile->row_run };
}

/* Drops the tiles that it resembles; false: one of them costs no more. */
static bool replace_similar(struct choice *choice, const struct permute_tile *tile, double cost)
{
	const struct permute_sizes sizes = sizes_of(tile);
	int n = 0;

	for (int i = 0; i < choice->n; i++) {
		const struct permute_sizes other = sizes_of(&choice->tile[i]);
		const bool is_similar =
		    choice->tile[i].args.how == tile->args.how && permute_sizes_are_near(&sizes, &other);

		if (is_similar && choice->cost[i] <= cost)
			return false;
		if (is_similar)
			continue;
		choice->tile[n] = choice->tile[i];
		choice->cost[n] = choice->cost[i];
		choice->box[n++] = choice->box[i];
	}
	choice->n = n;
	return true;
}

static bool is_worth_it(const struct permute_tile *tile)
{
	return tile->load_run >= LEAST_RUN && tile->row_run >= LEAST_RUN;
}

static void consider(struct choice *choice, const struct permute_box *box, enum permute_how how)
{
	const int most = choice->is_varied ? MOST_KEPT : FINALISTS;
	struct permute_tile tile;
	double cost;
	int at;

	if (!may_suit(choice->sides, how) || !permute_tile_init(&tile, choice->sides, box, how) ||
	    !is_worth_it(&tile))
		return;
	permute_lay_out(&tile);
	cost = permute_cost(&tile);
	if (cost >= PERMUTE_NEVER || (choice->n == most && cost >= choice->cost[most - 1]))
		return;
	if (choice->is_varied && !replace_similar(choice, &tile, cost))
		return;
	at = choice->n < most ? choice->n++ : most - 1;
	for (; at > 0 && choice->cost[at - 1] > cost; at--) {
		choice->tile[at] = choice->tile[at - 1];
		choice->cost[at] = choice->cost[at - 1];
		choice->box[at] = choice->box[at - 1];
	}
	choice->box[at] = *box;
	choice->tile[at] = tile;
	choice->cost[at] = cost;
}

static void consider_all(struct choice *choice)
{
	static const uint16_t lengths[] = { 64,  96,   128,  192,  256,  384,   512,
		                            768, 1024, 2048, 4096, 8192, 16384, 32768 };
	static const uint16_t sizes[] = { 0, 12288, 24576, 40960 };
	const struct loop_nest *nest = choice->sides->nest;
	const size_t n = sizeof lengths / sizeof *lengths;

	static_assert(sizeof lengths / sizeof *lengths * (sizeof lengths / sizeof *lengths) *
	                      (sizeof sizes / sizeof *sizes) <
	                  MOST_SEEN,
	              "there is room for all");
	memset(choice->seen, 0, sizeof choice->seen);
	for (size_t i = 0; i < n * n; i++) {
		struct permute_box runs;

		for (int d = 0; d < TENSOR_MAX_RANK + 1; d++)
			runs.n[d] = 1;
		extend(&runs, &choice->sides->src, nest, false, lengths[i / n]);
		extend(&runs, &choice->sides->dst, nest, true, lengths[i % n]);
		for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
			struct permute_box box = runs;

			extend_stack(&box, nest, sizes[k]);
			if (!is_new(choice, &box))
				continue;
			for (int how = 0; how < PERMUTE_HOWS; how++)
				consider(choice, &box, (enum permute_how)how);
		}
	}
}

static int place_in(const struct permute_chain *chain, int d)
{
	int i = 0;

	while (i < chain->n && chain->dim[i] != d)
		i++;
	return i;
}

/* Runs that end before a dimension which they could have. A border that wraps around needs both ends of its
 * dimension: unless a tile has all of it, each of its indices has to be a load. What is read backwards keeps
 * words of several rows from being read at once: if the destination's runs end before it, it is reversed on
 * both sides, or of the stack. */
static void consider_shorter_runs(struct choice *choice)
{
	const struct permute_sides *all = choice->sides;
	struct permute_sides shorter = *all;

	choice->sides = &shorter;
	for (int i = 0; i < all->src.n; i++) {
		const struct loop_nest_dim *dim = &all->nest->dim[all->src.dim[i]];
		const int in_dst = place_in(&all->dst, all->src.dim[i]);
		const bool is_wrapped = i > 0 && all->mode == PAD_MODE_WRAP && dim->source != dim->n;

		if (!is_wrapped && (dim->src > 0 || in_dst == 0 || in_dst == all->dst.n))
			continue;
		shorter.src.n = i > 0 ? i : all->src.n;
		shorter.dst.n = is_wrapped ? all->dst.n : in_dst;
		consider_all(choice);
	}
	choice->sides = all;
}

/* With bank conflicts, which take long to predict. */
static double final_cost(struct permute_tile *tile)
{
	permute_arrange(tile);
	permute_lay_out(tile);
	return tile->cost = permute_cost(tile);
}

/* Bank conflicts decide only among the tiles that are cheapest without them, and of these they are not
 * predicted where a tile costs too much already: they never make one cheaper. */
static bool choose(struct permute_tile *best, struct permute_box *best_box, const struct permute_sides *sides)
{
	struct choice choice = { .sides = sides };
	double least = PERMUTE_NEVER;

	consider_all(&choice);
	consider_shorter_runs(&choice);
	for (int i = 0; i < choice.n && choice.cost[i] < least; i++) {
		struct permute_tile *tile = &choice.tile[i];

		if (final_cost(tile) >= least)
			continue;
		least = tile->cost;
		*best = *tile;
		*best_box = choice.box[i];
	}
	return least < PERMUTE_NEVER;
}

/* A padded dimension whose window and border are multiples of n indices becomes a padded one of groups, and
 * within them one of n indices that is not padded, so that runs may end anywhere in it. For borders with a
 * value. */
static void loosen(struct loop_nest *nest)
{
	for (int d = 0; d < nest->rank && nest->rank < TENSOR_MAX_RANK; d++) {
		struct loop_nest_dim *dim = &nest->dim[d];
		const int64_t n =
		    (int64_t)gcd_u64(gcd_u64((uint64_t)dim->n, (uint64_t)dim->before), (uint64_t)dim->source);

		if (dim->source == dim->n || n == 1 || dim->source == 0)
			continue;
		memmove(dim + 1, dim, (size_t)(nest->rank++ - d) * sizeof *dim);
		dim[1] = (struct loop_nest_dim){ .n = n, .dst = dim->dst, .src = dim->src, .source = n };
		dim[0] = (struct loop_nest_dim){ .n = dim->n / n,
			                         .dst = dim->dst * n,
			                         .src = dim->src * n,
			                         .before = dim->before / n,
			                         .source = dim->source / n };
	}
}

void tma_set_permute(struct plan *plan, const struct permute_tile *tile, const struct permute_box *box)
{
	struct tma_route_plan *tma = &plan->tma;

	plan->tile_rank = tile->nest.rank;
	for (int d = 0; d < plan->tile_rank; d++)
		plan->tile[d] = box->n[d];
	plan->swizzle = "none";
	tma->cost = tile->cost;
	tma->sizes = sizes_of(tile);
	tma->permute = tile->args;
	tma->element = tile->nest.element;
	tma->dst_offset = tile->nest.dst_offset;
	tma->src_offset = tile->nest.src_offset;
	tma->repeats = 1;
	tma->tiles = tile->tiles;
	tma->route = TMA_ROUTE_PERMUTE;
	tma->alike = tile->alike;
	tma_set_dims(tma, &tile->nest, tile->nest.rank - 1, -1);
}

/* *loose is what the sides refer to. false: a dimension is too long. */
static bool set_sides(struct permute_sides *ret, struct loop_nest *loose, const struct loop_nest *nest,
                      const struct plan_facts *facts, enum pad_mode mode)
{
	for (int d = 0; d < nest->rank; d++)
		if (nest->dim[d].n > TMA_LONGEST)
			return false;
	*loose = *nest;
	if (mode == PAD_MODE_CONSTANT)
		loosen(loose);
	permute_sides_init(ret, loose, facts, mode);
	return true;
}

bool tma_try_permute(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                     enum pad_mode mode)
{
	struct permute_sides sides;
	struct permute_tile tile;
	struct permute_box box;
	struct loop_nest loose;

	if (!set_sides(&sides, &loose, nest, facts, mode) || !choose(&tile, &box, &sides))
		return false;
	tma_set_permute(plan, &tile, &box);
	return true;
}

void tma_add_permutes(struct alternatives *list, const struct plan *base, const struct loop_nest *inner,
                      const struct loop_nest *nest, int outer, const struct plan_facts *facts,
                      enum pad_mode mode)
{
	struct permute_sides sides;
	struct loop_nest loose;
	struct choice choice = { .sides = &sides, .is_varied = true };

	if (!set_sides(&sides, &loose, inner, facts, mode))
		return;
	consider_all(&choice);
	consider_shorter_runs(&choice);
	for (int i = 0; i < choice.n; i++) {
		struct permute_tile *tile = &choice.tile[i];
		struct plan other = *base;

		if (final_cost(tile) >= PERMUTE_NEVER)
			continue;
		tma_set_permute(&other, tile, &choice.box[i]);
		other.predicted = tma_cost(&other, nest, outer, mode);
		alternatives_add(list, &other);
	}
}
