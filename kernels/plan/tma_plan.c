/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the route for the whole destination, with pads as windows.
 *
 * Routes are tried from the best: the driver's copy, runs, maps on both sides, a map and registers, and last
 * what needs no map. Each one that is ruled out leaves its rules in the plan.
 */
#include "tma_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "alternatives.h"
#include "tma_route.h"

static void choose_route(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts);
static void name_route(struct plan *plan);
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
	return plan->tma.route == TMA_ROUTE_COPY && plan->tma.repeats == 1 &&
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
		name_route(plan);
		return;
	}
	window = loop_nest_window(&nest, t, facts->align);
	if (!window) {
		subregions_init(&subregions, t);
		subregions_get(&subregions, 0, facts->align, &nest);
		narrow_to(&nest, facts->align, t->mode);
		tma_set_border(plan, &nest, nest.rank, t->mode);
		plan->predicted = tma_cost(plan, &nest, nest.rank, t->mode);
		name_route(plan);
		return;
	}
	plan->interior = nest;
	if (t->conversion.is) {
		tma_set_convert(plan, t, facts, &nest);
		name_route(plan);
		return;
	}
	narrow_to(&nest, facts->align, t->mode);
	if (t->mode == PAD_MODE_CONSTANT && (tma_is_whole(&nest) || is_zero(t))) {
		choose_route(plan, &nest, facts);
	} else if (!tma_try_padded_rows(plan, &nest)) {
		struct loop_nest inner = nest;

		/* What the maps leave zero is written again: only while that is little. */
		if (window_count(&nest) <= loop_nest_count(&nest) / 2)
			tma_shrink(&inner, inner.rank, facts->align, t->mode);
		narrow_to(&inner, facts->align, t->mode);
		choose_route(plan, &inner, facts);
		if (is_patchable(plan, &nest, &inner))
			plan->tma.patched = true;
		else if (plan->tma.route < TMA_ROUTE_ROWS || t->mode != PAD_MODE_CONSTANT ||
		         loop_nest_count(&inner) != loop_nest_count(&nest))
			tma_set_border(plan, &nest, nest.rank, t->mode);
	}
	improve(plan, &nest, facts, t->mode, list);
	name_route(plan);
}

void tma_plan_init(struct plan *plan, const struct transform *t, const struct plan_facts *facts)
{
	make_plan(plan, t, facts, NULL);
}

void tma_plan_alternatives(struct alternatives *list, const struct transform *t,
                           const struct plan_facts *facts)
{
	struct plan again;

	make_plan(&again, t, facts, list);
	for (int i = 1; i < list->n; i++)
		name_route(&list->plan[i]);
}

/* Only families that are better than the plan's had to be ruled out. */
static void drop_rules(struct plan *plan)
{
	int n = 0;

	for (int i = 0; i < plan->n_rules; i++)
		if (plan->rules[i].family < plan->family)
			plan->rules[n++] = plan->rules[i];
	plan->n_rules = n;
}

static void name_route(struct plan *plan)
{
	static const enum family families[] = {
		[TMA_ROUTE_NONE] = FAMILY_FILL,
		[TMA_ROUTE_MEMCPY] = FAMILY_MEMCPY,
		[TMA_ROUTE_BULK] = FAMILY_TILE_COPY,
		[TMA_ROUTE_COPY] = FAMILY_TILE_COPY,
		[TMA_ROUTE_TRANSPOSE] = FAMILY_TILE_TRANSPOSE,
		[TMA_ROUTE_ROWS] = FAMILY_STRIDED,
		[TMA_ROUTE_SHORT] = FAMILY_STRIDED,
		[TMA_ROUTE_TILES] = FAMILY_STRIDED,
		[TMA_ROUTE_GATHER] = FAMILY_STRIDED,
		[TMA_ROUTE_CHANNELS] = FAMILY_STRIDED,
		[TMA_ROUTE_PERMUTE] = FAMILY_TILE_TRANSPOSE,
		[TMA_ROUTE_ELEMENTS] = FAMILY_STRIDED,
		[TMA_ROUTE_CONVERT] = FAMILY_CONVERT,
	};

	plan->family = families[plan->tma.route];
	if (plan->tma.route == TMA_ROUTE_PERMUTE && plan->tma.alike)
		plan->family = FAMILY_TILE_COPY;
	drop_rules(plan);
	plan->grid = plan->tma.tiles ? (int64_t)plan->tma.tiles : 1;
	plan->n_subregions = (plan->tma.route != TMA_ROUTE_NONE) + (plan->tma.border_rank > 0);
}

