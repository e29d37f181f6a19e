/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl help: prints the documentation in commands.def. */
#include "tmactl.h"

#include <stdio.h>
#include <string.h>

#include "client/tmactl/terminal/print.h"

#define COLUMN 20 /* column at which the text about an option begins */

static void print_option(const struct cmd_row *row)
{
	int at = row->letter ? printf("  -%c, --%s", row->letter, row->name) : printf("  --%s", row->name);

	if (row->argument)
		at += printf(" %s", row->argument);
	if (at > COLUMN - 2) {
		putchar('\n');
		at = 0;
	}
	print_wrapped(row->doc, COLUMN, at);
}

static void print_options(const struct cmd_row *rows)
{
	const struct cmd_row *row;

	for (size_t i = 0; (row = cmd_next_option(rows, &i));)
		print_option(row);
}

static void print_command(const struct cmd_entry *cmd)
{
	const struct cmd_row *row;
	const char *gap = "\n";
	size_t first = 0;

	printf("usage: tmactl %s%s%s%s\n\n%s\n", cmd->name, *cmd->operands ? " " : "", cmd->operands,
	       cmd_next_option(cmd->rows, &first) ? " [OPTION]..." : "", cmd->summary);
	if (first && cmd_next_option(cmd->rows, &(size_t){ 0 })) {
		putchar('\n');
		print_options(cmd->rows);
	}
	for (row = cmd->rows; row->kind != CMD_END; row++) {
		if (row->kind != CMD_TEXT)
			continue;
		putchar('\n');
		print_wrapped(row->doc, 0, 0);
	}
	for (row = cmd->rows; row->kind != CMD_END; row++) {
		if (row->kind != CMD_EXAMPLE)
			continue;
		printf("%s  %s\n", gap, row->name);
		print_wrapped(row->doc, 6, 0);
		gap = "";
	}
	puts("\ntmactl help lists the options that all commands take.");
}

static void print_all(void)
{
	puts("usage: tmactl [OPTION]... COMMAND ...\n\n"
	     "Tensor copy, transpose and pad by the tmad service.\n\n"
	     "commands (tmactl help COMMAND describes one):");
	for (size_t i = 0; i < cmd_count; i++)
		print_wrapped(cmd_entries[i].summary, 13, printf("  %-10s", cmd_entries[i].name));
	puts("\noptions of all commands:");
	print_options(cmd_common);
	puts("\nexit codes: 0 success, 1 the service refused or something failed, 2 bad usage.");
}

int tmactl_help(struct tmactl *t, const char *name)
{
	const struct cmd_entry *cmd = name ? cmd_find(name) : NULL;

	if (cmd)
		print_command(cmd);
	else if (name)
		return tmactl_no_command(t, name);
	else
		print_all();
	return 0;
}

int cmd_help(struct tmactl *t, int argc, char **argv)
{
	if (tmactl_option(t, argc, argv) != -1)
		return tmactl_report(t);
	if (argc - optind > 1)
		fail(&t->error, EXIT_USAGE, "help takes one command, but was given %s too", argv[optind + 1]);
	else
		tmactl_help(t, argv[optind]);
	return tmactl_report(t);
}
