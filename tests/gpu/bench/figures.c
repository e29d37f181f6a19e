/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the figures; it keeps no state. */
#include "figures.h"

#include <stdlib.h>
#include <time.h>

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void nap_us(double us)
{
	struct timespec t = { .tv_sec = (time_t)(us / 1e6) };

	t.tv_nsec = (long)((us - (double)t.tv_sec * 1e6) * 1e3);
	nanosleep(&t, NULL);
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

void sort_values(double *values, size_t n)
{
	qsort(values, n, sizeof *values, by_value);
}

double quantile(const double *sorted, size_t n, double q)
{
	const size_t at = (size_t)((double)n * q);

	return sorted[at < n ? at : n - 1];
}

double median(double *values, size_t n)
{
	sort_values(values, n);
	return quantile(values, n, 0.5);
}
