/* In the steady state a message costs no allocation. malloc is counted where the C library lets a program
 * replace it, which under a sanitizer it does not. */
#include "proto/rpc.h"

#include <stdlib.h>

#include <criterion/criterion.h>

#include "proto/frame.h"
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

__attribute__((visibility("default"))) void *malloc(size_t size)
{
	mallocs++;
	return __libc_malloc(size);
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
	cr_assert_eq(rpc_decode_request(decoder, in->data, end, &request, &err), RPC_DISPATCH);
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

/* The largest request that the schema allows: every list full. */
Test(allocation, none_for_the_largest_transform)
{
	struct rpc_decoder *decoder = rpc_decoder_new();
	struct msg_transform *t = calloc(1, sizeof *t);
	struct buffer in = { 0 }, out = { 0 };
	struct int_list full = { .n = TENSOR_MAX_RANK };
	unsigned long before;

	sample_message(&transform_message, (1u << transform_message.n_fields) - 1, t);
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

#endif
