/* From the whole destination, pads as windows, to a route.
 *
 * Routes are tried from the best: the driver's copy, runs, maps on both sides, a map and registers, and last
 * what needs no map. Each one that is ruled out leaves its rules in the plan.
 */
#include "tma_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan.h"

#define BULK_ALIGN      128  /* bytes: runs that cross lines are faster by map */
#define BULK_LEAST      2048 /* bytes of a run */
#define LONGEST         INT32_MAX
#define COPY_TILE_LEAST 2048
#define LONG_ROW        8192 /* bytes: what is fetched around it does not count */
#define ROWS_LEAST      256  /* bytes of a run, below which a row is not worth a warp */
#define TILES_LEAST     32   /* bytes of a run, below which a tile is not worth it */

static void choose_route(struct plan *plan, const struct nest *nest, const struct plan_facts *facts);
static void name_route(struct plan *plan);
static void plan_border(struct plan *plan, const struct nest *nest);
static void set_pattern(struct tma_plan *tma, const struct transform *t, uint32_t phase);

/* ---- The whole ---------------------------------------------------------------------------------------- */

static bool is_whole(const struct nest *nest)
{
	for (int d = 0; d < nest->rank; d++)
		if (nest->dim[d].source != nest->dim[d].n)
			return false;
	return true;
}

static int64_t window_count(const struct nest *nest)
{
	int64_t count = 1;

	for (int d = 0; d < nest->rank; d++)
		count *= nest->dim[d].source;
	return count;
}

/* Leaves the window only. */
static void shrink(struct nest *nest, uint32_t align)
{
	for (int d = 0; d < nest->rank; d++) {
		struct nest_dim *dim = &nest->dim[d];

		nest->dst_offset += dim->before * dim->dst;
		dim->n = dim->source;
		dim->before = 0;
	}
	nest_canonicalise(nest, align);
}

static bool is_zero(const struct transform *t)
{
	for (uint32_t i = 0; i < t->element; i++)
		if (t->fill[i])
			return false;
	return true;
}

static void narrow_to(struct nest *nest, uint32_t align, enum pad_mode mode)
{
	if (align < nest->element)
		nest_narrow(nest, align, mode);
}

void tma_plan_init(struct plan *plan, const struct transform *t, const struct plan_facts *facts)
{
	struct slabs slabs;
	struct nest nest;
	bool window;

	*plan = (struct plan){ .interior = { .fill = true, .element = t->element }, .swizzle = "none" };
	set_pattern(&plan->tma, t, facts->dst_phase);
	if (t->count == 0) {
		name_route(plan);
		return;
	}
	window = nest_window(&nest, t, facts->align);
	if (!window) {
		slabs_init(&slabs, t);
		slabs_get(&slabs, 0, facts->align, &nest);
		narrow_to(&nest, facts->align, t->mode);
		plan_border(plan, &nest);
		name_route(plan);
		return;
	}
	plan->interior = nest;
	narrow_to(&nest, facts->align, t->mode);
	if (t->mode == PAD_MODE_CONSTANT && (is_whole(&nest) || is_zero(t))) {
		choose_route(plan, &nest, facts);
	} else {
		struct nest inner = nest;

		/* What the maps leave zero is written again: only while that is little. */
		if (window_count(&nest) <= nest_count(&nest) / 2)
			shrink(&inner, facts->align);
		narrow_to(&inner, facts->align, t->mode);
		choose_route(plan, &inner, facts);
		if (plan->tma.route < TMA_ROUTE_ROWS || t->mode != PAD_MODE_CONSTANT ||
		    nest_count(&inner) != nest_count(&nest))
			plan_border(plan, &nest);
	}
	name_route(plan);
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
		[TMA_ROUTE_TILES] = FAMILY_STRIDED,
		[TMA_ROUTE_GATHER] = FAMILY_STRIDED,
	};

	plan->family = families[plan->tma.route];
	plan->grid = plan->tma.tiles ? (int64_t)plan->tma.tiles : 1;
	plan->n_slabs = (plan->tma.route != TMA_ROUTE_NONE) + (plan->tma.border_rank > 0);
}

/* The value over and over, as it lies in an aligned chunk of the destination. */
static void set_pattern(struct tma_plan *tma, const struct transform *t, uint32_t phase)
{
	uint8_t bytes[sizeof tma->pattern];

	for (uint32_t i = 0; i < sizeof bytes; i++)
		bytes[i] = t->fill[(i + t->element - phase % t->element) % t->element];
	memcpy(tma->pattern, bytes, sizeof bytes);
}

