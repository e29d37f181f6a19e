/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the family of a transform's interior and its tile, and records the rules that ruled better families
 * out.
 */
#include "plan.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu_choice.h"

#define TILE_ROW_BYTES 64 /* a cache line on each side */
#define TILE_LEAST     4  /* elements */

const char *const family_names[FAMILY_COUNT] = {
	[FAMILY_MEMCPY] = "memcpy",
	[FAMILY_TILE_COPY] = "tile_copy",
	[FAMILY_TILE_TRANSPOSE] = "tile_transpose",
	[FAMILY_STRIDED] = "strided",
	[FAMILY_FILL] = "fill",
	[FAMILY_CONVERT] = "convert",
};

const char *const plan_method_names[PLAN_METHOD_COUNT] = {
	[PLAN_METHOD_OPEN] = "open",
	[PLAN_METHOD_MICROKERNEL] = "microkernel",
	[PLAN_METHOD_TILES] = "tiles",
};

static void choose_method(struct plan *plan, int64_t bytes);
static void explain_inner(struct plan *plan, enum family family, const char *side, int64_t stride);
static void explain_source(struct plan *plan);

enum family plan_loop_nest(const struct loop_nest *nest, int *ret_src_inner)
{
	const struct loop_nest_dim *inner;
	int64_t element = nest->element;

	*ret_src_inner = -1;
	if (nest->fill)
		return FAMILY_FILL;
	if (nest->converted)
		return FAMILY_CONVERT;
	if (nest->rank == 0)
		return FAMILY_MEMCPY;
	inner = &nest->dim[nest->rank - 1];
	if (inner->dst != element)
		return FAMILY_STRIDED;
	if (inner->src == element)
		return nest->rank == 1 ? FAMILY_MEMCPY : FAMILY_TILE_COPY;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == element) {
			*ret_src_inner = d;
			return FAMILY_TILE_TRANSPOSE;
		}
	if (inner->src == 0 || inner->src == -element)
		return FAMILY_STRIDED;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == -element) {
			*ret_src_inner = d;
			return FAMILY_TILE_TRANSPOSE;
		}
	return FAMILY_STRIDED;
}

void plan_init(struct plan *plan, const struct transform *transform, const struct plan_facts *facts)
{
	struct subregions subregions;
	int64_t bytes, row;
	int src_inner;

	if (facts->tma) {
		tma_plan_init(plan, transform, facts);
		return;
	}
	*plan =
	    (struct plan){ .interior = { .fill = true, .element = transform->element }, .swizzle = "none" };
	subregions_init(&subregions, transform);
	plan->n_subregions = subregions.n;
	subregions_interior(&subregions, facts->align, &plan->interior);
	plan->family = plan_loop_nest(&plan->interior, &src_inner);

	bytes = transform->count * transform->element;
	plan->grid = bytes > 0 ? (bytes - 1) / PLAN_PIECE_BYTES + 1 : 1;
	if (plan->family == FAMILY_TILE_TRANSPOSE) {
		row = TILE_ROW_BYTES / plan->interior.element;
		plan->tile_rank = 2;
		plan->tile[0] = plan->tile[1] = row > TILE_LEAST ? row : TILE_LEAST;
	}
	if (plan->family == FAMILY_CONVERT)
		return;
	choose_method(plan, bytes);

	if (plan->family == FAMILY_MEMCPY || plan->family == FAMILY_FILL)
		return;
	plan_explain_memcpy(plan, &plan->interior);
	if (plan->family == FAMILY_TILE_COPY)
		return;
	explain_inner(plan, FAMILY_TILE_COPY, "destination", plan->interior.dim[plan->interior.rank - 1].dst);
	explain_inner(plan, FAMILY_TILE_COPY, "source", plan->interior.dim[plan->interior.rank - 1].src);
	if (plan->family == FAMILY_TILE_TRANSPOSE)
		return;
	explain_inner(plan, FAMILY_TILE_TRANSPOSE, "destination",
	              plan->interior.dim[plan->interior.rank - 1].dst);
	explain_source(plan);
}

/* As the engine will, where it does not matter how the transform is divided among threads. bytes: of the
 * destination. */
static void choose_method(struct plan *plan, int64_t bytes)
{
	const struct loop_nest *nest = &plan->interior;
	const struct cpu_case c = { .piece_bytes = PLAN_PIECE_BYTES, .stream = bytes >= CPU_STREAM_BYTES };
	struct cpu_choice choice;

	if (!c.stream)
		return;
	cpu_choose(&choice, nest, &c);
	if (choice.cost == 0)
		return;
	plan->predicted = choice.cost;
	plan->method = choice.candidate > 0 ? PLAN_METHOD_TILES : PLAN_METHOD_MICROKERNEL;
	if (choice.candidate == 0)
		return;
	plan->tile_rank = nest->rank;
	for (int d = 0; d < nest->rank; d++)
		plan->tile[d] = choice.tile.n[d];
}

/* ---- Rules: strides are the interior's, in bytes, dimensions counted from the outermost ------------ */

void plan_add_rule(struct plan *plan, enum family family, const char *format, ...)
{
	struct plan_rule *rule;
	va_list args;

	if (plan->n_rules == PLAN_MAX_RULES)
		return;
	rule = &plan->rules[plan->n_rules++];
	rule->family = family;
	va_start(args, format);
	vsnprintf(rule->text, sizeof rule->text, format, args);
	va_end(args);
}

void plan_explain_memcpy(struct plan *plan, const struct loop_nest *nest)
{
	int64_t run = nest->element;

	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];

		if (dim->dst != run)
			plan_add_rule(plan, FAMILY_MEMCPY,
			              "destination stride %d is %" PRId64 " bytes, not %" PRId64, d, dim->dst,
			              run);
		if (dim->src != run)
			plan_add_rule(plan, FAMILY_MEMCPY,
			              "source stride %d is %" PRId64 " bytes, not %" PRId64, d, dim->src,
			              run);
		if (dim->source != dim->n)
			plan_add_rule(plan, FAMILY_MEMCPY, "dimension %d is padded", d);
		if (plan->n_rules)
			return;
		run *= dim->n;
	}
}

static void explain_inner(struct plan *plan, enum family family, const char *side, int64_t stride)
{
	if (stride != plan->interior.element)
		plan_add_rule(plan, family, "%s stride %d is %" PRId64 " bytes, not %" PRIu32, side,
		              plan->interior.rank - 1, stride, plan->interior.element);
}

static void explain_source(struct plan *plan)
{
	const struct loop_nest *nest = &plan->interior;
	int smallest = 0;

	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].src == nest->element)
			return;
		if (llabs(nest->dim[d].src) < llabs(nest->dim[smallest].src))
			smallest = d;
	}
	plan_add_rule(plan, FAMILY_TILE_TRANSPOSE,
	              "source stride %d, the smallest, is %" PRId64 " bytes, and none is %" PRIu32, smallest,
	              nest->dim[smallest].src, nest->element);
}
