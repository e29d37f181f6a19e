/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the completion script for fish. */
#include "completion.h"

#include <stdio.h>

/* Prints the arguments of fish's `complete` that say which values an argument can have. */
static void print_argument(enum words words)
{
	switch (words) {
	case WORDS_NONE:
		break;
	case WORDS_ANY:
		fputs(" -x", stdout);
		break;
	case WORDS_FILE:
		fputs(" -r -F", stdout);
		break;
	case WORDS_NPY:
		fputs(" -x -a '(__fish_complete_suffix .npy)'", stdout);
		break;
	case WORDS_USER:
		fputs(" -x -a '(__fish_complete_users)'", stdout);
		break;
	default:
		fputs(" -x -a '", stdout);
		completion_print_words(words);
		putchar('\'');
	}
}

/* Prints documentation, escaped for a string in double quotes. */
static void print_doc(const char *doc)
{
	completion_print_doc(doc, "\\\"$");
}

static void print_options(const struct cmd_row *rows, const char *command)
{
	const struct cmd_row *row;

	for (size_t i = 0; (row = cmd_next_option(rows, &i));) {
		fputs("complete -c tmactl", stdout);
		if (command)
			printf(" -n '__tmactl_is %s'", command);
		if (row->letter)
			printf(" -s %c", row->letter);
		printf(" -l %s", row->name);
		print_argument(row->words);
		fputs(" -d \"", stdout);
		print_doc(row->doc);
		fputs("\"\n", stdout);
	}
}

static void print_commands(void)
{
	for (size_t i = 0; i < cmd_count; i++) {
		printf("complete -c tmactl -n __tmactl_is_bare -a %s -d \"", cmd_entries[i].name);
		print_doc(cmd_entries[i].summary);
		fputs("\"\n", stdout);
	}
	for (size_t i = 0; i < cmd_count; i++) {
		const struct cmd_entry *cmd = &cmd_entries[i];

		if (cmd->words != WORDS_NONE) {
			printf("complete -c tmactl -n '__tmactl_is %s'", cmd->name);
			print_argument(cmd->words);
			putchar('\n');
		}
		print_options(cmd->rows, cmd->name);
	}
}

void completion_fish(void)
{
	const struct cmd_row *row;

	fputs("# fish completion for tmactl, as `tmactl completion fish` prints it.\n\n"
	      "# The command, if there is one yet.\n"
	      "function __tmactl_command\n"
	      "    set -l words (commandline -opc)\n"
	      "    set -e words[1]\n"
	      "    while set -q words[1]\n"
	      "        switch $words[1]\n"
	      "            case",
	      stdout);
	for (size_t i = 0; (row = cmd_next_option(cmd_common, &i));)
		if (row->argument)
			printf(" --%s", row->name);
	fputs("\n                set -e words[1]\n"
	      "            case '-*'\n"
	      "            case '*'\n"
	      "                echo $words[1]\n"
	      "                return\n"
	      "        end\n"
	      "        set -e words[1]\n"
	      "    end\n"
	      "end\n\n"
	      "function __tmactl_is_bare\n"
	      "    not __tmactl_command | string length -q\n"
	      "end\n\n"
	      "function __tmactl_is\n"
	      "    string match -q -- $argv[1] (__tmactl_command)\n"
	      "end\n\n"
	      "complete -c tmactl -f\n",
	      stdout);
	print_options(cmd_common, NULL);
	print_commands();
}
