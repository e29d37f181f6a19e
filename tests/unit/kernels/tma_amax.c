/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans for a device of conversions that compute scales: the method, the tiles and the number of
 * passes. */
#include <criterion/criterion.h>

#include "kernels/cuda/strategy/plan.h"
#include "proto/arithmetic.h"

struct row {
	const char *name;
	enum dtype from, to;
	int rank;
	int64_t src[4], perm[4], block[4];
	uint8_t phase; /* of both base addresses */
	enum tma_convert_how how;
	uint32_t tile_x, tile_y;
	bool is_alike, has_two_passes;
	uint64_t blocks, tiles;
};

#define BF16_E4M3 .from = DTYPE_BFLOAT16, .to = DTYPE_FLOAT8_E4M3FN
#define ALIKE     .how = TMA_CONVERT_AMAX_TILES, .is_alike = true

static const struct row rows[] = {
	{ .name = "a square block is a tile",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 2048 },
	  .perm = { 0, 1 },
	  .block = { 128, 128 },
	  ALIKE,
	  .tile_x = 128,
	  .tile_y = 128,
	  .blocks = 128,
	  .tiles = 128 },
	{ .name = "of float32, too, though it is four times as large",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT8_E4M3FN,
	  .rank = 2,
	  .src = { 1024, 2048 },
	  .perm = { 0, 1 },
	  .block = { 128, 128 },
	  ALIKE,
	  .tile_x = 128,
	  .tile_y = 128,
	  .blocks = 128,
	  .tiles = 128 },
	{ .name = "the last blocks may be shorter",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1000, 2000 },
	  .perm = { 0, 1 },
	  .block = { 128, 128 },
	  ALIKE,
	  .tile_x = 128,
	  .tile_y = 128,
	  .blocks = 128,
	  .tiles = 128 },
	{ .name = "short blocks of a run go side by side",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 2048 },
	  .perm = { 0, 1 },
	  .block = { 1, 128 },
	  ALIKE,
	  .tile_x = 16384,
	  .tile_y = 1,
	  .blocks = 16384,
	  .tiles = 128 },
	{ .name = "short blocks of rows as well, several rows at a time",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 200 },
	  .perm = { 0, 1 },
	  .block = { 1, 128 },
	  ALIKE,
	  .tile_x = 256,
	  .tile_y = 64,
	  .blocks = 2048,
	  .tiles = 16 },
	{ .name = "two rows are a tile",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 8192 },
	  .perm = { 0, 1 },
	  .block = { 1, 8192 },
	  ALIKE,
	  .tile_x = 16384,
	  .tile_y = 1,
	  .blocks = 1024,
	  .tiles = 512 },
	{ .name = "a block of one element",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 2000 },
	  .perm = { 0, 1 },
	  .block = { 1, 1 },
	  ALIKE,
	  .tile_x = 1024,
	  .tile_y = 1,
	  .blocks = 2048000,
	  .tiles = 2000 },
	{ .name = "all of a tensor: parts, in two passes",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 8192 },
	  .perm = { 0, 1 },
	  .block = { 1024, 8192 },
	  ALIKE,
	  .tile_x = 16384,
	  .tile_y = 1,
	  .has_two_passes = true,
	  .blocks = 1,
	  .tiles = 512 },
	{ .name = "blocks of three dimensions: two passes",
	  BF16_E4M3,
	  .rank = 3,
	  .src = { 4, 256, 1000 },
	  .perm = { 0, 1, 2 },
	  .block = { 2, 128, 128 },
	  ALIKE,
	  .tile_x = 512,
	  .tile_y = 32,
	  .has_two_passes = true,
	  .blocks = 32,
	  .tiles = 4 * 8 * 2 },
	{ .name = "more of them than there is room for magnitudes",
	  BF16_E4M3,
	  .rank = 3,
	  .src = { 256, 256, 1000 },
	  .perm = { 0, 1, 2 },
	  .block = { 2, 2, 7 },
	  .how = TMA_CONVERT_AMAX_BOXES,
	  .blocks = 128 * 128 * 143,
	  .tiles = 128 * 128 * 143 },
	{ .name = "transposed: rows of the source are another dimension's",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 2048 },
	  .perm = { 1, 0 },
	  .block = { 128, 128 },
	  .how = TMA_CONVERT_AMAX_TILES,
	  .tile_x = 128,
	  .tile_y = 128,
	  .blocks = 128,
	  .tiles = 128 },
	{ .name = "transposed, blocks of columns that no tile holds: two passes",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT8_E4M3FN,
	  .rank = 2,
	  .src = { 8192, 2048 },
	  .perm = { 1, 0 },
	  .block = { 1, 8192 },
	  .how = TMA_CONVERT_AMAX_TILES,
	  .has_two_passes = true,
	  .tile_x = 128,
	  .tile_y = 32,
	  .blocks = 2048,
	  .tiles = 64 * 64 },
	{ .name = "elements at odd addresses, one by one",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 2048 },
	  .perm = { 0, 1 },
	  .block = { 128, 128 },
	  .phase = 1,
	  .how = TMA_CONVERT_AMAX_BOXES,
	  .blocks = 128,
	  .tiles = 128 },
	{ .name = "all of them in one block: in parts",
	  BF16_E4M3,
	  .rank = 2,
	  .src = { 1024, 2048 },
	  .perm = { 0, 1 },
	  .block = { 1024, 2048 },
	  .phase = 1,
	  .how = TMA_CONVERT_AMAX_BOXES,
	  .has_two_passes = true,
	  .blocks = 1,
	  .tiles = 32 },
	{ .name = "to a wider type",
	  .from = DTYPE_BFLOAT16,
	  .to = DTYPE_FLOAT32,
	  .rank = 2,
	  .src = { 64, 128 },
	  .perm = { 0, 1 },
	  .block = { 64, 64 },
	  .how = TMA_CONVERT_AMAX_BOXES,
	  .blocks = 2,
	  .tiles = 2 },
	{ .name = "one element",
	  BF16_E4M3,
	  .rank = 0,
	  .how = TMA_CONVERT_AMAX_TILES,
	  .is_alike = true,
	  .tile_x = 1,
	  .tile_y = 1,
	  .blocks = 1,
	  .tiles = 1 },
};

