/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the options one by one, then checks their combination. */
#include "command.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_THREADS 256
#define MAX_BESIDE  256
#define MAX_RANDOM  1000000
#define LEAST_KIB   4
#define MOST_KIB    (1 << 21)

enum option_id {
	OPTION_ROWS = 1,
	OPTION_RANDOM,
	OPTION_LEAST,
	OPTION_MOST,
	OPTION_RUNS,
	OPTION_THREADS,
	OPTION_BESIDE,
	OPTION_ISA,
	OPTION_CANDIDATES,
	OPTION_QUICK,
	OPTION_NO_TUNE,
	OPTION_MARKDOWN,
	OPTION_JSON,
	OPTION_LOAD,
	OPTION_COMPARE,
	OPTION_HELP,
};

/* The programs that take an option. */
enum info_program { OF_ALL, OF_CPU, OF_GPU };

static const struct {
	enum option_id id;
	const char *name;
	const char *argument; /* NULL: the option takes no argument */
	const char *doc;      /* NULL: not listed by --help */
	enum info_program program;
} infos[] = {
	{ OPTION_ROWS, "rows", "PART", "only rows with PART in \"what type [shape]\"; may be given again",
	  OF_ALL },
	{ OPTION_RANDOM, "random", "SEED [N]", "draw N random rows [100] from SEED", OF_ALL },
	{ OPTION_LEAST, "least", "KIB", "draw no source smaller than that [4]", OF_ALL },
	{ OPTION_MOST, "most", "KIB", "draw no source larger than that [2097152]", OF_ALL },
	{ OPTION_RUNS, "runs", "N", "runs of each row, from 1 to 101", OF_ALL },
	{ OPTION_THREADS, "threads", "N", "of either side [one a CPU]", OF_CPU },
	{ OPTION_BESIDE, "beside", "N", "beside N processes that copy memory all the while", OF_CPU },
	{ OPTION_ISA, "isa", "NAME,...",
	  "the engine's instruction sets: plain, avx2, avx512, ..., or all that this machine has [the best]",
	  OF_CPU },
	{ OPTION_CANDIDATES, "candidates", NULL,
	  "each way that the engine can move a row, beside the one that it chooses", OF_CPU },
	{ OPTION_QUICK, "quick", NULL, NULL, OF_ALL },
	{ OPTION_NO_TUNE, "no-tune", NULL, "try no alternatives to the plan predicted to be the fastest",
	  OF_GPU },
	{ OPTION_MARKDOWN, "markdown", NULL, "print tables in Markdown", OF_ALL },
	{ OPTION_JSON, "json", NULL, "print JSON, for machines and for the two below", OF_ALL },
	{ OPTION_COMPARE, "compare", "FILE", "print how the ratios differ from those of an earlier --json",
	  OF_ALL },
	{ OPTION_LOAD, "load", "FILE", "measure nothing: take the rows of an earlier --json", OF_ALL },
	{ OPTION_HELP, "help", NULL, "print this", OF_ALL },
};

#define N_INFOS (sizeof(infos) / sizeof(infos[0]))

static bool is_of(size_t i, const struct program *program)
{
	return infos[i].program == OF_ALL || (infos[i].program == OF_CPU) == program->is_cpu;
}

/* Returns false if text is no whole number from 1 to most. */
static bool read_number(const char *text, int most, int *ret)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < 1 || value > most)
		return false;
	*ret = (int)value;
	return true;
}

static int parse_number(const char *text, int most, const char *option, int *ret, struct error *err)
{
	if (!read_number(text, most, ret))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--%s=%s: it takes a whole number from 1 to %d", option, text, most);
	return 0;
}

static int set_format(struct command *command, enum report_format format, struct error *err)
{
	if (command->format != REPORT_TEXT && command->format != format)
		return error_set(err, STATUS_INVALID_ARGUMENT, "--json and --markdown: only one of them");
	command->format = format;
	return 0;
}

