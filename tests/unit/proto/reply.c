/* SPDX-License-Identifier: Apache-2.0 */
/* Tests replies as a service encodes and a client decodes them. */
#include "proto/wire/rpc.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <msgpack.h>

#include "sample.h"

static struct rpc_decoder *decoder;

static void setup(void)
{
	decoder = rpc_decoder_new();
	cr_assert_not_null(decoder);
}

static void teardown(void)
{
	rpc_decoder_free(decoder);
}

TestSuite(reply, .init = setup, .fini = teardown);

/* Sets data and its length; data may contain NULs. */
#define DATA(text) .data = text, .len = sizeof text - 1

static struct rpc_reply decode_reply(const struct buffer *b)
{
	struct rpc_reply reply;
	struct error err = { 0 };

	cr_assert_eq(rpc_decode_reply(decoder, b->data, buffer_len(b), &reply, &err), 0, "%s", err.message);
	return reply;
}

Test(reply, results_of_every_method_hold_their_fields)
{
	for (int i = 0; i < METHOD_COUNT; i++) {
		const struct method *method = &methods[i];
		const struct message *message = method->result;
		uint64_t value[512];
		struct message_list list = { .items = value, .n = 1 };
		struct buffer b = { 0 };
		const msgpack_object *document;
		struct rpc_reply reply;

		cr_assert_leq(message->size, sizeof value, "%s", method->name);
		sample_message(message, (UINT64_C(1) << message->n_fields) - 1, value);
		cr_assert_eq(rpc_encode_result(&b, UINT32_MAX, method,
		                               method->result_kind == RESULT_LIST ? (void *)&list : value),
		             0, "%s", method->name);
		reply = decode_reply(&b);
		cr_assert_eq(reply.msgid, UINT32_MAX);
		cr_assert_eq(reply.error.status, 0);
		document = reply.document;
		if (method->result_kind == RESULT_TRUE) {
			cr_assert(document->type == MSGPACK_OBJECT_BOOLEAN && document->via.boolean, "%s",
			          method->name);
		} else {
			if (method->result_kind == RESULT_LIST) {
				cr_assert_eq(document->type, MSGPACK_OBJECT_ARRAY, "%s", method->name);
				cr_assert_eq(document->via.array.size, 1, "%s", method->name);
				document = document->via.array.ptr;
			}
			cr_assert_eq(document->type, MSGPACK_OBJECT_MAP, "%s", method->name);
			cr_assert_eq(document->via.map.size, message->n_fields, "%s", method->name);
			for (uint32_t f = 0; f < message->n_fields; f++) {
				const msgpack_object *key = &document->via.map.ptr[f].key;

				cr_assert_eq(key->type, MSGPACK_OBJECT_STR, "%s", method->name);
				cr_assert_eq(key->via.str.size, strlen(message->fields[f].name), "%s.%s",
				             method->name, message->fields[f].name);
				cr_assert_arr_eq(key->via.str.ptr, message->fields[f].name,
				                 key->via.str.size);
			}
		}
		buffer_deinit(&b);
	}
}

Test(reply, results_need_no_bits_for_required_fields)
{
	struct msg_transform_done done = { .path = { "tile_copy", 9 }, .bytes = 12, .ns = UINT64_MAX };
	struct msg_region_created created = { .region = 1, .size = 2, .kind = REGION_KIND_MEMFD };
	struct msg_transform_done got;
	struct msg_region_created got_created;
	struct buffer b = { 0 };
	struct rpc_reply reply;
	struct error err = { 0 };

	cr_assert_eq(rpc_encode_result(&b, 0, &methods[METHOD_copy], &done), 0);
	reply = decode_reply(&b);
	cr_assert_eq(rpc_decode_result(&reply, &methods[METHOD_copy], &got, &err), 0, "%s", err.message);
	cr_assert_eq(got.has, F(transform_done, path) | F(transform_done, bytes) | F(transform_done, ns));
	cr_assert_eq(got.path.len, 9);
	cr_assert_arr_eq(got.path.data, "tile_copy", 9);
	cr_assert_eq(got.bytes, 12);
	cr_assert_eq(got.ns, UINT64_MAX);

	buffer_truncate(&b, 0);
	cr_assert_eq(rpc_encode_result(&b, 0, &methods[METHOD_region_create], &created), 0);
	reply = decode_reply(&b);
	cr_assert_eq(rpc_decode_result(&reply, &methods[METHOD_region_create], &got_created, &err), 0);
	cr_assert_eq(got_created.has & F(region_created, handle), 0);

	buffer_truncate(&b, 0);
	created.has = F(region_created, handle);
	created.handle = (struct bytes){ "hhhh", 4 };
	cr_assert_eq(rpc_encode_result(&b, 0, &methods[METHOD_region_create], &created), 0);
	reply = decode_reply(&b);
	cr_assert_eq(rpc_decode_result(&reply, &methods[METHOD_region_create], &got_created, &err), 0);
	cr_assert_eq(got_created.handle.len, 4);
	buffer_deinit(&b);
}

