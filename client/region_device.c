/* SPDX-License-Identifier: Apache-2.0 */
/* Registers device memory by its pointer: finds the allocations behind a range of addresses, and regions that
 * contain a given range. The driver tells whether memory that the client knows is still there;
 * tma_region_find_current asks it, tma_region_find does not. For host memory, both ask the kernel
 * (region_host.c). */
#include "client.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether tma_region_from_device_ptr made the region. The region must have a range of addresses. */
static bool is_of_device_ptr(const tma_region *region)
{
	return region->client->local ? region->kind != REGION_KIND_MEMFD : region->n_chunks > 0;
}

/* Returns the region of device memory with exactly this range, or NULL. */
static tma_region *find_same(tma_client *client, uint64_t start, size_t size, bool writable)
{
	const struct range_set *set = writable ? &client->writable : &client->read_only;

	for (size_t i = range_set_from(set, start); i < set->n && set->ranges[i].start == start; i++) {
		tma_region *region = set->ranges[i].owner;

		if (region->size == size && region->life == REGION_KNOWN && is_of_device_ptr(region))
			return region;
	}
	return NULL;
}

/* Removes regions with freed memory from the range sets, so that they are not found any more. They stay
 * registered: their handles still name the memory that they named before. */
static void forget_stale(tma_client *client)
{
	for (tma_region *region = client->regions; region; region = region->next)
		for (size_t i = 0; region->address && i < region->n_chunks; i++)
			if (region->chunks[i]->span.start && !region->chunks[i]->is_current)
				region_forget_range(region);
}

static int take_chunks(tma_region *region, const struct device_span *spans, size_t n, bool *ret_stale)
{
	int rc = region_reserve_chunks(region, n);

	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct chunk *chunk = chunk_at(region->client, &spans[i], ret_stale);

		if (!chunk)
			return client_fail(region->client, STATUS_NO_MEMORY, "out of memory for a region");
		region->chunks[region->n_chunks++] = chunk;
	}
	return rc;
}

static int name_device(tma_region *region, uint64_t address)
{
	struct error err;
	int rc = device_name(region->client->driver, address, region->device, &err);

	return rc < 0 ? client_fail(region->client, rc, "%s", err.message) : 0;
}

/* Exports the single allocation of a region, by a descriptor, a handle or both, and keeps these in the
 * region. */
static int take_export(tma_region *region, const struct device_span *span)
{
	struct chunk *chunk = region->chunks[0];
	struct device_export export;
	struct error err;
	int rc;

	if (chunk->fd >= 0) {
		region->fd = chunk->fd;
		return name_device(region, chunk->span.start);
	}
	rc = device_export(region->client->driver, span, &export, &err);
	if (rc < 0)
		return client_fail(region->client, rc, "%s", err.message);
	region->kind = export.kind;
	region->fd = export.fd;
	if (export.kind == REGION_KIND_CUDA_FD)
		chunk->fd = export.fd;
	memcpy(region->handle, export.handle, sizeof region->handle);
	memcpy(region->device, export.device, sizeof region->device);
	return 0;
}

/* Registers a new region. The service may already know some of its chunks. */
static int register_spans(tma_client *client, uint64_t start, size_t size, unsigned flags,
                          const struct device_span *spans, size_t n, tma_region **ret)
{
	tma_region *region = NULL;
	bool any_stale = false;
	int rc = region_prepare(client, REGION_KIND_CUDA_FD, start - spans[0].start, size, flags, &region);

	if (rc < 0)
		return rc;
	rc = take_chunks(region, spans, n, &any_stale);
	if (any_stale)
		forget_stale(client);
	if (rc == 0)
		rc = n > 1 ? name_device(region, spans[0].start) : take_export(region, &spans[0]);
	if (rc == 0 && n == 1)
		region->allocation = spans[0].size;
	if (rc < 0) {
		region_free(region);
		return rc;
	}
	rc = region_finish(region, &region);
	if (rc == 0)
		rc = region_keep_range(region, start);
	if (rc == 0)
		*ret = region;
	return rc;
}

/* Makes the range a region of a "local:" client. It consists of addresses only, so nothing is exported. */
static int keep_here(tma_client *client, const void *device_ptr, size_t size, unsigned flags,
                     tma_region **ret)
{
	tma_region *region = NULL;
	int rc = region_share_here(client, REGION_KIND_CUDA_IPC, device_ptr, size, flags, &region);
	struct error why;

	if (rc < 0)
		return rc;
	rc = name_device(region, (uintptr_t)device_ptr);
	if (rc == 0) {
		*ret = region;
		return 0;
	}
	why = client->error;
	tma_region_release(region);
	client->error = why;
	return rc;
}

static bool is_unchanged(const tma_region *region, const struct device_span *spans, size_t n)
{
	bool is_same = region->n_chunks == n;

	for (size_t i = 0; is_same && i < n; i++) {
		const struct device_span *known = &region->chunks[i]->span;

		is_same = spans[i].id && known->id == spans[i].id && known->start == spans[i].start &&
		          known->size == spans[i].size;
	}
	return is_same;
}

