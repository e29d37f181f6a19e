/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the choice of a GPU, and what every failure on the way leaves behind. */

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "kernels/cuda/driver/driver.h"
#include "soft.h"
#include "tests/softgpu/live.h"

struct choice_row {
	char name[40];
	char devices[4];
	char capability[16];
	char which[48]; /* "": none is named */
	int status;
	int ordinal;
	char says[2][80]; /* parts of the message */
};

ParameterizedTestParameters(device, choice)
{
	static struct choice_row rows[] = {
		{ .name = "the only one", .devices = "1" },
		{ .name = "the first", .devices = "3" },
		{ .name = "the first new enough",
		  .devices = "3",
		  .capability = "8.0,8.9,10.0",
		  .ordinal = 2 },
		{ .name = "none new enough",
		  .devices = "2",
		  .capability = "8.0,8.9",
		  .status = STATUS_UNSUPPORTED,
		  .says = { "device 0 (softgpu) has compute capability 8.0", "needs 9.0 or newer" } },
		{ .name = "an ordinal", .devices = "3", .which = "1", .ordinal = 1 },
		{ .name = "the last ordinal", .devices = "3", .which = "2", .ordinal = 2 },
		{ .name = "an ordinal with zeros", .devices = "3", .which = "002", .ordinal = 2 },
		{ .name = "an ordinal past the end",
		  .devices = "3",
		  .which = "3",
		  .status = STATUS_NOT_FOUND,
		  .says = { "device 3: there are 3, numbered from 0" } },
		{ .name = "past the end of one",
		  .devices = "1",
		  .which = "1",
		  .status = STATUS_NOT_FOUND,
		  .says = { "device 1: there is 1, numbered from 0" } },
		{ .name = "a very large ordinal",
		  .devices = "1",
		  .which = "99999999999999999999999",
		  .status = STATUS_NOT_FOUND,
		  .says = { "device 99999999999999999999999: there is 1" } },
		{ .name = "an ordinal too old",
		  .devices = "2",
		  .capability = "9.0,8.6",
		  .which = "1",
		  .status = STATUS_UNSUPPORTED,
		  .says = { "device 1 (softgpu) has compute capability 8.6" } },
		{ .name = "a negative ordinal",
		  .devices = "1",
		  .which = "-1",
		  .status = STATUS_NOT_FOUND,
		  .says = { "device -1: no GPU has that UUID" } },
		{ .name = "a UUID",
		  .devices = "3",
		  .which = "GPU-50f79001-0000-4000-8000-000000000000",
		  .ordinal = 1 },
		{ .name = "a UUID without prefix",
		  .devices = "3",
		  .which = "50f79001-0000-4000-8000-000000000000",
		  .ordinal = 1 },
		{ .name = "a UUID in capitals",
		  .devices = "3",
		  .which = "gpu-50F79002-0000-4000-8000-000000000000",
		  .ordinal = 2 },
		{ .name = "the start of a UUID", .devices = "3", .which = "GPU-50f79002", .ordinal = 2 },
		{ .name = "the start without prefix", .devices = "3", .which = "50f79002", .ordinal = 2 },
		{ .name = "the start of one UUID alone", .devices = "1", .which = "GPU-5", .ordinal = 0 },
		{ .name = "the start of several",
		  .devices = "3",
		  .which = "GPU-50f7",
		  .status = STATUS_INVALID_ARGUMENT,
		  .says = { "device GPU-50f7: ambiguous, both GPU-50f79000-", "and GPU-50f79001-" } },
		{ .name = "a UUID too old",
		  .devices = "2",
		  .capability = "9.0,8.6",
		  .which = "GPU-50f79001",
		  .status = STATUS_UNSUPPORTED,
		  .says = { "device 1 (softgpu) has compute capability 8.6" } },
		{ .name = "a UUID too long",
		  .devices = "1",
		  .which = "GPU-50f79000-0000-4000-8000-0000000000000",
		  .status = STATUS_NOT_FOUND,
		  .says = { "no GPU has that UUID; nvidia-smi -L lists them" } },
		{ .name = "a prefix alone",
		  .devices = "1",
		  .which = "GPU-",
		  .status = STATUS_NOT_FOUND,
		  .says = { "device GPU-: no GPU has that UUID" } },
		{ .name = "a name",
		  .devices = "1",
		  .which = "softgpu",
		  .status = STATUS_NOT_FOUND,
		  .says = { "device softgpu: no GPU has that UUID" } },
	};
	return cr_make_param_array(struct choice_row, rows, sizeof rows / sizeof *rows);
}

static void expect_nothing_left(const char *name)
{
	char text[1024];
	size_t n = softgpu_live(text, sizeof text);
	cr_expect_eq(n, 0, "%s: there is still\n%s", name, text);
}

ParameterizedTest(struct choice_row *row, device, choice)
{
	struct device device;
	struct error err;
	setenv("SOFTGPU_DEVICES", row->devices, 1);
	if (*row->capability)
		setenv("SOFTGPU_CAPABILITY", row->capability, 1);
	int r = device_open(&device, *row->which ? row->which : NULL, &err);
	cr_assert_eq(r, row->status, "%s: %s %s", row->name, status_name(r), r < 0 ? err.message : "");
	if (r == 0) {
		cr_expect_eq(device.ordinal, row->ordinal, "%s: %d", row->name, device.ordinal);
		device_close(&device);
	}
	for (int i = 0; r < 0 && i < 2; i++)
		cr_expect(strstr(err.message, row->says[i]), "%s: %s", row->name, err.message);
	expect_nothing_left(row->name);
}

