/* SPDX-License-Identifier: Apache-2.0 */
/* Writes a document as JSON (RFC 8259). The output is valid whatever bytes the texts contain. */
#include "client.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct writer {
	char *text;
	size_t len;
	size_t cap;
	bool failed;
	int indent;
};

static void write_node(struct writer *w, const tma_document *node, int depth);

char *tma_document_json(const tma_document *node, int indent)
{
	struct writer w = { .indent = indent > 0 ? indent : 0 };

	write_node(&w, node, 0);
	if (w.failed) {
		free(w.text);
		return NULL;
	}
	return w.text;
}

/* Appends data and keeps the text terminated by a NUL. */
static void put(struct writer *w, const char *data, size_t len)
{
	size_t cap = w->cap ? w->cap : 256;
	char *grown;

	if (w->failed)
		return;
	while (cap - w->len <= len)
		cap *= 2;
	if (cap != w->cap) {
		grown = realloc(w->text, cap);
		if (!grown) {
			w->failed = true;
			return;
		}
		w->text = grown;
		w->cap = cap;
	}
	memcpy(w->text + w->len, data, len);
	w->len += len;
	w->text[w->len] = '\0';
}

static void put_text(struct writer *w, const char *text)
{
	put(w, text, strlen(text));
}

static void put_line(struct writer *w, int depth)
{
	if (!w->indent)
		return;
	put(w, "\n", 1);
	for (int i = 0; i < depth * w->indent; i++)
		put(w, " ", 1);
}

/* Returns the length of the well-formed UTF-8 sequence at s, without overlong forms and surrogates, or 0 if
 * there is none. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
	size_t n = s[0] < 0x80   ? 1
	           : s[0] < 0xc2 ? 0
	           : s[0] < 0xe0 ? 2
	           : s[0] < 0xf0 ? 3
	           : s[0] < 0xf5 ? 4
	                         : 0;

	if (!n || n > left)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))
		return 0;
	return n;
}

static void put_string(struct writer *w, const char *data, size_t len)
{
	/* pairs of a byte and the letter of its escape */
	static const char short_escapes[] = "\"\"\\\\\bb\ff\nn\rr\tt";
	const unsigned char *s = (const unsigned char *)data;
	const char *escape;
	char text[8];
	size_t n;

	put(w, "\"", 1);
	for (size_t i = 0; i < len; i += n) {
		n = utf8_len(s + i, len - i);
		escape = NULL;
		for (const char *e = short_escapes; !escape && *e; e += 2)
			if ((unsigned char)*e == s[i])
				escape = e + 1;
		if (!n) {
			put_text(w, "\xef\xbf\xbd"); /* U+FFFD */
			n = 1;
		} else if (escape) {
			snprintf(text, sizeof text, "\\%c", *escape);
			put_text(w, text);
		} else if (s[i] < 0x20 || s[i] == 0x7f) {
			snprintf(text, sizeof text, "\\u%04x", s[i]);
			put_text(w, text);
		} else {
			put(w, data + i, n);
		}
	}
	put(w, "\"", 1);
}

/* Writes the shortest of 15 to 17 digits that reads back as the same number. JSON has neither NaN nor
 * infinity: they become null. */
static void put_real(struct writer *w, double real)
{
	char text[40];

	if (!isfinite(real)) {
		put_text(w, "null");
		return;
	}
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof text, "%.*g", digits, real);
		if (strtod(text, NULL) == real)
			break;
	}
	for (char *c = text; *c; c++) /* The locale's decimal point becomes a dot. */
		if (!strchr("+-0123456789e", *c))
			*c = '.';
	if (!strpbrk(text, ".e"))
		strcat(text, ".0");
	put_text(w, text);
}

static void put_int(struct writer *w, const tma_document *node)
{
	char text[24];
	uint64_t u;

	if (document_uint(node, &u))
		snprintf(text, sizeof text, "%" PRIu64, u);
	else
		snprintf(text, sizeof text, "%" PRId64, tma_document_int(node));
	put_text(w, text);
}

static void write_items(struct writer *w, const tma_document *node, int depth, bool is_map)
{
	size_t count = tma_document_count(node);
	const tma_document *item;
	const char *key;

	put(w, is_map ? "{" : "[", 1);
	for (size_t i = 0; i < count; i++) {
		item = tma_document_at(node, i, &key);
		if (i)
			put(w, ",", 1);
		put_line(w, depth + 1);
		if (is_map) {
			put_string(w, key, strlen(key));
			put_text(w, w->indent ? ": " : ":");
		}
		write_node(w, item, depth + 1);
	}
	if (count)
		put_line(w, depth);
	put(w, is_map ? "}" : "]", 1);
}

static void write_node(struct writer *w, const tma_document *node, int depth)
{
	size_t len;
	const char *text;

	switch (tma_document_kind(node)) {
	case TMA_DOCUMENT_NULL:
		put_text(w, "null");
		break;
	case TMA_DOCUMENT_BOOL:
		put_text(w, tma_document_int(node) ? "true" : "false");
		break;
	case TMA_DOCUMENT_INT:
		put_int(w, node);
		break;
	case TMA_DOCUMENT_REAL:
		put_real(w, tma_document_real(node));
		break;
	case TMA_DOCUMENT_TEXT:
		text = document_bytes(node, &len);
		put_string(w, text, len);
		break;
	case TMA_DOCUMENT_LIST:
	case TMA_DOCUMENT_MAP:
		write_items(w, node, depth, tma_document_kind(node) == TMA_DOCUMENT_MAP);
		break;
	}
}
