/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the predictions of the rows with the measurements. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CLOSE 0.2 /* relative error that counts as small */

/* Prints statistics of n relative errors, which it sorts. */
static void print_errors(FILE *out, const char *what, double *errors, int n)
{
	int close = 0;

	if (n == 0)
		return;
	sort_values(errors, n);
	while (close < n && errors[close] <= CLOSE)
		close++;
	fprintf(
	    out,
	    "%s within %.0f %% of the prediction: %d of %d; error: median %.1f %%, nine of ten rows at most "
	    "%.1f %%, worst %.1f %%\n",
	    what, 100 * CLOSE, close, n, 100 * errors[(n - 1) / 2], 100 * errors[(9 * n - 1) / 10],
	    100 * errors[n - 1]);
}

void report_print_predictions(FILE *out, const struct report *report, enum report_format format)
{
	double *ours = calloc(2 * (size_t)report->n_rows + 1, sizeof(*ours)), *base = ours + report->n_rows;
	int n_ours = 0, n_base = 0;

	for (int i = 0; ours && i < report->n_rows; i++) {
		const struct report_row *row = &report->rows[i];

		/* This is the error of the predicted time, the inverse of the ratio. */
		if (row->predicted > 0)
			ours[n_ours++] = fabs(row->chosen_ratio.median / row->predicted - 1);
		if (row->predicted_base_ns > 0)
			base[n_base++] = fabs(row->predicted_base_ns * row->base.median / row->bytes - 1);
	}
	if (n_ours + n_base > 0 && format == REPORT_MARKDOWN)
		fputs("\n", out);
	if (ours) {
		print_errors(out, "ratios", ours, n_ours);
		print_errors(out, report->base, base, n_base);
	}
	free(ours);
}

void report_print_trials(FILE *out, const struct report *report, enum report_format format)
{
	double *before = calloc(2 * (size_t)report->n_rows + 1, sizeof(*before)),
	       *after = before + report->n_rows;
	int n = 0, improved = 0;

	for (int i = 0; before && i < report->n_rows; i++) {
		const struct report_row *row = &report->rows[i];

		before[i] = row->chosen_ratio.median;
		after[i] = row->ratio.median;
		n += row->is_tuned;
		improved += row->is_tuned && memcmp(row->ours_ns, row->chosen_ns, sizeof(row->ours_ns)) != 0;
	}
	if (n > 0) {
		struct distribution a = distribution_of(before, report->n_rows),
				    b = distribution_of(after, report->n_rows);

		fprintf(
		    out,
		    "%splans tried for %d of %d rows; another than the one predicted won for %d; all rows: ",
		    format == REPORT_MARKDOWN ? "\n" : "", n, report->n_rows, improved);
		distribution_print_change(out, &a, &b);
	}
	free(before);
}
