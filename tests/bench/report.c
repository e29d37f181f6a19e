/* SPDX-License-Identifier: Apache-2.0 */
/* Computes figures and prints tables. */
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

static int add_isa(struct report *report, const char *isa, struct error *err)
{
	for (int i = 0; i < report->n_isas; i++)
		if (!strcmp(report->isa[i], isa))
			return 0;
	if (report->n_isas == REPORT_MAX_ISAS)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: more than %d instruction sets", isa,
		                 REPORT_MAX_ISAS);
	snprintf(report->isa[report->n_isas++], REPORT_ISA, "%s", isa);
	return 0;
}

int report_add(struct report *report, const struct report_row *row, const struct report_row **ret,
               struct error *err)
{
	struct report_row *rows;
	int r = *row->isa ? add_isa(report, row->isa, err) : 0;

	if (r < 0)
		return r;
	rows = realloc(report->rows, ((size_t)report->n_rows + 1) * sizeof(*rows));
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

enum { ISA, WHAT, TYPE, SHAPE, FAMILY, BASE, OURS, RATIO, SPREAD, PREDICTED, BAR, VERDICT, N_COLUMNS };

static const struct table_column row_columns[N_COLUMNS] = {
	[ISA] = { "isa", -13 },           [WHAT] = { "what", -32 },     [TYPE] = { "type", -10 },
	[SHAPE] = { "shape", -24 },       [FAMILY] = { "family", -14 }, [BASE] = { "", 8 },
	[OURS] = { "tmad", 8 },           [RATIO] = { "ratio", 6 },     [SPREAD] = { "spread", -11 },
	[PREDICTED] = { "predicted", 9 }, [BAR] = { "bar", -4 },        [VERDICT] = { "", 0 },
};

static const char *verdict(const struct report_row *row)
{
	return row->ratio.median < REPORT_HALF ? "under half" : row->ratio.median < row->bar ? "under" : "";
}

/* Returns how many leading columns to omit from a table that begins with the instruction set. */
static int left_out(const struct report *report)
{
	return report->n_isas > 1 ? 0 : 1;
}

void report_print_head(FILE *out, const struct report *report, enum report_format format)
{
	struct table_column columns[N_COLUMNS];
	int first = left_out(report);

	memcpy(columns, row_columns, sizeof(columns));
	columns[BASE].title = report->base;
	print_run(out, report);
	fputs("GB/s, bytes read plus written; medians, and between what the middle half of the ratios lies\n",
	      out);
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	table_print_titles(out, columns + first, N_COLUMNS - first, format);
}

void report_print_row(FILE *out, const struct report *report, const struct report_row *row,
                      enum report_format format)
{
	char cells[N_COLUMNS][TABLE_CELL];
	int first = left_out(report);