int tma_region_from_device_ptr(tma_client *client, const void *device_ptr, size_t size, unsigned flags,
                               tma_region **ret)
{
	const uint64_t start = (uintptr_t)device_ptr;
	struct device_span *spans = NULL;
	tma_region *known;
	struct error err;
	size_t n = 0;
	int rc = client_check_ret(client, ret, "the region goes");

	if (rc == 0 && !device_ptr)
		rc = client_fail(client, STATUS_INVALID_ARGUMENT,
		                 "device_ptr is NULL; it is an address of device memory");
	if (rc == 0)
		rc = client_check_usable(client);
	if (rc == 0)
		rc = region_check_flags(client, flags);
	if (rc == 0)
		rc = client_find_driver(client);
	if (rc < 0)
		return rc;
	rc = device_walk(client->driver, device_ptr, size, &spans, &n, &err);
	if (rc < 0)
		return client_fail(client, rc, "%s", err.message);
	known = find_same(client, start, size, !(flags & TMA_REGION_READ_ONLY));
	if (known && (client->local || is_unchanged(known, spans, n))) {
		known->handles++;
		*ret = known;
	} else if (client->local) {
		rc = keep_here(client, device_ptr, size, flags, ret);
	} else {
		rc = register_spans(client, start, size, flags, spans, n, ret);
	}
	free(spans);
	return rc;
}

/* ---- By address -------------------------------------------------------------------------------------- */

bool region_add_range(tma_region *region, uint64_t start)
{
	tma_client *client = region->client;

	if (!range_set_add(region->writable ? &client->writable : &client->read_only, start, region->size,
	                   region))
		return false;
	region->address = start;
	return true;
}

int region_keep_range(tma_region *region, uint64_t start)
{
	tma_client *client = region->client;

	if (region_add_range(region, start))
		return 0;
	tma_region_release(region);
	return client_fail(client, STATUS_NO_MEMORY, "out of memory for a region");
}

void region_forget_range(tma_region *region)
{
	tma_client *client = region->client;

	if (region->address)
		range_set_remove(region->writable ? &client->writable : &client->read_only, region->address,
		                 region);
	region->address = 0;
}

/* Finds a range that contains all of the bytes, or returns NULL. If the search meets regions of host memory
 * that is no longer what was registered, it removes them from the range sets and sets *ret_stale to true. */
static const struct range *find(tma_client *client, uint64_t start, size_t size, bool *ret_stale)
{
	const struct range *range;

	for (;;) {
		range = range_set_find(&client->writable, start, size);
		if (!range)
			range = range_set_find(&client->read_only, start, size);
		if (!range || region_is_mapped(range->owner, start, size))
			return range;
		region_forget_range(range->owner);
		*ret_stale = true;
	}
}

static int fail_find(tma_client *client, const void *ptr, size_t size, bool is_stale)
{
	if (is_stale)
		return client_fail(client, STATUS_NOT_FOUND,
		                   "ptr: the %zu bytes at %p are no longer the memory that was registered",
		                   size, ptr);
	return client_fail(client, STATUS_NOT_FOUND, "ptr: no region of the client has %zu bytes at %p", size,
	                   ptr);
}

int tma_region_find(tma_client *client, const void *ptr, size_t size, struct tma_place *ret)
{
	const uint64_t start = (uintptr_t)ptr;
	const struct range *range;
	bool is_stale = false;
	int rc = client_check_ret(client, ret, "the place goes");

	if (rc < 0)
		return rc;
	range = find(client, start, size, &is_stale);
	if (!range)
		return fail_find(client, ptr, size, is_stale);
	*ret = (struct tma_place){ .region = range->owner, .offset = start - range->start };
	return 0;
}

/* Returns the index of the chunk that contains the address, which must lie in the region. */
static size_t chunk_index(const tma_region *region, uint64_t address)
{
	size_t low = 0, high = region->n_chunks - 1;

	while (low < high) {
		const size_t middle = low + (high - low + 1) / 2;

		if (region->chunks[middle]->span.start <= address)
			low = middle;
		else
			high = middle - 1;
	}
	return low;
}

/* Returns whether the driver confirms that the chunks that hold these bytes still exist. Marks those that
 * were freed as no longer current. A chunk without an id cannot be compared, and counts as freed. */
static bool is_confirmed(const tma_region *region, uint64_t start, size_t size)
{
	tma_client *client = region->client;
	bool is_same = true;

	if (region->n_chunks == 0)
		return true;
	for (size_t i = chunk_index(region, start); i < region->n_chunks; i++) {
		struct chunk *chunk = region->chunks[i];

		if (chunk->span.start > start && chunk->span.start - start >= size)
			break;
		if (chunk->span.id && device_is_current(client->driver, &chunk->span))
			continue;
		chunk_forget(client, chunk);
		is_same = false;
	}
	return is_same;
}

int tma_region_find_current(tma_client *client, const void *ptr, size_t size, struct tma_place *ret)
{
	const uint64_t start = (uintptr_t)ptr;
	const struct range *range;
	bool is_stale = false;
	int rc = client_check_ret(client, ret, "the place goes");

	if (rc < 0)
		return rc;
	while ((range = find(client, start, size, &is_stale)) && !is_confirmed(range->owner, start, size)) {
		forget_stale(client);
		is_stale = true;
	}
	if (!range)
		return fail_find(client, ptr, size, is_stale);
	*ret = (struct tma_place){ .region = range->owner, .offset = start - range->start };
	return 0;
}
