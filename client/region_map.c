/* SPDX-License-Identifier: Apache-2.0 */
/* Gives regions an address in this process. Memory that has none yet is mapped once, and stays mapped until
 * the region is released. */
#include "client.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "proto/memory/memfd.h"

/* ---- Files ------------------------------------------------------------------------------------------ */

static int map_file(tma_region *region, uint64_t *ret)
{
	uint64_t from = region->offset, to = region->offset + region->size;
	struct stat st;
	void *map;

	if (fstat(region->fd, &st) < 0)
		return client_fail(region->client, STATUS_INTERNAL,
		                   "the region's memory cannot be examined (%s)", strerror(errno));
	region_widen(&st, &from, &to);
	map = mapping_new((size_t)(to - from), PROT_READ | PROT_WRITE, region->fd, from);
	if (map == MAP_FAILED && (errno == EACCES || errno == EPERM))
		map = mapping_new((size_t)(to - from), PROT_READ, region->fd, from);
	if (map == MAP_FAILED)
		return client_fail(region->client, errno == ENOMEM ? STATUS_NO_MEMORY : STATUS_INTERNAL,
		                   "%zu bytes of the region cannot be mapped (%s)", region->size,
		                   strerror(errno));
	region->mapping = (struct device_mapping){ .start = (uintptr_t)map, .size = to - from, .device = -1 };
	*ret = (uintptr_t)map + (region->offset - from);
	return 0;
}

/* ---- Device memory ---------------------------------------------------------------------------------- */

static int find_ordinal(tma_region *region, int *ret)
{
	tma_client *client = region->client;
	struct error err;
	int rc = client_find_driver(client);

	if (rc < 0)
		return rc;
	rc = device_ordinal(client->driver, region->device, ret, &err);
	return rc < 0 ? client_fail(client, rc, "%s", err.message) : 0;
}

/* Refuses memory that has, or had, addresses in this process: allocations that were found by address, parts,
 * and pointers of a pool. */
static int check_allocation(tma_region *region)
{
	if (region->n_chunks > 0 && region->has_parts)
		return client_fail(region->client, STATUS_UNSUPPORTED,
		                   "region: it was registered by parts, which are not mapped again; use the "
		                   "addresses that they have");
	if (region->n_chunks > 0)
		return client_fail(region->client, STATUS_UNSUPPORTED,
		                   "region: memory of it was freed, and it has no address any more; register "
		                   "what is there now (tma_region_from_device_ptr)");
	if (region->kind == REGION_KIND_CUDA_POOL)
		return client_fail(region->client, STATUS_UNSUPPORTED,
		                   "region: memory of a pool that was registered by an exported pointer is "
		                   "not mapped again; use the address that was exported");
	return 0;
}

static int map_memory(tma_region *region, int ordinal, uint64_t *ret)
{
	const struct device_driver *driver = region->client->driver;
	const uint64_t size = region->allocation ? region->allocation : region->offset + region->size;
	struct error err;
	int rc = check_allocation(region);

	if (rc < 0)
		return rc;
	rc = region->kind == REGION_KIND_CUDA_IPC
	         ? device_map_ipc(driver, ordinal, region->handle, &region->mapping, &err)
	         : device_map_fd(driver, ordinal, region->fd, size, &region->mapping, &err);
	if (rc < 0)
		return client_fail(region->client, rc, "%s", err.message);
	*ret = region->mapping.start + region->offset;
	return 0;
}

/* ---- All of them ------------------------------------------------------------------------------------ */

void region_unmap(tma_region *region)
{
	struct device_mapping *mapping = &region->mapping;

	if (mapping->size == 0)
		return;
	if (mapping->device < 0)
		munmap((void *)(uintptr_t)mapping->start, mapping->size);
	else
		device_unmap(region->client->driver, mapping);
	mapping->size = 0;
}

static int map(tma_region *region, int ordinal)
{
	uint64_t address = 0;
	int rc = region->kind == REGION_KIND_MEMFD ? map_file(region, &address)
	                                           : map_memory(region, ordinal, &address);

	if (rc < 0 || region_add_range(region, address))
		return rc;
	region_unmap(region);
	return client_fail(region->client, STATUS_NO_MEMORY, "out of memory for a region");
}

int tma_region_map(tma_region *region, struct tma_mapping *ret)
{
	struct tma_mapping mapping = { .device = -1 };
	int rc = region ? client_check_ret(region->client, ret, "the mapping goes") : TMA_INVALID_ARGUMENT;

	if (rc < 0)
		return rc;
	if (region->life == REGION_GONE)
		return client_fail(region->client, region->error.status,
		                   "region: it could not be registered again: %s", region->error.message);
	if (region->kind != REGION_KIND_MEMFD)
		rc = find_ordinal(region, &mapping.device);
	if (rc == 0 && !region->address)
		rc = map(region, mapping.device);
	if (rc < 0)
		return rc;
	region_pin(region);
	mapping.address = (void *)(uintptr_t)region->address;
	mapping.size = region->size;
	*ret = mapping;
	return 0;
}
