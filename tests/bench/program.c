/* SPDX-License-Identifier: Apache-2.0 */
/* Options, then the rows or a file of them, then the report. */
#include "program.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quick_rows.h"
#include "random_rows.h"

#define MAX_THREADS 256
#define MAX_PARTS   16

enum option_id {
	OPTION_ROWS = 1,
	OPTION_RANDOM,
	OPTION_LEAST,
	OPTION_MOST,
	OPTION_RUNS,
	OPTION_THREADS,
	OPTION_ISA,
	OPTION_QUICK,
	OPTION_MARKDOWN,
	OPTION_JSON,
	OPTION_LOAD,
	OPTION_COMPARE,
	OPTION_HELP,
};

static const struct {
	enum option_id id;
	const char *name;
	const char *argument; /* NULL: takes none */
	const char *doc;      /* NULL: not for people */
	bool is_cpu;
} infos[] = {
	{ OPTION_ROWS, "rows", "PART", "only rows with PART in \"what type [shape]\"; may be given again",
	  false },
	{ OPTION_RANDOM, "random", "SEED",
	  "rows drawn by chance, as many as the argument after it says [100]", false },
	{ OPTION_LEAST, "least", "KIB", "of such a row's source [4]", false },
	{ OPTION_MOST, "most", "KIB", "of the same [2097152]", false },
	{ OPTION_RUNS, "runs", "N", "runs of each row, from 1 to 101", false },
	{ OPTION_THREADS, "threads", "N", "of either side [one a CPU]", true },
	{ OPTION_ISA, "isa", "NAME", "the engine's instruction set: plain, avx2, avx512, ... [the best]",
	  true },
	{ OPTION_QUICK, "quick", NULL, NULL, false },
	{ OPTION_MARKDOWN, "markdown", NULL, "print tables in Markdown", false },
	{ OPTION_JSON, "json", NULL, "print JSON, for machines and for the two below", false },
	{ OPTION_COMPARE, "compare", "FILE", "print how the ratios differ from those of an earlier --json",
	  false },
	{ OPTION_LOAD, "load", "FILE", "measure nothing: take the rows of an earlier --json", false },
	{ OPTION_HELP, "help", NULL, "print this", false },
};

#define N_INFOS (sizeof(infos) / sizeof(infos[0]))

struct command {
	struct program_options options;
	enum report_format format;
	bool help;
	const char *part[MAX_PARTS];
	int n_parts;
	bool is_random;
	struct random_rows random;
	int n_random;
	const char *load;    /* NULL: not given */
	const char *compare; /* NULL: not given */
};

static int parse(struct command *command, const struct program *program, int argc, char **argv,
                 struct error *err);
static void print_help(const struct program *program);
static int run(const struct program *program, const struct command *command, struct error *err);

int program_main(const struct program *program, int argc, char **argv)
{
	struct command command = { .options.runs = program->runs,
		                   .random = { .least = 4096, .most = UINT64_C(2) << 30 },
		                   .n_random = 100 };
	struct error err;
	int r = parse(&command, program, argc, argv, &err);

	if (r == 0 && command.help) {
		print_help(program);
		return 0;
	}
	if (r == 0)
		r = run(program, &command, &err);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", program->name, err.message);
	return r == 0 ? 0 : r == STATUS_INVALID_ARGUMENT ? 2 : 1;
}

/* ---- The command line ------------------------------------------------------------------------------- */

static int parse_number(const char *text, int most, const char *option, int *ret, struct error *err)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < 1 || value > most)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--%s=%s: it takes a whole number from 1 to %d", option, text, most);
	*ret = (int)value;
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
		if (command->n_parts == MAX_PARTS)
			return error_set(err, STATUS_INVALID_ARGUMENT, "--rows: at most %d", MAX_PARTS);
		command->part[command->n_parts++] = value;
		return 0;
	case OPTION_RANDOM:
		r = parse_number(value, INT_MAX, "random", &number, err);
		command->is_random = true;
		command->random.seed = r == 0 ? (uint64_t)number : 0;
		return r;
	case OPTION_LEAST:
	case OPTION_MOST:
		r = parse_number(value, 1 << 21, id == OPTION_LEAST ? "least" : "most", &number, err);
		if (r == 0)
			*(id == OPTION_LEAST ? &command->random.least : &command->random.most) =
			    (uint64_t)number << 10;
		return r;
	case OPTION_RUNS:
		return parse_number(value, REPORT_MAX_RUNS, "runs", &command->options.runs, err);
	case OPTION_THREADS:
		r = parse_number(value, MAX_THREADS, "threads", &number, err);
		if (r == 0)
			command->options.threads = (unsigned)number;
		return r;
	case OPTION_ISA:
		command->options.isa = value;
		return 0;
	case OPTION_QUICK:
		command->options.quick = true;
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

/* What options say together. */
static int check(const struct command *command, struct error *err)
{
	bool json = command->format == REPORT_JSON;

	if (json && command->compare)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--json and --compare: only one of them; --load compares what --json wrote");
	if (command->random.least > command->random.most / 2)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--least and --most: the one is more than half of the other");
	if ((json || command->load || command->compare) && !report_has_json())
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "--json, --load and --compare: built without JSON, libjansson-dev was missing");
	return 0;
}

static int parse(struct command *command, const struct program *program, int argc, char **argv,
                 struct error *err)
{
	struct option options[N_INFOS + 1] = { 0 };
	int n = 0, id, r;

