/* Memory on huge pages, where the kernel gives them, and where it does not. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "kernels/cpu/memory.h"
#include "proto/mapping.h"
#include "tests/emulated/emulated.h"

#define WHOLE (4 * HUGE_PAGE_BYTES)
#define SIZE  (WHOLE + 5)

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* KiB that smaps tells of the mapping at data. */
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

/* Skips where a memfd of the test's own gets no huge page either. */
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

static struct cpu_memory *create(int *ret_fd)
{
	struct engine_memory *memory;
	struct engine_export made;
	struct error err;
	cr_assert_eq(cpu_memory_create(&(struct engine_handle){ .kind = REGION_KIND_MEMFD, .size = SIZE },
	                               &memory, &made, &err),
	             0, "%s", err.message);
	*ret_fd = made.fd;
	return cpu_memory(memory);
}

Test(huge, what_is_made_lies_on_huge_pages)
{
	int fd;
	need_huge_pages();
	struct cpu_memory *memory = create(&fd);
	cr_assert_eq(smaps(memory->data, "ShmemPmdMapped"), WHOLE >> 10);
	cr_assert_eq(smaps(memory->data, "Rss"), (WHOLE >> 10) + 4, "all is present, and no more");
	check_zeroed(memory->data);

	/* The other side's mapping has them as well, and one byte there is that byte here. */
	char *other = mapping_new(SIZE, PROT_READ | PROT_WRITE, fd, 0);
	cr_assert_neq(other, MAP_FAILED);
	other[HUGE_PAGE_BYTES + 1] = 'x';
	cr_assert_eq(memory->data[HUGE_PAGE_BYTES + 1], 'x');
	cr_assert_eq(smaps(other, "ShmemPmdMapped"), (long)HUGE_PAGE_BYTES >> 10);
	munmap(other, SIZE);
	cpu_memory_unmap(&memory->base);
	close(fd);
}

/* The same, as a client may register it: nothing in it yet, from an odd page on. */
Test(huge, an_empty_memfd)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .offset = 12288, .writable = true };
	struct engine_memory *memory;
	struct error err;
	need_huge_pages();
	handle.size = SIZE - handle.offset;
	handle.fd = memfd_create("empty", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	cr_assert_eq(ftruncate(handle.fd, SIZE), 0);
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(cpu_memory_map(&handle, &memory, &err), 0, "%s", err.message);
	cr_assert_eq(smaps(cpu_memory(memory)->data, "ShmemPmdMapped"),
	             (long)(WHOLE - HUGE_PAGE_BYTES) >> 10);
	cpu_memory_unmap(memory);
	close(handle.fd);
}

/* What a client has written stays as it is. */
Test(huge, a_memfd_that_holds_something)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .size = SIZE, .writable = true };
	struct engine_memory *memory;
	struct error err;
	handle.fd = memfd_create("full", MFD_ALLOW_SEALING | MFD_CLOEXEC);
	cr_assert_eq(ftruncate(handle.fd, SIZE), 0);
	cr_assert_eq(pwrite(handle.fd, "x", 1, HUGE_PAGE_BYTES + 77), 1);
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(cpu_memory_map(&handle, &memory, &err), 0, "%s", err.message);
	cr_assert_eq(cpu_memory(memory)->data[HUGE_PAGE_BYTES + 77], 'x');
	cr_assert_eq(smaps(cpu_memory(memory)->data, "Rss"), (WHOLE >> 10) + 4);
	cpu_memory_unmap(memory);
	close(handle.fd);
}

Test(huge, where_they_are_denied_pages_are_small)
{
	int fd;
	if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
		cr_skip("huge pages cannot be denied to a process here");
	struct cpu_memory *memory = create(&fd);
	cr_assert_eq(smaps(memory->data, "ShmemPmdMapped"), 0);
	cr_assert_eq(smaps(memory->data, "Rss"), (WHOLE >> 10) + 4, "all is present");
	check_zeroed(memory->data);
	cpu_memory_unmap(&memory->base);
	close(fd);
}

/* A client's memfd may be one of hugetlb pages: served where the pool has some, refused where it is empty. */
Test(huge, a_hugetlb_memfd)
{
	struct engine_handle handle = { .kind = REGION_KIND_MEMFD, .writable = true };
	struct engine_memory *memory;
	struct error err;
	handle.fd = memfd_create("hugetlb", MFD_ALLOW_SEALING | MFD_CLOEXEC | MFD_HUGETLB);
	if (handle.fd < 0 || ftruncate(handle.fd, (off_t)HUGE_PAGE_BYTES) < 0)
		cr_skip("no hugetlb pages of 2 MiB here");
	cr_assert_eq(fcntl(handle.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	void *probe = mmap(NULL, HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, handle.fd, 0);
	if (probe != MAP_FAILED)
		munmap(probe, HUGE_PAGE_BYTES);
	handle.offset = 4096;
	handle.size = HUGE_PAGE_BYTES - 4096 - 3;
	int r = cpu_memory_map(&handle, &memory, &err);
	if (probe == MAP_FAILED) {
		cr_assert_eq(r, STATUS_NO_MEMORY);
	} else {
		cr_assert_eq(r, 0, "%s", err.message);
		memset(cpu_memory(memory)->data, 1, handle.size);
		cpu_memory_unmap(memory);
	}
	close(handle.fd);
}
