/* SPDX-License-Identifier: Apache-2.0 */
/* commands.def as tables. Each command is a row here and a function in a cmd_*.c of its own. */
#ifndef CLIENT_TMACTL_COMMANDS_H
#define CLIENT_TMACTL_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct tmactl;

/* What an argument can be. */
enum words {
#define WORDS(words, list) WORDS_##words,
#include "commands.def"
	WORDS_COUNT
};

/* What getopt gives for an option; past every letter. */
enum {
	OPT_NONE = 255,
#define OPTION(table, id, name, letter, argument, words, doc) OPT_##id,
#include "commands.def"
};

enum cmd_row_kind {
	CMD_END, /* of the table */
	CMD_OPTION,
	CMD_USES, /* another table's options */
	CMD_TEXT,
	CMD_EXAMPLE,
};

struct cmd_row {
	enum cmd_row_kind kind;
	const char *name; /* of an option, without its dashes; an example's line */
	const char *doc;
	const char *argument; /* NULL: the option takes none */
	int value;            /* OPT_* */
	char letter;          /* 0: none */
	enum words words;     /* what the argument can be */
	const struct cmd_row *uses;
};

struct cmd_entry {
	const char *name;
	const char *operands; /* its synopsis; "": none */
	const char *summary;  /* a sentence */
	enum words words;     /* what the operands can be */
	const struct cmd_row *rows;
	int (*exec)(struct tmactl *t, int argc, char **argv); /* argv[0] is the name; an exit code */
};

extern const struct cmd_entry cmd_entries[];
extern const size_t cmd_count;

/* Of every command. */
extern const struct cmd_row *const cmd_common;

/* NULL: none has the name. */
const struct cmd_entry *cmd_find(const char *name);

/* The nearest to a name that is no command's; NULL: none is near. */
const char *cmd_find_nearest(const char *name);

/* The options of a table and of those that it uses, in their order: start with *i = 0; NULL after the last.
 */
const struct cmd_row *cmd_next_option(const struct cmd_row *rows, size_t *i);

/* The nearest to the name of no option, in the table and in that of every command; NULL: none is near. rows:
 * NULL for those of every command. */
const char *cmd_option_nearest(const struct cmd_row *rows, const char *name);

/* The option's name by its OPT_*, NULL when the table has none. */
const char *cmd_option_name(const struct cmd_row *rows, int value);

/* Word i of those that an argument can be; NULL past the last, and where it can be anything. The text is good
 * until the next call. */
const char *cmd_word(enum words words, size_t i);

#define COMMAND(command, operands, words, summary) int cmd_##command(struct tmactl *t, int argc, char **argv);
#include "commands.def"

#endif
