/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the scan of frames, cut and resumed at any byte, and every limit on both of its sides. */
#include "proto/wire/frame.h"

#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "sample.h"

static struct buffer nth_message(int n)
{
	return n < SAMPLE_REQUESTS ? sample_nth_request(n) : sample_all_types();
}

#define N_MESSAGES (SAMPLE_REQUESTS + 1)

Test(frame, a_message_cut_anywhere_is_partial_and_then_complete)
{
	for (int n = 0; n < N_MESSAGES; n++) {
		struct buffer b = nth_message(n);
		size_t len = buffer_len(&b);
		struct error err;

		for (size_t cut = 0; cut < len; cut++) {
			struct frame_scan scan = { 0 };
			size_t end = 12345;

			cr_assert_eq(frame_scan(&scan, b.data, cut, &frame_request_limits, &end, &err),
			             FRAME_PARTIAL, "message %d cut at %zu", n, cut);
			cr_assert_eq(end, 12345, "message %d cut at %zu: ret_len touched", n, cut);
			cr_assert_eq(frame_scan(&scan, b.data, len, &frame_request_limits, &end, &err),
			             FRAME_COMPLETE, "message %d cut at %zu, then whole", n, cut);
			cr_assert_eq(end, len, "message %d cut at %zu: %zu bytes", n, cut, end);
		}
		buffer_deinit(&b);
	}
}

Test(frame, byte_at_a_time_equals_at_once)
{
	for (int n = 0; n < N_MESSAGES; n++) {
		struct buffer b = nth_message(n);
		size_t len = buffer_len(&b), end = 0;
		struct frame_scan scan = { 0 };
		struct error err;

		for (size_t have = 0; have < len; have++)
			cr_assert_eq(frame_scan(&scan, b.data, have, &frame_request_limits, &end, &err),
			             FRAME_PARTIAL, "message %d at byte %zu", n, have);
		cr_assert_eq(frame_scan(&scan, b.data, len, &frame_request_limits, &end, &err),
		             FRAME_COMPLETE);
		cr_assert_eq(end, len, "message %d", n);
		buffer_deinit(&b);
	}
}

Test(frame, messages_follow_each_other)
{
	struct buffer all = { 0 };
	size_t ends[N_MESSAGES];
	struct frame_scan scan = { 0 };
	struct error err;

	for (int n = 0; n < N_MESSAGES; n++) {
		struct buffer b = nth_message(n);

		cr_assert_eq(buffer_append(&all, b.data, buffer_len(&b)), 0);
		ends[n] = buffer_len(&all);
		buffer_deinit(&b);
	}
	for (int n = 0; n < N_MESSAGES; n++) {
		size_t start = n ? ends[n - 1] : 0, len;

		cr_assert_eq(frame_scan(&scan, all.data + start, buffer_len(&all) - start,
		                        &frame_request_limits, &len, &err),
		             FRAME_COMPLETE, "message %d", n);
		cr_assert_eq(len, ends[n] - start, "message %d", n);
	}
	buffer_deinit(&all);
}

/* Resuming does not read a byte twice, so the bytes before scan->pos may have any value. */
Test(frame, resuming_does_not_start_over)
{
	struct buffer b = sample_nth_request(2 * METHOD_explain);
	size_t len = buffer_len(&b), half = len / 2, end;
	struct frame_scan scan = { 0 };
	struct error err;

	cr_assert_eq(frame_scan(&scan, b.data, half, &frame_request_limits, &end, &err), FRAME_PARTIAL);
	cr_assert_gt(scan.pos, half - 16);
	memset(b.data, 0xc1, scan.pos < half ? scan.pos : half);
	cr_assert_eq(frame_scan(&scan, b.data, len, &frame_request_limits, &end, &err), FRAME_COMPLETE);
	cr_assert_eq(end, len);
	buffer_deinit(&b);
}

/* Limits of zero stand for those of a request. */
struct frame_row {
	char name[48];
	uint8_t data[64];
	size_t len;
	size_t bytes;
	uint64_t elements;
	enum frame_result result;
	char message[80]; /* part of the message */
};

