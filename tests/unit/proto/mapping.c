/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that mappings lie where huge pages fit, hold the file's bytes, and leave nothing behind. */
#include "proto/memory/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/emulated/emulated.h"

#define MIB        ((size_t)1 << 20)
#define FILE_BYTES (7 * MIB + 5)

struct row {
	char name[24];
	size_t size;
	uint64_t offset;
};

static int new_file(void)
{
	int fd = memfd_create("mapping", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	cr_assert_eq(ftruncate(fd, FILE_BYTES), 0);
	cr_assert_eq(pwrite(fd, "a", 1, 0), 1);
	cr_assert_eq(pwrite(fd, "z", 1, FILE_BYTES - 1), 1);
	return fd;
}

/* Returns the KiB of this process's address space, or 0 under an emulator, whose own space this would be. */
static long address_space(void)
{
	char line[128];
	long kib = emulated() ? 0 : -1;
	FILE *file = fopen("/proc/self/status", "re");

	cr_assert_not_null(file);
	while (kib < 0 && fgets(line, sizeof line, file))
		if (sscanf(line, "VmSize: %ld", &kib) != 1)
			kib = -1;
	fclose(file);
	return kib;
}

ParameterizedTestParameters(mapping, place)
{
	static struct row rows[] = {
		{ "a page", 4096, 0 },
		{ "one byte", 1, 0 },
		{ "a huge page", 2 * MIB, 0 },
		{ "the file", FILE_BYTES, 0 },
		{ "the end", FILE_BYTES - 4096, 4096 },
		{ "from a huge page on", FILE_BYTES - 2 * MIB, 2 * MIB },
		{ "from its last page on", FILE_BYTES - 2 * MIB + 4096, 2 * MIB - 4096 },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, mapping, place)
{
	int fd = new_file();
	long before = address_space();
	char byte = 0;
	char *map;

	for (int i = 0; i < 20; i++) {
		void *other = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		map = mapping_new(row->size, PROT_READ | PROT_WRITE, fd, row->offset);
		cr_assert_neq(map, MAP_FAILED, "%s", row->name);
		if (row->size >= HUGE_PAGE_BYTES)
			cr_assert_eq((uintptr_t)map % HUGE_PAGE_BYTES, row->offset % HUGE_PAGE_BYTES,
			             "%s: it lies at %p", row->name, (void *)map);
		if (row->offset == 0 && row->size > 1)
			cr_assert_eq(map[0], 'a', "%s", row->name);
		if (row->offset + row->size == FILE_BYTES)
			cr_assert_eq(map[row->size - 1], 'z', "%s", row->name);
		map[row->size - 1] = 'z';
		cr_assert_eq(pread(fd, &byte, 1, (off_t)(row->offset + row->size - 1)), 1);
		cr_assert_eq(byte, 'z', "%s: a write does not reach the file", row->name);
		cr_assert_eq(munmap(map, row->size), 0, "%s", row->name);
		cr_assert_eq(munmap(other, 4096), 0);
	}
	cr_assert_eq(address_space(), before, "%s: address space is left over", row->name);
	close(fd);
}

Test(mapping, a_failure_leaves_nothing)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	long before = address_space();

	errno = 0;
	cr_assert_eq(mapping_new(8 * MIB, PROT_READ, fd, 0), MAP_FAILED);
	cr_assert_eq(errno, ENODEV);
	cr_assert_eq(mapping_new(8 * MIB, PROT_READ, -1, 0), MAP_FAILED);
	cr_assert_eq(errno, EBADF);
	cr_assert_eq(mapping_new(SIZE_MAX - 4096, PROT_READ, fd, 0), MAP_FAILED);
	cr_assert_eq(address_space(), before);
	close(fd);
}

/* If there is no room for the reservation, the file is mapped all the same. */
Test(mapping, a_full_address_space)
{
	int fd = new_file();
	struct rlimit limit;
	char *map;

	cr_assert_eq(getrlimit(RLIMIT_AS, &limit), 0);
	limit.rlim_cur = (rlim_t)address_space() * 1024 + FILE_BYTES + MIB;
	cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
	map = mapping_new(FILE_BYTES, PROT_READ, fd, 0);
	cr_assert_neq(map, MAP_FAILED);
	cr_assert_eq(map[FILE_BYTES - 1], 'z');
	munmap(map, FILE_BYTES);
	close(fd);
}
