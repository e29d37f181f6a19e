/* Launches: each route fills its kernel's arguments, all go out by one call. */
#include "launch.h"

#include <assert.h>
#include <string.h>

#include "args.h"
#include "device.h"
#include "kernels.h"
#include "tuning.h"

#define RING_BYTES(stages, tile) ((stages) * ((tile) + 2 * sizeof(uint64_t)))

static_assert(sizeof(struct strided_dim) == sizeof(struct nest_dim), "the same fields");

/* Which of a family's kernels: 1, 2, 4, 8, 16. */
static uint32_t by_element(enum kernel_id first, uint32_t element)
{
	return (uint32_t)first + (uint32_t)__builtin_ctz(element);
}

struct shape {
	uint32_t kernel;
	uint64_t blocks; /* at most as many; persistent kernels take what the device can run at once */
	uint32_t threads;
	uint32_t shared;
	uint32_t a_multiprocessor; /* blocks; 0: as many as there are */
};

static int launch(struct launcher *launcher, CUstream stream, const struct shape *shape, void *args,
                  struct error *err)
{
	const struct device *device = launcher->device;
	uint64_t most =
	    shape->a_multiprocessor ? (uint64_t)shape->a_multiprocessor * device->processors : INT32_MAX;
	CUlaunchConfig config = {
		.gridDimX = (unsigned)(shape->blocks < most ? shape->blocks : most),
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = shape->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shape->shared,
		.hStream = stream,
	};
	void *params[] = { args };

	return driver_call(err, cuLaunchKernelEx, (&config, device->function[shape->kernel], params, NULL));
}

/* ---- Routes -------------------------------------------------------------------------------------------- */

static int copy_args(struct launcher *launcher, const struct tma_plan *tma, uint64_t dst, uint64_t src,
                     struct tile_copy_args *ret, struct error *err)
{
	uint32_t bytes = (uint32_t)tensor_map_tile_bytes(&tma->load);
	int r = map_cache_get(&launcher->maps, &tma->load, src, &ret->load, err);

	if (r == 0)
		r = map_cache_get(&launcher->maps, &tma->store, dst, &ret->store, err);
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

static int launch_copy(struct launcher *launcher, CUstream stream, const struct transform *transform,
                       const struct tma_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct tile_pad_args args = { .src = src, .mode = transform->mode };
	int r = copy_args(launcher, tma, dst, src, &args.copy, err);

	if (r < 0)
		return r;
	struct shape shape = { .kernel = KERNEL_tile_copy,
		               .blocks = tma->tiles,
		               .threads = 32,
		               .shared = RING_BYTES(COPY_STAGES, args.copy.tile_bytes),
		               .a_multiprocessor = COPY_BLOCKS };

	if (!tma->patched)
		return launch(launcher, stream, &shape, &args.copy, err);
	shape.kernel = by_element(KERNEL_tile_pad_1, tma->element);
	shape.threads = PAD_THREADS + 32;
	shape.shared += COPY_STAGES * PAD_NOTE_BYTES;
	args.scale = (int32_t)(tma->load.dim[0] / (uint64_t)tma->dim[0].source);
	memcpy(args.pattern, tma->pattern, sizeof args.pattern);
	for (uint32_t d = 0; d < ARGS_MAP_RANK; d++) {
		args.dim[d] = d < tma->rank ? tma->dim[d] : tma_unit_dim(tma->element);
		args.box[d] = d < tma->rank ? tma->load.box[d] : 1;
	}
	args.box[0] /= (uint32_t)args.scale;
	return launch(launcher, stream, &shape, &args, err);
}

static int launch_bulk(struct launcher *launcher, CUstream stream, const struct tma_plan *tma, uint64_t dst,
                       uint64_t src, struct error *err)
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
	return launch(launcher, stream,
	              &(struct shape){ .kernel = KERNEL_bulk_copy,
	                               .blocks = tma->tiles,
	                               .threads = 32,
	                               .shared = RING_BYTES(COPY_STAGES, args.chunk),
	                               .a_multiprocessor = COPY_BLOCKS },
	              &args, err);
}

