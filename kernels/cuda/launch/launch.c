/* SPDX-License-Identifier: Apache-2.0 */
/* Fills a kernel's arguments by the plan's route and launches it. */
#include "launch.h"

#include <assert.h>
#include <string.h>

#include "kernels/cuda/device/args.h"
#include "kernels/cuda/device.h"
#include "convert.h"
#include "launch_many.h"
#include "strided_args.h"
#include "kernels/plan/tuning.h"
#include "proto/arithmetic.h"

/* A multiprocessor of compute capability 9.0 and later has 228 KiB of shared memory, of which each block
 * takes 1 KiB. The kernels assert their side of these sizes. */
#define SHARED_BYTES       (228 * 1024)
#define SHARED_BYTES_OWN   1024
#define CHECK_SHARED(n, b) static_assert((n) * ((b) + SHARED_BYTES_OWN) <= SHARED_BYTES, "as many blocks fit")

#define TRANSPOSE_SHARED \
	(RING_BYTES(TRANSPOSE_STAGES, TRANSPOSE_TILE_BYTES) + TRANSPOSE_STAGES * TRANSPOSE_NOTE_BYTES)

CHECK_SHARED(TRANSPOSE_BLOCKS, TRANSPOSE_SHARED);
CHECK_SHARED(COPY_BLOCKS, RING_BYTES(COPY_STAGES, COPY_TILE_BYTES) + COPY_STAGES * PAD_NOTE_BYTES);
static_assert(TRANSPOSE_TILE_BYTES % (TRANSPOSE_X_BYTES * TRANSPOSE_ROW_BYTES) == 0,
              "boxes make a whole tile");
static_assert(TRANSPOSE_READERS(16) == TRANSPOSE_MOST_READERS && TRANSPOSE_READERS(1) % WARP_THREADS == 0,
              "the loading warp follows whole warps");
static_assert(TRANSPOSE_NOTE_BYTES % 8 == 0 && PAD_NOTE_BYTES % 8 == 0, "notes lie behind barriers, aligned");

/* ---- Shapes ------------------------------------------------------------------------------------------- */

uint64_t shape_blocks(const struct shape *shape, const struct device *device)
{
	const uint64_t most =
	    shape->a_multiprocessor ? (uint64_t)shape->a_multiprocessor * device->processors : INT32_MAX;

	return shape->blocks < most ? shape->blocks : most;
}

static bool is_bounded(const struct launcher *launcher)
{
	return launcher->multiprocessors > 0 && launcher->multiprocessors < launcher->device->processors;
}

/* The kernel that does the same with a grid of any size (kernels.def). */
static uint32_t bounded_kernel(uint32_t kernel)
{
	const bool has_tiles = kernel >= KERNEL_tile_permute_1 && kernel < KERNEL_bounded_tile_permute_1;

	return has_tiles ? kernel + KERNEL_bounded_tile_permute_1 - KERNEL_tile_permute_1 : kernel;
}

/* Blocks that one multiprocessor holds at once. */
static uint64_t resident_blocks(const struct shape *shape, const struct launcher *launcher)
{
	int n = 0;

	if (shape->a_multiprocessor)
		return shape->a_multiprocessor;
	driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, launcher->device->function[shape->kernel],
	                                                   (int)shape->threads, shape->shared);
	return n > 0 ? (uint64_t)n : 1;
}

/* Of a bounded kernel, within what the launch may occupy. */
static uint64_t bounded_blocks(const struct shape *shape, const struct launcher *launcher)
{
	const uint64_t blocks = shape_blocks(shape, launcher->device);
	const uint64_t most = launcher->multiprocessors * resident_blocks(shape, launcher);

	return blocks < most ? blocks : most;
}

/* A kernel may start while the one before it on the stream ends, which is safe because each waits before it
 * touches global memory (device/tma.cuh). The attribute matters only between two kernels: a copy, an event
 * or a signal between them waits for all of the first, and the second for that. */
static CUlaunchAttribute start_early(void)
{
	return (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		                    .value.programmaticStreamSerializationAllowed = 1 };
}

/* Reads and writes of what is passing are the first to leave the L2 again. A window may not be as large as
 * the most that the device names: one of all that has no effect (tests/bench/EXPERIMENTS.md). */
