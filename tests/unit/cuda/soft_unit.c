/* SPDX-License-Identifier: Apache-2.0 */
/* Tests by the trace what the stand-in driver's device runs side by side, what one at a time, and what
 * first. */
#include "soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "tests/softgpu/counted.h"

#define SIZE  4096
#define LINES 64

static char trace_path[] = "/tmp/soft_unit.XXXXXX";
static _Alignas(SIZE) unsigned char host[4 * SIZE];

/* Opens the device with host memory registered, and makes an empty trace file. */
static void open_traced(void)
{
	int fd = mkstemp(trace_path);
	cr_assert_geq(fd, 0);
	close(fd);
	soft_open();
	expect_ok(cuMemHostRegister(host, sizeof host, 0));
}

static void close_traced(void)
{
	expect_ok(cuMemHostUnregister(host));
	soft_close();
	unlink(trace_path);
}

TestSuite(soft_unit, .init = open_traced, .fini = close_traced, .timeout = 60);

/* Makes the driver read its environment again; nothing before this is in the trace. */
static void set_up(const char *variable)
{
	setenv("SOFTGPU_TRACE", trace_path, 1);
	soft_set(variable);
	expect_ok(cuInit(0));
}

/* ---- The trace ----------------------------------------------------------------------------------------- */

struct line {
	char what[8], unit[16], name[32];
	unsigned long long amount, passing;
	int priority;
};

static size_t read_trace(struct line ret[LINES])
{
	FILE *file = fopen(trace_path, "r");
	size_t n = 0;
	cr_assert(file);
	while (n < LINES && fscanf(file, "%7s %15s %31s %llu %d %llu", ret[n].what, ret[n].unit, ret[n].name,
	                           &ret[n].amount, &ret[n].priority, &ret[n].passing) == 6)
		n++;
	cr_assert(feof(file) && !ferror(file), "line %zu", n);
	fclose(file);
	return n;
}

static bool is_line(const struct line *line, const char *what, const char *unit)
{
	return strcmp(line->what, what) == 0 && strcmp(line->unit, unit) == 0;
}

/* ---- Work ---------------------------------------------------------------------------------------------- */

static void launch(CUstream stream, CUdeviceptr memory, unsigned blocks)
{
	struct counted_args args = { .base = memory, .what = COUNTED_GLOBAL_READ, .size = 4, .stride = 4 };
	void *params[] = { &args };
	CUlaunchConfig config = { .gridDimX = blocks,
		                  .gridDimY = 1,
		                  .gridDimZ = 1,
		                  .blockDimX = 32,
		                  .blockDimY = 1,
		                  .blockDimZ = 1,
		                  .hStream = stream };
	CUfunction function;
	expect_ok(cuModuleGetFunction(&function, soft.module[0], "counted"));
	expect_ok(cuLaunchKernelEx(&config, function, params, NULL));
}

static void wait_for_kernel(void)
{
	struct line lines[LINES];
	struct timespec pause = { .tv_nsec = 1000000 };
	while (read_trace(lines) == 0)
		nanosleep(&pause, NULL);
	cr_assert(is_line(&lines[0], "begin", "kernels"));
}

static CUstream stream_of(int priority)
{
	CUstream stream = NULL;
	expect_ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, priority));
	return stream;
}

/* ---- Side by side -------------------------------------------------------------------------------------- */

/* A kernel that takes long holds up neither copies nor the events of the copies' stream. */
Test(soft_unit, copies_pass_a_kernel)
{
	CUdeviceptr memory = soft_memory(SIZE, 3);
	CUstream computes = soft_stream(), copies = soft_stream();
	CUevent computed = soft_event(), copied = soft_event();
	set_up("SOFTGPU_SLOW_US=1000000");
	memset(host, 5, SIZE);
	launch(computes, memory, 1);
	expect_ok(cuEventRecord(computed, computes));
	wait_for_kernel();
	expect_ok(cuMemcpyDtoHAsync(host + SIZE, memory, SIZE, copies));
	expect_ok(cuMemcpyHtoDAsync(memory, host, SIZE, copies));
	expect_ok(cuEventRecord(copied, copies));
	expect_ok(cuStreamSynchronize(copies));
	expect_ok(cuEventQuery(copied));
	expect_result(cuEventQuery(computed), CUDA_ERROR_NOT_READY);
	cr_expect_eq(host[SIZE], 3);
	cr_expect_eq(host[2 * SIZE - 1], 3);
	expect_ok(cuStreamSynchronize(computes));
	cr_expect(soft_is(memory, SIZE, 5));
	expect_ok(cuEventDestroy(computed));
	expect_ok(cuEventDestroy(copied));
	expect_ok(cuStreamDestroy(computes));
	expect_ok(cuStreamDestroy(copies));
	expect_ok(cuMemFree(memory));
}

