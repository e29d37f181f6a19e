/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the figures that are computed from times, the table, the distribution of the rows, JSON written and
 * read back, and the comparison of two reports. */
#include "tests/bench/report.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Spread ----------------------------------------------------------------------------------------- */

struct spread_case {
	char name[40];
	int n;
	double values[9];
	struct spread expected;
};

ParameterizedTestParameters(report, spread)
{
	static struct spread_case cases[] = {
		{ "one", 1, { 3 }, { 3, 3, 3 } },
		{ "two", 2, { 5, 3 }, { 3, 4, 5 } },
		{ "three", 3, { 9, 1, 4 }, { 1, 4, 9 } },
		{ "seven, one left out at each end", 7, { 7, 100, 5, 6, 1, 4, 3 }, { 3, 5, 7 } },
		{ "eight, two left out", 8, { 8, 7, 6, 5, 4, 3, 2, 1 }, { 3, 4.5, 6 } },
		{ "nine alike", 9, { 2, 2, 2, 2, 2, 2, 2, 2, 2 }, { 2, 2, 2 } },
	};
	return cr_make_param_array(struct spread_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct spread_case *c, report, spread)
{
	double values[9];

	memcpy(values, c->values, sizeof(values));
	struct spread s = spread_of(values, c->n);
	cr_expect_eq(s.low, c->expected.low, "%s: low %g", c->name, s.low);
	cr_expect_eq(s.median, c->expected.median, "%s: median %g", c->name, s.median);
	cr_expect_eq(s.high, c->expected.high, "%s: high %g", c->name, s.high);
	cr_expect_arr_eq(values, c->values, sizeof(values), "%s: values were reordered", c->name);
}

struct change_case {
	char name[40];
	struct spread before;
	struct spread after;
	int expected;
};

ParameterizedTestParameters(report, change)
{
	static struct change_case cases[] = {
		{ "the same", { 1, 2, 3 }, { 1, 2, 3 }, 0 },
		{ "they meet", { 1, 2, 3 }, { 3, 4, 5 }, 0 },
		{ "one within the other", { 1, 5, 9 }, { 2, 3, 4 }, 0 },
		{ "higher", { 1, 2, 3 }, { 3.1, 4, 5 }, 1 },
		{ "lower", { 3.1, 4, 5 }, { 1, 2, 3 }, -1 },
	};
	return cr_make_param_array(struct change_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct change_case *c, report, change)
{
	int change = spread_change(&c->before, &c->after);

	cr_expect_eq(change, c->expected, "%s: %d", c->name, change);
}

/* ---- A report --------------------------------------------------------------------------------------- */

/* Adds a row of three runs, in which memcpy takes 100, 200 and 400 ns, and tmad `factor` times as long. Rows
 * are compared byte by byte; the padding of a static row is zero, as in one that has been read. */
static void add(struct report *report, const char *what, double bar, double factor)
{
	static const struct report_row model = { .dtype = "float32",
		                                 .rank = 2,
		                                 .shape = { 31, 33 },
		                                 .request = { .src_stride = { -33, 1 },
		                                              .src_offset = 990,
		                                              .dst_offset = 5,
		                                              .perm = { 1, 0 },
		                                              .before = { 0, -2 },
		                                              .after = { 3, 4 },
		                                              .mode = "edge",
		                                              .value = 7,
		                                              .blocks = 40 },
		                                 .explain = "tile 32x32\n",
		                                 .family = "tile_transpose",
		                                 .bytes = 8000,
		                                 .n_runs = 3,
		                                 .base_ns = { 200, 100, 400 } };
	struct report_row row = model;
	const struct report_row *added;
	struct error err;

	snprintf(row.what, sizeof(row.what), "%s", what);
	row.bar = bar;
	for (int i = 0; i < 3; i++)
		row.ours_ns[i] = factor * row.base_ns[i];
	cr_assert_eq(report_add(report, &row, &added, &err), 0);
	cr_assert_eq(added, &report->rows[report->n_rows - 1]);
}

static struct report sample(double factor)
{
	struct report report = { .machine = "a \"machine\"",
		                 .engine = "an engine",
		                 .base = "memcpy",
		                 .date = "today",
		                 .random = "--random=7 2",
		                 .threads = 2 };

	add(&report, "transpose", 0.9, factor);
	add(&report, "edge pad 1:1,1:1", 0.65, 1);
	return report;
}

/* Returns what print writes, which the caller frees. */
#define PRINTED(print, ...)                                   \
	({                                                    \
		char *text_;                                  \
		size_t size_;                                 \
		FILE *file_ = open_memstream(&text_, &size_); \
		print(file_, __VA_ARGS__);                    \
		fclose(file_);                                \
		text_;                                        \
	})

#define expect_text(text, part)    cr_expect(strstr(text, part), "no \"%s\" in:\n%s", part, text)
#define expect_no_text(text, part) cr_expect(!strstr(text, part), "\"%s\" in:\n%s", part, text)

Test(report, ratios_are_taken_run_by_run)
{
	struct report report = sample(2);

	/* The GB/s vary by a factor of 4 between the runs, but the ratio does not. */
	cr_expect_eq(report.rows[0].base.median, 40);
	cr_expect_eq(report.rows[0].base.low, 20);
	cr_expect_eq(report.rows[0].base.high, 80);
	cr_expect_eq(report.rows[0].ours.median, 20);
	cr_expect_eq(report.rows[0].ratio.low, 0.5);
	cr_expect_eq(report.rows[0].ratio.median, 0.5);
	cr_expect_eq(report.rows[0].ratio.high, 0.5);
	report_deinit(&report);
}

struct verdict_case {
	char name[40];
	double factor;
	char under[16];
	char reach[40];
};

ParameterizedTestParameters(report, verdict)
{
	static struct verdict_case cases[] = {
		{ "as fast", 1, "", "reach their bar: 2 of 2; under 0.5: 0" },
		{ "at the bar", 1 / 0.9, "", "reach their bar: 2 of 2; under 0.5: 0" },
		{ "under the bar", 1.25, " under\n", "reach their bar: 1 of 2; under 0.5: 0" },
		{ "half", 2, " under\n", "reach their bar: 1 of 2; under 0.5: 0" },
		{ "under half", 2.5, " under half\n", "reach their bar: 1 of 2; under 0.5: 1" },
	};
	return cr_make_param_array(struct verdict_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct verdict_case *c, report, verdict)
{
	struct report report = sample(c->factor);
	char *row = PRINTED(report_print_row, &report, &report.rows[0], REPORT_TEXT);
	char *end = PRINTED(report_print_end, &report, REPORT_TEXT);

	if (*c->under)
		cr_expect(strstr(row, c->under), "%s: %s", c->name, row);
	else
		cr_expect(!strstr(row, "under"), "%s: %s", c->name, row);
	cr_expect(strstr(end, c->reach), "%s: %s", c->name, end);
	free(row);
	free(end);
	report_deinit(&report);
}

Test(report, markdown_has_a_line_for_each_row)
{
	struct report report = sample(1.25);
	char *head = PRINTED(report_print_head, &report, REPORT_MARKDOWN);
	char *row = PRINTED(report_print_row, &report, &report.rows[0], REPORT_MARKDOWN);

	expect_text(
	    head, "| what | type | shape | family | memcpy | tmad | ratio | spread | predicted | bar |  |\n");
	expect_text(head, "\n|---|---|---|---|---|---|---|---|---|---|---|\n");
	cr_expect_str_eq(
	    row, "| transpose | float32 | [31, 33] | tile_transpose | 40.0 | 32.0 | 0.80 | 0.80..0.80 | "
		 "- | 0.90 | under |\n");
	free(row);
	report.rows[0].predicted = 0.8125;
	row = PRINTED(report_print_row, &report, &report.rows[0], REPORT_MARKDOWN);
	expect_text(row, " | 0.80..0.80 | 0.81 | 0.90 |");
	free(head);
	free(row);
	report_deinit(&report);
}

Test(report, a_row_under_its_bar_is_explained)
{
	struct report under = sample(2), over = sample(1);
	char *row;

	strcpy(under.rows[0].explain, "one reason\nanother\n");
	strcpy(over.rows[0].explain, "one reason\n");
	row = PRINTED(report_print_row, &under, &under.rows[0], REPORT_TEXT);
	expect_text(row, "\n    one reason\n    another\n");
	free(row);
	row = PRINTED(report_print_row, &under, &under.rows[0], REPORT_MARKDOWN);
	expect_no_text(row, "reason");
	free(row);
	row = PRINTED(report_print_row, &over, &over.rows[0], REPORT_TEXT);
	expect_no_text(row, "reason");
	free(row);
	report_deinit(&under);
	report_deinit(&over);
}

/* ---- Predictions ------------------------------------------------------------------------------------ */

Test(report, how_far_predictions_are_off)
{
	/* Predicted ratios of rows whose measured ratio is 0.5, each chosen for its error. */
	static const double predicted[] = { 0.5,        0.5 / 1.1,  0.5 / 0.9, 0.5 / 1.19,
		                            0.5 / 0.81, 0.5 / 1.02, 0.5 / 1,   0.5 / 1.5,
		                            0.5 / 1.21, 0.5 / 1.05, 0,         0 };
	struct report report = { .base = "copy" };
	char *end;

	for (size_t i = 0; i < sizeof(predicted) / sizeof(*predicted); i++) {
		add(&report, "transpose", REPORT_HALF, 2);
		report.rows[i].predicted = predicted[i];
	}
	report.rows[3].predicted_base_ns = 150; /* the measured time is 200 */
	end = PRINTED(report_print_end, &report, REPORT_TEXT);
	expect_text(end,
	            "\nratios within 20 % of the prediction: 8 of 10; error: median 10.0 %, nine of ten rows "
	            "at most 21.0 %, worst 50.0 %\n");
	expect_text(end,
	            "\ncopy within 20 % of the prediction: 0 of 1; error: median 25.0 %, nine of ten rows at "
	            "most 25.0 %, worst 25.0 %\n");
	free(end);
	report_deinit(&report);
}

Test(report, nothing_was_predicted)
{
	struct report report = sample(1);
	char *end = PRINTED(report_print_end, &report, REPORT_TEXT);

	expect_no_text(end, "prediction");
	free(end);
	report_deinit(&report);
}

/* ---- Trials ----------------------------------------------------------------------------------------- */

/* Returns four rows with a ratio of 0.5, two of which had trials: in the second, another plan than the chosen
 * one won, and in the third, the plan that had been predicted to be the fastest. */
static struct report tried(void)
{
	struct report report = { .base = "copy" }, one = sample(2);

	for (int i = 0; i < 4; i++) {
		struct report_row row = one.rows[0];
		const struct report_row *added;
		struct error err;

		row.is_tuned = i == 1 || i == 2;
		for (int k = 0; k < row.n_runs; k++)
			row.chosen_ns[k] = (i == 1 ? 2 : 1) * row.ours_ns[k];
		cr_assert_eq(report_add(&report, &row, &added, &err), 0);
	}
	report_deinit(&one);
	return report;
}

Test(report, what_trials_have_found)
{
	struct report report = tried();
	char *end = PRINTED(report_print_end, &report, REPORT_TEXT);

	expect_text(
	    end,
	    "\nplans tried for 2 of 4 rows; another than the one predicted won for 1; all rows: geometric "
	    "mean 0.420 -> 0.500; 10th percentile 0.250 -> 0.500; worst 0.250 -> 0.500\n");
	free(end);
	report_deinit(&report);
}

Test(report, predictions_are_of_the_plan_predicted_to_be_the_fastest)
{
	struct report report = tried();
	char *end;

	report.rows[1].predicted = 0.25;
	end = PRINTED(report_print_end, &report, REPORT_TEXT);
	expect_text(end, "prediction: 1 of 1; error: median 0.0 %");
	free(end);
	report_deinit(&report);
}

Test(report, nothing_was_tried)
{
	struct report report = sample(1);
	char *end = PRINTED(report_print_end, &report, REPORT_TEXT);

	expect_no_text(end, "tried");
	free(end);
	report_deinit(&report);
}

/* ---- Many rows -------------------------------------------------------------------------------------- */

Test(report, distribution)
{
	double values[] = { 4, 1, 2, 8, 1, 4, 2, 8, 2, 4, 16 };
	struct distribution d = distribution_of(values, sizeof(values) / sizeof(values[0]));

	cr_expect_float_eq(d.mean, pow(2, 19 / 11.0), 1e-12, "%g", d.mean);
	cr_expect_eq(d.tenth, 1, "%g", d.tenth); /* the second lowest of eleven */
	cr_expect_eq(d.median, 4, "%g", d.median);
	cr_expect_eq(d.worst, 1, "%g", d.worst);
}

/* Returns twelve rows of 4-byte elements moved by one family, with ratios of 1/2, 1/3, ... 1/13, and one of
 * 2-byte elements moved by another. */
static struct report many(void)
{
	struct report report = { .base = "memcpy", .random = "--random=7 13" };

	for (int i = 2; i < 14; i++) {
		char what[16];

		snprintf(what, sizeof(what), "row %d", i);
		add(&report, what, REPORT_HALF, i);
		snprintf(report.rows[i - 2].explain, sizeof(report.rows->explain), "tile %d\n", i);
	}
	add(&report, "fast", REPORT_HALF, 0.5);
	strcpy(report.rows[12].dtype, "float16");
	strcpy(report.rows[12].family, "memcpy");
	return report;
}

Test(report, groups_and_the_worst_ten)
{
	struct report report = many();
	char *text = PRINTED(report_print_distribution, &report, REPORT_MARKDOWN);

	expect_text(text, "ratios to memcpy\n");
	expect_text(text, "| all | 13 | 0.186 | 0.083 | 0.143 | 0.077 |\n");
	expect_text(text, "|  2-byte elements | 1 | 2.000 | 2.000 | 2.000 | 2.000 |\n");
	expect_text(text, "|  4-byte elements | 12 | 0.153 | 0.083 | 0.134 | 0.077 |\n");
	expect_text(text, "| memcpy | 1 | 2.000 ");
	expect_text(text, "| tile_transpose | 12 | 0.153 ");
	expect_text(
	    text,
	    "the worst 10:\n0.077  row 13 float32 [31, 33] by tile_transpose\n    tile 13\n0.083  row 12");
	expect_text(text, "row 4 float32");
	expect_no_text(text, "row 3 float32");
	cr_expect_str_eq(report.rows[0].what, "row 2", "rows were reordered");
	free(text);
	report_deinit(&report);
}

/* ---- Instruction sets ------------------------------------------------------------------------------- */

static void add_by(struct report *report, const char *isa, const char *what, double factor)
{
	struct report one = { 0 };
	const struct report_row *added;
	struct error err;

	add(&one, what, 0.9, factor);
	snprintf(one.rows[0].isa, sizeof(one.rows[0].isa), "%s", isa);
	cr_assert_eq(report_add(report, &one.rows[0], &added, &err), 0);
	report_deinit(&one);
}

/* Returns two rows for each of two instruction sets, of which the second is faster. */
static struct report by_two(double factor)
{
	struct report report = { .base = "memcpy", .random = "--random=7 2" };

	add_by(&report, "plain", "transpose", 8 * factor);
	add_by(&report, "avx2", "transpose", factor);
	add_by(&report, "plain", "crop", 8 * factor);
	add_by(&report, "avx2", "crop", factor);
	return report;
}

Test(report, several_instruction_sets)
{
	struct report report = by_two(1);
	char *head = PRINTED(report_print_head, &report, REPORT_MARKDOWN);
	char *row = PRINTED(report_print_row, &report, &report.rows[1], REPORT_MARKDOWN);
	char *end = PRINTED(report_print_end, &report, REPORT_MARKDOWN);

	cr_expect_eq(report.n_isas, 2);
	expect_text(head, "\n| isa | what | type |");
	expect_text(row, "| avx2 | transpose | float32 | ");
	expect_text(end, "\nplain: rows that reach their bar: 0 of 2; under 0.5: 2\n"
	                 "avx2: rows that reach their bar: 2 of 2; under 0.5: 0\n");
	expect_text(end, "| plain | 2 | 0.125 | 0.125 | 0.125 | 0.125 |\n"
	                 "| avx2 | 2 | 1.000 | 1.000 | 1.000 | 1.000 |\n");
	free(head);
	free(row);
	free(end);
	report_deinit(&report);
}

Test(report, one_instruction_set_is_not_named)
{
	struct report report = { .base = "memcpy" };
	char *head, *row, *end;

	add_by(&report, "avx2", "transpose", 1);
	head = PRINTED(report_print_head, &report, REPORT_MARKDOWN);
	row = PRINTED(report_print_row, &report, &report.rows[0], REPORT_MARKDOWN);
	end = PRINTED(report_print_end, &report, REPORT_MARKDOWN);
	expect_text(head, "\n| what | type |");
	expect_no_text(row, "avx2");
	expect_no_text(end, "avx2");
	free(head);
	free(row);
	free(end);
	report_deinit(&report);
}

Test(report, each_instruction_set_has_a_distribution)
{
	struct report report = by_two(1);
	char *text = PRINTED(report_print_distribution, &report, REPORT_MARKDOWN);

	expect_text(text, "\nratios to memcpy, plain\n");
	expect_text(text, "| all | 2 | 0.125 |");
	expect_text(text, "the worst 2:\n0.125  ");
	expect_text(text, "\nratios to memcpy, avx2\n");
	expect_text(text, "| all | 2 | 1.000 |");
	expect_text(text, "the worst 2:\n1.000  ");
	free(text);
	report_deinit(&report);
}

Test(report, too_many_instruction_sets)
{
	struct report report = { 0 };
	struct report_row row = { .n_runs = 1, .bytes = 1, .base_ns = { 1 }, .ours_ns = { 1 } };
	const struct report_row *added;
	struct error err;

	for (int i = 0; i <= REPORT_MAX_ISAS; i++) {
		snprintf(row.isa, sizeof(row.isa), "isa%d", i);
		cr_expect_eq(report_add(&report, &row, &added, &err),
		             i < REPORT_MAX_ISAS ? 0 : STATUS_INVALID_ARGUMENT, "%d", i);
	}
	report_deinit(&report);
}

/* ---- Before and after ------------------------------------------------------------------------------- */

Test(report, compared_with_itself_nothing_changes)
{
	struct report report = sample(2);
	char *text = PRINTED(report_print_change, &report, &report, REPORT_TEXT);

	expect_text(text, "rows in both: 2; better: 0; worse: 0;");
	expect_text(text, "+0.0 %");
	free(text);
	report_deinit(&report);
}

Test(report, a_change_outside_both_spreads_is_marked)
{
	struct report slow = sample(2), fast = sample(1.25);
	char *better = PRINTED(report_print_change, &slow, &fast, REPORT_MARKDOWN);
	char *worse = PRINTED(report_print_change, &fast, &slow, REPORT_MARKDOWN);

	expect_text(better, "| 0.50 (0.50..0.50) | 0.80 (0.80..0.80) | +60.0 % | better |\n");
	expect_text(better, "rows in both: 2; better: 1; worse: 0;");
	expect_text(worse, "| -37.5 % | worse |\n");
	expect_text(worse, "| 1.00 (1.00..1.00) | +0.0 % |  |\n");
	expect_text(worse,
	            "geometric mean 0.894 -> 0.707; 10th percentile 0.800 -> 0.500; worst 0.800 -> 0.500\n");
	free(better);
	free(worse);
	report_deinit(&slow);
	report_deinit(&fast);
}

Test(report, a_row_is_compared_with_the_one_of_its_instruction_set)
{
	struct report slow = by_two(2), fast = by_two(1);
	char *text = PRINTED(report_print_change, &slow, &fast, REPORT_MARKDOWN);

	expect_text(text,
	            "| plain | crop | float32 | [31, 33] | 0.06 (0.06..0.06) | 0.12 (0.12..0.12) | +100.0");
	expect_text(text,
	            "| avx2 | crop | float32 | [31, 33] | 0.50 (0.50..0.50) | 1.00 (1.00..1.00) | +100.0");
	expect_text(text, "rows in both: 4; better: 4; worse: 0;");
	expect_text(text, "\nplain: geometric mean 0.062 -> 0.125;");
	expect_text(text, "\navx2: geometric mean 0.500 -> 1.000;");
	free(text);
	report_deinit(&slow);
	report_deinit(&fast);
}

Test(report, one_instruction_set_is_compared_with_another_or_with_its_own_of_several)
{
	struct report plain = { 0 }, avx2 = { 0 }, both = by_two(1);
	char *text;

	add_by(&plain, "plain", "crop", 8);
	add_by(&avx2, "avx2", "crop", 4);
	text = PRINTED(report_print_change, &plain, &avx2, REPORT_MARKDOWN);
	expect_text(text, "\n| crop | float32 | [31, 33] | 0.12 (0.12..0.12) | 0.25 (0.25..0.25) | +100.0");
	free(text);
	text = PRINTED(report_print_change, &both, &avx2, REPORT_MARKDOWN);
	expect_text(text,
	            "| avx2 | crop | float32 | [31, 33] | 1.00 (1.00..1.00) | 0.25 (0.25..0.25) | -75.0");
	expect_text(text, "rows in both: 1;");
	free(text);
	report_deinit(&plain);
	report_deinit(&avx2);
	report_deinit(&both);
}

Test(report, rows_that_only_one_has_are_left_out)
{
	struct report before = sample(1), after = sample(1);
	char *text;

	before.rows[1].shape[1] = 34;
	text = PRINTED(report_print_change, &before, &after, REPORT_TEXT);
	expect_text(text, "rows in both: 1;");
	expect_no_text(text, "edge pad");
	free(text);
	report_deinit(&before);
	report_deinit(&after);
}

/* ---- JSON ------------------------------------------------------------------------------------------- */

static void write_file(char path[32], const char *text)
{
	strcpy(path, "/tmp/tmad-report-XXXXXX");
	int fd = mkstemp(path);

	cr_assert(fd >= 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

Test(report, json_there_and_back)
{
	struct report report = sample(1.25), again = { 0 };
	char path[32], *text;
	size_t size;
	struct error err;
	FILE *file = open_memstream(&text, &size);

	if (!report_has_json())
		cr_skip_test("built without libjansson");
	strcpy(report.rows[0].isa, "avx2");
	report.rows[0].predicted = 0.9;
	report.rows[1].predicted_base_ns = 170;
	report.rows[1].is_tuned = true;
	for (int i = 0; i < 3; i++)
		report.rows[1].chosen_ns[i] = 1.25 * report.rows[1].base_ns[i];
	report.rows[1].chosen_ratio = (struct spread){ 0.8, 0.8, 0.8 };
	cr_assert_eq(report_write_json(file, &report, &err), 0);
	fclose(file);
	write_file(path, text);
	cr_assert_eq(report_read_json(path, &again, &err), 0, "%s", err.message);
	unlink(path);
	cr_expect_str_eq(again.machine, report.machine);
	cr_expect_str_eq(again.engine, report.engine);
	cr_expect_str_eq(again.base, report.base);
	cr_expect_str_eq(again.date, report.date);
	cr_expect_str_eq(again.random, report.random);
	cr_expect_eq(again.threads, report.threads);
	cr_assert_eq(again.n_rows, report.n_rows);
	for (int i = 0; i < report.n_rows; i++)
		cr_expect_arr_eq(&again.rows[i], &report.rows[i], sizeof(report.rows[i]), "row %d", i);
	free(text);
	report_deinit(&report);
	report_deinit(&again);
}

#define RUN \
	"{\"run\":{\"date\":\"d\",\"machine\":\"m\",\"engine\":\"e\",\"base\":\"b\",\"threads\":2},\"rows\":["
#define REQUEST(strides)                                                                             \
	"\"src_strides\":" strides ",\"src_offset\":0,\"dst_offset\":0,\"perm\":[0],\"before\":[0]," \
	"\"after\":[0],\"mode\":\"wrap\",\"value\":0,\"blocks\":0"
#define ROW_HEAD "{\"what\":\"w\",\"dtype\":\"t\",\"family\":\"f\",\"bar\":0.9,\"bytes\":8,"

struct file_case {
	char name[40];
	char text[480];
	char message[64]; /* empty: the text is accepted */
};

ParameterizedTestParameters(report, file)
{
	static struct file_case cases[] = {
		{ "no row", RUN "]}", "" },
		{ "one row", RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[1],\"tmad_ns\":[2.5]}]}", "" },
		{ "no array of strides",
		  RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[1],\"tmad_ns\":[1]," REQUEST("7") "}]}",
		  "strides" },
		{ "a stride too many",
		  RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[1],\"tmad_ns\":[1]," REQUEST("[2,1]") "}]}",
		  "strides" },
		{ "strides without a mode",
		  RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[1],\"tmad_ns\":[1],\"src_strides\":[1]}]}",
		  "mode" },
		{ "a row with its request",
		  RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[1],\"tmad_ns\":[1]," REQUEST("[1]") "}]}", "" },
		{ "no JSON", "what", "tmad-report" },
		{ "not ours", "{\"rows\":[]}", "not what --json writes" },
		{ "no rows", RUN "],\"rows\":7}", "rows are no array" },
		{ "a row without times", RUN ROW_HEAD "\"shape\":[2]}]}", "base_ns" },
		{ "no run", RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[],\"tmad_ns\":[]}]}", "times" },
		{ "runs that differ", RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[1,2],\"tmad_ns\":[1]}]}",
		  "times" },
		{ "a time of 0", RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[0],\"tmad_ns\":[1]}]}", "times" },
		{ "a time that is none", RUN ROW_HEAD "\"shape\":[2],\"base_ns\":[\"1\"],\"tmad_ns\":[1]}]}",
		  "times" },
		{ "rank 9", RUN ROW_HEAD "\"shape\":[1,1,1,1,1,1,1,1,1],\"base_ns\":[1],\"tmad_ns\":[1]}]}",
		  "shape" },
		{ "a shape of words", RUN ROW_HEAD "\"shape\":[\"a\"],\"base_ns\":[1],\"tmad_ns\":[1]}]}",
		  "shape" },
	};
	return cr_make_param_array(struct file_case, cases, sizeof(cases) / sizeof(cases[0]));
}

ParameterizedTest(struct file_case *c, report, file)
{
	struct report report = { 0 };
	struct error err = { 0 };
	char path[32];

	if (!report_has_json())
		cr_skip_test("built without libjansson");
	write_file(path, c->text);
	int r = report_read_json(path, &report, &err);
	unlink(path);
	if (*c->message) {
		cr_expect_eq(r, STATUS_INVALID_ARGUMENT, "%s: %d", c->name, r);
		cr_expect(strstr(err.message, c->message) && strstr(err.message, path), "%s: %s", c->name,
		          err.message);
		cr_expect_null(report.rows, "%s: rows are left", c->name);
	} else {
		cr_expect_eq(r, 0, "%s: %s", c->name, err.message);
	}
	report_deinit(&report);
}
