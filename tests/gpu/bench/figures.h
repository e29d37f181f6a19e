/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmarks of the service make of times: now, and quantiles. */
#ifndef TESTS_GPU_BENCH_FIGURES_H
#define TESTS_GPU_BENCH_FIGURES_H

#include <stddef.h>

/* Microseconds by the monotonic clock. */
double now_us(void);

void nap_us(double us);

void sort_values(double *values, size_t n);

/* Of n sorted ones, n > 0; q of 0.99 for the 99th percentile. */
double quantile(const double *sorted, size_t n, double q);

/* Sorts them. */
double median(double *values, size_t n);

#endif