static int apply(struct command *command, enum option_id id, const char *value, struct error *err)
{
	int number, r;

	switch (id) {
	case OPTION_ROWS:
		if (command->n_parts == COMMAND_MAX_PARTS)
			return error_set(err, STATUS_INVALID_ARGUMENT, "--rows: at most %d",
			                 COMMAND_MAX_PARTS);
		command->part[command->n_parts++] = value;
		return 0;
	case OPTION_RANDOM:
		r = parse_number(value, INT_MAX, "random", &number, err);
		command->is_random = true;
		command->random.seed = r == 0 ? (uint64_t)number : 0;
		return r;
	case OPTION_LEAST:
		r = parse_number(value, MOST_KIB, "least", &number, err);
		command->random.least = r == 0 ? (uint64_t)number << 10 : 0;
		return r;
	case OPTION_MOST:
		r = parse_number(value, MOST_KIB, "most", &number, err);
		command->random.most = r == 0 ? (uint64_t)number << 10 : 0;
		return r;
	case OPTION_RUNS:
		return parse_number(value, REPORT_MAX_RUNS, "runs", &command->options.runs, err);
	case OPTION_THREADS:
		r = parse_number(value, MAX_THREADS, "threads", &number, err);
		if (r == 0)
			command->options.threads = (unsigned)number;
		return r;
	case OPTION_BESIDE:
		r = parse_number(value, MAX_BESIDE, "beside", &number, err);
		if (r == 0)
			command->options.beside = (unsigned)number;
		return r;
	case OPTION_ISA:
		command->options.isa = value;
		return 0;
	case OPTION_CANDIDATES:
		command->options.candidates = true;
		return 0;
	case OPTION_QUICK:
		command->options.quick = true;
		return 0;
	case OPTION_NO_TUNE:
		command->options.no_tune = true;
		return 0;
	case OPTION_MARKDOWN:
		return set_format(command, REPORT_MARKDOWN, err);
	case OPTION_JSON:
		return set_format(command, REPORT_JSON, err);
	case OPTION_LOAD:
		command->load = value;
		return 0;
	case OPTION_COMPARE:
		command->compare = value;
		return 0;
	case OPTION_HELP:
		command->help = true;
		return 0;
	}
	return 0;
}

/* Checks --random and the two options that go with it; sets the sizes that were not given. */
static int settle_random(struct command *command, struct error *err)
{
	struct random_rows *random = &command->random;

	if (command->is_random && command->load)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--random and --load: only one of them; a file has its own rows");
	if (!command->is_random && (random->least || random->most))
		return error_set(err, STATUS_INVALID_ARGUMENT, "--least and --most: only with --random");
	random->least = random->least ?: (uint64_t)LEAST_KIB << 10;
	random->most = random->most ?: (uint64_t)MOST_KIB << 10;
	if (random->least > random->most / 2)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--least=%" PRIu64 ": it takes half of --most=%" PRIu64 " at most",
		                 random->least >> 10, random->most >> 10);
	return 0;
}

/* Checks the combination of options. */
static int settle(struct command *command, struct error *err)
{
	bool json = command->format == REPORT_JSON;

	if (json && command->compare)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--json and --compare: only one of them; --load compares what --json wrote");
	if ((json || command->load || command->compare) && !report_has_json())
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "--json, --load and --compare: built without JSON, libjansson-dev was missing");
	return settle_random(command, err);
}

int command_parse(struct command *ret, const struct program *program, int argc, char **argv,
                  struct error *err)
{
	struct option options[N_INFOS + 1] = { 0 };
	int n = 0, id, r;

	*ret = (struct command){ .options.runs = program->runs, .n_random = 100 };
	for (size_t i = 0; i < N_INFOS; i++)
		if (is_of(i, program))
			options[n++] = (struct option){ infos[i].name,
				                        infos[i].argument ? required_argument : no_argument,
				                        NULL, infos[i].id };
	opterr = 0;
	while ((id = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (id == '?' || id == ':')
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %s; see --help", argv[optind - 1],
			                 id == ':' ? "it takes an argument" : "no such option");
		r = apply(ret, (enum option_id)id, optarg, err);
		if (r < 0)
			return r;
	}
	if (ret->is_random && optind < argc && !read_number(argv[optind++], MAX_RANDOM, &ret->n_random))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--random SEED %s: the number of rows is a whole number from 1 to %d",
		                 argv[optind - 1], MAX_RANDOM);
	if (optind < argc)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: no such argument; see --help",
		                 argv[optind]);
	return settle(ret, err);
}

void command_print_help(const struct program *program)
{
	char name[32];

	printf("usage: %s [OPTION]...\n\n%s\noptions:\n", program->name, program->about);
	for (size_t i = 0; i < N_INFOS; i++) {
		if (!infos[i].doc || !is_of(i, program))
			continue;
		snprintf(name, sizeof(name), "--%s%s%s", infos[i].name, infos[i].argument ? "=" : "",
		         infos[i].argument ? infos[i].argument : "");
		printf("  %-18s %s\n", name, infos[i].doc);
	}
}

void command_random_text(const struct command *command, char *text, size_t size)
{
	const struct random_rows *random = &command->random;

	*text = '\0';
	if (command->is_random)
		snprintf(text, size, "--random=%" PRIu64 " %d --least=%" PRIu64 " --most=%" PRIu64,
		         random->seed, command->n_random, random->least >> 10, random->most >> 10);
}
