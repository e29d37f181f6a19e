/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what belongs to a context and cannot be used in another, and that devices wait for each other only by
 * events. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "devices.h"
#include "tests/softgpu/counted.h"

#define SIZE 4096

TestSuite(devices_order, .timeout = 60);

static void seed(int n)
{
	char text[16];

	snprintf(text, sizeof text, "%d", n);
	setenv("SOFTGPU_SEED", text, 1);
	expect_ok(cuInit(0));
}

/* Launches a kernel that reads the memory. */
static CUresult launch(CUfunction function, CUdeviceptr memory, CUstream stream)
{
	struct counted_args args = { .base = memory, .what = COUNTED_GLOBAL_READ, .size = 4, .stride = 4 };
	void *params[] = { &args };
	const CUlaunchConfig config = { .gridDimX = 1,
		                        .gridDimY = 1,
		                        .gridDimZ = 1,
		                        .blockDimX = 32,
		                        .blockDimY = 1,
		                        .blockDimZ = 1,
		                        .hStream = stream };

	return cuLaunchKernelEx(&config, function, params, NULL);
}

static CUfunction function_of(CUmodule *ret)
{
	static const uint32_t image[4] = { 0xba55ed50 };
	CUfunction function = NULL;

	expect_ok(cuModuleLoadData(ret, image));
	expect_ok(cuModuleGetFunction(&function, *ret, "counted"));
	return function;
}

/* ---- What belongs to a context --------------------------------------------------------------------------
 */

Test(devices_order, launches_ask_for_their_own)
{
	CUmodule module, other_module;
	int blocks;

	devices_open(2);
	CUdeviceptr memory = memory_of(1, SIZE, 1), other_memory = memory_of(0, SIZE, 1);
	CUfunction other = function_of(&other_module);
	CUstream other_stream = new_stream();
	use(1);
	CUfunction own = function_of(&module);
	CUstream stream = new_stream();

	expect_ok(launch(own, memory, NULL));
	expect_ok(launch(own, memory, stream));
	expect_result(launch(other, memory, NULL), CUDA_ERROR_INVALID_HANDLE);
	expect_result(launch(other, memory, other_stream), CUDA_ERROR_INVALID_HANDLE);
	expect_result(launch(own, memory, other_stream), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuFuncSetAttribute(other, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024),
	              CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, other, 32, 0),
	              CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuModuleGetFunction(&other, other_module, "counted"), CUDA_ERROR_INVALID_CONTEXT);
	expect_result(cuModuleUnload(other_module), CUDA_ERROR_INVALID_CONTEXT);
	expect_ok(cuModuleUnload(module));
	use(0);
	expect_ok(launch(other, other_memory, other_stream));
	expect_ok(cuModuleUnload(other_module));
	expect_ok(cuStreamDestroy(other_stream));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(other_memory));
	devices_close();
}

Test(devices_order, streams_and_events_elsewhere)
{
	float ms;

	devices_open(2);
	CUdeviceptr memory = memory_of(0, SIZE, 1);
	CUstream stream = new_stream();
	CUevent start = new_event();
	use(1);
	CUevent other = new_event();

	/* An event can be recorded only in a stream of its own context; the default stream is the current
	 * context's. */
	expect_result(cuEventRecord(other, stream), CUDA_ERROR_INVALID_HANDLE);
	expect_result(cuEventRecord(start, NULL), CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuEventRecord(start, stream));
	expect_ok(cuEventRecord(other, NULL));

	/* These work with any context current. */
	expect_ok(cuMemcpyDtoDAsync(memory, memory + SIZE / 2, SIZE / 2, stream));
	expect_ok(cuMemsetD8Async(memory, 4, SIZE, stream));
	expect_ok(cuStreamSynchronize(stream));
	expect_ok(cuStreamSynchronize(NULL));
	expect_ok(cuEventQuery(start));
	expect_result(cuEventElapsedTime(&ms, start, other), CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuStreamWaitEvent(stream, other, 0));
	expect_ok(cuStreamWaitEvent(NULL, start, 0));
	cr_expect(memory_is(memory, SIZE, 4));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuEventDestroy(start));
	expect_ok(cuEventDestroy(other));
	expect_ok(cuMemFree(memory));
	devices_close();
}

