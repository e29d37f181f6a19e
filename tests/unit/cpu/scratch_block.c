/* SPDX-License-Identifier: Apache-2.0 */
/* Tests scratch blocks of padded transforms: which transforms are divided into them, and that they write
 * together what the oracle says and nothing else. */
#include "kernels/cpu/plan/partition.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "padded.h"

struct scratch_row {
	struct padded_request request;
	bool is_cut;
};

ParameterizedTestParameters(scratch_block, together_the_whole)
{
	static struct scratch_row rows[] = {
		{ .request = { .name = "zero, images",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 4,
		               .shape = { 3, 20, 56, 56 },
		               .perm = { 0, 1, 2, 3 },
		               .before = { 0, 0, 1, 1 },
		               .after = { 0, 0, 1, 1 } },
		  .is_cut = true },
		{ .request = { .name = "reflect, images of bytes",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_REFLECT,
		               .rank = 4,
		               .shape = { 2, 129, 56, 31 },
		               .perm = { 0, 1, 2, 3 },
		               .before = { 0, 0, 1, 2 },
		               .after = { 0, 0, 3, 1 } },
		  .is_cut = true },
		{ .request = { .name = "wrap, transposed",
		               .dtype = DTYPE_FLOAT16,
		               .mode = PAD_MODE_WRAP,
		               .rank = 3,
		               .shape = { 30, 40, 500 },
		               .perm = { 2, 1, 0 },
		               .before = { 0, 7, 1 },
		               .after = { 0, 0, 40 } },
		  .is_cut = true },
		{ .request = { .name = "edge, rows",
		               .dtype = DTYPE_COMPLEX128,
		               .mode = PAD_MODE_EDGE,
		               .rank = 2,
		               .shape = { 9000, 3 },
		               .perm = { 0, 1 },
		               .before = { 0, 2 },
		               .after = { 0, 1 } },
		  .is_cut = true },
		{ .request = { .name = "a short axis around the padded one",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 30000, 2, 9 },
		               .perm = { 0, 1, 2 },
		               .after = { 0, 0, 1 } },
		  .is_cut = true },
		{ .request = { .name = "across the source",
		               .dtype = DTYPE_UINT8,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 9, 30000, 3 },
		               .perm = { 2, 1, 0 },
		               .after = { 0, 0, 1 } } },
		{ .request = { .name = "cropped and padded",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_SYMMETRIC,
		               .rank = 3,
		               .shape = { 80, 30, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { -3, 2, -4 },
		               .after = { 0, 2, 2 } },
		  .is_cut = true },
		{ .request = { .name = "the outermost axis padded",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 9, 30, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { 1, 0, 1 },
		               .after = { 1, 0, 1 } } },
		{ .request = { .name = "every axis padded",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 2,
		               .shape = { 30, 30 },
		               .perm = { 0, 1 },
		               .before = { 1, 1 },
		               .after = { 1, 1 } } },
		{ .request = { .name = "long rows",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 9, 5, 300 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 } } },
		{ .request = { .name = "long borders",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 30, 20, 64 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 9, 0 } } },
		{ .request = { .name = "borders less long",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 300, 20, 64 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 8, 0 } },
		  .is_cut = true },
		{ .request = { .name = "larger than scratch",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 2, 300, 200 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 } } },
		{ .request = { .name = "gaps between rows",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_EDGE,
		               .rank = 3,
		               .shape = { 9, 30, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 },
		               .dst_gap = 5 } },
		{ .request = { .name = "empty source",
		               .dtype = DTYPE_FLOAT32,
		               .mode = PAD_MODE_CONSTANT,
		               .rank = 3,
		               .shape = { 9, 0, 30 },
		               .perm = { 0, 1, 2 },
		               .before = { 0, 1, 1 },
		               .after = { 0, 1, 1 } } },
	};
	return cr_make_param_array(struct scratch_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void run_blocks(const struct padded *padded, const struct cpu_isa *isa, struct move_place *place,
                       struct cpu_scratch *scratch, const void *arg)
{
	const struct scratch_blocks *scratch_blocks = arg;
	(void)padded;
	place->piece_bytes = 1 << 20;
	for (uint64_t i = scratch_blocks->n; i-- > 0;)
		scratch_blocks_run(scratch_blocks, i, isa, place, scratch);
}

ParameterizedTest(struct scratch_row *row, scratch_block, together_the_whole)
{
	const char *name = row->request.name;
	struct scratch_blocks scratch_blocks;
	struct padded padded;
	padded_init(&padded, &row->request);
	const struct transform *transform = &padded.transform;
	cr_assert_eq(scratch_blocks_init(&scratch_blocks, transform), row->is_cut, "%s", name);
	if (row->is_cut) {
		cr_assert_gt(scratch_blocks.n, 1, "%s", name);
		/* Each scratch block becomes a work item, so there must not be too many. */
		cr_assert_leq(scratch_blocks.n,
		              2 + (uint64_t)(transform->count * transform->element) / (16 << 10), "%s: %ld",
		              name, (long)scratch_blocks.n);
		padded_try(&padded, run_blocks, &scratch_blocks);
	}
	padded_deinit(&padded);
}
