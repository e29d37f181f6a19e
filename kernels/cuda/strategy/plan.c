/* SPDX-License-Identifier: Apache-2.0 */
/* Code that the strategies and the planner share: facts, dimensions, the parts of plans without a tensor map,
 * and what a tensor map can express of a window. It also plans lists of blocks, predicts the time of a copy
 * and explains plans. */
#include "strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/transform/blocks.h"
#include "kernels/transform/transform.h"

#define ROWS_LEAST 64  /* minimum bytes of a run; a shorter row is not worth a slot */
#define PADS_LEAST 512 /* the same minimum where other strategies leave the border to a second launch */

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

/* ---- Tensor maps --------------------------------------------------------------------------------------- */

#define LONG_ROW 8192 /* bytes; the extra bytes fetched around such rows do not matter */

const enum tensor_map_type map_types[9] = {
	[1] = TENSOR_MAP_UINT8,
	[2] = TENSOR_MAP_UINT16,
	[4] = TENSOR_MAP_UINT32,
	[8] = TENSOR_MAP_UINT64,
};

uint32_t map_unit(uint32_t element)
{
	return element > 8 ? 8 : element;
}

bool map_check(struct plan *plan, enum family family, const char *side, const struct tensor_map_layout *map)
{
	struct tensor_map_rules rules;

	tensor_map_check(map, 0, &rules);
	for (int i = 0; i < rules.n; i++)
		family_rules_add(&plan->rules, family, "%s map: %s", side, rules.text[i]);
	return rules.n == 0;
}

/* Returns whether dimension d continues in the source where dimension d - 1 ends, so that a map can count
 * both as one. */
static bool follows(const struct tma_route_plan *tma, uint32_t d)
{
	const struct strided_dim *dim = &tma->dim[d], *inner = &tma->dim[d - 1];

	return inner->src > 0 && dim->src == inner->src * inner->n && dim->source == dim->n &&
	       inner->source == inner->n;
}

static bool is_broadcast(const struct strided_dim *dim)
{
	return dim->src == 0 && dim->source > 1;
}

/* Returns the number of dimensions of a map, at most TENSOR_MAP_MAX_RANK if the map can express them. The
 * map's last dimension may stand for several, and broadcast dimensions need none. */
static uint32_t map_rank(const struct tma_route_plan *tma, uint32_t most)
{
	uint32_t rank = tma->rank;

	while (rank > TENSOR_MAP_MAX_RANK && tma->rank <= most &&
	       (follows(tma, rank - 1) || is_broadcast(&tma->dim[rank - 1])))
		rank--;
	return rank;
}

bool map_check_dims(struct plan *plan, enum family family, uint32_t also, uint32_t most)
{
	struct tma_route_plan *tma = &plan->tma;
	int before = plan->rules.n;

	if (map_rank(tma, most) > TENSOR_MAP_MAX_RANK) {
		family_rules_add(&plan->rules, family,
		                 "rank is %" PRIu32 " after canonicalisation, but a map has at most %d",
		                 tma->rank, TENSOR_MAP_MAX_RANK);
		return false;
	}
	for (uint32_t d = 0; d < tma->rank; d++) {
		const struct strided_dim *dim = &tma->dim[d];

		if (dim->n > TMA_LONGEST / 2 || dim->source > TMA_LONGEST / 2)
			family_rules_add(&plan->rules, family,
			                 "dimension %" PRIu32 " has %" PRId64
			                 " elements, but a coordinate has 31 bits",
			                 tma->rank - 1 - d, dim->n);
		if (dim->src < 0)
			family_rules_add(&plan->rules, family,
			                 "source stride %" PRIu32 " is %" PRId64 " bytes, but a map's is "
			                 "not negative",
			                 tma->rank - 1 - d, dim->src);
		if (is_broadcast(dim) && (d == 0 || d == also || dim->source != dim->n))
			family_rules_add(&plan->rules, family, "source stride %" PRIu32 " is 0 where %s",
			                 tma->rank - 1 - d,
			                 dim->source != dim->n ? "the dimension is padded"
			                                       : "a tile extends");
	}
	return plan->rules.n == before;
}

uint32_t map_phase(uint32_t base_phase, int64_t offset)
{
	return (uint32_t)((uint64_t)base_phase + (uint64_t)offset) % 16;
}

/* Returns the size to which the L2 may round up a fetch: the largest one that divides the offsets of all
 * rows, so that no gap between rows is read, or simply the largest one if rows are so long that gaps do not
 * matter. */
static enum tensor_map_l2 promotion_of(const struct tma_route_plan *tma, enum family family)
{
	uint64_t row = (uint64_t)tma->dim[0].source * (uint64_t)tma->dim[0].src, bits = row;

