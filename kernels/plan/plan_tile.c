/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what a plan's tile is; its dimensions are those of the route that moves it. */
#include "plan_tile.h"

#include <string.h>

#include "transform.h"

#define H200_PROCESSORS 132
#define H200_MEMORY_KHZ 3201000
#define H200_BUS_BITS   6016
#define ALIGN           16 /* what both engines widen by at most */

/* Dimension d of the tile, counted from the outermost, is dimension `of` of the route's. */
static void set_dim(struct plan_tile *ret, const struct plan *plan, int d, int of)
{
	ret->dst[d] = plan->tma.dim[of].dst;
	ret->src[d] = plan->tma.dim[of].src;
}

static void of_cpu(const struct plan *plan, struct plan_tile *ret)
{
	const struct loop_nest *nest = &plan->interior;
	int src_inner;

	if (plan->method == PLAN_METHOD_TILES) {
		ret->element = nest->element;
		ret->rank = 0;
		for (int d = 0; d < plan->tile_rank; d++) {
			if (plan->tile[d] == 1)
				continue;
			ret->n[ret->rank] = plan->tile[d];
			ret->dst[ret->rank] = nest->dim[d].dst;
			ret->src[ret->rank++] = nest->dim[d].src;
		}
		return;
	}
	if (plan_loop_nest(nest, &src_inner) != FAMILY_TILE_TRANSPOSE)
		return;
	ret->element = nest->element;
	ret->dst[0] = nest->dim[src_inner].dst;
	ret->src[0] = nest->dim[src_inner].src;
	ret->dst[1] = nest->dim[nest->rank - 1].dst;
	ret->src[1] = nest->dim[nest->rank - 1].src;
}

/* A map's elements have 8 bytes at most: of a copy, the tile's have too. */
static void of_map(const struct plan *plan, struct plan_tile *ret)
{
	const struct tma_route_plan *tma = &plan->tma;
	bool is_copy = tma->route == TMA_ROUTE_COPY;

	ret->element = is_copy && tma->element > 8 ? 8 : tma->element;
	ret->row_bytes = is_copy ? tma->store.box[0] * ret->element : TRANSPOSE_ROW_BYTES;
	for (int d = 0; d < plan->tile_rank; d++)
		set_dim(ret, plan, d, plan->tile_rank - 1 - d);
	if (is_copy)
		ret->dst[plan->tile_rank - 1] = ret->src[plan->tile_rank - 1] = ret->element;
}

/* The route's dimensions are the loop nest's, of which plan->tile has all. */
static void of_permute(const struct plan *plan, struct plan_tile *ret)
{
	ret->rank = 0;
	for (int d = 0; d < plan->tile_rank; d++) {
		if (plan->tile[d] == 1)
			continue;
		ret->n[ret->rank] = plan->tile[d];
		set_dim(ret, plan, ret->rank++, plan->tile_rank - 1 - d);
	}
}

void plan_tile_of(const struct plan *plan, struct plan_tile *ret)
{
	const struct tma_route_plan *tma = &plan->tma;

	*ret = (struct plan_tile){ .rank = plan->tile_rank };
	if (plan->tile_rank == 0)
		return;
	memcpy(ret->n, plan->tile, (size_t)plan->tile_rank * sizeof *ret->n);
	ret->element = tma->element;
	switch (tma->route) {
	case TMA_ROUTE_COPY:
	case TMA_ROUTE_TRANSPOSE:
		of_map(plan, ret);
		break;
	case TMA_ROUTE_BULK:
		ret->row_bytes = tma->chunk;
		ret->dst[0] = ret->src[0] = ret->element;
		break;
	case TMA_ROUTE_CHANNELS:
		/* The few channels are the second of the route's. */
		set_dim(ret, plan, 0, plan->tile[0] == tma->run ? 1 : 0);
		set_dim(ret, plan, 1, plan->tile[0] == tma->run ? 0 : 1);
		break;
	case TMA_ROUTE_TILES:
		set_dim(ret, plan, 0, 1);
		set_dim(ret, plan, 1, 0);
		break;
	case TMA_ROUTE_PERMUTE:
		of_permute(plan, ret);
		break;
	default:
		of_cpu(plan, ret);
	}
}

bool plan_facts_of(const char *engine, size_t len, struct plan_facts *ret)
{
	const struct plan_facts known[] = {
		{ .engine = "cpu", .threads = 1, .align = ALIGN },
		{ .engine = "cuda",
		  .threads = H200_PROCESSORS,
		  .align = ALIGN,
		  .tma = true,
		  .copy = copy_speed_of(H200_MEMORY_KHZ, H200_BUS_BITS) },
	};

	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strlen(known[i].engine) == len && !memcmp(known[i].engine, engine, len)) {
			*ret = known[i];
			return true;
		}
	return false;
}