static CUlaunchAttribute let_pass(const struct launcher *launcher)
{
	const uint64_t most = launcher->device->window_bytes / 2, bytes = launcher->passing.bytes;

	return (CUlaunchAttribute){
		.id = CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
		.value.accessPolicyWindow = { .base_ptr = (void *)launcher->passing.start,
		                              .num_bytes = bytes < most ? bytes : most,
		                              .hitRatio = 1,
		                              .hitProp = CU_ACCESS_PROPERTY_STREAMING,
		                              .missProp = CU_ACCESS_PROPERTY_NORMAL },
	};
}

int shape_launch(const struct shape *shape, const struct launcher *launcher, CUstream stream, void *args,
                 struct error *err)
{
	const bool has_passing = launcher->passing.bytes > 0 && launcher->device->window_bytes > 0;
	CUlaunchAttribute attributes[] = { start_early(), let_pass(launcher) };
	struct shape own = *shape;

	if (is_bounded(launcher)) {
		own.kernel = bounded_kernel(shape->kernel);
		own.blocks = bounded_blocks(&own, launcher);
	} else {
		own.blocks = shape_blocks(shape, launcher->device);
	}
	CUlaunchConfig config = {
		.gridDimX = (unsigned)own.blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = shape->threads,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shape->shared,
		.hStream = stream,
		.attrs = attributes,
		.numAttrs = has_passing ? 2 : 1,
	};
	void *params[] = { args };

	return driver_call(err, cuLaunchKernelEx,
	                   (&config, launcher->device->function[own.kernel], params, NULL));
}

static int launch(struct launcher *launcher, CUstream stream, const struct shape *shape, void *args,
                  struct error *err)
{
	return shape_launch(shape, launcher, stream, args, err);
}

/* ---- Routes -------------------------------------------------------------------------------------------- */

int tile_copy_args_init(struct tile_copy_args *ret, struct launcher *launcher,
                        const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
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
                       const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct tile_pad_args args = { .src = src, .mode = transform->mode };
	int r = tile_copy_args_init(&args.copy, launcher, tma, dst, src, err);

	if (r < 0)
		return r;
	struct shape shape = { .kernel = KERNEL_tile_copy,
		               .blocks = tma->tiles,
		               .threads = WARP_THREADS,
		               .shared = RING_BYTES(COPY_STAGES, args.copy.tile_bytes),
		               .a_multiprocessor = COPY_BLOCKS };

	if (!tma->patched)
		return launch(launcher, stream, &shape, &args.copy, err);
	shape.kernel = by_element(KERNEL_tile_pad_1, tma->element);
	shape.threads = PAD_THREADS + WARP_THREADS;
	shape.shared += COPY_STAGES * PAD_NOTE_BYTES;
	args.scale = (int32_t)(tma->load.dim[0] / (uint64_t)tma->dim[0].source);
	tma_fill_pattern(transform, dst, args.pattern);
	for (uint32_t d = 0; d < ARGS_MAP_RANK; d++) {
		args.dim[d] = d < tma->rank ? tma->dim[d] : tma_unit_dim(tma->element);
		args.box[d] = d < tma->rank ? tma->load.box[d] : 1;
	}
	args.box[0] /= (uint32_t)args.scale;
	return launch(launcher, stream, &shape, &args, err);
}

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
	return launch(launcher, stream,
	              &(struct shape){ .kernel = KERNEL_bulk_copy,
	                               .blocks = tma->tiles,
	                               .threads = WARP_THREADS,
	                               .shared = RING_BYTES(COPY_STAGES, args.chunk),
	                               .a_multiprocessor = COPY_BLOCKS },
	              &args, err);
}

static int launch_transpose(struct launcher *launcher, CUstream stream, const struct tma_route_plan *tma,
                            uint64_t dst, uint64_t src, struct error *err)
{
	uint32_t e = tma->element;
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
	                               .threads = TRANSPOSE_READERS(e) + WARP_THREADS,
	                               .shared = TRANSPOSE_SHARED,
	                               .a_multiprocessor = TRANSPOSE_BLOCKS },
	              &args, err);
}

