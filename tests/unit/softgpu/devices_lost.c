/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a lost device: all calls for it fail, whichever context is current. Other devices go on, and a new
 * process can use the lost one again. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices.h"
#include "tests/softgpu/live.h"

#define SIZE    4096
#define DEVICES 3
#define LOST    1 /* ordinal of the device that is lost */

TestSuite(devices_lost, .timeout = 60);

static char lose_path[64];

/* Removes the file of a process that was killed, because pids are reused. */
static void name_file(void)
{
	snprintf(lose_path, sizeof lose_path, "/tmp/softgpu-lose-%d", (int)getpid());
	unlink(lose_path);
	setenv("SOFTGPU_LOSE", lose_path, 1);
}

static void write_line(const char *line)
{
	FILE *file = fopen(lose_path, "w");

	cr_assert(file);
	fputs(line, file);
	fclose(file);
}

enum cause { CAUSE_TEST, CAUSE_FILE, CAUSE_FILE_ALONE, CAUSE_LAUNCH, CAUSE_CALL, CAUSE_ADDRESS };

struct lost_row {
	char name[32];
	enum cause cause;
	char variable[40];
	char variable_too[40];
	CUresult result;
};

ParameterizedTestParameters(devices_lost, one)
{
	static struct lost_row rows[] = {
		{ "the test says so", CAUSE_TEST, "", "", CUDA_ERROR_ECC_UNCORRECTABLE },
		{ "a file says so", CAUSE_FILE, "", "", CUDA_ERROR_UNKNOWN },
		{ "a file, not why", CAUSE_FILE_ALONE, "", "", CUDA_ERROR_LAUNCH_FAILED },
		{ "its second launch", CAUSE_LAUNCH, "SOFTGPU_FAULT=2", "SOFTGPU_FAULT_DEVICE=1",
		  CUDA_ERROR_ILLEGAL_ADDRESS },
		{ "a call", CAUSE_CALL, "SOFTGPU_FAIL_CALL=cuEventCreate", "SOFTGPU_FAIL_WITH=719",
		  CUDA_ERROR_LAUNCH_FAILED },
		{ "an address", CAUSE_ADDRESS, "", "", CUDA_ERROR_ILLEGAL_ADDRESS },
	};

	return cr_make_param_array(struct lost_row, rows, sizeof rows / sizeof *rows);
}

