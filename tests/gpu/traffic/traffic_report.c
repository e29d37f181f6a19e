/* SPDX-License-Identifier: Apache-2.0 */
/* Computes ratios and shares, and describes rows in words. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "traffic.h"

#define MOST_THREADS 2048 /* most resident threads of a multiprocessor */
#define MOST_SHARED  (228 << 10)
#define OF_SYSTEM    1024 /* bytes of shared memory that the system takes of each block */
#define WORST        10

static const char *const route_names[STRATEGY_COUNT] = {
	[STRATEGY_none] = "none",           [STRATEGY_memcpy] = "memcpy",
	[STRATEGY_bulk] = "bulk",           [STRATEGY_copy] = "copy",
	[STRATEGY_transpose] = "transpose", [STRATEGY_rows] = "rows",
	[STRATEGY_short] = "short",         [STRATEGY_tiles] = "tiles",
	[STRATEGY_gather] = "gather",       [STRATEGY_channels] = "channels",
	[STRATEGY_permute] = "permute",     [STRATEGY_elements] = "elements",
	[STRATEGY_convert] = "convert",
};

static const char *const instruction_names[SOFTGPU_INSTRUCTIONS] = {
#define INSTRUCTION(id, name) [SOFTGPU_##id] = name,
#include "tests/softgpu/counts.def"
};

static double moved(const struct traffic_row *row)
{
	return (double)(softgpu_sum(&row->counts.read) + softgpu_sum(&row->counts.written));
}

bool traffic_report_add(struct traffic_report *report, const struct traffic_row *row)
{
	struct traffic_row *rows = realloc(report->rows, ((size_t)report->n + 1) * sizeof *rows);

	if (!rows)
		return false;
	report->rows = rows;
	rows[report->n] = *row;
	rows[report->n].row.what = NULL;
	rows[report->n].ratio = moved(row) / (double)(row->ideal.read + row->ideal.written);
	report->n++;
	return true;
}

void traffic_report_deinit(struct traffic_report *report)
{
	free(report->rows);
	*report = (struct traffic_report){ 0 };
}

double traffic_report_mean(const struct traffic_report *report)
{
	double sum = 0;

	for (int i = 0; i < report->n; i++)
		sum += log(report->rows[i].ratio);
	return exp(sum / report->n);
}

double traffic_report_worst(const struct traffic_report *report)
{
	double worst = 0;

	for (int i = 0; i < report->n; i++)
		worst = fmax(worst, report->rows[i].ratio);
	return worst;
}

/* ---- Text -------------------------------------------------------------------------------------------- */

/* Returns the bytes of loads under way to a multiprocessor that holds as many blocks as fit. */
static uint64_t in_flight(const struct softgpu_counts *counts)
{
	uint64_t by_threads, by_shared;

	if (!counts->threads)
		return 0;
	by_threads = MOST_THREADS / counts->threads;
	by_shared = MOST_SHARED / (counts->shared_bytes + OF_SYSTEM);
	return counts->in_flight * (by_threads < by_shared ? by_threads : by_shared);
}

static double ratio_of(uint64_t n, uint64_t ideal)
{
	return ideal ? (double)n / (double)ideal : n ? INFINITY : 1;
}

/* Prints the row's number and its operation. */
static void print_name(FILE *out, const struct traffic_row *row)
{
	char shape[96];

	fprintf(out, "row %" PRIu64 ": %s %s %s", row->number, row->what, dtype_names[row->row.dtype],
	        tensor_shape_text(row->row.rank, row->row.shape, shape, sizeof shape));
	if (row->row.offset)
		fprintf(out, ", from element %" PRId64, row->row.offset);
	fputc('\n', out);
}

void traffic_row_print(FILE *out, const struct traffic_row *row)
{
	const struct softgpu_counts *counts = &row->counts;

	fprintf(out, "# %6.3f  read %.3f written %.3f  %s%s%s  ", row->ratio,
	        ratio_of(softgpu_sum(&counts->read), row->ideal.read),
	        ratio_of(softgpu_sum(&counts->written), row->ideal.written), route_names[row->strategy],
	        *row->tile ? " " : "", row->tile);
	print_name(out, row);
	fprintf(out,
	        "#         wavefronts %.2f of ideal, %" PRIu64 " KiB in flight a multiprocessor, %" PRIu64
	        " blocks\n",
	        ratio_of(counts->wavefronts, counts->ideal_wavefronts), in_flight(counts) >> 10,
	        counts->blocks);
	fputs("#         instructions:", out);
	for (int i = 0; i < SOFTGPU_INSTRUCTIONS; i++)
		if (counts->instructions[i])
			fprintf(out, " %s %" PRIu64 ";", instruction_names[i], counts->instructions[i]);
	fputs("\n", out);
}

static int by_ratio(const void *a, const void *b)
{
	const double x = ((const struct traffic_row *)a)->ratio, y = ((const struct traffic_row *)b)->ratio;

	return (x < y) - (x > y);
}

/* Prints the share of the rows of that strategy and type, where -1 stands for any. The rows must be
 * sorted. */
static void print_share(FILE *out, const struct traffic_report *report, int strategy, int dtype)
{
	struct traffic_report some = { 0 };
	uint64_t wavefronts = 0, ideal = 0;
	int over = 0;

	for (int i = 0; i < report->n; i++) {
		const struct traffic_row *row = &report->rows[i];

		if ((strategy >= 0 && (int)row->strategy != strategy) ||
		    (dtype >= 0 && (int)row->row.dtype != dtype))
			continue;
		if (!traffic_report_add(&some, row))
			break;
		over += row->ratio > TRAFFIC_WORST;
		wavefronts += row->counts.wavefronts;
		ideal += row->counts.ideal_wavefronts;
	}
	if (some.n > 0)
		fprintf(out, "# %-12s %5d %8.3f %8.3f %8.3f %8.3f %8d %10.2f\n",
		        strategy >= 0 ? route_names[strategy]
		        : dtype >= 0  ? dtype_names[dtype]
		                      : "all",
		        some.n, traffic_report_mean(&some), some.rows[some.n / 2].ratio,
		        some.rows[some.n / 10].ratio, some.rows[0].ratio, over, ratio_of(wavefronts, ideal));
	traffic_report_deinit(&some);
}

void traffic_report_print(FILE *out, struct traffic_report *report)
{
	if (report->n == 0)
		return;
	qsort(report->rows, (size_t)report->n, sizeof *report->rows, by_ratio);
	fprintf(out, "# %-12s %5s %8s %8s %8s %8s %8s %10s\n", "sectors", "rows", "mean", "median", "90 %",
	        "worst", "over", "wavefronts");
	print_share(out, report, -1, -1);
	for (int strategy = 0; strategy < STRATEGY_COUNT; strategy++)
		print_share(out, report, strategy, -1);
	for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
		print_share(out, report, -1, dtype);
	fputs("# the worst:\n", out);
	for (int i = 0; i < report->n && i < WORST; i++)
		traffic_row_print(out, &report->rows[i]);
}