	for (size_t i = 0; i < N_INFOS; i++)
		if (program->is_cpu || !infos[i].is_cpu)
			options[n++] = (struct option){ infos[i].name,
				                        infos[i].argument ? required_argument : no_argument,
				                        NULL, infos[i].id };
	opterr = 0;
	while ((id = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (id == '?' || id == ':')
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %s; see --help", argv[optind - 1],
			                 id == ':' ? "it takes an argument" : "no such option");
		r = apply(command, (enum option_id)id, optarg, err);
		if (r < 0)
			return r;
	}
	if (command->is_random && optind < argc) {
		r = parse_number(argv[optind++], INT_MAX, "random=SEED", &command->n_random, err);
		if (r < 0)
			return r;
	}
	if (optind < argc)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: no such argument; see --help",
		                 argv[optind]);
	return check(command, err);
}

static void print_help(const struct program *program)
{
	char name[32];

	printf("usage: %s [OPTION]...\n\n%s\noptions:\n", program->name, program->about);
	for (size_t i = 0; i < N_INFOS; i++) {
		if (!infos[i].doc || (infos[i].is_cpu && !program->is_cpu))
			continue;
		snprintf(name, sizeof(name), "--%s%s%s", infos[i].name, infos[i].argument ? "=" : "",
		         infos[i].argument ? infos[i].argument : "");
		printf("  %-16s %s\n", name, infos[i].doc);
	}
}

/* ---- Rows ------------------------------------------------------------------------------------------- */

static bool is_wanted(const struct command *command, const struct report_row *row)
{
	char label[REPORT_LABEL];

	report_label(row, label);
	for (int i = 0; i < command->n_parts; i++)
		if (strstr(label, command->part[i]))
			return true;
	return command->n_parts == 0;
}

static void fill_names(const struct program *program, const struct bench_row *row, struct report_row *ret)
{
	*ret = (struct report_row){ .rank = row->rank, .bar = program->bar(row) };
	snprintf(ret->what, sizeof(ret->what), "%s", row->what);
	snprintf(ret->dtype, sizeof(ret->dtype), "%s", dtype_names[row->dtype]);
	memcpy(ret->shape, row->shape, sizeof(ret->shape));
}

/* The next row from *at on, which is then past it, and its names; NULL when there is none. */
static const struct bench_row *next_wanted(const struct program *program, const struct command *command,
                                           int *at, struct report_row *ret)
{
	static struct random_row drawn;
	bool quick = command->options.quick;
	const struct bench_row *rows = quick ? bench_quick_rows : program->rows;
	int n = quick ? (int)(sizeof(bench_quick_rows) / sizeof(bench_quick_rows[0])) : program->n_rows;

	if (command->is_random)
		n = command->n_random;
	while (*at < n) {
		const struct bench_row *row = command->is_random ? &drawn.row : &rows[*at];

		if (command->is_random)
			random_row_draw(&command->random, (uint64_t)*at, &drawn);
		(*at)++;

		if (row->blocks && !program->is_cpu)
			continue;
		fill_names(program, row, ret);
		if (is_wanted(command, ret))
			return row;
	}
	return NULL;
}

static int no_row(struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT, "--rows: no row has that in its name");
}

/* Prints each row of a table as it comes. */
static int measure_rows(const struct program *program, const struct command *command, struct report *report,
                        struct error *err)
{
	bool print = command->format != REPORT_JSON;
	const struct bench_row *wanted;
	struct report_row row;
	int r;

	if (print)
		report_print_head(stdout, report, command->format);
	for (int at = 0; (wanted = next_wanted(program, command, &at, &row));) {
		const struct report_row *added;
		char label[REPORT_LABEL];
		struct error why;

		r = program->measure(wanted, &command->options, &row, &why);
		if (r < 0)
			return error_set(err, STATUS_INTERNAL, "%s: %s", report_label(&row, label),
			                 why.message);
		r = report_add(report, &row, &added, err);
		if (r < 0)
			return r;
		if (print)
			report_print_row(stdout, added, command->format);
	}
	if (print)
		report_print_end(stdout, report, command->format);
	if (print && command->is_random)
		report_print_distribution(stdout, report);
	return 0;
}

static int measure(const struct program *program, const struct command *command, struct report *report,
                   struct error *err)
{
	time_t now = time(NULL);
	struct report_row row;
	int r, at = 0;

	if (!next_wanted(program, command, &at, &row))
		return no_row(err);
	strftime(report->date, sizeof(report->date), "%Y-%m-%d %H:%M UTC", gmtime(&now));
	r = program->open(&command->options, report, err);
	if (r == 0)
		r = measure_rows(program, command, report, err);
	program->close();
	return r;
}

/* Of the file those that are wanted, printed where no comparison is. */
static int load(const struct command *command, struct report *report, struct error *err)
{
	int n = 0, r = report_read_json(command->load, report, err);

	if (r < 0)
		return r;
	for (int i = 0; i < report->n_rows; i++)
		if (is_wanted(command, &report->rows[i]))
			report->rows[n++] = report->rows[i];
	report->n_rows = n;
	if (!n)
		return no_row(err);
	if (command->format == REPORT_JSON || command->compare)
		return 0;
	report_print_head(stdout, report, command->format);
	for (int i = 0; i < n; i++)
		report_print_row(stdout, &report->rows[i], command->format);
	report_print_end(stdout, report, command->format);
	return 0;
}

static int run(const struct program *program, const struct command *command, struct error *err)
{
	struct report before = { 0 }, report = { 0 };
	int r = command->compare ? report_read_json(command->compare, &before, err) : 0;

	if (r == 0)
		r = command->load ? load(command, &report, err) : measure(program, command, &report, err);
	if (r == 0 && command->format == REPORT_JSON)
		r = report_write_json(stdout, &report, err);
	if (r == 0 && command->compare)
		report_print_change(stdout, &before, &report, command->format);
	report_deinit(&before);
	report_deinit(&report);
	return r;
}
