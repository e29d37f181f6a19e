/* SPDX-License-Identifier: Apache-2.0 */
/* Tests copies between devices: the driver copies memory of any context, whether peers may access it or
 * not. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <string.h>

#include "devices.h"

#define DEVICES 4
#define SIZE    20011

enum call { CALL_PEER, CALL_DEVICE, CALL_EITHER };

struct copy_row {
	char name[32];
	enum call call;
	bool peers; /* all devices have peer access to each other */
	char links[24];
};

TestSuite(devices_copy, .timeout = 60);

static void enable_all(void)
{
	for (int a = 0; a < DEVICES; a++) {
		use(a);
		for (int b = 0; b < DEVICES; b++)
			if (a != b)
				expect_ok(cuCtxEnablePeerAccess(context[b], 0));
	}
}

static CUresult copy(enum call call, CUdeviceptr dst, int to, CUdeviceptr src, int from, size_t size,
                     CUstream stream)
{
	switch (call) {
	case CALL_PEER:
		return cuMemcpyPeerAsync(dst, context[to], src, context[from], size, stream);
	case CALL_DEVICE:
		return cuMemcpyDtoDAsync(dst, src, size, stream);
	default:
		return cuMemcpyAsync(dst, src, size, stream);
	}
}

static void fill(unsigned char *bytes, unsigned seed)
{
	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (unsigned char)(rand_r(&seed) >> 8);
}

ParameterizedTestParameters(devices_copy, pairs)
{
	static struct copy_row rows[] = {
		{ "peer", CALL_PEER, false, "" },
		{ "peer, allowed", CALL_PEER, true, "" },
		{ "peer, no links", CALL_PEER, false, "SOFTGPU_LINKS=all:none" },
		{ "device", CALL_DEVICE, false, "" },
		{ "device, allowed", CALL_DEVICE, true, "" },
		{ "device, no links", CALL_DEVICE, false, "SOFTGPU_LINKS=all:none" },
		{ "either", CALL_EITHER, false, "" },
		{ "either, allowed", CALL_EITHER, true, "" },
	};

	return cr_make_param_array(struct copy_row, rows, sizeof rows / sizeof *rows);
}

/* Copies random bytes at odd offsets between every pair of devices, in a stream of every device, with one
 * context current. */
ParameterizedTest(struct copy_row *row, devices_copy, pairs)
{
	unsigned char wanted[SIZE], got[SIZE];
	CUdeviceptr memory[DEVICES];
	CUstream stream[DEVICES];
	unsigned seed = 1;

	devices_set(row->links);
	devices_open(DEVICES);
	if (row->peers)
		enable_all();
	for (int i = 0; i < DEVICES; i++) {
		memory[i] = memory_of(i, 2 * SIZE, 0);
		stream[i] = new_stream();
	}
	for (int i = 0; i < DEVICES * DEVICES * DEVICES; i++) {
		const int to = i % DEVICES, from = i / DEVICES % DEVICES, by = i / DEVICES / DEVICES;
		const CUdeviceptr dst = memory[to] + 3, src = memory[from] + SIZE;

		fill(wanted, seed++);
		use((to + 1) % DEVICES);
		expect_ok(cuMemcpyHtoDAsync(src, wanted, SIZE, stream[by]));
		cr_assert_eq(copy(row->call, dst, to, src, from, SIZE - 3, stream[by]), CUDA_SUCCESS,
		             "%s: %d to %d by %d", row->name, from, to, by);
		expect_ok(cuMemcpyDtoHAsync(got, dst, SIZE - 3, stream[by]));
		cr_assert_arr_eq(got, wanted, SIZE - 3, "%s: %d to %d by %d", row->name, from, to, by);
	}
	for (int i = 0; i < DEVICES; i++) {
		expect_ok(cuStreamDestroy(stream[i]));
		expect_ok(cuMemFree(memory[i]));
	}
	devices_close();
}

