/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that messages take no allocation in the steady state, and that an allocation that fails is an error
 * like any other. malloc is counted, and made to fail, where the C library lets a program replace it, which a
 * sanitizer prevents. */
#include "proto/wire/rpc.h"

#include <stdlib.h>

#include <criterion/criterion.h>

#include "proto/wire/frame.h"
#include "sample.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define COUNTS_MALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS_MALLOC 0
#endif
#endif
#ifndef COUNTS_MALLOC
#define COUNTS_MALLOC 1
#endif

#if COUNTS_MALLOC

extern void *__libc_malloc(size_t size);

static unsigned long mallocs;
static unsigned long failing; /* value of mallocs at which malloc fails; 0: never */

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	return ++mallocs == failing ? NULL : __libc_malloc(size);
}

/* Makes the nth malloc from now on fail. */
static void fail_nth(unsigned long n)
{
	failing = mallocs + n;
}

static void serve(struct rpc_decoder *decoder, const struct buffer *in, struct buffer *out)
{
	struct msg_transform_done done = { .path = { "memcpy", 6 }, .bytes = 1, .ns = 1 };
	struct frame_scan scan = { 0 };
	struct rpc_request request;
	struct error err = { 0 };
	size_t end;

	cr_assert_eq(frame_scan(&scan, in->data, buffer_len(in), &frame_request_limits, &end, &err),
	             FRAME_COMPLETE);
	cr_assert_eq(rpc_decode_request(decoder, in->data, end, &request, &err), RPC_DISPATCH, "%s",
	             err.message);
	cr_assert_eq(rpc_encode_result(out, request.msgid, request.method, &done), 0);
	buffer_consume(out, buffer_len(out), 64 * 1024);
}

Test(allocation, none_for_a_request_and_its_reply)
{
	static const enum method_id ids[] = { METHOD_ping, METHOD_copy, METHOD_pad, METHOD_transform };
	struct rpc_decoder *decoder = rpc_decoder_new();
	struct buffer out = { 0 };

	for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
		const struct method *method = &methods[ids[i]];
		struct buffer in = sample_request(method, method->accepts);
		unsigned long before;

		serve(decoder, &in, &out);
		before = mallocs;
		cr_assert_gt(before, 0, "malloc is not counted");
		for (int round = 0; round < 100; round++)
			serve(decoder, &in, &out);
		cr_assert_eq(mallocs, before, "%s: %lu allocations in 100 rounds", method->name,
		             mallocs - before);
		buffer_deinit(&in);
	}
	rpc_decoder_free(decoder);
	buffer_deinit(&out);
}

/* The request is the largest that the schema allows, with every list full. */
Test(allocation, none_for_the_largest_transform)
{
	struct rpc_decoder *decoder = rpc_decoder_new();
	struct msg_transform *t = calloc(1, sizeof *t);
	struct buffer in = { 0 }, out = { 0 };
	struct int_list full = { .n = TENSOR_MAX_RANK };
	unsigned long before;

	sample_message(&transform_message, methods[METHOD_transform].accepts, t);
	t->dst.shape = t->dst.strides = t->src.shape = t->src.strides = full;
	t->perm = t->before = t->after = full;
	cr_assert_eq(rpc_encode_request(&in, 1, &methods[METHOD_transform], t), 0);
	serve(decoder, &in, &out);
	before = mallocs;
	for (int round = 0; round < 100; round++)
		serve(decoder, &in, &out);
	cr_assert_eq(mallocs, before, "%lu allocations in 100 rounds", mallocs - before);
	rpc_decoder_free(decoder);
	buffer_deinit(&in);
	buffer_deinit(&out);
	free(t);
}

/* Returns a message within the limits that has more objects than the decoder's own chunk holds, and is
 * refused for its shape. */
static struct buffer large_message(void)
{
	static const uint8_t head[] = { 0xdc, 0x0f, 0xa0 };
	struct buffer b = { 0 };

	cr_assert_eq(buffer_append(&b, head, sizeof head), 0);
	for (int i = 0; i < 4000; i++)
		cr_assert_eq(buffer_append(&b, "\x90", 1), 0);
	return b;
}

Test(allocation, a_decode_without_memory_is_refused_and_the_next_works)
{
	struct rpc_decoder *decoder = rpc_decoder_new();
	struct buffer large = large_message(), ping = sample_request(&methods[METHOD_ping], 0);
	struct rpc_request request;
	struct rpc_reply reply;
	struct error err = { 0 };

	fail_nth(1);
	cr_assert_null(rpc_decoder_new());
	for (int round = 0; round < 3; round++) {
		fail_nth(1);
		cr_assert_eq(rpc_decode_request(decoder, large.data, buffer_len(&large), &request, &err),
		             RPC_BROKEN, "round %d", round);
		cr_assert_eq(err.status, STATUS_NO_MEMORY, "round %d: %s", round, err.message);
		fail_nth(1);
		cr_assert_eq(rpc_decode_reply(decoder, large.data, buffer_len(&large), &reply, &err),
		             STATUS_NO_MEMORY, "round %d", round);
		failing = 0;
		cr_assert_eq(rpc_decode_request(decoder, large.data, buffer_len(&large), &request, &err),
		             RPC_BROKEN, "round %d", round);
		cr_assert_eq(err.status, STATUS_PROTOCOL, "round %d: %s", round, err.message);
		cr_assert_eq(rpc_decode_request(decoder, ping.data, buffer_len(&ping), &request, &err),
		             RPC_DISPATCH, "round %d: %s", round, err.message);
	}
	rpc_decoder_free(decoder);
	buffer_deinit(&large);
	buffer_deinit(&ping);
}

Test(allocation, an_encode_without_memory_appends_nothing)
{
	struct msg_info info = { 0 };
	struct error error = { STATUS_QUOTA, "65 regions" };

	sample_message(&info_message, (UINT64_C(1) << info_message.n_fields) - 1, &info);
	for (size_t filled = 1; filled < 1024; filled += 11) {
		struct buffer b = { 0 };
		size_t len = filled, cap;

		for (size_t i = 0; i < filled; i++)
			cr_assert_eq(buffer_append(&b, "x", 1), 0);
		cap = b.cap;
		fail_nth(1);
		while (!rpc_encode_error(&b, 1, &error))
			len = buffer_len(&b);
		cr_assert_eq(buffer_len(&b), len, "%zu bytes after an error", buffer_len(&b));
		fail_nth(1);
		while (!rpc_encode_request(&b, 1, &methods[METHOD_ping], NULL))
			len = buffer_len(&b);
		cr_assert_eq(buffer_len(&b), len, "%zu bytes after a request", buffer_len(&b));
		fail_nth(1);
		cr_assert_eq(rpc_encode_result(&b, 1, &methods[METHOD_info], &info), STATUS_NO_MEMORY);
		cr_assert_eq(buffer_len(&b), len, "%zu bytes after a result", buffer_len(&b));
		failing = 0;
		cr_assert_eq(b.cap, cap);
		cr_assert_eq(rpc_encode_result(&b, 1, &methods[METHOD_info], &info), 0);
		buffer_deinit(&b);
	}
}

#endif
