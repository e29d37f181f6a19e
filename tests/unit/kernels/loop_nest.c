/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the canonical form of loop nests, row by row. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/nest/loop_nest.h"

struct flat {
	int rank;
	uint32_t element;
	bool fill;
	int64_t dst_offset, src_offset;
	struct loop_nest_dim dim[5];
};

struct loop_nest_row {
	char name[64];
	uint32_t align;
	struct flat given, want;
};

/* A dimension without a border: its extent and its strides in the destination and the source. */
#define DIM(n, dst, src)          \
	{                         \
		n, dst, src, 0, 0 \
	}

static struct loop_nest_row rows[] = {
	{ .name = "one element", .align = 16, .given = { .element = 4 }, .want = { .element = 4 } },
	{ .name = "one element stays, however aligned",
	  .align = 16,
	  .given = { .element = 1 },
	  .want = { .element = 1 } },
	{ .name = "units go, with any stride",
	  .align = 4,
	  .given = { .rank = 3, .element = 4, .dim = { DIM(1, -7, 99), DIM(5, 8, 12), DIM(1, 0, 0) } },
	  .want = { .rank = 1, .element = 4, .dim = { DIM(5, 8, 12) } } },
	{ .name = "contiguous fuses to a run",
	  .align = 1,
	  .given = { .rank = 3, .element = 1, .dim = { DIM(2, 15, 15), DIM(3, 5, 5), DIM(5, 1, 1) } },
	  .want = { .rank = 1, .element = 1, .dim = { DIM(30, 1, 1) } } },
	{ .name = "a permutation that only renames fuses",
	  .align = 4,
	  .given = { .rank = 2, .element = 4, .dim = { DIM(3, 4, 4), DIM(5, 12, 12) } },
	  .want = { .rank = 1, .element = 4, .dim = { DIM(15, 4, 4) } } },
	{ .name = "one side alone does not fuse",
	  .align = 4,
	  .given = { .rank = 2, .element = 4, .dim = { DIM(3, 20, 24), DIM(5, 4, 4) } },
	  .want = { .rank = 2, .element = 4, .dim = { DIM(3, 20, 24), DIM(5, 4, 4) } } },
	{ .name = "a transpose of 3 fuses to 2",
	  .align = 4,
	  .given = { .rank = 3, .element = 4, .dim = { DIM(6, 80, 4), DIM(4, 20, 120), DIM(5, 4, 24) } },
	  .want = { .rank = 2, .element = 4, .dim = { DIM(6, 80, 4), DIM(20, 4, 24) } } },
	{ .name = "broadcast dimensions fuse with each other",
	  .align = 4,
	  .given = { .rank = 2, .element = 4, .dim = { DIM(3, 20, 0), DIM(5, 4, 0) } },
	  .want = { .rank = 1, .element = 4, .dim = { DIM(15, 4, 0) } } },
	{ .name = "both backwards turns around",
	  .align = 4,
	  .given = { .rank = 1,
	             .element = 4,
	             .dst_offset = 100,
	             .src_offset = 200,
	             .dim = { DIM(5, -4, -4) } },
	  .want = { .rank = 1, .element = 4, .dst_offset = 84, .src_offset = 184, .dim = { DIM(5, 4, 4) } } },
	{ .name = "a backwards destination turns the source",
	  .align = 4,
	  .given = { .rank = 1, .element = 4, .dst_offset = 100, .dim = { DIM(5, -4, 4) } },
	  .want = { .rank = 1, .element = 4, .dst_offset = 84, .src_offset = 16, .dim = { DIM(5, 4, -4) } } },
	{ .name = "reversed dimensions fuse",
	  .align = 4,
	  .given = { .rank = 2, .element = 4, .dim = { DIM(3, 20, -20), DIM(5, 4, -4) } },
	  .want = { .rank = 1, .element = 4, .dim = { DIM(15, 4, -4) } } },
	{ .name = "widens to the alignment",
	  .align = 8,
	  .given = { .rank = 1, .element = 1, .dim = { DIM(64, 1, 1) } },
	  .want = { .rank = 1, .element = 8, .dim = { DIM(8, 8, 8) } } },
	{ .name = "never past 16",
	  .align = 64,
	  .given = { .rank = 1, .element = 2, .dim = { DIM(64, 2, 2) } },
	  .want = { .rank = 1, .element = 16, .dim = { DIM(8, 16, 16) } } },
	{ .name = "widens as far as the length",
	  .align = 16,
	  .given = { .rank = 1, .element = 1, .dim = { DIM(12, 1, 1) } },
	  .want = { .rank = 1, .element = 4, .dim = { DIM(3, 4, 4) } } },
	{ .name = "an odd length does not widen",
	  .align = 16,
	  .given = { .rank = 1, .element = 1, .dim = { DIM(13, 1, 1) } },
	  .want = { .rank = 1, .element = 1, .dim = { DIM(13, 1, 1) } } },
	{ .name = "widens away the dimension",
	  .align = 16,
	  .given = { .rank = 2, .element = 1, .dim = { DIM(7, 4, 8), DIM(4, 1, 1) } },
	  .want = { .rank = 1, .element = 4, .dim = { DIM(7, 4, 8) } } },
	{ .name = "widens to one element",
	  .align = 16,
	  .given = { .rank = 1, .element = 1, .dim = { DIM(16, 1, 1) } },
	  .want = { .rank = 0, .element = 16 } },
	{ .name = "an outer stride holds back",
	  .align = 16,
	  .given = { .rank = 2, .element = 1, .dim = { DIM(7, 16, 18), DIM(16, 1, 1) } },
	  .want = { .rank = 2, .element = 2, .dim = { DIM(7, 16, 18), DIM(8, 2, 2) } } },
	{ .name = "an outer stride may be negative",
	  .align = 16,
	  .given = { .rank = 2, .element = 1, .src_offset = 96, .dim = { DIM(7, 16, -16), DIM(8, 1, 1) } },
	  .want = { .rank = 1, .element = 8, .src_offset = 96, .dim = { DIM(7, 16, -16) } } },
	{ .name = "an offset holds back",
	  .align = 16,
	  .given = { .rank = 1, .element = 1, .dst_offset = 2, .dim = { DIM(16, 1, 1) } },
	  .want = { .rank = 1, .element = 2, .dst_offset = 2, .dim = { DIM(8, 2, 2) } } },
	{ .name = "a negative offset holds back",
	  .align = 16,
	  .given = { .rank = 1, .element = 1, .src_offset = -3, .dim = { DIM(16, 1, 1) } },
	  .want = { .rank = 1, .element = 1, .src_offset = -3, .dim = { DIM(16, 1, 1) } } },
	{ .name = "a transpose does not widen",
	  .align = 16,
	  .given = { .rank = 2, .element = 1, .dim = { DIM(64, 64, 1), DIM(64, 1, 64) } },
	  .want = { .rank = 2, .element = 1, .dim = { DIM(64, 64, 1), DIM(64, 1, 64) } } },
	{ .name = "a fill fuses by its destination and keeps its element",
	  .align = 16,
	  .given = { .rank = 3,
	             .element = 4,
	             .fill = true,
	             .dim = { DIM(2, 60, 7), DIM(3, 20, 9), DIM(5, 4, -3) } },
	  .want = { .rank = 1, .element = 4, .fill = true, .dim = { DIM(30, 4, 0) } } },
	{ .name = "an element wider than the alignment stays",
	  .align = 1,
	  .given = { .rank = 1, .element = 16, .dim = { DIM(4, 16, 16) } },
	  .want = { .rank = 1, .element = 16, .dim = { DIM(4, 16, 16) } } },
};