Test(reply, errors_travel_whole)
{
	static const char *const messages[] = { "", "src.shape: 40 entries, at most 32",
		                                "caf\xc3\xa9 \xf0\x9f\x98\x80" };
	struct buffer b = { 0 };

	for (int status = -STATUS_COUNT; status < 0; status++) {
		for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
			struct error error;
			struct rpc_reply reply;

			error_set(&error, status, "%s", messages[i]);
			cr_assert_eq(rpc_encode_error(&b, 3, &error), 0);
			reply = decode_reply(&b);
			cr_assert_eq(reply.msgid, 3);
			cr_assert_eq(reply.error.status, status);
			cr_assert_str_eq(reply.error.message, messages[i]);
			buffer_truncate(&b, 0);
		}
	}
	buffer_deinit(&b);
}

Test(reply, an_error_has_the_shape_of_the_contract)
{
	static const char expected[] = "\x94\x01\x03\x93\xf8\xa1m\x81\xa4name\xa5QUOTA\xc0";
	struct error error = { STATUS_QUOTA, "m" };
	struct buffer b = { 0 };

	cr_assert_eq(rpc_encode_error(&b, 3, &error), 0);
	cr_assert_eq(buffer_len(&b), sizeof expected - 1);
	cr_assert_arr_eq(b.data, expected, sizeof expected - 1);
	buffer_deinit(&b);
}

Test(reply, an_error_may_be_the_last_of_a_connection)
{
	static const char expected[] = "\x94\x01\x03\x93\xf8\xa1m\x82\xa4name\xa5QUOTA\xa4"
				       "ends\xc3\xc0";
	struct error error = { STATUS_QUOTA, "m" };
	struct buffer b = { 0 };
	struct rpc_reply reply;

	cr_assert_eq(rpc_encode_last_error(&b, 3, &error), 0);
	cr_assert_eq(buffer_len(&b), sizeof expected - 1);
	cr_assert_arr_eq(b.data, expected, sizeof expected - 1);
	reply = decode_reply(&b);
	cr_assert_eq(reply.error.status, STATUS_QUOTA);
	cr_assert(reply.ends);
	buffer_truncate(&b, 0);
	cr_assert_eq(rpc_encode_error(&b, 3, &error), 0);
	cr_assert_not(decode_reply(&b).ends);
	buffer_deinit(&b);
}

Test(reply, error_messages_are_always_utf8)
{
	struct error error = { .status = STATUS_INTERNAL };
	struct buffer b = { 0 };
	struct rpc_reply reply;

	/* error_set cuts a message after 255 bytes, here in the middle of a character. */
	memset(error.message, 'x', 254);
	error.message[254] = '\xc3';
	cr_assert_eq(rpc_encode_error(&b, 3, &error), 0);
	reply = decode_reply(&b);
	cr_assert_eq(reply.error.message[254], '?');
	cr_assert_eq(strlen(reply.error.message), 255);
	buffer_deinit(&b);
}

struct reply_row {
	char name[48];
	char data[96];
	size_t len;
	int r;
	int status; /* status of the error in the reply */
	char message[96];
};

