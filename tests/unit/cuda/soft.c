/* SPDX-License-Identifier: Apache-2.0 */
#include "soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "kernels/cuda/device/args.h"
#include "tests/softgpu/live.h"

#define THREADS 32
#define SHARED  (64 << 10)

struct device soft;

void soft_set(const char *variable)
{
	char name[128];
	if (!*variable)
		return;
	size_t n = strcspn(variable, "=");
	cr_assert(variable[n] == '=' && n < sizeof name);
	memcpy(name, variable, n);
	name[n] = '\0';
	setenv(name, variable + n + 1, 1);
}

void soft_open(void)
{
	struct error err;
	cr_assert_eq(device_open(&soft, NULL, &err), 0, "%s", err.message);
}

void soft_close(void)
{
	char text[1024];
	device_close(&soft);
	cr_expect_eq(softgpu_live(text, sizeof text), 0, "there is still\n%s", text);
	driver_close();
}

void soft_expect(CUresult result, CUresult wanted, const char *call, int line)
{
	cr_expect_eq(result, wanted, "line %d: %s is %d, not %d", line, call, (int)result, (int)wanted);
}

CUdeviceptr soft_memory(size_t size, unsigned char value)
{
	CUdeviceptr address = 0;
	expect_ok(cuMemAlloc(&address, size));
	expect_ok(cuMemsetD8Async(address, value, size, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	return address;
}

CUstream soft_stream(void)
{
	CUstream stream = NULL;
	expect_ok(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	return stream;
}

CUevent soft_event(void)
{
	CUevent event = NULL;
	expect_ok(cuEventCreate(&event, CU_EVENT_DEFAULT));
	return event;
}

CUresult soft_launch(CUstream stream, CUdeviceptr dst, CUdeviceptr src, size_t size)
{
	struct bulk_copy_args args = {
		.dst = dst,
		.src = src,
		.run = size,
		.chunk = 4096,
	};
	CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = SHARED,
		.hStream = stream,
	};
	void *params[] = { &args };
	args.chunks = (uint32_t)((size + args.chunk - 1) / args.chunk);
	args.tiles = args.chunks;
	return driver.cuLaunchKernelEx(&config, soft.function[KERNEL_bulk_copy], params, NULL);
}

bool soft_is(CUdeviceptr address, size_t size, unsigned char value)
{
	unsigned char *bytes = malloc(size);
	bool same = true;
	cr_assert(bytes);
	expect_ok(cuMemcpyDtoHAsync(bytes, address, size, NULL));
	expect_ok(cuStreamSynchronize(NULL));
	for (size_t i = 0; i < size && same; i++)
		same = bytes[i] == value;
	free(bytes);
	return same;
}

int soft_child(char *ret, size_t size, const char *environment, const char *command)
{
	const char *directory = getenv("TEST_BUILDDIR");
	char line[1200];
	if (!directory)
		directory = ".";
	snprintf(line, sizeof line,
	         "env LD_LIBRARY_PATH='%s/tests/softgpu/lib' %s '%s'/tests/unit/cuda/%s 2>&1", directory,
	         environment, directory, command);
	FILE *child = popen(line, "r");
	cr_assert(child);
	ret[fread(ret, 1, size - 1, child)] = '\0';
	return pclose(child);
}
