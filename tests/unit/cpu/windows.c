/* SPDX-License-Identifier: Apache-2.0 */
/* Tests windows of padded transforms: which axes have one, and that subregions with windows write what the
 * oracle says and nothing else. */
#include "kernels/cpu/plan/partition.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "padded.h"

struct window_row {
	struct padded_request request;
	uint32_t windowed; /* axes of dst that are expected to have a window, a bit for each */
	bool one;          /* there is a single subregion */
};

ParameterizedTestParameters(windows, equal_the_oracle)
{
	static struct window_row rows[] = {
		{ .request = { .name = "long rows between borders",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 4,
		               .shape = { 3, 20, 56, 56 },
		               .perm = { 0, 1, 2, 3 },
		               .before = { 0, 0, 1, 1 },
		               .after = { 0, 0, 1, 1 } },
		  .windowed = 0 },
		{ .request = { .name = "reflect, images of bytes",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_REFLECT,
		               .rank = 4,
		               .shape = { 2, 129, 56, 31 },
		               .perm = { 0, 1, 2, 3 },
		               .before = { 0, 0, 1, 2 },
		               .after = { 0, 0, 3, 1 } },
		  .windowed = 0xc,
		  .one = true },
		{ .request = { .name = "wrap, transposed",
		               .dtype = DTYPE_FLOAT16,
		               .mode = PAD_MODE_WRAP,
		               .rank = 3,
		               .shape = { 30, 40, 500 },
		               .perm = { 2, 1, 0 },
		               .before = { 0, 7, 1 },
		               .after = { 0, 0, 40 } },
		  .windowed = 0x4 },
		{ .request = { .name = "edge, rows",
		               .dtype = DTYPE_COMPLEX128,
		               .mode = PAD_MODE_EDGE,
		               .rank = 2,
		               .shape = { 9000, 3 },
		               .perm = { 0, 1 },
		               .before = { 0, 2 },
		               .after = { 0, 1 } },
		  .windowed = 0x2,
		  .one = true },
		{ .request = { .name = "a short axis around the padded one",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 30000, 2, 9 },
		               .perm = { 0, 1, 2 },
		               .after = { 0, 0, 1 } },
		  .windowed = 0x4,
		  .one = true },
		{ .request = { .name = "across the source",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 9, 30000, 3 },
		               .perm = { 2, 1, 0 },
		               .after = { 0, 0, 1 } },
		  .windowed = 0x4,
		  .one = true },
		{ .request = { .name = "cropped and padded",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_SYMMETRIC,
		               .rank = 3,
		               .shape = { 80, 30, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { -3, 2, -4 },
		               .after = { 0, 2, 2 } },
		  .windowed = 0x6,
		  .one = true },
		{ .request = { .name = "the outermost axis padded",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 9, 30, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { 1, 0, 1 },
		               .after = { 1, 0, 1 } },
		  .windowed = 0x4 },
		{ .request = { .name = "every axis padded",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 2,
		               .shape = { 30, 30 },
		               .perm = { 0, 1 },
		               .before = { 1, 1 },
		               .after = { 1, 1 } },
		  .windowed = 0x3,
		  .one = true },
		{ .request = { .name = "gaps between rows",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 9, 30, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .dst_gap = 5 },
		  .windowed = 0x6,
		  .one = true },
		{ .request = { .name = "short gaps in the source",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_REFLECT,
		               .rank = 3,
		               .shape = { 9, 30, 30 },
		               .perm = { 0, 2, 1 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 20, 1 } },
		  .windowed = 0x6,
		  .one = true },
		{ .request = { .name = "as many runs as are packed",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 60, 32, 32 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 0, 64 } },
		  .windowed = 0x6,
		  .one = true },
		{ .request = { .name = "more runs than are packed",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 60, 33, 32 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 0, 64 } },
		  .windowed = 0x4 },
		{ .request = { .name = "more runs in the usual tile",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 30, 30, 60 },
		               .perm = { 2, 0, 1 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 0, 3 } },
		  .windowed = 0x6,
		  .one = true },
		{ .request = { .name = "empty source",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 9, 0, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 } },
		  .windowed = 0x0,
		  .one = true },
	};
	return cr_make_param_array(struct window_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void run_subregions(const struct subregions *subregions, const struct cpu_isa *isa,
                           const struct move_place *place, struct cpu_scratch *scratch)
{
	for (uint64_t i = subregions->n; i-- > 0;) {
		struct loop_nest nest;
		struct move move;
		subregions_get(subregions, i, 1, &nest);
		move_init(&move, isa, &nest, place);
		for (int64_t piece = move.pieces; piece-- > 0;)
			move_run(&move, piece, scratch);
	}
}

static void run_windows(const struct padded *padded, const struct cpu_isa *isa, struct move_place *place,
                        struct cpu_scratch *scratch, const void *arg)
{
	const struct window_row *row = arg;
	struct subregions subregions;
	place->piece_bytes = 1 << 16;
	uint32_t windowed = windows_choose(&padded->transform, isa, place);
	cr_assert_eq(windowed, row->windowed, "%s: %x", padded->name, (unsigned)windowed);
	subregions_init_windowed(&subregions, &padded->transform, windowed);
	cr_assert_eq(subregions.n == 1, row->one, "%s: %d", padded->name, (int)subregions.n);
	run_subregions(&subregions, isa, place, scratch);
}

ParameterizedTest(struct window_row *row, windows, equal_the_oracle)
{
	struct padded padded;
	padded_init(&padded, &row->request);
	padded_try(&padded, run_windows, row);
	padded_deinit(&padded);
}

/* The interior with these windows, whether or not the planner would choose them. */
struct tile_row {
	struct padded_request request;
	uint32_t windowed;
	bool is_tiled; /* its smallest tile fits scratch memory */
};

ParameterizedTestParameters(windows, of_tiles_that_do_not_fit)
{
	static struct tile_row rows[] = {
		{ .request = { .name = "no gaps",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 4, 300, 300 },
		               .perm = { 0, 2, 1 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 } },
		  .windowed = 0x6,
		  .is_tiled = true },
		{ .request = { .name = "short gaps, which are packed",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 4, 300, 300 },
		               .perm = { 0, 2, 1 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 0, 1 } },
		  .windowed = 0x6 },
		{ .request = { .name = "one of the two windows",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 4, 300, 300 },
		               .perm = { 0, 2, 1 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 0, 1 } },
		  .windowed = 0x4,
		  .is_tiled = true },
		{ .request = { .name = "more runs than are packed",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 60, 33, 32 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .src_gap = { 0, 0, 64 } },
		  .windowed = 0x6 },
	};
	return cr_make_param_array(struct tile_row, rows, sizeof(rows) / sizeof(rows[0]));
}

