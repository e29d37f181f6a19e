/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests: envelopes, the messages of refusals, values and defaults. */
#include "proto/wire/rpc.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

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

TestSuite(request, .init = setup, .fini = teardown);

/* The bytes of a row are MessagePack written by hand: "\x94" starts an array of four. */
struct request_row {
	char name[48];
	char data[160];
	size_t len;
	enum rpc_outcome outcome;
	int status;
	uint32_t msgid;
	char message[160]; /* the whole message after RPC_REFUSE, a part of it after RPC_BROKEN */
};

#define DATA(text) .data = text, .len = sizeof text - 1
#define TENSOR                   \
	"\x83\xa6region\x01\xa5" \
	"dtype\xa5uint8\xa5shape\x91\x04"
#define COPY(map)          \
	"\x94\x00\x05\xa4" \
	"copy\x91" map
#define REFUSE .outcome = RPC_REFUSE, .status = STATUS_INVALID_ARGUMENT, .msgid = 5
#define BROKEN .outcome = RPC_BROKEN, .status = STATUS_PROTOCOL

ParameterizedTestParameters(request, requests)
{
	static struct request_row rows[] = {
		{ .name = "ping", DATA("\x94\x00\x05\xa4ping\x90"), .outcome = RPC_DISPATCH, .msgid = 5 },
		{ .name = "method as bin",
		  DATA("\x94\x00\x05\xc4\x04ping\x90"),
		  .outcome = RPC_DISPATCH,
		  .msgid = 5 },
		{ .name = "an empty map",
		  DATA("\x94\x00\x05\xa4ping\x91\x80"),
		  .outcome = RPC_DISPATCH,
		  .msgid = 5 },
		{ .name = "msgid 0", DATA("\x94\x00\x00\xa4ping\x90"), .outcome = RPC_DISPATCH, .msgid = 0 },
		{ .name = "msgid of 32 bits",
		  DATA("\x94\x00\xce\xff\xff\xff\xff\xa4ping\x90"),
		  .outcome = RPC_DISPATCH,
		  .msgid = UINT32_MAX },
		{ .name = "wide encodings",
		  DATA("\xdc\x00\x04\xd3\0\0\0\0\0\0\0\0\xcf\0\0\0\0\0\0\0\5\xdb\0\0\0\4ping\xdd\0\0\0\0"),
		  .outcome = RPC_DISPATCH,
		  .msgid = 5 },
		{ .name = "copy",
		  DATA(COPY("\x82\xa3"
		            "dst" TENSOR "\xa3src" TENSOR)),
		  .outcome = RPC_DISPATCH,
		  .msgid = 5 },
		{ .name = "notification", DATA("\x93\x02\xa4tick\x91\x01"), .outcome = RPC_IGNORE },
		{ .name = "notification of a method", DATA("\x93\x02\xa4ping\x90"), .outcome = RPC_IGNORE },
		{ .name = "msgid of 33 bits",
		  DATA("\x94\x00\xcf\0\0\0\1\0\0\0\0\xa4ping\x90"),
		  BROKEN,
		  .message = "msgid must be an integer from 0 to 4294967295, got 4294967296" },
		{ .name = "msgid negative", DATA("\x94\x00\xff\xa4ping\x90"), BROKEN },
		{ .name = "msgid a str", DATA("\x94\x00\xa1z\xa4ping\x90"), BROKEN },
		{ .name = "five elements", DATA("\x95\x00\x05\xa4ping\x90\xc0"), BROKEN },
		{ .name = "a reply", DATA("\x94\x01\x05\xc0\xc3"), BROKEN, .message = "type 1 is neither" },
		{ .name = "type 3", DATA("\x94\x03\x05\xa4ping\x90"), BROKEN },
		{ .name = "type a str",
		  DATA("\x94\xa1"
		       "0\x05\xa4ping\x90"),
		  BROKEN,
		  .message = "starts with its type" },
		{ .name = "type a float", DATA("\x94\xcb\0\0\0\0\0\0\0\0\x05\xa4ping\x90"), BROKEN },
		{ .name = "empty array", DATA("\x90"), BROKEN },
		{ .name = "a map", DATA("\x80"), BROKEN },
		{ .name = "an integer", DATA("\x05"), BROKEN },
		{ .name = "three elements",
		  DATA("\x93\x00\x05\xa4ping"),
		  BROKEN,
		  .message = "a request has 4 elements, [0, msgid, method, params], but this one has 3" },
		{ .name = "msgid a str",
		  DATA("\x94\x00\xa1"
		       "5\xa4ping\x90"),
		  BROKEN,
		  .message = "msgid must be an integer from 0 to 4294967295, got " },
		{ .name = "params a map",
		  DATA("\x94\x00\x05\xa4ping\x80"),
		  REFUSE,
		  .message = "ping: params must be an array, empty or with one map of fields, got map" },
		{ .name = "params nil",
		  DATA("\x94\x00\x05\xa4ping\xc0"),
		  REFUSE,
		  .message = "ping: params must be an array, empty or with one map of fields, got nil" },
		{ .name = "method an integer",
		  DATA("\x94\x00\x05\x07\x90"),
		  REFUSE,
		  .message = "method: expected a str, got 7" },
		{ .name = "notification with params of no array",
		  DATA("\x93\x02\xa4ring\x80"),
		  BROKEN,
		  .message = "a notification's params must be an array, got map" },
		{ .name = "notification of four", DATA("\x94\x02\xa4ping\x90\x90"), BROKEN },
		{ .name = "notification without a name", DATA("\x93\x02\x01\x90"), BROKEN },
		{ .name = "bytes after it",
		  DATA("\x94\x00\x05\xa4ping\x90\x90"),
		  BROKEN,
		  .message = "10 bytes are not one MessagePack object" },
		{ .name = "bytes missing", DATA("\x94\x00\x05\xa4ping"), BROKEN },
		{ .name = "nothing", .len = 0, BROKEN },
		{ .name = "unknown method",
		  DATA("\x94\x00\x05\xa4pong\x90"),
		  .outcome = RPC_REFUSE,
		  .status = STATUS_UNSUPPORTED,
		  .msgid = 5,
		  .message = "no method \"pong\"; info lists the methods" },
		{ .name = "unknown method, odd bytes",
		  DATA("\x94\x00\x05\xa4\x1b\x00\xff\"\x93\x01\x02\x03"),
		  .outcome = RPC_REFUSE,
		  .status = STATUS_UNSUPPORTED,
		  .msgid = 5,
		  .message = "no method \"\\x1b\\x00\\xff\\\"\"; info lists the methods" },
		{ .name = "a long unknown method",
		  DATA(
		      "\x94\x00\x05\xd9\x50"
		      "aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeeeeffffffffffgggggggggghhhhhhhhhh\x90"),
		  .outcome = RPC_REFUSE,
		  .status = STATUS_UNSUPPORTED,
		  .msgid = 5,
		  .message =
		      "no method \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddddee...\"; info lists the methods" },
		{ .name = "two parameters",
		  DATA("\x94\x00\x05\xa4"
		       "copy\x92\x80\x80"),
		  REFUSE,
		  .message = "copy: 2 parameters, but at most one is allowed, a map of fields" },
		{ .name = "parameter nil",
		  DATA("\x94\x00\x05\xa4ping\x91\xc0"),
		  REFUSE,
		  .message = "ping: expected a map of fields, got nil" },
		{ .name = "parameter a str",
		  DATA("\x94\x00\x05\xa4"
		       "copy\x91\xa1x"),
		  REFUSE,
		  .message = "copy: expected a map of fields, got str" },
		{ .name = "no parameters",
		  DATA("\x94\x00\x05\xa4"
		       "copy\x90"),
		  REFUSE,
		  .message = "missing field dst" },
		{ .name = "missing field",
		  DATA(COPY("\x82\xa3"
		            "dst" TENSOR "\xa3src\x81\xa5"
		            "dtype\xa5uint8")),
		  REFUSE,
		  .message = "missing field src.shape" },
		{ .name = "missing perm",
		  DATA("\x94\x00\x05\xa9transpose\x91\x82\xa3"
		       "dst" TENSOR "\xa3src" TENSOR),
		  REFUSE,
		  .message = "missing field perm" },
		{ .name = "unknown field",
		  DATA(COPY("\x83\xa3"
		            "dst" TENSOR "\xa3"
		            "foo\x01\xa3src" TENSOR)),
		  REFUSE,
		  .message =
		      "unknown field \"foo\" of copy (it has dst, src, wait, signal, reply, priority, multiprocessors, host_threads, deadline_ms, cast, scale, bias, amax)" },
		{ .name = "a field of another method",
		  DATA(COPY("\x83\xa3"
		            "dst" TENSOR "\xa3src" TENSOR "\xa4perm\x90")),
		  REFUSE,
		  .message =
		      "unknown field \"perm\" of copy (it has dst, src, wait, signal, reply, priority, multiprocessors, host_threads, deadline_ms, cast, scale, bias, amax)" },
		{ .name = "unknown field within",
		  DATA(COPY("\x82\xa3"
		            "dst\x81\xa1x\x01\xa3src" TENSOR)),
		  REFUSE,
		  .message =
		      "unknown field \"x\" of dst (it has region, offset, dtype, shape, strides, split)" },
		{ .name = "field of ping",
		  DATA("\x94\x00\x05\xa4ping\x91\x81\xa1x\x01"),
		  REFUSE,
		  .message = "unknown field \"x\" of ping (it has none)" },
		{ .name = "field name with a NUL",
		  DATA(COPY("\x82\xa4"
		            "dst\0" TENSOR "\xa3src" TENSOR)),
		  REFUSE,
		  .message =
		      "unknown field \"dst\\x00\" of copy (it has dst, src, wait, signal, reply, priority, multiprocessors, host_threads, deadline_ms, cast, scale, bias, amax)" },
		{ .name = "field name cut",
		  DATA(COPY("\x82\xa2"
		            "ds" TENSOR "\xa3src" TENSOR)),
		  REFUSE,
		  .message =
		      "unknown field \"ds\" of copy (it has dst, src, wait, signal, reply, priority, multiprocessors, host_threads, deadline_ms, cast, scale, bias, amax)" },
		{ .name = "field name empty",
		  DATA(COPY("\x81\xa0\x01")),
		  REFUSE,
		  .message =
		      "unknown field \"\" of copy (it has dst, src, wait, signal, reply, priority, multiprocessors, host_threads, deadline_ms, cast, scale, bias, amax)" },
		{ .name = "field name an integer",
		  DATA(COPY("\x81\x07" TENSOR)),
		  REFUSE,
		  .message = "copy: field names must be str, got 7" },
		{ .name = "field name a bin",
		  DATA(COPY("\x82\xa3src\x81\xc4\x01x\x01\xa3"
		            "dst" TENSOR)),
		  REFUSE,
		  .message = "src: field names must be str, got bin" },
		{ .name = "duplicate",
		  DATA(COPY("\x82\xa3"
		            "dst" TENSOR "\xa3"
		            "dst" TENSOR)),
		  REFUSE,
		  .message = "field dst appears twice" },
		{ .name = "duplicate within",
		  DATA(COPY("\x81\xa3"
		            "dst\x82\xa6region\x01\xa6region\x01")),
		  REFUSE,
		  .message = "field dst.region appears twice" },
		{ .name = "wrong dtype",
		  DATA(COPY("\x81\xa3src\x81\xa5"
		            "dtype\xa7"
		            "float12")),
		  REFUSE,
		  .message =
		      "src.dtype: \"float12\" is not a dtype (bool, uint8, int8, uint16, int16, uint32, int32, uint64, int64, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, fl" },
		{ .name = "region a str",
		  DATA(COPY("\x81\xa3"
		            "dst\x81\xa6region\xa1"
		            "1")),
		  REFUSE,
		  .message = "dst.region: expected a non-negative integer, got str" },
		{ .name = "region negative",
		  DATA(COPY("\x81\xa3"
		            "dst\x81\xa6region\xfb")),
		  REFUSE,
		  .message = "dst.region: expected a non-negative integer, got -5" },
		{ .name = "region a float",
		  DATA(COPY("\x81\xa3"
		            "dst\x81\xa6region\xcb\x3f\xf0\0\0\0\0\0\0")),
		  REFUSE,
		  .message = "dst.region: expected a non-negative integer, got float 1" },
		{ .name = "33 extents",
		  DATA(COPY(
		      "\x81\xa3src\x81\xa5shape\xdc\x00\x21\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1\1")),
		  REFUSE,
		  .message = "src.shape: 33 entries, at most 32" },
		{ .name = "extent past 63 bits",
		  DATA(COPY("\x81\xa3src\x81\xa5shape\x92\x01\xcf\x80\0\0\0\0\0\0\0")),
		  REFUSE,
		  .message = "src.shape[1]: expected an integer of 64 bits, got 9223372036854775808" },
		{ .name = "extent a float",
		  DATA(COPY("\x81\xa3src\x81\xa5shape\x91\xca\x3f\xc0\0\0")),
		  REFUSE,
		  .message = "src.shape[0]: expected an integer of 64 bits, got float 1.5" },
	};

	return cr_make_param_array(struct request_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct request_row *row, request, requests)
{
	struct rpc_request request = { .msgid = 99 };
	struct error err = { 0 };
	enum rpc_outcome outcome =
	    rpc_decode_request(decoder, (const uint8_t *)row->data, row->len, &request, &err);

	cr_assert_eq(outcome, row->outcome, "%s: outcome %d, %s", row->name, outcome, err.message);
	cr_assert_eq(err.status, row->status, "%s: status %d", row->name, err.status);
	if (outcome == RPC_DISPATCH || outcome == RPC_REFUSE)
		cr_assert_eq(request.msgid, row->msgid, "%s: msgid %u", row->name, request.msgid);
	if (outcome == RPC_REFUSE)
		cr_assert_eq(strncmp(err.message, row->message, sizeof row->message - 1), 0, "%s: %s",
		             row->name, err.message);
	if (outcome == RPC_BROKEN)
		cr_assert_not_null(strstr(err.message, row->message), "%s: %s", row->name, err.message);
}

/* ---- Values ---- */

struct value_row {
	char name[32];
	char data[24];
	size_t len;
	struct scalar value; /* compared bit by bit */
};

ParameterizedTestParameters(request, values)
{
	static struct value_row rows[] = {
		{ .name = "0", DATA("\x00"), .value = { .kind = SCALAR_UNSIGNED } },
		{ .name = "2^64-1",
		  DATA("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"),
		  .value = { .kind = SCALAR_UNSIGNED, .u = UINT64_MAX } },
		{ .name = "int 8 of 5", DATA("\xd0\x05"), .value = { .kind = SCALAR_UNSIGNED, .u = 5 } },
		{ .name = "-1", DATA("\xff"), .value = { .kind = SCALAR_SIGNED, .i = -1 } },
		{ .name = "-2^63",
		  DATA("\xd3\x80\0\0\0\0\0\0\0"),
		  .value = { .kind = SCALAR_SIGNED, .i = INT64_MIN } },
		{ .name = "false", DATA("\xc2"), .value = { .kind = SCALAR_UNSIGNED, .u = 0 } },
		{ .name = "true", DATA("\xc3"), .value = { .kind = SCALAR_UNSIGNED, .u = 1 } },
		{ .name = "float 32",
		  DATA("\xca\x3f\xc0\0\0"),
		  .value = { .kind = SCALAR_FLOATING, .re = 1.5 } },
		{ .name = "-0.0",
		  DATA("\xcb\x80\0\0\0\0\0\0\0"),
		  .value = { .kind = SCALAR_FLOATING, .u = 0x8000000000000000 } },
		{ .name = "infinity",
		  DATA("\xcb\xff\xf0\0\0\0\0\0\0"),
		  .value = { .kind = SCALAR_FLOATING, .u = 0xfff0000000000000 } },
		{ .name = "NaN with a payload",
		  DATA("\xcb\xff\xf8\0\0\xde\xad\xbe\xef"),
		  .value = { .kind = SCALAR_FLOATING, .u = 0xfff80000deadbeef } },
		{ .name = "signalling NaN",
		  DATA("\xcb\x7f\xf0\0\0\0\0\0\1"),
		  .value = { .kind = SCALAR_FLOATING, .u = 0x7ff0000000000001 } },
		{ .name = "[2, -3]",
		  DATA("\x92\x02\xfd"),
		  .value = { .kind = SCALAR_COMPLEX, .re = 2, .im = -3 } },
		{ .name = "[0.5, 1]",
		  DATA("\x92\xcb\x3f\xe0\0\0\0\0\0\0\x01"),
		  .value = { .kind = SCALAR_COMPLEX, .re = 0.5, .im = 1 } },
	};

	return cr_make_param_array(struct value_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct value_row *row, request, values)
{
	static const char head[] = "\x94\x00\x05\xa9transform\x91\x83\xa3"
				   "dst" TENSOR "\xa3src" TENSOR "\xa5value";
	struct buffer b = { 0 }, again = { 0 };
	struct rpc_request request;
	struct error err = { 0 };

	cr_assert_eq(buffer_append(&b, head, sizeof head - 1), 0);
	cr_assert_eq(buffer_append(&b, row->data, row->len), 0);
	for (int round = 0; round < 2; round++) {
		struct buffer *from = round ? &again : &b;
		const struct scalar *value = &request.params.transform.value;

		cr_assert_eq(rpc_decode_request(decoder, from->data, buffer_len(from), &request, &err),
		             RPC_DISPATCH, "%s: %s", row->name, err.message);
		cr_assert_eq(request.params.transform.has,
		             F(transform, dst) | F(transform, src) | F(transform, value), "%s", row->name);
		cr_assert_eq(value->kind, row->value.kind, "%s: kind %d", row->name, value->kind);
		cr_assert_eq(value->u, row->value.u, "%s: bits %llx", row->name,
		             (unsigned long long)value->u);
		cr_assert_eq(memcmp(&value->im, &row->value.im, sizeof value->im), 0, "%s: im", row->name);
		if (!round)
			cr_assert_eq(rpc_encode_request(&again, 5, request.method, &request.params), 0);
	}
	buffer_deinit(&b);
	buffer_deinit(&again);
}

Test(request, absent_fields_read_as_their_defaults)
{
	static const char data[] = "\x94\x00\x05\xafregion_register\x91\x82\xa4kind\xa5memfd\xa4size\x01";
	static const char create[] = "\x94\x00\x05\xadregion_create\x91\x81\xa4size\x01";
	const struct msg_region_register *r;
	struct rpc_request request;
	struct error err = { 0 };

	memset(&request, 0xff, sizeof request);
	cr_assert_eq(rpc_decode_request(decoder, (const uint8_t *)data, sizeof data - 1, &request, &err),
	             RPC_DISPATCH, "%s", err.message);
	r = &request.params.region_register;
	cr_assert_eq(r->has, F(region_register, kind) | F(region_register, size));
	cr_assert_eq(r->kind, REGION_KIND_MEMFD);
	cr_assert_eq(r->size, 1);
	cr_assert_eq(r->offset, 0);
	cr_assert_eq(r->handle.len, 0);
	cr_assert_eq(r->writable, true);
	cr_assert_eq(rpc_decode_request(decoder, (const uint8_t *)create, sizeof create - 1, &request, &err),
	             RPC_DISPATCH, "%s", err.message);
	cr_assert_eq(request.params.region_create.kind, REGION_KIND_ANY);
}

Test(request, any_field_order_will_do)
{
	static const char data[] = COPY("\x82\xa3src" TENSOR "\xa3"
	                                "dst" TENSOR);
	struct rpc_request request;
	struct error err = { 0 };

	cr_assert_eq(rpc_decode_request(decoder, (const uint8_t *)data, sizeof data - 1, &request, &err),
	             RPC_DISPATCH, "%s", err.message);
	cr_assert_eq(request.params.transform.dst.region, 1);
	cr_assert_eq(request.params.transform.src.dtype, DTYPE_UINT8);
	cr_assert_eq(request.params.transform.src.shape.n, 1);
	cr_assert_eq(request.params.transform.src.shape.v[0], 4);
}

Test(request, free_takes_nothing)
{
	rpc_decoder_free(NULL);
}

/* ---- The first bytes of a message ---- */

struct head_row {
	char name[32];
	char data[24];
	size_t len;
	enum rpc_head head;
	uint32_t msgid;
};

ParameterizedTestParameters(request, heads)
{
	static struct head_row rows[] = {
		{ .name = "small", DATA("\x94\x00\x05"), .head = RPC_HEAD_REQUEST, .msgid = 5 },
		{ .name = "and more", DATA("\x94\x00\x05\xa4ping"), .head = RPC_HEAD_REQUEST, .msgid = 5 },
		{ .name = "8 bits", DATA("\x94\x00\xcc\xff"), .head = RPC_HEAD_REQUEST, .msgid = 255 },
		{ .name = "16 bits", DATA("\x94\x00\xcd\x01\x02"), .head = RPC_HEAD_REQUEST, .msgid = 0x102 },
		{ .name = "32 bits",
		  DATA("\x94\x00\xce\xff\xff\xff\xff"),
		  .head = RPC_HEAD_REQUEST,
		  .msgid = UINT32_MAX },
		{ .name = "64 bits, as wide as can be",
		  DATA("\xdd\0\0\0\x04\xcf\0\0\0\0\0\0\0\0\xcf\0\0\0\0\0\0\0\x07"),
		  .head = RPC_HEAD_REQUEST,
		  .msgid = 7 },
		{ .name = "signed",
		  DATA("\xdc\0\x04\xd0\0\xd1\0\x09"),
		  .head = RPC_HEAD_REQUEST,
		  .msgid = 9 },
		{ .name = "nothing", .len = 0, .head = RPC_HEAD_SHORT },
		{ .name = "an array", DATA("\x94"), .head = RPC_HEAD_SHORT },
		{ .name = "half an array", DATA("\xdd\0\0"), .head = RPC_HEAD_SHORT },
		{ .name = "no msgid", DATA("\x94\x00"), .head = RPC_HEAD_SHORT },
		{ .name = "half a msgid", DATA("\x94\x00\xce\xff\xff\xff"), .head = RPC_HEAD_SHORT },
		{ .name = "33 bits", DATA("\x94\x00\xcf\0\0\0\x01\0\0\0\0"), .head = RPC_HEAD_OTHER },
		{ .name = "negative", DATA("\x94\x00\xd0\xff"), .head = RPC_HEAD_OTHER },
		{ .name = "negative, small", DATA("\x94\x00\xff"), .head = RPC_HEAD_OTHER },
		{ .name = "three elements", DATA("\x93\x00\x05"), .head = RPC_HEAD_OTHER },
		{ .name = "five elements", DATA("\xdc\0\x05\x00\x05"), .head = RPC_HEAD_OTHER },
		{ .name = "a notification", DATA("\x93\x02"), .head = RPC_HEAD_OTHER },
		{ .name = "a reply", DATA("\x94\x01\x05"), .head = RPC_HEAD_OTHER },
		{ .name = "a str", DATA("\x94\x00\xa1x"), .head = RPC_HEAD_OTHER },
	};

	return cr_make_param_array(struct head_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct head_row *row, request, heads)
{
	uint32_t msgid = 0;

	cr_assert_eq(rpc_find_msgid((const uint8_t *)row->data, row->len, &msgid), row->head, "%s",
	             row->name);
	if (row->head != RPC_HEAD_REQUEST)
		return;
	cr_assert_eq(msgid, row->msgid, "%s: %u", row->name, msgid);
	for (size_t len = 0; len + 1 < row->len && len < 3; len++)
		cr_assert_eq(rpc_find_msgid((const uint8_t *)row->data, len, &msgid), RPC_HEAD_SHORT,
		             "%s: %zu", row->name, len);
}
