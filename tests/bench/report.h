/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark reports: figures of each row from the times of its runs, as a table or as JSON, and the
 * difference between two reports.
 *
 * A run times the base (memcpy, the device's copy) and then ours, so the ratio is taken run by run: both met
 * the same machine. GB/s counts bytes read plus bytes written.
 */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "proto/status.h"

#define REPORT_MAX_RUNS 101
#define REPORT_MAX_RANK 8
#define REPORT_LABEL    192
#define REPORT_MAX_ISAS 12
#define REPORT_ISA      16
#define REPORT_CHOSEN                                                                                \
	"chosen"        /* in place of an instruction set: what the engine chooses of its candidates \
	                 */
#define REPORT_HALF 0.5 /* no row may be under it, whatever its bar */

/* The median, and the two values that the middle half of all lies between. */
struct spread {
	double low;
	double median;
	double high;
};

/* The rest of a row's request, for programs that make the same tensors. Counted in elements. */
struct report_request {
	int64_t src_stride[REPORT_MAX_RANK];
	int64_t src_offset; /* from the start of the memory to element [0, ..., 0] */
	int64_t dst_offset; /* the same; the destination is in C order */
	int64_t perm[REPORT_MAX_RANK];
	int64_t before[REPORT_MAX_RANK];
	int64_t after[REPORT_MAX_RANK];
	char mode[16];
	uint64_t value;
	int64_t blocks; /* of a list; 0: the tensor once */
};

struct report_row {
	/* These three name it. */
	char what[64];
	char dtype[16];
	int rank;
	int64_t shape[REPORT_MAX_RANK];
	struct report_request request;
	char isa[REPORT_ISA]; /* the CPU's instruction set; empty: none of its engine */
	char family[24];
	double bar;               /* the least ratio that is asked for */
	double bytes;             /* read plus written, by one call */
	double predicted;         /* ratio, by the cost of the plan predicted to be the fastest; 0: none */
	double predicted_base_ns; /* a call of the base, by the model that turns costs into times; 0: none */
	int n_runs;
	double base_ns[REPORT_MAX_RUNS]; /* a call, in each run */
	double ours_ns[REPORT_MAX_RUNS];
	bool is_tuned; /* ours_ns is of the fastest of several plans that were tried, chosen_ns of the one
	                  predicted to be the fastest, which may be the same; else chosen_ns is not there */
	double chosen_ns[REPORT_MAX_RUNS];
	char explain[2048]; /* lines about the plan; need not be there */

	/* By report_add. */
	struct spread base; /* GB/s */
	struct spread ours;
	struct spread ratio;        /* of ours to base */
	struct spread chosen_ratio; /* the same of chosen_ns; without these, of ours */
};

struct report {
	char machine[160];
	char engine[160];
	char base[24]; /* "memcpy" */
	char date[24];
	char random[64]; /* the options that draw these rows again; empty: they were chosen */
	int threads;     /* of either side; 0: none of the CPU's */
	int n_isas;      /* that rows have, in the order measured; if several, a table names each row's */
	char isa[REPORT_MAX_ISAS][REPORT_ISA];
	int n_rows;
	struct report_row *rows;
};

enum report_format { REPORT_TEXT, REPORT_MARKDOWN, REPORT_JSON };

/* n >= 1 values in any order. */
struct spread spread_of(const double *values, int n);

/* Whether nothing of the one's middle half is in the other's: -1 when after is lower, 1 when it is higher,
 * else 0. */
int spread_change(const struct spread *before, const struct spread *after);

/* Of the ratios of many rows. */
struct distribution {
	double mean;  /* geometric */
	double tenth; /* percentile */
	double median;
	double worst;
};

/* Ascending. */
void sort_values(double *values, int n);

/* n >= 1 positive values, which it sorts. */
struct distribution distribution_of(double *values, int n);

/* "geometric mean 0.85 -> 0.90; ..." */
void distribution_print_change(FILE *out, const struct distribution *before,
                               const struct distribution *after);

/* *report is zeros with what is known of the run; report_deinit frees its rows. */
void report_deinit(struct report *report);

/* Writes "transpose float32 [8191, 8193]" and returns label. */
char *report_label(const struct report_row *row, char label[REPORT_LABEL]);

/* Takes a copy of the row, whose runs must be there, and works out its figures: *ret is it, until the next.
 * INVALID_ARGUMENT: there are too many instruction sets. */
int report_add(struct report *report, const struct report_row *row, const struct report_row **ret,
               struct error *err);

/* The table: its head; each row, in text with what explains its plan if it is under its bar; how many rows
 * reach their bars, by each instruction set, and how well they were predicted. Not for REPORT_JSON. */
void report_print_head(FILE *out, const struct report *report, enum report_format format);
void report_print_row(FILE *out, const struct report *report, const struct report_row *row,
                      enum report_format format);
void report_print_explain(FILE *out, const struct report_row *row);
void report_print_end(FILE *out, const struct report *report, enum report_format format);

/* How the ratios are distributed, by each instruction set; nothing where there are not several. */
void report_print_isas(FILE *out, const struct report *report, enum report_format format);

/* How the ratios are distributed, over all rows, by element size and by family, and the ten worst rows with
 * what explains their plans. All of it for each instruction set; of candidates, for what was chosen. */
void report_print_distribution(FILE *out, const struct report *report, enum report_format format);

/* How far the predictions are from the medians of the plans that they were made for, over all rows that have
 * one; nothing where none has. */
void report_print_predictions(FILE *out, const struct report *report, enum report_format format);

/* How near what the engine chooses comes to the best of its candidates, by the shortest run of each, over the
 * rows that have several; nothing where candidates were not measured. */
bool report_has_candidates(const struct report *report);
void report_print_candidates(FILE *out, const struct report *report, enum report_format format);

/* How much faster rows are by the plans that trials found than by those predicted to be the fastest; nothing
 * where none was tried. */
void report_print_trials(FILE *out, const struct report *report, enum report_format format);

/* The ratio of each row that both have, before and after, and how all of them are distributed. If either has
 * several instruction sets, a row is compared with the one of its own; else the two may differ in it. */
void report_print_change(FILE *out, const struct report *before, const struct report *after,
                         enum report_format format);

/* Whether this build has a library for JSON; without it the two below are UNSUPPORTED. */
bool report_has_json(void);

int report_write_json(FILE *out, const struct report *report, struct error *err);

/* What report_write_json wrote to a file, with or without requests, explanations and predictions, which are
 * younger than the rest; *ret is for report_deinit. INVALID_ARGUMENT, naming the file, when it is not that.
 */
int report_read_json(const char *path, struct report *ret, struct error *err);

#endif
