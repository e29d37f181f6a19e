/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the engine's choice among its candidates with the best of them. */
#include "report.h"

#include <math.h>
#include <string.h>

#define NEAR 1.1 /* times the best candidate's time; a choice up to this is near */

static double shortest(const struct report_row *row)
{
	double ret = row->ours_ns[0];

	for (int i = 1; i < row->n_runs; i++)
		ret = fmin(ret, row->ours_ns[i]);
	return ret;
}

/* lines are those of one row, the first one of which was chosen. Returns the best; NULL if all are moved
 * alike. */
static const struct report_row *best_of(const struct report_row *lines, int n)
{
	const struct report_row *best = lines;
	bool several = false;

	for (int i = 1; i < n; i++) {
		several =
		    several || memcmp(lines[i].ours_ns, lines[0].ours_ns, sizeof(lines[i].ours_ns)) != 0;
		if (shortest(&lines[i]) < shortest(best))
			best = &lines[i];
	}
	return several ? best : NULL;
}

bool report_has_candidates(const struct report *report)
{
	return report->n_isas > 1 && !strcmp(report->isa[0], REPORT_CHOSEN);
}

void report_print_candidates(FILE *out, const struct report *report, enum report_format format)
{
	int n = 0, near = 0;
	double sum = 0;

	if (!report_has_candidates(report))
		return;
	for (int i = 0; i + report->n_isas <= report->n_rows; i += report->n_isas) {
		const struct report_row *chosen = &report->rows[i], *best = best_of(chosen, report->n_isas);
		char label[REPORT_LABEL];
		double times;

		if (!best)
			continue;
		times = shortest(chosen) / shortest(best);
		n++;
		near += times <= NEAR;
		sum += log(times);
		if (times > NEAR)
			fprintf(out, "%s%s: %.2f times the time by %s\n",
			        format == REPORT_MARKDOWN ? "\n" : "", report_label(chosen, label), times,
			        best->isa);
	}
	if (n > 0)
		fprintf(
		    out,
		    "%schosen within %.0f %% of the best candidate: %d of %d rows; geometric mean %.3f times "
		    "its time\n",
		    format == REPORT_MARKDOWN ? "\n" : "", 100 * (NEAR - 1), near, n, exp(sum / n));
}
