/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the strategy for the whole destination, with pads as windows.
 *
 * Strategies are asked in the order of strategies.def until one is legal; each that is not leaves its rules
 * in the plan. Then others are asked, and the cheapest plan is taken.
 */
#include "alternatives.h"
#include "planner.h"

static void choose_first(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                         enum pad_mode mode);
static bool try_padded_rows(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                            enum pad_mode mode);
static void name_strategy(struct plan *plan);
static void improve(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                    enum pad_mode mode, struct alternatives *list);

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

/* Whether tiles hold all of the destination, and little of it is border. */
static bool is_patchable(const struct plan *plan, const struct loop_nest *nest, const struct loop_nest *inner)
{
	return plan->tma.strategy == STRATEGY_copy && plan->tma.repeats == 1 &&
	       loop_nest_count(inner) == loop_nest_count(nest) &&
	       loop_nest_count(nest) - window_count(nest) <= loop_nest_count(nest) / PAD_SHARE;
}

/* list: also gets what else is considered; NULL: nothing does. */
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

		/* What the maps leave zero is written again: only while that is little. */
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

/* Planning tiles of many axes takes most of the time. Conversions, fills, single runs, and moves that share a
 * launch do without. */
bool plan_is_quick(const struct transform *t, const struct plan_facts *facts)
{
	struct loop_nest nest;

	if (t->count == 0 || t->conversion.is || facts->spread || facts->listed)
		return true;
	return !loop_nest_window(&nest, t, facts->align) || (nest.rank <= 1 && tma_is_whole(&nest));
}

void plan_init(struct plan *plan, const struct transform *t, const struct plan_facts *facts)
{
	make_plan(plan, t, facts, NULL);
}

void tma_plan_alternatives(struct alternatives *list, const struct transform *t,
                           const struct plan_facts *facts)
{
	struct plan again;

	make_plan(&again, t, facts, list);
	for (int i = 1; i < list->n; i++)
		name_strategy(&list->plan[i]);
}

/* Only families that are better than the plan's had to be ruled out. */
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

/* If spreads is true, only strategies that can be one of many moves are asked, of which one is always
 * legal. */
static void choose_of(struct plan *plan, const struct strategy_case *c, bool spreads)
{
	for (enum strategy_id id = 0; id < STRATEGY_COUNT; id++) {
		const struct strategy *strategy = strategies[id];

		if ((strategy->turn == STRATEGY_FIRST || strategy->turn == STRATEGY_EITHER) &&
		    (strategy->spreads || !spreads) && probe(plan, id, c))
			return;
	}
}

/* One of many moves takes a single element as a row of one. */
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

/* Tries rows that are long enough to be worth it, whatever other strategies there are. */
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

/* Returns the plan without what depends on its strategy. */
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

/* The window alone, with a fill around it. */
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

/* The share of a destination that is filled by itself at most: where rows of the border and of the window
 * meet, sectors are written twice. */
#define MOST_FILL 0.0625

/* Tries this strategy for the window of the `outer` outermost dimensions, with a fill for their border. Rows
 * of tiles of many axes cannot end within a padded dimension, so it is best to leave the border to the fill,
 * however long that dimension is. */
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
		                 tma_cost_left(&other, nest, outer, mode, alternatives_most(list)));
		return;
	}
	c = case_of(&inner, facts, mode);
	c.instead = true;
	c.most = tma_cost_left(&other, nest, outer, mode, plan->predicted);
	if (probe(&other, id, &c))
		take_cheaper(plan, &other, nest, outer, mode, list);
}

/* Adds plans by strategies that choose_first and improve do not compare with the one that they take. */
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

/* Other ways to move the same, of which the cheapest is taken: the window alone, rows, and tiles of many
 * axes; with a fill around what they leave out. */
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
	/* Strategies that read their border leave all of it to a fill, however large it is. */
	if (mode != PAD_MODE_CONSTANT && plan->tma.border_rank > 0 && plan->tma.strategy != STRATEGY_permute)
		try_instead(plan, STRATEGY_permute, nest, nest->rank, facts, mode, list);
}
