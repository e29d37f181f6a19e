/* SPDX-License-Identifier: Apache-2.0 */
/* The library and tmad --engine=cuda on the stand-in driver: device memory of this process, shared by its
 * pointer or by a handle and moved by the service, also when the device is lost. */
#include <criterion/criterion.h>
#include <cuda.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rig.h"

int move_in_stream(tma_client *client, void *stream, tma_region *timeline, uint64_t word, uint64_t step,
                   struct tma_transform move);
#include "client/examples/stream_order.c"

#define ROWS    64
#define COLUMNS 96
#define BYTES   ((size_t)ROWS * COLUMNS)

static struct process service;
static tma_client *client;
static CUcontext context;

/* ---- This process's device -------------------------------------------------------------------------- */

#define cuda(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)

static void cuda_open(int ordinal)
{
	CUdevice device;

	cuda(cuInit(0));
	cuda(cuDeviceGet(&device, ordinal));
	cuda(cuDevicePrimaryCtxRetain(&context, device));
	cuda(cuCtxSetCurrent(context));
}

static CUdeviceptr allocate(size_t size)
{
	CUdeviceptr pointer;

	cuda(cuMemAlloc(&pointer, size));
	return pointer;
}

static void put(CUdeviceptr to, const void *from, size_t size)
{
	cuda(cuMemcpyHtoDAsync(to, from, size, NULL));
	cuda(cuStreamSynchronize(NULL));
}

static void get(void *to, CUdeviceptr from, size_t size)
{
	cuda(cuMemcpyDtoHAsync(to, from, size, NULL));
	cuda(cuStreamSynchronize(NULL));
}

/* Maps an allocation by its handle and returns its address. */
static CUdeviceptr map(CUmemGenericAllocationHandle allocation, size_t size)
{
	CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE },
		                   .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
	CUdeviceptr pointer;

	cuda(cuMemAddressReserve(&pointer, size, 0, 0, 0));
	cuda(cuMemMap(pointer, size, 0, allocation, 0));
	cuda(cuMemSetAccess(pointer, size, &access, 1));
	return pointer;
}

