/* SPDX-License-Identifier: Apache-2.0 */
/* Summarizes the ratios of many rows: their geometric mean, the low end and the worst rows. */
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

/* Some rows of a report. */
struct some_rows {
	const struct report_row **row;
	int n;
};

/* isa == NULL selects all rows. Returns false if out of memory. */
static bool some_rows_init(struct some_rows *some, const struct report *report, const char *isa)
{
	*some = (struct some_rows){ .row = calloc((size_t)report->n_rows + 1, sizeof(*some->row)) };
	for (int i = 0; i < report->n_rows && some->row; i++)
		if (!isa || !strcmp(report->rows[i].isa, isa))
			some->row[some->n++] = &report->rows[i];
	return some->row;
}

/* Writes the name of the group that a row belongs to. */
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

/* Prints a line for each group, by name. names and ratios have room for an entry of each row. */
static void print_groups(FILE *out, const struct some_rows *some, group_fn *group, char (*names)[GROUP],
                         double *ratios, enum report_format format)
{
	int n_names = 0;

	for (int i = 0; i < some->n; i++)
		group(some->row[i], names[i]);
	qsort(names, (size_t)some->n, GROUP, by_name);
	for (int i = 0; i < some->n; i++)
		if (i == 0 || strcmp(names[n_names - 1], names[i]))
			memmove(names[n_names++], names[i], GROUP);
	for (int k = 0; k < n_names; k++) {
		char name[GROUP];
		int n = 0;

		for (int i = 0; i < some->n; i++) {
			group(some->row[i], name);
			if (!strcmp(name, names[k]))
				ratios[n++] = some->row[i]->ratio.median;
		}
		print_group(out, names[k], ratios, n, format);
	}
}

static void print_title(FILE *out, const struct report *report, const char *isa, enum report_format format)
{
	fprintf(out, "\nratios to %s%s%s%s\n", report->base, isa ? ", " : "", isa ?: "",
	        format == REPORT_MARKDOWN ? "\n" : "");
	table_print_titles(out, columns, N_COLUMNS, format);
}

/* ---- The worst rows --------------------------------------------------------------------------------- */

static int by_ratio(const void *a, const void *b)
{
	const struct report_row *x = *(const struct report_row *const *)a,
				*y = *(const struct report_row *const *)b;

	return (x->ratio.median > y->ratio.median) - (x->ratio.median < y->ratio.median);
}

/* Sorts the rows by ratio. */
static void print_worst(FILE *out, struct some_rows *some)
{
	int n = some->n < WORST ? some->n : WORST;

	qsort(some->row, (size_t)some->n, sizeof(*some->row), by_ratio);
	fprintf(out, "\nthe worst %d:\n", n);
	for (int i = 0; i < n; i++) {
		const struct report_row *row = some->row[i];
		char label[REPORT_LABEL];

		fprintf(out, "%.3f  %s by %s\n", row->ratio.median, report_label(row, label), row->family);
		report_print_explain(out, row);
	}
}

/* ---- Of a report ------------------------------------------------------------------------------------ */

/* isa == NULL selects all rows. */
static void print_distribution(FILE *out, const struct report *report, const char *isa,
                               enum report_format format)
{
	static group_fn *const groups[] = { group_all, group_element, group_family };
	size_t n = (size_t)report->n_rows;
	char(*names)[GROUP] = calloc(n + 1, GROUP);
	double *ratios = calloc(n + 1, sizeof(*ratios));
	struct some_rows some;

	if (some_rows_init(&some, report, isa) && names && ratios && some.n > 0) {
		print_title(out, report, isa, format);
		for (size_t i = 0; i < sizeof(groups) / sizeof(*groups); i++)
			print_groups(out, &some, groups[i], names, ratios, format);
		print_worst(out, &some);
	}
	free(names);
	free(ratios);
	free(some.row);
}

void report_print_distribution(FILE *out, const struct report *report, enum report_format format)
{
	if (report->n_isas < 2)
		print_distribution(out, report, NULL, format);
	else
		for (int i = 0; i < (report_has_candidates(report) ? 1 : report->n_isas); i++)
			print_distribution(out, report, report->isa[i], format);
}

void report_print_isas(FILE *out, const struct report *report, enum report_format format)
{
	double *ratios = report->n_isas > 1 ? calloc((size_t)report->n_rows + 1, sizeof(*ratios)) : NULL;

	if (ratios)
		print_title(out, report, NULL, format);
	for (int i = 0; i < report->n_isas && ratios; i++) {
		struct some_rows some;

		if (some_rows_init(&some, report, report->isa[i]) && some.n > 0) {
			for (int k = 0; k < some.n; k++)
				ratios[k] = some.row[k]->ratio.median;
			print_group(out, report->isa[i], ratios, some.n, format);
		}
		free(some.row);
	}
	free(ratios);
}
