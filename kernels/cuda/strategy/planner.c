/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the strategy for the whole destination, with its pads as windows.
 *
 * The planner first probes strategies in the order of strategies.def until one applies. Those that do not
 * apply add the rules that they found broken to the plan. The planner then probes others, and takes the plan
 * with the least predicted cost. The alternatives of a plan are the cheapest of the other plans, of which no
 * two resemble each other.
 */
#include "strategy.h"

#include <string.h>

#include "permute_plan.h"

static void choose_first(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                         enum pad_mode mode);
static bool try_padded_rows(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                            enum pad_mode mode);
static void name_strategy(struct plan *plan);
static void improve(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                    enum pad_mode mode, struct alternatives *list);
static double most_time(const struct alternatives *list);
static double cost_left(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode,
                        double most);

const struct strategy *const strategies[STRATEGY_COUNT] = {
#define STRATEGY(name) [STRATEGY_##name] = &strategy_##name,
#include "strategies.def"
};

/* ---- The whole --------------------------------------------------------------------------------------- */

static int64_t window_count(const struct loop_nest *nest)
{
	int64_t count = 1;

	for (int d = 0; d < nest->rank; d++)
		count *= nest->dim[d].source;
	return count;
}

void tma_shrink(struct loop_nest *nest, int outer, uint32_t align, enum pad_mode mode)
{
	for (int d = 0; d < outer; d++) {
		struct loop_nest_dim *dim = &nest->dim[d];

		nest->dst_offset += dim->before * dim->dst;
		dim->n = dim->source;
		dim->before = 0;
	}
	loop_nest_canonicalise(nest, align, mode);
}

static bool is_zero(const struct transform *t)
{
	for (uint32_t i = 0; i < t->element; i++)
		if (t->fill[i])
			return false;
	return true;
}

static void narrow_to(struct loop_nest *nest, uint32_t align, enum pad_mode mode)
{
	if (align < nest->element)
		loop_nest_narrow(nest, align, mode);
}

/* Returns whether the tiles cover the whole destination and only a small part of it is border. */
static bool is_patchable(const struct plan *plan, const struct loop_nest *nest, const struct loop_nest *inner)
{
	return plan->tma.strategy == STRATEGY_copy && plan->tma.repeats == 1 &&
	       loop_nest_count(inner) == loop_nest_count(nest) &&
	       loop_nest_count(nest) - window_count(nest) <= loop_nest_count(nest) / PAD_SHARE;
}

/* Makes the plan. If list is not NULL, adds the other plans that are considered to it. */
static void make_plan(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                      struct alternatives *list)
{
	struct subregions subregions;
	struct loop_nest nest;
	bool window;

	*plan = (struct plan){ .interior = { .fill = true, .element = t->element }, .swizzle = "none" };
	if (t->count == 0) {
		name_strategy(plan);
		return;
	}
	window = loop_nest_window(&nest, t, facts->align);
	if (!window) {
		subregions_init(&subregions, t);
		subregions_get(&subregions, 0, facts->align, &nest);
		narrow_to(&nest, facts->align, t->mode);
		tma_set_border(plan, &nest, nest.rank, t->mode);
		plan->predicted = tma_cost(plan, &nest, nest.rank, t->mode);
		name_strategy(plan);
		return;
	}
	plan->interior = nest;
	if (t->conversion.is) {
		tma_set_convert(plan, t, facts, &nest);
		name_strategy(plan);
		return;
	}
	narrow_to(&nest, facts->align, t->mode);
	if (t->mode == PAD_MODE_CONSTANT && (tma_is_whole(&nest) || is_zero(t))) {
		choose_first(plan, &nest, facts, t->mode);
	} else if (!try_padded_rows(plan, &nest, facts, t->mode)) {
		struct loop_nest inner = nest;

		/* The maps of `copy` write zeros where the border belongs, and the border is written again
		 * afterwards. That is worth it only while the border is small; otherwise the plan moves the
		 * window alone. */
		if (window_count(&nest) <= loop_nest_count(&nest) / 2)
			tma_shrink(&inner, inner.rank, facts->align, t->mode);
		narrow_to(&inner, facts->align, t->mode);
		choose_first(plan, &inner, facts, t->mode);
		if (is_patchable(plan, &nest, &inner))
			plan->tma.patched = true;
		else if (!strategy_of(plan)->has_border || t->mode != PAD_MODE_CONSTANT ||
		         loop_nest_count(&inner) != loop_nest_count(&nest))
			tma_set_border(plan, &nest, nest.rank, t->mode);
	}
	improve(plan, &nest, facts, t->mode, list);
	name_strategy(plan);
}