/* ---- Dimensions ---------------------------------------------------------------------------------------- */

/* Innermost first; the nest's dimension that comes first, then the others in their order. */
static void set_dims(struct tma_plan *tma, const struct nest *nest, int first, int second)
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
		const struct nest_dim *dim = &nest->dim[order[i]];

		tma->dim[i] = (struct strided_dim){ dim->n, dim->dst, dim->src, dim->before, dim->source };
	}
}

static struct strided_dim unit_dim(uint32_t element)
{
	return (struct strided_dim){ .n = 1, .dst = element, .src = element, .source = 1 };
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
	return a / b + (a % b != 0);
}

/* ---- Borders --------------------------------------------------------------------------------------------
 */

static void plan_border(struct plan *plan, const struct nest *nest)
{
	struct tma_plan *tma = &plan->tma;
	uint32_t rank = 0;

	if (nest->rank == 0 || nest->dim[nest->rank - 1].dst != nest->element)
		tma->border[rank++] = unit_dim(nest->element);
	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct nest_dim *dim = &nest->dim[d];

		tma->border[rank++] =
		    (struct strided_dim){ dim->n, dim->dst, dim->src, dim->before, dim->source };
	}
	if (nest->fill) { /* no window at all: everything is before it */
		tma->border[rank - 1].before = tma->border[rank - 1].n;
		tma->border[rank - 1].source = 0;
	}
	tma->border_rank = rank;
	tma->border_element = nest->element;
	tma->border_dst_offset = nest->dst_offset;
	tma->border_src_offset = nest->src_offset;
	for (uint32_t b = 0; b < 2 * rank; b++)
		tma->border_tiles += border_tiles(tma->border, rank, b, nest->element);
	if (tma->border_tiles == 0)
		tma->border_rank = 0;
}

/* ---- Maps ------------------------------------------------------------------------------------------------
 */

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

/* What no map can say, for either side of a dimension. A tile extends along dimension 0 and the one that
 * `also` names. */
static bool check_dims(struct plan *plan, enum family family, uint32_t also)
{
	struct tma_plan *tma = &plan->tma;
	int before = plan->n_rules;

	if (tma->rank > TENSOR_MAP_MAX_RANK) {
		plan_add_rule(plan, family,
		              "rank is %" PRIu32 " after canonicalisation, and a map has at most %d",
		              tma->rank, TENSOR_MAP_MAX_RANK);
		return false;
	}
	for (uint32_t d = 0; d < tma->rank; d++) {
		const struct strided_dim *dim = &tma->dim[d];

		if (dim->n > LONGEST / 2 || dim->source > LONGEST / 2)
			plan_add_rule(plan, family,
			              "dimension %" PRIu32 " has %" PRId64
			              " elements, and a coordinate has 31 bits",
			              tma->rank - 1 - d, dim->n);
		if (dim->src < 0)
			plan_add_rule(plan, family,
			              "source stride %" PRIu32 " is %" PRId64 " bytes, and a map's is "
			              "not negative",
			              tma->rank - 1 - d, dim->src);
		if (dim->src == 0 && dim->source > 1 && (d == 0 || d == also || dim->source != dim->n))
			plan_add_rule(plan, family, "source stride %" PRIu32 " is 0 where %s",
			              tma->rank - 1 - d,
			              dim->source != dim->n ? "the dimension is padded" : "a tile extends");
	}
	return plan->n_rules == before;
}

/* Bytes that the first element lies past a multiple of 16; the map starts at the multiple. */
static uint32_t phase_of(uint32_t base_phase, int64_t offset)
{
	return (uint32_t)((uint64_t)base_phase + (uint64_t)offset) % 16;
}

/* How much a fetch may be rounded up to: what the rows are whole multiples of, so that no gap between them is
 * read. */
static enum tensor_map_l2 promotion_of(const struct tma_plan *tma, uint32_t past)
{
	uint64_t row = (uint64_t)tma->dim[0].source * (uint64_t)tma->dim[0].src, bits = row;

	if (row >= LONG_ROW)
		return TENSOR_MAP_L2_256B;
	for (uint32_t d = 1; d < tma->rank; d++) {
		if (tma->dim[d].src == (int64_t)row)
			row *= (uint64_t)tma->dim[d].source;
		bits |= (uint64_t)tma->dim[d].src;
	}
	if (row >= LONG_ROW)
		return TENSOR_MAP_L2_256B;
	bits |= past;
	return bits % 256 == 0   ? TENSOR_MAP_L2_256B
	       : bits % 128 == 0 ? TENSOR_MAP_L2_128B
	       : bits % 64 == 0  ? TENSOR_MAP_L2_64B
	                         : TENSOR_MAP_L2_NONE;
}

