/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch blocks of padded transforms: which transforms are divided into them, and that together they write
 * what the oracle says and nothing else. */
#include "kernels/cpu/scratch_block.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/microkernel.h"
#include "tests/support/oracle.h"

#define GUARD 64
#define GAP   5 /* elements between rows of dst, where a row has gaps */

struct scratch_row {
	char name[40];
	enum dtype dtype;
	enum pad_mode mode;
	int rank;
	int64_t shape[4], perm[4], before[4], after[4];
	bool gaps; /* in dst, after each of its rows */
	bool is_cut;
};

ParameterizedTestParameters(scratch_block, together_the_whole)
{
	static struct scratch_row rows[] = {
		{ .name = "zero, images",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 4,
		  .shape = { 3, 20, 56, 56 },
		  .perm = { 0, 1, 2, 3 },
		  .before = { 0, 0, 1, 1 },
		  .after = { 0, 0, 1, 1 },
		  .is_cut = true },
		{ .name = "reflect, images of bytes",
		  .dtype = DTYPE_UINT8,
		  .mode = PAD_MODE_REFLECT,
		  .rank = 4,
		  .shape = { 2, 129, 56, 31 },
		  .perm = { 0, 1, 2, 3 },
		  .before = { 0, 0, 1, 2 },
		  .after = { 0, 0, 3, 1 },
		  .is_cut = true },
		{ .name = "wrap, transposed",
		  .dtype = DTYPE_FLOAT16,
		  .mode = PAD_MODE_WRAP,
		  .rank = 3,
		  .shape = { 30, 40, 500 },
		  .perm = { 2, 1, 0 },
		  .before = { 0, 7, 1 },
		  .after = { 0, 0, 40 },
		  .is_cut = true },
		{ .name = "edge, rows",
		  .dtype = DTYPE_COMPLEX128,
		  .mode = PAD_MODE_EDGE,
		  .rank = 2,
		  .shape = { 9000, 3 },
		  .perm = { 0, 1 },
		  .before = { 0, 2 },
		  .after = { 0, 1 },
		  .is_cut = true },
		{ .name = "a short axis around the padded one",
		  .dtype = DTYPE_UINT8,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 30000, 2, 9 },
		  .perm = { 0, 1, 2 },
		  .after = { 0, 0, 1 },
		  .is_cut = true },
		{ .name = "across the source",
		  .dtype = DTYPE_UINT8,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 9, 30000, 3 },
		  .perm = { 2, 1, 0 },
		  .after = { 0, 0, 1 } },
		{ .name = "cropped and padded",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_SYMMETRIC,
		  .rank = 3,
		  .shape = { 80, 30, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { -3, 2, -4 },
		  .after = { 0, 2, 2 },
		  .is_cut = true },
		{ .name = "the outermost axis padded",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 9, 30, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { 1, 0, 1 },
		  .after = { 1, 0, 1 } },
		{ .name = "every axis padded",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_EDGE,
		  .rank = 2,
		  .shape = { 30, 30 },
		  .perm = { 0, 1 },
		  .before = { 1, 1 },
		  .after = { 1, 1 } },
		{ .name = "long rows",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_EDGE,
		  .rank = 3,
		  .shape = { 9, 5, 300 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 1, 1 },
		  .after = { 0, 1, 1 } },
		{ .name = "long borders",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 30, 20, 64 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 9, 0 } },
		{ .name = "borders less long",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 300, 20, 64 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 8, 0 },
		  .is_cut = true },
		{ .name = "larger than scratch",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_EDGE,
		  .rank = 3,
		  .shape = { 2, 300, 200 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 1, 1 },
		  .after = { 0, 1, 1 } },
		{ .name = "gaps between rows",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_EDGE,
		  .rank = 3,
		  .shape = { 9, 30, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 1, 1 },
		  .after = { 0, 1, 1 },
		  .gaps = true },
		{ .name = "empty source",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 9, 0, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 1, 1 },
		  .after = { 0, 1, 1 } },
	};
	return cr_make_param_array(struct scratch_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void spec_init(const struct scratch_row *row, struct transform_spec *spec)
{
	struct error err;
	int64_t shape[4], strides[4], step = 1;
	*spec = (struct transform_spec){
		.n_perm = row->rank, .n_before = row->rank, .n_after = row->rank, .mode = row->mode
	};
	if (row->mode == PAD_MODE_CONSTANT)
		spec->value = (struct scalar){ .kind = SCALAR_FLOATING, .re = 7 };
	for (int d = row->rank - 1; d >= 0; d--) {
		spec->perm[d] = row->perm[d];
		spec->before[d] = row->before[d];
		spec->after[d] = row->after[d];
		shape[d] = row->shape[row->perm[d]] + row->before[d] + row->after[d];
		strides[d] = step;
		step = step * shape[d] + (row->gaps && d == row->rank - 1 ? GAP : 0);
	}
	cr_assert_eq(tensor_layout_init(&spec->src, row->dtype, row->rank, row->shape, NULL, "src", &err), 0);
	cr_assert_eq(tensor_layout_init(&spec->dst, row->dtype, row->rank, shape, strides, "dst", &err), 0);
}

/* What is read, and what the destination is then to be, gaps included. */
struct sample {
	uint8_t *src;
	uint8_t *dst;
	size_t dst_size;
};

static void sample_init(struct sample *sample, const struct transform_spec *spec,
                        const struct transform *transform)
{
	size_t src_size = (size_t)transform->src_extent.high;
	uint64_t state = 1;

	sample->dst_size = (size_t)transform->dst_extent.high;
	sample->src = malloc(src_size);
	sample->dst = malloc(sample->dst_size);
	for (size_t i = 0; i < src_size; i++)
		sample->src[i] = (uint8_t)oracle_random(&state);
	memset(sample->dst, 0x5a, sample->dst_size);
	oracle_run(spec, sample->dst, sample->src);
}

static void try_level(const struct scratch_row *row, const struct sample *sample,
                      const struct transform *transform, const struct scratch_blocks *scratch_blocks,
                      const struct cpu_isa *isa, int64_t skew, struct cpu_scratch *scratch)
{
	size_t dst_size = sample->dst_size + (size_t)skew + 2 * GUARD;
	uint8_t *dst = malloc(dst_size), *expected = malloc(dst_size);

	memset(dst, 0x5a, dst_size);
	memset(expected, 0x5a, dst_size);
	memcpy(expected + GUARD + skew, sample->dst, sample->dst_size);
	struct move_place place = { .dst = (char *)dst + GUARD + skew,
		                    .src = (char *)sample->src,
		                    .fill = transform->fill,
		                    .piece_bytes = 1 << 20,
		                    .stream = true };
	for (uint64_t i = scratch_blocks->n; i-- > 0;)
		scratch_blocks_run(scratch_blocks, i, isa, &place, scratch);
	cr_assert_arr_eq(dst, expected, dst_size, "%s, %s, skew %ld", row->name, isa->name, (long)skew);
	free(dst);
	free(expected);
}

ParameterizedTest(struct scratch_row *row, scratch_block, together_the_whole)
{
	struct transform_spec spec;
	struct transform transform;
	struct scratch_blocks scratch_blocks;
	struct sample sample;
	struct error err;
	spec_init(row, &spec);
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s: %s", row->name, err.message);
	cr_assert_eq(scratch_blocks_init(&scratch_blocks, &transform), row->is_cut, "%s", row->name);
	if (!row->is_cut)
		return;
	cr_assert_gt(scratch_blocks.n, 1, "%s", row->name);
	/* Each is a work item. */
	cr_assert_leq(scratch_blocks.n, 2 + (uint64_t)(transform.count * transform.element) / (16 << 10),
	              "%s: %ld", row->name, (long)scratch_blocks.n);
	struct cpu_scratch *scratch = cpu_scratch_new();
	sample_init(&sample, &spec, &transform);
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int64_t skew = 0; skew < 2 && cpu_isa_get(level); skew++) {
			try_level(row, &sample, &transform, &scratch_blocks, cpu_isa_get(level), skew * 37,
			          scratch);
		}
	free(sample.src);
	free(sample.dst);
	cpu_scratch_free(scratch);
}