	if (row >= LONG_ROW && family == FAMILY_TILE_COPY)
		return TENSOR_MAP_L2_256B;
	for (uint32_t d = 1; d < tma->rank; d++) {
		if (tma->dim[d].src == (int64_t)row)
			row *= (uint64_t)tma->dim[d].source;
		bits |= (uint64_t)tma->dim[d].src;
	}
	if (row >= LONG_ROW && family == FAMILY_TILE_COPY)
		return TENSOR_MAP_L2_256B;
	return bits % 256 == 0   ? TENSOR_MAP_L2_256B
	       : bits % 128 == 0 ? TENSOR_MAP_L2_128B
	       : bits % 64 == 0  ? TENSOR_MAP_L2_64B
	                         : TENSOR_MAP_L2_NONE;
}

bool map_set_load(struct plan *plan, enum family family, const struct loop_nest *nest, uint32_t phase)
{
	struct tma_route_plan *tma = &plan->tma;
	struct tensor_map_layout *map = &tma->load;
	uint32_t unit = map_unit(tma->element), scale = tma->element / unit;
	uint32_t past = map_phase(phase, nest->src_offset);

	map->type = map_types[unit];
	map->rank = tma->rank < TENSOR_MAP_MAX_RANK ? tma->rank : TENSOR_MAP_MAX_RANK;
	tma->src_offset = nest->src_offset;
	uint64_t off = (past + 16 - (uint64_t)tma->dim[0].before * tma->element % 16) % 16;

	if (past || off) {
		family_rules_add(&plan->rules, family,
		                 "source rows start %" PRIu64 " bytes past a multiple of 16",
		                 off ? off : past);
		return false;
	}
	for (uint32_t d = 0; d < ARGS_GRID_RANK; d++)
		tma->grid[d] = tma->repeat[d] = 1;
	for (uint32_t d = 0; d < tma->rank; d++) {
		const struct strided_dim *dim = &tma->dim[d];
		bool broadcast = is_broadcast(dim);

		tma->repeat[d] = broadcast ? (uint32_t)dim->n : 1;
		if (broadcast)
			tma->repeats *= (uint64_t)dim->n;
		tma->load_step[d] = !broadcast;
		if (d >= map->rank) {
			if (broadcast)
				continue;
			tma->load_step[d] = (int32_t)map->dim[map->rank - 1];
			map->dim[map->rank - 1] *= (uint64_t)dim->n;
			continue;
		}
		map->element_stride[d] = 1;
		map->dim[d] = broadcast ? 1 : (uint64_t)dim->source;
		if (d > 0)
			map->stride[d - 1] = dim->src ? (uint64_t)dim->src : 16;
		tma->load_shift[d] = broadcast ? 0 : (int32_t)-dim->before;
	}
	if (map->dim[map->rank - 1] > TMA_LONGEST) {
		family_rules_add(&plan->rules, family,
		                 "dimensions that a map counts as one have %" PRIu64
		                 " elements, but a coordinate has 31 bits",
		                 map->dim[map->rank - 1]);
		return false;
	}
	map->l2 = promotion_of(tma, family);
	map->dim[0] *= scale;
	tma->load_shift[0] *= (int32_t)scale;
	return true;
}

/* ---- Lists of blocks ----------------------------------------------------------------------------------- */

/* Maximum number of blocks that a map counts. It is well below the limit of a dimension (tensor_map.h). */
#define MOST_BLOCKS (1 << 30)
#define RUN_LEAST   1024 /* bytes; with shorter runs, it is faster if a warp moves several at a time */

static uint32_t align_of(uint64_t bits)
{
	bits |= 16;
	return (uint32_t)(bits & -bits);
}

uint32_t block_align(const struct engine_blocks *blocks)
{
	return align_of(blocks_side_bits(&blocks->dst, UINT64_MAX, blocks->layers) |
	                blocks_side_bits(&blocks->src, UINT64_MAX, blocks->layers));
}

bool block_plan_map(const struct tensor_map_layout *one, const struct engine_blocks *blocks,
                    enum block_side side, struct tensor_map_layout *ret)
{
	const struct engine_blocks_side *own = side == BLOCK_DST ? &blocks->dst : &blocks->src;
	const uint64_t n = side == BLOCK_DST ? blocks_dst_count(blocks) : blocks_src_count(blocks);
	struct tensor_map_rules rules;

	*ret = *one;
	if (own->layers || n > MOST_BLOCKS || one->rank + 1 + (blocks->layers > 1) > TENSOR_MAP_MAX_RANK)
		return false;
	const struct {
		uint64_t n, step;
	} more[] = { { n, own->step }, { blocks->layers, own->layer_step } };

	for (int i = 0; i < 1 + (blocks->layers > 1); i++, ret->rank++) {
		ret->dim[ret->rank] = more[i].n;
		/* A dimension with one index has no stride, but a map requires one. */
		ret->stride[ret->rank - 1] = more[i].n > 1 ? more[i].step : 16;
		ret->box[ret->rank] = ret->element_stride[ret->rank] = 1;
	}
	tensor_map_check(ret, 0, &rules);
	return rules.n == 0;
}