static size_t granularity(const CUmemAllocationProp *properties)
{
	size_t size;

	cuda(cuMemGetAllocationGranularity(&size, properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	return size;
}

static CUdeviceptr create(CUmemAllocationHandleType type)
{
	CUmemAllocationProp properties = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		                           .requestedHandleTypes = type,
		                           .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle allocation;
	size_t size = granularity(&properties);

	cuda(cuMemCreate(&allocation, size, &properties, 0));
	return map(allocation, size);
}

/* ---- The service ------------------------------------------------------------------------------------ */

static void start_with(const char *argument)
{
	service.engine = "cuda";
	client = rig_start(&service, argument);
	cuda_open(0);
}

static void start(void)
{
	start_with(NULL);
}

static void stop(void)
{
	rig_stop(&service, client);
}

static void start_on_both(void)
{
	setenv("SOFTGPU_DEVICES", "2", 1);
	start();
}

static void start_on_one_of_two(void)
{
	setenv("SOFTGPU_DEVICES", "2", 1);
	start_with("--device=0");
}

static char fault_once[64];

static void start_faulty(void)
{
	snprintf(fault_once, sizeof fault_once, "/tmp/tmad-test-fault-%d", (int)getpid());
	setenv("SOFTGPU_FAULT", "2", 1);
	setenv("SOFTGPU_FAULT_ONCE", fault_once, 1);
	start();
}

static void stop_faulty(void)
{
	stop();
	unlink(fault_once);
}

TestSuite(softgpu, .init = start, .fini = stop, .timeout = 120);
TestSuite(softgpu_two, .init = start_on_one_of_two, .fini = stop, .timeout = 120);
TestSuite(softgpu_both, .init = start_on_both, .fini = stop, .timeout = 120);
TestSuite(softgpu_lost, .init = start_faulty, .fini = stop_faulty, .timeout = 120);

/* ---- Transposes between regions --------------------------------------------------------------------- */

static uint8_t byte_at(size_t i, unsigned seed)
{
	return (uint8_t)((i * 2654435761u + seed) >> 7);
}

static void fill(CUdeviceptr to, unsigned seed)
{
	uint8_t data[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		data[i] = byte_at(i, seed);
	put(to, data, BYTES);
}

static int transpose(tma_region *dst, tma_region *src)
{
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 2, .shape = { COLUMNS, ROWS } };
	struct tma_tensor s = { .region = src, .dtype = TMA_UINT8, .rank = 2, .shape = { ROWS, COLUMNS } };

	return tma_transpose(client, &d, &s, (int[]){ 1, 0 });
}

static void assert_transposes(tma_region *dst, tma_region *src, const char *what)
{
	int status = transpose(dst, src);

	cr_assert_eq(status, TMA_OK, "%s: %s: %s", what, tma_status_name(status), tma_last_error(client));
}

static void assert_transposed(const uint8_t *data, unsigned seed, const char *what)
{
	for (size_t i = 0; i < ROWS; i++)
		for (size_t j = 0; j < COLUMNS; j++)
			cr_assert_eq(data[j * ROWS + i], byte_at(i * COLUMNS + j, seed), "%s: %zu, %zu", what,
			             i, j);
}

static void assert_transposed_at(CUdeviceptr pointer, unsigned seed, const char *what)
{
	uint8_t data[BYTES];

	get(data, pointer, BYTES);
	assert_transposed(data, seed, what);
}

static tma_region *shared(CUdeviceptr pointer, size_t size)
{
	tma_region *region;

	cr_assert_eq(tma_region_from_device_ptr(client, (void *)(uintptr_t)pointer, size, 0, &region), TMA_OK,
	             "%s", tma_last_error(client));
	cr_assert_null(tma_region_data(region));
	return region;
}

/* ---- Memory of this process ------------------------------------------------------------------------- */

Test(softgpu, memory_by_its_pointer)
{
	CUdeviceptr a = allocate(BYTES + 64), b = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	tma_region *legacy = shared(a + 64, BYTES), *mapped = shared(b + 4096, BYTES);

	cr_assert(rig_is_local() || tma_region_kind(legacy) == TMA_REGION_CUDA_IPC);
	cr_assert(rig_is_local() || tma_region_kind(mapped) == TMA_REGION_CUDA_FD);
	fill(a + 64, 1);
	assert_transposes(mapped, legacy, "from cuMemAlloc to cuMemCreate");
	assert_transposed_at(b + 4096, 1, "from cuMemAlloc to cuMemCreate");
	fill(b + 4096, 2);
	assert_transposes(legacy, mapped, "and back");
	assert_transposed_at(a + 64, 2, "and back");
}

/* The request is submitted first. It waits for the stream to write its source, and the stream then waits for
 * the request. */
Test(softgpu, a_stream_and_the_service_order_each_other)
{
	enum { ROUNDS = 50, WORDS = 2 * BYTES };
	static uint8_t in[BYTES], out[BYTES];
	CUdeviceptr memory = allocate(WORDS + 16);
	tma_region *region = shared(memory, WORDS + 16);
	struct tma_order order = { .wait = { .region = region, .offset = WORDS, .value = 0 },
		                   .signal = { .region = region, .offset = WORDS + 8, .value = 0 },
		                   .completion = TMA_COMPLETION_SIGNAL };
	struct tma_tensor s = { .region = region, .dtype = TMA_UINT8, .rank = 2, .shape = { ROWS, COLUMNS } };
	struct tma_tensor d = {
		.region = region, .offset = BYTES, .dtype = TMA_UINT8, .rank = 2, .shape = { COLUMNS, ROWS }
	};
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 }, .order = &order };
	CUstream stream;

	put(memory + WORDS, (uint64_t[2]){ 0 }, 16);
	cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	for (unsigned round = 1; round <= ROUNDS; round++) {
		for (size_t i = 0; i < BYTES; i++)
			in[i] = byte_at(i, round << 7);
		order.wait.value = order.signal.value = round;
		cr_assert_eq(tma_submit(client, &t, NULL), TMA_OK, "%s", tma_last_error(client));
		cuda(cuMemcpyHtoDAsync(memory, in, BYTES, stream));
		cr_assert_eq(tma_stream_signal(client, stream, memory + WORDS, round), TMA_OK, "%s",
		             tma_last_error(client));
		cr_assert_eq(tma_stream_wait(client, stream, memory + WORDS + 8, round), TMA_OK, "%s",
		             tma_last_error(client));
		cuda(cuMemcpyDtoHAsync(out, memory + BYTES, BYTES, stream));
		cuda(cuStreamSynchronize(stream));
		assert_transposed(out, round << 7, "round");
	}
	cr_assert_eq(tma_take_error(client), TMA_OK, "%s", tma_last_error(client));
	cuda(cuStreamDestroy(stream));
}