/* The source as dimension 0 and up of tma->dim: dimensions, strides, where a tile is loaded from. */
static bool set_load(struct plan *plan, enum family family, const struct nest *nest, uint32_t phase)
{
	struct tma_plan *tma = &plan->tma;
	struct tensor_map_layout *map = &tma->load;
	uint32_t unit = unit_of(tma->element), scale = tma->element / unit;
	uint32_t past = phase_of(phase, nest->src_offset);

	map->type = type_of[unit];
	map->rank = tma->rank;
	tma->src_offset = nest->src_offset - past;
	if ((past + (uint64_t)tma->dim[0].before * tma->element) % 16) {
		plan_add_rule(plan, family, "source rows start %" PRIu64 " bytes past a multiple of 16",
		              (past + 16 - (uint64_t)tma->dim[0].before * tma->element % 16) % 16);
		return false;
	}
	for (uint32_t d = 0; d < tma->rank; d++) {
		const struct strided_dim *dim = &tma->dim[d];
		bool broadcast = dim->src == 0 && dim->source > 1;

		map->element_stride[d] = 1;
		map->dim[d] = broadcast ? 1 : (uint64_t)dim->source;
		if (d > 0)
			map->stride[d - 1] = dim->src ? (uint64_t)dim->src : 16;
		tma->load_step[d] = !broadcast;
		tma->load_shift[d] = broadcast ? 0 : (int32_t)-dim->before;
		tma->repeat[d] = broadcast ? (uint32_t)dim->n : 1;
		if (broadcast)
			tma->repeats *= (uint64_t)dim->n;
	}
	map->l2 = promotion_of(tma, past);
	map->dim[0] = map->dim[0] * scale + past / unit;
	tma->load_shift[0] = tma->load_shift[0] * (int32_t)scale + (int32_t)(past / unit);
	return true;
}

/* The last byte that a store writes is its row's only where rows end at multiples of 16 bytes (a store writes
 * up to the next one). */
