/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of a benchmark program: rows, measurement and output. */
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
	const char *part[COMMAND_MAX_PARTS]; /* If there are any, a row's label has to contain one of them. */
	int n_parts;
	bool is_random; /* the next two members select random rows instead of the program's own */
	struct random_rows random;
	int n_random;
	const char *load;    /* NULL: not given */
	const char *compare; /* NULL: not given */
};

/* Returns INVALID_ARGUMENT on bad usage. */
int command_parse(struct command *ret, const struct program *program, int argc, char **argv,
                  struct error *err);

void command_print_help(const struct program *program);

/* Writes the options that draw the same rows again, such as "--random=7 500"; empty if rows are not drawn. */
void command_random_text(const struct command *command, char *text, size_t size);

#endif