/* Runs client/examples/stream_order.c, with a timeline in separate memory. */
Test(softgpu, the_manuals_example_of_a_stream)
{
	static uint8_t in[BYTES], out[BYTES];
	CUdeviceptr memory = allocate(2 * BYTES), word = allocate(8);
	tma_region *region = shared(memory, 2 * BYTES), *timeline = shared(word, 8);
	struct tma_tensor s = { .region = region, .dtype = TMA_UINT8, .rank = 2, .shape = { ROWS, COLUMNS } };
	struct tma_tensor d = {
		.region = region, .offset = BYTES, .dtype = TMA_UINT8, .rank = 2, .shape = { COLUMNS, ROWS }
	};
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 } };
	CUstream stream;

	put(word, &(uint64_t){ 0 }, 8);
	cuda(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, 0));
	for (unsigned step = 1; step <= 5; step += 2) {
		for (size_t i = 0; i < BYTES; i++)
			in[i] = byte_at(i, step << 7);
		cuda(cuMemcpyHtoDAsync(memory, in, BYTES, stream));
		cr_assert_eq(move_in_stream(client, stream, timeline, word, step, t), TMA_OK, "%s",
		             tma_last_error(client));
		cuda(cuMemcpyDtoHAsync(out, memory + BYTES, BYTES, stream));
		cuda(cuStreamSynchronize(stream));
		assert_transposed(out, step << 7, "step");
	}
	cr_assert_eq(tma_take_error(client), TMA_OK, "%s", tma_last_error(client));
	cuda(cuStreamDestroy(stream));
}

/* The library finds libtma-local in its own directory. The trace names the kernel family of what that
 * launches. */
Test(softgpu, a_request_is_launched_here)
{
	CUdeviceptr a = allocate(BYTES), b = allocate(BYTES);
	struct tma_tensor s = {
		.region = shared(a, BYTES), .dtype = TMA_UINT8, .rank = 2, .shape = { ROWS, COLUMNS }
	};
	struct tma_tensor d = {
		.region = shared(b, BYTES), .dtype = TMA_UINT8, .rank = 2, .shape = { COLUMNS, ROWS }
	};
	struct tma_transform t = { .dst = &d, .src = &s, .perm = (int[]){ 1, 0 } };
	struct tma_enqueued counts;

	fill(a, 5);
	cr_assert_eq(tma_enqueue(client, &t, NULL), TMA_OK, "%s", tma_last_error(client));
	cr_assert_str_neq(tma_last_result(client)->path, "");
	cr_assert_eq(tma_enqueued(client, NULL, &counts), TMA_OK, "%s", tma_last_error(client));
	assert_transposed_at(b, 5, "launched");
}

Test(softgpu, memory_of_no_device)
{
	static char host[4096];
	CUdeviceptr a = allocate(BYTES);
	tma_region *region = NULL;

	cr_assert_eq(tma_region_from_device_ptr(client, host, 1, 0, &region), TMA_INVALID_ARGUMENT);
	cuda(cuMemHostRegister(host, sizeof host, 0));
	cr_assert_eq(tma_region_from_device_ptr(client, host, 1, 0, &region), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "host memory"), "%s", tma_last_error(client));
	cr_assert_eq(tma_region_from_device_ptr(client, (void *)(uintptr_t)a, BYTES + 1, 0, &region),
	             TMA_OUT_OF_RANGE);
	cr_assert_null(region);
	cr_assert_eq(tma_ping(client), TMA_OK);
}

Test(softgpu, memory_that_cannot_be_shared)
{
	CUdeviceptr sealed = create(CU_MEM_HANDLE_TYPE_NONE);
	tma_region *region = NULL;

	cr_assert_eq(tma_region_from_device_ptr(client, (void *)(uintptr_t)sealed, 1, 0, &region),
	             TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "POSIX_FILE_DESCRIPTOR"), "%s", tma_last_error(client));
	cr_assert_null(region);
	cr_assert_eq(tma_ping(client), TMA_OK);
}

Test(softgpu_two, another_context_is_current)
{
	CUdeviceptr pointer = allocate(BYTES);
	tma_region *region;

	cuda_open(1);
	region = shared(pointer, BYTES);
	cr_assert_eq(tma_region_kind(region), TMA_REGION_CUDA_IPC);
	cr_assert_neq(allocate(BYTES), 0, "the thread still has a context");
}

