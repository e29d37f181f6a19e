/* SPDX-License-Identifier: Apache-2.0 */
/* Tries the routes by tensor map: what a map can say of each side, and the boxes and tiles of a copy and of a
 * transpose.
 *
 * A map starts at a multiple of 16 bytes and a tile at one too: a load or store whose innermost coordinate is
 * not a whole number of 16 bytes ends the context (measured on an H200).
 */
#include "tma_route.h"

#include <inttypes.h>

#include "tensor_map.h"

#define COPY_TILE_LEAST 2048
#define LONG_ROW        8192 /* bytes: what is fetched around it does not count */

static const enum tensor_map_type type_of[] = {
	[1] = TENSOR_MAP_UINT8,
	[2] = TENSOR_MAP_UINT16,
	[4] = TENSOR_MAP_UINT32,
	[8] = TENSOR_MAP_UINT64,
};

/* The map's elements: of at most 8 bytes. */
static uint32_t unit_of(uint32_t element)
{
	return element > 8 ? 8 : element;
}

static bool check_map(struct plan *plan, enum family family, const char *side,
                      const struct tensor_map_layout *map)
{
	struct tensor_map_rules rules;

	tensor_map_check(map, 0, &rules);
	for (int i = 0; i < rules.n; i++)
		plan_add_rule(plan, family, "%s map: %s", side, rules.text[i]);
	return rules.n == 0;
}

/* Whether dimension d goes on in the source where the one before it ends, so that a map counts both as one.
 */
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

/* Dimensions of a map, of which the last may be several; those that are broadcast need none. */
static uint32_t map_rank(const struct tma_route_plan *tma, uint32_t most)
{
	uint32_t rank = tma->rank;

	while (rank > TENSOR_MAP_MAX_RANK && tma->rank <= most &&
	       (follows(tma, rank - 1) || is_broadcast(&tma->dim[rank - 1])))
		rank--;
	return rank;
}

/* What no map can say, for either side of a dimension. A tile extends along dimension 0 and the one that
 * `also` names; of the grid's dimensions there are `most`. */
static bool check_dims(struct plan *plan, enum family family, uint32_t also, uint32_t most)
{
	struct tma_route_plan *tma = &plan->tma;
	int before = plan->n_rules;

	if (map_rank(tma, most) > TENSOR_MAP_MAX_RANK) {
		plan_add_rule(plan, family,
		              "rank is %" PRIu32 " after canonicalisation, but a map has at most %d",
		              tma->rank, TENSOR_MAP_MAX_RANK);
		return false;
	}
	for (uint32_t d = 0; d < tma->rank; d++) {
		const struct strided_dim *dim = &tma->dim[d];

		if (dim->n > TMA_LONGEST / 2 || dim->source > TMA_LONGEST / 2)
			plan_add_rule(plan, family,
			              "dimension %" PRIu32 " has %" PRId64
			              " elements, but a coordinate has 31 bits",
			              tma->rank - 1 - d, dim->n);
		if (dim->src < 0)
			plan_add_rule(plan, family,
			              "source stride %" PRIu32 " is %" PRId64 " bytes, but a map's is "
			              "not negative",
			              tma->rank - 1 - d, dim->src);
		if (is_broadcast(dim) && (d == 0 || d == also || dim->source != dim->n))
			plan_add_rule(plan, family, "source stride %" PRIu32 " is 0 where %s",
			              tma->rank - 1 - d,
			              dim->source != dim->n ? "the dimension is padded" : "a tile extends");
	}
	return plan->n_rules == before;
}

/* Bytes that the first element lies past a multiple of 16. */
static uint32_t phase_of(uint32_t base_phase, int64_t offset)
{
	return (uint32_t)((uint64_t)base_phase + (uint64_t)offset) % 16;
}

/* How much a fetch may be rounded up to: what the rows are whole multiples of, so that no gap between them is
 * read; more where whole rows are so long that it does not count. */
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

