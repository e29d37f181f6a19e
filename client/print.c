/* Documents and quantities for people. */
#include "print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 79 /* columns of a line of words */

char *print_bytes(uint64_t bytes, char *text, size_t text_size)
{
	static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
	double value = (double)bytes;
	size_t unit = 0;
	int decimals;

	while (value >= 999.5) {
		value /= 1000;
		unit++;
	}
	decimals = !unit || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
	snprintf(text, text_size, "%.*f %s", decimals, value, units[unit]);
	return text;
}

void print_map(const tma_document *map)
{
	size_t count = tma_document_count(map);
	int width = 0;
	const char *key;

	for (size_t i = 0; i < count; i++) {
		tma_document_at(map, i, &key);
		if ((int)strlen(key) > width)
			width = (int)strlen(key);
	}
	for (size_t i = 0; i < count; i++) {
		const tma_document *value = tma_document_at(map, i, &key);

		printf("%-*s  ", width, key);
		print_value(value);
		putchar('\n');
	}
}

void print_value(const tma_document *node)
{
	enum tma_document_kind kind = tma_document_kind(node);
	size_t count = tma_document_count(node);
	const char *key;

	switch (kind) {
	case TMA_DOCUMENT_NULL:
		putchar('-');
		break;
	case TMA_DOCUMENT_BOOL:
		fputs(tma_document_int(node) ? "yes" : "no", stdout);
		break;
	case TMA_DOCUMENT_INT:
		printf("%" PRId64, tma_document_int(node));
		break;
	case TMA_DOCUMENT_REAL:
		printf("%g", tma_document_real(node));
		break;
	case TMA_DOCUMENT_TEXT:
		fputs(tma_document_text(node), stdout);
		break;
	case TMA_DOCUMENT_LIST:
	case TMA_DOCUMENT_MAP:
		if (!count)
			fputs("none", stdout);
		for (size_t i = 0; i < count; i++) {
			const tma_document *item = tma_document_at(node, i, &key);

			if (i)
				fputs(tma_document_kind(item) == TMA_DOCUMENT_MAP ? "; " : ", ", stdout);
			if (kind == TMA_DOCUMENT_MAP)
				printf("%s ", key);
			print_value(item);
		}
		break;
	}
}

void print_json_string(const char *text, size_t len, int utf8)
{
	putchar('"');
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c == 0x7f || (c > 0x7f && !utf8))
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

void print_wrapped(const char *text, int column, int at)
{
	size_t len;

	for (; *text; text += strspn(text, " ")) {
		len = strcspn(text, " ");
		if (at > column && at + 1 + (int)len > WIDTH) {
			putchar('\n');
			at = 0;
		}
		if (at < column)
			at += printf("%*s", column - at, "");
		else if (at > column)
			at += printf(" ");
		at += printf("%.*s", (int)len, text);
		text += len;
	}
	putchar('\n');
}
