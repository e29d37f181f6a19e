/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what is decoded one by one: the items of a submit, and the statuses and errors of its result. Also
 * tests the replies to requests that are queued. */
#include "proto/wire/rpc.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "sample.h"

static struct rpc_decoder *decoder;

static void setup(void)
{
	decoder = rpc_decoder_new();
}

static void teardown(void)
{
	rpc_decoder_free(decoder);
}

TestSuite(lists, .init = setup, .fini = teardown);

/* ---- Items -------------------------------------------------------------------------------------------- */

Test(lists, items_decode_to_what_was_encoded)
{
	struct msg_plan_run run = { .has = F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src),
		                    .plan = 7,
		                    .dst = { 1, 2 },
		                    .src = { 3, UINT64_MAX } };
	struct submit_item sent[] = { { .is_run = true, .run = run }, { .is_run = false } }, got;
	struct msg_submit params = { .has = F(submit, items), .items = { .items = sent, .n = 2 } };
	struct rpc_request request;
	struct buffer b = { 0 };
	struct error err = { 0 };

	sample_message(&transform_message, F(transform, dst) | F(transform, src) | F(transform, mode),
	               &sent[1].transform);
	cr_assert_eq(rpc_encode_request(&b, 1, &methods[METHOD_submit], &params), 0);
	cr_assert_eq(rpc_decode_request(decoder, b.data, buffer_len(&b), &request, &err), RPC_DISPATCH, "%s",
	             err.message);
	cr_assert_eq(request.params.submit.items.n, 2);

	cr_assert_eq(rpc_decode_item(&request.params.submit.items, 0, &got, &err), 0, "%s", err.message);
	cr_assert(got.is_run);
	cr_assert_eq(got.run.plan, 7);
	cr_assert(got.run.dst.region == 1 && got.run.dst.offset == 2);
	cr_assert(got.run.src.region == 3 && got.run.src.offset == UINT64_MAX);
	cr_assert_eq(rpc_decode_item(&request.params.submit.items, 1, &got, &err), 0, "%s", err.message);
	cr_assert_not(got.is_run);
	cr_assert_eq(got.transform.has, sent[1].transform.has);
	cr_assert_eq(got.transform.mode, PAD_MODE_REFLECT);
	cr_assert_eq(got.transform.dst.shape.n, sent[1].transform.dst.shape.n);
	buffer_deinit(&b);
}

struct item_row {
	char name[32];
	char data[96]; /* bytes of items[2] */
	size_t len;
	char message[128]; /* start of the message */
};

#define DATA(text) .data = text, .len = sizeof text - 1
#define TENSOR           \
	"\x82\xa5"       \
	"dtype\xa5uint8" \
	"\xa5shape\x91\x01"

