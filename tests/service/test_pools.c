/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of pools (cudaMallocAsync), with the service on the stand-in driver. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ranges.h"

#define ROWS    300
#define COLUMNS 170
#define BYTES   ((size_t)ROWS * COLUMNS)

#define POOL_FD CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

static void start(void)
{
	ranges_start("--mapped-bytes-per-uid=8G");
}

TestSuite(pools, .init = start, .fini = ranges_stop, .timeout = 120);

static CUmemoryPool new_pool(CUmemAllocationHandleType types)
{
	CUmemPoolProps properties = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		                      .handleTypes = types,
		                      .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE } };
	CUmemoryPool pool;

	cuda(cuMemPoolCreate(&pool, &properties));
	return pool;
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t size)
{
	CUdeviceptr pointer;

	cuda(cuMemAllocFromPoolAsync(&pointer, size, pool, NULL));
	cuda(cuStreamSynchronize(NULL));
	return pointer;
}

static void free_now(CUdeviceptr pointer)
{
	cuda(cuMemFreeAsync(pointer, NULL));
	cuda(cuStreamSynchronize(NULL));
}

static uint8_t byte_at(size_t i, unsigned seed)
{
	return (uint8_t)((i * 2654435761u + seed) >> 7);
}

/* Moves BYTES from one place to another and checks that they arrive as columns. */
static void assert_moves(CUdeviceptr to, tma_region *dst, uint64_t dst_offset, CUdeviceptr from,
                         tma_region *src, uint64_t src_offset, unsigned seed)
{
	const struct tma_tensor s = {
		.region = src, .offset = src_offset, .dtype = TMA_UINT8, .rank = 2, .shape = { ROWS, COLUMNS }
	};
	const struct tma_tensor d = {
		.region = dst, .offset = dst_offset, .dtype = TMA_UINT8, .rank = 2, .shape = { COLUMNS, ROWS }
	};
	static uint8_t data[BYTES];

	for (size_t i = 0; i < BYTES; i++)
		data[i] = byte_at(i, seed);
	cuda(cuMemcpyHtoDAsync(from, data, BYTES, NULL));
	cuda(cuStreamSynchronize(NULL));
	ok(tma_transpose(client, &d, &s, (int[]){ 1, 0 }));
	cuda(cuMemcpyDtoHAsync(data, to, BYTES, NULL));
	cuda(cuStreamSynchronize(NULL));
	for (size_t i = 0; i < ROWS; i++)
		for (size_t j = 0; j < COLUMNS; j++)
			cr_assert_eq(data[j * ROWS + i], byte_at(i * COLUMNS + j, seed), "%u: %zu, %zu", seed,
			             i, j);
}

Test(pools, are_registered_moved_and_released)
{
	CUmemoryPool pool = new_pool(POOL_FD), other = new_pool(POOL_FD);
	CUdeviceptr a = allocate(pool, BYTES + 100), b = allocate(pool, BYTES), c = allocate(other, BYTES);
	const struct held before = held_now();
	tma_region *whole = registered(a, BYTES + 100), *tail = registered(a + 100, BYTES);
	tma_region *second = registered(b, BYTES), *third = registered(c, BYTES);
	struct tma_place place;

	cr_assert(rig_is_local() || tma_region_kind(whole) == TMA_REGION_CUDA_POOL);
	cr_assert_null(tma_region_data(whole));
	cr_assert_null(tma_region_handle(whole));
	assert_counted("regions", 4, "each once");
	assert_moves(b, second, 0, a + 100, tail, 0, 1);
	assert_moves(a + 50, whole, 50, b, second, 0, 2);
	assert_moves(c, third, 0, a + 3, whole, 3, 3);
	cr_assert_eq(copy_bytes(tail, 0, whole, 109, 10), TMA_OVERLAP);
	ok(copy_bytes(tail, 0, whole, 110, 10));
	cr_assert_eq(copy_bytes(tail, 0, whole, 90, 11), TMA_OVERLAP);
	cr_assert_eq(copy_bytes(second, 0, second, BYTES - 5, 10), TMA_OUT_OF_RANGE);
	ok(tma_region_find(client, pointer_at(b + 7), 10, &place));
	cr_assert(place.region == second && place.offset == 7);
	cr_assert_eq(registered(b, BYTES), second, "the second time it is the same region");
	ok(tma_region_release(second));

	ok(tma_region_release(whole));
	assert_moves(b, second, 0, a + 100, tail, 0, 4);
	ok(tma_region_release(tail));
	assert_moves(c, third, 0, b, second, 0, 5);
	ok(tma_region_release(second));
	ok(tma_region_release(third));
	assert_held(&before, "released");
}