void plan_init(struct plan *plan, const struct transform *t, const struct plan_facts *facts)
{
	make_plan(plan, t, facts, NULL);
}

/* Drops the rules of families that are no better than the plan's; only the better ones had to be ruled
 * out. */
static void drop_rules(struct plan *plan)
{
	int n = 0;

	for (int i = 0; i < plan->rules.n; i++)
		if (plan->rules.rule[i].family < plan->family)
			plan->rules.rule[n++] = plan->rules.rule[i];
	plan->rules.n = n;
}

static void name_strategy(struct plan *plan)
{
	plan->family = strategy_of(plan)->family;
	if (plan->tma.strategy == STRATEGY_permute && plan->tma.alike)
		plan->family = FAMILY_TILE_COPY;
	drop_rules(plan);
	plan->grid = plan->tma.tiles ? (int64_t)plan->tma.tiles : 1;
	plan->n_subregions = (plan->tma.strategy != STRATEGY_none) + (plan->tma.border_rank > 0);
}

/* ---- The choice ----------------------------------------------------------------------------------- */

static struct strategy_case case_of(const struct loop_nest *nest, const struct plan_facts *facts,
                                    enum pad_mode mode)
{
	struct strategy_case c = { .nest = nest, .facts = facts, .mode = mode, .src_inner = -1 };

	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == nest->element)
			c.src_inner = d;
	return c;
}

static bool probe(struct plan *plan, enum strategy_id id, const struct strategy_case *c)
{
	if (!strategies[id]->probe(plan, c))
		return false;
	plan->tma.strategy = id;
	return true;
}

/* Takes the first strategy that applies. If spreads is true, only strategies that can be one of many moves
 * are probed, of which one always applies. */
static void choose_of(struct plan *plan, const struct strategy_case *c, bool spreads)
{
	for (enum strategy_id id = 0; id < STRATEGY_COUNT; id++) {
		const struct strategy *strategy = strategies[id];

		if ((strategy->turn == STRATEGY_FIRST || strategy->turn == STRATEGY_EITHER) &&
		    (strategy->spreads || !spreads) && probe(plan, id, c))
			return;
	}
}

/* Takes the first strategy that applies to the nest. If the move is one of many in a launch and has a single
 * element, that element is moved as a row. */
static void choose_first(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                         enum pad_mode mode)
{
	struct strategy_case c = case_of(nest, facts, mode);
	struct loop_nest one;

	if (facts->spread && nest->rank == 0) {
		one = *nest;
		one.rank = 1;
		one.dim[0] =
		    (struct loop_nest_dim){ .n = 1, .dst = nest->element, .src = nest->element, .source = 1 };
		c.nest = &one;
	}
	choose_of(plan, &c, facts->spread);
}

/* Tries `rows` and `short`, which write the border themselves, before any other strategy. Returns false if
 * the rows are too short to be worth it. */
static bool try_padded_rows(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                            enum pad_mode mode)
{
	struct strategy_case c = case_of(nest, facts, mode);

	c.instead = true;
	return probe(plan, STRATEGY_rows, &c) || probe(plan, STRATEGY_short, &c);
}

/* ---- By cost ------------------------------------------------------------------------------------------- */

static void take_cheaper(struct plan *plan, struct plan *other, const struct loop_nest *nest, int outer,
                         enum pad_mode mode, struct alternatives *list)
{
	other->predicted = tma_cost(other, nest, outer, mode);
	if (list)
		alternatives_add(list, other);
	if (other->predicted < plan->predicted)
		*plan = *other;
}

