/* SPDX-License-Identifier: Apache-2.0 */
/* This file knows what a tensor map can say of a window, and what it cannot. */
#include "maps.h"

#include <inttypes.h>

#define LONG_ROW 8192 /* bytes: what is fetched around it does not count */

const enum tensor_map_type map_types[9] = {
	[1] = TENSOR_MAP_UINT8,
	[2] = TENSOR_MAP_UINT16,
	[4] = TENSOR_MAP_UINT32,
	[8] = TENSOR_MAP_UINT64,
};

/* The map's elements: of at most 8 bytes. */
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

/* Bytes that the first element lies past a multiple of 16. */
uint32_t map_phase(uint32_t base_phase, int64_t offset)
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
