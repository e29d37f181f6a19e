/* SPDX-License-Identifier: Apache-2.0 */
/* tmactl completion: prints the completion script for a shell. */
#include "tmactl.h"

#include <stdio.h>
#include <string.h>

#include "client/tmactl/completion/completion.h"

int cmd_completion(struct tmactl *t, int argc, char **argv)
{
	static void (*const print[])(void) = { completion_bash, completion_zsh, completion_fish };
	int shell;

	if (tmactl_option(t, argc, argv) != -1)
		return tmactl_report(t);
	if (argc - optind != 1) {
		fail(&t->error, EXIT_USAGE, "completion takes one shell: bash, zsh or fish");
		return tmactl_report(t);
	}
	shell = tmactl_word(WORDS_SHELL, "completion", argv[optind], &t->error);
	if (shell >= 0)
		print[shell]();
	return tmactl_report(t);
}

/* Returns the length of the first clause of doc. The clause ends before a semicolon, an opening parenthesis,
 * or a colon that a blank follows. A colon within a word, as in before:after, does not end it. */
static size_t short_len(const char *doc)
{
	size_t len = strcspn(doc, ";(:");

	while (doc[len] == ':' && doc[len + 1] && doc[len + 1] != ' ')
		len += 1 + strcspn(doc + len + 1, ";(:");
	while (len > 0 && doc[len - 1] == ' ')
		len--;
	return len;
}

void completion_print_doc(const char *doc, const char *escaped)
{
	size_t len = short_len(doc);

	for (size_t i = 0; i < len; i++) {
		if (doc[i] == '\'' && strchr(escaped, '\''))
			fputs("'\\''", stdout);
		else if (strchr(escaped, doc[i]))
			printf("\\%c", doc[i]);
		else
			putchar(doc[i]);
	}
}

void completion_print_words(enum words words)
{
	const char *word;

	for (size_t i = 0; (word = cmd_word(words, i)); i++)
		printf("%s%s", i ? " " : "", word);
}
