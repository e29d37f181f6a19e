/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies: what is done one at a time, again and again, for as long as a measurement may take. */
#ifndef TESTS_GPU_BENCH_NEIGHBOUR_SAMPLE_H
#define TESTS_GPU_BENCH_NEIGHBOUR_SAMPLE_H

struct scale;

struct latency {
	double p50, p99, most; /* us */
};

/* One of what is measured: microseconds. */
typedef double latency_sample(void *arg);

/* After a warm-up; at least one sample. */
struct latency latency_measure(latency_sample *sample, void *arg, const struct scale *scale);

/* A sample of a call, by this process's clock; arg: a struct timed. */
struct timed {
	void (*call)(void *arg);
	void *arg;
};
latency_sample timed_sample;

#endif
