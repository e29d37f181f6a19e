/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies that copy: `none` moves nothing, `bulk` and `memcpy` copy runs, and `copy` copies tiles by
 * tensor map. */
#include <inttypes.h>
#include <string.h>

#include "kernels/nest/loop_nest.h"
#include "strategy_launch.h"

/* Returns whether both sides are contiguous along the innermost dimension. The nest must have a dimension. */
static bool nest_has_rows(const struct loop_nest *nest)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];

	return inner->dst == nest->element && inner->src == nest->element;
}

/* ---- None ---------------------------------------------------------------------------------------------- */

/* `none` is for windows that read no element of the source, so that only the border is written. */

#ifdef HAVE_CUDA
static int none_launch(const struct strategy_launch *launch, struct error *err)
{
	(void)launch;
	(void)err;
	return 0;
}
#endif

const struct strategy strategy_none = {
	.name = "none",
	.family = FAMILY_FILL,
	.turn = STRATEGY_NEVER,
	.flat_cost = 1.15, /* a fill writes but does not read */
	.launch = WITH_CUDA(none_launch),
};

/* ---- Bulk ---------------------------------------------------------------------------------------------- */

/* `bulk` copies long aligned runs by bulk copies of the TMA, without a tensor map. */

#define BULK_ALIGN 128  /* bytes; runs that cross lines are faster by tensor map */
#define BULK_LEAST 2048 /* minimum bytes of a run */
/* Minimum bytes of a run that is broadcast: bulk copies read it once for each write, from the L2. */
#define BULK_AGAIN 8192
#define SMALL_BULK 6000.0 /* bytes of a tile; with smaller tiles, too few bytes are in flight */

static bool bulk_probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct plan_facts *facts = c->facts;
	struct tma_route_plan *tma = &plan->tma;
	uint64_t bits =
	    (facts->dst_phase + (uint64_t)nest->dst_offset) | (facts->src_phase + (uint64_t)nest->src_offset);
	uint64_t run = (uint64_t)nest->dim[nest->rank - 1].n * nest->element;

	if (!nest_has_rows(nest) || !tma_is_whole(nest) || run < BULK_LEAST)
		return false;
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	tma->dim[0].n = (int64_t)run;
	tma->chunk = (uint32_t)divide_up_u64(part_of(run, COPY_TILE_BYTES), 16) * 16;
	tma->tiles = divide_up_u64(run, tma->chunk);
	bits |= run % 16 ? run : 0;
	for (uint32_t d = 1; d < tma->rank; d++) {
		bits |= (uint64_t)tma->dim[d].dst | (uint64_t)tma->dim[d].src;
		if ((tma->dim[d].src == 0 && run < BULK_AGAIN) || tma->dim[d].n > TMA_LONGEST)
			return false;
		tma->tiles *= (uint64_t)tma->dim[d].n;
	}
	if (bits % BULK_ALIGN || tma->tiles > UINT32_MAX)
		return false;
	tma_begin_strided(tma, nest);
	plan->tile_rank = 1;
	plan->tile[0] = tma->chunk / nest->element;
	return true;
}

static double bulk_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;

	(void)mode;
	return 1.07 + (tma->chunk < SMALL_BULK ? (SMALL_BULK - tma->chunk) / 2000 : 0);
}

static void bulk_describe(const struct plan *plan, struct plan_tile *ret)
{
	ret->row_bytes = plan->tma.chunk;
	ret->dst[0] = ret->src[0] = ret->element;
}

#ifdef HAVE_CUDA
/* Copies runs by bulk copies of the TMA. dst and src are the addresses of the first run. */
static int launch_bulk(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma,
                       uint64_t dst, uint64_t src, struct error *err)
{
	struct bulk_copy_args args = {
		.dst = dst,
		.src = src,
		.run = (uint64_t)tma->dim[0].n,
		.chunk = tma->chunk,
		.chunks = (uint32_t)(((uint64_t)tma->dim[0].n + tma->chunk - 1) / tma->chunk),
		.tiles = tma->tiles,
		.rank = tma->rank - 1,
	};

	for (uint32_t d = 1; d < tma->rank; d++) {
		args.n[d - 1] = (uint32_t)tma->dim[d].n;
		args.dst_stride[d - 1] = tma->dim[d].dst;
		args.src_stride[d - 1] = tma->dim[d].src;
	}
	return shape_launch(&(struct shape){ .kernel = KERNEL_bulk_copy,
	                                     .blocks = tma->tiles,
	                                     .threads = WARP_THREADS,
	                                     .shared = RING_BYTES(COPY_STAGES, args.chunk),
	                                     .a_multiprocessor = COPY_BLOCKS },
	                    launcher, stream, &args, err);
}

