/* SPDX-License-Identifier: Apache-2.0 */
/* Explains the choice that a move of many bytes makes, and the rules that ruled better families out. */
#include "cpu_explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "cpu_choice.h"
#include "kernels/nest/nest_family.h"

#define TILE_ROW_BYTES 64 /* a cache line on each side */
#define TILE_LEAST     4  /* elements */

/* Adds dimension d of the interior to the tile, in which it has n elements. */
static void add_tile_dim(struct engine_explanation *ret, const struct loop_nest *nest, int d, int64_t n)
{
	const int at = ret->tile.rank++;

	ret->tile.element = nest->element;
	ret->tile.n[at] = n;
	ret->tile.dst[at] = nest->dim[d].dst;
	ret->tile.src[at] = nest->dim[d].src;
}

/* The microkernel of a transposition goes by squares of a cache line on each side. */
static void explain_square(struct engine_explanation *ret, const struct loop_nest *nest, int src_inner)
{
	const int64_t row = TILE_ROW_BYTES / nest->element, n = row > TILE_LEAST ? row : TILE_LEAST;

	add_tile_dim(ret, nest, src_inner, n);
	add_tile_dim(ret, nest, nest->rank - 1, n);
}

/* Returns whether the interior goes by tiles of the choice, which are then set. */
static bool explain_method(struct engine_explanation *ret, const struct loop_nest *nest, int64_t bytes)
{
	const struct cpu_case c = { .piece_bytes = CPU_PIECE_BYTES, .stream = bytes >= CPU_STREAM_BYTES };
	struct cpu_choice choice;

	if (!c.stream)
		return false;
	cpu_choose(&choice, nest, &c);
	if (choice.cost == 0)
		return false;
	ret->predicted = choice.cost;
	snprintf(ret->method, sizeof ret->method, "%s", choice.candidate > 0 ? "tiles" : "microkernel");
	for (int d = 0; choice.candidate > 0 && d < nest->rank; d++)
		if (choice.tile.n[d] > 1)
			add_tile_dim(ret, nest, d, choice.tile.n[d]);
	return choice.candidate > 0;
}

/* ---- Rules: strides are the interior's, in bytes, dimensions counted from the outermost ------------ */

static void explain_inner(struct engine_explanation *ret, const struct loop_nest *nest, enum family family,
                          const char *side, int64_t stride)
{
	if (stride != nest->element)
		family_rules_add(&ret->rules, family, "%s stride %d is %" PRId64 " bytes, not %" PRIu32, side,
		                 nest->rank - 1, stride, nest->element);
}

static void explain_source(struct engine_explanation *ret, const struct loop_nest *nest)
{
	int smallest = 0;

	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].src == nest->element)
			return;
		if (llabs(nest->dim[d].src) < llabs(nest->dim[smallest].src))
			smallest = d;
	}
	family_rules_add(&ret->rules, FAMILY_TILE_TRANSPOSE,
	                 "source stride %d, the smallest, is %" PRId64 " bytes, and none is %" PRIu32,
	                 smallest, nest->dim[smallest].src, nest->element);
}

static void explain_rules(struct engine_explanation *ret, const struct loop_nest *nest)
{
	const struct loop_nest_dim *inner;

	if (ret->family == FAMILY_MEMCPY || ret->family == FAMILY_FILL)
		return; /* the nest may have no dimension */
	inner = &nest->dim[nest->rank - 1];
	loop_nest_explain_memcpy(nest, &ret->rules);
	if (ret->family == FAMILY_TILE_COPY)
		return;
	explain_inner(ret, nest, FAMILY_TILE_COPY, "destination", inner->dst);
	explain_inner(ret, nest, FAMILY_TILE_COPY, "source", inner->src);
	if (ret->family == FAMILY_TILE_TRANSPOSE)
		return;
	explain_inner(ret, nest, FAMILY_TILE_TRANSPOSE, "destination", inner->dst);
	explain_source(ret, nest);
}

void cpu_explain(struct engine_explanation *ret, const struct transform *transform, uint32_t align)
{
	const int64_t bytes = transform->count * transform->element;
	struct loop_nest nest = { .fill = true, .element = transform->element };
	struct subregions subregions;
	int src_inner;

	subregions_init(&subregions, transform);
	subregions_interior(&subregions, align, &nest);
	*ret = (struct engine_explanation){
		.family = loop_nest_family(&nest, &src_inner),
		.swizzle = "none",
		.grid = bytes > 0 ? (bytes - 1) / CPU_PIECE_BYTES + 1 : 1,
		.bytes = transform->bytes,
		.n_subregions = subregions.n,
	};
	explanation_set_interior(ret, &nest);
	if (ret->family == FAMILY_CONVERT)
		return;
	if (!explain_method(ret, &nest, bytes) && ret->family == FAMILY_TILE_TRANSPOSE)
		explain_square(ret, &nest, src_inner);
	explain_rules(ret, &nest);
}
