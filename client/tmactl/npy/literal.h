/* SPDX-License-Identifier: Apache-2.0 */
/* Parses Python literals, as far as .npy headers contain them: dicts, lists, tuples, strings, integers, True,
 * False and None. The nodes refer to the text, which must outlive them. */
#ifndef CLIENT_TMACTL_NPY_LITERAL_H
#define CLIENT_TMACTL_NPY_LITERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum literal_kind {
	LITERAL_STRING, /* start and end enclose the text between the quotes; escapes are not decoded */
	LITERAL_INT,
	LITERAL_BOOL, /* value is 0 or 1 */
	LITERAL_NONE,
	LITERAL_LIST,
	LITERAL_TUPLE,
	LITERAL_DICT, /* children alternate between keys and values */
};

struct literal {
	enum literal_kind kind;
	uint32_t n;     /* number of children */
	uint32_t child; /* index of the first child; 0: none */
	uint32_t next;  /* index of the next sibling; 0: none */
	size_t start;   /* the node's text is [start, end) of literals.text */
	size_t end;
	int64_t value; /* for LITERAL_INT and LITERAL_BOOL */
};

struct literals {
	const char *text;      /* not owned */
	struct literal *nodes; /* nodes[0] is the root */
	uint32_t n;
	uint32_t cap; /* nodes allocated */
};

/* Parses the whole text as one literal, with white space around it. Returns 0, or -1 if it is not one: then
 * *ret_at is the byte where parsing failed and *ret_what says what was expected there. The caller frees *ret
 * with literals_deinit() in either case. */
int literals_parse(struct literals *ret, const char *text, size_t len, size_t *ret_at, const char **ret_what);
void literals_deinit(struct literals *l);

/* Returns whether the node is a string with this text. */
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
