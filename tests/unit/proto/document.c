/* SPDX-License-Identifier: Apache-2.0 */
/* Compares protocol.md with the tables: each section that is generated from them stands in it word for word,
 * and it has no other row. When this fails, replace the section by the text that is printed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "proto/wire/codec.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/schema.h"

static char *document;

/* The section as the tables generate it. */
static char section[16 * 1024];
static size_t section_len;

static void setup(void)
{
	FILE *file = fopen(PROTOCOL_MD, "r");
	long size;

	cr_assert_not_null(file, "cannot open %s", PROTOCOL_MD);
	fseek(file, 0, SEEK_END);
	size = ftell(file);
	rewind(file);
	document = calloc(1, (size_t)size + 1);
	cr_assert_eq(fread(document, 1, (size_t)size, file), (size_t)size);
	fclose(file);
}

static void teardown(void)
{
	free(document);
}

TestSuite(document, .init = setup, .fini = teardown);

__attribute__((format(printf, 1, 2))) static void add(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	section_len += (size_t)vsnprintf(section + section_len, sizeof section - section_len, format, args);
	va_end(args);
	cr_assert_lt(section_len, sizeof section);
}

static unsigned count(const char *text, const char *part)
{
	unsigned n = 0;

	for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
		n++;
	return n;
}

static unsigned rows_due, headings_due;

/* Expects the section once in the document. */
static void check_section(const char *name)
{
	cr_expect_eq(count(document, section), 1, "protocol.md has not exactly one:\n%s\n(%s)", section,
	             name);
	rows_due += count(section, "\n| `");
	headings_due += !strncmp(section, "### `", 5);
	section[0] = '\0';
	section_len = 0;
}

/* Returns a kind's name without its article, if it has one: "non-negative integer". */
static const char *kind_name(enum field_kind kind)
{
	const char *name = codec_kind_names[kind];

	return *name == 'a' ? strchr(name, ' ') + 1 : name;
}

static void add_presence(const struct field *field)
{
	const struct codec_name_set *set = &codec_name_sets[field->kind];

	if (field->required)
		add("required");
	else if (field->kind == FIELD_KIND_BOOL)
		add("default `%s`", field->dflt ? "true" : "false");
	else if (field->kind == FIELD_KIND_UINT)
		add("default `%lld`", (long long)field->dflt);
	else if (field->kind == FIELD_KIND_VALUE)
		add("default `0`");
	else if (set->names && field->dflt < set->n)
		add("default `%s`", set->names[field->dflt]);
	else
		add("optional");
}

static void add_message(const struct message *message)
{
	add("### `%s`\n\n%s\n\n| Field | Type | Presence | Meaning |\n|---|---|---|---|\n", message->name,
	    message->doc);
	for (const struct field *f = message->fields; f->name; f++) {
		add("| `%s` | %s", f->name, kind_name(f->kind));
		if (f->inner)
			add(", `%s`", f->inner->name);
		add(" | ");
		add_presence(f);
		add(" | %s |\n", f->doc);
		cr_expect_null(strchr(f->doc, '|'), "%s.%s: a bar breaks the table", message->name, f->name);
	}
}

static void add_method(const struct method *method)
{
	const char *separator = " ";

	add("| `%s` |", method->name);
	for (const struct field *f = method->params->fields; f->name; f++) {
		const uint64_t bit = UINT64_C(1) << (f - method->params->fields);

		if (method->accepts & bit) {
			add("%s`%s`%s", separator, f->name, method->requires & bit ? "" : "?");
			separator = ", ";
		}
	}
	if (method->accepts)
		add(" of `%s` | ", method->params->name);
	else
		add(" none | ");
	if (method->result_kind == RESULT_TRUE)
		add("`true`");
	else
		add("%s`%s`", method->result_kind == RESULT_LIST ? "array of " : "", method->result->name);
	add(" | %u | %s |\n", method->fds, method->doc);
}

