/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies and the chooser share facts, dimensions, and the parts of plans without a tensor map. */
#include "planner.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_LEAST 64  /* bytes of a run, at least: a shorter row is not worth a slot */
#define PADS_LEAST 512 /* the same where other strategies leave the border to another launch */

struct plan_facts plan_facts_at(const struct plan_facts *facts, struct plan_places places)
{
	struct plan_facts at = *facts;

	at.align = plan_places_align(places);
	at.spread = places.many;
	at.dst_phase = places.dst;
	at.src_phase = places.src;
	return at;
}

double plan_predict_ns(const struct plan *plan, uint64_t bytes, const struct copy_speed *speed)
{
	return plan->predicted * copy_speed_ns(speed, bytes);
}

void tma_fill_pattern(const struct transform *t, uint64_t dst, uint32_t ret[4])
{
	uint8_t bytes[16];

	for (uint32_t i = 0; i < sizeof bytes; i++)
		bytes[i] = t->fill[(i - dst) % t->element];
	memcpy(ret, bytes, sizeof bytes);
}

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

/* ---- Without a tensor map ---------------------------------------------------------------------------- */

bool tma_is_ragged(const struct tma_route_plan *tma, uint64_t align)
{
	uint64_t bits = (uint64_t)tma->dst_offset;

	for (uint32_t d = 0; d < tma->rank; d++)
		bits |= tma->dim[d].dst == tma->element ? 0 : (uint64_t)tma->dim[d].dst;
	return bits % align != 0;
}

void tma_begin_strided(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->repeats = 1;
}

void tma_set_whole(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->whole = tma_is_whole(nest);
	for (int d = 0; d < nest->rank; d++)
		tma->whole = tma->whole && nest->dim[d].n <= TMA_LONGEST;
}

void tma_count_tiles(struct tma_route_plan *tma, uint64_t tiles, uint32_t outer)
{
	tma->tiles = tiles;
	for (uint32_t d = outer; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
}

uint64_t tma_row_bytes(const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct loop_nest_dim *inner = nest->rank > 0 ? &nest->dim[nest->rank - 1] : NULL;
	const int64_t element = nest->element, least = c->instead ? PADS_LEAST : ROWS_LEAST;

	if (!inner || inner->dst != element || llabs(inner->src) != element || inner->n * element < least)
		return 0;
	return (uint64_t)(inner->n * element);
}
