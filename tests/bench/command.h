/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a benchmark program: which rows, measured how, and what is printed. */
#ifndef TESTS_BENCH_COMMAND_H
#define TESTS_BENCH_COMMAND_H

#include <stdbool.h>

#include "program.h"
#include "random_rows.h"

#define COMMAND_MAX_PARTS 16

struct command {
	struct program_options options;
	enum report_format format;
	bool help;
	const char *part[COMMAND_MAX_PARTS]; /* a row's label has one of these, if there are any */
	int n_parts;
	bool is_random; /* the two below are in place of the program's own rows */
	struct random_rows random;
	int n_random;
	const char *load;    /* NULL: not given */
	const char *compare; /* NULL: not given */
};

/* INVALID_ARGUMENT: bad usage. */
int command_parse(struct command *ret, const struct program *program, int argc, char **argv,
                  struct error *err);

void command_print_help(const struct program *program);

/* Writes the options that draw the same rows again, "--random=7 500"; empty when rows are not drawn. */
void command_random_text(const struct command *command, char *text, size_t size);

#endif