	snprintf(cells[ISA], TABLE_CELL, "%s", row->isa);
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
	table_print_cells(out, row_columns + first, N_COLUMNS - first, cells + first, format);
	if (format == REPORT_TEXT && *verdict(row))
		report_print_explain(out, row);
}

void report_print_explain(FILE *out, const struct report_row *row)
{
	for (const char *line = row->explain; *line; line += strcspn(line, "\n"), line += *line == '\n')
		fprintf(out, "    %.*s\n", (int)strcspn(line, "\n"), line);
}

/* isa == NULL selects all rows. */
static void print_reached(FILE *out, const struct report *report, const char *isa)
{
	int under = 0, half = 0, n = 0;

	for (int i = 0; i < report->n_rows; i++) {
		const struct report_row *row = &report->rows[i];

		if (isa && strcmp(row->isa, isa))
			continue;
		under += row->ratio.median < row->bar;
		half += row->ratio.median < REPORT_HALF;
		n++;
	}
	fprintf(out, "%s%srows that reach their bar: %d of %d; under %.1f: %d\n", isa ?: "", isa ? ": " : "",
	        n - under, n, REPORT_HALF, half);
}

void report_print_end(FILE *out, const struct report *report, enum report_format format)
{
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	if (report->n_isas < 2)
		print_reached(out, report, NULL);
	else
		for (int i = 0; i < report->n_isas; i++)
			print_reached(out, report, report->isa[i]);
	report_print_isas(out, report, format);
	report_print_predictions(out, report, format);
	report_print_trials(out, report, format);
}

/* ---- Before and after ------------------------------------------------------------------------------- */

enum {
	CHANGE_ISA,
	CHANGE_WHAT,
	CHANGE_TYPE,
	CHANGE_SHAPE,
	CHANGE_BEFORE,
	CHANGE_AFTER,
	CHANGE,
	CHANGE_WORD,
	N_CHANGE
};

static const struct table_column change_columns[N_CHANGE] = {
	[CHANGE_ISA] = { "isa", -6 },        [CHANGE_WHAT] = { "what", -32 },
	[CHANGE_TYPE] = { "type", -10 },     [CHANGE_SHAPE] = { "shape", -24 },
	[CHANGE_BEFORE] = { "before", -17 }, [CHANGE_AFTER] = { "after", -17 },
	[CHANGE] = { "change", 8 },          [CHANGE_WORD] = { "", 0 },
};

static const struct report_row *find(const struct report *report, const struct report_row *like, bool by_isa)
{
	char wanted[REPORT_LABEL], label[REPORT_LABEL];

	report_label(like, wanted);
	for (int i = 0; i < report->n_rows; i++)
		if (!strcmp(report_label(&report->rows[i], label), wanted) &&
		    !(by_isa && strcmp(report->rows[i].isa, like->isa)))
			return &report->rows[i];
	return NULL;
}

static void print_change(FILE *out, const struct report_row *was, const struct report_row *now, int change,
                         int first, enum report_format format)
{
	static const char *const words[] = { "worse", "", "better" };
	const struct spread *a = &was->ratio, *b = &now->ratio;
	char cells[N_CHANGE][TABLE_CELL];

	snprintf(cells[CHANGE_ISA], TABLE_CELL, "%s", now->isa);
	snprintf(cells[CHANGE_WHAT], TABLE_CELL, "%s", now->what);
	snprintf(cells[CHANGE_TYPE], TABLE_CELL, "%s", now->dtype);
	tensor_shape_text(now->rank, now->shape, cells[CHANGE_SHAPE], TABLE_CELL);
	snprintf(cells[CHANGE_BEFORE], TABLE_CELL, "%.2f (%.2f..%.2f)", a->median, a->low, a->high);
	snprintf(cells[CHANGE_AFTER], TABLE_CELL, "%.2f (%.2f..%.2f)", b->median, b->low, b->high);
	snprintf(cells[CHANGE], TABLE_CELL, "%+.1f %%", 100 * (b->median / a->median - 1));
	snprintf(cells[CHANGE_WORD], TABLE_CELL, "%s", words[change + 1]);
	table_print_cells(out, change_columns + first, N_CHANGE - first, cells + first, format);
}

/* Covers the rows that are in both reports; isa == NULL selects all of them. */
static void print_distributions(FILE *out, const struct report *after, const struct report_row *const *was,
                                const char *isa)
{
	double *ratio = calloc((size_t)after->n_rows + 1, 2 * sizeof(*ratio)),
	       *ratio_after = ratio + after->n_rows;
	int n = 0;

	for (int i = 0; i < after->n_rows && ratio; i++) {
		if (!was[i] || (isa && strcmp(after->rows[i].isa, isa)))
			continue;
		ratio[n] = was[i]->ratio.median;
		ratio_after[n++] = after->rows[i].ratio.median;
	}
	if (n > 0) {
		struct distribution a = distribution_of(ratio, n), b = distribution_of(ratio_after, n);

		fprintf(out, "%s%s", isa ?: "", isa ? ": " : "");
		distribution_print_change(out, &a, &b);
	}
	free(ratio);
}

void report_print_change(FILE *out, const struct report *before, const struct report *after,
                         enum report_format format)
{
	const struct report_row **was = calloc((size_t)after->n_rows + 1, sizeof(*was));
	bool by_isa = before->n_isas > 1 || after->n_isas > 1;
	int count[3] = { 0 }, first = by_isa ? 0 : 1;

	if (!was)
		return;
	fputs("before: ", out);
	print_run(out, before);
	fputs("after:  ", out);
	print_run(out, after);
	if (format == REPORT_MARKDOWN)
		fputs("\n", out);
	table_print_titles(out, change_columns + first, N_CHANGE - first, format);
	for (int i = 0; i < after->n_rows; i++) {
		const struct report_row *now = &after->rows[i];

		was[i] = find(before, now, by_isa);
		if (!was[i])
			continue;
		int change = spread_change(&was[i]->ratio, &now->ratio);
		print_change(out, was[i], now, change, first, format);
		count[change + 1]++;
	}
	fprintf(out, "%srows in both: %d; better: %d; worse: %d; the others are within their spreads\n",
	        format == REPORT_MARKDOWN ? "\n" : "", count[0] + count[1] + count[2], count[2], count[0]);
	if (!by_isa)
		print_distributions(out, after, was, NULL);
	else
		for (int i = 0; i < after->n_isas; i++)
			print_distributions(out, after, was, after->isa[i]);
	free(was);
}
