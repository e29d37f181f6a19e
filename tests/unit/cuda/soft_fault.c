/* SPDX-License-Identifier: Apache-2.0 */
/* Tests faults that the stand-in driver is told to produce, and that it then fails for as long as a real one
 * would. */
#include "soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/softgpu/counted.h"

#define SIZE 4096

TestSuite(soft_fault, .timeout = 60);

/* ---- What sticks --------------------------------------------------------------------------------------- */

enum cause { CAUSE_LAUNCH, CAUSE_CALL, CAUSE_RULE, CAUSE_EARLY, CAUSE_GONE };

struct sticky_row {
	char name[40];
	enum cause cause;
	char variable[64];
	char variable_too[64];
	CUresult result;
};

ParameterizedTestParameters(soft_fault, sticky)
{
	static struct sticky_row rows[] = {
		{ .name = "the second launch",
		  .cause = CAUSE_LAUNCH,
		  .variable = "SOFTGPU_FAULT=2",
		  .result = CUDA_ERROR_ILLEGAL_ADDRESS },
		{ .name = "a call",
		  .cause = CAUSE_CALL,
		  .variable = "SOFTGPU_FAIL_CALL=cuEventCreate:2",
		  .variable_too = "SOFTGPU_FAIL_WITH=719",
		  .result = CUDA_ERROR_LAUNCH_FAILED },
		{ .name = "a rule of the unit",
		  .cause = CAUSE_RULE,
		  .result = CUDA_ERROR_ILLEGAL_INSTRUCTION },
		{ .name = "an access before grid_wait",
		  .cause = CAUSE_EARLY,
		  .result = CUDA_ERROR_ILLEGAL_INSTRUCTION },
		{ .name = "memory that is gone", .cause = CAUSE_GONE, .result = CUDA_ERROR_ILLEGAL_ADDRESS },
	};
	return cr_make_param_array(struct sticky_row, rows, sizeof rows / sizeof *rows);
}

/* Launches a kernel that does not wait for the launches before it. allowed: the kernel may start before they
 * have ended. */
static CUresult launch_unwaiting(CUdeviceptr memory, int allowed)
{
	struct counted_args args = { .base = memory, .what = COUNTED_GLOBAL_READ, .size = 4, .stride = 4 };
	void *params[] = { &args };
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
		                        .value.programmaticStreamSerializationAllowed = allowed };
	CUlaunchConfig config = { .gridDimX = 1,
		                  .gridDimY = 1,
		                  .gridDimZ = 1,
		                  .blockDimX = 32,
		                  .blockDimY = 1,
		                  .blockDimZ = 1,
		                  .attrs = &attribute,
		                  .numAttrs = 1 };
	CUfunction function;

	expect_ok(cuModuleGetFunction(&function, soft.module[0], "counted"));
	expect_ok(cuLaunchKernelEx(&config, function, params, NULL));
	return driver.cuStreamSynchronize(NULL);
}

/* Causes the fault and returns what the driver then answers. */
static CUresult cause_it(const struct sticky_row *row, CUdeviceptr memory)
{
	CUevent event = soft_event();
	if (row->cause == CAUSE_CALL)
		return driver.cuEventCreate(&event, 0);
	if (row->cause == CAUSE_LAUNCH) {
		cr_expect_eq(soft_launch(NULL, memory, memory, 16), CUDA_SUCCESS, "%s", row->name);
		expect_ok(cuStreamSynchronize(NULL));
	}
	if (row->cause == CAUSE_EARLY) {
		cr_expect_eq(launch_unwaiting(memory, 0), CUDA_SUCCESS, "%s: it was not allowed", row->name);
		return launch_unwaiting(memory, 1);
	}
	if (row->cause == CAUSE_GONE)
		expect_ok(cuMemFree(memory));
	cr_expect_eq(soft_launch(NULL, memory, memory, row->cause == CAUSE_RULE ? 24 : 16), CUDA_SUCCESS,
	             "%s", row->name);
	return driver.cuStreamSynchronize(NULL);
}

ParameterizedTest(struct sticky_row *row, soft_fault, sticky)
{
	CUstream stream;
	CUevent event;
	size_t n;
	int count;
	soft_set(row->variable);
	soft_set(row->variable_too);
	soft_open();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUresult result = cause_it(row, memory);
	cr_assert_eq(result, row->result, "%s: %d", row->name, (int)result);
	expect_result(cuMemAlloc(&memory, 1), row->result);
	expect_result(cuMemFree(memory), row->result);
	expect_result(cuMemGetInfo(&n, &n), row->result);
	expect_result(cuStreamCreateWithPriority(&stream, 0, 0), row->result);
	expect_result(cuEventCreate(&event, 0), row->result);
	expect_result(cuMemsetD8Async(memory, 0, 1, NULL), row->result);
	expect_result(cuStreamSynchronize(NULL), row->result);
	expect_result(cuCtxSetCurrent(soft.context), row->result);
	expect_result(cuDevicePrimaryCtxRelease(soft.handle), row->result);
	cr_expect_eq(soft_launch(NULL, memory, memory, 16), row->result, "%s", row->name);
	expect_ok(cuDeviceGetCount(&count));
	device_close(&soft);
	driver_close();
}

