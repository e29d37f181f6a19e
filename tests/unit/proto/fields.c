/* SPDX-License-Identifier: Apache-2.0 */
/* Tests every type of MessagePack in every field of every method's parameters. */
#include "proto/wire/rpc.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <msgpack.h>

#include "sample.h"

#define KIND(name) (1u << FIELD_KIND_##name)
#define STRS       KIND(STRING) | KIND(DEVICE)
#define NUMBERS    KIND(VALUE) | KIND(OPERAND)
/* An array is accepted whatever it contains, because its items are decoded one by one later. */
#define ARRAYS KIND(ITEMS) | KIND(LIST)

struct variant {
	const char *name;
	const char *data;
	size_t len;
	uint32_t kinds; /* kinds of field that accept it */
};

#define ROW(name, text, kinds)                     \
	{                                          \
		name, text, sizeof text - 1, kinds \
	}

static const struct variant variants[] = {
	ROW("nil", "\xc0", 0),
	ROW("false", "\xc2", KIND(BOOL) | NUMBERS),
	ROW("true", "\xc3", KIND(BOOL) | NUMBERS),
	ROW("0", "\x00", KIND(UINT) | KIND(DEVICE) | NUMBERS),
	ROW("uint 64", "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", KIND(UINT) | KIND(DEVICE) | NUMBERS),
	ROW("-1", "\xff", NUMBERS),
	ROW("int 64", "\xd3\x80\0\0\0\0\0\0\0", NUMBERS),
	ROW("float 32", "\xca\x40\0\0\0", NUMBERS),
	ROW("float 64", "\xcb\x40\0\0\0\0\0\0\0", NUMBERS),
	ROW("NaN", "\xcb\x7f\xf8\0\0\0\0\0\0", NUMBERS),
	ROW("empty str", "\xa0", STRS),
	ROW("a dtype",
	    "\xa4"
	    "bool",
	    STRS | KIND(DTYPE)),
	ROW("a pad mode",
	    "\xa4"
	    "edge",
	    STRS | KIND(PAD_MODE)),
	ROW("a cast",
	    "\xa5"
	    "exact",
	    STRS | KIND(CAST)),
	ROW("a region kind", "\xa5memfd", STRS | KIND(REGION_KIND)),
	ROW("a completion", "\xa6queued", STRS | KIND(COMPLETION)),
	ROW("a priority", "\xa6urgent", STRS | KIND(PRIORITY)),
	ROW("a name of none",
	    "\xa3"
	    "any",
	    STRS),
	ROW("a name with a NUL",
	    "\xa5"
	    "bool\0",
	    STRS),
	ROW("a name in capitals",
	    "\xa4"
	    "BOOL",
	    STRS),
	ROW("empty bin", "\xc4\x00", KIND(BINARY)),
	ROW("bin",
	    "\xc4\x04"
	    "bool",
	    KIND(BINARY)),
	ROW("empty array", "\x90", KIND(INTS) | ARRAYS),
	ROW("[1]", "\x91\x01", KIND(INTS) | ARRAYS),
	ROW("[1, -1]", "\x92\x01\xff", KIND(INTS) | KIND(VALUE) | ARRAYS),
	ROW("[1, 2]", "\x92\x01\x02", KIND(INTS) | KIND(VALUE) | KIND(PLACE) | ARRAYS),
	ROW("[2^64-1, 0]", "\x92\xcf\xff\xff\xff\xff\xff\xff\xff\xff\0", KIND(VALUE) | KIND(PLACE) | ARRAYS),
	ROW("[1, 2, 3]", "\x93\x01\x02\x03", KIND(INTS) | ARRAYS),
	ROW("[1.5, 2]", "\x92\xca\x3f\xc0\0\0\x02", KIND(VALUE) | ARRAYS),
	ROW("[true, 2]", "\x92\xc3\x02", ARRAYS),
	ROW("[1, nil]", "\x92\x01\xc0", ARRAYS),
	ROW("[[], []]", "\x92\x90\x90", ARRAYS),
	ROW("[2^63]", "\x91\xcf\x80\0\0\0\0\0\0\0", ARRAYS),
	ROW("empty map", "\x80", 0),
	ROW("map", "\x81\xa1k\x01", 0),
	ROW("map of map", "\x81\x80\x80", 0),
};

/* A request with one field replaced: the field `outer` of the parameters or, unless it is NULL, `inner`
 * within that. */
struct target {
	const struct method *method;
	const struct field *outer;
	const struct field *inner;
};

static int write_bytes(void *buffer, const char *data, size_t len)
{
	return buffer_append(buffer, data, len);
}

static void pack_text(msgpack_packer *packer, const char *text)
{
	msgpack_pack_str(packer, strlen(text));
	msgpack_pack_str_body(packer, text, strlen(text));
}

