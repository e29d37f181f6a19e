/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of commands and options that commands.def declares, and searches in them. Each command is an
 * entry of cmd_entries[] and a function in a cmd_*.c of its own. The tables are constant. */
#ifndef CLIENT_TMACTL_COMMANDS_H
#define CLIENT_TMACTL_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

struct tmactl;

/* The kinds of values that an argument can have, one for each WORDS() of commands.def. */
enum words {
#define WORDS(words, list) WORDS_##words,
#include "commands.def"
	WORDS_COUNT
};

/* The values that getopt_long returns for long options. They lie above every character, so they cannot be
 * confused with a short option's letter. */
enum {
	OPT_NONE = 255, /* stands for no option; getopt_long never returns it */
#define OPTION(table, id, name, letter, argument, words, doc) OPT_##id,
#include "commands.def"
};

enum cmd_row_kind {
	CMD_END, /* end of the table */
	CMD_OPTION,
	CMD_USES, /* includes the options of the table `uses` */
	CMD_TEXT,
	CMD_EXAMPLE,
};

struct cmd_row {
	enum cmd_row_kind kind;
	const char *name;     /* an option's long name without its dashes, or an example's command line */
	const char *doc;      /* text of an option, a paragraph or an example */
	const char *argument; /* the argument's name in the help; NULL: the option takes no argument */
	int value;            /* OPT_* of an option */
	char letter;          /* short form of an option; 0: none */
	enum words words;     /* values that the option's argument can have */
	const struct cmd_row *uses; /* table that a CMD_USES row includes */
};

struct cmd_entry {
	const char *name;
	const char *operands; /* operands as the synopsis shows them; "": none */
	const char *summary;  /* one sentence */
	enum words words;     /* values that an operand can have */
	const struct cmd_row *rows;
	/* Runs the command, whose name is argv[0], and returns tmactl's exit code. */
	int (*exec)(struct tmactl *t, int argc, char **argv);
};

extern const struct cmd_entry cmd_entries[];
extern const size_t cmd_count;

/* The table of the options that every command takes. */
extern const struct cmd_row *const cmd_common;

/* Returns the command of that name, or NULL if there is none. */
const struct cmd_entry *cmd_find(const char *name);

/* Returns the name of the command most similar to an unknown name, or NULL if none is similar enough. */
const char *cmd_find_nearest(const char *name);

/* Returns the next option of a table and of the tables that it uses, or NULL after the last. *i must be 0 in
 * the first call, and each call increments it. */
const struct cmd_row *cmd_next_option(const struct cmd_row *rows, size_t *i);

/* Returns the name of the option most similar to an unknown name, searching the table and the common options,
 * or NULL if none is similar enough. rows may be NULL, which searches the common options alone. */
const char *cmd_option_nearest(const struct cmd_row *rows, const char *name);

/* Returns the long name of the option whose value is an OPT_*, or NULL if the table does not have it. */
const char *cmd_option_name(const struct cmd_row *rows, int value);

/* Returns value i of those that an argument can have. Returns NULL past the last one, and for kinds whose
 * values are not listed. The text is valid until the next call. */
const char *cmd_word(enum words words, size_t i);

#define COMMAND(command, operands, words, summary) int cmd_##command(struct tmactl *t, int argc, char **argv);
#include "commands.def"

#endif