/* Returns the plan without the fields that depend on its strategy. */
static struct plan without_strategy(const struct plan *plan)
{
	struct plan other = *plan;

	other.tile_rank = 0;
	other.swizzle = "none";
	other.tma.border_rank = 0;
	other.tma.border_tiles = 0;
	other.tma.patched = false;
	return other;
}

/* Tries to move the window alone, with a fill for the border. */
static void try_window(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                       enum pad_mode mode, struct alternatives *list)
{
	struct plan other = { .interior = plan->interior, .swizzle = "none" };
	struct loop_nest inner = *nest;

	tma_shrink(&inner, inner.rank, facts->align, mode);
	narrow_to(&inner, facts->align, mode);
	choose_first(&other, &inner, facts, mode);
	tma_set_border(&other, nest, nest->rank, mode);
	take_cheaper(plan, &other, nest, nest->rank, mode, list);
}

/* Maximum share of the destination for which tiles of many axes with a separate fill are tried. Where rows of
 * the border and of the window meet, sectors are written twice. */
#define MOST_FILL 0.0625

/* Tries this strategy for the window of the `outer` outermost dimensions, with a fill for their border. That
 * suits tiles of many axes: their rows cannot end within a padded dimension, however long it is, but they can
 * once its border is left to the fill. */
static void try_instead(struct plan *plan, enum strategy_id id, const struct loop_nest *nest, int outer,
                        const struct plan_facts *facts, enum pad_mode mode, struct alternatives *list)
{
	struct plan other = without_strategy(plan);
	struct loop_nest inner = *nest;
	struct strategy_case c;

	if (outer > 0) {
		tma_shrink(&inner, outer, facts->align, mode);
		narrow_to(&inner, facts->align, mode);
		tma_set_border(&other, nest, outer, mode);
	}
	if (list && id == STRATEGY_permute) {
		tma_add_permutes(list, &other, &inner, nest, outer, facts, mode,
		                 cost_left(&other, nest, outer, mode, most_time(list)));
		return;
	}
	c = case_of(&inner, facts, mode);
	c.instead = true;
	c.most = cost_left(&other, nest, outer, mode, plan->predicted);
	if (probe(&other, id, &c))
		take_cheaper(plan, &other, nest, outer, mode, list);
}

/* Adds plans of strategies that choose_first and improve do not compare with the chosen one. */
static void add_others(struct alternatives *list, const struct plan *plan, const struct loop_nest *nest,
                       const struct plan_facts *facts, enum pad_mode mode)
{
	const struct strategy_case c = case_of(nest, facts, mode);
	struct plan other = without_strategy(plan);

	if (!tma_is_whole(nest) && mode != PAD_MODE_CONSTANT)
		return;
	choose_of(&other, &c, true);
	other.predicted = tma_cost(&other, nest, nest->rank, mode);
	alternatives_add(list, &other);
	other = without_strategy(plan);
	if (plan->tma.strategy != STRATEGY_bulk || !probe(&other, STRATEGY_copy, &c))
		return;
	other.predicted = tma_cost(&other, nest, nest->rank, mode);
	alternatives_add(list, &other);
}

/* Tries other ways to make the same move and takes the cheapest: the window alone, rows, and tiles of many
 * axes, each with a fill for what it leaves out. */