/* Windows are whole unless a row says otherwise. */
static void copy_nest(struct loop_nest *nest, const struct flat *flat)
{
	*nest = (struct loop_nest){ .rank = flat->rank,
		                    .element = flat->element,
		                    .fill = flat->fill,
		                    .dst_offset = flat->dst_offset,
		                    .src_offset = flat->src_offset };
	for (int d = 0; d < flat->rank; d++) {
		nest->dim[d] = flat->dim[d];
		if (!nest->dim[d].source)
			nest->dim[d].source = nest->dim[d].n;
	}
}

ParameterizedTestParameters(nest, canonical)
{
	return cr_make_param_array(struct loop_nest_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct loop_nest_row *row, nest, canonical)
{
	struct loop_nest nest;

	copy_nest(&nest, &row->given);
	/* The second pass must change nothing, because the nest is canonical then. */
	for (int pass = 0; pass < 2; pass++) {
		loop_nest_canonicalise(&nest, row->align, PAD_MODE_CONSTANT);
		cr_assert_eq(nest.rank, row->want.rank, "%s: rank %d", row->name, nest.rank);
		cr_assert_eq(nest.element, row->want.element, "%s: element %u", row->name, nest.element);
		cr_assert_eq(nest.fill, row->want.fill, "%s", row->name);
		cr_assert_eq(nest.dst_offset, row->want.dst_offset, "%s: dst %ld", row->name,
		             (long)nest.dst_offset);
		cr_assert_eq(nest.src_offset, row->want.src_offset, "%s: src %ld", row->name,
		             (long)nest.src_offset);
		for (int d = 0; d < nest.rank; d++) {
			cr_assert_eq(nest.dim[d].n, row->want.dim[d].n, "%s: n of %d", row->name, d);
			cr_assert_eq(nest.dim[d].dst, row->want.dim[d].dst, "%s: dst of %d", row->name, d);
			cr_assert_eq(nest.dim[d].src, row->want.dim[d].src, "%s: src of %d", row->name, d);
		}
	}
}

/* A border that mirrors the window element by element would differ if elements had another size. */
Test(nest, pads_of_other_modes_stay_as_they_are)
{
	static const struct loop_nest given = { .rank = 2,
		                                .element = 1,
		                                .dim = { { 9, 8, 8, 2, 4 }, { 8, 1, 1, 0, 8 } } };
	struct loop_nest nest = given;

	loop_nest_canonicalise(&nest, 8, PAD_MODE_SYMMETRIC);
	cr_expect_eq(nest.rank, 1);
	cr_expect_eq(nest.element, 8);
	cr_expect_eq(nest.dim[0].n, 9);
	nest = given;
	loop_nest_canonicalise(&nest, 1, PAD_MODE_SYMMETRIC);
	cr_expect_eq(nest.rank, 2, "%d", nest.rank);
	nest = given;
	loop_nest_canonicalise(&nest, 1, PAD_MODE_CONSTANT);
	cr_expect_eq(nest.rank, 1);
	cr_expect_eq(nest.dim[0].before, 16);
	nest.element = 1;
	nest.dim[0] = (struct loop_nest_dim){ .n = 72, .dst = 1, .src = 1, .before = 16, .source = 32 };
	loop_nest_canonicalise(&nest, 8, PAD_MODE_SYMMETRIC);
	cr_expect_eq(nest.element, 1, "%u", nest.element);
}