Test(devices_copy, what_is_refused)
{
	static unsigned char host[SIZE];

	devices_open(2);
	CUdeviceptr dst = memory_of(0, SIZE, 1), src = memory_of(1, SIZE, 2);
	expect_result(cuMemcpyPeerAsync(dst, NULL, src, context[1], SIZE, NULL), CUDA_ERROR_INVALID_CONTEXT);
	expect_result(cuMemcpyPeerAsync(dst, context[0], src, (CUcontext)host, SIZE, NULL),
	              CUDA_ERROR_INVALID_CONTEXT);
	expect_result(cuMemcpyPeerAsync(dst, context[0], (CUdeviceptr)host, context[1], SIZE, NULL),
	              CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemcpyPeerAsync(dst, context[0], src, context[1], SIZE + 1, NULL),
	              CUDA_ERROR_INVALID_VALUE);
	/* Device 0 has no access to src. */
	expect_result(cuMemcpyPeerAsync(dst, context[0], src, context[0], SIZE, NULL),
	              CUDA_ERROR_INVALID_VALUE);
	expect_result(cuMemcpyPeerAsync(dst, context[0], src, context[1], SIZE, (CUstream)host),
	              CUDA_ERROR_INVALID_HANDLE);
	expect_ok(cuMemcpyPeerAsync(dst, context[0], src, context[1], 0, NULL));
	expect_ok(cuCtxSynchronize());
	cr_expect(memory_is(dst, SIZE, 1));
	expect_ok(cuMemFree(dst));
	expect_ok(cuMemFree(src));
	devices_close();
}

/* Mapped memory has no context that the driver could use instead of the stream's. The stream's device needs
 * access, or the call has to name the context. */
Test(devices_copy, mapped_memory)
{
	const CUmemAccessDesc own = access_of(1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
			      other = access_of(0, CU_MEM_ACCESS_FLAGS_PROT_READ);

	devices_open(2);
	CUdeviceptr dst = memory_of(0, SIZE, 1);
	struct mapped src = map_of(1);
	use(1);
	expect_ok(cuMemSetAccess(src.address, GRANULARITY, &own, 1));
	expect_ok(cuMemsetD8Async(src.address, 2, SIZE, NULL));
	expect_ok(cuCtxSynchronize());
	use(0);
	expect_result(cuMemcpyDtoDAsync(dst, src.address, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemcpyPeerAsync(dst, context[0], src.address, context[1], SIZE, NULL));
	cr_expect(memory_is(dst, SIZE, 2));
	expect_ok(cuMemsetD8Async(dst, 3, SIZE, NULL));
	expect_ok(cuMemSetAccess(src.address, GRANULARITY, &other, 1));
	expect_ok(cuMemcpyDtoDAsync(dst, src.address, SIZE, NULL));
	cr_expect(memory_is(dst, SIZE, 2));
	expect_result(cuMemcpyDtoDAsync(src.address, dst, SIZE, NULL), CUDA_ERROR_INVALID_VALUE);
	unmap(&src);
	expect_ok(cuMemFree(dst));
	devices_close();
}

/* Memory that has been freed exists until the copies that use it are done, in any device's stream. */
Test(devices_copy, memory_waits_for_its_copies)
{
	devices_set("SOFTGPU_COPY_US=100000");
	devices_open(3);
	CUdeviceptr dst = memory_of(1, SIZE, 1), src = memory_of(2, SIZE, 2);
	use(0);
	CUevent copied = new_event();
	expect_ok(cuMemcpyDtoDAsync(dst, src, SIZE, NULL));
	expect_ok(cuEventRecord(copied, NULL));
	expect_result(cuEventQuery(copied), CUDA_ERROR_NOT_READY);
	expect_ok(cuMemFree(src));
	expect_ok(cuStreamSynchronize(NULL));
	expect_ok(cuEventQuery(copied));
	cr_expect(memory_is(dst, SIZE, 2));
	expect_ok(cuEventDestroy(copied));
	expect_ok(cuMemFree(dst));
	devices_close();
}