static void transform_of(const struct row *row, struct transform *ret)
{
	struct transform_spec spec = {
		.n_perm = row->rank, .n_before = -1, .n_after = -1, .conversion.is_given = true
	};
	struct amax_spec *amax = &spec.conversion.amax;
	int64_t shape[4], blocks[4];
	struct error err;

	*amax = (struct amax_spec){ .is_given = true, .n_block = row->rank, .scale.is_given = true };
	for (int d = 0; d < row->rank; d++) {
		spec.perm[d] = (int)row->perm[d];
		shape[d] = row->src[row->perm[d]];
		amax->block[d] = row->block[d];
		blocks[d] = divide_up_i64(shape[d], row->block[d]);
	}
	cr_assert_eq(tensor_layout_init(&spec.dst, row->to, row->rank, shape, NULL, "dst", &err), 0);
	cr_assert_eq(tensor_layout_init(&spec.src, row->from, row->rank, row->src, NULL, "src", &err), 0);
	cr_assert_eq(
	    tensor_layout_init(&amax->scale.layout, DTYPE_FLOAT32, row->rank, blocks, NULL, "scale", &err),
	    0);
	cr_assert_eq(transform_init(ret, &spec, &err), 0, "%s: %s", row->name, err.message);
}

Test(tma_amax, plans)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const struct row *row = &rows[i];
		const struct plan_facts facts = { .threads = 132,
			                          .align = row->phase ? row->phase & -row->phase : 16,
			                          .dst_phase = row->phase,
			                          .src_phase = row->phase };
		struct transform transform;
		struct plan plan;

		transform_of(row, &transform);
		plan_init(&plan, &transform, &facts);
		const struct tma_convert *convert = &plan.tma.convert;

		cr_expect_eq(plan.tma.strategy, STRATEGY_convert, "%s", row->name);
		cr_expect_eq(convert->how, row->how, "%s: how %d", row->name, convert->how);
		cr_expect_eq(convert->amax.two_passes, row->has_two_passes, "%s", row->name);
		cr_expect_eq(convert->amax.blocks, row->blocks, "%s: %lu blocks", row->name,
		             convert->amax.blocks);
		cr_expect_eq(plan.tma.tiles, row->tiles, "%s: %lu tiles", row->name, plan.tma.tiles);
		if (row->how != TMA_CONVERT_AMAX_TILES)
			continue;
		cr_expect_eq(convert->amax.alike, row->is_alike, "%s", row->name);
		cr_expect_eq(convert->tile_x, row->tile_x, "%s: x %u", row->name, convert->tile_x);
		cr_expect_eq(convert->tile_y, row->tile_y, "%s: y %u", row->name, convert->tile_y);
	}
}
