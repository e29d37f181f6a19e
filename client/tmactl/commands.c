/* SPDX-License-Identifier: Apache-2.0 */
/* Expands commands.def into tables and searches them. Everything here is constant except the buffer of
 * list_word(), so cmd_word() is for one thread. */
#include "commands.h"

#include <stdio.h>
#include <string.h>

#include "proto/program.h"
#include "client/tmaclient.h"

#define GROUP(group, title)                        static const struct cmd_row group##_rows[] = {
#define COMMAND(command, operands, words, summary) static const struct cmd_row command##_rows[] = {
#define OPTION(table, id, name, letter, argument, words, doc) \
	{ CMD_OPTION, name, doc, argument, OPT_##id, letter, WORDS_##words, NULL },
#define USES(command, group)         { .kind = CMD_USES, .uses = group##_rows },
#define TEXT(command, text)          { .kind = CMD_TEXT, .doc = text },
#define EXAMPLE(command, line, text) { .kind = CMD_EXAMPLE, .name = line, .doc = text },
#define END(table)              \
	{                       \
		.kind = CMD_END \
	}                       \
	}                       \
	;
#include "commands.def"

const struct cmd_row *const cmd_common = common_rows;

const struct cmd_entry cmd_entries[] = {
#define COMMAND(command, operands, words, summary) \
	{ #command, operands, summary, WORDS_##words, command##_rows, cmd_##command },
#include "commands.def"
};

const size_t cmd_count = sizeof cmd_entries / sizeof *cmd_entries;

static const char *const word_lists[] = {
#define WORDS(words, list) [WORDS_##words] = list,
#include "commands.def"
};

const struct cmd_entry *cmd_find(const char *name)
{
	for (size_t i = 0; i < cmd_count; i++)
		if (!strcmp(cmd_entries[i].name, name))
			return &cmd_entries[i];
	return NULL;
}

/* Returns the smallest distance at which another name is too different to be suggested for this one. It is
 * smaller for a short name, in which a few wrong letters already make a different word. */
static unsigned nearest_limit(const char *name)
{
	size_t limit = 1 + (strlen(name) + 1) / 2;

	return limit < NEAREST_LIMIT ? (unsigned)limit : NEAREST_LIMIT;
}

const char *cmd_find_nearest(const char *name)
{
	unsigned least = nearest_limit(name);
	const char *nearest = NULL;

	for (size_t i = 0; i < cmd_count; i++) {
		unsigned far = nearest_distance(name, cmd_entries[i].name);

		if (far < least) {
			least = far;
			nearest = cmd_entries[i].name;
		}
	}
	return nearest;
}

/* Returns the option with index *left, counting the table's own options and those of the tables it uses in
 * order. If there are fewer, returns NULL and subtracts their number from *left. */
static const struct cmd_row *nth_option(const struct cmd_row *rows, size_t *left)
{
	const struct cmd_row *found;

	for (; rows->kind != CMD_END; rows++) {
		if (rows->kind == CMD_OPTION && (*left)-- == 0)
			return rows;
		if (rows->kind == CMD_USES && (found = nth_option(rows->uses, left)))
			return found;
	}
	return NULL;
}

const struct cmd_row *cmd_next_option(const struct cmd_row *rows, size_t *i)
{
	size_t left = (*i)++;

	return nth_option(rows, &left);
}

const char *cmd_option_name(const struct cmd_row *rows, int value)
{
	const struct cmd_row *row;

	for (size_t i = 0; (row = cmd_next_option(rows, &i));)
		if (row->value == value)
			return row->name;
	return NULL;
}

const char *cmd_option_nearest(const struct cmd_row *rows, const char *name)
{
	const struct cmd_row *const tables[] = { cmd_common, rows };
	unsigned least = nearest_limit(name);
	const char *nearest = NULL;
	const struct cmd_row *row;

	for (int t = 0; t < (rows ? 2 : 1); t++) {
		for (size_t i = 0; (row = cmd_next_option(tables[t], &i));) {
			unsigned far = nearest_distance(name, row->name);

			if (far < least) {
				least = far;
				nearest = row->name;
			}
		}
	}
	return nearest;
}

/* Returns word i of a list separated by spaces, or NULL past the last. The next call overwrites the
 * result. */
static const char *list_word(const char *list, size_t i)
{
	static char word[32];
	size_t len;

	while (i-- && *list) {
		list += strcspn(list, " ");
		list += strspn(list, " ");
	}
	len = strcspn(list, " ");
	snprintf(word, sizeof word, "%.*s", (int)len, list);
	return len ? word : NULL;
}

/* Returns the name of the library's layout i, or NULL past the last. The layouts are those of KV caches and
 * of blocked tensors. */
static const char *layout_word(size_t i)
{
	const tma_layout *layout = tma_layout_at(i);

	return layout ? tma_layout_name(layout) : NULL;
}

const char *cmd_word(enum words words, size_t i)
{
	switch (words) {
	case WORDS_LAYOUT:
		return layout_word(i);
	case WORDS_DTYPE:
		return tma_dtype_name((enum tma_dtype)i);
	case WORDS_PAD_MODE:
		return tma_pad_mode_name((enum tma_pad_mode)i);
	case WORDS_COMMAND:
		return i < cmd_count ? cmd_entries[i].name : NULL;
	default:
		return list_word(word_lists[words], i);
	}
}
