/* SPDX-License-Identifier: Apache-2.0 */
/* One row after the other through the CPU engine and through memcpy.
 *
 * Both sides move the same number of bytes between the same two pieces of the engine's own memory, filled
 * with random bytes, and take turns. What is timed of the engine is a job from submit to reap, by an owner
 * that sleeps while it waits, as the service does.
 */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include "report.h"
#include "row.h"

struct measure;

struct measure_options {
	unsigned threads;     /* of either side; 0: as many as the engine takes */
	const char *isa;      /* NULL: the best that there is */
	double sample_ns;     /* a run repeats a call for at least so long */
	uint64_t round_bytes; /* calls of small rows go round in as much memory on either side */
};

/* INVALID_ARGUMENT: there is no such isa here. */
int measure_open(struct measure **ret, const struct measure_options *options, struct error *err);
void measure_close(struct measure *measure); /* NULL is allowed */

/* "avx512, 2 threads" */
const char *measure_device(const struct measure *measure);
unsigned measure_threads(const struct measure *measure);

/* Checks what the engine makes of it, then times n_runs; fills all but the row's names. */
int measure_row(struct measure *measure, const struct bench_row *row, int n_runs, struct report_row *ret,
                struct error *err);

#endif