static bool set_store(struct plan *plan, const struct nest *nest, uint32_t phase)
{
	struct tma_plan *tma = &plan->tma;
	struct tensor_map_layout *map = &tma->store;
	uint32_t unit = unit_of(tma->element), scale = tma->element / unit;
	uint32_t past = phase_of(phase, nest->dst_offset);
	uint64_t row = past + (uint64_t)tma->dim[0].n * tma->element;

	map->type = type_of[unit];
	map->rank = tma->rank;
	tma->dst_offset = nest->dst_offset - past;
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

/* Parts of n that are as equal as can be, of at most `most`. */
static uint64_t part_of(uint64_t n, uint64_t most)
{
	return divide_up(n, divide_up(n, most));
}

/* ---- COPY: boxes of about COPY_TILE_BYTES, whole rows first
 * ------------------------------------------------ */

static void set_copy_boxes(struct tma_plan *tma, uint32_t tile_bytes)
{
	uint32_t unit = unit_of(tma->element);
	uint64_t bytes, n = tma->store.dim[0], chunk = 16 / unit;

	tma->store.box[0] = (uint32_t)(divide_up(part_of(n, 256), chunk) * chunk);
	bytes = tma->store.box[0] * unit;
	tma->tiles = tma->grid[0] = (uint32_t)divide_up(n, tma->store.box[0]);
	for (uint32_t d = 1; d < tma->rank; d++) {
		uint64_t most = bytes < tile_bytes ? tile_bytes / bytes : 1;

		if (most > 256)
			most = 256;
		tma->store.box[d] = tma->repeat[d] > 1 ? 1 : (uint32_t)part_of((uint64_t)tma->dim[d].n, most);
		tma->grid[d] =
		    tma->repeat[d] > 1 ? 1 : (uint32_t)divide_up(tma->store.dim[d], tma->store.box[d]);
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
static void choose_copy_boxes(struct tma_plan *tma, const struct plan_facts *facts)
{
	uint32_t tile_bytes = COPY_TILE_BYTES;

	set_copy_boxes(tma, tile_bytes);
	while (tma->tiles < (uint64_t)COPY_BLOCKS * COPY_STAGES * facts->threads &&
	       tile_bytes > COPY_TILE_LEAST)
		set_copy_boxes(tma, tile_bytes /= 2);
}

static bool try_copy(struct plan *plan, const struct nest *nest, const struct plan_facts *facts)
{
	struct tma_plan *tma = &plan->tma;

	tma->element = nest->element;
	tma->repeats = 1;
	set_dims(tma, nest, nest->rank - 1, -1);
	if (!check_dims(plan, FAMILY_TILE_COPY, 0))
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

/* ---- BULK: runs that are aligned, whole and long
 * ------------------------------------------------------------ */

static bool try_bulk(struct plan *plan, const struct nest *nest, const struct plan_facts *facts)
{
	struct tma_plan *tma = &plan->tma;
	uint64_t bits =
	    (facts->dst_phase + (uint64_t)nest->dst_offset) | (facts->src_phase + (uint64_t)nest->src_offset);
	uint64_t run = (uint64_t)nest->dim[nest->rank - 1].n * nest->element;

	if (!is_whole(nest) || run < BULK_LEAST)
		return false;
	set_dims(tma, nest, nest->rank - 1, -1);
	tma->dim[0].n = (int64_t)run;
	tma->chunk = (uint32_t)divide_up(part_of(run, COPY_TILE_BYTES), 16) * 16;
	tma->tiles = divide_up(run, tma->chunk);
	tma->repeats = 1;
	bits |= run % 16 ? run : 0;
	for (uint32_t d = 1; d < tma->rank; d++) {
		bits |= (uint64_t)tma->dim[d].dst | (uint64_t)tma->dim[d].src;
		if (tma->dim[d].src == 0 || tma->dim[d].n > LONGEST)
			return false;
		tma->tiles *= (uint64_t)tma->dim[d].n;
	}
	if (bits % BULK_ALIGN || tma->tiles > UINT32_MAX)
		return false;
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->route = TMA_ROUTE_BULK;
	plan->tile_rank = 1;
	plan->tile[0] = tma->chunk / nest->element;
	return true;
}

/* ---- TRANSPOSE: dimension 0 contiguous in the source, 1 in the destination
 * ---------------------------------- */

/* After dimensions 0 and 1 the one along which the destination goes on, then the one along which the source
 * does: tiles that are narrower than they could be extend along these. Broadcast ones are last. */
static void set_transpose_dims(struct tma_plan *tma, const struct nest *nest, int src_inner)
{
	set_dims(tma, nest, src_inner, nest->rank - 1);
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

static bool destination_is_aligned(struct plan *plan, const struct nest *nest, const struct plan_facts *facts)
{
	const struct tma_plan *tma = &plan->tma;
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

static bool try_transpose(struct plan *plan, const struct nest *nest, int src_inner,
                          const struct plan_facts *facts)
{
	struct tma_plan *tma = &plan->tma;
	uint32_t x = transpose_tile_x(nest->element), y = transpose_tile_y(nest->element);
	uint32_t log_x = (uint32_t)__builtin_ctz(x);
	uint32_t box_y = TRANSPOSE_ROW_BYTES / nest->element, log_y = (uint32_t)__builtin_ctz(y / box_y);
	bool legal, aligned;

	tma->element = nest->element;
	tma->repeats = 1;
	set_transpose_dims(tma, nest, src_inner);
	legal = check_dims(plan, FAMILY_TILE_TRANSPOSE, 1) &&
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
	uint32_t tile[ARGS_MAP_RANK] = { box_y << tma->shift_y, 1u << tma->shift_x, x >> tma->shift_x,
		                         1u << (log_y - tma->shift_y), 1 };

	tma->load.swizzle = TENSOR_MAP_SWIZZLE_128B;
	for (uint32_t d = 0; d < tma->rank; d++)
		tma->load.box[d] = d == 1 || d == 2 ? tile[d] : 1;
	tma->load.box[0] = TRANSPOSE_ROW_BYTES / unit_of(nest->element);
	if (!check_map(plan, FAMILY_TILE_TRANSPOSE, "load", &tma->load))
		return false;
	tma->tiles = 1;
	for (uint32_t d = 0; d < tma->rank; d++) {
		tma->grid[d] = tma->repeat[d] > 1 ? 1 : (uint32_t)divide_up((uint64_t)tma->dim[d].n, tile[d]);
		tma->tiles *= tma->grid[d];
	}
	if (tma->tiles > UINT32_MAX || tma->repeats > UINT32_MAX)
		return false;
	tma->route = TMA_ROUTE_TRANSPOSE;
	plan->swizzle = tensor_map_swizzle_names[tma->load.swizzle];
	plan->tile_rank = (int)tma->rank;
	for (uint32_t d = 0; d < tma->rank; d++)
		plan->tile[tma->rank - 1 - d] = tile[d];
	return true;
}

/* ---- ROWS, TILES and GATHER: always legal ---- */

static void set_rows(struct plan *plan, const struct nest *nest)
{
	struct tma_plan *tma = &plan->tma;

	set_dims(tma, nest, nest->rank - 1, -1);
	tma->tiles = divide_up((uint64_t)tma->dim[0].n * nest->element, ROW_BYTES);
	for (uint32_t d = 1; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	tma->route = TMA_ROUTE_ROWS;
}

static void set_gather(struct plan *plan, const struct nest *nest)
{
	struct tma_plan *tma = &plan->tma;
	int64_t row = nest->element;

	set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->run < 3 && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->tiles = row_chunks((uint64_t)row);
	for (uint32_t d = tma->run; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	tma->route = TMA_ROUTE_GATHER;
}

static uint32_t up_to(int64_t n, uint32_t step, uint32_t most)
{
	return n >= most ? most : (uint32_t)divide_up((uint64_t)n, step) * step;
}

static void set_tiles(struct plan *plan, const struct nest *nest, int src_inner)
{
	struct tma_plan *tma = &plan->tma;
	uint32_t line = nest->element < 4 ? 128 / nest->element : 32;

	set_dims(tma, nest, nest->rank - 1, src_inner);
	if (tma->rank == 1)
		tma->dim[tma->rank++] = unit_dim(nest->element);
	tma->tile_x = up_to(tma->dim[0].n, line, strided_tile_x(nest->element));
	tma->tile_y = up_to(tma->dim[1].n, 32, strided_tile_y(nest->element));
	tma->tiles =
	    divide_up((uint64_t)tma->dim[0].n, tma->tile_x) * divide_up((uint64_t)tma->dim[1].n, tma->tile_y);
	for (uint32_t d = 2; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	tma->route = TMA_ROUTE_TILES;
	plan->tile_rank = 2;
	plan->tile[0] = tma->tile_y;
	plan->tile[1] = tma->tile_x;
}

/* The dimension other than the innermost along which the source steps least. */
static int source_inner(const struct nest *nest)
{
	int best = -1;

	for (int d = nest->rank - 2; d >= 0; d--)
		if (nest->dim[d].src && nest->dim[d].n > 1 &&
		    (best < 0 || llabs(nest->dim[d].src) < llabs(nest->dim[best].src)))
			best = d;
	return best;
}

/* Rows where both sides run along one dimension for a while; tiles where they run along two; else, and where
 * a run is short, element by element. */
static void set_strided(struct plan *plan, const struct nest *nest)
{
	struct tma_plan *tma = &plan->tma;
	const struct nest_dim *inner = &nest->dim[nest->rank - 1];
	int64_t element = nest->element;
	int other = source_inner(nest);
	bool run = inner->dst == element, pair = other >= 0;

	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->repeats = 1;
	tma->whole = is_whole(nest);
	for (int d = 0; d < nest->rank; d++)
		tma->whole = tma->whole && nest->dim[d].n <= LONGEST;
	if (run && inner->src == element && inner->n * element >= ROWS_LEAST) {
		set_rows(plan, nest);
		return;
	}
	pair = pair && llabs(nest->dim[other].src) < llabs(inner->src) && inner->n * element >= TILES_LEAST &&
	       nest->dim[other].n * element >= TILES_LEAST;
	if (!run || pair)
		set_tiles(plan, nest, other);
	else
		set_gather(plan, nest);
}

/* ---- The choice
 * -------------------------------------------------------------------------------------------------- */

static void choose_route(struct plan *plan, const struct nest *nest, const struct plan_facts *facts)
{
	struct tma_plan *tma = &plan->tma;
	const struct nest_dim *inner = nest->rank > 0 ? &nest->dim[nest->rank - 1] : NULL;
	int64_t element = nest->element;
	int src_inner = -1;

	if (nest->rank == 0 ||
	    (nest->rank == 1 && inner->dst == element && inner->src == element && is_whole(nest))) {
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
		if (try_bulk(plan, nest, facts) || try_copy(plan, nest, facts))
			return;
	} else if (src_inner >= 0) {
		plan_add_rule(plan, FAMILY_TILE_COPY, "source stride %d is %" PRId64 " bytes, not %" PRId64,
		              nest->rank - 1, inner->src, element);
		if (try_transpose(plan, nest, src_inner, facts))
			return;
	} else {
		plan_add_rule(plan, FAMILY_TILE_COPY,
		              "source stride %d is %" PRId64 " bytes, not %" PRId64
		              ", and a map does not step along its innermost dimension",
		              nest->rank - 1, inner->src, element);
	}
	plan->tile_rank = 0;
	set_strided(plan, nest);
}