ParameterizedTestParameters(frame, limits)
{
	static struct frame_row rows[] = {
		{ .name = "nothing", .len = 0, .result = FRAME_PARTIAL },
		{ .name = "a scalar is a message", .data = { 0x01 }, .len = 1, .result = FRAME_COMPLETE },
		{ .name = "0xc1",
		  .data = { 0x91, 0xc1 },
		  .len = 2,
		  .result = FRAME_BROKEN,
		  .message = "byte 1 of a message is 0xc1, which is not MessagePack" },
		{ .name = "fixext 1",
		  .data = { 0xd4 },
		  .len = 1,
		  .result = FRAME_BROKEN,
		  .message = "0xd4, an ext type" },
		{ .name = "fixext 16",
		  .data = { 0xd8 },
		  .len = 1,
		  .result = FRAME_BROKEN,
		  .message = "0xd8, an ext type" },
		{ .name = "ext 8",
		  .data = { 0xc7 },
		  .len = 1,
		  .result = FRAME_BROKEN,
		  .message = "0xc7, an ext type" },
		{ .name = "ext 16",
		  .data = { 0xc8 },
		  .len = 1,
		  .result = FRAME_BROKEN,
		  .message = "0xc8, an ext type" },
		{ .name = "ext 32",
		  .data = { 0xc9 },
		  .len = 1,
		  .result = FRAME_BROKEN,
		  .message = "0xc9, an ext type" },
		{ .name = "str 32 of 4 GiB",
		  .data = { 0xdb, 0xff, 0xff, 0xff, 0xff },
		  .len = 5,
		  .result = FRAME_BROKEN,
		  .message = "at least 4294967300 bytes long, at most 65536" },
		{ .name = "bin 32 of 4 GiB",
		  .data = { 0xc6, 0xff, 0xff, 0xff, 0xff },
		  .len = 5,
		  .result = FRAME_BROKEN,
		  .message = "at least 4294967300 bytes long" },
		{ .name = "str 32 of 4 GiB, header cut",
		  .data = { 0xdb, 0xff, 0xff, 0xff },
		  .len = 4,
		  .result = FRAME_PARTIAL },
		{ .name = "array 32 of 0xffffffff",
		  .data = { 0xdd, 0xff, 0xff, 0xff, 0xff },
		  .len = 5,
		  .result = FRAME_BROKEN,
		  .message = "declares 4294967295 elements, at most 4096" },
		{ .name = "map 32 of 0xffffffff",
		  .data = { 0xdf, 0xff, 0xff, 0xff, 0xff },
		  .len = 5,
		  .result = FRAME_BROKEN,
		  .message = "declares 8589934590 elements" },
		{ .name = "huge limit, map 32",
		  .data = { 0xdf, 0xff, 0xff, 0xff, 0xff },
		  .len = 5,
		  .elements = UINT64_MAX,
		  .result = FRAME_PARTIAL },
		{ .name = "elements just allowed",
		  .data = { 0x93, 0x91, 0x01, 0x81, 0x01, 0x02, 0x90 },
		  .len = 7,
		  .elements = 6,
		  .result = FRAME_COMPLETE },
		{ .name = "elements one too many",
		  .data = { 0x93, 0x91, 0x01, 0x81, 0x01, 0x02, 0x90 },
		  .len = 7,
		  .elements = 5,
		  .result = FRAME_BROKEN,
		  .message = "declares 6 elements, at most 5" },
		{ .name = "8 deep",
		  .data = { 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x90 },
		  .len = 8,
		  .result = FRAME_COMPLETE },
		{ .name = "9 deep",
		  .data = { 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x90 },
		  .len = 9,
		  .result = FRAME_BROKEN,
		  .message = "deeper than 8 levels" },
		{ .name = "9 deep by maps",
		  .data = { 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x81, 0x80 },
		  .len = 9,
		  .result = FRAME_BROKEN,
		  .message = "deeper than 8 levels" },
		{ .name = "as long as allowed",
		  .data = { 0xa3, 'a', 'b', 'c' },
		  .len = 4,
		  .bytes = 4,
		  .result = FRAME_COMPLETE },
		{ .name = "a byte too long",
		  .data = { 0xa3, 'a', 'b', 'c' },
		  .len = 4,
		  .bytes = 3,
		  .result = FRAME_BROKEN,
		  .message = "at least 4 bytes long, at most 3" },
		{ .name = "refused at its header",
		  .data = { 0xa3 },
		  .len = 1,
		  .bytes = 3,
		  .result = FRAME_BROKEN,
		  .message = "at least 4 bytes long" },
		{ .name = "a number past the limit",
		  .data = { 0x92, 0xcf },
		  .len = 2,
		  .bytes = 9,
		  .result = FRAME_BROKEN,
		  .message = "at least 10 bytes long" },
		{ .name = "full and not ended",
		  .data = { 0x92, 0x01 },
		  .len = 2,
		  .bytes = 2,
		  .result = FRAME_BROKEN,
		  .message = "at least 3 bytes long, at most 2" },
		{ .name = "header past the limit",
		  .data = { 0xdd },
		  .len = 1,
		  .bytes = 4,
		  .result = FRAME_BROKEN,
		  .message = "at least 5 bytes long" },
		{ .name = "bytes after the message",
		  .data = { 0x90, 0xc1 },
		  .len = 2,
		  .result = FRAME_COMPLETE },
	};

	return cr_make_param_array(struct frame_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct frame_row *row, frame, limits)
{
	struct frame_limits limits = frame_request_limits;
	struct frame_scan scan = { 0 };
	struct error err = { 0 };
	size_t end;
	enum frame_result result;

	if (row->bytes)
		limits.bytes = row->bytes;
	if (row->elements)
		limits.elements = row->elements;
	result = frame_scan(&scan, row->data, row->len, &limits, &end, &err);
	cr_assert_eq(result, row->result, "%s: result %d, %s", row->name, result, err.message);
	if (result == FRAME_BROKEN) {
		cr_assert_eq(err.status, STATUS_PROTOCOL, "%s", row->name);
		cr_assert_not_null(strstr(err.message, row->message), "%s: %s", row->name, err.message);
	}

	/* A scan that gets one byte at a time has the same result, at the last byte at the latest. */
	scan = (struct frame_scan){ 0 };
	result = FRAME_PARTIAL;
	for (size_t have = 0; have <= row->len && result == FRAME_PARTIAL; have++)
		result = frame_scan(&scan, row->data, have, &limits, &end, &err);
	cr_assert_eq(result, row->result, "%s: result %d a byte at a time", row->name, result);
}

Test(frame, every_first_byte_is_known)
{
	for (int type = 0; type < 256; type++) {
		uint8_t data[512] = { (uint8_t)type };
		struct frame_scan scan = { 0 };
		struct error err;
		size_t end = 0;
		bool refused =
		    type == 0xc1 || (type >= 0xc7 && type <= 0xc9) || (type >= 0xd4 && type <= 0xd8);

		cr_expect_eq(frame_scan(&scan, data, sizeof data, &frame_request_limits, &end, &err),
		             refused ? FRAME_BROKEN : FRAME_COMPLETE, "type 0x%02x", type);
	}
}
