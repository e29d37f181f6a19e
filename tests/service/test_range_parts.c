/* SPDX-License-Identifier: Apache-2.0 */
/* Regions of several allocations by descriptors and by other regions (tma_region_register_parts), with the
 * library and tmad --engine=cuda on the stand-in driver. */
#include <string.h>
#include <unistd.h>

#include "ranges.h"

static void start(void)
{
	ranges_start("--mapped-bytes-per-uid=8G");
}

TestSuite(range_parts, .init = start, .fini = ranges_stop, .timeout = 120);

/* ---- By the caller's descriptors ---------------------------------------------------------------------- */

static int new_fd(uint64_t size)
{
	CUmemGenericAllocationHandle allocation =
	    new_allocation(size, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	int fd;

	cuda(cuMemExportToShareableHandle(&fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	cuda(cuMemRelease(allocation));
	return fd;
}

Test(range_parts, parts_of_the_callers)
{
	const struct held before = held_now();
	const int fds[] = { new_fd(2 * MIB), new_fd(6 * MIB), new_fd(4 * MIB) };
	const struct tma_region_part parts[] = { { .fd = fds[0], .size = 2 * MIB },
		                                 { .fd = fds[1], .size = 6 * MIB },
		                                 { .fd = fds[2], .size = 4 * MIB } };
	tma_region *all = NULL, *turned = NULL;

	ok(tma_region_register_parts(client, parts, 3, MIB, 10 * MIB, 0, &all));
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	cr_assert_eq(tma_region_size(all), 10 * MIB);
	ok(copy_bytes(all, 0, all, 5 * MIB, 4 * MIB));

	const struct tma_region_part other[] = { { .region = all, .size = 4 * MIB, .offset = 8 * MIB },
		                                 { .region = all, .size = 2 * MIB } };

	ok(tma_region_register_parts(client, other, 2, 0, 6 * MIB, 0, &turned));
	cr_assert_eq(copy_bytes(turned, 0, all, 7 * MIB, 10), TMA_OVERLAP);
	ok(copy_bytes(turned, 0, all, 2 * MIB, 10));
	cr_assert_eq(copy_bytes(turned, 0, all, MIB, 8 * MIB - 1), TMA_OUT_OF_RANGE);
	cr_assert_eq(copy_bytes(turned, 0, all, 0, 6 * MIB + 1), TMA_OUT_OF_RANGE);
	ok(tma_region_release(all));
	ok(copy_bytes(turned, 0, turned, 3 * MIB, MIB));
	ok(tma_region_release(turned));
	assert_held(&before, "parts");
}

/* Contiguous allocations are given in another order; where the order matters, the request is refused. */
Test(range_parts, parts_in_another_order_are_not_told_apart)
{
	struct span span = span_new(2 * MIB, 2, 2);
	tma_region *region = registered(span.start, 4 * MIB), *turned = NULL;
	const struct tma_region_part parts[] = { { .region = region, .size = 2 * MIB, .offset = 2 * MIB },
		                                 { .region = region, .size = 2 * MIB } };

	ok(tma_region_register_parts(client, parts, 2, 0, 4 * MIB, 0, &turned));
	cr_assert_eq(copy_bytes(turned, MIB, region, MIB, 2 * MIB), TMA_OK, "%s", tma_last_error(client));
	cr_assert_eq(copy_bytes(turned, 0, region, MIB - 1, 2 * MIB), TMA_OVERLAP);
	cr_assert_eq(copy_bytes(turned, MIB - 1, region, MIB - 1, 2 * MIB + 2), TMA_OVERLAP);
	cr_assert(strstr(tma_last_error(client), "follow each other differently"), "%s",
	          tma_last_error(client));
	cr_assert_eq(copy_bytes(turned, 0, region, 0, 2 * MIB), TMA_OK, "%s", tma_last_error(client));
}

/* Each part follows a different part than in the region that has it, so that each counts separately. */
Test(range_parts, so_many_parts_of_other_regions)
{
	enum { MOST = 500, CHUNKS = MOST + 1 };
	static struct tma_region_part parts[CHUNKS];
	struct span span = span_new(2 * MIB, CHUNKS, CHUNKS);
	const struct held empty = held_now();
	tma_region *region = registered(span.start, span_bytes(&span)), *turned = NULL;
	const struct held before = held_now();

	for (uint64_t i = 0; i < CHUNKS; i++)
		parts[i] = (struct tma_region_part){ .region = region,
			                             .size = 2 * MIB,
			                             .offset = (CHUNKS - 1 - i) * 2 * MIB };
	cr_assert_eq(tma_region_register_parts(client, parts, CHUNKS, 0, span_bytes(&span), 0, &turned),
	             TMA_QUOTA, "%s", tma_last_error(client));
	cr_assert(strstr(tma_last_error(client), "more than 500 parts that other regions have"), "%s",
	          tma_last_error(client));
	cr_assert_null(turned);
	assert_held(&before, "one too many");
	ok(tma_region_register_parts(client, parts, MOST, 0, MOST * 2 * MIB, 0, &turned));
	ok(copy_bytes(turned, 0, region, 0, 2 * MIB));
	ok(tma_region_release(turned));
	ok(tma_region_release(region));
	assert_held(&empty, "released");
	span_free(&span);
}

Test(range_parts, parts_that_are_refused)
{
	struct span span = span_new(2 * MIB, 4, 4);
	CUdeviceptr handle;
	cuda(cuMemAlloc(&handle, MIB));
	const struct held before = held_now();
	tma_region *region = registered(span.start, 8 * MIB), *legacy = registered(handle, MIB), *ret = NULL;
	const int fd = new_fd(4 * MIB), another = new_fd(2 * MIB), pipe_fd = dup(2);
	const struct {
		const char *name;
		struct tma_region_part parts[2];
		size_t n;
		uint64_t offset;
		uint64_t size;
		int status;
		const char *message;
	} rows[] = {
		{ "none", { { 0 } }, 0, 0, 1, TMA_INVALID_ARGUMENT, "parts: a region has at least 1" },
		{ "empty", { { .fd = fd } }, 1, 0, 1, TMA_INVALID_ARGUMENT, "parts[0].size: it is 0" },
		{ "too few bytes",
		  { { .fd = another, .size = 2 * MIB }, { .fd = fd, .size = 2 * MIB } },
		  2,
		  0,
		  1,
		  TMA_OUT_OF_RANGE,
		  "parts[1].size: it is mapped as a whole" },
		{ "too many bytes",
		  { { .fd = fd, .size = 6 * MIB } },
		  1,
		  0,
		  1,
		  TMA_OUT_OF_RANGE,
		  "parts[0].size: it is mapped as a whole" },
		{ "half a granule",
		  { { .fd = fd, .size = MIB } },
		  1,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "parts[0].size" },
		{ "more than the device has",
		  { { .fd = another, .size = 2 * MIB }, { .fd = fd, .size = 4096 * MIB } },
		  2,
		  0,
		  1,
		  TMA_OUT_OF_RANGE,
		  "parts[1].size: 4294967296 bytes, after 2097152" },
		{ "past the parts",
		  { { .fd = fd, .size = 4 * MIB } },
		  1,
		  MIB,
		  4 * MIB,
		  TMA_OUT_OF_RANGE,
		  "exceeds the parts, which have 4194304" },
		{ "no descriptor",
		  { { .fd = 12345, .size = 4 * MIB } },
		  1,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "parts[0].fd: 12345 is not" },
		{ "no allocation",
		  { { .fd = fd, .size = 4 * MIB }, { .fd = pipe_fd, .size = 2 * MIB } },
		  2,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "parts[1]: fd: it does not come from" },
		{ "an offset without a region",
		  { { .fd = fd, .size = 4 * MIB, .offset = 2 * MIB } },
		  1,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "parts[0].offset" },
		{ "part of a chunk",
		  { { .region = region, .size = MIB } },
		  1,
		  0,
		  1,
		  TMA_OUT_OF_RANGE,
		  "parts[0]: bytes [0, 1048576) are not whole" },
		{ "past the region",
		  { { .region = region, .size = 4 * MIB, .offset = 6 * MIB } },
		  1,
		  0,
		  1,
		  TMA_OUT_OF_RANGE,
		  "are not whole allocations" },
		{ "past everything",
		  { { .region = region, .size = 4 * MIB, .offset = UINT64_MAX } },
		  1,
		  0,
		  1,
		  TMA_OUT_OF_RANGE,
		  "are not whole allocations" },
		{ "twice",
		  { { .region = region, .size = 4 * MIB },
		    { .region = region, .size = 2 * MIB, .offset = 2 * MIB } },
		  2,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "the allocation at byte 4194304 is there twice" },
		{ "of a handle",
		  { { .region = legacy, .size = 2 * MIB } },
		  1,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "parts[0].region: its allocations are not known" },
		{ "a member of later versions",
		  { { .fd = fd, .size = 4 * MIB, .reserved = { 0, 1 } } },
		  1,
		  0,
		  1,
		  TMA_INVALID_ARGUMENT,
		  "parts[0].reserved" },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		cr_assert_eq(tma_region_register_parts(client, rows[i].parts, rows[i].n, rows[i].offset,
		                                       rows[i].size, 0, &ret),
		             rows[i].status, "%s: %s", rows[i].name, tma_last_error(client));
		cr_assert(strstr(tma_last_error(client), rows[i].message), "%s: %s", rows[i].name,
		          tma_last_error(client));
		cr_assert_null(ret, "%s", rows[i].name);
	}
	close(fd), close(another), close(pipe_fd);
	assert_counted("regions", before.charges[0] + 2, "refused");
	assert_counted("mapped_bytes", before.charges[1] + 9 * (int64_t)MIB, "refused");
	ok(tma_region_release(region));
	ok(tma_region_release(legacy));
	assert_held(&before, "refused");
}