static int launch_transpose(struct launcher *launcher, CUstream stream, const struct tma_plan *tma,
                            uint64_t dst, uint64_t src, struct error *err)
{
	uint32_t e = tma->element, blocks = TRANSPOSE_TILE_BYTES / 16 / (16 / e);
	struct tile_transpose_args args = {
		.dst = dst,
		.rank = tma->load.rank,
		.tiles = (uint32_t)tma->tiles,
		.repeats = (uint32_t)tma->repeats,
		.shift_x = tma->shift_x,
		.shift_y = tma->shift_y,
	};
	int r = map_cache_get(&launcher->maps, &tma->load, src, &args.load, err);

	if (r < 0)
		return r;
	memcpy(args.grid, tma->grid, sizeof args.grid);
	memcpy(args.repeat, tma->repeat, sizeof args.repeat);
	memcpy(args.load_step, tma->load_step, sizeof args.load_step);
	memcpy(args.load_shift, tma->load_shift, sizeof args.load_shift);
	for (uint32_t d = 0; d < ARGS_GRID_RANK; d++) {
		args.n[d] = d < tma->rank ? (uint32_t)tma->dim[d].n : 1;
		args.dst_stride[d] = d < tma->rank ? tma->dim[d].dst : 0;
	}
	return launch(launcher, stream,
	              &(struct shape){ .kernel = by_element(KERNEL_tile_transpose_1, e),
	                               .blocks = tma->tiles,
	                               .threads = (blocks < 256 ? blocks : 256) + 32,
	                               .shared = RING_BYTES(TRANSPOSE_STAGES, TRANSPOSE_TILE_BYTES) +
	                                         TRANSPOSE_STAGES * 40,
	                               .a_multiprocessor = TRANSPOSE_BLOCKS },
	              &args, err);
}

/* Rows of a tile, their slots in shared memory, and what is left of each beside its whole chunks. */
static void set_short_rows(struct strided_args *args, uint32_t element)
{
	const struct strided_dim *inner = &args->dim[0];
	const uint64_t bytes = (uint64_t)inner->source * element, rest = 16 / element - 1;

	args->pitch = ((uint32_t)bytes + 30 + 15) & ~15u;
	args->rows = SHORT_TILE_BYTES / args->pitch;
	if (args->rows > ROWS_THREADS)
		args->rows = ROWS_THREADS;
	args->follow =
	    args->rank > 1 && args->dim[1].src >= (int64_t)bytes && args->dim[1].src <= args->pitch;
	args->by_rest = divisor_of((uint64_t)(inner->n - inner->source) + 2 * rest);
}

