/* SPDX-License-Identifier: Apache-2.0 */
/* Clock and quantiles for the benchmarks of the service. */
#ifndef TESTS_GPU_BENCH_FIGURES_H
#define TESTS_GPU_BENCH_FIGURES_H

#include <stddef.h>

/* Returns microseconds of the monotonic clock. */
double now_us(void);

void nap_us(double us);

void sort_values(double *values, size_t n);

/* Returns a quantile of n > 0 sorted values; q is 0.99 for the 99th percentile. */
double quantile(const double *sorted, size_t n, double q);

/* Returns the median, after sorting the values. */
double median(double *values, size_t n);

#endif
