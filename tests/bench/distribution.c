/* SPDX-License-Identifier: Apache-2.0 */
/* The ratios of many rows as one: the geometric mean, the low end and the worst. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor.h"
#include "table.h"

#define WORST 10 /* rows that are listed */
#define GROUP 24 /* bytes of a group's name */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void sort_values(double *values, int n)
{
	qsort(values, (size_t)n, sizeof(*values), by_value);
}

struct distribution distribution_of(double *values, int n)
{
	double sum = 0;

	sort_values(values, n);
	for (int i = 0; i < n; i++)
		sum += log(values[i]);
	return (struct distribution){ .mean = exp(sum / n),
		                      .tenth = values[n / 10],
		                      .median = (values[(n - 1) / 2] + values[n / 2]) / 2,
		                      .worst = values[0] };
}

void distribution_print_change(FILE *out, const struct distribution *before, const struct distribution *after)
{
	fprintf(out, "geometric mean %.3f -> %.3f; 10th percentile %.3f -> %.3f; worst %.3f -> %.3f\n",
	        before->mean, after->mean, before->tenth, after->tenth, before->worst, after->worst);
}

/* ---- Groups of rows --------------------------------------------------------------------------------- */

/* Writes what group a row belongs to. */
typedef void group_fn(const struct report_row *row, char name[GROUP]);

static void group_all(const struct report_row *row, char name[GROUP])
{
	(void)row;
	snprintf(name, GROUP, "all");
}

static void group_element(const struct report_row *row, char name[GROUP])
{
	snprintf(name, GROUP, "%s", row->dtype);
	for (int d = 0; d < DTYPE_COUNT; d++)
		if (!strcmp(dtype_names[d], row->dtype))
			snprintf(name, GROUP, "%2u-byte elements", (unsigned)dtype_size((enum dtype)d));
}

static void group_family(const struct report_row *row, char name[GROUP])
{
	snprintf(name, GROUP, "%s", row->family);
}

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

enum { NAME, ROWS, MEAN, TENTH, MEDIAN, WORST_OF, N_COLUMNS };

static const struct table_column columns[N_COLUMNS] = {
	[NAME] = { "", -16 },
	[ROWS] = { "rows", 6 },
	[MEAN] = { "geometric mean", 14 },
	[TENTH] = { "10th percentile", 15 },
	[MEDIAN] = { "median", 6 },
	[WORST_OF] = { "worst", 0 },
};

static void print_group(FILE *out, const char *name, double *ratios, int n, enum report_format format)
{
	struct distribution d = distribution_of(ratios, n);
	char cells[N_COLUMNS][TABLE_CELL];

	snprintf(cells[NAME], TABLE_CELL, "%s", name);
	snprintf(cells[ROWS], TABLE_CELL, "%d", n);
	snprintf(cells[MEAN], TABLE_CELL, "%.3f", d.mean);
	snprintf(cells[TENTH], TABLE_CELL, "%.3f", d.tenth);
	snprintf(cells[MEDIAN], TABLE_CELL, "%.3f", d.median);
	snprintf(cells[WORST_OF], TABLE_CELL, "%.3f", d.worst);
	table_print_cells(out, columns, N_COLUMNS, cells, format);
}

/* A line for each group, by name. names and ratios have room for one of each row. */
static void print_groups(FILE *out, const struct report *report, group_fn *group, char (*names)[GROUP],
                         double *ratios, enum report_format format)
{
	int n_names = 0;

	for (int i = 0; i < report->n_rows; i++)
		group(&report->rows[i], names[i]);
	qsort(names, (size_t)report->n_rows, GROUP, by_name);
	for (int i = 0; i < report->n_rows; i++)
		if (i == 0 || strcmp(names[n_names - 1], names[i]))
			memmove(names[n_names++], names[i], GROUP);
	for (int k = 0; k < n_names; k++) {
		char name[GROUP];
		int n = 0;

		for (int i = 0; i < report->n_rows; i++) {
			group(&report->rows[i], name);
			if (!strcmp(name, names[k]))
				ratios[n++] = report->rows[i].ratio.median;
		}
		print_group(out, names[k], ratios, n, format);
	}
}

/* ---- The worst rows --------------------------------------------------------------------------------- */

static int by_ratio(const void *a, const void *b)
{
	const struct report_row *x = *(const struct report_row *const *)a,
				*y = *(const struct report_row *const *)b;

	return (x->ratio.median > y->ratio.median) - (x->ratio.median < y->ratio.median);
}

static void print_worst(FILE *out, const struct report *report, const struct report_row **rows)
{
	int n = report->n_rows < WORST ? report->n_rows : WORST;

	for (int i = 0; i < report->n_rows; i++)
		rows[i] = &report->rows[i];
	qsort(rows, (size_t)report->n_rows, sizeof(*rows), by_ratio);
	fprintf(out, "\nthe worst %d:\n", n);
	for (int i = 0; i < n; i++) {
		char label[REPORT_LABEL];

		fprintf(out, "%.3f  %s by %s\n", rows[i]->ratio.median, report_label(rows[i], label),
		        rows[i]->family);
		report_print_explain(out, rows[i]);
	}
}

void report_print_distribution(FILE *out, const struct report *report, enum report_format format)
{
	static group_fn *const groups[] = { group_all, group_element, group_family };
	size_t n = (size_t)report->n_rows;
	char(*names)[GROUP] = calloc(n + 1, GROUP);
	double *ratios = calloc(n + 1, sizeof(*ratios));
	const struct report_row **rows = calloc(n + 1, sizeof(*rows));

	if (names && ratios && rows && n > 0) {
		fprintf(out, "\nratios to %s%s\n", report->base, format == REPORT_MARKDOWN ? "\n" : "");
		table_print_titles(out, columns, N_COLUMNS, format);
		for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
			print_groups(out, report, groups[i], names, ratios, format);
		print_worst(out, report, rows);
	}
	free(names);
	free(ratios);
	free(rows);
}