static int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                          const struct tma_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	static const struct {
		enum kernel_id kernel;
		uint32_t slots; /* that a block takes at a time */
	} routes[] = {
		[TMA_ROUTE_ROWS] = { KERNEL_strided_rows_1, ROWS_THREADS / 32 },
		[TMA_ROUTE_SHORT] = { KERNEL_strided_short_1, 1 },
		[TMA_ROUTE_TILES] = { KERNEL_strided_tiles_1, 1 },
		[TMA_ROUTE_CHANNELS] = { KERNEL_strided_few_1, ROWS_THREADS / 32 },
		[TMA_ROUTE_GATHER] = { KERNEL_strided_gather_1, ROWS_THREADS * GATHER_BATCH },
	};
	struct strided_args args = {
		.dst = dst,
		.src = src,
		.low = src,
		.high = src + tma->element,
		.slots = tma->tiles,
		.run_bytes = tma->element,
		.rank = tma->rank,
		.run = tma->run,
		.whole = tma->whole,
		.mode = transform->mode,
		.by_slots = divisor_of(tma->slots),
	};
	enum kernel_id kernel = routes[tma->route].kernel;
	uint32_t slots = routes[tma->route].slots;

	memcpy(args.pattern, tma->pattern, sizeof args.pattern);
	memcpy(args.dim, tma->dim, tma->rank * sizeof *args.dim);
	for (uint32_t d = 0; d < tma->rank; d++) {
		const int64_t reach = (tma->dim[d].source - 1) * tma->dim[d].src;

		*(reach < 0 ? &args.low : &args.high) += (uint64_t)reach;
		args.run_bytes *= d < tma->run ? (uint64_t)tma->dim[d].n : 1;
		args.by[d] = divisor_of(tma->route == TMA_ROUTE_TILES && d < 2 ? tma->grid[d]
		                                                               : (uint64_t)tma->dim[d].n);
	}
	if (tma->route == TMA_ROUTE_ROWS && transform->mode != PAD_MODE_CONSTANT)
		kernel = KERNEL_strided_modes_1;
	if (tma->route == TMA_ROUTE_CHANNELS && tma->run > CHANNELS_FEW)
		kernel = KERNEL_strided_many_1;
	if (tma->route == TMA_ROUTE_SHORT) {
		set_short_rows(&args, tma->element);
		slots = args.rows;
	}
	return launch(launcher, stream,
	              &(struct shape){ .kernel = by_element(kernel, tma->element),
	                               .blocks = (tma->tiles + slots - 1) / slots,
	                               .threads = ROWS_THREADS,
	                               .shared = tma->route == TMA_ROUTE_TILES ? TILES_BYTES(tma->element)
	                                         : tma->route == TMA_ROUTE_SHORT
	                                             ? args.rows * (args.pitch + SHORT_NOTE_BYTES) + 16
	                                         : tma->route == TMA_ROUTE_CHANNELS
	                                             ? strided_channel_bytes(tma->run)
	                                             : 0,
	                               .a_multiprocessor = tma->route == TMA_ROUTE_TILES ? TILES_BLOCKS : 0 },
	              &args, err);
}

static int launch_border(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct fill_args args = {
		.dst = dst + (uint64_t)tma->border_dst_offset,
		.src = src + (uint64_t)tma->border_src_offset,
		.tiles = tma->border_tiles,
		.rank = tma->border_rank,
		.mode = transform->mode,
	};

	memcpy(args.pattern, tma->pattern, sizeof args.pattern);
	memcpy(args.dim, tma->border, tma->border_rank * sizeof *args.dim);
	return launch(launcher, stream,
	              &(struct shape){ .kernel = by_element(KERNEL_fill_1, tma->border_element),
	                               .blocks = tma->border_tiles,
	                               .threads = ROWS_THREADS },
	              &args, err);
}

static int launch_window(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	dst += (uint64_t)tma->dst_offset;
	src += (uint64_t)tma->src_offset;
	switch (tma->route) {
	case TMA_ROUTE_MEMCPY:
		return driver_call(err, cuMemcpyAsync, (dst, src, (size_t)tma->dim[0].n, stream));
	case TMA_ROUTE_BULK:
		return launch_bulk(launcher, stream, tma, dst, src, err);
	case TMA_ROUTE_COPY:
		return launch_copy(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_TRANSPOSE:
		return launch_transpose(launcher, stream, tma, dst, src, err);
	case TMA_ROUTE_ROWS:
	case TMA_ROUTE_SHORT:
	case TMA_ROUTE_TILES:
	case TMA_ROUTE_GATHER:
	case TMA_ROUTE_CHANNELS:
		return launch_strided(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_NONE:
		break;
	}
	return 0;
}

int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src, struct error *err)
{
	int r = launch_window(launcher, stream, transform, &plan->tma, dst, src, err);

	if (r == 0 && plan->tma.border_rank > 0)
		r = launch_border(launcher, stream, transform, &plan->tma, dst, src, err);
	return r;
}

int launcher_init(struct launcher *launcher, const struct device *device, uint64_t map_entries, uint64_t seed,
                  struct error *err)
{
	launcher->device = device;
	return map_cache_init(&launcher->maps, map_entries, seed, err);
}

void launcher_deinit(struct launcher *launcher)
{
	map_cache_deinit(&launcher->maps);
}
