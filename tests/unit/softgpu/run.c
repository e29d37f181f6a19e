/* Launches: what is refused, and the engine's transposes run from their own source, tile by ragged tile. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/args.h"
#include "tests/softgpu/model.h"

Test(run, every_kernel_is_there)
{
#define KERNEL(name, args)                         \
	cr_assert(model_find(#name), "%s", #name); \
	cr_assert_eq(model_args_size(model_find(#name)), sizeof(struct args), #name);
#include "kernels/cuda/kernels.def"
	cr_assert(!model_find("no_such_kernel"));
	cr_assert(!model_find(""));
}

/* ---- Refused
 * -------------------------------------------------------------------------------------------------- */

struct refusal_row {
	char name[32];
	uint32_t grid[3], block[3], cluster, shared_bytes;
	char report[80];
};

static struct refusal_row refusals[] = {
	{ "no block", { 1, 0, 1 }, { 32, 1, 1 }, 1, 0, "a grid of 1 x 0 x 1 blocks of 32 threads" },
	{ "no thread", { 1, 1, 1 }, { 32, 0, 1 }, 1, 0, "a grid of 1 x 1 x 1 blocks of 0 threads" },
	{ "too many threads", { 1, 1, 1 }, { 32, 33, 1 }, 1, 0, "1056 threads a block" },
	{ "too much shared memory", { 1, 1, 1 }, { 32, 1, 1 }, 1, 232449, "232449 bytes of shared memory" },
	{ "half a cluster", { 3, 1, 1 }, { 32, 1, 1 }, 2, 0, "a grid 3 blocks wide in clusters of 2" },
	{ "too large a cluster", { 32, 1, 1 }, { 32, 1, 1 }, 32, 0, "in clusters of 32" },
};

ParameterizedTestParameters(run, refused)
{
	return cr_make_param_array(struct refusal_row, refusals, sizeof refusals / sizeof refusals[0]);
}

ParameterizedTest(struct refusal_row *row, run, refused)
{
	static struct strided_args args;
	void *params[] = { &args };
	struct model_launch launch = { .cluster = row->cluster,
		                       .shared_bytes = row->shared_bytes,
		                       .params = params };
	char report[512] = "";

	memcpy(launch.grid, row->grid, sizeof(launch.grid));
	memcpy(launch.block, row->block, sizeof(launch.block));
	cr_assert(!model_run(model_find("strided_rows_4"), &launch, report, sizeof(report)), "%s", row->name);
	cr_assert(strstr(report, row->report), "%s: %s", row->name, report);
}

/* ---- Transposes
 * -------------------------------------------------------------------------------------------------- */

enum { MAX_BYTES = 1 << 18, GUARD = 64 };

struct transpose_row {
	char name[24];
	uint32_t element;
	uint32_t threads;
	uint32_t tile_x, tile_y; /* of the kernel */
	uint32_t x, y;           /* x: contiguous in the destination */
};

static struct transpose_row transposes[] = {
	{ "tile_transpose_1", 1, 96, 128, 128, 208, 176 }, { "tile_transpose_2", 2, 160, 128, 64, 136, 88 },
	{ "tile_transpose_4", 4, 288, 64, 64, 68, 100 },   { "tile_transpose_8", 8, 288, 32, 64, 98, 30 },
	{ "tile_transpose_16", 16, 288, 16, 64, 33, 65 },
};

ParameterizedTestParameters(run, transposes)
{
	return cr_make_param_array(struct transpose_row, transposes,
	                           sizeof transposes / sizeof transposes[0]);
}

static uint8_t source[MAX_BYTES] __attribute__((aligned(128)));
static uint8_t target[MAX_BYTES] __attribute__((aligned(128)));

ParameterizedTest(struct transpose_row *row, run, transposes)
{
	uint32_t e = row->element, unit = e == 16 ? 2 : 1;
	struct tensor_map_layout layout = {
		.type = e == 1   ? TENSOR_MAP_UINT8
		        : e == 2 ? TENSOR_MAP_UINT16
		        : e == 4 ? TENSOR_MAP_UINT32
		                 : TENSOR_MAP_UINT64,
		.rank = 2,
		.dim = { row->y * unit, row->x },
		.stride = { (row->y * e + 15) / 16 * 16 },
		.box = { 128 / e * unit, row->tile_x },
		.element_stride = { 1, 1 },
		.swizzle = TENSOR_MAP_SWIZZLE_128B,
	};
	struct tile_transpose_args args = {
		.dst = (uintptr_t)(target + GUARD),
		.rank = 2,
		.repeats = 1,
		.grid = { (row->y + row->tile_y - 1) / row->tile_y,
		          (row->x + row->tile_x - 1) / row->tile_x },
		.repeat = { 1, 1, 1, 1, 1 },
		.n = { row->y, row->x, 1, 1, 1 },
		.dst_stride = { (int64_t)row->x * e, e },
	};
	void *params[] = { &args };
	struct model_launch launch = {
		.grid = { 2, 1, 1 },
		.block = { row->threads, 1, 1 },
		.cluster = 1,
		.shared_bytes = 4 * 16384 + 64,
		.params = params,
	};
	char report[512] = "";

	args.tiles = args.grid[0] * args.grid[1];
	for (uint32_t i = 0; i < MAX_BYTES; i++)
		source[i] = (uint8_t)(i * 2654435761u >> 24);
	memset(target, 0xa5, sizeof(target));
	model_map_encode(&args.load, &layout, (uintptr_t)source);
	cr_assert(model_run(model_find(row->name), &launch, report, sizeof(report)), "%s", report);

	for (uint32_t y = 0; y < row->y; y++)
		for (uint32_t x = 0; x < row->x; x++)
			cr_assert_arr_eq(target + GUARD + ((size_t)y * row->x + x) * e,
			                 source + x * layout.stride[0] + (size_t)y * e, e, "%s: %u, %u",
			                 row->name, x, y);
	for (uint32_t i = 0; i < GUARD; i++) {
		cr_assert_eq(target[i], 0xa5, "%s: written before the start", row->name);
		cr_assert_eq(target[GUARD + row->x * row->y * e + i], 0xa5, "%s: written past the end",
		             row->name);
	}
}