void tma_fill_pattern(const struct transform *t, uint64_t dst, uint32_t ret[4])
{
	uint8_t bytes[16];

	for (uint32_t i = 0; i < sizeof bytes; i++)
		bytes[i] = t->fill[(i - dst) % t->element];
	memcpy(ret, bytes, sizeof bytes);
}

/* ---- Dimensions -------------------------------------------------------------------------------------- */

bool tma_is_whole(const struct loop_nest *nest)
{
	for (int d = 0; d < nest->rank; d++)
		if (nest->dim[d].source != nest->dim[d].n)
			return false;
	return true;
}

/* Innermost first; the loop nest's dimension that comes first, then the others in their order. */
void tma_set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int first, int second)
{
	int order[TENSOR_MAX_RANK + 1], n = 0;

	order[n++] = first;
	if (second >= 0)
		order[n++] = second;
	for (int d = nest->rank - 1; d >= 0; d--)
		if (d != first && d != second)
			order[n++] = d;
	tma->rank = (uint32_t)n;
	for (int i = 0; i < n; i++) {
		const struct loop_nest_dim *dim = &nest->dim[order[i]];

		tma->dim[i] = (struct strided_dim){ dim->n, dim->dst, dim->src, dim->before, dim->source };
	}
}

/* ---- The choice ----------------------------------------------------------------------------------- */

/* Without a map, and without the driver: a single element is a row of one. */
static void set_spread(struct plan *plan, const struct loop_nest *nest)
{
	struct loop_nest one = *nest;

	if (nest->rank == 0) {
		one.rank = 1;
		one.dim[0] =
		    (struct loop_nest_dim){ .n = 1, .dst = nest->element, .src = nest->element, .source = 1 };
	}
	tma_set_strided(plan, &one);
}

static void choose_route(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts)
{
	struct tma_route_plan *tma = &plan->tma;
	const struct loop_nest_dim *inner = nest->rank > 0 ? &nest->dim[nest->rank - 1] : NULL;
	int64_t element = nest->element;
	int src_inner = -1;

	if (facts->spread) {
		set_spread(plan, nest);
		return;
	}
	if (nest->rank == 0 ||
	    (nest->rank == 1 && inner->dst == element && inner->src == element && tma_is_whole(nest))) {
		tma->route = TMA_ROUTE_MEMCPY;
		tma->dst_offset = nest->dst_offset;
		tma->src_offset = nest->src_offset;
		tma->dim[0].n = nest->rank ? inner->n * element : element;
		return;
	}
	plan_explain_memcpy(plan, nest);
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == element)
			src_inner = d;
	if (inner->dst != element) {
		plan_add_rule(plan, FAMILY_TILE_COPY,
		              "destination stride %d is %" PRId64 " bytes, not %" PRId64, nest->rank - 1,
		              inner->dst, element);
	} else if (inner->src == element) {
		if (tma_try_bulk(plan, nest, facts) || tma_try_copy(plan, nest, facts))
			return;
	} else if (src_inner >= 0) {
		plan_add_rule(plan, FAMILY_TILE_COPY, "source stride %d is %" PRId64 " bytes, not %" PRId64,
		              nest->rank - 1, inner->src, element);
		if (tma_try_channels(plan, nest, src_inner, facts) ||
		    tma_try_transpose(plan, nest, src_inner, facts))
			return;
	} else {
		plan_add_rule(plan, FAMILY_TILE_COPY,
		              "source stride %d is %" PRId64 " bytes, not %" PRId64
		              ", but a map does not step along its innermost dimension",
		              nest->rank - 1, inner->src, element);
	}
	plan->tile_rank = 0;
	tma_set_strided(plan, nest);
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

