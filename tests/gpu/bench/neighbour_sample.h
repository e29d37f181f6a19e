/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies of operations that are done one at a time, repeated for as long as a measurement may take. */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_SAMPLE_H
#define TESTS_GPU_BENCH_NEIGHBOUR_SAMPLE_H

struct scale;

struct latency {
	double p50, p99, most; /* in microseconds */
};

/* Performs the operation once and returns its microseconds. */
typedef double latency_sample(void *arg);

/* Measures after a warm-up, with at least one sample. */
struct latency latency_measure(latency_sample *sample, void *arg, const struct scale *scale);

/* Times a call by this process's clock; arg is a struct timed. */
struct timed {
	void (*call)(void *arg);
	void *arg;
};
latency_sample timed_sample;

#endif
