/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the completion script for bash. It does not need the bash-completion package. */
#include "completion.h"

#include <stdio.h>

/* Prints the command that fills COMPREPLY for an argument: ":", which adds nothing, if it can be anything. */
static void print_reply(enum words words)
{
	switch (words) {
	case WORDS_NONE:
	case WORDS_ANY:
		fputs(":", stdout);
		break;
	case WORDS_FILE:
		fputs("_tmactl_files \"$cur\" '*'", stdout);
		break;
	case WORDS_NPY:
		fputs("_tmactl_files \"$cur\" '*.npy'", stdout);
		break;
	case WORDS_USER:
		fputs("mapfile -t COMPREPLY < <(compgen -u -- \"$cur\")", stdout);
		break;
	default:
		fputs("mapfile -t COMPREPLY < <(compgen -W '", stdout);
		completion_print_words(words);
		fputs("' -- \"$cur\")", stdout);
	}
}

static void print_values(const struct cmd_row *rows)
{
	const struct cmd_row *row;

	for (; rows->kind != CMD_END; rows++) {
		row = rows;
		if (row->kind != CMD_OPTION || !row->argument)
			continue;
		if (row->letter)
			printf("\t-%c | --%s) ", row->letter, row->name);
		else
			printf("\t--%s) ", row->name);
		print_reply(row->words);
		fputs("; return ;;\n", stdout);
	}
}

/* Prints the values of every option. A group that several commands use is printed once. */
static void print_all_values(void)
{
	const struct cmd_row *seen[16];
	size_t n = 0;

	print_values(cmd_common);
	for (size_t i = 0; i < cmd_count; i++) {
		print_values(cmd_entries[i].rows);
		for (const struct cmd_row *row = cmd_entries[i].rows; row->kind != CMD_END; row++) {
			size_t k = 0;

			while (row->kind == CMD_USES && k < n && seen[k] != row->uses)
				k++;
			if (row->kind != CMD_USES || k < n || n == sizeof seen / sizeof *seen)
				continue;
			seen[n++] = row->uses;
			print_values(row->uses);
		}
	}
}

static void print_names(const struct cmd_row *rows)
{
	const struct cmd_row *row;

	for (size_t i = 0; (row = cmd_next_option(rows, &i));)
		printf(" --%s", row->name);
}

static void print_valued(void)
{
	const struct cmd_row *row;
	const char *bar = "";

	for (size_t i = 0; (row = cmd_next_option(cmd_common, &i));)
		if (row->argument) {
			printf("%s--%s", bar, row->name);
			bar = " | ";
		}
}

void completion_bash(void)
{
	fputs(
	    "# bash completion for tmactl, as `tmactl completion bash` prints it.\n\n"
	    "_tmactl_files()\n{\n"
	    "\tcompopt -o filenames 2>/dev/null\n"
	    "\tmapfile -t COMPREPLY < <(compgen -d -- \"$1\"; compgen -f -X \"!$2\" -- \"$1\")\n"
	    "}\n\n"
	    "_tmactl()\n{\n"
	    "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= options i\n\n"
	    "\tCOMPREPLY=()\n"
	    "\tif [[ $cur == = ]]; then\n\t\tcur=\n"
	    "\telif [[ $prev == = ]]; then\n\t\tprev=${COMP_WORDS[COMP_CWORD - 2]}\n\tfi\n"
	    "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	    "\t\tcase ${COMP_WORDS[i]} in\n\t\t",
	    stdout);
	print_valued();
	fputs(")\n"
	      "\t\t\t[[ ${COMP_WORDS[i + 1]} != = ]] || ((++i))\n"
	      "\t\t\t((++i))\n\t\t\t;;\n"
	      "\t\t-* | =) ;;\n"
	      "\t\t*)\n\t\t\tcommand=${COMP_WORDS[i]}\n\t\t\tbreak\n\t\t\t;;\n"
	      "\t\tesac\n\tdone\n"
	      "\tcase $prev in\n",
	      stdout);
	print_all_values();
	fputs("\tesac\n\toptions='", stdout);
	print_names(cmd_common);
	fputs("'\n\tcase $command in\n", stdout);
	for (size_t i = 0; i < cmd_count; i++) {
		printf("\t%s) options+='", cmd_entries[i].name);
		print_names(cmd_entries[i].rows);
		fputs("' ;;\n", stdout);
	}
	fputs("\tesac\n"
	      "\tif [[ $cur == -* ]]; then\n"
	      "\t\tmapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n\t\treturn\n\tfi\n"
	      "\tcase $command in\n"
	      "\t'') ",
	      stdout);
	print_reply(WORDS_COMMAND);
	fputs(" ;;\n", stdout);
	for (size_t i = 0; i < cmd_count; i++) {
		if (cmd_entries[i].words == WORDS_NONE)
			continue;
		printf("\t%s) ", cmd_entries[i].name);
		print_reply(cmd_entries[i].words);
		fputs(" ;;\n", stdout);
	}
	fputs("\tesac\n}\n\ncomplete -F _tmactl tmactl\n", stdout);
}
