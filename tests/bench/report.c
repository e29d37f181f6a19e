/* SPDX-License-Identifier: Apache-2.0 */
/* Figures and tables. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/tensor.h"

/* ---- Figures ---------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct spread spread_of(const double *values, int n)
{
	double sorted[REPORT_MAX_RUNS];
	int cut = n / 4;

	memcpy(sorted, values, (size_t)n * sizeof(*values));
	qsort(sorted, (size_t)n, sizeof(*sorted), by_value);
	return (struct spread){ .low = sorted[cut],
		                .median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
		                .high = sorted[n - 1 - cut] };
}

int spread_change(const struct spread *before, const struct spread *after)
{
	return after->high < before->low ? -1 : after->low > before->high ? 1 : 0;
}

char *report_label(const struct report_row *row, char label[REPORT_LABEL])
{
	char shape[96];

	snprintf(label, REPORT_LABEL, "%s %s %s", row->what, row->dtype,
	         tensor_shape_text(row->rank, row->shape, shape, sizeof(shape)));
	return label;
}

void report_deinit(struct report *report)
{
	free(report->rows);
	report->rows = NULL;
	report->n_rows = 0;
}

static void work_out(struct report_row *row)
{
	double base[REPORT_MAX_RUNS], ours[REPORT_MAX_RUNS], ratio[REPORT_MAX_RUNS];

	for (int i = 0; i < row->n_runs; i++) {
		base[i] = row->bytes / row->base_ns[i];
		ours[i] = row->bytes / row->ours_ns[i];
		ratio[i] = row->base_ns[i] / row->ours_ns[i];
	}
	row->base = spread_of(base, row->n_runs);
	row->ours = spread_of(ours, row->n_runs);
	row->ratio = spread_of(ratio, row->n_runs);
}

int report_add(struct report *report, const struct report_row *row, const struct report_row **ret,
               struct error *err)
{
	struct report_row *rows = realloc(report->rows, ((size_t)report->n_rows + 1) * sizeof(*rows));

	if (!rows)
		return error_set(err, STATUS_NO_MEMORY, "out of memory");
	report->rows = rows;
	rows[report->n_rows] = *row;
	work_out(&rows[report->n_rows]);
	*ret = &rows[report->n_rows++];
	return 0;
}

/* ---- Tables ----------------------------------------------------------------------------------------- */

#define CELL 64

struct column {
	const char *title;
	int width; /* of text; negative: from the left */
};

/* The last cell is not filled up. */
static void print_cells(FILE *out, const struct column *columns, int n, char cells[][CELL],
                        enum report_format format)
{
	if (format == REPORT_MARKDOWN) {
		for (int i = 0; i < n; i++)
			fprintf(out, "| %s ", cells[i]);
		fputs("|\n", out);
	} else {
		for (int i = 0; i < n - 1; i++)
			fprintf(out, "%*s ", columns[i].width, cells[i]);
		fprintf(out, "%s\n", cells[n - 1]);
	}
	fflush(out);
}

static void print_titles(FILE *out, const struct column *columns, int n, enum report_format format)
{
	char cells[16][CELL];

	for (int i = 0; i < n; i++)
		snprintf(cells[i], CELL, "%s", columns[i].title);
	print_cells(out, columns, n, cells, format);
	if (format == REPORT_MARKDOWN) {
		for (int i = 0; i < n; i++)
			fputs("|---", out);
		fputs("|\n", out);
	}
}

static void print_run(FILE *out, const struct report *report)
{
	fprintf(out, "%s; %s; %s\n", report->date, report->machine, report->engine);
}

/* ---- One report ------------------------------------------------------------------------------------- */

enum { WHAT, TYPE, SHAPE, FAMILY, BASE, OURS, RATIO, SPREAD, BAR, VERDICT, N_COLUMNS };

