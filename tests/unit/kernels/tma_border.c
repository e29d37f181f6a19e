/* SPDX-License-Identifier: Apache-2.0 */
/* Tests borders that a launch of their own fills: the rows that they consist of, and the thread blocks that
 * these take. */
#include <criterion/criterion.h>

#include "tma_rows.h"

/* The source continues elsewhere than the destination after 4 bytes; but a pad value is not read from the
 * source. */
static const struct tma_row short_rows = { .name = "a pad of rows of 4 bytes",
	                                   .dtype = DTYPE_UINT8,
	                                   .rank = 5,
	                                   .src = { 2, 56, 2, 2, 1024 },
	                                   .perm = { 1, 0, 4, 2, 3 },
	                                   .before = { 0, 1, 0, 0, 0 },
	                                   .after = { 13, 0, 0, 0, 0 } };

Test(tma_border, rows_of_a_value_are_as_long_as_the_destination_runs)
{
	struct transform t;
	struct plan plan;

	tma_row_plan(&short_rows, false, &t, &plan);
	cr_assert_eq(plan.tma.border_rank, 2, "%u", plan.tma.border_rank);
	cr_expect_eq(plan.tma.border[0].n, 3 * 4096, "%ld", (long)plan.tma.border[0].n);
	cr_expect_eq(plan.tma.border[0].before, 4096, "%ld", (long)plan.tma.border[0].before);
	cr_expect_eq(plan.tma.border[0].source, 2 * 4096, "%ld", (long)plan.tma.border[0].source);
	cr_expect_eq(plan.tma.border[1].n, 69, "%ld", (long)plan.tma.border[1].n);
	cr_expect_eq(plan.tma.border[1].dst, 3 * 4096, "%ld", (long)plan.tma.border[1].dst);
}

/* Each thread block fills 1024 chunks or elements. */
Test(tma_border, short_rows_are_counted_in_elements)
{
	static const struct {
		int64_t n;
		uint32_t element;
		uint64_t tiles; /* thread blocks for 1024 rows */
	} rows[] = { { 1, 1, 1 }, { 15, 1, 15 }, { 16, 1, 2 }, { 3, 4, 3 }, { 4, 4, 2 }, { 1, 16, 2 } };

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const int64_t bytes = rows[i].n * rows[i].element;
		const struct strided_dim dim[] = {
			{ .n = rows[i].n, .dst = rows[i].element, .source = rows[i].n },
			{ .n = 2048, .dst = bytes, .before = 1024, .source = 1024 },
		};
		const uint64_t tiles = border_tiles(dim, 2, 0, rows[i].element);

		cr_expect_eq(tiles, rows[i].tiles, "%ld of %u bytes: %lu", (long)rows[i].n, rows[i].element,
		             (unsigned long)tiles);
	}
}