/* Work that waits for the faulting launch, and an event after it, never complete. */
Test(soft_fault, what_follows_a_fault_is_thrown_away)
{
	soft_set("SOFTGPU_FAULT=1");
	soft_set("SOFTGPU_SLOW_US=1000");
	soft_open();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	CUstream stream = soft_stream(), other = soft_stream();
	CUevent event = soft_event();
	CUresult result;
	cr_assert_eq(soft_launch(stream, memory, memory, 16), CUDA_SUCCESS);
	driver.cuEventRecord(event, stream);
	driver.cuStreamWaitEvent(other, event, 0);
	driver.cuMemsetD8Async(memory, 1, SIZE, other);
	while ((result = driver.cuEventQuery(event)) == CUDA_ERROR_NOT_READY)
		;
	cr_expect_eq(result, CUDA_ERROR_ILLEGAL_ADDRESS);
	expect_result(cuStreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS);
	cr_expect_eq(*(unsigned char *)memory, 0);
	device_close(&soft);
	driver_close();
}

/* The launch faults only if the marker file does not exist, so that a later process is not affected. */
Test(soft_fault, once)
{
	char path[] = "/tmp/unit-cuda-XXXXXX";
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	close(fd);
	soft_set("SOFTGPU_FAULT=1");
	setenv("SOFTGPU_FAULT_ONCE", path, 1);
	soft_open();
	CUdeviceptr memory = soft_memory(SIZE, 0);
	cr_expect_eq(soft_launch(NULL, memory, memory, 16), CUDA_SUCCESS);
	expect_ok(cuStreamSynchronize(NULL));
	unlink(path);
	expect_ok(cuInit(0));
	cr_expect_eq(soft_launch(NULL, memory, memory, 16), CUDA_SUCCESS);
	expect_result(cuStreamSynchronize(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	cr_expect_eq(access(path, F_OK), 0, "the fault left no marker");
	unlink(path);
	device_close(&soft);
	driver_close();
}

/* ---- Calls ----------------------------------------------------------------------------------------------
 */

Test(soft_fault, one_function, .fini = soft_close)
{
	CUdeviceptr memory[3] = { 0 };
	soft_set("SOFTGPU_FAIL_CALL=cuMemAlloc:2");
	soft_set("SOFTGPU_FAIL_WITH=801");
	soft_open();
	expect_ok(cuMemAlloc(&memory[0], SIZE));
	expect_result(cuMemAlloc(&memory[1], SIZE), CUDA_ERROR_NOT_SUPPORTED);
	expect_ok(cuMemAlloc(&memory[2], SIZE));
	cr_expect_eq(memory[1], 0);
	expect_ok(cuMemFree(memory[0]));
	expect_ok(cuMemFree(memory[2]));
}

static long read_number(const char *path)
{
	FILE *file = fopen(path, "r");
	long n = -1;
	cr_assert(file);
	cr_expect_eq(fscanf(file, "%ld", &n), 1);
	fclose(file);
	return n;
}

Test(soft_fault, counts)
{
	char path[] = "/tmp/unit-cuda-XXXXXX";
	struct error err;
	const char *name;
	int n, fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	close(fd);
	setenv("SOFTGPU_COUNT", path, 1);
	cr_assert_eq(driver_open(&err), 0, "%s", err.message);
	cr_expect_eq(read_number(path), 1);
	expect_ok(cuDeviceGetCount(&n));
	expect_ok(cuGetErrorName(CUDA_SUCCESS, &name));
	expect_result(cuDeviceGet(&n, 99), CUDA_ERROR_INVALID_DEVICE);
	cr_expect_eq(read_number(path), 3);
	unlink(path);
	driver_close();
}

/* One child gives everything back; in the other, the first call that gives something back fails. */
Test(soft_fault, tells_what_is_left_at_the_end)
{
	static const char *const variables[] = { "", "SOFTGPU_FAIL_CALL=cuModuleUnload" };
	static const char *const wanted[] = { "", "1 modules\n" };
	char path[] = "/tmp/unit-cuda-XXXXXX", environment[128], text[256];
	int fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	for (int i = 0; i < 2; i++) {
		snprintf(environment, sizeof environment, "SOFTGPU_LIVE=%s %s", path, variables[i]);
		cr_assert_eq(write(fd, "old\n", 4), 4);
		cr_expect_eq(soft_child(text, sizeof text, environment, "open_device"), 0);
		ssize_t n = pread(fd, text, sizeof text - 1, 0);
		cr_assert_geq(n, 0);
		text[n] = '\0';
		cr_expect_str_eq(text, wanted[i], "%s", variables[i]);
		lseek(fd, 0, SEEK_SET);
	}
	close(fd);
	unlink(path);
}

Test(soft_fault, mapping_takes_time, .fini = soft_close)
{
	soft_set("SOFTGPU_MAP_US=30000");
	soft_open();
	CUevent start = soft_event(), end = soft_event();
	static char bytes[SIZE];
	float ms;
	expect_ok(cuEventRecord(start, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	expect_ok(cuMemHostRegister(bytes, sizeof bytes, 0));
	expect_ok(cuEventRecord(end, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	expect_ok(cuEventElapsedTime(&ms, start, end));
	cr_expect_geq(ms, 30);
	soft_set("SOFTGPU_MAP_US=0");
	expect_ok(cuInit(0));
	expect_ok(cuMemHostUnregister(bytes));
	expect_ok(cuEventDestroy(start));
	expect_ok(cuEventDestroy(end));
}

/* ---- Launches --------------------------------------------------------------------------------------------
 */

struct launch_row {
	char name[40];
	unsigned grid[3];
	unsigned block[3];
	unsigned shared;
	unsigned cluster; /* 0: the launch has no cluster attribute */
	CUresult result;
};

ParameterizedTestParameters(soft_fault, launch)
{
	static struct launch_row rows[] = {
		{ .name = "no blocks", .block = { 32, 1, 1 }, .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "no threads", .grid = { 1, 1, 1 }, .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "too many threads",
		  .grid = { 1, 1, 1 },
		  .block = { 32, 33, 1 },
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "past the launch bound",
		  .grid = { 1, 1, 1 },
		  .block = { 33, 1, 1 },
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "too high a grid",
		  .grid = { 1, 65536, 1 },
		  .block = { 32, 1, 1 },
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "too much shared memory",
		  .grid = { 1, 1, 1 },
		  .block = { 32, 1, 1 },
		  .shared = 227 * 1024 + 1,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "half a cluster",
		  .grid = { 3, 1, 1 },
		  .block = { 32, 1, 1 },
		  .cluster = 2,
		  .result = CUDA_ERROR_INVALID_VALUE },
		{ .name = "all of shared memory",
		  .grid = { 2, 1, 1 },
		  .block = { 32, 1, 1 },
		  .shared = 227 * 1024,
		  .cluster = 1 },
	};
	return cr_make_param_array(struct launch_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct launch_row *row, soft_fault, launch, .init = soft_open, .fini = soft_close)
{
	static char argument[8192];
	void *params[] = { argument };
	CUlaunchAttribute attribute = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION };
	CUlaunchConfig config = {
		.gridDimX = row->grid[0],
		.gridDimY = row->grid[1],
		.gridDimZ = row->grid[2],
		.blockDimX = row->block[0],
		.blockDimY = row->block[1],
		.blockDimZ = row->block[2],
		.sharedMemBytes = row->shared,
		.attrs = &attribute,
		.numAttrs = row->cluster > 0,
	};
	attribute.value.clusterDim.x = row->cluster;
	attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
	CUresult result = driver.cuLaunchKernelEx(&config, soft.function[KERNEL_bulk_copy], params, NULL);
	cr_expect_eq(result, row->result, "%s: %d", row->name, (int)result);
	expect_ok(cuStreamSynchronize(NULL));
}

/* A launch may use 48 KiB until the function's limit has been raised. */
Test(soft_fault, shared_memory_is_asked_for, .init = soft_open, .fini = soft_close)
{
	static char argument[8192];
	void *params[] = { argument };
	CUfunction function;
	CUlaunchConfig config = { .gridDimX = 1,
		                  .gridDimY = 1,
		                  .gridDimZ = 1,
		                  .blockDimX = 32,
		                  .blockDimY = 1,
		                  .blockDimZ = 1,
		                  .sharedMemBytes = 48 * 1024 };

	expect_ok(cuModuleGetFunction(&function, soft.module[0], "bulk_copy"));
	expect_ok(cuLaunchKernelEx(&config, function, params, NULL));
	config.sharedMemBytes++;
	cr_expect_eq(driver.cuLaunchKernelEx(&config, function, params, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
	                             (int)config.sharedMemBytes));
	expect_ok(cuLaunchKernelEx(&config, function, params, NULL));
	expect_ok(cuStreamSynchronize(NULL));
}

/* A launch copies its argument before it returns. */
Test(soft_fault, a_launch_copies, .init = soft_open, .fini = soft_close)
{
	CUdeviceptr dst = soft_memory(SIZE, 0), src = soft_memory(SIZE, 5);
	cr_expect_eq(soft_launch(NULL, dst, src, SIZE), CUDA_SUCCESS);
	expect_ok(cuStreamSynchronize(NULL));
	cr_expect(soft_is(dst, SIZE, 5));
	expect_ok(cuMemFree(dst));
	expect_ok(cuMemFree(src));
}