static const struct column row_columns[N_COLUMNS] = {
	[WHAT] = { "what", -32 },     [TYPE] = { "type", -10 },     [SHAPE] = { "shape", -24 },
	[FAMILY] = { "family", -14 }, [BASE] = { "", 8 },           [OURS] = { "tmad", 8 },
	[RATIO] = { "ratio", 6 },     [SPREAD] = { "spread", -11 }, [BAR] = { "bar", -4 },
	[VERDICT] = { "", 0 },
};

static const char *verdict(const struct report_row *row)
{
	return row->ratio.median < REPORT_HALF ? "under half" : row->ratio.median < row->bar ? "under" : "";
}

void report_print_head(FILE *out, const struct report *report, enum report_format format)
{
	struct column columns[N_COLUMNS];

	memcpy(columns, row_columns, sizeof(columns));
	columns[BASE].title = report->base;
	print_run(out, report);
	fputs("GB/s, bytes read plus written; medians, and between what the middle half of the ratios lies\n",
	      out);
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	print_titles(out, columns, N_COLUMNS, format);
}

void report_print_row(FILE *out, const struct report_row *row, enum report_format format)
{
	char cells[N_COLUMNS][CELL];

	snprintf(cells[WHAT], CELL, "%s", row->what);
	snprintf(cells[TYPE], CELL, "%s", row->dtype);
	tensor_shape_text(row->rank, row->shape, cells[SHAPE], CELL);
	snprintf(cells[FAMILY], CELL, "%s", row->family);
	snprintf(cells[BASE], CELL, "%.1f", row->base.median);
	snprintf(cells[OURS], CELL, "%.1f", row->ours.median);
	snprintf(cells[RATIO], CELL, "%.2f", row->ratio.median);
	snprintf(cells[SPREAD], CELL, "%.2f..%.2f", row->ratio.low, row->ratio.high);
	snprintf(cells[BAR], CELL, "%.2f", row->bar);
	snprintf(cells[VERDICT], CELL, "%s", verdict(row));
	print_cells(out, row_columns, N_COLUMNS, cells, format);
	if (format == REPORT_TEXT)
		for (const char *note = row->notes; *note; note += strcspn(note, "\n"), note += *note == '\n')
			fprintf(out, "    %.*s\n", (int)strcspn(note, "\n"), note);
}

void report_print_end(FILE *out, const struct report *report, enum report_format format)
{
	int under = 0, half = 0;

	for (int i = 0; i < report->n_rows; i++) {
		under += report->rows[i].ratio.median < report->rows[i].bar;
		half += report->rows[i].ratio.median < REPORT_HALF;
	}
	fprintf(out, "%srows that reach their bar: %d of %d; under %.1f: %d\n",
	        format == REPORT_MARKDOWN ? "\n" : "", report->n_rows - under, report->n_rows, REPORT_HALF,
	        half);
}

/* ---- Distribution ------------------------------------------------------------------------------------ */

static int by_ratio(const void *a, const void *b)
{
	double x = ((const struct report_row *)a)->ratio.median,
	       y = ((const struct report_row *)b)->ratio.median;

	return (x > y) - (x < y);
}

/* Of the rows of this type and family; NULL: any. They are sorted. */
static void print_share(FILE *out, const struct report *report, const char *dtype, const char *family)
{
	double *ratio = calloc((size_t)report->n_rows, sizeof *ratio), sum = 0;
	int n = 0;

	for (int i = 0; ratio && i < report->n_rows; i++) {
		const struct report_row *row = &report->rows[i];

		if ((dtype && strcmp(dtype, row->dtype)) || (family && strcmp(family, row->family)))
			continue;
		ratio[n++] = row->ratio.median;
		sum += log(row->ratio.median);
	}
	if (n > 0)
		fprintf(out, "%-16s %5d %8.3f %8.3f %8.3f %8.3f\n",
		        dtype    ? dtype
		        : family ? family
		                 : "all",
		        n, exp(sum / n), ratio[n / 10], ratio[n / 2], ratio[0]);
	free(ratio);
}

