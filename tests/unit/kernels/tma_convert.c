/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans for a device of conversions: the kernel, the tiles and the border. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/strategy/plan.h"

struct row {
	char name[64];
	enum dtype from, to;
	int rank;
	int64_t src[4], perm[4], before[4], after[4];
	enum pad_mode mode;
	/* Elements between two rows of the destination's innermost dimension; 0: there is no gap. */
	int64_t gap;
	uint8_t phase;  /* of both base addresses */
	int64_t scale;  /* extent of a scale along the last dimension; 0: there is no scale */
	bool is_listed; /* planned for a block of a list */
	enum tma_convert_how how;
	uint32_t tile_x, tile_y;
	bool is_packed;
	uint64_t tiles;
	bool has_border;
};

#define CHUNK_ROW(n) (((n) + 30) / 16)

static struct row rows[] = {
	{ .name = "one element", .from = DTYPE_FLOAT32, .to = DTYPE_FLOAT16, .tiles = 1 },
	{ .name = "one run is chunks",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_BFLOAT16,
	  .rank = 2,
	  .src = { 64, 100 },
	  .how = TMA_CONVERT_CHUNKS,
	  .tiles = CHUNK_ROW(64 * 100 * 2) },
	{ .name = "a scale for each column leaves rows",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_BFLOAT16,
	  .rank = 2,
	  .src = { 64, 100 },
	  .scale = 100,
	  .how = TMA_CONVERT_CHUNKS,
	  .tiles = 64 * CHUNK_ROW(100 * 2) },
	{ .name = "one scale does not",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_BFLOAT16,
	  .rank = 2,
	  .src = { 64, 100 },
	  .scale = 1,
	  .how = TMA_CONVERT_CHUNKS,
	  .tiles = CHUNK_ROW(64 * 100 * 2) },
	{ .name = "short rows go by elements",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 64, 10 },
	  .scale = 10,
	  .tiles = 640 },
	{ .name = "so does float64",
	  .from = DTYPE_FLOAT64,
	  .to = DTYPE_FLOAT32,
	  .rank = 1,
	  .src = { 1000 },
	  .tiles = 1000 },
	{ .name = "and integers without arithmetic",
	  .from = DTYPE_INT16,
	  .to = DTYPE_INT8,
	  .rank = 1,
	  .src = { 1000 },
	  .tiles = 1000 },
	{ .name = "and what is not aligned",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT16,
	  .rank = 1,
	  .src = { 1000 },
	  .phase = 1,
	  .tiles = 1000 },
	{ .name = "and elements that lie apart",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT16,
	  .rank = 1,
	  .src = { 1000 },
	  .gap = 1,
	  .tiles = 1000 },
	{ .name = "a transpose is tiles",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT16,
	  .rank = 2,
	  .src = { 1000, 100 },
	  .perm = { 1, 0 },
	  .how = TMA_CONVERT_TILES,
	  .tile_x = 64,
	  .tile_y = 64,
	  .tiles = 16 * 2 },
	{ .name = "of a block too",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT16,
	  .rank = 2,
	  .src = { 1000, 100 },
	  .perm = { 1, 0 },
	  .is_listed = true,
	  .how = TMA_CONVERT_TILES,
	  .tile_x = 64,
	  .tile_y = 64,
	  .tiles = 16 * 2 },
	{ .name = "of wide elements too",
	  .from = DTYPE_FLOAT64,
	  .to = DTYPE_INT32,
	  .rank = 2,
	  .src = { 1000, 100 },
	  .perm = { 1, 0 },
	  .how = TMA_CONVERT_TILES,
	  .tile_x = 32,
	  .tile_y = 32,
	  .tiles = 32 * 4 },
	{ .name = "but not where a side is not aligned",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_UINT8,
	  .rank = 2,
	  .src = { 1000, 100 },
	  .perm = { 1, 0 },
	  .phase = 2,
	  .how = TMA_CONVERT_CHUNKS,
	  .tiles = 100 * CHUNK_ROW(1000) },
	{ .name = "pixels of a few channels are taken together",
	  .from = DTYPE_UINT8,
	  .to = DTYPE_FLOAT16,
	  .rank = 3,
	  .src = { 100, 200, 3 },
	  .perm = { 2, 0, 1 },
	  .how = TMA_CONVERT_CHANNELS,
	  .tiles = CHUNK_ROW(40000) },
	{ .name = "unless a factor is not the same for all of them",
	  .from = DTYPE_UINT8,
	  .to = DTYPE_FLOAT16,
	  .rank = 3,
	  .src = { 100, 200, 3 },
	  .perm = { 2, 0, 1 },
	  .scale = 200,
	  .how = TMA_CONVERT_TILES,
	  .tile_x = 200,
	  .tile_y = 3,
	  .is_packed = true,
	  .tiles = 100 },
	{ .name = "or their channels do not lie at the same phase",
	  .from = DTYPE_UINT8,
	  .to = DTYPE_FLOAT16,
	  .rank = 3,
	  .src = { 100, 201, 3 },
	  .perm = { 2, 0, 1 },
	  .how = TMA_CONVERT_TILES,
	  .tile_x = 5440,
	  .tile_y = 3,
	  .is_packed = true,
	  .tiles = 4 },
	{ .name = "of a crop, each row of them",
	  .from = DTYPE_UINT8,
	  .to = DTYPE_FLOAT16,
	  .rank = 3,
	  .src = { 100, 200, 3 },
	  .perm = { 2, 0, 1 },
	  .before = { 0, -4, -4 },
	  .after = { 0, -4, -4 },
	  .how = TMA_CONVERT_CHANNELS,
	  .tiles = 92 * CHUNK_ROW(384) },
	{ .name = "and the other way round",
	  .from = DTYPE_FLOAT16,
	  .to = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 3, 100, 200 },
	  .perm = { 1, 2, 0 },
	  .how = TMA_CONVERT_TILES,
	  .tile_x = 3,
	  .tile_y = 2720,
	  .tiles = 8 },
	{ .name = "but not with a scale for each",
	  .from = DTYPE_FLOAT16,
	  .to = DTYPE_UINT8,
	  .rank = 3,
	  .src = { 3, 100, 200 },
	  .perm = { 1, 2, 0 },
	  .scale = 3,
	  .tiles = 60000 },
	{ .name = "a border of a value is a fill around the window",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT16,
	  .rank = 2,
	  .src = { 64, 100 },
	  .before = { 1, 2 },
	  .after = { 1, 2 },
	  .how = TMA_CONVERT_CHUNKS,
	  .tiles = 64 * CHUNK_ROW(200),
	  .has_border = true },
	{ .name = "any other one is converted where it is written",
	  .from = DTYPE_FLOAT32,
	  .to = DTYPE_FLOAT16,
	  .mode = PAD_MODE_WRAP,
	  .rank = 2,
	  .src = { 64, 100 },
	  .before = { 1, 2 },
	  .after = { 1, 2 },
	  .tiles = 66 * 104 },
};

