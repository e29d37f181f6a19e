/* SPDX-License-Identifier: Apache-2.0 */
/* Borders that a launch of their own fills: the rows that they consist of. */
#include <criterion/criterion.h>

#include "tma_rows.h"

/* After 4 bytes, the source goes on elsewhere than the destination; but a value is not read. */
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
