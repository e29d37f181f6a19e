/* SPDX-License-Identifier: Apache-2.0 */
/* Unmaps host memory, a step at a time. The kernel empties a mapping of 4 KiB pages at about 10 GB/s and
 * holds the process's mmap_lock meanwhile, so one call for all of it would keep every other thread that needs
 * that lock, for 0.3 s in 4 GB. Emptying it by MADV_DONTNEED takes the lock for reading, a step at a time: a
 * thread that changes the address space (brk, mmap) waits for one step at most, and page faults for none.
 * Unmapping step by step would not do: brk then competes with one writer after the other for the lock, and
 * lost for 16 ms (Linux 6.18). What is unmapped has been emptied before; its page tables are freed at about
 * 3000 GB/s.
 *
 * Memory that the service made loses its pages on the way: a client that keeps its file holds nothing of
 * ours. MADV_REMOVE, which takes them from the file, needs the lock no more than MADV_DONTNEED does.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backing.h"
#include "holes.h"
#include "memory.h"
#include "proto/memory/mapping.h"
#include "scout.h"

#define STEP_BYTES  HUGE_PAGE_BYTES /* of 4 KiB pages: 0.2 ms; cuts no huge page */
#define UNMAP_BYTES ((size_t)1 << 30)

/* Pages among which there is one that a cover has put in place: the file has no such page to lose. */
static void empty_pages(char *start, size_t size, size_t page)
{
	for (size_t at = 0; at < size; at += page)
		madvise(start + at, page, MADV_REMOVE);
}

/* false: the kernel does not empty such a mapping (of hugetlb pages before 5.18). */
static bool empty(const struct host_memory *memory, char *start, size_t size)
{
	int advice = memory->is_made ? MADV_REMOVE : MADV_DONTNEED;
	int r;
	do
		r = madvise(start, size, advice);
	while (r < 0 && errno == EINTR);
	if (r < 0 && memory->is_made && memory->base.backing &&
	    atomic_load(&memory->base.backing->cover.has_failed)) {
		empty_pages(start, size, memory->page);
		return true;
	}
	return r == 0;
}

/* What has been emptied; all of the rest where it cannot be cut there (hugetlb pages of 1 GiB). */
static void unmap_emptied(struct host_memory *memory)
{
	struct fault_range *mapped = &memory->mapped;
	size_t size = memory->emptied;
	if (munmap((void *)mapped->start, size) < 0) {
		size = mapped->size;
		munmap((void *)mapped->start, size);
	}
	mapped->start = (const char *)mapped->start + size;
	mapped->size -= size;
	memory->emptied = 0;
}

static void free_files(struct host_memory *memory)
{
	if (memory->own_seals >= 0)
		close(memory->own_seals);
	backing_free(memory->base.backing);
	free(memory);
}

/* No cover stays for what may soon be somebody else's addresses. */
bool host_memory_unmap_step(struct engine_memory *base)
{
	struct host_memory *memory = host_memory(base);
	if (base->backing)
		backing_unpin(base->backing);
	char *at = (char *)memory->mapped.start + memory->emptied;
	size_t left = memory->mapped.size - memory->emptied;
	size_t step = STEP_BYTES - (uintptr_t)at % STEP_BYTES;
	if (step > left)
		step = left;
	bool is_empty = empty(memory, at, step);
	memory->emptied += step;
	if (is_empty && step < left && memory->emptied < UNMAP_BYTES)
		return false;
	if (!host_memory_is_free(base)) {
		memory->emptied -= step; /* and tries again with the next step */
		return false;
	}
	unmap_emptied(memory);
	if (memory->mapped.size > 0)
		return false;
	free_files(memory);
	return true;
}

void host_memory_unmap(struct engine_memory *memory)
{
	while (!host_memory_unmap_step(memory))
		continue;
}

/* Pages that a device has pinned go when it lets them go, with the process at the latest. What still writes
 * to the mapping may make one again, and must not fail: so its cover stays, and with it the file, unless the
 * device had let them go before. */
void host_memory_leave(struct engine_memory *base)
{
	struct host_memory *memory = host_memory(base);
	if (memory->is_made) {
		holes_unwatch((void *)memory->mapped.start, memory->mapped.size);
		for (size_t at = 0, step; at < memory->mapped.size; at += step) {
			step = memory->mapped.size - at < STEP_BYTES ? memory->mapped.size - at : STEP_BYTES;
			empty(memory, (char *)memory->mapped.start + at, step);
		}
	}
	if (memory->own_seals >= 0)
		close(memory->own_seals);
	if (base->backing && !base->backing->is_pinned)
		backing_free(base->backing);
	free(memory);
}