/* The source as dimension 0 and up of tma->dim: dimensions, strides, where a tile is loaded from. */
static bool set_load(struct plan *plan, enum family family, const struct loop_nest *nest, uint32_t phase)
{
	struct tma_route_plan *tma = &plan->tma;
	struct tensor_map_layout *map = &tma->load;
	uint32_t unit = unit_of(tma->element), scale = tma->element / unit;
	uint32_t past = phase_of(phase, nest->src_offset);

	map->type = type_of[unit];
	map->rank = tma->rank < TENSOR_MAP_MAX_RANK ? tma->rank : TENSOR_MAP_MAX_RANK;
	tma->src_offset = nest->src_offset;
	uint64_t off = (past + 16 - (uint64_t)tma->dim[0].before * tma->element % 16) % 16;

	if (past || off) {
		plan_add_rule(plan, family, "source rows start %" PRIu64 " bytes past a multiple of 16",
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
		plan_add_rule(plan, family,
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

/* The last byte that a store writes is its row's only where rows end at multiples of 16 bytes (a store writes
 * up to the next one). */
static bool set_store(struct plan *plan, const struct loop_nest *nest, uint32_t phase)
{
	struct tma_route_plan *tma = &plan->tma;
	struct tensor_map_layout *map = &tma->store;
	uint32_t unit = unit_of(tma->element), scale = tma->element / unit;
	uint32_t past = phase_of(phase, nest->dst_offset);
	uint64_t row = past + (uint64_t)tma->dim[0].n * tma->element;

	map->type = type_of[unit];
	map->rank = tma->rank;
	tma->dst_offset = nest->dst_offset;
	if (past)
		plan_add_rule(plan, FAMILY_TILE_COPY,
		              "destination base is %" PRIu32 " bytes past a multiple of 16", past);
	if (row % 16)
		plan_add_rule(plan, FAMILY_TILE_COPY,
		              "destination rows end %" PRIu64
		              " bytes past a multiple of 16, and a store would go on to "
		              "the next one",
		              row % 16);
	for (uint32_t d = 0; d < tma->rank; d++) {
		map->element_stride[d] = 1;
		map->dim[d] = (uint64_t)tma->dim[d].n;
		if (d > 0)
			map->stride[d - 1] = (uint64_t)tma->dim[d].dst;
		tma->store_shift[d] = 0;
	}
	map->dim[0] = map->dim[0] * scale;
	return !past && row % 16 == 0;
}

/* ---- COPY: boxes of about COPY_TILE_BYTES, whole rows first ------------------------------------------ */

static void set_copy_boxes(struct tma_route_plan *tma, uint32_t tile_bytes)
{
	uint32_t unit = unit_of(tma->element);
	uint64_t bytes, n = tma->store.dim[0], chunk = 16 / unit;

	tma->store.box[0] = (uint32_t)(divide_up_u64(part_of(n, 256), chunk) * chunk);
	bytes = tma->store.box[0] * unit;
	tma->tiles = tma->grid[0] = (uint32_t)divide_up_u64(n, tma->store.box[0]);
	for (uint32_t d = 1; d < tma->rank; d++) {
		uint64_t most = bytes < tile_bytes ? tile_bytes / bytes : 1;

		if (most > 256)
			most = 256;
		tma->store.box[d] = tma->repeat[d] > 1 ? 1 : (uint32_t)part_of((uint64_t)tma->dim[d].n, most);
		tma->grid[d] =
		    tma->repeat[d] > 1 ? 1 : (uint32_t)divide_up_u64(tma->store.dim[d], tma->store.box[d]);
		bytes *= tma->store.box[d];
		tma->tiles *= tma->grid[d];
	}
	for (uint32_t d = 0; d < tma->rank; d++) {
		tma->load.box[d] = tma->store.box[d];
		tma->store_step[d] = (int32_t)tma->store.box[d];
		tma->load_step[d] = tma->repeat[d] > 1 ? 0 : (int32_t)tma->store.box[d];
	}
}

/* A tile for each of the blocks that run at one time, if the tensor is large enough for that. */
static void choose_copy_boxes(struct tma_route_plan *tma, const struct plan_facts *facts)
{
	uint32_t tile_bytes = COPY_TILE_BYTES;

	set_copy_boxes(tma, tile_bytes);
	while (tma->tiles < (uint64_t)COPY_BLOCKS * COPY_STAGES * facts->threads &&
	       tile_bytes > COPY_TILE_LEAST)
		set_copy_boxes(tma, tile_bytes /= 2);
}

bool tma_try_copy(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts)
{
	struct tma_route_plan *tma = &plan->tma;

	tma->element = nest->element;
	tma->repeats = 1;
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	if (!check_dims(plan, FAMILY_TILE_COPY, 0, TENSOR_MAP_MAX_RANK))
		return false;
	/* Both sides say what is wrong with them. */
	bool load = set_load(plan, FAMILY_TILE_COPY, nest, facts->src_phase);
	bool store = set_store(plan, nest, facts->dst_phase);
	if (!load || !store)
		return false;
	choose_copy_boxes(tma, facts);
	load = check_map(plan, FAMILY_TILE_COPY, "load", &tma->load);
	store = check_map(plan, FAMILY_TILE_COPY, "store", &tma->store);
	if (!load || !store || tma->tiles > UINT32_MAX || tma->repeats > UINT32_MAX)
		return false;
	tma->route = TMA_ROUTE_COPY;
	plan->tile_rank = (int)tma->rank;
	for (uint32_t d = 0; d < tma->rank; d++)
		plan->tile[tma->rank - 1 - d] = tma->store.box[d];
	return true;
}

/* ---- TRANSPOSE: dimension 0 contiguous in the source, 1 in the destination --------------------------- */

/* After dimensions 0 and 1 the one along which the destination goes on, then the one along which the source
 * does: tiles that are narrower than they could be extend along these. Broadcast ones are last. */
static void set_transpose_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int src_inner)
{
	tma_set_dims(tma, nest, src_inner, nest->rank - 1);
	for (uint32_t place = 2; place < tma->rank; place++) {
		uint32_t best = place;

		for (uint32_t d = place + 1; d < tma->rank; d++) {
			bool repeats = tma->dim[d].src == 0, best_repeats = tma->dim[best].src == 0;
			bool closer = place == 2 ? tma->dim[d].dst < tma->dim[best].dst
			                         : tma->dim[d].src < tma->dim[best].src;

			if (repeats < best_repeats || (repeats == best_repeats && closer))
				best = d;
		}
		struct strided_dim kept = tma->dim[place];

		tma->dim[place] = tma->dim[best];
		tma->dim[best] = kept;
	}
}

/* The least power of two that is enough, as a logarithm, up to most. */
static uint32_t log_enough(int64_t n, uint32_t most)
{
	uint32_t log = 0;

	while (log < most && (int64_t)1 << log < n)
		log++;
	return log;
}

static bool destination_is_aligned(struct plan *plan, const struct loop_nest *nest,
                                   const struct plan_facts *facts)
{
	const struct tma_route_plan *tma = &plan->tma;
	int64_t row = tma->dim[1].n * tma->element;
	uint64_t bits = facts->dst_phase + (uint64_t)nest->dst_offset;

	for (uint32_t d = 0; d < tma->rank; d++)
		if (d != 1)
			bits |= (uint64_t)tma->dim[d].dst;
	if (row % 16 == 0 && bits % 16 == 0)
		return true;
	plan_add_rule(plan, FAMILY_TILE_TRANSPOSE,
	              "destination rows of %" PRId64 " bytes do not all start and end at multiples of 16",
	              row);
	return false;
}

/* x is dimension 1, along the destination; y is dimension 0, along the source (tile_transpose.cu). */
bool tma_try_transpose(struct plan *plan, const struct loop_nest *nest, int src_inner,
                       const struct plan_facts *facts)
{
	struct tma_route_plan *tma = &plan->tma;
	uint32_t x = transpose_tile_x(nest->element), y = transpose_tile_y(nest->element);
	uint32_t log_x = (uint32_t)__builtin_ctz(x);
	uint32_t box_y = TRANSPOSE_ROW_BYTES / nest->element, log_y = (uint32_t)__builtin_ctz(y / box_y);
	bool legal, aligned;

	tma->element = nest->element;
	tma->repeats = 1;
	set_transpose_dims(tma, nest, src_inner);
	legal = check_dims(plan, FAMILY_TILE_TRANSPOSE, 1, ARGS_GRID_RANK) &&
	        set_load(plan, FAMILY_TILE_TRANSPOSE, nest, facts->src_phase);
	aligned = destination_is_aligned(plan, nest, facts);
	if (!legal || !aligned)
		return false;
	tma->dst_offset = nest->dst_offset;
	tma->shift_x = tma->rank > 2 && tma->repeat[2] == 1 ? log_enough(tma->dim[1].n, log_x) : log_x;
	tma->shift_y = tma->rank > 3 && tma->repeat[3] == 1
	                   ? log_enough((tma->dim[0].n + box_y - 1) / box_y, log_y)
	                   : log_y;
	/* One thread's rows are along dimension 1. */
	if (tma->shift_x < (uint32_t)__builtin_ctz(16 / nest->element))
		tma->shift_x = (uint32_t)__builtin_ctz(16 / nest->element);
	uint32_t tile[ARGS_GRID_RANK] = { box_y << tma->shift_y,
		                          1u << tma->shift_x,
		                          x >> tma->shift_x,
		                          1u << (log_y - tma->shift_y),
		                          1,
		                          1,
		                          1,
		                          1 };

	tma->load.swizzle = TENSOR_MAP_SWIZZLE_128B;
	for (uint32_t d = 0; d < tma->load.rank; d++)
		tma->load.box[d] = d == 1 || d == 2 ? tile[d] : 1;
	tma->load.box[0] = TRANSPOSE_ROW_BYTES / unit_of(nest->element);
	if (!check_map(plan, FAMILY_TILE_TRANSPOSE, "load", &tma->load))
		return false;
	tma->tiles = 1;
	for (uint32_t d = 0; d < tma->rank; d++) {
		tma->grid[d] =
		    tma->repeat[d] > 1 ? 1 : (uint32_t)divide_up_u64((uint64_t)tma->dim[d].n, tile[d]);
		tma->tiles *= tma->grid[d];
	}
	if (tma->tiles > UINT32_MAX || tma->repeats > UINT32_MAX)
		return false;
	tma->route = TMA_ROUTE_TRANSPOSE;
	plan->swizzle = tensor_map_swizzle_names[tma->load.swizzle];
	plan->tile_rank = (int)tma->load.rank;
	for (uint32_t d = 0; d < tma->load.rank; d++)
		plan->tile[tma->load.rank - 1 - d] = tile[d];
	return true;
}
