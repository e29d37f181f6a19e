/* SPDX-License-Identifier: Apache-2.0 */
/* Tests documents that are made from MessagePack, and their JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <msgpack.h>

#include "client/client.h"

/* Returns the document of one MessagePack value, or NULL and sets *err. */
static tma_document *document_of(const char *data, size_t len, struct error *err)
{
	msgpack_unpacked unpacked;
	tma_document *document;
	size_t off = 0;

	msgpack_unpacked_init(&unpacked);
	cr_assert_eq(msgpack_unpack_next(&unpacked, data, len, &off), MSGPACK_UNPACK_SUCCESS);
	document = document_new(&unpacked.data, err);
	msgpack_unpacked_destroy(&unpacked);
	return document;
}

struct json_row {
	char name[24];
	char data[48];
	size_t len;
	char json[64];
};

#define DATA(text) .data = text, .len = sizeof text - 1

ParameterizedTestParameters(document, json)
{
	static struct json_row rows[] = {
		{ .name = "nil", DATA("\xc0"), .json = "null" },
		{ .name = "true", DATA("\xc3"), .json = "true" },
		{ .name = "negative", DATA("\xff"), .json = "-1" },
		{ .name = "largest signed",
		  DATA("\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"),
		  .json = "9223372036854775807" },
		{ .name = "largest unsigned",
		  DATA("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
		  .json = "18446744073709551615" },
		{ .name = "smallest",
		  DATA("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"),
		  .json = "-9223372036854775808" },
		{ .name = "real", DATA("\xcb\x3f\xb9\x99\x99\x99\x99\x99\x9a"), .json = "0.1" },
		{ .name = "whole real", DATA("\xcb\x40\x08\x00\x00\x00\x00\x00\x00"), .json = "3.0" },
		{ .name = "huge real", DATA("\xcb\x7e\x37\xe4\x3c\x88\x00\x75\x9c"), .json = "1e+300" },
		{ .name = "nan", DATA("\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"), .json = "null" },
		{ .name = "infinity", DATA("\xcb\x7f\xf0\x00\x00\x00\x00\x00\x00"), .json = "null" },
		{ .name = "empty text", DATA("\xa0"), .json = "\"\"" },
		{ .name = "quotes",
		  DATA("\xa4"
		       "a\"\\/"),
		  .json = "\"a\\\"\\\\/\"" },
		{ .name = "controls", DATA("\xa6\n\t\r\b\f\x01"), .json = "\"\\n\\t\\r\\b\\f\\u0001\"" },
		{ .name = "NUL",
		  DATA("\xa3"
		       "a\0b"),
		  .json = "\"a\\u0000b\"" },
		{ .name = "delete", DATA("\xa1\x7f"), .json = "\"\\u007f\"" },
		{ .name = "UTF-8",
		  DATA("\xa9\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"),
		  .json = "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"" },
		{ .name = "stray byte",
		  DATA("\xa2\xff"
		       "a"),
		  .json = "\"\xef\xbf\xbd"
		          "a\"" },
		{ .name = "overlong", DATA("\xa2\xc0\x80"), .json = "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ .name = "surrogate",
		  DATA("\xa3\xed\xa0\x80"),
		  .json = "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ .name = "cut sequence", DATA("\xa2\xe2\x82"), .json = "\"\xef\xbf\xbd\xef\xbf\xbd\"" },
		{ .name = "binary",
		  DATA("\xc4\x02"
		       "ab"),
		  .json = "\"ab\"" },
		{ .name = "empty list", DATA("\x90"), .json = "[]" },
		{ .name = "empty map", DATA("\x80"), .json = "{}" },
		{ .name = "nested",
		  DATA("\x82\xa1"
		       "a"
		       "\x92\x01\xc2\xa1"
		       "b"
		       "\x81\xa1"
		       "c"
		       "\xc0"),
		  .json = "{\"a\":[1,false],\"b\":{\"c\":null}}" },
		{ .name = "list of maps",
		  DATA("\x92\x81\xa1"
		       "a"
		       "\x01\x80"),
		  .json = "[{\"a\":1},{}]" },
	};

	return cr_make_param_array(struct json_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct json_row *row, document, json)
{
	struct error err = { 0 };
	tma_document *document = document_of(row->data, row->len, &err);
	char *json;

	cr_assert_not_null(document, "%s: %s", row->name, err.message);
	json = tma_document_json(document, 0);
	cr_assert_str_eq(json, row->json, "%s: %s", row->name, json);
	free(json);
	tma_document_free(document);
}

Test(document, json_in_lines)
{
	static const char data[] = "\x82\xa1"
				   "a"
				   "\x92\x01\x02\xa1"
				   "b"
				   "\x80";
	struct error err = { 0 };
	tma_document *document = document_of(data, sizeof data - 1, &err);
	char *json = tma_document_json(document, 2);

	cr_assert_str_eq(json, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
	free(json);
	tma_document_free(document);
}

Test(document, nodes_say_what_they_are)
{
	static const char data[] = "\x85\xa1"
				   "i"
				   "\x07\xa1"
				   "r"
				   "\xcb\x40\x08\x00\x00\x00\x00\x00\x00"
				   "\xa1"
				   "t"
				   "\xa2"
				   "ok"
				   "\xa1"
				   "l"
				   "\x92\x01\xc3\xa1"
				   "u"
				   "\xcf\xff\xff\xff\xff\xff\xff\xff\xff";
	struct error err = { 0 };
	tma_document *root = document_of(data, sizeof data - 1, &err);
	const tma_document *list = tma_document_find(root, "l");
	const char *key = NULL;

	cr_assert_eq(tma_document_kind(root), TMA_DOCUMENT_MAP);
	cr_assert_eq(tma_document_count(root), 5);
	cr_assert_eq(tma_document_int(tma_document_find(root, "i")), 7);
	cr_assert_eq(tma_document_real(tma_document_find(root, "i")), 7);
	cr_assert_eq(tma_document_int(tma_document_find(root, "r")), 3);
	cr_assert_eq(tma_document_kind(tma_document_find(root, "r")), TMA_DOCUMENT_REAL);
	cr_assert_str_eq(tma_document_text(tma_document_find(root, "t")), "ok");
	cr_assert_eq(tma_document_int(tma_document_find(root, "u")), INT64_MAX);
	cr_assert_eq(tma_document_real(tma_document_find(root, "u")), 18446744073709551615.0);
	cr_assert_eq(tma_document_count(list), 2);
	cr_assert_eq(tma_document_int(tma_document_at(list, 1, &key)), 1);
	cr_assert_null(key);
	cr_assert_not_null(tma_document_at(root, 2, &key));
	cr_assert_str_eq(key, "t");
	cr_assert_null(tma_document_at(root, 5, NULL));
	cr_assert_null(tma_document_find(root, "none"));
	cr_assert_null(tma_document_find(list, "i"));
	cr_assert_null(tma_document_text(list));
	cr_assert_eq(tma_document_int(list), 0);
	cr_assert_eq(tma_document_kind(NULL), TMA_DOCUMENT_NULL);
	cr_assert_eq(tma_document_count(NULL), 0);
	tma_document_free(root);
	tma_document_free(NULL);
}

Test(document, keys_are_strings)
{
	struct error err = { 0 };

	cr_assert_null(document_of("\x81\x01\x02", 3, &err));
	cr_assert_eq(err.status, STATUS_PROTOCOL);
}