static int bulk_launch(const struct strategy_launch *launch, struct error *err)
{
	return launch_bulk(launch->launcher, launch->stream, &launch->plan->tma, strategy_dst(launch),
	                   strategy_src(launch), err);
}
#endif

const struct strategy strategy_bulk = {
	.name = "bulk",
	.family = FAMILY_TILE_COPY,
	.turn = STRATEGY_FIRST,
	.probe = bulk_probe,
	.cost = bulk_cost,
	.describe = bulk_describe,
	.launch = WITH_CUDA(bulk_launch),
};

/* ---- Memcpy -------------------------------------------------------------------------------------------- */

/* `memcpy` moves a window that is a single run on both sides: by the driver's copy, by bulk copies of the
 * TMA, or as rows by threads. For a list of blocks it uses the kernel blocks_rows. */

static bool memcpy_probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct loop_nest_dim *inner = nest->rank > 0 ? &nest->dim[nest->rank - 1] : NULL;
	const int64_t element = nest->element;
	struct tma_route_plan *tma = &plan->tma;

	if (nest->rank > 1 ||
	    (nest->rank == 1 && (inner->dst != element || inner->src != element || !tma_is_whole(nest)))) {
		loop_nest_explain_memcpy(nest, &plan->rules);
		return false;
	}
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->dim[0].n = nest->rank ? inner->n * element : element;
	return true;
}

#ifdef HAVE_CUDA
/* Uses the driver's copy unless the addresses differ by a fraction of a word, where the driver reaches only
 * two thirds of the speed of rows by threads (tests/bench/EXPERIMENTS.md). The driver's copy is a kernel that
 * may occupy the whole device. A launch that may not do so therefore uses bulk copies, or rows if those are
 * not possible. */
static int memcpy_launch(const struct strategy_launch *launch, struct error *err)
{
	struct launcher *const launcher = launch->launcher;
	const uint64_t dst = strategy_dst(launch), src = strategy_src(launch);
	const int64_t bytes = launch->plan->tma.dim[0].n;
	const uint64_t parts = divide_up_u64((uint64_t)bytes, ROW_BYTES);
	const struct tma_route_plan rows = {
		.strategy = STRATEGY_rows,
		.element = 1,
		.rank = 1,
		.dim = { { .n = bytes, .dst = 1, .src = 1, .source = bytes } },
		.slots = parts,
		.tiles = parts,
	};

	const struct tma_route_plan bulk = {
		.rank = 1,
		.dim = { { .n = bytes } },
		.chunk = COPY_TILE_BYTES,
		.tiles = divide_up_u64((uint64_t)bytes, COPY_TILE_BYTES),
	};

	if (launcher_is_bounded(launcher) && (dst | src | (uint64_t)bytes) % 16 == 0)
		return launch_bulk(launcher, launch->stream, &bulk, dst, src, err);
	if (!launcher_is_bounded(launcher) && (dst - src) % 4 == 0)
		return driver_call(err, cuMemcpyAsync, (dst, src, (size_t)bytes, launch->stream));
	return launch_strided(launcher, launch->stream, launch->transform, &rows, dst, src, err);
}
#endif

const struct strategy strategy_memcpy = {
	.name = "memcpy",
	.family = FAMILY_MEMCPY,
	.turn = STRATEGY_FIRST,
	.probe = memcpy_probe,
	.flat_cost = 1,
	.launch = WITH_CUDA(memcpy_launch),
};

/* ---- Copy ---------------------------------------------------------------------------------------------- */

/* `copy` moves tiles from tensor map to tensor map through shared memory. A small border is written into the
 * tiles.
 *
 * Both a map and a tile must start at a multiple of 16 bytes: a load or store whose innermost coordinate is
 * not a multiple of 16 bytes ends the context (measured on an H200).
 */

