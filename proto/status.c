/* SPDX-License-Identifier: Apache-2.0 */
/* Names and meanings of status codes, the function that fills a struct error, and text that is quoted or
 * cleaned. */
#include "status.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

const char *status_name(int status)
{
	switch (status) {
	case STATUS_PENDING:
		return "PENDING";
	case STATUS_OK:
		return "OK";
#define STATUS(name, code, meaning, remedy) \
	case code:                          \
		return #name;
#define LIBRARY_STATUS STATUS
#include "status.def"
	default:
		return "UNKNOWN";
	}
}

const char *status_meaning(int status)
{
	switch (status) {
	case STATUS_PENDING:
		return "not yet";
	case STATUS_OK:
		return "done";
#define STATUS(name, code, meaning, remedy) \
	case code:                          \
		return meaning;
#define LIBRARY_STATUS STATUS
#include "status.def"
	default:
		return "a status this version does not know";
	}
}

int error_set(struct error *err, int status, const char *format, ...)
{
	va_list args;

	err->status = status;
	va_start(args, format);
	vsnprintf(err->message, sizeof err->message, format, args);
	va_end(args);
	return status;
}

/* ---- Foreign text -------------------------------------------------------------------------------------- */

static size_t quote_byte(unsigned char byte, char out[5]);
static size_t utf8_sequence(const unsigned char *s, size_t len);

char *text_quote(const char *data, size_t len, char *text, size_t text_size)
{
	static const char cut[] = "...\"";
	size_t end = 1;
	size_t last = 1; /* last position at which "...\"" still fits */

	text[0] = '"';
	for (size_t i = 0; i < len; i++) {
		char out[5];
		size_t n = quote_byte((unsigned char)data[i], out);

		if (end + sizeof cut <= text_size)
			last = end;
		if (end + n + 2 > text_size) {
			memcpy(text + last, cut, sizeof cut);
			return text;
		}
		memcpy(text + end, out, n);
		end += n;
	}
	memcpy(text + end, "\"", 2);
	return text;
}

size_t text_clean(const char *data, size_t len, char *text, size_t text_size)
{
	const unsigned char *s = (const unsigned char *)data;
	size_t end = 0;

	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence(s + i, len - i);

		if (end + (n ? n : 1) >= text_size)
			break;
		if (n)
			memmove(text + end, s + i, n);
		else
			text[end] = '?';
		end += n ? n : 1;
		i += n ? n : 1;
	}
	text[end] = '\0';
	return end;
}

static size_t quote_byte(unsigned char byte, char out[5])
{
	if (byte < 0x20 || byte > 0x7e)
		return (size_t)snprintf(out, 5, "\\x%02x", byte);
	if (byte == '"' || byte == '\\') {
		out[0] = '\\';
		out[1] = (char)byte;
		return 2;
	}
	out[0] = (char)byte;
	return 1;
}

/* Returns the length of the UTF-8 character at s. Returns 0 if it is malformed (overlong, a surrogate, beyond
 * U+10FFFF, truncated) or a control character. */
static size_t utf8_sequence(const unsigned char *s, size_t len)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = s[0] < 0x80             ? 1
	           : (s[0] & 0xe0) == 0xc0 ? 2
	           : (s[0] & 0xf0) == 0xe0 ? 3
	           : (s[0] & 0xf8) == 0xf0 ? 4
	                                   : 0;
	uint32_t c;

	if (n == 0 || n > len)
		return 0;
	if (n == 1)
		return s[0] >= 0x20 && s[0] != 0x7f;
	c = s[0] & (0x7fu >> n);
	for (size_t i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff) || (c >= 0x80 && c < 0xa0))
		return 0;
	return n;
}