Test(softgpu_two, memory_of_another_device)
{
	tma_region *region = NULL;
	CUdeviceptr pointer;

	cuda_open(1);
	pointer = allocate(BYTES);
	cr_assert_eq(tma_region_from_device_ptr(client, (void *)(uintptr_t)pointer, BYTES, 0, &region),
	             TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "the memory is on GPU-50f79001-") &&
	              strstr(tma_last_error(client), "this service uses GPU-50f79000-"),
	          "%s", tma_last_error(client));
}

/* ---- Memory of the service -------------------------------------------------------------------------- */

static CUdeviceptr import(const tma_region *region)
{
	CUmemAllocationProp properties = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
		                           .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemGenericAllocationHandle allocation;

	cuda(cuMemImportFromShareableHandle(&allocation, (void *)(intptr_t)tma_region_fd(region),
	                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	return map(allocation, granularity(&properties));
}

static CUdeviceptr opened(const tma_region *region)
{
	CUipcMemHandle handle;
	CUdeviceptr pointer;

	memcpy(&handle, tma_region_handle(region), sizeof handle);
	cuda(cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	return pointer;
}

static tma_region *made(enum tma_region_kind kind)
{
	tma_region *region;

	cr_assert_eq(tma_region_create_kind(client, kind, BYTES, &region), TMA_OK, "%s",
	             tma_last_error(client));
	return region;
}

Test(softgpu, memory_of_the_service)
{
	tma_region *any = made(TMA_REGION_ANY), *ipc = made(TMA_REGION_CUDA_IPC),
		   *host = made(TMA_REGION_MEMFD);
	uint8_t zeros[BYTES] = { 0 }, data[BYTES];
	CUdeviceptr a, b;

	cr_assert_eq(tma_region_kind(any), TMA_REGION_CUDA_FD);
	a = import(any);
	b = opened(ipc);
	get(data, a, BYTES);
	cr_assert_arr_eq(data, zeros, BYTES, "new memory is zeroed");
	get(data, b, BYTES);
	cr_assert_arr_eq(data, zeros, BYTES, "new memory is zeroed");

	fill(a, 1);
	assert_transposes(ipc, any, "from an allocation to a handle");
	assert_transposed_at(b, 1, "from an allocation to a handle");
	fill(b, 2);
	assert_transposes(host, ipc, "from a handle to host memory");
	assert_transposed(tma_region_data(host), 2, "from a handle to host memory");
}

static CUdeviceptr mapped(tma_region *region, int device)
{
	struct tma_mapping mapping, again;
	struct tma_place place;

	cr_assert_eq(tma_region_map(region, &mapping), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(mapping.size, tma_region_size(region));
	cr_assert_eq(mapping.device, device);
	cr_assert_eq(tma_region_map(region, &again), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(&mapping, &again, sizeof mapping), 0, "it is mapped once");
	cr_assert_eq(tma_region_find(client, (char *)mapping.address + 8, mapping.size - 8, &place), TMA_OK,
	             "%s", tma_last_error(client));
	cr_assert(place.region == region && place.offset == 8);
	return (uintptr_t)mapping.address;
}

static bool is_device_memory(CUdeviceptr pointer)
{
	unsigned type = 0;

	return cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) == CUDA_SUCCESS &&
	       type == CU_MEMORYTYPE_DEVICE;
}

Test(softgpu, memory_of_the_service_is_mapped)
{
	tma_region *fd = made(TMA_REGION_ANY), *ipc = made(TMA_REGION_CUDA_IPC),
		   *host = made(TMA_REGION_MEMFD);
	CUdeviceptr a = mapped(fd, 0), b = mapped(ipc, 0);
	tma_region *ends[] = { fd, ipc };
	struct tma_place place;

	cr_assert_eq(mapped(host, -1), (uintptr_t)tma_region_data(host));
	fill(a, 1);
	assert_transposes(ipc, fd, "from an allocation to a handle");
	assert_transposed_at(b, 1, "from an allocation to a handle");
	fill(b, 2);
	assert_transposes(fd, ipc, "and back");
	assert_transposed_at(a, 2, "and back");
	for (size_t i = 0; i < 2; i++) {
		CUdeviceptr address = i == 0 ? a : b;

		cr_assert(is_device_memory(address));
		cr_assert_eq(tma_region_release(ends[i]), TMA_OK);
		cr_assert_not(is_device_memory(address), "the release unmaps it");
		cr_assert_eq(tma_region_find(client, (void *)(uintptr_t)address, 1, &place), TMA_NOT_FOUND);
	}
}

/* tma_region_map needs no current context and does not change the current one. */
Test(softgpu_both, memory_is_mapped_for_its_device)
{
	const struct {
		const char *name;
		enum tma_region_kind kind;
		int device;
	} rows[] = {
		{ "0", TMA_REGION_CUDA_FD, 0 },
		{ "1", TMA_REGION_CUDA_FD, 1 },
		{ "0", TMA_REGION_CUDA_IPC, 0 },
		{ "1", TMA_REGION_CUDA_IPC, 1 },
	};
	CUcontext current;

	cuda(cuCtxSetCurrent(NULL));
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		tma_region *region;
		CUdeviceptr address;

		cr_assert_eq(tma_region_create_on(client, rows[i].name, rows[i].kind, BYTES, &region), TMA_OK,
		             "%zu: %s", i, tma_last_error(client));
		address = mapped(region, rows[i].device);
		cuda(cuCtxGetCurrent(&current));
		cr_assert_null(current, "%zu: the thread has a context now", i);
		cuda(cuCtxSetCurrent(context));
		cr_assert(is_device_memory(address), "%zu", i);
		cuda(cuCtxSetCurrent(NULL));
	}
}

Test(softgpu, memory_of_this_process_has_its_addresses)
{
	CUdeviceptr a = allocate(BYTES + 64), b = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

	tma_region *legacy = shared(a + 64, BYTES), *whole = shared(b, BYTES);

	cr_assert_eq(mapped(legacy, 0), a + 64);
	cr_assert_eq(mapped(whole, 0), b);
}

/* Memory registered by descriptors is mapped at new addresses. */
Test(softgpu, registered_memory_is_mapped)
{
	CUdeviceptr a = allocate(BYTES + 64), b = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), c;
	tma_region *legacy = shared(a + 64, BYTES), *whole = shared(b, BYTES), *again, *parts, *foreign;
	const struct tma_region_part part = { .region = whole, .size = 2 << 20 };
	struct tma_mapping mapping;
	CUipcMemHandle handle;

	cr_assert_eq(tma_region_register_cuda_fd(client, tma_region_fd(whole), 0, 4096, BYTES, 0, &again),
	             TMA_OK, "%s", tma_last_error(client));
	c = mapped(again, 0);
	cr_assert_neq(c, b + 4096, "it is mapped at addresses of its own");
	fill(b + 4096, 3);
	assert_transposes(legacy, again, "by a descriptor");
	assert_transposed_at(a + 64, 3, "by a descriptor");
	fill(c, 4);
	assert_transposes(legacy, again, "by a descriptor, mapped");
	assert_transposed_at(a + 64, 4, "by a descriptor, mapped");

	cr_assert_eq(tma_region_register_parts(client, &part, 1, 0, BYTES, 0, &parts), TMA_OK, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_region_map(parts, &mapping), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "registered by parts"), "%s", tma_last_error(client));
	cuda(cuIpcGetMemHandle(&handle, a));
	cr_assert_eq(tma_region_register_cuda_ipc(client, &handle, 0, BYTES, 0, &foreign), TMA_OK, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_region_map(foreign, &mapping), TMA_DEVICE);
	cr_assert(strstr(tma_last_error(client), "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_CONTEXT"), "%s",
	          tma_last_error(client));
	cr_assert_eq(tma_ping(client), TMA_OK);
}