static void improve(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                    enum pad_mode mode, struct alternatives *list)
{
	double window = 1;

	plan->predicted = tma_cost(plan, nest, nest->rank, mode);
	if (plan->tma.strategy == STRATEGY_memcpy || plan->tma.strategy == STRATEGY_none || facts->spread ||
	    facts->listed)
		return;
	if (list) {
		alternatives_add(list, plan);
		add_others(list, plan, nest, facts, mode);
	}
	if (mode == PAD_MODE_CONSTANT && !tma_is_whole(nest) && plan->tma.border_rank == 0)
		try_window(plan, nest, facts, mode, list);
	for (enum strategy_id id = 0; id < STRATEGY_COUNT; id++)
		if (strategies[id]->turn == STRATEGY_INSTEAD || strategies[id]->turn == STRATEGY_EITHER)
			try_instead(plan, id, nest, 0, facts, mode, list);
	for (int d = 0; d < nest->rank; d++) {
		window *= (double)nest->dim[d].source / (double)nest->dim[d].n;
		if (1 - window > MOST_FILL)
			break;
		if (nest->dim[d].source != nest->dim[d].n)
			try_instead(plan, STRATEGY_permute, nest, d + 1, facts, mode, list);
	}
	/* If a second launch writes a border that repeats elements of the source, `permute` is tried with
	 * such a launch too, however large the border is. */
	if (mode != PAD_MODE_CONSTANT && plan->tma.border_rank > 0 && plan->tma.strategy != STRATEGY_permute)
		try_instead(plan, STRATEGY_permute, nest, nest->rank, facts, mode, list);
}

/* ---- Cost ---------------------------------------------------------------------------------------------- */

/* These formulas predict the cost of a plan whose border a second launch writes. They were fitted to
 * measurements (tests/bench/EXPERIMENTS.md). */

#define LAUNCH 6e6  /* bytes that a copy writes in the time that a second launch takes */
#define FIXED  17e6 /* bytes that a copy writes in the fixed time of a copy (plan.c) */

/* Returns the time of a byte of a border that a second launch writes, relative to a copy. The launch writes
 * rows of the destination that are as long as the dimensions inside the innermost padded one. */
static double border_cost(const struct loop_nest *nest, enum pad_mode mode)
{
	double run = nest->element;

	for (int d = nest->rank - 1; d >= 0 && nest->dim[d].source == nest->dim[d].n; d--)
		run *= (double)nest->dim[d].n;
	return mode == PAD_MODE_CONSTANT ? 0.6 + 100 / run : 20;
}

static double nest_bytes(const struct loop_nest *nest)
{
	double bytes = nest->element;

	for (int d = 0; d < nest->rank; d++)
		bytes *= (double)nest->dim[d].n;
	return bytes;
}

/* Returns the share of the destination that is not border along the `outer` outermost dimensions. */
static double window_share(const struct loop_nest *nest, int outer)
{
	double window = 1;

	for (int d = 0; d < outer; d++)
		window *= (double)nest->dim[d].source / (double)nest->dim[d].n;
	return window;
}

static double around_cost(const struct loop_nest *nest, double window, enum pad_mode mode)
{
	return border_cost(nest, mode) * (1 - window) + LAUNCH / (FIXED + nest_bytes(nest));
}

double tma_cost(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode)
{
	const double window = window_share(nest, outer);
	const struct strategy *strategy = strategy_of(plan);
	const double own = strategy->cost ? strategy->cost(plan, mode) : strategy->flat_cost;

	if (plan->tma.border_rank == 0 || plan->tma.strategy == STRATEGY_none)
		return own;
	return own * window + around_cost(nest, window, mode);
}

/* Returns the cost of a byte of the window at which the whole plan costs `most`. The border is that of
 * tma_cost. */
static double cost_left(const struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode,
                        double most)
{
	const double window = window_share(nest, outer);

	return plan->tma.border_rank == 0 ? most : (most - around_cost(nest, window, mode)) / window;
}

/* ---- The border --------------------------------------------------------------------------------------- */

/* Extends a dimension of the border by the next dimension of the nest. A constant border reads nothing, so
 * its rows may continue wherever the destination does. Returns false if the destination does not continue
 * there. */
static bool extend_border(struct strided_dim *inner, const struct loop_nest_dim *dim)
{
	if (inner->source != inner->n || dim->dst != inner->dst * inner->n)
		return false;
	inner->before = dim->before * inner->n;
	inner->source = dim->source * inner->n;
	inner->n *= dim->n;
	return true;
}

