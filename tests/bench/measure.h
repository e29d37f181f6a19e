/* SPDX-License-Identifier: Apache-2.0 */
/* One row after the other through the CPU engine and through memcpy.
 *
 * Both sides move the same number of bytes between the same two pieces of the engine's own memory, filled
 * with random bytes, and take turns. What is timed of the engine is a job from submit to reap, by an owner
 * that sleeps while it waits, as the service does.
 *
 * An engine has one instruction set as long as it is open, so there is an engine for each that is measured.
 * In a run each has its turn after the same memcpy; the threads of the others sleep meanwhile.
 */
#ifndef TESTS_BENCH_MEASURE_H
#define TESTS_BENCH_MEASURE_H

#include "report.h"
#include "row.h"

struct measure;

struct measure_options {
	unsigned threads;     /* of either side; 0: as many as the engine takes */
	const char *isa;      /* "avx2,avx512", or "all" that there are; NULL: the best of them */
	bool candidates;      /* of the CPU's cost model, with the one instruction set that isa names */
	double sample_ns;     /* a run repeats a call for at least so long */
	uint64_t round_bytes; /* calls of small rows go round in as much memory on either side */
};

/* INVALID_ARGUMENT: isa names one that is not here, or one twice. */
int measure_open(struct measure **ret, const struct measure_options *options, struct error *err);
void measure_close(struct measure *measure); /* NULL is allowed */

unsigned measure_threads(const struct measure *measure);

/* Instruction sets, in the order named, or ascending; or the one chosen and the candidates. */
int measure_n_variants(const struct measure *measure);
const char *measure_variant(const struct measure *measure, int i);

/* Checks what each variant makes of it, then times n_runs; fills a row for each, all but its names. */
int measure_row(struct measure *measure, const struct bench_row *row, int n_runs, struct report_row *ret,
                struct error *err);

#endif
