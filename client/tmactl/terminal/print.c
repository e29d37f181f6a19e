/* SPDX-License-Identifier: Apache-2.0 */
/* Formats quantities and texts for people, and prints documents and JSON strings. */
#include "print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 79 /* columns of a line of wrapped words */

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

char *print_count(uint64_t count, char *text, size_t text_size)
{
	char digits[24];
	int n = snprintf(digits, sizeof digits, "%" PRIu64, count);
	size_t len = 0;

	for (int i = 0; i < n && len + 2 < text_size; i++) {
		if (i && (n - i) % 3 == 0)
			text[len++] = ' ';
		text[len++] = digits[i];
	}
	text[len] = '\0';
	return text;
}

char *print_rate(double per_s, char *text, size_t text_size)
{
	if (per_s > 0 && per_s < 9.95)
		snprintf(text, text_size, "%.1f", per_s);
	else
		print_count((uint64_t)(per_s + 0.5), text, text_size);
	return text;
}

char *print_us(double us, char *text, size_t text_size)
{
	static const char *const units[] = { "us", "ms", "s" };
	size_t unit = 0;

	while (us >= 999.5 && unit < 2) {
		us /= 1000;
		unit++;
	}
	snprintf(text, text_size, "%.*f %s",
	         unit == 0 || us >= 99.95 ? 0
	         : us >= 9.995            ? 1
	                                  : 2,
	         us, units[unit]);
	return text;
}

char *print_age(uint64_t ms, char *text, size_t text_size)
{
	uint64_t s = ms / 1000, min = s / 60, h = min / 60;

	if (h >= 24)
		snprintf(text, text_size, "%" PRIu64 " d %" PRIu64 " h", h / 24, h % 24);
	else if (h)
		snprintf(text, text_size, "%" PRIu64 " h %" PRIu64 " min", h, min % 60);
	else if (min)
		snprintf(text, text_size, "%" PRIu64 " min %" PRIu64 " s", min, s % 60);
	else
		snprintf(text, text_size, "%" PRIu64 " s", s);
	return text;
}

char *print_counted(uint64_t count, const char *noun, char *text, size_t text_size)
{
	size_t len = strlen(noun);
	bool turns = count != 1 && len && noun[len - 1] == 'y';
	char number[32];

	print_count(count, number, sizeof number);
	snprintf(text, text_size, "%s %.*s%s", number, (int)(turns ? len - 1 : len), noun,
	         turns        ? "ies"
	         : count == 1 ? ""
	                      : "s");
	return text;
}

char *print_escaped(const char *data, size_t len, char *text, size_t text_size)
{
	size_t at = 0;

	for (size_t i = 0; i < len && at + 5 <= text_size; i++) {
		unsigned char c = (unsigned char)data[i];

		if (c < 0x20 || c > 0x7e)
			at += (size_t)snprintf(text + at, text_size - at, "\\x%02x", c);
		else if (c == '\\')
			at += (size_t)snprintf(text + at, text_size - at, "\\\\");
		else
			text[at++] = (char)c;
	}
	text[at] = '\0';
	return text;
}

const char *print_safe(const char *text)
{
	static char rooms[8][1024];
	static unsigned last;

	last = (last + 1) % 8;
	return text ? print_escaped(text, strlen(text), rooms[last], sizeof rooms[0]) : "?";
}

void print_clean(char *text)
{
	for (unsigned char *c = (unsigned char *)text; *c; c++) {
		if ((*c < 0x20 && *c != '\n') || *c == 0x7f)
			*c = '?';
		else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
			c[0] = c[1] = '?';
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
		fputs(print_safe(tma_document_text(node)), stdout);
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
				printf("%s ", print_safe(key));
			print_value(item);
		}
		break;
	}
}

/* Returns the length of the UTF-8 character at text, of which `left` bytes remain, or 0 if it is not
 * valid. */
static size_t utf8_len(const char *text, size_t left)
{
	const unsigned char *c = (const unsigned char *)text;
	size_t len = c[0] < 0x80   ? 1
	             : c[0] < 0xc2 ? 0
	             : c[0] < 0xe0 ? 2
	             : c[0] < 0xf0 ? 3
	             : c[0] < 0xf5 ? 4
	                           : 0;

	if (len > left)
		return 0;
	for (size_t i = 1; i < len; i++)
		if ((c[i] & 0xc0) != 0x80)
			return 0;
	if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
	    (c[0] == 0xf4 && c[1] > 0x8f))
		return 0;
	return len;
}

void print_json_to(FILE *file, const char *text, size_t len, int utf8)
{
	size_t n;

	putc('"', file);
	for (size_t i = 0; i < len; i += n) {
		unsigned char c = (unsigned char)text[i];

		n = utf8 && c > 0x7f ? utf8_len(text + i, len - i) : 1;
		if (!n) {
			fputs("\\ufffd", file);
			n = 1;
		} else if (c == '"' || c == '\\') {
			fprintf(file, "\\%c", c);
		} else if (c < 0x20 || c == 0x7f || (c > 0x7f && !utf8)) {
			fprintf(file, "\\u%04x", c);
		} else {
			fwrite(text + i, 1, n, file);
		}
	}
	putc('"', file);
}

void print_json_string(const char *text, size_t len, int utf8)
{
	print_json_to(stdout, text, len, utf8);
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
