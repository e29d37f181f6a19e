/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory on huge pages where the kernel provides them, and where it does not. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/host/backing.h"
#include "kernels/host/memory.h"
#include "proto/memory/headroom.h"
#include "proto/memory/memfd.h"
#include "tests/emulated/emulated.h"

#define WHOLE (4 * HUGE_PAGE_BYTES)
#define SIZE  (WHOLE + 5)

/* Returns the KiB that smaps shows under `key` for the mapping at data, or -1. */
static long smaps(const void *data, const char *key)
{
	char line[256];
	size_t len = strlen(key);
	unsigned long start, end;
	bool here = false;
	long kib = -1;
	if (emulated())
		cr_skip("an emulator's mappings are not the test's");
	FILE *file = fopen("/proc/self/smaps", "re");
	cr_assert_not_null(file);
	while (kib < 0 && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			here = start <= (uintptr_t)data && (uintptr_t)data < end;
		else if (here && strncmp(line, key, len) == 0 && line[len] == ':')
			kib = strtol(line + len + 1, NULL, 10);
	}
	fclose(file);
	return kib;
}

/* Skips the test where a memfd of its own gets no huge page either. */
static void need_huge_pages(void)
{
	int fd = memfd_create("probe", MFD_CLOEXEC);
	cr_assert_eq(ftruncate(fd, (off_t)HUGE_PAGE_BYTES), 0);
	char *map = mapping_new(HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	map[0] = 1;
	if (madvise(map, HUGE_PAGE_BYTES, MADV_COLLAPSE) < 0)
		cr_skip("the kernel gives this memfd no huge page");
	munmap(map, HUGE_PAGE_BYTES);
	close(fd);
}

static void check_zeroed(const char *data)
{
	for (size_t i = 0; i < SIZE; i++)
		cr_assert_eq(data[i], 0, "byte %zu", i);
}

/* Makes memory as the library does for its caller: a full file, and a mapping of it. */
static char *make(int *ret_fd)
{
	struct headroom headroom;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int fd = memfd_new(SIZE);
	cr_assert_geq(fd, 0);
	char *map = mapping_new(SIZE, PROT_READ | PROT_WRITE, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	headroom_init(&headroom, "");
	struct memfd_fill fill = { .fd = fd,
		                   .start = map,
		                   .size = (SIZE + page - 1) / page * page,
		                   .missing = SIZE,
		                   .writable = true,
		                   .huge = true,
		                   .headroom = &headroom };
	cr_assert_eq(memfd_fill(&fill), 0);
	cr_assert_not(memfd_is_sparse(fd) && !emulated());
	*ret_fd = fd;
	return map;
}

static struct host_memory *map_region(int fd, bool writable)
{
	struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .fd = fd, .size = SIZE, .writable = writable
	};
	struct engine_memory *memory;
	struct error err;
	cr_assert_eq(host_memory_map(&handle, &memory, &err), 0, "%s", err.message);
	return host_memory(memory);
}

/* Both mappings use huge pages, though the service does not ask for them. */
Test(huge, what_a_client_makes_lies_on_huge_pages)
{
	int fd;
	need_huge_pages();
	char *other = make(&fd);
	cr_assert_eq(smaps(other, "ShmemPmdMapped"), WHOLE >> 10);
	for (int writable = 0; writable < 2; writable++) {
		struct host_memory *memory = map_region(fd, writable);
		cr_assert_eq(smaps(memory->data, "ShmemPmdMapped"), WHOLE >> 10, "%d", writable);
		cr_assert_eq(smaps(memory->data, "Rss"), (WHOLE >> 10) + 4, "%d: all is present, and no more",
		             writable);
		if (!writable)
			check_zeroed(memory->data);
		/* Both mappings have the same bytes. */
		other[HUGE_PAGE_BYTES + 1] = 'x';
		cr_assert_eq(memory->data[HUGE_PAGE_BYTES + 1], 'x', "%d", writable);
		host_memory_unmap(&memory->base);
	}
	munmap(other, SIZE);
	close(fd);
}

Test(huge, where_they_are_denied_pages_are_small)
{
	int fd;
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
		cr_skip("huge pages cannot be denied to a process here");
	char *other = make(&fd);
	cr_assert_eq(smaps(other, "ShmemPmdMapped"), 0);
	cr_assert_eq(smaps(other, "Rss"), (WHOLE >> 10) + 4, "all is present");
	check_zeroed(other);
	munmap(other, SIZE);
	close(fd);
}

/* Huge pages would let a client that pins a part of one keep all of it, at the service's cost. */
Test(huge, what_the_service_makes_lies_on_small_pages)
{
	struct engine_handle wanted = { .kind = REGION_KIND_MEMFD, .size = SIZE };
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;
	cr_assert_eq(host_memory_create(&wanted, &memory, &made, &err), 0, "%s", err.message);
	cr_assert_eq(smaps(host_memory(memory)->data, "ShmemPmdMapped"), 0);
	cr_assert_eq(smaps(host_memory(memory)->data, "Rss"), (WHOLE >> 10) + 4, "all is present");
	check_zeroed(host_memory(memory)->data);
	host_memory_unmap(memory);
	close(made.fd);
}

static void touch(void *arg)
{
	*(volatile char *)arg = 1;
}

static void set_up(void)
{
	holes_init();
	cr_assert_eq(fault_init(), 0);
}

static void tear_down(void)
{
	fault_deinit();
	holes_deinit();
}

/* A client's memfd may consist of hugetlb pages. It is accepted if all pages exist, and refused if it has a
 * hole. */
Test(huge, a_hugetlb_memfd, .init = set_up, .fini = tear_down)
{
	struct stat st;
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .writable = true };
	struct engine_memory *memory;
	struct error err;
	handle.fd = memfd_create("hugetlb", MFD_ALLOW_SEALING | MFD_CLOEXEC | MFD_HUGETLB);
	if (handle.fd < 0 || ftruncate(handle.fd, (off_t)HUGE_PAGE_BYTES) < 0)
		cr_skip("no hugetlb pages of 2 MiB here");
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	handle.offset = 4096;
	handle.size = HUGE_PAGE_BYTES - 4096 - 3;
	cr_assert_eq(host_memory_map(&handle, &memory, &err), STATUS_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(err.message, "hole at byte 4096"), "%s", err.message);
	if (fallocate(handle.fd, 0, 0, (off_t)HUGE_PAGE_BYTES) < 0)
		cr_skip("the pool of hugetlb pages is empty");
	cr_assert_eq(host_memory_map(&handle, &memory, &err), 0, "%s", err.message);
	memset(host_memory(memory)->data, 1, handle.size);
	cr_assert_eq(
	    fallocate(handle.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)HUGE_PAGE_BYTES), 0);
	struct fault_range ranges[2] = { host_memory(memory)->mapped };
	if (holes_can_watch()) {
		cr_assert_not(fault_guard(ranges, touch, host_memory(memory)->data));
		cr_assert_eq(fstat(handle.fd, &st), 0);
		cr_assert_eq(st.st_blocks, 0, "a page was made");
	}
	host_memory_unmap(memory);
	close(handle.fd);
}
