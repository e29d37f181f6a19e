/* SPDX-License-Identifier: Apache-2.0 */
/* An address range is reserved with room to spare, and the file mapped within it: the kernel maps a huge page
 * only where address and offset have the same remainder, and not every version picks such an address. */
#include "mapping.h"

#include <sys/mman.h>
#include <unistd.h>

/* MAP_FAILED: it cannot be, or not there. */
static void *map_aligned(size_t size, int prot, int flags, int fd, uint64_t offset)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t skew = (size_t)(offset % HUGE_PAGE_BYTES);
	size_t whole = (size + page - 1) / page * page;
	char *room = mmap(NULL, whole + HUGE_PAGE_BYTES, PROT_NONE,
	                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before;
	void *map;

	if (room == MAP_FAILED)
		return MAP_FAILED;
	before = (HUGE_PAGE_BYTES + skew - (uintptr_t)room % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
	map = mmap(room + before, size, prot, flags | MAP_FIXED, fd, (off_t)offset);
	if (map == MAP_FAILED) {
		munmap(room, whole + HUGE_PAGE_BYTES);
		return MAP_FAILED;
	}
	if (before)
		munmap(room, before);
	munmap(room + before + whole, HUGE_PAGE_BYTES - before);
	return map;
}

static void *map_anywhere(size_t size, int prot, int flags, int fd, uint64_t offset)
{
	void *map = MAP_FAILED;

	if (size >= HUGE_PAGE_BYTES && size <= SIZE_MAX / 2)
		map = map_aligned(size, prot, flags, fd, offset);
	return map != MAP_FAILED ? map : mmap(NULL, size, prot, flags, fd, (off_t)offset);
}

void *mapping_new(size_t size, int prot, int fd, uint64_t offset)
{
	return map_anywhere(size, prot, MAP_SHARED | MAP_NORESERVE, fd, offset);
}

void *mapping_new_private(size_t size, int fd, uint64_t offset)
{
	return map_anywhere(size, PROT_READ, MAP_PRIVATE | MAP_NORESERVE, fd, offset);
}