Test(devices_order, objects_of_a_context_that_is_gone)
{
	devices_open(2);
	CUdeviceptr memory = memory_of(1, SIZE, 1), own;
	CUstream stream = new_stream();
	CUmodule module;
	expect_ok(cuModuleLoadData(&module, (uint32_t[4]){ 0xba55ed50 }));
	expect_ok(cuDevicePrimaryCtxRelease(1));
	expect_result(cuMemFree(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	own = memory_of(0, SIZE, 1);
	expect_result(cuMemsetD8Async(own, 0, SIZE, stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	expect_result(cuStreamSynchronize(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	expect_result(cuMemcpyDtoDAsync(own, memory, SIZE, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	expect_result(cuMemFree(memory), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	expect_ok(cuMemFree(own));
}

/* ---- Order ----------------------------------------------------------------------------------------------
 */

/* Bytes go around all devices, each step in a stream of another device. */
Test(devices_order, events_order_devices)
{
	enum { DEVICES = 4, ROUNDS = 30 };
	CUdeviceptr memory[DEVICES];
	CUstream stream[DEVICES];
	CUevent event[DEVICES];

	devices_open(DEVICES);
	for (int i = 0; i < DEVICES; i++) {
		memory[i] = memory_of(i, SIZE, 0);
		stream[i] = new_stream();
		event[i] = new_event();
	}
	for (int round = 1; round <= ROUNDS; round++) {
		seed(round);
		expect_ok(cuMemsetD8Async(memory[0], (unsigned char)round, SIZE, stream[0]));
		expect_ok(cuEventRecord(event[0], stream[0]));
		for (int i = 1; i < DEVICES; i++) {
			expect_ok(cuStreamWaitEvent(stream[i], event[i - 1], 0));
			expect_ok(cuMemcpyPeerAsync(memory[i], context[i], memory[i - 1], context[i - 1],
			                            SIZE, stream[i]));
			expect_ok(cuEventRecord(event[i], stream[i]));
		}
		expect_ok(cuStreamWaitEvent(stream[0], event[DEVICES - 1], 0));
		expect_ok(cuMemsetD8Async(memory[0], 0, SIZE, stream[0]));
		expect_ok(cuStreamSynchronize(stream[0]));
		cr_assert(memory_is(memory[DEVICES - 1], SIZE, (unsigned char)round), "round %d", round);
	}
	for (int i = 0; i < DEVICES; i++) {
		expect_ok(cuEventDestroy(event[i]));
		expect_ok(cuStreamDestroy(stream[i]));
		expect_ok(cuMemFree(memory[i]));
	}
	devices_close();
}

/* All streams of device 0 wait for a word, which stops no other device. */
Test(devices_order, others_do_not_wait)
{
	CUmodule module;

	devices_open(2);
	CUdeviceptr word = memory_of(0, 8, 0), held = memory_of(0, SIZE, 1);
	CUstream stream = new_stream();
	CUevent waited = new_event();
	expect_ok(cuStreamWaitValue64(NULL, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	expect_ok(cuMemsetD8Async(held, 2, SIZE, NULL));
	expect_ok(cuEventRecord(waited, NULL));
	expect_ok(cuStreamWaitValue64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));

	CUdeviceptr memory = memory_of(1, SIZE, 5), other = memory_of(1, SIZE, 6);
	CUfunction function = function_of(&module);
	CUstream own;
	CUevent event = new_event();
	expect_ok(cuStreamCreateWithPriority(&own, CU_STREAM_DEFAULT, 0));
	expect_ok(launch(function, memory, NULL));
	expect_ok(cuMemcpyDtoDAsync(other, memory, SIZE, own));
	expect_ok(cuMemcpyDtoDAsync(other, held, SIZE / 2, own));
	expect_ok(cuEventRecord(event, own));
	expect_ok(cuStreamWaitEvent(NULL, event, 0));
	expect_ok(cuCtxSynchronize());
	cr_expect(memory_is(other, SIZE / 2, 1), "it was written before the word came");
	cr_expect(memory_is(other + SIZE / 2, SIZE / 2, 5));
	expect_ok(cuModuleUnload(module));
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(other));
	expect_result(cuEventQuery(waited), CUDA_ERROR_NOT_READY);

	__atomic_store_n((uint64_t *)word, 1, __ATOMIC_RELEASE);
	use(0);
	expect_ok(cuCtxSynchronize());
	expect_ok(cuEventQuery(waited));
	cr_expect(memory_is(held, SIZE, 2));
	expect_ok(cuEventDestroy(waited));
	expect_ok(cuEventDestroy(event));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuStreamDestroy(own));
	expect_ok(cuMemFree(word));
	expect_ok(cuMemFree(held));
	devices_close();
}

/* ---- Side by side ---------------------------------------------------------------------------------------
 */

static char trace_path[] = "/tmp/softgpu-devices.XXXXXX";

static void open_traced(const char *variable)
{
	int fd = mkstemp(trace_path);

	cr_assert_geq(fd, 0);
	close(fd);
	setenv("SOFTGPU_TRACE", trace_path, 1);
	devices_set(variable);
	expect_ok(cuInit(0));
}

/* Returns the number of the trace line that begins with `start`, from 0, or -1. */
static int line_of(const char *start)
{
	FILE *file = fopen(trace_path, "r");
	char line[128];
	int at = -1, found = -1;

	cr_assert(file);
	while (found < 0 && fgets(line, sizeof line, file)) {
		at++;
		if (strncmp(line, start, strlen(start)) == 0)
			found = at;
	}
	fclose(file);
	return found;
}

static void wait_for_line(const char *start)
{
	while (line_of(start) < 0)
		usleep(1000);
}

/* Kernels of two devices overlap, and each delays only its own device. */
Test(devices_order, each_has_units_of_its_own)
{
	CUmodule module[2];
	CUfunction function[2];
	CUdeviceptr memory[2];
	CUevent event;

	devices_open(2);
	for (int i = 0; i < 2; i++) {
		memory[i] = memory_of(i, SIZE, 1);
		function[i] = function_of(&module[i]);
	}
	setenv("SOFTGPU_STUCK", "1", 1);
	open_traced("SOFTGPU_SLOW_US=300000");
	use(0);
	event = new_event();
	expect_ok(launch(function[0], memory[0], NULL));
	expect_ok(cuEventRecord(event, NULL));
	wait_for_line("begin kernels counted");
	use(1);
	expect_ok(cuMemsetD8Async(memory[1], 2, SIZE, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	expect_result(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	expect_ok(launch(function[1], memory[1], NULL));
	expect_ok(cuStreamSynchronize(NULL));
	use(0);
	expect_ok(cuStreamSynchronize(NULL));
	cr_expect_lt(line_of("end kernels.1 set"), line_of("end kernels counted"));
	cr_expect_lt(line_of("begin kernels.1 counted"), line_of("end kernels counted"));
	unlink(trace_path);
	expect_ok(cuEventDestroy(event));
	for (int i = 0; i < 2; i++) {
		use(i);
		expect_ok(cuModuleUnload(module[i]));
		expect_ok(cuMemFree(memory[i]));
	}
	devices_close();
}

/* A device runs one kernel at a time, also if another device is idle. */
Test(devices_order, each_runs_one_kernel_at_a_time)
{
	enum { KERNELS = 4 };
	CUstream stream[KERNELS];
	CUmodule module;
	char line[128], what[8], unit[16];
	int begun = 0, most = 0;

	devices_open(2);
	CUdeviceptr memory = memory_of(0, SIZE, 1);
	CUfunction function = function_of(&module);
	for (int i = 0; i < KERNELS; i++)
		stream[i] = new_stream();
	open_traced("SOFTGPU_SLOW_US=30000");
	for (int i = 0; i < KERNELS; i++)
		expect_ok(launch(function, memory, stream[i]));
	expect_ok(cuCtxSynchronize());
	FILE *file = fopen(trace_path, "r");
	cr_assert(file);
	while (fgets(line, sizeof line, file) && sscanf(line, "%7s %15s", what, unit) == 2) {
		cr_expect_str_eq(unit, "kernels");
		begun += strcmp(what, "begin") == 0 ? 1 : -1;
		most = begun > most ? begun : most;
	}
	fclose(file);
	unlink(trace_path);
	cr_expect_eq(most, 1, "%d at once", most);
	for (int i = 0; i < KERNELS; i++)
		expect_ok(cuStreamDestroy(stream[i]));
	expect_ok(cuModuleUnload(module));
	expect_ok(cuMemFree(memory));
	devices_close();
}

/* A copy between two devices runs on the copy engines. */
Test(devices_order, copies_between_devices_pass_kernels)
{
	CUmodule module;

	devices_open(2);
	CUdeviceptr there = memory_of(1, SIZE, 7), memory = memory_of(0, SIZE, 1),
		    more = memory_of(0, SIZE, 2);
	CUfunction function = function_of(&module);
	CUstream stream = new_stream();
	open_traced("SOFTGPU_SLOW_US=300000");
	expect_ok(launch(function, memory, NULL));
	wait_for_line("begin kernels counted");
	expect_ok(cuMemcpyDtoDAsync(more, there, SIZE, stream));
	expect_ok(cuMemcpyDtoDAsync(there, more, SIZE, stream));
	expect_ok(cuStreamSynchronize(stream));
	cr_expect_eq(line_of("end kernels counted"), -1);
	cr_expect_gt(line_of("end to_device copy"), 0);
	cr_expect_gt(line_of("end to_host copy"), line_of("end to_device copy"));
	unlink(trace_path);
	cr_expect(memory_is(more, SIZE, 7));
	expect_ok(cuModuleUnload(module));
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(there));
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(more));
	devices_close();
}