ParameterizedTestParameters(lists, bad_items)
{
	static struct item_row rows[] = {
		{ .name = "nil", DATA("\xc0"), .message = "items[2]: expected a map, got nil" },
		{ .name = "an array", DATA("\x91\x01"), .message = "items[2]: expected a map, got array" },
		{ .name = "empty", DATA("\x80"), .message = "missing field items[2].dst" },
		{ .name = "no src",
		  DATA("\x81\xa3"
		       "dst" TENSOR),
		  .message = "missing field items[2].src" },
		{ .name = "wrong dtype",
		  DATA("\x82\xa3"
		       "dst" TENSOR "\xa3src\x81\xa5"
		       "dtype\x07"),
		  .message = "items[2].src.dtype: expected a dtype's name, got 7" },
		{ .name = "wait",
		  DATA("\x81\xa4wait\x80"),
		  .message =
		      "unknown field \"wait\" of items[2] (it has dst, src, perm, before, after, mode, " },
		{ .name = "signal of a run",
		  DATA("\x82\xa4plan\x01\xa6signal\x80"),
		  .message =
		      "unknown field \"signal\" of items[2] (it has plan, dst, src, dst_table, src_table, scale, bias, amax_scale, amax_inverse)" },
		{ .name = "a table that is no number",
		  DATA("\x82\xa4plan\x01\xa9"
		       "dst_table\xa1x"),
		  .message = "items[2].dst_table: expected a non-negative integer, got str" },
		{ .name = "a run between tensors",
		  DATA("\x82\xa4plan\x01\xa3"
		       "dst\x80"),
		  .message = "items[2].dst: expected [region, offset], got map" },
		{ .name = "a short place",
		  DATA("\x82\xa4plan\x01\xa3"
		       "dst\x91\x01"),
		  .message = "items[2].dst: expected [region, offset], got array" },
		{ .name = "plan twice",
		  DATA("\x82\xa4plan\x01\xa4plan\x01"),
		  .message = "field items[2].plan appears twice" },
		{ .name = "a key that is no str",
		  DATA("\x81\x01\x01"),
		  .message = "items[2]: field names must be str, got 1" },
	};

	return cr_make_param_array(struct item_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct item_row *row, lists, bad_items)
{
	static const char head[] = "\x94\x00\x05\xa6submit\x91\x81\xa5items\x93\x80\x80";
	struct rpc_request request;
	struct submit_item item;
	struct buffer b = { 0 };
	struct error err = { 0 };

	buffer_append(&b, head, sizeof head - 1);
	buffer_append(&b, row->data, row->len);
	cr_assert_eq(rpc_decode_request(decoder, b.data, buffer_len(&b), &request, &err), RPC_DISPATCH,
	             "%s: %s", row->name, err.message);
	cr_assert_eq(request.params.submit.items.n, 3, "%s", row->name);
	cr_assert_eq(rpc_decode_item(&request.params.submit.items, 2, &item, &err), STATUS_INVALID_ARGUMENT,
	             "%s", row->name);
	cr_assert_eq(strncmp(err.message, row->message, strlen(row->message)), 0, "%s: %s", row->name,
	             err.message);
	buffer_deinit(&b);
}

/* ---- Results ------------------------------------------------------------------------------------------ */

static struct rpc_reply decode_reply(const struct buffer *b)
{
	struct rpc_reply reply;
	struct error err = { 0 };

	cr_assert_eq(rpc_decode_reply(decoder, b->data, buffer_len(b), &reply, &err), 0, "%s", err.message);
	return reply;
}

Test(lists, statuses_and_errors_travel_whole)
{
	static const int32_t codes[] = { 0, STATUS_OVERLAP, 0, STATUS_INTERNAL, -STATUS_COUNT - 1, 1 };
	static const int expected[] = {
		0, STATUS_OVERLAP, 0, STATUS_INTERNAL, STATUS_INTERNAL, STATUS_INTERNAL
	};
	const struct msg_item_error errors[] = {
		{ .item = 1, .name = bytes_of("OVERLAP"), .message = bytes_of("they meet") },
		{ .item = 3, .name = bytes_of("INTERNAL"), .message = bytes_of("") },
	};
	const struct msg_submit_done done = { .statuses = { .codes = codes, .n = 6 },
		                              .errors = { .items = errors, .n = 2 },
		                              .bytes = 12,
		                              .ns = 34 };
	struct msg_submit_done got;
	struct msg_item_error error;
	struct buffer b = { 0 };
	struct rpc_reply reply;
	struct error err = { 0 };

	cr_assert_eq(rpc_encode_result(&b, 9, &methods[METHOD_submit], &done), 0);
	reply = decode_reply(&b);
	cr_assert_eq(rpc_decode_result(&reply, &methods[METHOD_submit], &got, &err), 0, "%s", err.message);
	cr_assert(got.bytes == 12 && got.ns == 34);
	cr_assert_eq(got.statuses.n, 6);
	for (uint32_t i = 0; i < 6; i++)
		cr_expect_eq(rpc_code_at(&got.statuses, i), expected[i], "%u", i);
	cr_assert_eq(got.errors.n, 2);
	for (uint32_t i = 0; i < 2; i++) {
		cr_assert_eq(rpc_decode_item_error(&got.errors, i, &error, &err), 0, "%s", err.message);
		cr_expect_eq(error.item, errors[i].item);
		cr_expect_eq(error.name.len, errors[i].name.len);
		cr_expect_eq(memcmp(error.name.data, errors[i].name.data, error.name.len), 0);
		cr_expect_eq(error.message.len, errors[i].message.len);
	}
	buffer_deinit(&b);
}

Test(lists, a_queued_request_is_answered_twice)
{
	const struct msg_transform_done done = { .path = bytes_of("memcpy"), .bytes = 1, .ns = 2 };
	struct msg_transform_done got;
	struct error error, err = { 0 };
	struct buffer b = { 0 };
	struct rpc_reply reply;

	cr_assert_eq(rpc_encode_queued(&b, 5), 0);
	reply = decode_reply(&b);
	cr_assert(rpc_is_queued(&reply) && !reply.is_done && reply.msgid == 5);

	buffer_truncate(&b, 0);
	cr_assert_eq(rpc_encode_done(&b, 5, &methods[METHOD_copy], &done, NULL), 0);
	reply = decode_reply(&b);
	cr_assert(!rpc_is_queued(&reply) && reply.is_done && reply.msgid == 5 && reply.error.status == 0);
	cr_assert_eq(rpc_decode_result(&reply, &methods[METHOD_copy], &got, &err), 0, "%s", err.message);
	cr_assert(got.bytes == 1 && got.ns == 2);

	buffer_truncate(&b, 0);
	error_set(&error, STATUS_TIMEOUT, "too late");
	cr_assert_eq(rpc_encode_done(&b, 6, &methods[METHOD_copy], NULL, &error), 0);
	reply = decode_reply(&b);
	cr_assert(reply.is_done && reply.msgid == 6 && reply.error.status == STATUS_TIMEOUT);
	cr_assert_str_eq(reply.error.message, "too late");

	buffer_truncate(&b, 0);
	cr_assert_eq(rpc_encode_result(&b, 5, &methods[METHOD_copy], &done), 0);
	reply = decode_reply(&b);
	cr_assert_not(rpc_is_queued(&reply) || reply.is_done);
	buffer_deinit(&b);
}
