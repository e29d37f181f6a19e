/* SPDX-License-Identifier: Apache-2.0 */
/* Breaks valid requests at random and passes them through the scan and the decoder as a session does. */
#include "proto/wire/rpc.h"

#include <inttypes.h>
#include <string.h>

#include <criterion/criterion.h>

#include "proto/wire/frame.h"
#include "sample.h"

#define ROUNDS 50000

static uint64_t state;

static uint32_t pick(uint32_t n)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

/* Returns a byte that starts another type or is at the edge of a length. */
static uint8_t nasty_byte(void)
{
	static const uint8_t bytes[] = { 0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0,
		                         0xc1, 0xc4, 0xc6, 0xc7, 0xca, 0xcb, 0xcc, 0xcf, 0xd0,
		                         0xd3, 0xd9, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xff };

	return pick(3) ? bytes[pick(sizeof bytes)] : (uint8_t)pick(256);
}

static void mutate(struct buffer *b)
{
	for (uint32_t times = 1 + pick(4); times; times--) {
		size_t len = buffer_len(b);
		size_t at = pick((uint32_t)len);
		size_t other = pick((uint32_t)len);
		size_t n = 1 + pick((uint32_t)(len - (at > other ? at : other)));
		uint8_t byte = nasty_byte();

		switch (pick(5)) {
		case 0:
			b->data[b->start + at] = byte;
			break;
		case 1:
			b->data[b->start + at] ^= (uint8_t)(1u << pick(8));
			break;
		case 2: /* inserts a byte */
			cr_assert_eq(buffer_append(b, &byte, 1), 0);
			memmove(b->data + b->start + at + 1, b->data + b->start + at, len - at);
			b->data[b->start + at] = byte;
			break;
		case 3: /* removes a byte */
			memmove(b->data + b->start + at, b->data + b->start + at + 1, len - at - 1);
			if (len > 1)
				buffer_truncate(b, len - 1);
			break;
		default: /* moves a piece elsewhere */
			memmove(b->data + b->start + at, b->data + b->start + other, n);
		}
	}
}

static void check_sentence(const struct error *err, uint32_t round)
{
	cr_assert(*err->message, "round %u: no sentence", round);
	for (const char *c = err->message; *c; c++)
		cr_assert(*c >= 0x20 && *c < 0x7f, "round %u: byte %02x in %s", round, (unsigned char)*c,
		          err->message);
}

/* Encodes the decoded request, decodes that and encodes it again; both encodings have to be equal. */
static void check_request(struct rpc_decoder *decoder, struct rpc_request *request, uint32_t round)
{
	const struct method *method = request->method;
	uint64_t has = request->params.empty.has;
	struct buffer one = { 0 }, two = { 0 };
	void *items = sample_keep_lists(request), *items_again;
	struct rpc_request again;
	struct error err = { 0 };

	cr_assert_eq(has & ~method->accepts, 0, "round %u: %s has %" PRIx64, round, method->name, has);
	cr_assert_eq(method->requires & ~has, 0, "round %u: %s has %" PRIx64, round, method->name, has);
	cr_assert_eq(rpc_encode_request(&one, request->msgid, method, &request->params), 0);
	cr_assert_eq(rpc_decode_request(decoder, one.data, buffer_len(&one), &again, &err), RPC_DISPATCH,
	             "round %u: %s", round, err.message);
	cr_assert_eq(again.msgid, request->msgid);
	cr_assert_eq(again.method, method);
	items_again = sample_keep_lists(&again);
	cr_assert_eq(rpc_encode_request(&two, again.msgid, again.method, &again.params), 0);
	cr_assert_eq(buffer_len(&one), buffer_len(&two), "round %u", round);
	cr_assert_eq(memcmp(one.data, two.data, buffer_len(&one)), 0, "round %u", round);
	free(items);
	free(items_again);
	buffer_deinit(&one);
	buffer_deinit(&two);
}

Test(mutation, broken_requests_come_to_a_clean_end)
{
	struct rpc_decoder *decoder = rpc_decoder_new();
	uint32_t outcomes[RPC_BROKEN + 1] = { 0 }, results[3] = { 0 };

	state = 2;
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct buffer b =
		    round % 8 ? sample_nth_request((int)pick(SAMPLE_REQUESTS)) : sample_all_types();
		struct frame_scan scan = { 0 };
		struct rpc_request request;
		struct error err = { 0 };
		enum frame_result result;
		enum rpc_outcome outcome;
		uint8_t *exact;
		size_t end = 0;

		mutate(&b);
		/* The copy is exactly as long as the message, so that a sanitizer notices a read past it. */
		exact = malloc(buffer_len(&b));
		memcpy(exact, b.data + b.start, buffer_len(&b));
		result = frame_scan(&scan, exact, buffer_len(&b), &frame_request_limits, &end, &err);
		results[result]++;
		if (result == FRAME_BROKEN)
			check_sentence(&err, round);
		if (result == FRAME_COMPLETE) {
			cr_assert(end > 0 && end <= buffer_len(&b), "round %u: %zu bytes", round, end);
			outcome = rpc_decode_request(decoder, exact, end, &request, &err);
			outcomes[outcome]++;
			if (outcome == RPC_DISPATCH)
				check_request(decoder, &request, round);
			if (outcome == RPC_REFUSE || outcome == RPC_BROKEN)
				check_sentence(&err, round);
		}
		free(exact);
		buffer_deinit(&b);
	}
	for (int i = 0; i < 3; i++)
		cr_assert_gt(results[i], 100, "the scan came to result %d %u times", i, results[i]);
	cr_assert_gt(outcomes[RPC_DISPATCH], 100);
	cr_assert_gt(outcomes[RPC_REFUSE], 100);
	cr_assert_gt(outcomes[RPC_BROKEN], 100);
	rpc_decoder_free(decoder);
}
