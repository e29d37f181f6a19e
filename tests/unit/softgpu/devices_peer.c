/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which devices are linked, which access they can be given, and that a kernel that accesses memory
 * without permission loses only its own device. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "devices.h"

TestSuite(devices_peer, .timeout = 60);

/* ---- Links ----------------------------------------------------------------------------------------------
 */

struct links_row {
	char links[40]; /* of 4 devices, as SOFTGPU_LINKS has it */
	/* y or n for each of the pairs 0-1, 0-2, 0-3, 1-2, 1-3, 2-3; "" if the text of links is invalid. */
	char access[8];
	char ranks[8];
	char atomics[8];
	char capability[40];
};

ParameterizedTestParameters(devices_peer, links)
{
	static struct links_row rows[] = {
		{ "", "yyyyyy", "000000", "yyyyyy", "" },
		{ "0-1:18,2-3:6,0-2:none", "ynyyyy", "020001", "ynyyyy", "" },
		{ "all:none,1-0:18,2-3:4", "ynnnny", "022221", "ynnnny", "" },
		{ "all:pcie", "yyyyyy", "000000", "nnnnnn", "" },
		{ "all:pcie,0-3:1,1-2:none", "yyynyy", "110211", "nnynnn", "" },
		{ "", "ynnnny", "000000", "ynnnny", "SOFTGPU_CAPABILITY=9.0,9.0,10.0" },
		{ "0-1", "", "", "", "" },
		{ "0-1:", "", "", "", "" },
		{ "0-1:0", "", "", "", "" },
		{ "0-1:19", "", "", "", "" },
		{ "0-1:18x", "", "", "", "" },
		{ "0-1:fast", "", "", "", "" },
		{ "0:18", "", "", "", "" },
		{ "a-b:18", "", "", "", "" },
		{ "0-:18", "", "", "", "" },
		{ "0-0:18", "", "", "", "" },
		{ "0-4:18", "", "", "", "" },
		{ "-1-2:18", "", "", "", "" },
		{ "0-1:18,", "", "", "", "" },
		{ ",0-1:18", "", "", "", "" },
		{ "0-1:18,1-0:6", "", "", "", "" },
		{ "0-1:18,all:6", "", "", "", "" },
		{ "all", "", "", "", "" },
	};

	return cr_make_param_array(struct links_row, rows, sizeof rows / sizeof *rows);
}

static void expect_pair(const struct links_row *row, int pair, int a, int b)
{
	const bool access = row->access[pair] == 'y';
	int value = -1;

	expect_ok(cuDeviceCanAccessPeer(&value, a, b));
	cr_expect_eq(value, access, "%s: %d-%d", row->links, a, b);
	expect_ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, a, b));
	cr_expect_eq(value, access, "%s: %d-%d", row->links, a, b);
	expect_ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, a, b));
	cr_expect_eq(value, row->ranks[pair] - '0', "%s: %d-%d: rank %d", row->links, a, b, value);
	expect_ok(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, a, b));
	cr_expect_eq(value, row->atomics[pair] == 'y', "%s: %d-%d", row->links, a, b);
}

ParameterizedTest(struct links_row *row, devices_peer, links)
{
	int pair = 0;

	setenv("SOFTGPU_DEVICES", "4", 1);
	setenv("SOFTGPU_LINKS", row->links, 1);
	devices_set(row->capability);
	cr_assert_eq(cuInit(0), *row->access ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, "%s", row->links);
	for (int a = 0; a < 4 && *row->access; a++)
		for (int b = a + 1; b < 4; b++, pair++) {
			expect_pair(row, pair, a, b);
			expect_pair(row, pair, b, a);
		}
}