#define COPY_TILE_LEAST 2048
#define SMALL_TILE      15000.0 /* bytes of a box; with smaller boxes, too few bytes are in flight */

/* Adds the rule that says which side is not contiguous along the innermost dimension. */
static void explain_rows(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	const int64_t element = nest->element;

	if (inner->dst != element)
		family_rules_add(&plan->rules, FAMILY_TILE_COPY,
		                 "destination stride %d is %" PRId64 " bytes, not %" PRId64, nest->rank - 1,
		                 inner->dst, element);
	else if (c->src_inner >= 0)
		family_rules_add(&plan->rules, FAMILY_TILE_COPY,
		                 "source stride %d is %" PRId64 " bytes, not %" PRId64, nest->rank - 1,
		                 inner->src, element);
	else
		family_rules_add(&plan->rules, FAMILY_TILE_COPY,
		                 "source stride %d is %" PRId64 " bytes, not %" PRId64
		                 ", but a map does not step along its innermost dimension",
		                 nest->rank - 1, inner->src, element);
}

/* Sets the map of the destination. Returns false, with the broken rules added, if there is no such map. A
 * store writes up to the next multiple of 16 bytes, so rows have to end at one. */
static bool set_store(struct plan *plan, const struct loop_nest *nest, uint32_t phase)
{
	struct tma_route_plan *tma = &plan->tma;
	struct tensor_map_layout *map = &tma->store;
	uint32_t unit = map_unit(tma->element), scale = tma->element / unit;
	uint32_t past = map_phase(phase, nest->dst_offset);
	uint64_t row = past + (uint64_t)tma->dim[0].n * tma->element;

	map->type = map_types[unit];
	map->rank = tma->rank;
	tma->dst_offset = nest->dst_offset;
	if (past)
		family_rules_add(&plan->rules, FAMILY_TILE_COPY,
		                 "destination base is %" PRIu32 " bytes past a multiple of 16", past);
	if (row % 16)
		family_rules_add(&plan->rules, FAMILY_TILE_COPY,
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

/* ---- Boxes of about COPY_TILE_BYTES, whole rows first ------------------------------------------------- */

static void set_boxes(struct tma_route_plan *tma, uint32_t tile_bytes)
{
	uint32_t unit = map_unit(tma->element);
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

/* Chooses the boxes. Tiles shrink until every thread block that can run at a time has enough tiles, if the
 * tensor is large enough for that. */
static void choose_boxes(struct tma_route_plan *tma, const struct plan_facts *facts)
{
	uint32_t tile_bytes = COPY_TILE_BYTES;

	set_boxes(tma, tile_bytes);
	while (tma->tiles < (uint64_t)COPY_BLOCKS * COPY_STAGES * facts->threads &&
	       tile_bytes > COPY_TILE_LEAST)
		set_boxes(tma, tile_bytes /= 2);
}

static bool copy_probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct plan_facts *facts = c->facts;
	struct tma_route_plan *tma = &plan->tma;

	if (!nest_has_rows(nest)) {
		explain_rows(plan, c);
		return false;
	}
	tma->element = nest->element;
	tma->repeats = 1;
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	if (!map_check_dims(plan, FAMILY_TILE_COPY, 0, TENSOR_MAP_MAX_RANK))
		return false;
	/* Both sides are checked, so that each adds its broken rules. */
	bool load = map_set_load(plan, FAMILY_TILE_COPY, nest, facts->src_phase);
	bool store = set_store(plan, nest, facts->dst_phase);
	if (!load || !store)
		return false;
	choose_boxes(tma, facts);
	load = map_check(plan, FAMILY_TILE_COPY, "load", &tma->load);
	store = map_check(plan, FAMILY_TILE_COPY, "store", &tma->store);
	if (!load || !store || tma->tiles > UINT32_MAX || tma->repeats > UINT32_MAX)
		return false;
	plan->tile_rank = (int)tma->rank;
	for (uint32_t d = 0; d < tma->rank; d++)
		plan->tile[tma->rank - 1 - d] = tma->store.box[d];
	return true;
}

static double box_bytes(const struct tma_route_plan *tma)
{
	double bytes = tensor_map_type_size(tma->load.type);

	for (uint32_t d = 0; d < tma->load.rank; d++)
		bytes *= (double)tma->load.box[d];
	return bytes;
}

static double window_bytes(const struct tma_route_plan *tma)
{
	double bytes = tma->element;

	for (uint32_t d = 0; d < tma->rank; d++)
		bytes *= (double)tma->dim[d].n;
	return bytes;
}

static double copy_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element, box = box_bytes(tma);

	(void)mode;
	return (1.05 + 20 / run) * box * (double)tma->tiles / window_bytes(tma) *
	       (box < SMALL_TILE ? SMALL_TILE / box : 1);
}

/* The elements of a map, and hence of the tile, have at most 8 bytes. */
static void copy_describe(const struct plan *plan, struct plan_tile *ret)
{
	const struct tma_route_plan *tma = &plan->tma;

	ret->element = tma->element > 8 ? 8 : tma->element;
	ret->row_bytes = tma->store.box[0] * ret->element;
	for (int d = 0; d < plan->tile_rank; d++)
		plan_tile_set_dim(ret, plan, d, plan->tile_rank - 1 - d);
	ret->dst[plan->tile_rank - 1] = ret->src[plan->tile_rank - 1] = ret->element;
}

#ifdef HAVE_CUDA
int tile_copy_args_init(struct tile_copy_args *ret, struct launcher *launcher,
                        const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	uint32_t bytes = (uint32_t)tensor_map_tile_bytes(&tma->load);
	int r = map_cache_get(launcher->maps, &tma->load, src, &ret->load, err);

	if (r == 0)
		r = map_cache_get(launcher->maps, &tma->store, dst, &ret->store, err);
	if (r < 0)
		return r;
	ret->rank = tma->rank;
	ret->tiles = (uint32_t)tma->tiles;
	ret->tile_bytes = (bytes + 127) & ~127u;
	ret->load_bytes = bytes;
	ret->repeats = (uint32_t)tma->repeats;
	memcpy(ret->grid, tma->grid, sizeof ret->grid);
	memcpy(ret->repeat, tma->repeat, sizeof ret->repeat);
	memcpy(ret->load_step, tma->load_step, sizeof ret->load_step);
	memcpy(ret->load_shift, tma->load_shift, sizeof ret->load_shift);
	memcpy(ret->store_step, tma->store_step, sizeof ret->store_step);
	memcpy(ret->store_shift, tma->store_shift, sizeof ret->store_shift);
	return 0;
}

static int copy_launch(const struct strategy_launch *launch, struct error *err)
{
	struct launcher *const launcher = launch->launcher;
	const struct tma_route_plan *tma = &launch->plan->tma;
	const uint64_t dst = strategy_dst(launch), src = strategy_src(launch);
	struct tile_pad_args args = { .src = src, .mode = launch->transform->mode };
	int r = tile_copy_args_init(&args.copy, launcher, tma, dst, src, err);

	if (r < 0)
		return r;
	struct shape shape = { .kernel = KERNEL_tile_copy,
		               .blocks = tma->tiles,
		               .threads = WARP_THREADS,
		               .shared = RING_BYTES(COPY_STAGES, args.copy.tile_bytes),
		               .a_multiprocessor = COPY_BLOCKS };

	if (!tma->patched)
		return shape_launch(&shape, launcher, launch->stream, &args.copy, err);
	shape.kernel = by_element(KERNEL_tile_pad_1, tma->element);
	shape.threads = PAD_THREADS + WARP_THREADS;
	shape.shared += COPY_STAGES * PAD_NOTE_BYTES;
	args.scale = (int32_t)(tma->load.dim[0] / (uint64_t)tma->dim[0].source);
	tma_fill_pattern(launch->transform, dst, args.pattern);
	for (uint32_t d = 0; d < ARGS_MAP_RANK; d++) {
		args.dim[d] = d < tma->rank ? tma->dim[d] : tma_unit_dim(tma->element);
		args.box[d] = d < tma->rank ? tma->load.box[d] : 1;
	}
	args.box[0] /= (uint32_t)args.scale;
	return shape_launch(&shape, launcher, launch->stream, &args, err);
}
#endif

const struct strategy strategy_copy = {
	.name = "copy",
	.family = FAMILY_TILE_COPY,
	.turn = STRATEGY_FIRST,
	.probe = copy_probe,
	.cost = copy_cost,
	.describe = copy_describe,
	.launch = WITH_CUDA(copy_launch),
};
