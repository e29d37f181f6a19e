/* SPDX-License-Identifier: Apache-2.0 */
/* Measures one row after the other with the CPU engine and with memcpy.
 *
 * Both sides move the same number of bytes between the same two pieces of the engine's own memory, filled
 * with random bytes, and take turns. The engine's time is that of a job from submit to reap, by an owner that
 * sleeps while it waits, as the service does.
 *
 * An open engine uses one instruction set, so there is an engine for each set measured. In a run each has its
 * turn after the same memcpy, while the threads of the others sleep.
 */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include "report.h"
#include "row.h"

struct measure;

struct measure_options {
	unsigned threads; /* threads of either side; 0: as many as the engine uses by default */
	const char *isa;  /* such as "avx2,avx512", or "all" that exist; NULL: the best one */
	/* Measures the candidates of the CPU's cost model, with the one set that isa names. */
	bool candidates;
	double sample_ns;     /* a run repeats a call for at least so many ns */
	uint64_t round_bytes; /* calls of small rows cycle through this much memory on either side */
};

/* Returns INVALID_ARGUMENT if isa names a set that this machine lacks, or one twice. */
int measure_open(struct measure **ret, const struct measure_options *options, struct error *err);
void measure_close(struct measure *measure); /* measure may be NULL */

unsigned measure_threads(const struct measure *measure);

/* Returns the number of variants: the instruction sets in the order named or ascending, or else the engine's
 * choice and the candidates. */
int measure_n_variants(const struct measure *measure);
const char *measure_variant(const struct measure *measure, int i);

/* Checks the result of each variant, then times n_runs. Sets all but the names of a row for each variant. */
int measure_row(struct measure *measure, const struct bench_row *row, int n_runs, struct report_row *ret,
                struct error *err);

#endif