Test(devices_peer, questions_that_have_no_answer)
{
	int value;

	devices_open(2);
	expect_ok(cuDeviceCanAccessPeer(&value, 1, 1));
	cr_expect_eq(value, 0);
	expect_result(cuDeviceCanAccessPeer(&value, 0, 2), CUDA_ERROR_INVALID_DEVICE);
	expect_result(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 2),
	              CUDA_ERROR_INVALID_DEVICE);
	expect_result(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1, 1),
	              CUDA_ERROR_INVALID_DEVICE);
	expect_result(cuDeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)99, 0, 1),
	              CUDA_ERROR_INVALID_VALUE);
	devices_close();
}

Test(devices_peer, what_is_allowed)
{
	CUdeviceptr memory;
	CUmemAccessDesc access = access_of(2, CU_MEM_ACCESS_FLAGS_PROT_READ);

	devices_set("SOFTGPU_LINKS=0-2:none");
	devices_open(3);
	expect_result(cuCtxEnablePeerAccess(context[0], 0), CUDA_ERROR_INVALID_CONTEXT);
	expect_result(cuCtxEnablePeerAccess(NULL, 0), CUDA_ERROR_INVALID_CONTEXT);
	expect_result(cuCtxEnablePeerAccess(context[1], 1), CUDA_ERROR_INVALID_VALUE);
	expect_result(cuCtxEnablePeerAccess(context[2], 0), CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	expect_result(cuCtxDisablePeerAccess(context[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	expect_ok(cuCtxEnablePeerAccess(context[1], 0));
	expect_result(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);

	/* Access is given in one direction, until it is disabled. */
	memory = memory_of(1, TOUCH_BYTES, 3);
	cr_expect_eq(touch(0, TOUCH_READ, memory, 0), CUDA_SUCCESS);
	expect_ok(cuCtxDisablePeerAccess(context[1]));
	expect_result(cuMemsetD8Async(memory, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(memory));
	memory = memory_of(0, TOUCH_BYTES, 3);
	use(1);
	expect_result(cuMemsetD8Async(memory, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	expect_ok(cuMemFree(memory));

	/* Access to mapped memory cannot be given, either. */
	struct mapped mapped = map_of(0);
	expect_result(cuMemSetAccess(mapped.address, GRANULARITY, &access, 1), CUDA_ERROR_INVALID_DEVICE);
	unmap(&mapped);
	devices_close();
}

/* Access between two contexts ends with either of them. */
Test(devices_peer, a_context_that_is_gone)
{
	devices_open(3);
	expect_ok(cuCtxEnablePeerAccess(context[1], 0));
	expect_ok(cuDevicePrimaryCtxRetain(&context[1], 1));
	expect_ok(cuDevicePrimaryCtxRelease(1));
	expect_result(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	expect_ok(cuDevicePrimaryCtxRelease(1));
	expect_result(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_INVALID_CONTEXT);
	expect_ok(cuDevicePrimaryCtxRetain(&context[1], 1));
	expect_ok(cuCtxEnablePeerAccess(context[1], 0));
	expect_ok(cuDevicePrimaryCtxRelease(0));
	expect_ok(cuDevicePrimaryCtxRetain(&context[0], 0));
	expect_ok(cuCtxEnablePeerAccess(context[1], 0));
	devices_close();
}

/* ---- Kernels --------------------------------------------------------------------------------------------
 */

struct touch_row {
	enum touch touch;
	bool allowed;
};

ParameterizedTestParameters(devices_peer, kernels)
{
	static struct touch_row rows[2 * TOUCHES];

	for (int i = 0; i < 2 * TOUCHES; i++)
		rows[i] = (struct touch_row){ (enum touch)(i / 2), i % 2 };
	return cr_make_param_array(struct touch_row, rows, sizeof rows / sizeof *rows);
}

/* Device 1 accesses memory of device 0. Every kind of access is checked, and one without permission loses
 * device 1. */
ParameterizedTest(struct touch_row *row, devices_peer, kernels)
{
	const char *name = touch_names[row->touch];
	const CUresult wanted = row->allowed ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
	CUdeviceptr there, own, more;
	size_t n;

	devices_open(3);
	there = memory_of(0, TOUCH_BYTES, 7);
	own = memory_of(1, TOUCH_BYTES, 5);
	if (row->allowed)
		expect_ok(cuCtxEnablePeerAccess(context[0], 0));
	cr_expect_eq(touch(1, row->touch, there, own), wanted, "%s", name);
	cr_expect_eq(cuMemGetInfo(&n, &n), wanted, "%s: it does not stick", name);
	cr_expect_eq(cuStreamSynchronize(NULL), wanted, "%s", name);
	cr_expect_eq(cuCtxSetCurrent(context[1]), wanted, "%s", name);
	cr_expect_eq(touch(0, TOUCH_ADD, there, 0), CUDA_SUCCESS, "%s: device 0 is lost", name);
	if (!row->allowed)
		cr_expect(memory_is(there + 8, TOUCH_BYTES - 8, 7), "%s: it touched the memory", name);
	more = memory_of(2, TOUCH_BYTES, 5);
	cr_expect_eq(touch(2, TOUCH_TILE_LOAD, more, more), CUDA_SUCCESS, "%s: device 2 is lost", name);
	if (row->allowed && row->touch == TOUCH_BULK_LOAD) {
		use(1);
		cr_expect(memory_is(own, TOUCH_BYTES, 7), "%s", name);
	}
	if (row->allowed && row->touch == TOUCH_BULK_STORE)
		cr_expect(memory_is(there + 8, TOUCH_BYTES - 8, 5), "%s", name);
}

/* ---- Another process ------------------------------------------------------------------------------------
 */

/* Plays another process, whose device 1 has the memory. It holds the memory until this process closes the
 * pipe. */
static void hold_memory(int to, int from)
{
	CUipcMemHandle handle;
	CUdeviceptr memory;
	char byte;

	devices_open(2);
	memory = memory_of(1, TOUCH_BYTES, 9);
	expect_ok(cuIpcGetMemHandle(&handle, memory));
	if (write(to, &handle, sizeof handle) == sizeof handle && read(from, &byte, 1) == 0)
		_exit(0);
	_exit(1);
}

static pid_t start_holder(CUipcMemHandle *ret, int *ret_fd)
{
	int from[2], to[2];
	pid_t pid;

	cr_assert_eq(pipe(from), 0);
	cr_assert_eq(pipe(to), 0);
	pid = fork();
	cr_assert_geq(pid, 0);
	if (pid == 0) {
		close(to[1]);
		hold_memory(from[1], to[0]);
	}
	close(to[0]);
	close(from[1]);
	cr_assert_eq(read(from[0], ret, sizeof *ret), sizeof *ret);
	close(from[0]);
	*ret_fd = to[1];
	return pid;
}

/* Opening a handle of another device's memory gives access to it if the devices are linked. */
Test(devices_peer, ipc)
{
	CUipcMemHandle handle;
	CUdeviceptr there, again, own;
	int fd, ordinal, status;
	pid_t pid = start_holder(&handle, &fd);

	devices_set("SOFTGPU_LINKS=1-2:none");
	devices_open(3);
	expect_ok(cuIpcOpenMemHandle(&there, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	expect_ok(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, there));
	cr_expect_eq(ordinal, 1);
	expect_result(cuCtxEnablePeerAccess(context[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	cr_expect_eq(touch(0, TOUCH_BULK_LOAD, there, own = memory_of(0, TOUCH_BYTES, 0)), CUDA_SUCCESS);
	cr_expect(memory_is(own, TOUCH_BYTES, 9));

	/* Each context gets an address of its own. */
	use(1);
	expect_ok(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	cr_expect_neq(again, there);
	cr_expect_eq(touch(1, TOUCH_READ, again, 0), CUDA_SUCCESS);
	expect_ok(cuIpcCloseMemHandle(again));
	use(2);
	expect_result(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	              CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	expect_result(cuMemsetD8Async(there, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	use(0);
	expect_ok(cuIpcCloseMemHandle(there));
	expect_ok(cuMemFree(own));
	devices_close();
	close(fd);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_expect_eq(status, 0);
}