void tma_set_border(struct plan *plan, const struct loop_nest *nest, int outer, enum pad_mode mode)
{
	struct tma_route_plan *tma = &plan->tma;
	uint32_t rank = 0, inner = 0; /* number of dimensions whose border is written with the window */

	if (nest->rank == 0 || nest->dim[nest->rank - 1].dst != nest->element)
		tma->border[rank++] = tma_unit_dim(nest->element);
	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];

		if (mode != PAD_MODE_CONSTANT || rank == 0 || !extend_border(&tma->border[rank - 1], dim))
			tma->border[rank++] =
			    (struct strided_dim){ dim->n, dim->dst, dim->src, dim->before, dim->source };
		inner = d >= outer ? rank : min_u32(inner, rank - 1);
	}
	if (nest->fill) { /* there is no window, so everything counts as border before it */
		tma->border[rank - 1].before = tma->border[rank - 1].n;
		tma->border[rank - 1].source = 0;
	}
	tma->border_rank = rank;
	tma->border_element = nest->element;
	tma->border_dst_offset = nest->dst_offset;
	tma->border_src_offset = nest->src_offset;
	for (uint32_t b = 0; b < 2 * (nest->fill ? rank : rank - inner); b++)
		tma->border_tiles += border_tiles(tma->border, rank, b, nest->element);
	if (tma->border_tiles == 0)
		tma->border_rank = 0;
}

/* ---- Alternatives -------------------------------------------------------------------------------------- */

/* Maximum predicted time of an alternative as a multiple of the chosen plan's. In nine of ten measured cases,
 * the error of the model is smaller (tests/bench/EXPERIMENTS.md). */
#define MOST_TIME 1.25

/* Predicted time in ns, without the fixed time of a copy (plan.c), below which overhead around the launch
 * matters more than the plan. */
#define LEAST_NS 12000

bool alternatives_are_worth_trying(const struct plan *chosen, uint64_t bytes, const struct copy_speed *copy)
{
	return plan_predict_ns(chosen, bytes, copy) - plan_predict_ns(chosen, 0, copy) >= LEAST_NS;
}

void alternatives_init(struct alternatives *ret, const struct plan *chosen, const struct transform *transform,
                       const struct plan_facts *facts)
{
	struct plan again;

	ret->n = 1;
	ret->plan[0] = *chosen;
	make_plan(&again, transform, facts, ret);
	for (int i = 1; i < ret->n; i++)
		name_strategy(&ret->plan[i]);
}

/* Returns whether two plans are too similar to be both worth trying. Apart from tiles of many axes, a
 * transform has at most three plans by each strategy: one whose border a second launch writes, one with the
 * border in the tiles, and one without a border. */
static bool resembles(const struct tma_route_plan *a, const struct tma_route_plan *b)
{
	if (a->strategy != b->strategy || a->patched != b->patched ||
	    (a->border_rank > 0) != (b->border_rank > 0))
		return false;
	return a->strategy != STRATEGY_permute ||
	       (a->permute.how == b->permute.how && permute_sizes_are_near(&a->sizes, &b->sizes));
}

/* Returns the greatest predicted time at which a plan is worth adding. */
static double most_time(const struct alternatives *list)
{
	return MOST_TIME * list->plan[0].predicted;
}

static void drop(struct alternatives *list, int at)
{
	memmove(&list->plan[at], &list->plan[at + 1], (size_t)(--list->n - at) * sizeof *list->plan);
}

void alternatives_add(struct alternatives *list, const struct plan *plan)
{
	int at;

	if (plan->predicted > most_time(list))
		return;
	for (int i = 0; i < list->n; i++)
		if (resembles(&list->plan[i].tma, &plan->tma) &&
		    (i == 0 || list->plan[i].predicted <= plan->predicted))
			return;
	for (int i = list->n - 1; i > 0; i--)
		if (resembles(&list->plan[i].tma, &plan->tma))
			drop(list, i);
	for (at = list->n; at > 1 && list->plan[at - 1].predicted > plan->predicted; at--)
		continue;
	if (at == PLAN_ALTERNATIVES)
		return;
	if (list->n == PLAN_ALTERNATIVES)
		list->n--;
	memmove(&list->plan[at + 1], &list->plan[at], (size_t)(list->n++ - at) * sizeof *list->plan);
	list->plan[at] = *plan;
}
