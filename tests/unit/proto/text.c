/* SPDX-License-Identifier: Apache-2.0 */
/* Tests quoting and cleaning of text, row by row. */
#include "proto/status.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

struct quote_row {
	char name[32];
	char data[64];
	size_t len;
	size_t size;
	char text[64];
};

ParameterizedTestParameters(text, quotes)
{
	static struct quote_row rows[] = {
		{ .name = "plain", .data = "float12", .len = 7, .size = 48, .text = "\"float12\"" },
		{ .name = "empty", .len = 0, .size = 6, .text = "\"\"" },
		{ .name = "quote and backslash",
		  .data = "a\"\\",
		  .len = 3,
		  .size = 48,
		  .text = "\"a\\\"\\\\\"" },
		{ .name = "NUL and newline", .data = "\0\n", .len = 2, .size = 48, .text = "\"\\x00\\x0a\"" },
		{ .name = "not ASCII",
		  .data = "\xc3\xa9\x7f",
		  .len = 3,
		  .size = 48,
		  .text = "\"\\xc3\\xa9\\x7f\"" },
		{ .name = "escape sequence",
		  .data = "\x1b[31m",
		  .len = 5,
		  .size = 48,
		  .text = "\"\\x1b[31m\"" },
		{ .name = "just fits", .data = "abcdef", .len = 6, .size = 9, .text = "\"abcdef\"" },
		{ .name = "cut", .data = "abcdefg", .len = 7, .size = 9, .text = "\"abc...\"" },
		{ .name = "no half escapes",
		  .data = "abc\xff\xff",
		  .len = 5,
		  .size = 9,
		  .text = "\"abc...\"" },
		{ .name = "smallest", .data = "abcdefg", .len = 7, .size = 6, .text = "\"...\"" },
	};

	return cr_make_param_array(struct quote_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct quote_row *row, text, quotes)
{
	char text[64];

	memset(text, 'x', sizeof text);
	cr_assert_str_eq(text_quote(row->data, row->len, text, row->size), row->text, "%s: got %s", row->name,
	                 text);
	cr_assert_eq(text[row->size], 'x', "%s: wrote past %zu bytes", row->name, row->size);
}

struct clean_row {
	char name[32];
	char data[32];
	size_t len;
	size_t size;
	char text[32];
};

ParameterizedTestParameters(text, cleans)
{
	static struct clean_row rows[] = {
		{ .name = "plain", .data = "abc", .len = 3, .size = 32, .text = "abc" },
		{ .name = "empty", .len = 0, .size = 1, .text = "" },
		{ .name = "control", .data = "a\n\x1b\x7f", .len = 4, .size = 32, .text = "a???" },
		{ .name = "C1 control", .data = "\xc2\x9b", .len = 2, .size = 32, .text = "??" },
		{ .name = "2 to 4 bytes",
		  .data = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		  .len = 9,
		  .size = 32,
		  .text = "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
		{ .name = "stray continuation", .data = "a\xa9z", .len = 3, .size = 32, .text = "a?z" },
		{ .name = "cut character", .data = "a\xe2\x82", .len = 3, .size = 32, .text = "a??" },
		{ .name = "overlong", .data = "\xc0\xaf\xe0\x80\x80", .len = 5, .size = 32, .text = "?????" },
		{ .name = "surrogate", .data = "\xed\xa0\x80", .len = 3, .size = 32, .text = "???" },
		{ .name = "past the end of Unicode",
		  .data = "\xf4\x90\x80\x80",
		  .len = 4,
		  .size = 32,
		  .text = "????" },
		{ .name = "never a byte", .data = "\xff\xfe", .len = 2, .size = 32, .text = "??" },
		{ .name = "just fits", .data = "ab\xc3\xa9", .len = 4, .size = 5, .text = "ab\xc3\xa9" },
		{ .name = "cut between characters", .data = "ab\xc3\xa9", .len = 4, .size = 4, .text = "ab" },
	};

	return cr_make_param_array(struct clean_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct clean_row *row, text, cleans)
{
	char text[32];
	size_t len = text_clean(row->data, row->len, text, row->size);

	cr_assert_str_eq(text, row->text, "%s: got %s", row->name, text);
	cr_assert_eq(len, strlen(row->text), "%s: length %zu", row->name, len);
}