Test(device, facts)
{
	struct device device;
	struct error err;
	cr_assert_eq(device_open(&device, NULL, &err), 0, "%s", err.message);
	cr_expect_str_eq(device.name, "softgpu");
	cr_expect_str_eq(device.uuid, "GPU-50f79000-0000-4000-8000-000000000000");
	cr_expect_eq(device.major, 9);
	cr_expect_eq(device.minor, 0);
	cr_expect_eq(device.processors, 2);
	cr_expect_eq(device.l2_bytes, 8 << 20);
	cr_expect_eq(device.memory_bytes, 1 << 30);
	cr_expect_float_eq(device.copy.bytes_per_ns, copy_speed_of(1000000, 64).bytes_per_ns, 1e-9);
	cr_expect_gt(device.copy.bytes_per_ns, 0);
	cr_expect_eq(device.shared_bytes, 227 * 1024);
	cr_expect_eq(device.driver_version, 13000);
	for (int i = 0; i < KERNEL_COUNT; i++) {
		int blocks = 0;
		cr_expect_eq(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, device.function[i],
		                                                                32, device.shared_bytes),
		             CUDA_SUCCESS);
		cr_expect_eq(blocks, 1, "kernel %d may not have all of the shared memory", i);
	}
	device_close(&device);
	expect_nothing_left("facts");
}

/* ---- Other threads ------------------------------------------------------------------------------------ */

struct visit {
	struct device *device;
	CUresult before;
	CUresult after;
	int entered;
};

static void *visit(void *arg)
{
	struct visit *v = arg;
	struct error err;
	size_t n;
	v->before = driver.cuMemGetInfo(&n, &n);
	v->entered = device_enter(v->device, &err);
	v->after = driver.cuMemGetInfo(&n, &n);
	return NULL;
}

Test(device, another_thread_enters)
{
	struct device device;
	struct visit v = { .device = &device };
	struct error err;
	pthread_t thread;
	cr_assert_eq(device_open(&device, NULL, &err), 0, "%s", err.message);
	pthread_create(&thread, NULL, visit, &v);
	pthread_join(thread, NULL);
	cr_expect_eq(v.before, CUDA_ERROR_INVALID_CONTEXT);
	cr_expect_eq(v.entered, 0);
	cr_expect_eq(v.after, CUDA_SUCCESS);
	device_close(&device);
}

Test(device, closes_what_was_never_open)
{
	struct device device = { 0 };
	device_close(&device);
}

/* ---- The Nth call fails -------------------------------------------------------------------------------- */

#define MOST_CALLS 500

struct fail_row {
	char name[40];
	CUresult result;
	int status; /* status of most calls that fail so */
};

ParameterizedTestParameters(device, each_call_fails)
{
	static struct fail_row rows[] = {
		{ .name = "out of memory", .result = CUDA_ERROR_OUT_OF_MEMORY, .status = STATUS_NO_MEMORY },
		{ .name = "not supported", .result = CUDA_ERROR_NOT_SUPPORTED, .status = STATUS_UNSUPPORTED },
		{ .name = "invalid value",
		  .result = CUDA_ERROR_INVALID_VALUE,
		  .status = STATUS_INVALID_ARGUMENT },
		{ .name = "a result without a name", .result = 916, .status = STATUS_DEVICE },
	};
	return cr_make_param_array(struct fail_row, rows, sizeof rows / sizeof *rows);
}

/* Opens the device with call n of the driver failing. Returns false if opening makes fewer calls; the first
 * call that closes the device then fails. */
static bool open_failing(const struct fail_row *row, int n)
{
	struct device device;
	struct error err = { .message = "" };
	char text[16];
	snprintf(text, sizeof text, "%d", n);
	setenv("SOFTGPU_FAIL", text, 1);
	int r = device_open(&device, "GPU-50f79001", &err);
	if (r == 0) {
		device_close(&device);
	} else {
		cr_expect_eq(r, row->status, "%s: call %d: %s %s", row->name, n, status_name(r), err.message);
		cr_expect_eq(err.status, r, "%s: call %d", row->name, n);
		cr_expect(strncmp(err.message, "cu", 2) == 0 && strchr(err.message, '('), "%s: call %d: %s",
		          row->name, n, err.message);
		expect_nothing_left(row->name);
	}
	driver_close();
	return r < 0;
}

ParameterizedTest(struct fail_row *row, device, each_call_fails)
{
	char text[16];
	int n = 1;
	snprintf(text, sizeof text, "%d", (int)row->result);
	setenv("SOFTGPU_FAIL_WITH", text, 1);
	setenv("SOFTGPU_DEVICES", "2", 1);
	while (n < MOST_CALLS && open_failing(row, n))
		n++;
	cr_expect_gt(n, 2 * KERNEL_COUNT, "%s: only %d calls", row->name, n);
	cr_expect_lt(n, MOST_CALLS, "%s: it never opened", row->name);
}

/* A process cannot get a lost context back, so each call is tried in a process of its own. */
Test(device, each_call_loses_the_context)
{
	char environment[64], text[512];
	int n = 0, r;
	do {
		snprintf(environment, sizeof environment, "SOFTGPU_FAIL_WITH=700 SOFTGPU_FAIL=%d", ++n);
		r = soft_child(text, sizeof text, environment, "open_device");
		cr_expect_eq(r, 0, "call %d: the child crashed: %s", n, text);
		if (strncmp(text, "OK", 2) != 0)
			cr_expect(strncmp(text, "DEVICE_LOST: cu", 15) == 0, "call %d: %s", n, text);
	} while (n < MOST_CALLS && r == 0 && strncmp(text, "OK", 2) != 0);
	cr_expect_gt(n, 2 * KERNEL_COUNT, "only %d calls", n);
	cr_expect_lt(n, MOST_CALLS, "it never opened");
}