/* Without what depends on its route. */
static struct plan without_route(const struct plan *plan)
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
	choose_route(&other, &inner, facts);
	tma_set_border(&other, nest, nest->rank, mode);
	take_cheaper(plan, &other, nest, nest->rank, mode, list);
}

/* Rows by threads, border included. */
static void try_rows(struct plan *plan, const struct loop_nest *nest, enum pad_mode mode,
                     struct alternatives *list)
{
	struct plan other = without_route(plan);

	if (tma_try_padded_rows(&other, nest))
		take_cheaper(plan, &other, nest, nest->rank, mode, list);
}

/* Elements one by one, border included. */
static void try_elements(struct plan *plan, const struct loop_nest *nest, enum pad_mode mode,
                         struct alternatives *list)
{
	struct plan other = without_route(plan);

	if ((tma_is_whole(nest) || mode == PAD_MODE_CONSTANT) && tma_try_elements(&other, nest))
		take_cheaper(plan, &other, nest, nest->rank, mode, list);
}

/* The share of a destination that is filled by itself at most: where rows of the border and of the window
 * meet, sectors are written twice. */
#define MOST_FILL 0.0625

/* Tiles of many axes for the window of so many dimensions, the outermost, and a fill for their border. Rows
 * cannot end within a dimension that is padded, so that such a dimension, however long, is best without. */
static void try_permute(struct plan *plan, const struct loop_nest *nest, int outer,
                        const struct plan_facts *facts, enum pad_mode mode, struct alternatives *list)
{
	struct plan other = without_route(plan);
	struct loop_nest inner = *nest;

	if (outer > 0) {
		tma_shrink(&inner, outer, facts->align, mode);
		narrow_to(&inner, facts->align, mode);
		tma_set_border(&other, nest, outer, mode);
	}
	if (list)
		tma_add_permutes(list, &other, &inner, nest, outer, facts, mode);
	else if (tma_try_permute(&other, &inner, facts, mode))
		take_cheaper(plan, &other, nest, outer, mode, NULL);
}

/* Routes that choose_route and improve do not compare with the one that they take. */
static void add_routes(struct alternatives *list, const struct plan *plan, const struct loop_nest *nest,
                       const struct plan_facts *facts, enum pad_mode mode)
{
	struct plan other = without_route(plan);

	if (!tma_is_whole(nest) && mode != PAD_MODE_CONSTANT)
		return;
	tma_set_strided(&other, nest);
	other.predicted = tma_cost(&other, nest, nest->rank, mode);
	alternatives_add(list, &other);
	other = without_route(plan);
	if (plan->tma.route != TMA_ROUTE_BULK || !tma_try_copy(&other, nest, facts))
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
	if (plan->tma.route == TMA_ROUTE_MEMCPY || plan->tma.route == TMA_ROUTE_NONE || facts->spread ||
	    facts->listed)
		return;
	if (list) {
		alternatives_add(list, plan);
		add_routes(list, plan, nest, facts, mode);
	}
	if (mode == PAD_MODE_CONSTANT && !tma_is_whole(nest) && plan->tma.border_rank == 0)
		try_window(plan, nest, facts, mode, list);
	try_rows(plan, nest, mode, list);
	try_elements(plan, nest, mode, list);
	try_permute(plan, nest, 0, facts, mode, list);
	for (int d = 0; d < nest->rank; d++) {
		window *= (double)nest->dim[d].source / (double)nest->dim[d].n;
		if (1 - window > MOST_FILL)
			break;
		if (nest->dim[d].source != nest->dim[d].n)
			try_permute(plan, nest, d + 1, facts, mode, list);
	}
	/* The routes that read their border leave all of it to a fill, however large it is. */
	if (mode != PAD_MODE_CONSTANT && plan->tma.border_rank > 0 && plan->tma.route != TMA_ROUTE_PERMUTE)
		try_permute(plan, nest, nest->rank, facts, mode, list);
}