/* The service that made the memory is gone, and the next service has it. */
Test(softgpu, a_mapping_outlives_its_service)
{
	tma_region *fd = made(TMA_REGION_CUDA_FD), *ipc = made(TMA_REGION_CUDA_IPC), *target;
	CUdeviceptr a = mapped(fd, 0);
	struct tma_mapping mapping;

	fill(a, 5);
	process_kill(&service);
	process_start_again(&service, NULL);
	cr_assert_eq(tma_ping(client), TMA_NOT_FOUND, "the CUDA IPC memory is lost");
	cr_assert_eq(tma_region_map(ipc, &mapping), TMA_NOT_FOUND);
	cr_assert(strstr(tma_last_error(client), "region: it could not be registered again: "), "%s",
	          tma_last_error(client));
	cr_assert_eq(tma_region_release(ipc), TMA_OK);
	cr_assert_eq(mapped(fd, 0), a);
	target = made(TMA_REGION_MEMFD);
	assert_transposes(target, fd, "after a restart");
	assert_transposed(tma_region_data(target), 5, "after a restart");
}

/* ---- A service of two devices ------------------------------------------------------------------------ */

#define FIRST  "GPU-50f79000-0000-4000-8000-000000000000"
#define SECOND "GPU-50f79001-0000-4000-8000-000000000000"

