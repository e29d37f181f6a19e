/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that streams and events of the stand-in driver keep the order that the program asks for, and no
 * other. */
#include "soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <criterion/criterion.h>

#define SIZE 4096

TestSuite(soft_stream, .init = soft_open, .fini = soft_close, .timeout = 60);

static void wait_ms(long ms)
{
	struct timespec time = { ms / 1000, ms % 1000 * 1000000 };
	nanosleep(&time, NULL);
}

/* Sets another seed without closing the device. */
static void seed(int n)
{
	char text[16];
	snprintf(text, sizeof text, "%d", n);
	setenv("SOFTGPU_SEED", text, 1);
	expect_ok(cuInit(0));
}

Test(soft_stream, one_stream_runs_in_order)
{
	CUdeviceptr a = soft_memory(SIZE, 0), b = soft_memory(SIZE, 0);
	CUstream stream = soft_stream();
	for (int i = 1; i < 200; i++) {
		expect_ok(cuMemsetD8Async(a, (unsigned char)i, SIZE, stream));
		expect_ok(cuMemcpyDtoDAsync(b, a, SIZE, stream));
	}
	expect_ok(cuMemsetD8Async(a, 0, SIZE, stream));
	expect_ok(cuStreamSynchronize(stream));
	cr_expect(soft_is(a, SIZE, 0));
	cr_expect(soft_is(b, SIZE, 199));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(a));
	expect_ok(cuMemFree(b));
}

/* Two streams wait for the same event and then write the same memory. Returns the byte of the one that wrote
 * last. */
static unsigned char race(CUdeviceptr memory, CUstream first, CUstream second, CUstream gate)
{
	CUevent event = soft_event();
	unsigned char byte;
	expect_ok(cuMemsetD8Async(memory, 0, SIZE, gate));
	cr_assert_eq(soft_launch(gate, memory, memory, 16), CUDA_SUCCESS);
	expect_ok(cuEventRecord(event, gate));
	expect_ok(cuStreamWaitEvent(first, event, 0));
	expect_ok(cuStreamWaitEvent(second, event, 0));
	expect_ok(cuMemsetD8Async(memory, 1, SIZE, first));
	expect_ok(cuMemsetD8Async(memory, 2, SIZE, second));
	expect_ok(cuStreamSynchronize(first));
	expect_ok(cuStreamSynchronize(second));
	expect_ok(cuMemcpyDtoHAsync(&byte, memory, 1, gate));
	expect_ok(cuEventDestroy(event));
	return byte;
}

Test(soft_stream, seeds_choose_among_streams)
{
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream first = soft_stream(), second = soft_stream(), gate = soft_stream();
	int won[3] = { 0 };
	setenv("SOFTGPU_SLOW_US", "2000", 1);
	for (int i = 1; i <= 30; i++) {
		seed(i);
		unsigned char byte = race(memory, first, second, gate);
		cr_assert(byte == 1 || byte == 2, "seed %d: %d", i, byte);
		won[byte]++;
	}
	cr_expect_gt(won[1], 0, "the second stream always comes last");
	cr_expect_gt(won[2], 0, "the first stream always comes last");
	expect_ok(cuStreamDestroy(first));
	expect_ok(cuStreamDestroy(second));
	expect_ok(cuStreamDestroy(gate));
	expect_ok(cuMemFree(memory));
}

Test(soft_stream, events_order_streams)
{
	CUdeviceptr a = soft_memory(SIZE, 0), b = soft_memory(SIZE, 0);
	CUstream writer = soft_stream(), reader = soft_stream();
	CUevent written = soft_event(), read = soft_event();
	for (int i = 1; i <= 50; i++) {
		seed(i);
		expect_ok(cuMemsetD8Async(a, (unsigned char)i, SIZE, writer));
		expect_ok(cuEventRecord(written, writer));
		expect_ok(cuStreamWaitEvent(reader, written, 0));
		expect_ok(cuMemcpyDtoDAsync(b, a, SIZE, reader));
		expect_ok(cuEventRecord(read, reader));
		expect_ok(cuStreamWaitEvent(writer, read, 0));
		expect_ok(cuMemsetD8Async(a, 0, SIZE, writer));
		expect_ok(cuStreamSynchronize(writer));
		cr_expect(soft_is(b, SIZE, (unsigned char)i), "round %d", i);
	}
	expect_ok(cuEventDestroy(written));
	expect_ok(cuEventDestroy(read));
	expect_ok(cuStreamDestroy(writer));
	expect_ok(cuStreamDestroy(reader));
	expect_ok(cuMemFree(a));
	expect_ok(cuMemFree(b));
}

/* A wait is for the event's last record before it, whatever the event is recorded with later. */
Test(soft_stream, a_wait_keeps_its_record)
{
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream stream = soft_stream(), other = soft_stream();
	CUevent event = soft_event();
	expect_ok(cuEventRecord(event, stream));
	expect_ok(cuStreamWaitEvent(other, event, 0));
	setenv("SOFTGPU_SLOW_US", "300000", 1);
	seed(1);
	cr_assert_eq(soft_launch(stream, memory, memory, 16), CUDA_SUCCESS);
	expect_ok(cuEventRecord(event, stream));
	expect_ok(cuMemsetD8Async(memory, 7, SIZE, other));
	expect_ok(cuEventDestroy(event));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuStreamSynchronize(other));
	cr_expect(soft_is(memory, SIZE, 7));
	expect_ok(cuStreamDestroy(other));
	expect_ok(cuMemFree(memory));
}