/* Four streams that wait for the same word make two copies in each direction. */
Test(soft_unit, each_direction_carries_one_at_a_time)
{
	CUdeviceptr memory = soft_memory(4 * SIZE, 0), word = soft_memory(8, 0);
	CUstream stream[4];
	struct line lines[LINES];
	int to_device = 0, to_host = 0, n_both = 0;
	size_t n;
	set_up("SOFTGPU_COPY_US=100000");
	for (int i = 0; i < 4; i++) {
		const size_t at = (size_t)i * SIZE;
		stream[i] = soft_stream();
		cr_assert_eq(cuStreamWaitValue64(stream[i], word, 1, CU_STREAM_WAIT_VALUE_GEQ), CUDA_SUCCESS);
		if (i % 2)
			expect_ok(cuMemcpyHtoDAsync(memory + at, host + at, SIZE, stream[i]));
		else
			expect_ok(cuMemcpyDtoHAsync(host + at, memory + at, SIZE, stream[i]));
	}
	cr_expect_eq(read_trace(lines), 0);
	__atomic_store_n((uint64_t *)word, 1, __ATOMIC_RELEASE);
	for (int i = 0; i < 4; i++) {
		expect_ok(cuStreamSynchronize(stream[i]));
		expect_ok(cuStreamDestroy(stream[i]));
	}
	n = read_trace(lines);
	cr_assert_eq(n, 8);
	for (size_t i = 0; i < n; i++) {
		to_device +=
		    is_line(&lines[i], "begin", "to_device") - is_line(&lines[i], "end", "to_device");
		to_host += is_line(&lines[i], "begin", "to_host") - is_line(&lines[i], "end", "to_host");
		cr_expect(to_device <= 1 && to_host <= 1, "line %zu: %d and %d run", i, to_device, to_host);
		n_both += to_device == 1 && to_host == 1;
		cr_expect_str_eq(lines[i].name, "copy");
		cr_expect_eq(lines[i].amount, SIZE);
	}
	cr_expect_gt(n_both, 0, "the directions take turns");
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(word));
}

/* A copy within the device runs on the kernels' unit, whichever call makes it. */
Test(soft_unit, what_each_unit_does)
{
	static const char *const wanted[] = { "to_device", "to_device", "to_host", "to_host",
		                              "kernels",   "kernels",   "kernels", "kernels" };
	CUdeviceptr a = soft_memory(SIZE, 0), b = soft_memory(SIZE, 0);
	CUstream stream = soft_stream();
	struct line lines[LINES];
	set_up("");
	expect_ok(cuMemcpyHtoDAsync(a, host, SIZE, stream));
	expect_ok(cuMemcpyAsync(a, (CUdeviceptr)host, SIZE, stream));
	expect_ok(cuMemcpyDtoHAsync(host, a, SIZE, stream));
	expect_ok(cuMemcpyAsync((CUdeviceptr)host, a, SIZE, stream));
	expect_ok(cuMemcpyDtoDAsync(b, a, SIZE, stream));
	expect_ok(cuMemcpyAsync(b, a, SIZE, stream));
	expect_ok(cuMemsetD8Async(b, 1, SIZE, stream));
	launch(stream, a, 3);
	expect_ok(cuStreamSynchronize(stream));
	cr_assert_eq(read_trace(lines), 16);
	for (int i = 0; i < 8; i++) {
		cr_expect(is_line(&lines[2 * i], "begin", wanted[i]), "operation %d", i);
		cr_expect(is_line(&lines[2 * i + 1], "end", wanted[i]), "operation %d", i);
	}
	cr_expect_str_eq(lines[14].name, "counted");
	cr_expect_eq(lines[14].amount, 3, "%llu blocks", lines[14].amount);
	expect_ok(cuStreamDestroy(stream));
	expect_ok(cuMemFree(a));
	expect_ok(cuMemFree(b));
}

/* ---- First --------------------------------------------------------------------------------------------- */

/* Kernels that are ready when one ends start in the order of their priority, whatever the order of their
 * launches. */
Test(soft_unit, urgent_kernels_start_first)
{
	static const int priorities[] = { 0, -5, -2, 0, -5, -2, 0 };
	const int count = sizeof priorities / sizeof *priorities;
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream stream[sizeof priorities / sizeof *priorities], gate = stream_of(0);
	struct line lines[LINES];
	int last = -5;
	set_up("SOFTGPU_SLOW_US=50000");
	launch(gate, memory, 1);
	wait_for_kernel();
	for (int i = 0; i < count; i++) {
		stream[i] = stream_of(priorities[i]);
		launch(stream[i], memory, 2);
	}
	for (int i = 0; i < count; i++) {
		expect_ok(cuStreamSynchronize(stream[i]));
		expect_ok(cuStreamDestroy(stream[i]));
	}
	cr_assert_eq(read_trace(lines), 2 * (size_t)count + 2);
	for (int i = 1; i <= count; i++) {
		cr_expect_geq(lines[2 * i].priority, last, "kernel %d", i);
		last = lines[2 * i].priority;
	}
	expect_ok(cuStreamDestroy(gate));
	expect_ok(cuMemFree(memory));
}

/* ---- Lost ---------------------------------------------------------------------------------------------- */

/* A kernel dies while another unit is still at work; what waited behind the kernel never runs. */
Test(soft_unit_lost, while_a_copy_runs, .timeout = 60)
{
	struct line lines[LINES];
	CUstream computes, copies;
	CUdeviceptr memory;
	open_traced();
	memory = soft_memory(2 * SIZE, 0);
	computes = soft_stream();
	copies = soft_stream();
	soft_set("SOFTGPU_COPY_US=100000");
	set_up("SOFTGPU_FAULT=1");
	expect_ok(cuMemcpyHtoDAsync(memory, host, SIZE, copies));
	expect_ok(cuMemcpyHtoDAsync(memory + SIZE, host, SIZE, copies));
	launch(computes, memory, 1);
	expect_result(cuStreamSynchronize(copies), CUDA_ERROR_ILLEGAL_ADDRESS);
	expect_result(cuStreamSynchronize(computes), CUDA_ERROR_ILLEGAL_ADDRESS);
	device_close(&soft);
	driver_close();
	cr_expect_leq(read_trace(lines), 4);
	unlink(trace_path);
}

/* ---- Size ---------------------------------------------------------------------------------------------- */

Test(soft_unit_size, multiprocessors, .timeout = 60)
{
	soft_set("SOFTGPU_MULTIPROCESSORS=132");
	soft_open();
	cr_expect_eq(soft.processors, 132);
	soft_close();
	unsetenv("SOFTGPU_MULTIPROCESSORS");
	soft_open();
	cr_expect_eq(soft.processors, 2);
	soft_close();
}
