/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what requests on streams refuse, and that the next request works. */
#include "rig.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(stream_errors, .init = rig_open, .fini = rig_close);

__attribute__((format(printf, 3, 4))) static void assert_error(int rc, int wanted, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	cr_expect_eq(rc, wanted, "%s: %s", tma_status_name(rc), tma_last_error(client));
	cr_expect_str_eq(tma_last_error(client), text);
}

static void assert_works(void)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);

	cr_assert_eq(enqueue_transpose(dst, src, 5, 7), 0, "%s", tma_last_error(client));
	cr_assert(is_transposed(dst, src, 5, 7));
}

Test(stream_errors, memory_of_the_host)
{
	uint32_t *pages = aligned_alloc(4096, 4096);
	CUdeviceptr src = rig_numbers(35);

	assert_error(enqueue_transpose((uintptr_t)pages, src, 5, 7), TMA_INVALID_ARGUMENT,
	             "dst: %#llx is neither memory of a device nor pinned memory of the host",
	             (unsigned long long)(uintptr_t)pages);
	cuda(cuMemHostRegister(pages, 4096, 0));
	cr_assert_eq(enqueue_transpose((uintptr_t)pages, src, 5, 7), 0, "%s", tma_last_error(client));
	cuda(cuStreamSynchronize(stream));
	cr_assert_eq(pages[1], 7 * 2654435761u);
	cuda(cuMemHostUnregister(pages));
	free(pages);
	assert_works();
}

Test(stream_errors, no_context)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);
	const struct tma_tensor to = matrix(dst, 7, 5), from = matrix(src, 5, 7);
	const struct tma_transform t = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };
	CUcontext current;

	cuda(cuCtxSetCurrent(NULL));
	assert_error(tma_enqueue(client, &t, NULL), TMA_INVALID_ARGUMENT,
	             "stream: no CUDA context is current in this thread");
	cr_assert_eq(tma_enqueue(client, &t, stream), 0, "%s", tma_last_error(client));
	cuda(cuCtxGetCurrent(&current));
	cr_assert_eq(current, context);
	cr_assert(is_transposed(dst, src, 5, 7));
}

/* Another context of the program, beside the primary one, has an engine of its own. */
Test(stream_errors, other_contexts)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);
	CUstream first = stream;
	CUcontext other;

	cuda(cuCtxCreate(&other, NULL, 0, 0));
	assert_error(enqueue_transpose(dst, src, 5, 7), TMA_INVALID_ARGUMENT,
	             "stream: it is of another CUDA context than the current one");
	cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	assert_error(enqueue_transpose(dst, src, 5, 7), TMA_INVALID_ARGUMENT,
	             "dst: %#llx is memory of another context of device 0 than the current one",
	             (unsigned long long)dst);
	assert_works();
	cuda(cuStreamDestroy(stream));
	cuda(cuCtxDestroy(other));
	cuda(cuCtxSetCurrent(context));
	stream = first;
	assert_works();
}

Test(stream_errors, what_a_transform_refuses)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);
	const struct tma_tensor to = matrix(dst, 7, 6), from = matrix(src, 5, 7), same = matrix(src, 7, 5);
	struct tma_transform t = { .dst = &to, .src = &from, .perm = (const int[]){ 1, 0 } };
	struct tma_item item = { .transform = &t };

	cr_assert_eq(tma_enqueue(client, &t, stream), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_last_result(client)->status, TMA_INVALID_ARGUMENT);
	t.dst = &same;
	cr_assert_eq(tma_enqueue(client, &t, stream), TMA_OVERLAP);
	cr_assert_eq(tma_enqueue(client, NULL, stream), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_enqueue(NULL, &t, stream), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_enqueue_items(NULL, &item, 1, NULL, stream), TMA_INVALID_ARGUMENT);
	cr_assert_eq(item.status, TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_enqueue_items(client, &item, 0, NULL, stream), TMA_INVALID_ARGUMENT);
	assert_works();
}

Test(stream_errors, a_device_of_old, .init = NULL)
{
	setenv("SOFTGPU_CAPABILITY", "8.0", 1);
	rig_open();
	assert_error(enqueue_transpose(rig_bytes(140, 0), rig_bytes(140, 0), 5, 7), TMA_UNSUPPORTED,
	             "device 0 (softgpu) has compute capability 8.0; the cuda engine needs 9.0 or newer");
}

/* A kernel's sticky error hits the program's own context, so all later requests report it. */
Test(stream_errors, a_lost_device)
{
	CUdeviceptr src = rig_numbers(35), dst = rig_bytes(35 * 4, 0);

	setenv("SOFTGPU_FAULT", "1", 1);
	cuda(cuInit(0)); /* makes the driver read its environment again */
	cr_assert_eq(enqueue_transpose(dst, src, 5, 7), 0, "%s", tma_last_error(client));
	cr_assert_eq(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
	cr_assert_eq(enqueue_transpose(dst, src, 5, 7), TMA_DEVICE_LOST);
	exit(0);
}