static int launch_permute(struct launcher *launcher, CUstream stream, const struct transform *transform,
                          const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct permute_args args = tma->permute;
	enum kernel_id kernel =
	    args.how == PERMUTE_SQUARES  ? by_element(KERNEL_tile_squares_1, tma->element)
	    : args.how == PERMUTE_PIECES ? args.padded ? KERNEL_padded_pieces : KERNEL_tile_pieces
	    : args.how == PERMUTE_WORDS
		? by_element(args.padded ? KERNEL_padded_words_1 : KERNEL_tile_words_1, tma->element)
		: by_element(args.padded ? KERNEL_padded_permute_1 : KERNEL_tile_permute_1, tma->element);

	args.low = src;
	args.high = src + tma->element;
	for (uint32_t d = 0; d < tma->rank; d++) {
		const int64_t reach = (tma->dim[d].source - 1) * tma->dim[d].src;

		*(reach < 0 ? &args.low : &args.high) += (uint64_t)reach;
	}
	args.dst += dst;
	args.src += src;
	args.tiles = (uint32_t)tma->tiles;
	tma_fill_pattern(transform, dst, args.pattern);
	return launch(
	    launcher, stream,
	    &(struct shape){
		.kernel = kernel, .blocks = tma->tiles, .threads = args.threads, .shared = args.shared },
	    &args, err);
}

static int launch_strided(struct launcher *launcher, CUstream stream, const struct transform *transform,
                          const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct strided_args args;

	strided_args_init(&args, transform, tma, dst, src);
	const struct shape shape = strided_shape_of(transform, tma, &args);
	return launch(launcher, stream, &shape, &args, err);
}

/* The driver's own copy; but where the addresses do not differ by whole words, that has two thirds of the
 * speed of rows by threads (tests/bench/EXPERIMENTS.md). It is also a kernel that may occupy the whole
 * device: a launch that may not goes by the unit, or by rows. */
static int launch_memcpy(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	const int64_t bytes = tma->dim[0].n;
	const uint64_t parts = divide_up_u64((uint64_t)bytes, ROW_BYTES);
	const struct tma_route_plan rows = {
		.route = TMA_ROUTE_ROWS,
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

	if (is_bounded(launcher) && (dst | src | (uint64_t)bytes) % 16 == 0)
		return launch_bulk(launcher, stream, &bulk, dst, src, err);
	if (!is_bounded(launcher) && (dst - src) % 4 == 0)
		return driver_call(err, cuMemcpyAsync, (dst, src, (size_t)bytes, stream));
	return launch_strided(launcher, stream, transform, &rows, dst, src, err);
}

static int launch_border(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	struct fill_args args;

	border_args_init(&args, transform, tma, dst, src);
	return launch(launcher, stream,
	              &(struct shape){ .kernel = by_element(KERNEL_fill_1, tma->border_element),
	                               .blocks = tma->border_tiles,
	                               .threads = ROWS_THREADS },
	              &args, err);
}

static int launch_window(struct launcher *launcher, CUstream stream, const struct transform *transform,
                         const struct tma_route_plan *tma, uint64_t dst, uint64_t src, struct error *err)
{
	dst += (uint64_t)tma->dst_offset;
	src += (uint64_t)tma->src_offset;
	switch (tma->route) {
	case TMA_ROUTE_MEMCPY:
		return launch_memcpy(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_BULK:
		return launch_bulk(launcher, stream, tma, dst, src, err);
	case TMA_ROUTE_COPY:
		return launch_copy(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_TRANSPOSE:
		return launch_transpose(launcher, stream, tma, dst, src, err);
	case TMA_ROUTE_PERMUTE:
		return launch_permute(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_SHORT:
	case TMA_ROUTE_TILES:
		return launch_one(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_ROWS:
	case TMA_ROUTE_GATHER:
	case TMA_ROUTE_CHANNELS:
	case TMA_ROUTE_ELEMENTS:
		return launch_strided(launcher, stream, transform, tma, dst, src, err);
	case TMA_ROUTE_CONVERT:
	case TMA_ROUTE_NONE:
		break;
	}
	return 0;
}

int launch_transform(struct launcher *launcher, CUstream stream, const struct transform *transform,
                     const struct plan *plan, uint64_t dst, uint64_t src,
                     const struct convert_operands *operands, struct error *err)
{
	int r = plan->tma.route == TMA_ROUTE_CONVERT
	            ? launch_convert(launcher, stream, transform, plan, dst, src, operands, NULL, NULL, err)
	            : launch_window(launcher, stream, transform, &plan->tma, dst, src, err);

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