static void add_names(const char *title, const struct codec_name_set *set)
{
	add("%s: ", title);
	for (unsigned i = 0; i < set->n; i++)
		add("%s`%s`", i ? ", " : "", set->names[i]);
	add(".\n");
}

static void add_limits(const char *name, const struct frame_limits *limits)
{
	add("| %s | %zu | %u | %llu |\n", name, limits->bytes, limits->depth,
	    (unsigned long long)limits->elements);
}

static void add_bytes(const char *title, const struct buffer *b)
{
	add("%s", title);
	for (size_t i = b->start; i < b->end; i++)
		add(" %02x", b->data[i]);
	add("\n");
}

Test(document, says_what_the_tables_say)
{
	static const char *const classes[] = { "boolean", "unsigned", "signed", "floating", "complex" };

	add("| Method | Parameters | Result | fds | Meaning |\n|---|---|---|---|---|\n");
	for (int i = 0; i < METHOD_COUNT; i++)
		add_method(&methods[i]);
	check_section("methods");

#define MESSAGE(m, doc)                    \
	if (m##_message.n_fields) {        \
		add_message(&m##_message); \
		check_section(#m);         \
	}
#include "proto/schema.def"

	add("| Name | Code | Meaning |\n|---|---|---|\n");
	for (int status = -1; status >= -STATUS_COUNT; status--)
		add("| `%s` | %d | %s |\n", status_name(status), status, status_meaning(status));
	check_section("statuses");

	add("| Name | Bytes | Class |\n|---|---|---|\n");
	for (int i = 0; i < DTYPE_COUNT; i++)
		add("| `%s` | %u | %s |\n", dtype_names[i], dtype_size((enum dtype)i),
		    classes[dtype_class((enum dtype)i)]);
	check_section("dtypes");

	add_names("Pad modes", &codec_name_sets[FIELD_KIND_PAD_MODE]);
	check_section("pad modes");
	add_names("Casts", &codec_name_sets[FIELD_KIND_CAST]);
	check_section("casts");
	add_names("Region kinds", &codec_name_sets[FIELD_KIND_REGION_KIND]);
	check_section("region kinds");
	add_names("Region states", &codec_name_sets[FIELD_KIND_REGION_STATE]);
	check_section("region states");
	add_names("Completions", &codec_name_sets[FIELD_KIND_COMPLETION]);
	check_section("completions");
	add_names("Priorities", &codec_name_sets[FIELD_KIND_PRIORITY]);
	check_section("priorities");

	add("| Message | Bytes | Depth | Elements |\n|---|---|---|---|\n");
	add_limits("to the service", &frame_request_limits);
	add_limits("from the service", &frame_reply_limits);
	check_section("limits");

	cr_expect_eq(count(document, "\n| `"), rows_due, "protocol.md has %u rows, the tables have %u",
	             count(document, "\n| `"), rows_due);
	cr_expect_eq(count(document, "\n### `"), headings_due,
	             "protocol.md has %u messages, the tables have %u", count(document, "\n### `"),
	             headings_due);
}

Test(document, names_its_version)
{
	add("This is version %d of the protocol.", PROTOCOL_VERSION);
	check_section("version");
}

Test(document, its_ping_is_the_real_one)
{
	struct error error;
	struct buffer b = { 0 };

	cr_assert_eq(rpc_encode_request(&b, 1, &methods[METHOD_ping], NULL), 0);
	add_bytes("    request ", &b);
	buffer_truncate(&b, 0);
	cr_assert_eq(rpc_encode_result(&b, 1, &methods[METHOD_ping], NULL), 0);
	add_bytes("    reply   ", &b);
	check_section("ping");

	buffer_truncate(&b, 0);
	error_set(&error, STATUS_UNSUPPORTED, "no method \"pong\"; info lists the methods");
	cr_assert_eq(rpc_encode_error(&b, 2, &error), 0);
	cr_assert_geq(buffer_len(&b), 16);
	b.end = b.start + 16;
	add_bytes("    refusal ", &b);
	section[--section_len] = '\0';
	check_section("refusal");
	buffer_deinit(&b);
}