ParameterizedTestParameters(reply, replies)
{
	static struct reply_row rows[] = {
		{ .name = "result", DATA("\x94\x01\x00\xc0\xc3") },
		{ .name = "nil result", DATA("\x94\x01\x00\xc0\xc0") },
		{ .name = "notification", DATA("\x93\x02\xa1n\x90"), .r = 1 },
		{ .name = "code of a newer service",
		  DATA("\x94\x01\x00\x93\xd0\x9c\xa3now\x80\xc0"),
		  .status = -100,
		  .message = "now" },
		{ .name = "more details",
		  DATA("\x94\x01\x00\x94\xff\xa1m\x81\xa4name\xc0\x01\xc0"),
		  .status = -1,
		  .message = "m" },
		{ .name = "no details", DATA("\x94\x01\x00\x92\xff\xa1m\xc0"), .status = -1, .message = "m" },
		{ .name = "message with control bytes",
		  DATA("\x94\x01\x00\x92\xff\xa5\x1b[0m\xff\xc0"),
		  .status = -1,
		  .message = "?[0m?" },
		{ .name = "error a str",
		  DATA("\x94\x01\x00\xa4nope\xc0"),
		  .status = STATUS_PROTOCOL,
		  .message = "the service refused with an error that is not [code, message]: \"nope\"" },
		{ .name = "error a map",
		  DATA("\x94\x01\x00\x80\xc0"),
		  .status = STATUS_PROTOCOL,
		  .message = "the service refused with an error that is not [code, message]: map" },
		{ .name = "error true", DATA("\x94\x01\x00\xc3\xc0"), .status = STATUS_PROTOCOL },
		{ .name = "error an empty array", DATA("\x94\x01\x00\x90\xc0"), .status = STATUS_PROTOCOL },
		{ .name = "code 0", DATA("\x94\x01\x00\x92\x00\xa1m\xc0"), .status = STATUS_PROTOCOL },
		{ .name = "code positive", DATA("\x94\x01\x00\x92\x01\xa1m\xc0"), .status = STATUS_PROTOCOL },
		{ .name = "code of 64 bits",
		  DATA("\x94\x01\x00\x92\xd3\x80\0\0\0\0\0\0\0\xa1m\xc0"),
		  .status = STATUS_PROTOCOL },
		{ .name = "message nil", DATA("\x94\x01\x00\x92\xff\xc0\xc0"), .status = STATUS_PROTOCOL },
		{ .name = "a request", DATA("\x94\x00\x00\xa4ping\x90"), .r = STATUS_PROTOCOL },
		{ .name = "three elements", DATA("\x93\x01\x00\xc0"), .r = STATUS_PROTOCOL },
		{ .name = "msgid a str", DATA("\x94\x01\xa0\xc0\xc0"), .r = STATUS_PROTOCOL },
		{ .name = "a map", DATA("\x80"), .r = STATUS_PROTOCOL },
		{ .name = "cut", DATA("\x94\x01\x00\xc0"), .r = STATUS_PROTOCOL },
	};

	return cr_make_param_array(struct reply_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct reply_row *row, reply, replies)
{
	struct rpc_reply reply = { .msgid = 99 };
	struct error err = { 0 };
	int r = rpc_decode_reply(decoder, (const uint8_t *)row->data, row->len, &reply, &err);

	cr_assert_eq(r, row->r, "%s: %d, %s", row->name, r, err.message);
	if (r < 0)
		cr_assert(err.status == r && *err.message, "%s: no sentence", row->name);
	if (r == 0) {
		cr_assert_eq(reply.msgid, 0, "%s", row->name);
		cr_assert_eq(reply.error.status, row->status, "%s: status %d", row->name, reply.error.status);
		cr_assert_not_null(reply.document, "%s", row->name);
		if (*row->message)
			cr_assert_str_eq(reply.error.message, row->message, "%s: %s", row->name,
			                 reply.error.message);
	}
}

struct result_row {
	char name[48];
	char data[64]; /* bytes of the result of a copy */
	size_t len;
	char message[96]; /* "": the result is decoded */
};

#define DONE                \
	"\xa4path\xa1m\xa5" \
	"bytes\x01\xa2ns\x02"

ParameterizedTestParameters(reply, decoded_results)
{
	static struct result_row rows[] = {
		{ .name = "as it is", DATA("\x83" DONE) },
		{ .name = "a newer field", DATA("\x84" DONE "\xa3new\x91\x01") },
		{ .name = "a key that is no str", DATA("\x84" DONE "\x01\x01") },
		{ .name = "nil", DATA("\xc0"), .message = "the reply to copy is not a map but nil" },
		{ .name = "empty", DATA("\x80"), .message = "the reply to copy: missing field path" },
		{ .name = "wrong type",
		  DATA("\x81\xa2ns\xff"),
		  .message = "the reply to copy: ns: expected a non-negative integer, got -1" },
		{ .name = "twice",
		  DATA("\x84" DONE "\xa2ns\x02"),
		  .message = "the reply to copy: field ns appears twice" },
	};

	return cr_make_param_array(struct result_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct result_row *row, reply, decoded_results)
{
	struct buffer b = { 0 };
	struct msg_transform_done done;
	struct rpc_reply reply;
	struct error err = { 0 };
	int r;

	cr_assert_eq(buffer_append(&b, "\x94\x01\x00\xc0", 4), 0);
	cr_assert_eq(buffer_append(&b, row->data, row->len), 0);
	reply = decode_reply(&b);
	r = rpc_decode_result(&reply, &methods[METHOD_copy], &done, &err);
	cr_assert_eq(r, *row->message ? STATUS_PROTOCOL : 0, "%s: %d", row->name, r);
	cr_assert_str_eq(err.message, row->message, "%s: %s", row->name, err.message);
	if (r == 0)
		cr_assert_eq(done.ns, 2, "%s", row->name);
	buffer_deinit(&b);
}
