/* SPDX-License-Identifier: Apache-2.0 */
/* A random row, the sectors that its kernels moved on the stand-in driver, and the least number that they
 * could have moved. */
#ifndef TESTS_GPU_TRAFFIC_H
#define TESTS_GPU_TRAFFIC_H

#include <stdint.h>
#include <stdio.h>

#include "kernels/cuda/strategy/plan.h"
#include "tests/bench/random_rows.h"
#include "tests/softgpu/counts.h"

/* Limits of the ratio of moved sectors to the least number. */
#define TRAFFIC_MEAN  1.15 /* the geometric mean over all rows */
#define TRAFFIC_WORST 2.0

struct traffic_ideal {
	uint64_t read;    /* sectors of the source that hold a needed element */
	uint64_t written; /* sectors of the destination that hold a written element */
};

struct traffic_row {
	uint64_t number; /* number of the row within the seed */
	struct bench_row row;
	char what[64];
	enum strategy_id strategy;
	char tile[48];
	struct traffic_ideal ideal;
	struct softgpu_counts counts;
	double ratio; /* set by traffic_report_add */
};

/* dst and src are the addresses of elements [0, ..., 0]. Returns false if out of memory. */
bool traffic_ideal_init(struct traffic_ideal *ret, const struct transform_spec *spec, uint64_t dst,
                        uint64_t src);

struct traffic_report {
	struct traffic_row *rows;
	int n;
};

/* Returns false if out of memory. */
bool traffic_report_add(struct traffic_report *report, const struct traffic_row *row);
void traffic_report_deinit(struct traffic_report *report);

double traffic_report_mean(const struct traffic_report *report);
double traffic_report_worst(const struct traffic_report *report);

/* Prints the distribution of the ratios, overall, by strategy and by element type, and the ten worst rows, in
 * lines that begin with #. Sorts the rows. */
void traffic_report_print(FILE *out, struct traffic_report *report);
void traffic_row_print(FILE *out, const struct traffic_row *row);

#endif
