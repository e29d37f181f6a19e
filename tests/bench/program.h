/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark programs have in common: the command line, which rows of a table are wanted, and what
 * becomes of their figures. A program brings its rows and a way to measure one.
 */
#ifndef TESTS_BENCH_PROGRAM_H
#define TESTS_BENCH_PROGRAM_H

#include <stdbool.h>

#include "report.h"
#include "row.h"

struct program_options {
	int runs;
	unsigned threads; /* 0: not given */
	unsigned beside;  /* processes that copy memory meanwhile */
	const char *isa;  /* names, or "all"; NULL: not given */
	bool candidates;  /* measures each way that the engine can move a row */
	bool quick;       /* tiny rows, to try the program */
	bool no_tune;     /* measures the plan predicted to be the fastest, and tries no other */
};

struct program {
	const char *name;
	const char *about; /* lines for --help */
	bool is_cpu;       /* takes --threads, --beside and --isa */
	int runs;          /* unless told otherwise */
	const struct bench_row *rows;
	int n_rows;
	double (*bar)(const struct bench_row *row);

	/* Fills what the report says of the machine and the engine. */
	int (*open)(const struct program_options *options, struct report *head, struct error *err);
	/* Checks and times a row; fills all of *ret but the names and the bar. Where open has named
	 * instruction sets, ret is a row for each of them. */
	int (*measure)(const struct bench_row *row, const struct program_options *options,
	               struct report_row *ret, struct error *err);
	void (*close)(void); /* also after an open that failed */
};

/* What main returns: 0, 1 (it could not measure, or wrong bytes were moved), 2 (bad usage). */
int program_main(const struct program *program, int argc, char **argv);

#endif
