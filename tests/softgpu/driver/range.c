/* SPDX-License-Identifier: Apache-2.0 */
/* The table of address ranges, and the memory behind them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"
#include "softgpu.h"

#define GUARD_BYTES 65536u /* a whole number of pages for any page size */
#define POISON_BYTES \
	(64u         \
	 << 20) /* most poisoned bytes of a memory (SOFTGPU_POISON); the rest is zero and takes no pages */

struct ranges ranges = TAILQ_HEAD_INITIALIZER(ranges);
static uint64_t last_id;
static uint64_t used_bytes[MOST_DEVICES];

struct range *range_add(enum range_kind kind, uint64_t start, uint64_t size)
{
	struct range *range = malloc(sizeof *range);
	if (!range)
		return NULL;
	*range = (struct range){
		.kind = kind,
		.start = start,
		.size = size,
		.id = ++last_id,
		.context = context_current(),
		.home = context_current()->ordinal,
		.fd = -1,
		.writable = true,
	};
	/* A mapping precedes its reservation in the list, so that searches find the mapping first. */
	TAILQ_INSERT_HEAD(&ranges, range, entry);
	return range;
}

void range_remove(struct range *range)
{
	if (!range)
		return;
	if (range->fd >= 0)
		close(range->fd);
	TAILQ_REMOVE(&ranges, range, entry);
	free(range);
}

struct range *range_find(uint64_t address)
{
	struct range *range;
	TAILQ_FOREACH(range, &ranges, entry)
		if (address - range->start < range->size)
			return range;
	return NULL;
}

struct range *range_find_kind(uint64_t address, enum range_kind kind)
{
	struct range *range;
	TAILQ_FOREACH(range, &ranges, entry)
		if (range->kind == kind && address - range->start < range->size)
			return range;
	return NULL;
}

/* Memory that belongs to a context is accessible to that context and, if it lies on that context's device, to
 * its peers. Memory mapped with cuMemMap or from a pool is accessible to the devices that were granted
 * access; peer access does not apply. A call may name a graph's memory at any time, but access it only while
 * a replay has allocated it. */
static bool reaches(const struct range *range, const struct context *context, enum access access)
{
	const int device = context->ordinal;
	switch (range->kind) {
	case RANGE_RESERVED:
		return false;
	case RANGE_HOST:
		return access == ACCESS_READ || range->writable;
	case RANGE_MAPPED:
		return (access == ACCESS_READ ? range->readers : range->writers) & device_bit(device);
	case RANGE_GRAPH:
		return (range->is_live || !queue_is_unit()) && pool_reaches(range->pool, device, access);
	case RANGE_POOLED:
	case RANGE_IMPORTED:
		return pool_reaches(range->pool, device, access);
	default:
		if (context == range->context)
			return device == range->home || context->peers & device_bit(range->home);
		return range->home == range->context->ordinal && context->peers & device_bit(range->home);
	}
}

device_set range_users(const struct range *range)
{
	device_set users = device_bit(range->home);
	const struct context *context = NULL;
	while ((context = context_next(context)))
		if (reaches(range, context, ACCESS_READ))
			users |= device_bit(context->ordinal);
	return users;
}

/* The device sees adjacent mappings as one range. */
bool range_reaches(const struct context *context, uint64_t address, uint64_t size, enum access access)
{
	while (size > 0) {
		const struct range *range = range_find(address);
		if (!range || !reaches(range, context, access))
			return false;
		uint64_t here = range->size - (address - range->start);
		if (here >= size)
			return true;
		if (range->kind != RANGE_MAPPED)
			return false;
		address += here;
		size -= here;
	}
	return true;
}

/* ---- Memory ------------------------------------------------------------------------------------------ */

uint64_t memory_free(int device)
{
	return device_memory_bytes() - used_bytes[device];
}

void memory_charge(int device, uint64_t bytes)
{
	used_bytes[device] += bytes;
}

void memory_discharge(int device, uint64_t bytes)
{
	used_bytes[device] -= bytes;
}

static void poison(int fd, uint64_t size)
{
	uint64_t most = call_number("SOFTGPU_POISON", POISON_BYTES);
	uint64_t bytes = size < most ? size : most;
	void *at = mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return;
	memset(at, 0xa5, bytes);
	munmap(at, bytes);
}

int memory_new_fd(const char *name, uint64_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)size) < 0) {
		close(fd);
		return -1;
	}
	poison(fd, size);
	return fd;
}

bool memory_is_fd(int fd, const char *name)
{
	char link[64], path[256], wanted[128];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, path, sizeof path - 1);
	if (n < 0)
		return false;
	path[n] = '\0';
	snprintf(wanted, sizeof wanted, "/memfd:%s", name);
	return strncmp(path, wanted, strlen(wanted)) == 0;
}

/* ---- Address space ----------------------------------------------------------------------------------- */

static uint64_t with_pages(uint64_t size)
{
	return (size + GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
}

uint64_t space_new(uint64_t size, uint64_t alignment)
{
	uint64_t bytes = with_pages(size) + 2 * GUARD_BYTES + alignment;
	void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return 0;
	uint64_t first = (uint64_t)at, last = first + bytes;
	uint64_t start = (first + GUARD_BYTES + alignment - 1) & ~(alignment - 1);
	uint64_t end = start + with_pages(size);
	if (start - GUARD_BYTES > first)
		munmap(at, start - GUARD_BYTES - first);
	if (last > end + GUARD_BYTES)
		munmap((void *)(end + GUARD_BYTES), last - end - GUARD_BYTES);
	return start;
}

void space_free(uint64_t start, uint64_t size)
{
	munmap((void *)(start - GUARD_BYTES), with_pages(size) + 2 * GUARD_BYTES);
}

uint64_t space_map(int fd, uint64_t size)
{
	uint64_t start = space_new(size, GUARD_BYTES);
	if (start == 0)
		return 0;
	void *at =
	    mmap((void *)start, with_pages(size), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	if (at != MAP_FAILED)
		return start;
	space_free(start, size);
	return 0;
}