void report_print_distribution(FILE *out, struct report *report)
{
	if (report->n_rows == 0)
		return;
	qsort(report->rows, (size_t)report->n_rows, sizeof *report->rows, by_ratio);
	fprintf(out, "\n%-16s %5s %8s %8s %8s %8s\n", "", "rows", "mean", "10 %", "median", "worst");
	print_share(out, report, NULL, NULL);
	for (int i = 0; i < report->n_rows; i++) {
		bool new_dtype = true, new_family = true;

		for (int k = 0; k < i; k++) {
			new_dtype = new_dtype && strcmp(report->rows[k].dtype, report->rows[i].dtype);
			new_family = new_family && strcmp(report->rows[k].family, report->rows[i].family);
		}
		if (new_dtype)
			print_share(out, report, report->rows[i].dtype, NULL);
		if (new_family)
			print_share(out, report, NULL, report->rows[i].family);
	}
	fputs("\nthe worst:\n", out);
	for (int i = 0; i < report->n_rows && i < 10; i++)
		report_print_row(out, &report->rows[i], REPORT_TEXT);
}

/* ---- Before and after ------------------------------------------------------------------------------- */

enum { CHANGE_WHAT, CHANGE_TYPE, CHANGE_SHAPE, CHANGE_BEFORE, CHANGE_AFTER, CHANGE, CHANGE_WORD, N_CHANGE };

static const struct column change_columns[N_CHANGE] = {
	[CHANGE_WHAT] = { "what", -32 },   [CHANGE_TYPE] = { "type", -10 },
	[CHANGE_SHAPE] = { "shape", -24 }, [CHANGE_BEFORE] = { "before", -17 },
	[CHANGE_AFTER] = { "after", -17 }, [CHANGE] = { "change", 8 },
	[CHANGE_WORD] = { "", 0 },
};

static const struct report_row *find(const struct report *report, const struct report_row *like)
{
	char wanted[REPORT_LABEL], label[REPORT_LABEL];

	report_label(like, wanted);
	for (int i = 0; i < report->n_rows; i++)
		if (!strcmp(report_label(&report->rows[i], label), wanted))
			return &report->rows[i];
	return NULL;
}

static void print_change(FILE *out, const struct report_row *was, const struct report_row *now, int change,
                         enum report_format format)
{
	static const char *const words[] = { "worse", "", "better" };
	const struct spread *a = &was->ratio, *b = &now->ratio;
	char cells[N_CHANGE][CELL];

	snprintf(cells[CHANGE_WHAT], CELL, "%s", now->what);
	snprintf(cells[CHANGE_TYPE], CELL, "%s", now->dtype);
	tensor_shape_text(now->rank, now->shape, cells[CHANGE_SHAPE], CELL);
	snprintf(cells[CHANGE_BEFORE], CELL, "%.2f (%.2f..%.2f)", a->median, a->low, a->high);
	snprintf(cells[CHANGE_AFTER], CELL, "%.2f (%.2f..%.2f)", b->median, b->low, b->high);
	snprintf(cells[CHANGE], CELL, "%+.1f %%", 100 * (b->median / a->median - 1));
	snprintf(cells[CHANGE_WORD], CELL, "%s", words[change + 1]);
	print_cells(out, change_columns, N_CHANGE, cells, format);
}

void report_print_change(FILE *out, const struct report *before, const struct report *after,
                         enum report_format format)
{
	int count[3] = { 0 }, n = 0;

	fputs("before: ", out);
	print_run(out, before);
	fputs("after:  ", out);
	print_run(out, after);
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	print_titles(out, change_columns, N_CHANGE, format);
	for (int i = 0; i < after->n_rows; i++) {
		const struct report_row *now = &after->rows[i], *was = find(before, now);

		if (!was)
			continue;
		int change = spread_change(&was->ratio, &now->ratio);
		print_change(out, was, now, change, format);
		count[change + 1]++;
		n++;
	}
	fprintf(out, "%srows in both: %d; better: %d; worse: %d; the others are within their spreads\n",
	        format == REPORT_MARKDOWN ? "\n" : "", n, count[2], count[0]);
}