static void layout_of(const struct row *row, bool is_dst, struct tensor_layout *ret)
{
	int64_t shape[4], strides[4], step = 1;
	struct error err;

	for (int d = 0; d < row->rank; d++)
		shape[d] = is_dst ? row->src[row->perm[d]] + row->before[d] + row->after[d] : row->src[d];
	for (int d = row->rank - 1; d >= 0; d--) {
		strides[d] = step * (is_dst ? 1 + row->gap : 1);
		step *= shape[d];
	}
	cr_assert_eq(
	    tensor_layout_init(ret, is_dst ? row->to : row->from, row->rank, shape, strides, "t", &err), 0);
}

ParameterizedTestParameters(tma_convert, plans)
{
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool is_permuted = false;

		for (int d = 0; d < 4; d++)
			is_permuted |= rows[i].perm[d] != 0;
		for (int d = 0; d < 4 && !is_permuted; d++)
			rows[i].perm[d] = d;
	}
	return cr_make_param_array(struct row, rows, sizeof rows / sizeof *rows, NULL);
}

ParameterizedTest(struct row *row, tma_convert, plans)
{
	const struct plan_facts facts = { .threads = 132,
		                          .align = row->phase ? row->phase & -row->phase : 16,
		                          .dst_phase = row->phase,
		                          .src_phase = row->phase,
		                          .listed = row->is_listed };
	struct transform_spec spec = { .mode = row->mode,
		                       .n_perm = row->rank,
		                       .n_before = row->rank,
		                       .n_after = row->rank,
		                       .conversion.is_given = true };
	struct transform transform;
	struct plan plan;
	struct error err;

	layout_of(row, true, &spec.dst);
	layout_of(row, false, &spec.src);
	for (int d = 0; d < row->rank; d++) {
		spec.perm[d] = (int)row->perm[d];
		spec.before[d] = row->before[d];
		spec.after[d] = row->after[d];
	}
	if (row->scale) {
		spec.conversion.scale.kind = OPERAND_TENSOR;
		cr_assert_eq(tensor_layout_init(&spec.conversion.scale.layout, DTYPE_FLOAT32, 1, &row->scale,
		                                NULL, "scale", &err),
		             0);
	}
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s", err.message);
	plan_init(&plan, &transform, &facts);
	cr_expect_eq(plan.family, FAMILY_CONVERT);
	cr_expect_eq(plan.tma.strategy, STRATEGY_convert);
	cr_expect_eq(plan.tma.convert.how, row->how, "%s: how %d", row->name, plan.tma.convert.how);
	cr_expect_eq(plan.tma.tiles, row->tiles, "%s: %lu tiles", row->name, plan.tma.tiles);
	cr_expect_eq(plan.tma.border_rank > 0, row->has_border, "%s", row->name);
	if (row->how != TMA_CONVERT_TILES)
		return;
	cr_expect_eq(plan.tma.convert.tile_x, row->tile_x, "%s: x %u", row->name, plan.tma.convert.tile_x);
	cr_expect_eq(plan.tma.convert.tile_y, row->tile_y, "%s: y %u", row->name, plan.tma.convert.tile_y);
	cr_expect_eq(plan.tma.convert.packed, row->is_packed, "%s", row->name);
}

/* Each conversion has a single plan, so there are no alternatives to try. */
Test(tma_convert, has_no_alternatives)
{
	const int64_t shape[] = { 4096, 4096 };
	const struct plan_facts facts = { .threads = 132, .align = 16 };
	struct transform_spec spec = {
		.n_perm = -1, .n_before = -1, .n_after = -1, .conversion.is_given = true
	};
	struct transform transform;
	struct error err;
	struct plan plan;

	cr_assert_eq(tensor_layout_init(&spec.dst, DTYPE_FLOAT16, 2, shape, NULL, "dst", &err), 0);
	cr_assert_eq(tensor_layout_init(&spec.src, DTYPE_FLOAT32, 2, shape, NULL, "src", &err), 0);
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s", err.message);
	plan_init(&plan, &transform, &facts);
	cr_expect_eq(plan.predicted, 0, "it is not predicted");
}
