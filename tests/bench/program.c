/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the rows, or loads a file of them, then prints the report. */
#include "program.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "command.h"
#include "quick_rows.h"

static int run(const struct program *program, const struct command *command, struct error *err);

int program_main(const struct program *program, int argc, char **argv)
{
	struct command command;
	struct error err;
	int r = command_parse(&command, program, argc, argv, &err);

	if (r == 0 && command.help) {
		command_print_help(program);
		return 0;
	}
	if (r == 0)
		r = run(program, &command, &err);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", program->name, err.message);
	return r == 0 ? 0 : r == STATUS_INVALID_ARGUMENT ? 2 : 1;
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

/* Sets everything that is known before measuring. An impossible row is refused when it is measured. */
static void fill_row(const struct program *program, const struct command *command,
                     const struct bench_row *row, struct report_row *ret)
{
	struct report_request *request = &ret->request;
	struct transform_spec spec;
	struct error err;

	*ret = (struct report_row){ .rank = row->rank,
		                    .bar = command->is_random ? REPORT_HALF : program->bar(row) };
	snprintf(ret->what, sizeof(ret->what), "%s", row->what);
	snprintf(ret->dtype, sizeof(ret->dtype), "%s", dtype_names[row->dtype]);
	memcpy(ret->shape, row->shape, sizeof(ret->shape));
	bench_row_spec(row, &spec, &request->src_offset, &err);
	for (int d = 0; d < row->rank; d++) {
		request->src_stride[d] = spec.src.stride[d];
		request->perm[d] = spec.perm[d];
	}
	memcpy(request->before, row->before, sizeof(request->before));
	memcpy(request->after, row->after, sizeof(request->after));
	snprintf(request->mode, sizeof(request->mode), "%s", pad_mode_names[row->mode]);
	request->value = row->value;
	request->dst_offset = row->offset;
	request->blocks = row->blocks;
}

/* Returns row `at` of those that the command selects, which may be random; NULL after the last. */
static const struct bench_row *row_at(const struct program *program, const struct command *command, int at)
{
	static struct random_row drawn;

	if (command->is_random) {
		if (at >= command->n_random)
			return NULL;
		random_row_draw(&command->random, (uint64_t)at, &drawn);
		return &drawn.row;
	}
	if (command->options.quick)
		return at < (int)(sizeof(bench_quick_rows) / sizeof(bench_quick_rows[0]))
		           ? &bench_quick_rows[at]
		           : NULL;
	return at < program->n_rows ? &program->rows[at] : NULL;
}

/* Returns the next selected row from *at on, advances *at past it, and sets the row's names. Returns NULL if
 * there is none. */
static const struct bench_row *next_wanted(const struct program *program, const struct command *command,
                                           int *at, struct report_row *ret)
{
	const struct bench_row *row;

	while ((row = row_at(program, command, (*at)++))) {
		if (row->blocks && !program->is_cpu)
			continue;
		fill_row(program, command, row, ret);
		if (is_wanted(command, ret))
			return row;
	}
	return NULL;
}

static int no_row(struct error *err)
{
	return error_set(err, STATUS_INVALID_ARGUMENT, "--rows: no row has that in its name");
}

static void print_end(const struct report *report, enum report_format format)
{
	report_print_end(stdout, report, format);
	if (*report->random)
		report_print_distribution(stdout, report, format);
	report_print_candidates(stdout, report, format);
}

/* Prints each row of a table as soon as it is measured. */
static int measure_rows(const struct program *program, const struct command *command, struct report *report,
                        struct error *err)
{
	bool print = command->format != REPORT_JSON;
	struct report_row rows[REPORT_MAX_ISAS];
	const struct bench_row *wanted;
	int n = report->n_isas ?: 1, r;

	if (print)
		report_print_head(stdout, report, command->format);
	for (int at = 0; (wanted = next_wanted(program, command, &at, &rows[0]));) {
		char label[REPORT_LABEL];
		struct error why;

		for (int i = 1; i < n; i++)
			rows[i] = rows[0];
		r = program->measure(wanted, &command->options, rows, &why);
		if (r < 0)
			return error_set(err, STATUS_INTERNAL, "%s: %s", report_label(&rows[0], label),
			                 why.message);
		for (int i = 0; i < n; i++) {
			const struct report_row *added;

			r = report_add(report, &rows[i], &added, err);
			if (r < 0)
				return r;
			if (print)
				report_print_row(stdout, report, added, command->format);
		}
	}
	if (print)
		print_end(report, command->format);
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
	command_random_text(command, report->random, sizeof(report->random));
	strftime(report->date, sizeof(report->date), "%Y-%m-%d %H:%M UTC", gmtime(&now));
	r = program->open(&command->options, report, err);
	if (r == 0)
		r = measure_rows(program, command, report, err);
	program->close();
	return r;
}

/* Loads the wanted rows of the file, and prints them unless a comparison is asked for. */
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
		report_print_row(stdout, report, &report->rows[i], command->format);
	print_end(report, command->format);
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
