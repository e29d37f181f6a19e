/* SPDX-License-Identifier: Apache-2.0 */
/* Python literals, as far as an .npy header needs them: dicts, lists, tuples, strings, integers, True,
 * False, None. The nodes borrow the text. */
#ifndef CLIENT_TMACTL_NPY_LITERAL_H
#define CLIENT_TMACTL_NPY_LITERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum literal_kind {
	LITERAL_STRING, /* text between the quotes, escapes and all */
	LITERAL_INT,
	LITERAL_BOOL, /* value 0 or 1 */
	LITERAL_NONE,
	LITERAL_LIST,
	LITERAL_TUPLE,
	LITERAL_DICT, /* children: key, value, key, value */
};

struct literal {
	enum literal_kind kind;
	uint32_t n;     /* children */
	uint32_t child; /* index of the first; 0: none */
	uint32_t next;  /* index of the next sibling; 0: none */
	size_t start;   /* of the whole node's text: [start, end) */
	size_t end;
	int64_t value;
};

struct literals {
	const char *text;
	struct literal *nodes; /* 0 is the root */
	uint32_t n;
	uint32_t cap;
};

/* Parses the whole text, white space around it allowed. -1: it is none; *ret_at is where, *ret_what what
 * was expected there. *ret is to be freed by literals_deinit in any case. */
int literals_parse(struct literals *ret, const char *text, size_t len, size_t *ret_at, const char **ret_what);
void literals_deinit(struct literals *l);

/* Whether a string node is this text. */
bool literal_is(const struct literals *l, const struct literal *node, const char *text);

static inline const struct literal *literal_child(const struct literals *l, const struct literal *node)
{
	return node->child ? &l->nodes[node->child] : NULL;
}

static inline const struct literal *literal_next(const struct literals *l, const struct literal *node)
{
	return node->next ? &l->nodes[node->next] : NULL;
}

#endif