/* The memory is freed while it is registered, against the rules, and the pool puts other memory at its
 * address. */
Test(pools, memory_at_a_reused_address_is_registered_anew)
{
	CUmemoryPool pool = new_pool(POOL_FD);
	CUdeviceptr a = allocate(pool, BYTES), b;
	const struct held before = held_now();
	tma_region *old = registered(a, BYTES), *new;

	free_now(a);
	b = allocate(pool, BYTES);
	cr_assert_eq(a, b);
	new = registered(b, BYTES);
	cr_assert_neq(old, new);
	cr_assert_eq(copy_bytes(new, 5, old, 0, 10), TMA_OVERLAP);
	ok(tma_region_release(old));
	ok(copy_bytes(new, 0, new, 100, 100));
	ok(tma_region_release(new));
	assert_held(&before, "reuse");
}

Test(pools, by_the_callers_descriptor)
{
	CUmemoryPool pool = new_pool(POOL_FD);
	CUdeviceptr a = allocate(pool, BYTES), b = allocate(pool, BYTES + 1000);
	const struct held before = held_now();
	CUmemPoolPtrExportData pointer[2];
	tma_region *src = NULL, *dst = NULL;
	int fd;

	cuda(cuMemPoolExportToShareableHandle(&fd, pool, POOL_FD, 0));
	cuda(cuMemPoolExportPointer(&pointer[0], a));
	cuda(cuMemPoolExportPointer(&pointer[1], b));
	ok(tma_region_register_cuda_pool(client, fd, &pointer[0], BYTES, 0, BYTES, TMA_REGION_READ_ONLY,
	                                 &src));
	ok(tma_region_register_cuda_pool(client, fd, &pointer[1], BYTES + 1000, 10, BYTES, 0, &dst));
	close(fd);
	assert_moves(b + 10, dst, 0, a, src, 0, 1);
	cr_assert_eq(copy_bytes(src, 0, dst, 0, 1), TMA_PERMISSION);
	process_kill(&service);
	ranges_restart("--mapped-bytes-per-uid=8G");
	ok(tma_ping(client));
	assert_moves(b + 10, dst, 0, a, src, 0, 2);
	ok(tma_region_release(src));
	ok(tma_region_release(dst));
	cr_assert_eq(count_fds(getpid()), before.ours);
	assert_counted("regions", 0, "released");
}

Test(pools, are_registered_again_when_the_service_comes_back)
{
	CUmemoryPool pool = new_pool(POOL_FD);
	CUdeviceptr a = allocate(pool, BYTES), b = allocate(pool, BYTES), c = allocate(pool, BYTES);
	tma_region *src = registered(a, BYTES), *dst = registered(b, BYTES), *gone = registered(c, BYTES);

	free_now(c);
	cr_assert_eq(allocate(pool, BYTES), c);
	process_kill(&service);
	ranges_restart("--mapped-bytes-per-uid=8G");
	cr_assert_eq(tma_ping(client), TMA_INVALID_ARGUMENT, "the first call reports what is gone");
	cr_assert(strstr(tma_last_error(client), "no longer the one that was registered"), "%s",
	          tma_last_error(client));
	assert_moves(b, dst, 0, a, src, 0, 1);
	cr_assert_eq(copy_bytes(gone, 0, src, 0, 1), TMA_INVALID_ARGUMENT);
}

/* ---- What is refused --------------------------------------------------------------------------------- */

