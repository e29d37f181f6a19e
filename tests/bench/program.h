/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark programs have in common: the command line, the selection of rows, and the report. A
 * program provides its rows and a function that measures one. */
#ifndef TESTS_BENCH_PROGRAM_H
#define TESTS_BENCH_PROGRAM_H

#include <stdbool.h>

#include "report.h"
#include "row.h"

struct program_options {
	int runs;
	unsigned threads; /* 0: not given */
	unsigned beside;  /* processes that copy memory at the same time */
	const char *isa;  /* names of instruction sets, or "all"; NULL: not given */
	bool candidates;  /* measures each candidate that the engine has for a row */
	bool quick;       /* tiny rows, to try the program itself */
	bool no_tune;     /* measures the plan predicted to be the fastest, and tries no other */
};

struct program {
	const char *name;
	const char *about; /* lines for --help */
	bool is_cpu;       /* accepts --threads, --beside and --isa */
	int runs;          /* default number of runs */
	const struct bench_row *rows;
	int n_rows;
	double (*bar)(const struct bench_row *row);

	/* Fills in what the report says of the machine and the engine. */
	int (*open)(const struct program_options *options, struct report *head, struct error *err);
	/* Checks and times a row; sets all of *ret but the names and the bar. If open has named instruction
	 * sets, ret has an element for each. */
	int (*measure)(const struct bench_row *row, const struct program_options *options,
	               struct report_row *ret, struct error *err);
	void (*close)(void); /* also called after open has failed */
};

/* Returns main's exit status: 0, 1 (it could not measure, or wrong bytes were moved) or 2 (bad usage). */
int program_main(const struct program *program, int argc, char **argv);

#endif
