/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of padded transforms: which axes are, and that subregions with them write what the oracle says and
 * nothing else. */
#include "kernels/cpu/windows.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cpu/microkernel.h"
#include "tests/support/oracle.h"

#define GUARD 64
#define GAP   5 /* elements between rows of dst, where a row has gaps */

struct window_row {
	char name[40];
	enum dtype dtype;
	enum pad_mode mode;
	int rank;
	int64_t shape[4], perm[4], before[4], after[4];
	bool gaps;         /* in dst, after each of its rows */
	uint32_t windowed; /* expected, a bit for each axis of dst */
	bool one;          /* subregion is all that there is */
};

ParameterizedTestParameters(windows, equal_the_oracle)
{
	static struct window_row rows[] = {
		{ .name = "long rows between borders",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 4,
		  .shape = { 3, 20, 56, 56 },
		  .perm = { 0, 1, 2, 3 },
		  .before = { 0, 0, 1, 1 },
		  .after = { 0, 0, 1, 1 },
		  .windowed = 0 },
		{ .name = "reflect, images of bytes",
		  .dtype = DTYPE_UINT8,
		  .mode = PAD_MODE_REFLECT,
		  .rank = 4,
		  .shape = { 2, 129, 56, 31 },
		  .perm = { 0, 1, 2, 3 },
		  .before = { 0, 0, 1, 2 },
		  .after = { 0, 0, 3, 1 },
		  .windowed = 0xc,
		  .one = true },
		{ .name = "wrap, transposed",
		  .dtype = DTYPE_FLOAT16,
		  .mode = PAD_MODE_WRAP,
		  .rank = 3,
		  .shape = { 30, 40, 500 },
		  .perm = { 2, 1, 0 },
		  .before = { 0, 7, 1 },
		  .after = { 0, 0, 40 },
		  .windowed = 0x4 },
		{ .name = "edge, rows",
		  .dtype = DTYPE_COMPLEX128,
		  .mode = PAD_MODE_EDGE,
		  .rank = 2,
		  .shape = { 9000, 3 },
		  .perm = { 0, 1 },
		  .before = { 0, 2 },
		  .after = { 0, 1 },
		  .windowed = 0x2,
		  .one = true },
		{ .name = "a short axis around the padded one",
		  .dtype = DTYPE_UINT8,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 30000, 2, 9 },
		  .perm = { 0, 1, 2 },
		  .after = { 0, 0, 1 },
		  .windowed = 0x4,
		  .one = true },
		{ .name = "across the source",
		  .dtype = DTYPE_UINT8,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 9, 30000, 3 },
		  .perm = { 2, 1, 0 },
		  .after = { 0, 0, 1 },
		  .windowed = 0x4,
		  .one = true },
		{ .name = "cropped and padded",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_SYMMETRIC,
		  .rank = 3,
		  .shape = { 80, 30, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { -3, 2, -4 },
		  .after = { 0, 2, 2 },
		  .windowed = 0x6,
		  .one = true },
		{ .name = "the outermost axis padded",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 9, 30, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { 1, 0, 1 },
		  .after = { 1, 0, 1 },
		  .windowed = 0x4 },
		{ .name = "every axis padded",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_EDGE,
		  .rank = 2,
		  .shape = { 30, 30 },
		  .perm = { 0, 1 },
		  .before = { 1, 1 },
		  .after = { 1, 1 },
		  .windowed = 0x3,
		  .one = true },
		{ .name = "gaps between rows",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_EDGE,
		  .rank = 3,
		  .shape = { 9, 30, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 1, 1 },
		  .after = { 0, 1, 1 },
		  .gaps = true,
		  .windowed = 0x6,
		  .one = true },
		{ .name = "empty source",
		  .dtype = DTYPE_FLOAT32,
		  .mode = PAD_MODE_CONSTANT,
		  .rank = 3,
		  .shape = { 9, 0, 30 },
		  .perm = { 0, 1, 2 },
		  .before = { 0, 1, 1 },
		  .after = { 0, 1, 1 },
		  .windowed = 0x0,
		  .one = true },
	};
	return cr_make_param_array(struct window_row, rows, sizeof(rows) / sizeof(rows[0]));
}

static void spec_init(const struct window_row *row, struct transform_spec *spec)
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

static void try_level(const struct window_row *row, const struct sample *sample,
                      const struct transform *transform, const struct cpu_isa *isa, int64_t skew,
                      struct cpu_scratch *scratch)
{
	size_t dst_size = sample->dst_size + (size_t)skew + 2 * GUARD;
	uint8_t *dst = malloc(dst_size), *expected = malloc(dst_size);
	struct move_place place = { .dst = (char *)dst + GUARD + skew,
		                    .src = (char *)sample->src,
		                    .fill = transform->fill,
		                    .fill_bytes = transform->element,
		                    .mode = transform->mode,
		                    .piece_bytes = 1 << 16,
		                    .stream = true };
	struct subregions subregions;
	uint32_t windowed = windows_choose(transform, isa, &place);

	memset(dst, 0x5a, dst_size);
	memset(expected, 0x5a, dst_size);
	memcpy(expected + GUARD + skew, sample->dst, sample->dst_size);
	cr_assert_eq(windowed, row->windowed, "%s: %x", row->name, (unsigned)windowed);
	subregions_init_windowed(&subregions, transform, windowed);
	cr_assert_eq(subregions.n == 1, row->one, "%s: %d", row->name, (int)subregions.n);
	for (uint64_t i = subregions.n; i-- > 0;) {
		struct loop_nest nest;
		struct move move;
		subregions_get(&subregions, i, 1, &nest);
		move_init(&move, isa, &nest, &place);
		for (int64_t piece = move.pieces; piece-- > 0;)
			move_run(&move, piece, scratch);
	}
	cr_assert_arr_eq(dst, expected, dst_size, "%s, %s, skew %ld", row->name, isa->name, (long)skew);
	free(dst);
	free(expected);
}

ParameterizedTest(struct window_row *row, windows, equal_the_oracle)
{
	struct transform_spec spec;
	struct transform transform;
	struct sample sample;
	struct error err;
	spec_init(row, &spec);
	cr_assert_eq(transform_init(&transform, &spec, &err), 0, "%s: %s", row->name, err.message);
	struct cpu_scratch *scratch = cpu_scratch_new();
	sample_init(&sample, &spec, &transform);
	for (int level = 0; level < CPU_ISA_LEVELS; level++)
		for (int64_t skew = 0; skew < 2 && cpu_isa_get(level); skew++)
			try_level(row, &sample, &transform, cpu_isa_get(level), skew * 37, scratch);
	free(sample.src);
	free(sample.dst);
	cpu_scratch_free(scratch);
}
