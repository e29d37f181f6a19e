/* SPDX-License-Identifier: Apache-2.0 */
/* A recursive parser for untrusted text. Its depth is bounded. The nodes are in one array, and refer to each
 * other by index, because the array moves as it grows. */
#include "literal.h"

#include <stdlib.h>
#include <string.h>

#define MAX_DEPTH 64
#define NO_NODE   UINT32_MAX

struct parser {
	struct literals *out;
	const char *text;
	size_t len;
	size_t pos;
	const char *what; /* what was expected at pos, if parsing has failed */
};

static uint32_t parse_value(struct parser *p, int depth);
static uint32_t parse_string(struct parser *p);
static uint32_t parse_int(struct parser *p);
static uint32_t parse_word(struct parser *p);
static uint32_t parse_items(struct parser *p, int depth);

int literals_parse(struct literals *ret, const char *text, size_t len, size_t *ret_at, const char **ret_what)
{
	struct parser p = { .out = ret, .text = text, .len = len };
	uint32_t root;

	*ret = (struct literals){ .text = text };
	root = parse_value(&p, 0);
	if (root != NO_NODE) {
		while (p.pos < len && strchr(" \t\r\n", text[p.pos]) && text[p.pos])
			p.pos++;
		if (p.pos == len)
			return 0;
		p.what = "the end";
	}
	*ret_at = p.pos;
	*ret_what = p.what;
	return -1;
}

void literals_deinit(struct literals *l)
{
	free(l->nodes);
	*l = (struct literals){ 0 };
}

bool literal_is(const struct literals *l, const struct literal *node, const char *text)
{
	size_t len = strlen(text);

	return node->kind == LITERAL_STRING && node->end - node->start == len &&
	       !memcmp(l->text + node->start, text, len);
}

static uint32_t expected(struct parser *p, const char *what)
{
	p->what = what;
	return NO_NODE;
}

/* Skips white space and returns the byte after it, or 0 at the end of the text. */
static char peek(struct parser *p)
{
	while (p->pos < p->len && (p->text[p->pos] == ' ' || p->text[p->pos] == '\t' ||
	                           p->text[p->pos] == '\n' || p->text[p->pos] == '\r'))
		p->pos++;
	return p->pos < p->len ? p->text[p->pos] : '\0';
}

static uint32_t node_new(struct parser *p, enum literal_kind kind, size_t start)
{
	struct literals *l = p->out;
	uint32_t cap = l->cap ? 2 * l->cap : 32;
	struct literal *grown;

	if (l->n == l->cap) {
		grown = realloc(l->nodes, cap * sizeof *grown);
		if (!grown)
			return expected(p, "less, memory is short");
		l->nodes = grown;
		l->cap = cap;
	}
	l->nodes[l->n] = (struct literal){ .kind = kind, .start = start, .end = p->pos };
	return l->n++;
}

static uint32_t parse_value(struct parser *p, int depth)
{
	char c = peek(p);

	if (depth == MAX_DEPTH)
		return expected(p, "less nesting");
	switch (c) {
	case '\'':
	case '"':
		return parse_string(p);
	case 'u':
	case 'U':
		if (p->pos + 1 < p->len && (p->text[p->pos + 1] == '\'' || p->text[p->pos + 1] == '"')) {
			p->pos++;
			return parse_string(p);
		}
		return expected(p, "a value");
	case '(':
	case '[':
	case '{':
		return parse_items(p, depth);
	default:
		if (c == '-' || (c >= '0' && c <= '9'))
			return parse_int(p);
		return parse_word(p);
	}
}

static uint32_t parse_string(struct parser *p)
{
	char quote = p->text[p->pos++];
	size_t start = p->pos;
	uint32_t node;

	while (p->pos < p->len && p->text[p->pos] != quote && p->text[p->pos] != '\n')
		p->pos += p->text[p->pos] == '\\' ? 2 : 1;
	if (p->pos >= p->len || p->text[p->pos] != quote) {
		p->pos = p->pos < p->len ? p->pos : p->len;
		return expected(p, "a closing quote");
	}
	node = node_new(p, LITERAL_STRING, start);
	p->pos++;
	return node;
}

static uint32_t parse_int(struct parser *p)
{
	size_t start = p->pos;
	bool negative = p->text[p->pos] == '-';
	int64_t value = 0;
	size_t digits;
	uint32_t node;

	p->pos += negative;
	digits = p->pos;
	while (p->pos < p->len && p->text[p->pos] >= '0' && p->text[p->pos] <= '9') {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, p->text[p->pos] - '0', &value))
			return expected(p, "an integer of 63 bits");
		p->pos++;
	}
	if (p->pos == digits)
		return expected(p, "a digit");
	node = node_new(p, LITERAL_INT, start);
	if (node == NO_NODE)
		return node;
	p->out->nodes[node].value = negative ? -value : value;
	if (p->pos < p->len && p->text[p->pos] == 'L') /* Python 2 writes long integers as 1L. */
		p->pos++;
	return node;
}

static uint32_t parse_word(struct parser *p)
{
	static const struct {
		const char *word;
		enum literal_kind kind;
		int64_t value;
	} words[] = { { "True", LITERAL_BOOL, 1 },
		      { "False", LITERAL_BOOL, 0 },
		      { "None", LITERAL_NONE, 0 } };
	size_t start = p->pos;
	uint32_t node;

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		size_t len = strlen(words[i].word);

		if (p->len - p->pos < len || memcmp(p->text + p->pos, words[i].word, len))
			continue;
		p->pos += len;
		node = node_new(p, words[i].kind, start);
		if (node != NO_NODE)
			p->out->nodes[node].value = words[i].value;
		return node;
	}
	return expected(p, "a value");
}

/* Parses a tuple, list or dict. (1) is taken for a tuple, although it is a number in Python; headers do not
 * contain it. */
static uint32_t parse_items(struct parser *p, int depth)
{
	char open = p->text[p->pos];
	char close = open == '(' ? ')' : open == '[' ? ']' : '}';
	enum literal_kind kind = open == '(' ? LITERAL_TUPLE : open == '[' ? LITERAL_LIST : LITERAL_DICT;
	uint32_t node = node_new(p, kind, p->pos);
	uint32_t last = NO_NODE;
	uint32_t item;

	if (node == NO_NODE)
		return node;
	p->pos++;
	while (peek(p) != close) {
		item = parse_value(p, depth + 1);
		if (item == NO_NODE)
			return item;
		if (last == NO_NODE)
			p->out->nodes[node].child = item;
		else
			p->out->nodes[last].next = item;
		last = item;
		p->out->nodes[node].n++;
		if (kind == LITERAL_DICT && p->out->nodes[node].n % 2) {
			if (peek(p) != ':')
				return expected(p, "a colon");
			p->pos++;
			peek(p);
			if (p->pos < p->len && p->text[p->pos] == close)
				return expected(p, "a value");
			continue;
		}
		if (peek(p) != ',')
			break;
		p->pos++;
	}
	if (peek(p) != close)
		return expected(p, "a comma or a closing bracket");
	p->pos++;
	p->out->nodes[node].end = p->pos;
	return node;
}
