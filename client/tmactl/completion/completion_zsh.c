/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the completion script for zsh: a function _tmactl, which compinit finds or the user sources. */
#include "completion.h"

#include <stdio.h>

static void print_action(enum words words)
{
	switch (words) {
	case WORDS_NONE:
	case WORDS_ANY:
		putchar(' ');
		break;
	case WORDS_FILE:
		fputs("_files", stdout);
		break;
	case WORDS_NPY:
		fputs("_files -g \"*.npy(-.)\"", stdout);
		break;
	case WORDS_USER:
		fputs("_users", stdout);
		break;
	default:
		putchar('(');
		completion_print_words(words);
		putchar(')');
	}
}

/* Prints an option as _arguments wants it, for example '--mode=[how to pad]:M:(constant edge)'. */
static void print_spec(const struct cmd_row *row)
{
	const char *equals = row->argument ? "=" : "";

	if (row->letter)
		printf("'(-%c --%s)'{-%c%s,--%s%s}'[", row->letter, row->name, row->letter,
		       row->argument ? "+" : "", row->name, equals);
	else
		printf("'--%s%s[", row->name, equals);
	completion_print_doc(row->doc, "'\\[]:");
	putchar(']');
	if (row->argument) {
		putchar(':');
		completion_print_doc(row->argument, "'\\[]:");
		putchar(':');
		print_action(row->words);
	}
	putchar('\'');
}

static void print_specs(const struct cmd_row *rows, const char *before)
{
	const struct cmd_row *row;

	for (size_t i = 0; (row = cmd_next_option(rows, &i));) {
		fputs(before, stdout);
		print_spec(row);
	}
}

static void print_command(const struct cmd_entry *cmd)
{
	printf("\t\t%s)\n\t\t\t_arguments $common", cmd->name);
	print_specs(cmd->rows, " \\\n\t\t\t\t");
	if (cmd->words != WORDS_NONE) {
		fputs(" \\\n\t\t\t\t'*: :", stdout);
		print_action(cmd->words);
		putchar('\'');
	}
	fputs(" ;;\n", stdout);
}

void completion_zsh(void)
{
	fputs("#compdef tmactl\n"
	      "# zsh completion for tmactl, as `tmactl completion zsh` prints it.\n\n"
	      "_tmactl()\n{\n"
	      "\tlocal curcontext=$curcontext state line\n"
	      "\tlocal -a common commands\n"
	      "\ttypeset -A opt_args\n\n"
	      "\tcommon=(",
	      stdout);
	print_specs(cmd_common, "\n\t\t");
	fputs("\n\t)\n\tcommands=(", stdout);
	for (size_t i = 0; i < cmd_count; i++) {
		printf("\n\t\t'%s:", cmd_entries[i].name);
		completion_print_doc(cmd_entries[i].summary, "'\\:");
		putchar('\'');
	}
	fputs("\n\t)\n"
	      "\t_arguments -C $common '1: :->command' '*:: :->rest' && return\n"
	      "\tcase $state in\n"
	      "\tcommand) _describe -t commands command commands ;;\n"
	      "\trest)\n"
	      "\t\tcase $words[1] in\n",
	      stdout);
	for (size_t i = 0; i < cmd_count; i++)
		print_command(&cmd_entries[i]);
	fputs(
	    "\t\tesac\n\t\t;;\n\tesac\n}\n\n"
	    "if [[ $funcstack[1] == _tmactl ]]; then\n\t_tmactl \"$@\"\nelse\n\tcompdef _tmactl tmactl\nfi\n",
	    stdout);
}