static tma_region *made_on(const char *device, enum tma_region_kind kind)
{
	tma_region *region;

	cr_assert_eq(tma_region_create_on(client, device, kind, BYTES, &region), TMA_OK, "%s: %s", device,
	             tma_last_error(client));
	return region;
}

static void copy(tma_region *dst, tma_region *src)
{
	struct tma_tensor d = { .region = dst, .dtype = TMA_UINT8, .rank = 1, .shape = { BYTES } };
	struct tma_tensor s = { .region = src, .dtype = TMA_UINT8, .rank = 1, .shape = { BYTES } };

	cr_assert_eq(tma_copy(client, &d, &s), TMA_OK, "%s", tma_last_error(client));
}

Test(softgpu_both, memory_of_either)
{
	const struct {
		const char *name;
		enum tma_region_kind kind;
		const char *uuid;
	} rows[] = {
		{ NULL, TMA_REGION_ANY, FIRST },         { "1", TMA_REGION_ANY, SECOND },
		{ SECOND, TMA_REGION_CUDA_IPC, SECOND }, { FIRST, TMA_REGION_CUDA_IPC, FIRST },
		{ "1", TMA_REGION_MEMFD, SECOND },       { "0", TMA_REGION_MEMFD, FIRST },
	};
	tma_region *host = made_on(NULL, TMA_REGION_MEMFD), *own;
	CUdeviceptr pointer;

	cuda_open(1);
	pointer = allocate(BYTES);
	own = shared(pointer, BYTES);
	cr_assert_str_eq(tma_region_device(own), SECOND);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		tma_region *region = made_on(rows[i].name, rows[i].kind);

		cr_assert_str_eq(tma_region_device(region), rows[i].uuid, "row %zu", i);
		fill(pointer, (unsigned)i);
		assert_transposes(region, own, rows[i].uuid);
		copy(host, region);
		assert_transposed(tma_region_data(host), (unsigned)i, rows[i].uuid);
	}
}

Test(softgpu_both, none_of_them)
{
	const char *const names[] = { "2", "GPU-1", "0x", SECOND SECOND };
	tma_region *region = NULL;

	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		cr_assert_lt(tma_region_create_on(client, names[i], TMA_REGION_ANY, BYTES, &region), 0, "%s",
		             names[i]);
	cr_assert_eq(tma_region_create_on(client, "2", TMA_REGION_ANY, BYTES, &region), TMA_NOT_FOUND);
	cr_assert(strstr(tma_last_error(client), "no device 2; it has GPU-50f79000-"), "%s",
	          tma_last_error(client));
	cr_assert_str_eq(tma_region_device(NULL), "");
}

/* ---- A device that is lost -------------------------------------------------------------------------- */

Test(softgpu_lost, the_next_transpose_works)
{
	CUdeviceptr a = allocate(BYTES), b = create(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), c;
	tma_region *legacy = shared(a, BYTES), *mapped = shared(b, BYTES), *any = made(TMA_REGION_ANY);
	tma_region *gone = made(TMA_REGION_CUDA_IPC);
	tma_document *stats;
	int status;

	c = import(any);
	fill(a, 1);
	fill(c, 2);
	assert_transposes(mapped, legacy, "while it is well");
	assert_transposed_at(b, 1, "while it is well");
	status = transpose(legacy, mapped);
	cr_assert_eq(status, TMA_DEVICE_LOST, "%s: %s", tma_status_name(status), tma_last_error(client));

	fill(a, 3);
	cr_assert_eq(transpose(mapped, legacy), TMA_NOT_FOUND, "the first call reports what is gone");
	assert_transposes(mapped, legacy, "when it is back");
	assert_transposed_at(b, 3, "when it is back");
	cr_assert_eq(tma_last_result(client)->reconnects, 1);
	assert_transposes(mapped, any, "out of the lost service's memory");
	assert_transposed_at(b, 2, "out of the lost service's memory");
	cr_assert_eq(transpose(gone, mapped), TMA_NOT_FOUND);
	cr_assert_eq(tma_stats(client, &stats), TMA_OK);
	cr_assert_eq(tma_document_int(tma_document_find(stats, "recoveries")), 1);
	tma_document_free(stats);
}
