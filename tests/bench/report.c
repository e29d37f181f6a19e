/* SPDX-License-Identifier: Apache-2.0 */
/* Figures and tables. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "proto/tensor.h"
#include "table.h"

/* ---- Figures ---------------------------------------------------------------------------------------- */

struct spread spread_of(const double *values, int n)
{
	double sorted[REPORT_MAX_RUNS];
	int cut = n / 4;

	memcpy(sorted, values, (size_t)n * sizeof(*values));
	sort_values(sorted, n);
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
	double base[REPORT_MAX_RUNS], ours[REPORT_MAX_RUNS], ratio[REPORT_MAX_RUNS],
	    chosen_ratio[REPORT_MAX_RUNS];

	for (int i = 0; i < row->n_runs; i++) {
		base[i] = row->bytes / row->base_ns[i];
		ours[i] = row->bytes / row->ours_ns[i];
		ratio[i] = row->base_ns[i] / row->ours_ns[i];
		chosen_ratio[i] = row->is_tuned ? row->base_ns[i] / row->chosen_ns[i] : ratio[i];
	}
	row->base = spread_of(base, row->n_runs);
	row->ours = spread_of(ours, row->n_runs);
	row->ratio = spread_of(ratio, row->n_runs);
	row->chosen_ratio = spread_of(chosen_ratio, row->n_runs);
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

/* ---- One report ------------------------------------------------------------------------------------- */

static void print_run(FILE *out, const struct report *report)
{
	fprintf(out, "%s; %s; %s%s%s\n", report->date, report->machine, report->engine,
	        *report->random ? "; " : "", report->random);
}

enum { WHAT, TYPE, SHAPE, FAMILY, BASE, OURS, RATIO, SPREAD, PREDICTED, BAR, VERDICT, N_COLUMNS };

static const struct table_column row_columns[N_COLUMNS] = {
	[WHAT] = { "what", -32 },     [TYPE] = { "type", -10 },     [SHAPE] = { "shape", -24 },
	[FAMILY] = { "family", -14 }, [BASE] = { "", 8 },           [OURS] = { "tmad", 8 },
	[RATIO] = { "ratio", 6 },     [SPREAD] = { "spread", -11 }, [PREDICTED] = { "predicted", 9 },
	[BAR] = { "bar", -4 },        [VERDICT] = { "", 0 },
};

static const char *verdict(const struct report_row *row)
{
	return row->ratio.median < REPORT_HALF ? "under half" : row->ratio.median < row->bar ? "under" : "";
}

void report_print_head(FILE *out, const struct report *report, enum report_format format)
{
	struct table_column columns[N_COLUMNS];

	memcpy(columns, row_columns, sizeof(columns));
	columns[BASE].title = report->base;
	print_run(out, report);
	fputs("GB/s, bytes read plus written; medians, and between what the middle half of the ratios lies\n",
	      out);
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	table_print_titles(out, columns, N_COLUMNS, format);
}

void report_print_row(FILE *out, const struct report_row *row, enum report_format format)
{
	char cells[N_COLUMNS][TABLE_CELL];

	snprintf(cells[WHAT], TABLE_CELL, "%s", row->what);
	snprintf(cells[TYPE], TABLE_CELL, "%s", row->dtype);
	tensor_shape_text(row->rank, row->shape, cells[SHAPE], TABLE_CELL);
	snprintf(cells[FAMILY], TABLE_CELL, "%s", row->family);
	snprintf(cells[BASE], TABLE_CELL, "%.1f", row->base.median);
	snprintf(cells[OURS], TABLE_CELL, "%.1f", row->ours.median);
	snprintf(cells[RATIO], TABLE_CELL, "%.2f", row->ratio.median);
	snprintf(cells[SPREAD], TABLE_CELL, "%.2f..%.2f", row->ratio.low, row->ratio.high);
	snprintf(cells[PREDICTED], TABLE_CELL, row->predicted > 0 ? "%.2f" : "-", row->predicted);
	snprintf(cells[BAR], TABLE_CELL, "%.2f", row->bar);
	snprintf(cells[VERDICT], TABLE_CELL, "%s", verdict(row));
	table_print_cells(out, row_columns, N_COLUMNS, cells, format);
	if (format == REPORT_TEXT && *verdict(row))
		report_print_explain(out, row);
}

void report_print_explain(FILE *out, const struct report_row *row)
{
	for (const char *line = row->explain; *line; line += strcspn(line, "\n"), line += *line == '\n')
		fprintf(out, "    %.*s\n", (int)strcspn(line, "\n"), line);
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
	report_print_predictions(out, report, format);
	report_print_trials(out, report, format);
}

/* ---- Before and after ------------------------------------------------------------------------------- */

enum { CHANGE_WHAT, CHANGE_TYPE, CHANGE_SHAPE, CHANGE_BEFORE, CHANGE_AFTER, CHANGE, CHANGE_WORD, N_CHANGE };

static const struct table_column change_columns[N_CHANGE] = {
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
	char cells[N_CHANGE][TABLE_CELL];

	snprintf(cells[CHANGE_WHAT], TABLE_CELL, "%s", now->what);
	snprintf(cells[CHANGE_TYPE], TABLE_CELL, "%s", now->dtype);
	tensor_shape_text(now->rank, now->shape, cells[CHANGE_SHAPE], TABLE_CELL);
	snprintf(cells[CHANGE_BEFORE], TABLE_CELL, "%.2f (%.2f..%.2f)", a->median, a->low, a->high);
	snprintf(cells[CHANGE_AFTER], TABLE_CELL, "%.2f (%.2f..%.2f)", b->median, b->low, b->high);
	snprintf(cells[CHANGE], TABLE_CELL, "%+.1f %%", 100 * (b->median / a->median - 1));
	snprintf(cells[CHANGE_WORD], TABLE_CELL, "%s", words[change + 1]);
	table_print_cells(out, change_columns, N_CHANGE, cells, format);
}

void report_print_change(FILE *out, const struct report *before, const struct report *after,
                         enum report_format format)
{
	double *ratio = calloc((size_t)after->n_rows + 1, 2 * sizeof(*ratio)),
	       *ratio_after = ratio + after->n_rows;
	int count[3] = { 0 }, n = 0;

	fputs("before: ", out);
	print_run(out, before);
	fputs("after:  ", out);
	print_run(out, after);
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	table_print_titles(out, change_columns, N_CHANGE, format);
	for (int i = 0; i < after->n_rows; i++) {
		const struct report_row *now = &after->rows[i], *was = find(before, now);

		if (!was)
			continue;
		int change = spread_change(&was->ratio, &now->ratio);
		print_change(out, was, now, change, format);
		count[change + 1]++;
		if (ratio) {
			ratio[n] = was->ratio.median;
			ratio_after[n] = now->ratio.median;
		}
		n++;
	}
	fprintf(out, "%srows in both: %d; better: %d; worse: %d; the others are within their spreads\n",
	        format == REPORT_MARKDOWN ? "\n" : "", n, count[2], count[0]);
	if (ratio && n > 0) {
		struct distribution a = distribution_of(ratio, n), b = distribution_of(ratio_after, n);

		distribution_print_change(out, &a, &b);
	}
	free(ratio);
}
