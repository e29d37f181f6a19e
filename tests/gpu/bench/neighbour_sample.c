/* SPDX-License-Identifier: Apache-2.0 */
/* Measures latencies; it keeps no state. */
#include "neighbour_sample.h"

#include <stdlib.h>

#include "figures.h"
#include "neighbour.h"

double timed_sample(void *arg)
{
	const struct timed *timed = arg;
	const double start = now_us();

	timed->call(timed->arg);
	return now_us() - start;
}

struct latency latency_measure(latency_sample *sample, void *arg, const struct scale *scale)
{
	double *us = malloc((size_t)scale->samples * sizeof *us), end;
	struct latency latency;
	size_t n = 0;

	if (!us)
		rig_die("out of memory");
	end = now_us() + scale->seconds / 4 * 1e6;
	for (int i = 0; i < scale->warm_up && (i == 0 || now_us() < end); i++)
		sample(arg);
	end = now_us() + scale->seconds * 1e6;
	while (n == 0 || (n < (size_t)scale->samples && now_us() < end))
		us[n++] = sample(arg);
	sort_values(us, n);
	latency = (struct latency){ quantile(us, n, 0.5), quantile(us, n, 0.99), us[n - 1] };
	free(us);
	return latency;
}
