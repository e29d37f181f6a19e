/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the log-linear histogram: its bars tile the integers, and its percentiles are close to those of the
 * sorted values. */
#include "client/tmactl/bench/histogram.h"

#include <stdlib.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

/* ---- Bars ------------------------------------------------------------------------------------------- */

Test(histogram, bars_tile_the_integers)
{
	uint64_t next = 0;

	for (unsigned bar = 0; bar < HISTOGRAM_BARS; bar++) {
		uint64_t last = histogram_bar_last(bar);

		cr_assert_leq(next, last, "bar %u", bar);
		cr_assert_eq(histogram_bar(next), bar, "first of bar %u, %ju", bar, (uintmax_t)next);
		cr_assert_eq(histogram_bar(last), bar, "last of bar %u, %ju", bar, (uintmax_t)last);
		cr_assert_leq(last - next, next / 64, "bar %u is wider than a 64th of its values", bar);
		next = last + 1;
	}
	cr_assert_eq(next, 0, "the last bar ends at the greatest integer");
}

/* ---- Percentiles ------------------------------------------------------------------------------------ */

struct percentile_row {
	char name[32];
	int n;
	uint64_t values[8];
	double percent;
	uint64_t expect;
};

ParameterizedTestParameters(histogram, percentile)
{
	static struct percentile_row rows[] = {
		{ .name = "none", .percent = 50 },
		{ .name = "one", .n = 1, .values = { 7 }, .percent = 50, .expect = 7 },
		{ .name = "one, p0", .n = 1, .values = { 7 }, .percent = 0, .expect = 7 },
		{ .name = "the lower of two", .n = 2, .values = { 9, 3 }, .percent = 50, .expect = 3 },
		{ .name = "above the lower", .n = 2, .values = { 9, 3 }, .percent = 50.1, .expect = 9 },
		{ .name = "zeros", .n = 3, .values = { 0, 0, 5 }, .percent = 60, .expect = 0 },
		{ .name = "p90 of four", .n = 4, .values = { 4, 2, 3, 1 }, .percent = 90, .expect = 4 },
		{ .name = "no more than the max",
		  .n = 1,
		  .values = { 1000001 },
		  .percent = 99,
		  .expect = 1000001 },
		{ .name = "the end of a bar", .n = 2, .values = { 128, 200 }, .percent = 50, .expect = 129 },
		{ .name = "the greatest",
		  .n = 1,
		  .values = { UINT64_MAX },
		  .percent = 100,
		  .expect = UINT64_MAX },
	};

	return cr_make_param_array(struct percentile_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct percentile_row *row, histogram, percentile)
{
	static struct histogram h;
	uint64_t got;

	for (int i = 0; i < row->n; i++)
		histogram_add(&h, row->values[i]);
	got = histogram_percentile(&h, row->percent);
	cr_assert_eq(got, row->expect, "%s: %ju", row->name, (uintmax_t)got);
	cr_assert_eq(h.count, (uint64_t)row->n, "%s", row->name);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

Test(histogram, percentiles_are_near_those_of_a_sorted_list)
{
	static const double percents[] = { 1, 25, 50, 90, 99, 99.9, 100 };
	static uint64_t values[10007];
	static struct histogram h;
	uint64_t state = 1;

	for (int i = 0; i < 10007; i++) {
		state = state * 6364136223846793005u + 1442695040888963407u;
		values[i] = state >> (20 + state % 40);
		histogram_add(&h, values[i]);
	}
	qsort(values, 10007, sizeof values[0], compare);
	for (int i = 0; i < 7; i++) {
		uint64_t exact = values[(int)(10007 * percents[i] / 100 + 0.999999) - 1];
		uint64_t got = histogram_percentile(&h, percents[i]);

		cr_assert(got >= exact && got - exact <= exact / 64, "p%g: %ju, sorted %ju", percents[i],
		          (uintmax_t)got, (uintmax_t)exact);
	}
	cr_assert_eq(h.max, values[10006]);
}