/* Packs a valid value for the field's kind. */
static void pack_valid(msgpack_packer *packer, const struct field *field)
{
	for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
		if (variants[i].kinds & (1u << field->kind)) {
			packer->callback(packer->data, variants[i].data, variants[i].len);
			return;
		}
	}
	cr_assert_fail("no valid value for %s", field->name);
}

static void pack_fields(msgpack_packer *packer, const struct message *message, uint64_t fields,
                        const struct target *target, const struct variant *variant)
{
	msgpack_pack_map(packer, (size_t)__builtin_popcountll(fields));
	for (const struct field *f = message->fields; f->name; f++) {
		bool inner = target && f == target->outer && target->inner;

		if (!(fields & (UINT64_C(1) << (f - message->fields))))
			continue;
		pack_text(packer, f->name);
		if (target && !inner && f == target->outer) {
			packer->callback(packer->data, variant->data, variant->len);
		} else if (f->kind == FIELD_KIND_MESSAGE) {
			const struct target within = { target ? target->method : NULL,
				                       inner ? target->inner : NULL, NULL };

			pack_fields(packer, f->inner, (UINT64_C(1) << f->inner->n_fields) - 1,
			            inner ? &within : NULL, variant);
		} else {
			pack_valid(packer, f);
		}
	}
}

static void check(struct rpc_decoder *decoder, const struct target *target, const struct variant *variant)
{
	const struct field *field = target->inner ? target->inner : target->outer;
	bool valid = variant->kinds & (1u << field->kind);
	struct rpc_request request;
	struct error err = { 0 };
	struct buffer b = { 0 };
	msgpack_packer packer;
	enum rpc_outcome outcome;
	char path[64];

	snprintf(path, sizeof path, "%s%s%s", target->outer->name, target->inner ? "." : "",
	         target->inner ? target->inner->name : "");
	msgpack_packer_init(&packer, &b, write_bytes);
	msgpack_pack_array(&packer, 4);
	msgpack_pack_int(&packer, 0);
	msgpack_pack_int(&packer, 1);
	pack_text(&packer, target->method->name);
	msgpack_pack_array(&packer, 1);
	pack_fields(&packer, target->method->params, target->method->accepts, target, variant);

	outcome = rpc_decode_request(decoder, b.data, buffer_len(&b), &request, &err);
	cr_expect_eq(outcome, valid ? RPC_DISPATCH : RPC_REFUSE, "%s: %s = %s: outcome %d, %s",
	             target->method->name, path, variant->name, outcome, err.message);
	if (outcome == RPC_REFUSE) {
		cr_expect_eq(err.status, STATUS_INVALID_ARGUMENT, "%s: %s = %s", target->method->name, path,
		             variant->name);
		cr_expect_not_null(strstr(err.message, path), "%s: %s = %s: %s", target->method->name, path,
		                   variant->name, err.message);
	}
	buffer_deinit(&b);
}

Test(fields, every_type_in_every_field)
{
	struct rpc_decoder *decoder = rpc_decoder_new();
	int checked = 0;

	for (const struct method *m = methods; m < methods + METHOD_COUNT; m++) {
		for (const struct field *f = m->params->fields; f->name; f++) {
			if (!(m->accepts & (UINT64_C(1) << (f - m->params->fields))))
				continue;
			for (size_t v = 0; v < sizeof variants / sizeof *variants; v++, checked++) {
				check(decoder, &(struct target){ m, f, NULL }, &variants[v]);
				if (f->kind != FIELD_KIND_MESSAGE)
					continue;
				for (const struct field *i = f->inner->fields; i->name; i++, checked++)
					check(decoder, &(struct target){ m, f, i }, &variants[v]);
			}
		}
	}
	cr_assert_gt(checked, 1000);
	rpc_decoder_free(decoder);
}

Test(fields, what_is_encoded_decodes_to_the_same)
{
	struct rpc_decoder *decoder = rpc_decoder_new();

	for (int n = 0; n < SAMPLE_REQUESTS; n++) {
		struct buffer b = sample_nth_request(n), again = { 0 };
		void *items;
		struct rpc_request request;
		struct error err = { 0 };

		cr_assert_eq(rpc_decode_request(decoder, b.data, buffer_len(&b), &request, &err),
		             RPC_DISPATCH, "request %d: %s", n, err.message);
		cr_assert_eq(request.method, &methods[n / 2]);
		cr_assert_eq(request.params.empty.has,
		             n % 2 ? request.method->accepts : request.method->requires, "%s: has %" PRIx64,
		             request.method->name, request.params.empty.has);
		items = sample_keep_lists(&request);
		cr_assert_eq(rpc_encode_request(&again, request.msgid, request.method, &request.params), 0);
		cr_assert_eq(buffer_len(&again), buffer_len(&b), "%s", request.method->name);
		cr_assert_arr_eq(again.data, b.data, buffer_len(&b), "%s", request.method->name);
		free(items);
		buffer_deinit(&b);
		buffer_deinit(&again);
	}
	rpc_decoder_free(decoder);
}
