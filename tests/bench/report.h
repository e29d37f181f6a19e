/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark reports: figures of each row computed from the times of its runs, as a table or as JSON,
 * and the difference between two reports.
 *
 * A run times the base (memcpy, or the device's copy) and then the engine, so each ratio compares two
 * measurements made under the same conditions. GB/s counts bytes read plus bytes written.
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
#define REPORT_HALF 0.5 /* least acceptable ratio of any row, whatever its bar */

/* The median, and the bounds of the middle half of the values. */
struct spread {
	double low;
	double median;
	double high;
};

/* The remaining members of a row's request, for programs that make the same tensors. Counted in elements. */
struct report_request {
	int64_t src_stride[REPORT_MAX_RANK];
	int64_t src_offset; /* elements from the start of the memory to element [0, ..., 0] */
	int64_t dst_offset; /* as src_offset; the destination is in C order */
	int64_t perm[REPORT_MAX_RANK];
	int64_t before[REPORT_MAX_RANK];
	int64_t after[REPORT_MAX_RANK];
	char mode[16];
	uint64_t value;
	int64_t blocks; /* blocks in the list; 0: the tensor is moved once */
};

struct report_row {
	/* what, dtype and shape name the row. */
	char what[64];
	char dtype[16];
	int rank;
	int64_t shape[REPORT_MAX_RANK];
	struct report_request request;
	char isa[REPORT_ISA]; /* the CPU's instruction set; empty if the engine has none */
	char family[24];
	double bar;               /* least acceptable ratio */
	double bytes;             /* bytes read plus bytes written by one call */
	double predicted;         /* predicted ratio of the plan predicted to be fastest; 0: none */
	double predicted_base_ns; /* predicted time of a call of the base; 0: none */
	int n_runs;
	double base_ns[REPORT_MAX_RUNS]; /* time of a call in each run */
	double ours_ns[REPORT_MAX_RUNS];
	/* ours_ns is that of the fastest of several plans tried, and chosen_ns that of the plan predicted to
	 * be the fastest, possibly the same one. If false, chosen_ns is not set. */
	bool is_tuned;
	double chosen_ns[REPORT_MAX_RUNS];
	char explain[2048]; /* lines about the plan; may be empty */

	/* The members from here on are set by report_add. The unit of base is GB/s. */
	struct spread base; /* in GB/s */
	struct spread ours;
	struct spread ratio;        /* ours divided by base */
	struct spread chosen_ratio; /* the same for chosen_ns, or for ours_ns if it is not set */
};

struct report {
	char machine[160];
	char engine[160];
	char base[24]; /* such as "memcpy" */
	char date[24];
	char random[64]; /* the options that draw these rows again; empty if they were not random */
	int threads;     /* threads of either side; 0: the CPU does not move the data */
	/* Instruction sets of the rows, in the order measured; with several, a table names each row's. */
	int n_isas;
	char isa[REPORT_MAX_ISAS][REPORT_ISA];
	int n_rows;
	struct report_row *rows;
};

enum report_format { REPORT_TEXT, REPORT_MARKDOWN, REPORT_JSON };

/* values are n >= 1 numbers in any order. */
struct spread spread_of(const double *values, int n);

/* Compares the middle halves: returns -1 if all of after's is lower, 1 if all of it is higher, 0 if they
 * overlap. */
int spread_change(const struct spread *before, const struct spread *after);

/* Statistics of the ratios of many rows. */
struct distribution {
	double mean;  /* geometric mean */
	double tenth; /* tenth percentile */
	double median;
	double worst;
};

/* Sorts the values in ascending order. */
void sort_values(double *values, int n);

/* values are n >= 1 positive numbers, which the function sorts. */
struct distribution distribution_of(double *values, int n);

/* Prints a line such as "geometric mean 0.85 -> 0.90; ...". */
void distribution_print_change(FILE *out, const struct distribution *before,
                               const struct distribution *after);

/* A report begins as zeros plus what is known of the run. report_deinit frees its rows. */
void report_deinit(struct report *report);

/* Writes a label such as "transpose float32 [8191, 8193]" and returns label. */
char *report_label(const struct report_row *row, char label[REPORT_LABEL]);

/* Adds a copy of the row, whose runs must be set, and computes its figures. *ret points to the copy, until
 * the next call. Returns INVALID_ARGUMENT if there are too many instruction sets. */
int report_add(struct report *report, const struct report_row *row, const struct report_row **ret,
               struct error *err);

/* Print the table: its head; each row, with the explanation of its plan in text if it is below its bar;
 * and how many rows reach their bars and how well they were predicted, by instruction set. Not for
 * REPORT_JSON. */
void report_print_head(FILE *out, const struct report *report, enum report_format format);
void report_print_row(FILE *out, const struct report *report, const struct report_row *row,
                      enum report_format format);
void report_print_explain(FILE *out, const struct report_row *row);
void report_print_end(FILE *out, const struct report *report, enum report_format format);

/* Prints the distribution of the ratios by instruction set; nothing if there is only one. */
void report_print_isas(FILE *out, const struct report *report, enum report_format format);

/* Prints the distribution of the ratios over all rows, by element size and by family, and the ten worst rows
 * with the explanations of their plans, for each instruction set. Of candidates, it covers the chosen one. */
void report_print_distribution(FILE *out, const struct report *report, enum report_format format);

/* Prints how far the predicted times are from the measured medians, over all rows with a prediction; nothing
 * if there is none. */
void report_print_predictions(FILE *out, const struct report *report, enum report_format format);

/* report_has_candidates returns whether candidates were measured. report_print_candidates prints how near the
 * engine's choice comes to the best of them, by the shortest run of each, over the rows with several. */
bool report_has_candidates(const struct report *report);
void report_print_candidates(FILE *out, const struct report *report, enum report_format format);

/* Prints how much faster rows are with the plans that trials found than with those predicted to be the
 * fastest; nothing if none was tried. */
void report_print_trials(FILE *out, const struct report *report, enum report_format format);

/* Prints the ratio before and after of each row that both reports have, and the distribution of all. If
 * either report has several instruction sets, rows are compared for equal sets; otherwise the sets may
 * differ. */
void report_print_change(FILE *out, const struct report *before, const struct report *after,
                         enum report_format format);

/* Returns whether this build has a JSON library; otherwise the two functions below return UNSUPPORTED. */
bool report_has_json(void);

int report_write_json(FILE *out, const struct report *report, struct error *err);

/* Reads a file that report_write_json wrote, possibly by an older version without requests, explanations and
 * predictions. *ret is for report_deinit. Returns INVALID_ARGUMENT, with an error that names the file, if it
 * is no such file. */
int report_read_json(const char *path, struct report *ret, struct error *err);

#endif