bool block_plan_has_kernel(const struct plan *plan, const struct engine_blocks *blocks)
{
	const struct tma_route_plan *tma = &plan->tma;
	const uint64_t items = blocks->n * blocks->layers, run = (uint64_t)tma->dim[0].n;
	struct tensor_map_layout map;

	if (tma->border_rank > 0 || tma->patched)
		return false;
	if (tma->strategy == STRATEGY_memcpy)
		return run >= RUN_LEAST && run % 16 == 0 && tma->dst_offset % 16 == 0 &&
		       tma->src_offset % 16 == 0;
	return tma->strategy == STRATEGY_copy && tma->tiles < UINT32_MAX / items &&
	       block_plan_map(&tma->load, blocks, BLOCK_SRC, &map) &&
	       block_plan_map(&tma->store, blocks, BLOCK_DST, &map);
}

/* ---- Predictions --------------------------------------------------------------------------------------- */

/* A copy takes a fixed time plus its bytes divided by a share of the memory's nominal bandwidth.
 *
 * On an H200 (tests/bench/EXPERIMENTS.md), 8.6 GB take 2020 us and 0.54 GB take 134 us. That is 4.27 TB/s, or
 * 89 % of the nominal 4.81 TB/s (6016 bits at 3.2 GHz), plus 8 us for a copy of any size.
 */

#define COPY_SHARE    0.887
#define COPY_FIXED_NS 8000

struct copy_speed copy_speed_of(uint32_t memory_khz, uint32_t bus_bits)
{
	const double bytes_per_ns = 2.0 * memory_khz * 1e-6 * bus_bits / 8;

	return (struct copy_speed){ .bytes_per_ns = COPY_SHARE * bytes_per_ns, .fixed_ns = COPY_FIXED_NS };
}

double copy_speed_ns(const struct copy_speed *speed, uint64_t bytes)
{
	return speed->bytes_per_ns > 0 ? speed->fixed_ns + (double)bytes / speed->bytes_per_ns : 0;
}

/* ---- Explanations -------------------------------------------------------------------------------------- */

#define H200_PROCESSORS 132
#define H200_MEMORY_KHZ 3201000
#define H200_BUS_BITS   6016
#define H200_ALIGN      16 /* alignment of base addresses in bytes; elements are widened no further */

void plan_tile_set_dim(struct plan_tile *ret, const struct plan *plan, int d, int of)
{
	ret->dst[d] = plan->tma.dim[of].dst;
	ret->src[d] = plan->tma.dim[of].src;
}

void plan_tile_of(const struct plan *plan, struct plan_tile *ret)
{
	*ret = (struct plan_tile){ .rank = plan->tile_rank };
	if (plan->tile_rank == 0)
		return;
	memcpy(ret->n, plan->tile, (size_t)plan->tile_rank * sizeof *ret->n);
	ret->element = plan->tma.element;
	if (strategy_of(plan)->describe)
		strategy_of(plan)->describe(plan, ret);
}

struct plan_facts plan_facts_of_h200(void)
{
	return (struct plan_facts){ .threads = H200_PROCESSORS,
		                    .align = H200_ALIGN,
		                    .copy = copy_speed_of(H200_MEMORY_KHZ, H200_BUS_BITS) };
}

static void explain_tile(struct engine_explanation *ret, const struct plan *plan)
{
	struct plan_tile tile;

	plan_tile_of(plan, &tile);
	ret->tile.rank = tile.rank;
	ret->tile.element = tile.element;
	ret->tile.row_bytes = tile.row_bytes;
	memcpy(ret->tile.n, tile.n, sizeof tile.n);
	memcpy(ret->tile.dst, tile.dst, sizeof tile.dst);
	memcpy(ret->tile.src, tile.src, sizeof tile.src);
}

void plan_explain(struct engine_explanation *ret, const struct plan *plan, const struct transform *transform,
                  const struct plan_facts *facts)
{
	*ret = (struct engine_explanation){
		.family = plan->family,
		.grid = plan->grid,
		.bytes = transform->bytes,
		.n_subregions = plan->n_subregions,
		.predicted_ns = (uint64_t)(plan_predict_ns(plan, transform->bytes, &facts->copy) + 0.5),
		.copy_fixed_ns = facts->copy.fixed_ns,
		.copy_bytes_per_ns = facts->copy.bytes_per_ns,
		.predicted = plan->predicted,
		.rules = plan->rules,
	};
	snprintf(ret->swizzle, sizeof ret->swizzle, "%s", plan->swizzle);
	explain_tile(ret, plan);
	explanation_set_interior(ret, &plan->interior);
}
