/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps chunks by their addresses, and records by which regions the service knows them. */
#include "chunk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "client.h"

struct chunk *chunk_new(const struct device_span *span, int fd)
{
	struct chunk *chunk = calloc(1, sizeof *chunk);

	if (chunk)
		*chunk = (struct chunk){ .refs = 1, .fd = fd, .span = *span };
	else if (fd >= 0)
		close(fd);
	return chunk;
}

/* Marks the chunks that overlap the span, except that of the span's own allocation, as no longer current,
 * because their memory was freed. Returns whether there were any. */
static bool forget_others(tma_client *client, const struct device_span *span)
{
	struct range_set *set = &client->chunks;
	size_t i = range_set_from(set, span->start);
	bool any = false;

	if (i > 0 && set->ranges[i - 1].end > span->start)
		i--;
	while (i < set->n && set->ranges[i].start < span->start + span->size) {
		struct chunk *chunk = set->ranges[i].owner;

		if (span->id && chunk->span.id == span->id && chunk->span.size == span->size) {
			i++;
			continue;
		}
		chunk_forget(client, chunk);
		any = true;
	}
	return any;
}

struct chunk *chunk_at(tma_client *client, const struct device_span *span, bool *ret_stale)
{
	const struct range *known;
	struct chunk *chunk;

	if (forget_others(client, span))
		*ret_stale = true;
	known = range_set_find(&client->chunks, span->start, span->size);
	if (known) {
		chunk = known->owner;
		chunk->refs++;
		return chunk;
	}
	chunk = chunk_new(span, -1);
	if (!chunk)
		return NULL;
	if (!range_set_add(&client->chunks, span->start, span->size, chunk)) {
		free(chunk);
		return NULL;
	}
	chunk->is_current = true;
	return chunk;
}

void chunk_forget(tma_client *client, struct chunk *chunk)
{
	if (chunk->is_current)
		range_set_remove(&client->chunks, chunk->span.start, chunk);
	chunk->is_current = false;
}

void chunk_unref(tma_client *client, struct chunk *chunk)
{
	if (--chunk->refs > 0)
		return;
	chunk_forget(client, chunk);
	if (chunk->fd >= 0)
		close(chunk->fd);
	free(chunk);
}

bool chunk_is_known(const tma_client *client, const struct chunk *chunk)
{
	return chunk->home && chunk->home->life == REGION_KNOWN &&
	       chunk->home->connection == client->connection;
}

int chunk_check_current(tma_client *client, const struct chunk *chunk, size_t i)
{
	if (device_is_current(client->driver, &chunk->span))
		return 0;
	return client_fail(client, STATUS_INVALID_ARGUMENT,
	                   "device_ptr: allocation %zu of the region, at %#" PRIx64
	                   ", is no longer the one that was registered",
	                   i, chunk->span.start);
}

int chunk_export(tma_client *client, const struct chunk *chunk, size_t i, int *ret, bool *ret_is_new)
{
	struct device_export export;
	struct error err;
	int rc;

	*ret_is_new = chunk->fd < 0;
	*ret = chunk->fd;
	if (chunk->fd >= 0)
		return 0;
	rc = chunk_check_current(client, chunk, i);
	if (rc < 0)
		return rc;
	rc = device_export(client->driver, &chunk->span, &export, &err);
	if (rc < 0)
		return client_fail(client, rc, "allocation %zu of the region, at %#" PRIx64 ": %s", i,
		                   chunk->span.start, err.message);
	if (export.kind != REGION_KIND_CUDA_FD) {
		if (export.fd >= 0)
			close(export.fd);
		return client_fail(client, STATUS_UNSUPPORTED,
		                   "device_ptr: allocation %zu of the region, at %#" PRIx64
		                   ", is not of cuMemCreate; only such can be parts of a region",
		                   i, chunk->span.start);
	}
	*ret = export.fd;
	return 0;
}

/* ---- Of a region's chunks -------------------------------------------------------------------------- */

int region_reserve_chunks(tma_region *region, size_t n)
{
	region->chunks = calloc(n, sizeof *region->chunks);
	if (!region->chunks)
		return client_fail(region->client, STATUS_NO_MEMORY,
		                   "out of memory for a region of %zu allocations", n);
	return 0;
}

void region_settle_chunks(tma_region *region)
{
	uint64_t at = 0;

	for (size_t i = 0; i < region->n_chunks; i++) {
		struct chunk *chunk = region->chunks[i];

		if (!chunk_is_known(region->client, chunk)) {
			chunk->home = region;
			chunk->home_at = at;
		}
		at += chunk->span.size;
	}
}

void region_free_chunks(tma_region *region)
{
	tma_client *client = region->client;
	bool has_others = false;

	for (size_t i = 0; i < region->n_chunks; i++) {
		struct chunk *chunk = region->chunks[i];

		if (chunk->home == region)
			chunk->home = NULL;
		has_others = has_others || (!chunk->home && chunk->refs > 1);
	}
	for (tma_region *other = client->regions; has_others && other; other = other->next)
		if (other != region && other->life == REGION_KNOWN && other->connection == client->connection)
			region_settle_chunks(other);
	for (size_t i = 0; i < region->n_chunks; i++)
		chunk_unref(client, region->chunks[i]);
	free(region->chunks);
	region->chunks = NULL;
	region->n_chunks = 0;
}