static void lose(const struct lost_row *row, CUdeviceptr memory, CUdeviceptr elsewhere)
{
	CUevent event;

	switch (row->cause) {
	case CAUSE_TEST:
		softgpu_lose(LOST, CUDA_ERROR_ECC_UNCORRECTABLE);
		break;
	case CAUSE_FILE:
		write_line("1 999\n");
		break;
	case CAUSE_FILE_ALONE:
		write_line("1\n");
		break;
	case CAUSE_LAUNCH:
		expect_ok(touch(0, TOUCH_READ, elsewhere, 0));
		expect_ok(touch(0, TOUCH_READ, elsewhere, 0));
		expect_ok(touch(LOST, TOUCH_READ, memory, 0));
		expect_result(touch(LOST, TOUCH_READ, memory, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
		break;
	case CAUSE_CALL:
		use(LOST);
		expect_result(cuEventCreate(&event, 0), CUDA_ERROR_LAUNCH_FAILED);
		break;
	case CAUSE_ADDRESS:
		expect_result(touch(LOST, TOUCH_WRITE, elsewhere, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
		break;
	}
}

/* Expects every call on the lost device's objects to fail, with its own context current and with another. */
static void expect_lost(const char *name, CUresult result, CUdeviceptr memory, CUdeviceptr elsewhere,
                        CUstream stream, CUevent event)
{
	const CUmemAllocationProp by_hand = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		                              .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE,
		                                            .id = LOST } };
	const CUmemPoolProps pooled = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                        .location = by_hand.location };
	CUmemGenericAllocationHandle handle;
	CUmemoryPool pool;
	CUdeviceptr other;
	CUcontext again;
	CUstream new_one;
	size_t n;
	int value;

	cr_expect_eq(cuCtxSetCurrent(context[LOST]), result, "%s", name);
	expect_result(cuMemGetInfo(&n, &n), result);
	expect_result(cuMemAlloc(&other, 1), result);
	expect_result(cuStreamCreateWithPriority(&new_one, 0, 0), result);
	expect_result(cuMemsetD8Async(memory, 0, 1, NULL), result);
	expect_result(cuStreamSynchronize(NULL), result);
	expect_result(cuCtxSynchronize(), result);
	expect_result(cuCtxEnablePeerAccess(context[0], 0), result);
	expect_result(cuDevicePrimaryCtxRetain(&again, LOST), result);
	expect_result(cuDevicePrimaryCtxRelease(LOST), result);
	expect_ok(cuDeviceGetCount(&value));
	expect_ok(cuDeviceTotalMem(&n, LOST));

	use(0);
	expect_result(cuDevicePrimaryCtxRetain(&again, LOST), result);
	expect_result(cuMemFree(memory), result);
	expect_result(cuMemCreate(&handle, GRANULARITY, &by_hand, 0), result);
	expect_result(cuMemPoolCreate(&pool, &pooled), result);
	expect_result(cuMemcpyDtoDAsync(elsewhere, memory, SIZE, NULL), result);
	expect_result(cuMemcpyDtoDAsync(memory, elsewhere, SIZE, NULL), result);
	expect_result(cuMemcpyPeerAsync(elsewhere, context[0], memory, context[LOST], SIZE, NULL), result);
	expect_result(cuMemsetD8Async(elsewhere, 0, SIZE, stream), result);
	expect_result(cuStreamSynchronize(stream), result);
	expect_result(cuStreamDestroy(stream), result);
	expect_result(cuEventQuery(event), result);
	expect_result(cuEventRecord(event, stream), result);
	expect_result(cuStreamWaitEvent(NULL, event, 0), result);
	expect_result(cuCtxEnablePeerAccess(context[LOST], 0), result);
}

static void expect_well(const char *name, int device)
{
	CUdeviceptr memory = memory_of(device, TOUCH_BYTES, 5), more = memory_of(device, TOUCH_BYTES, 6);

	cr_expect_eq(touch(device, TOUCH_BULK_LOAD, more, memory), CUDA_SUCCESS, "%s: device %d", name,
	             device);
	cr_expect(memory_is(memory, TOUCH_BYTES, 6), "%s: device %d", name, device);
	expect_ok(cuMemFree(memory));
	expect_ok(cuMemFree(more));
}

ParameterizedTest(struct lost_row *row, devices_lost, one)
{
	name_file();
	devices_set(row->variable);
	devices_set(row->variable_too);
	unsetenv("SOFTGPU_FAIL_CALL"); /* is set again when everything has been made */
	devices_open(DEVICES);
	CUdeviceptr elsewhere = memory_of(0, TOUCH_BYTES, 1), memory = memory_of(LOST, TOUCH_BYTES, 2);
	CUstream stream = new_stream();
	CUevent event = new_event();
	devices_set(row->variable);
	expect_ok(cuInit(0));

	lose(row, memory, elsewhere);
	expect_lost(row->name, row->result, memory, elsewhere, stream, event);
	cr_expect_neq(access(lose_path, F_OK), 0, "%s: the file is still there", row->name);
	for (int i = 0; i < DEVICES; i++)
		if (i != LOST)
			expect_well(row->name, i);
	use(2);
	expect_ok(cuMemcpyDtoDAsync(elsewhere, elsewhere + 8, 8, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	expect_ok(cuDevicePrimaryCtxRelease(0));
	expect_ok(cuDevicePrimaryCtxRelease(2));
}

/* A call that waits learns of the loss, too. A line without its newline is left in the file. */
Test(devices_lost, while_a_call_waits)
{
	int status;
	pid_t child;

	name_file();
	devices_open(DEVICES);
	CUdeviceptr word = memory_of(LOST, 8, 0);
	CUstream stream = new_stream();
	expect_ok(cuStreamWaitValue64(stream, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	write_line("1 21");
	expect_ok(cuStreamSynchronize(NULL));
	cr_expect_eq(access(lose_path, F_OK), 0);
	child = fork();
	if (child == 0) {
		usleep(50000);
		write_line("1 214\n");
		_exit(0);
	}
	expect_result(cuStreamSynchronize(stream), CUDA_ERROR_ECC_UNCORRECTABLE);
	expect_well("waited", 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
}

/* A stream of another device that waits for an event of a lost device waits for ever, and everything else on
 * its device goes on. */
Test(devices_lost, an_event_that_never_comes)
{
	devices_open(DEVICES);
	CUdeviceptr word = memory_of(LOST, 8, 0), memory = memory_of(0, SIZE, 1);
	CUstream waits = new_stream();
	CUevent done = new_event();
	use(LOST);
	CUevent event = new_event();
	expect_ok(cuStreamWaitValue64(NULL, word, 1, CU_STREAM_WAIT_VALUE_GEQ));
	expect_ok(cuEventRecord(event, NULL));
	use(0);
	expect_ok(cuStreamWaitEvent(waits, event, 0));
	expect_ok(cuMemsetD8Async(memory, 2, SIZE, waits));
	expect_ok(cuEventRecord(done, waits));
	softgpu_lose(LOST, CUDA_ERROR_LAUNCH_FAILED);
	cr_expect(memory_is(memory, SIZE, 1));
	expect_ok(cuStreamSynchronize(NULL));
	expect_result(cuEventQuery(done), CUDA_ERROR_NOT_READY);
	expect_result(cuEventQuery(event), CUDA_ERROR_LAUNCH_FAILED);
}

/* The test has a second process, started before the device is lost, that goes on after the loss. */
Test(devices_lost, a_new_process_has_it)
{
	int go[2], status;
	char byte = 0;
	pid_t child;

	cr_assert_eq(pipe(go), 0);
	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0) {
		close(go[1]);
		if (read(go[0], &byte, 1) != 1)
			_exit(2);
		devices_open(DEVICES);
		_exit(touch(LOST, TOUCH_READ, memory_of(LOST, TOUCH_BYTES, 1), 0) != CUDA_SUCCESS);
	}
	name_file();
	devices_open(DEVICES);
	write_line("1\n");
	expect_result(cuDevicePrimaryCtxRetain(&context[LOST], LOST), CUDA_ERROR_LAUNCH_FAILED);
	cr_assert_eq(write(go[1], &byte, 1), 1);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_expect_eq(status, 0);
}