Test(pools, that_cannot_be_exported)
{
	CUmemoryPool sealed = new_pool(CU_MEM_HANDLE_TYPE_NONE), pool = new_pool(POOL_FD);
	CUdeviceptr a = allocate(sealed, BYTES), b = allocate(pool, 512), c = allocate(pool, 512);
	const struct held before = held_now();
	tma_region *region = NULL;

	cr_assert_eq(tma_region_from_device_ptr(client, pointer_at(a), BYTES, 0, &region), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "cudaMemPoolCreate"), "%s", tma_last_error(client));
	cr_assert_eq(c, b + 512);
	cr_assert_eq(tma_region_from_device_ptr(client, pointer_at(b), 1024, 0, &region), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "only such can be parts"), "%s", tma_last_error(client));
	cr_assert_eq(tma_region_from_device_ptr(client, pointer_at(b), 1025, 0, &region), TMA_OUT_OF_RANGE);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_CUDA_POOL, 100, &region), TMA_UNSUPPORTED);
	cr_assert(strstr(tma_last_error(client), "creates no such memory"), "%s", tma_last_error(client));
	cr_assert_null(region);
	assert_held(&before, "refused");
}

Test(pools, that_are_none)
{
	CUmemoryPool pool = new_pool(POOL_FD), other = new_pool(POOL_FD);
	CUdeviceptr a = allocate(pool, BYTES), b = allocate(other, BYTES);
	const struct held before = held_now();
	CUmemGenericAllocationHandle allocation = new_allocation(2 * MIB, POOL_FD);
	CUmemPoolPtrExportData good, foreign, forged = { { 0 } };
	int fd, mapped;

	cuda(cuMemPoolExportToShareableHandle(&fd, pool, POOL_FD, 0));
	cuda(cuMemExportToShareableHandle(&mapped, allocation, POOL_FD, 0));
	cuda(cuMemRelease(allocation));
	cuda(cuMemPoolExportPointer(&good, a));
	cuda(cuMemPoolExportPointer(&foreign, b));

	const struct {
		const char *name;
		int fd;
		const void *pointer;
		uint64_t allocation, offset;
		size_t size;
		int status;
		const char *says;
	} rows[] = {
		{ "no pointer", fd, NULL, BYTES, 0, 1, TMA_INVALID_ARGUMENT, "pointer: it is NULL" },
		{ "no descriptor", 12345, &good, BYTES, 0, 1, TMA_INVALID_ARGUMENT, "fd: 12345 is not" },
		{ "standard error", 2, &good, BYTES, 0, 1, TMA_INVALID_ARGUMENT, "fd: it does not come" },
		{ "an allocation", mapped, &good, BYTES, 0, 1, TMA_INVALID_ARGUMENT,
		  "fd: the driver cannot import the pool" },
		{ "forged", fd, &forged, BYTES, 0, 1, TMA_INVALID_ARGUMENT,
		  "handle: the driver cannot import it" },
		{ "of another pool", fd, &foreign, BYTES, 0, 1, TMA_INVALID_ARGUMENT,
		  "handle: the driver cannot import it" },
		{ "nothing", fd, &good, BYTES, 0, 0, TMA_INVALID_ARGUMENT, "at least 1 byte" },
		{ "no allocation", fd, &good, 0, 0, 1, TMA_INVALID_ARGUMENT, "allocation: it is 0" },
		{ "too long", fd, &good, BYTES, 1, BYTES, TMA_OUT_OF_RANGE, "exceeds the allocation" },
		{ "all bits", fd, &good, UINT64_MAX, UINT64_MAX, 2, TMA_OUT_OF_RANGE,
		  "exceeds the allocation" },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		tma_region *region = NULL;

		cr_assert_eq(tma_region_register_cuda_pool(client, rows[i].fd, rows[i].pointer,
		                                           rows[i].allocation, rows[i].offset, rows[i].size,
		                                           0, &region),
		             rows[i].status, "%s: %s", rows[i].name, tma_last_error(client));
		cr_assert(strstr(tma_last_error(client), rows[i].says), "%s: %s", rows[i].name,
		          tma_last_error(client));
		cr_assert_null(region, "%s", rows[i].name);
	}
	close(fd);
	close(mapped);
	assert_held(&before, "refused");
}