Test(soft_stream, events_tell_time)
{
	CUdeviceptr memory = soft_memory(SIZE, 1);
	CUstream stream = soft_stream();
	CUevent start = soft_event(), end = soft_event(), mute = NULL;
	float ms = -1;
	expect_ok(cuEventQuery(start));
	expect_result(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
	setenv("SOFTGPU_SLOW_US", "50000", 1);
	seed(1);
	expect_ok(cuEventRecord(start, stream));
	cr_assert_eq(soft_launch(stream, memory, memory, 16), CUDA_SUCCESS);
	expect_ok(cuEventRecord(end, stream));
	expect_result(cuEventQuery(end), CUDA_ERROR_NOT_READY);
	expect_result(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
	while (driver.cuEventQuery(end) == CUDA_ERROR_NOT_READY)
		wait_ms(1);
	expect_ok(cuEventElapsedTime(&ms, start, end));
	cr_expect_geq(ms, 50);
	expect_ok(cuEventCreate(&mute, CU_EVENT_DISABLE_TIMING));
	expect_ok(cuEventRecord(mute, stream));
	expect_ok(cuStreamSynchronize(stream));
	expect_result(cuEventElapsedTime(&ms, start, mute), CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuEventDestroy(mute));
	expect_ok(cuEventDestroy(start));
	expect_ok(cuEventDestroy(end));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(memory));
}

/* A wait ends when the word is reached, whoever wrote it, and holds back only its own stream. A write happens
 * after what is before it in the stream. */
Test(soft_stream, words)
{
	CUdeviceptr memory = soft_memory(SIZE, 0), words = soft_memory(SIZE, 0);
	CUstream first = soft_stream(), second = soft_stream(), third = soft_stream();
	CUevent event = soft_event();
	cr_assert_eq(cuStreamWaitValue64(first, words, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
	expect_ok(cuMemsetD8Async(memory, 1, SIZE, first));
	expect_ok(cuStreamWriteValue64(first, words + 8, 3, CU_STREAM_WRITE_VALUE_DEFAULT));
	cr_assert_eq(cuStreamWaitValue64(second, words + 8, 2, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
	expect_ok(cuMemsetD8Async(memory, 2, SIZE, second));
	expect_ok(cuEventRecord(event, second));
	expect_ok(cuMemsetD8Async(memory, 3, SIZE, third));
	expect_ok(cuStreamSynchronize(third));
	cr_expect(soft_is(memory, SIZE, 3));
	expect_result(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	__atomic_store_n((uint64_t *)words, 1, __ATOMIC_RELEASE);
	expect_ok(cuStreamSynchronize(second));
	cr_expect(soft_is(memory, SIZE, 2));
	expect_result(cuStreamWriteValue64(first, words + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuStreamWriteValue64(first, 64, 1, 0), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuStreamWriteValue64(first, words, 1, 64), CUDA_ERROR_INVALID_VALUE);
	cr_expect_eq(cuStreamWaitValue64(first, words + 4, 1, 0), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuEventDestroy(event));
	expect_ok(cuStreamDestroy(first));
	expect_ok(cuStreamDestroy(second));
	expect_ok(cuStreamDestroy(third));
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(words));
}

/* Blocking streams and the default stream run in the order of submission. */
Test(soft_stream, the_default_stream_takes_turns)
{
	CUdeviceptr a = soft_memory(SIZE, 0);
	CUstream blocking = NULL;
	expect_ok(cuStreamCreateWithPriority(&blocking, CU_STREAM_DEFAULT, -5));
	for (int i = 1; i <= 50; i++) {
		seed(i);
		expect_ok(cuMemsetD8Async(a, 1, SIZE, blocking));
		expect_ok(cuMemsetD8Async(a, 2, SIZE, NULL));
		expect_ok(cuMemsetD8Async(a, 3, SIZE, blocking));
		expect_ok(cuStreamSynchronize(blocking));
		cr_expect(soft_is(a, SIZE, 3), "round %d", i);
		expect_ok(cuMemsetD8Async(a, 4, SIZE, blocking));
		expect_ok(cuMemsetD8Async(a, 5, SIZE, NULL));
		expect_ok(cuStreamSynchronize(NULL));
		cr_expect(soft_is(a, SIZE, 5), "round %d", i);
	}
	expect_ok(cuStreamDestroy(blocking));
	expect_ok(cuMemFree(a));
}

Test(soft_stream, handles_that_are_none)
{
	CUstream stream = soft_stream();
	CUevent event = soft_event();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	expect_result(cuStreamSynchronize((CUstream)event), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuStreamDestroy(NULL), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuEventQuery((CUevent)stream), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuEventRecord(event, (CUstream)event), CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuStreamDestroy(stream));
	expect_result(cuStreamDestroy(stream), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuMemsetD8Async(memory, 0, SIZE, stream), CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuEventDestroy(event));
	expect_result(cuEventDestroy(event), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(memory));
}
