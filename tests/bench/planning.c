/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how long planning for a GPU takes, and how good the plans are by the cost model itself: a planner
 * that is faster because it chooses worse plans shows in the second line. It needs no GPU.
 *
 *    planning [N [SEED]]          times the plans of N random layouts (1000) from SEED (7) for an H200
 *    planning --plans [N [SEED]]  instead prints each plan, and those of the table's rows, so that the output
 *                                 before and after a change can be compared
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "explain.h"
#include "kernels/cuda/strategy/plan.h"
#include "random_rows.h"
#include "report.h"
#include "rows.h"
#include "tests/gpu/bench/bench_rows.h"

#define LEAST ((uint64_t)4 << 10) /* bytes of a source */
#define MOST  ((uint64_t)2 << 30)
#define RUNS  3 /* The fastest run counts, because interruptions are not part of planning. */

static void die(const char *what)
{
	fprintf(stderr, "planning: %s\n", what);
	exit(1);
}

static int64_t number(const char *text)
{
	char *end;
	const long long n = strtoll(text, &end, 10);

	if (*end || n <= 0)
		die("usage: planning [--plans] [N [SEED]]");
	return n;
}

/* Returns false if the row's shapes do not make a valid transform. */
static bool row_transform(const struct bench_row *row, struct transform *ret)
{
	struct transform_spec spec;
	struct error err;
	int64_t first;

	return bench_row_spec(row, &spec, &first, &err) == 0 && transform_init(ret, &spec, &err) == 0;
}

static void random_transform(const struct random_rows *rows, uint64_t i, struct random_row *row,
                             struct transform *ret)
{
	random_row_draw(rows, i, row);
	if (!row_transform(&row->row, ret))
		die("a random row is not a transform");
}

static struct plan_facts gpu_facts(void)
{
	struct plan_facts facts = plan_facts_of_h200();

	return facts;
}

/* ---- Time ------------------------------------------------------------------------------------------- */

static double thread_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* Plans the row anew RUNS times and returns the least time. list is NULL to leave out the alternatives. */
static double time_plan(const struct transform *t, const struct plan_facts *facts, struct plan *plan,
                        struct alternatives *list)
{
	double least = INFINITY;

	for (int run = 0; run < RUNS; run++) {
		const double start = thread_us();

		plan_init(plan, t, facts);
		if (list)
			alternatives_init(list, plan, t, facts);
		least = fmin(least, thread_us() - start);
	}
	return least;
}

static void print_times(const char *what, double *us, int n)
{
	sort_values(us, n);
	printf("%s: median %.1f us, p99 %.1f us, worst %.1f us\n", what, us[(n - 1) / 2],
	       us[(n - 1) * 99 / 100], us[n - 1]);
}

static void print_cost(const char *what, double log_sum, int n)
{
	printf("%s: predicted cost %.5f (geometric mean of %d)\n", what, exp(log_sum / n), n);
}

static double chosen_cost(const struct bench_row *rows, int n, const struct plan_facts *facts, int *ret_n)
{
	double sum = 0;

	for (int i = 0; i < n; i++) {
		struct transform transform;
		struct plan plan;

		if (!row_transform(&rows[i], &transform))
			continue;
		plan_init(&plan, &transform, facts);
		if (plan.predicted > 0) {
			sum += log(plan.predicted);
			++*ret_n;
		}
	}
	return sum;
}

static void measure(const struct random_rows *rows, int n)
{
	const struct plan_facts facts = gpu_facts();
	double *us = calloc((size_t)n, sizeof *us), *us_all = calloc((size_t)n, sizeof *us_all), sum = 0;
	static struct alternatives list;
	int n_chosen = 0;

	if (!us || !us_all)
		die("no memory");
	for (int i = 0; i < n; i++) {
		struct transform transform;
		struct random_row row;
		struct plan plan;

		random_transform(rows, (uint64_t)i, &row, &transform);
		us[i] = time_plan(&transform, &facts, &plan, NULL);
		us_all[i] = time_plan(&transform, &facts, &plan, &list);
		sum += log(plan.predicted);
	}
	print_times("a plan", us, n);
	print_times("a plan and its alternatives", us_all, n);
	print_cost("random rows", sum, n);
	sum = chosen_cost(bench_rows, sizeof bench_rows / sizeof *bench_rows, &facts, &n_chosen);
	sum += chosen_cost(bench_gpu_rows, sizeof bench_gpu_rows / sizeof *bench_gpu_rows, &facts, &n_chosen);
	print_cost("chosen rows", sum, n_chosen);
	free(us);
	free(us_all);
}

/* ---- Plans ------------------------------------------------------------------------------------------ */

static void print_plan(const char *what, const struct bench_row *row, const struct plan_facts *facts)
{
	struct transform transform;
	struct engine_explanation explanation;
	struct plan plan;
	char text[4096];

	if (!row_transform(row, &transform))
		return;
	plan_init(&plan, &transform, facts);
	plan_explain(&explanation, &plan, &transform, facts);
	explain_plan(&explanation, text, sizeof text);
	printf("%s %s: %s, predicted %.9f, window %" PRIu64 ", border %" PRIu64 "; %s", what,
	       dtype_names[row->dtype], family_names[plan.family], plan.predicted, plan.tma.tiles,
	       plan.tma.border_tiles, text);
}

static void print_plans(const struct random_rows *rows, int n)
{
	const struct plan_facts facts = gpu_facts();

	for (size_t i = 0; i < sizeof bench_rows / sizeof *bench_rows; i++)
		print_plan(bench_rows[i].what, &bench_rows[i], &facts);
	for (size_t i = 0; i < sizeof bench_gpu_rows / sizeof *bench_gpu_rows; i++)
		print_plan(bench_gpu_rows[i].what, &bench_gpu_rows[i], &facts);
	for (int i = 0; i < n; i++) {
		struct random_row row;

		random_row_draw(rows, (uint64_t)i, &row);
		print_plan(row.what, &row.row, &facts);
	}
}

int main(int argc, char **argv)
{
	struct random_rows rows = { .seed = 7, .least = LEAST, .most = MOST };
	const bool prints = argc > 1 && !strcmp(argv[1], "--plans");
	int n = 1000;

	argc -= prints;
	argv += prints;
	if (argc > 1)
		n = (int)number(argv[1]);
	if (argc > 2)
		rows.seed = (uint64_t)number(argv[2]);
	if (prints)
		print_plans(&rows, n);
	else
		measure(&rows, n);
	return 0;
}