/* Windows that leave an interior which cannot be tiled must not be chosen. */
static void run_chosen(const struct padded *padded, const struct cpu_isa *isa, struct move_place *place,
                       struct cpu_scratch *scratch, const void *arg)
{
	const struct tile_row *row = arg;
	struct subregions subregions;
	struct loop_nest nest;
	struct move move;
	place->piece_bytes = 1 << 16;
	subregions_init_windowed(&subregions, &padded->transform, row->windowed);
	cr_assert(subregions_interior(&subregions, 1, &nest), "%s", padded->name);
	move_init(&move, isa, &nest, place);
	cr_assert_eq(move.strategy == &cpu_strategy_tiles, row->is_tiled, "%s", padded->name);
	uint32_t chosen = windows_choose(&padded->transform, isa, place);
	cr_assert(row->is_tiled || (chosen & row->windowed) != row->windowed, "%s: %x", padded->name,
	          (unsigned)chosen);
	subregions_init_windowed(&subregions, &padded->transform, chosen);
	run_subregions(&subregions, isa, place, scratch);
}

ParameterizedTest(struct tile_row *row, windows, of_tiles_that_do_not_fit)
{
	struct padded padded;
	padded_init(&padded, &row->request);
	padded_try(&padded, run_chosen, row);
	padded_deinit(&padded);
}
