/* SPDX-License-Identifier: Apache-2.0 */
/* Cases for the examples that are separate kernels. */
#include <string.h>

#include "cases.h"
#include "rig.h"
#include "tests/support/tap.h"

static uint8_t tensor[RIG_TENSOR_BYTES], tiles[RIG_TILE_BYTES];

/* ---- Barriers: two tiles, one after the other ------------------------------------------------------ */

static void barriers(enum seed_kernel kernel, const char *name)
{
	struct tensor_map_layout layout = {
		.type = TENSOR_MAP_UINT32,
		.rank = 2,
		.dim = { 64, 8 },
		.stride = { 256 },
		.box = { 16, 4 },
		.element_stride = { 1, 1 },
	};
	struct seed_tile_args args = {
		.bytes_at = rig_tiles(), .rank = 2, .bytes = 256, .span = 256, .c = { 8, 2 }
	};
	struct rig_launch launch = { .kernel = kernel, .threads = 128, .shared_bytes = 512, .args = &args };
	bool good;

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, (uint32_t)kernel);
	good = rig_encode(&args.map, &layout, 0) && rig_run(&launch);
	if (good)
		rig_read_tiles(tiles);
	for (uint32_t turn = 0; turn < 2; turn++)
		for (uint32_t y = 0; y < 4; y++)
			good = good && !memcmp(tiles + turn * 256 + y * 64,
			                       tensor + RIG_GUARD + (2 + y) * 256 + (8 + turn * 16) * 4, 64);
	tap_case(good, "%s", name);
}

void cases_of_barriers(void)
{
	barriers(KERNEL_seed_barrier_again, "a barrier is invalidated and made again");
	barriers(KERNEL_seed_phases, "a barrier's phases have parities 0 and 1");
}

/* ---- The guide's copy without a map ---------------------------------------------------------------- */

void case_bulk(void)
{
	enum { BLOCKS = 5, NUMBERS = 1024 };
	struct seed_bulk_args args = { .data = rig_tensor(), .n = NUMBERS };
	struct rig_launch launch = {
		.kernel = KERNEL_seed_bulk,
		.grid = { BLOCKS },
		.threads = 128,
		.shared_bytes = NUMBERS * 4 + 16,
		.args = &args,
	};
	static uint8_t got[RIG_TENSOR_BYTES];
	bool good;

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, 1);
	good = rig_run(&launch);
	if (good)
		rig_read_tensor(got);
	for (uint32_t i = 0; i < BLOCKS * NUMBERS; i++) {
		uint32_t number;

		memcpy(&number, tensor + RIG_GUARD + i * 4, 4);
		number++;
		memcpy(tensor + RIG_GUARD + i * 4, &number, 4);
	}
	tap_case(good && !memcmp(got, tensor, sizeof(got)),
	         "the guide's 1-D bulk copy adds one to each number");
}

/* ---- 8 x 8 floats in 4 x 4 tiles ------------------------------------------------------------------- */

static void print_tile(const float *matrix, int tile_y, int tile_x)
{
	tap_note("Matrix at position (%d, %d):", tile_y, tile_x);
	for (int y = 0; y < 4; y++) {
		const float *row = matrix + (tile_y * 4 + y) * 8 + tile_x * 4;

		tap_note("%.1f %.1f %.1f %.1f", (double)row[0], (double)row[1], (double)row[2],
		         (double)row[3]);
	}
}

void case_mojo(void)
{
	/* The output that the example prints for the tile at (1, 1). */
	static const float last[4][4] = {
		{ 36, 38, 40, 42 }, { 48, 50, 52, 54 }, { 60, 62, 64, 66 }, { 72, 74, 76, 78 }
	};
	struct tensor_map_layout layout = {
		.type = TENSOR_MAP_FLOAT32,
		.rank = 2,
		.dim = { 8, 8 },
		.stride = { 32 },
		.box = { 4, 4 },
		.element_stride = { 1, 1 },
	};
	struct seed_mojo_args args;
	struct rig_launch launch = { .kernel = KERNEL_seed_mojo,
		                     .grid = { 2, 2 },
		                     .threads = 16,
		                     .shared_bytes = 128,
		                     .args = &args };
	float matrix[64];
	bool good;

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, 2);
	good = rig_encode(&args.map, &layout, 0);
	for (int i = 0; i < 64; i++)
		matrix[i] = (float)i;
	memcpy(tensor + RIG_GUARD, matrix, sizeof(matrix));
	rig_write_tensor(tensor);
	good = good && rig_run(&launch);
	if (good)
		rig_read_tensor(tensor);
	memcpy(matrix, tensor + RIG_GUARD, sizeof(matrix));
	for (int y = 0; y < 8; y++)
		for (int x = 0; x < 8; x++) {
			float wanted =
			    y < 4 || x < 4 ? (float)(y * 8 + x + y % 4 * 4 + x % 4) : last[y - 4][x - 4];

			good = good && matrix[y * 8 + x] == wanted;
		}
	for (int tile = 0; tile < 4; tile++)
		print_tile(matrix, tile / 2, tile % 2);
	tap_case(good, "the Mojo example adds each element its place in the tile");
}

/* ---- CuTe's half tile ------------------------------------------------------------------------------ */

void case_half_tile(void)
{
	enum { ROWS = 128, ROW_BYTES = 64 * 2 };
	struct tensor_map_layout layout = {
		.type = TENSOR_MAP_FLOAT16,
		.rank = 2,
		.dim = { 64, ROWS },
		.stride = { ROW_BYTES },
		.box = { 64, ROWS },
		.element_stride = { 1, 1 },
	};
	struct seed_tile_args args = { .bytes_at = rig_tiles() };
	struct rig_launch launch = { .kernel = KERNEL_seed_half_tile,
		                     .threads = 128,
		                     .shared_bytes = ROWS * ROW_BYTES + 16,
		                     .args = &args };
	bool good;

	if (!case_begins())
		return;
	case_prepare(tensor, tiles, 3);
	good = rig_encode(&args.map, &layout, 0) && rig_run(&launch);
	if (good)
		rig_read_tiles(tiles);
	tap_case(good && !memcmp(tiles, tensor + RIG_GUARD, (size_t)ROWS * ROW_BYTES),
	         "the CuTe example's 128 x 64 tile of halves");
}
