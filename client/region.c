/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: memory that the client and the service share. A region's handle lives until it is released or its
 * client is freed; it holds what a later connection needs to register the memory again. region_create.c and
 * region_register.c make regions. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int region_new(tma_client *client, size_t size, tma_region **ret)
{
	tma_region *region = calloc(1, sizeof *region);

	if (!region)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for a region");
	region->client = client;
	region->size = size;
	region->writable = true;
	region->fd = region->left_fd = -1;
	region->next = client->regions;
	client->regions = region;
	*ret = region;
	return 0;
}

static int on_region_released(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                              void *arg, struct error *err)
{
	struct msg_region_released done;

	(void)client;
	(void)arg;
	return rpc_decode_result(reply, method, &done, err);
}

/* Releases the region on both sides. The service has released it already if its connection has ended. */
static int region_close(tma_region *region)
{
	tma_client *client = region->client;
	struct msg_region_release params = { .has = F(region_release, region), .region = region->id };
	bool stale = region->connection != client->connection || client->sock < 0 || client->is_device_lost;
	bool was_bound = client->is_bound;
	int rc;

	if (client->local)
		client_flush(client); /* Requests kept for a batch may name the memory. */
	region_free(region);
	if (stale)
		return 0;
	client->is_bound = true;
	rc = client_call(client, &(struct call){ .method = METHOD_region_release,
	                                         .params = &params,
	                                         .fd = -1,
	                                         .on_reply = on_region_released });
	client->is_bound = was_bound;
	return rc == STATUS_DISCONNECTED ? 0 : rc;
}

void region_free(tma_region *region)
{
	tma_region **link = &region->client->regions;

	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	launch_forget_region(region);
	client_forget_region(region->client, region);
	region_forget_range(region);
	region_unmap(region);
	if (region->data)
		munmap(region->data, region->size);
	if (region->fd >= 0 && (region->n_chunks == 0 || region->fd != region->chunks[0]->fd))
		close(region->fd);
	if (region->left_fd >= 0)
		close(region->left_fd);
	region_free_chunks(region);
	free(region);
}

void client_free_regions(tma_client *client)
{
	while (client->regions)
		region_free(client->regions);
}

int tma_region_release(tma_region *region)
{
	if (region && region->handles > 0) {
		region->handles--;
		return 0;
	}
	return region ? region_close(region) : 0;
}

/* ---- What a region is ------------------------------------------------------------------------------- */

void *tma_region_data(const tma_region *region)
{
	return region ? region->data : NULL;
}

size_t tma_region_size(const tma_region *region)
{
	return region ? region->size : 0;
}

const char *tma_region_device(const tma_region *region)
{
	return region ? region->device : "";
}

enum tma_region_kind tma_region_kind(const tma_region *region)
{
	return region ? (enum tma_region_kind)(region->kind + 1) : TMA_REGION_ANY;
}

/* The region is const to the program, but the library records in it that others may have the descriptor. */
int tma_region_fd(const tma_region *region)
{
	if (!region)
		return -1;
	region_give_fd((tma_region *)region);
	return region->fd;
}

const void *tma_region_handle(const tma_region *region)
{
	const bool has_handle = region && region->kind == REGION_KIND_CUDA_IPC && !region->client->local;

	return has_handle ? region->handle : NULL;
}

/* ---- In requests ------------------------------------------------------------------------------------ */

int region_param(tma_client *client, tma_region *region, const char *name, uint64_t *ret)
{
	if (region->client != client)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.region: it belongs to another client",
		                   name);
	if (client->launching)
		return launch_region(client, region, ret);
	if (region->life == REGION_GONE)
		return client_fail(client, region->error.status,
		                   "%s.region: it could not be registered again: %s", name,
		                   region->error.message);
	if (atomic_load_explicit(&region->sealing, memory_order_relaxed) == SEALING_ASKED)
		region_seal(region);
	*ret = region->id;
	return 0;
}

int place_check(tma_client *client, const struct tma_place *place, const char *name)
{
	char field[32];

	if (reserved_check(client, place->reserved, COUNT(place->reserved), name) == 0)
		return 0;
	snprintf(field, sizeof field, "%s.reserved", name);
	return reserved_check(client, place->reserved, COUNT(place->reserved), field);
}

int place_param(tma_client *client, struct tma_place place, const char *name, struct region_place *ret)
{
	int rc = place_check(client, &place, name);

	if (rc < 0)
		return rc;
	if (!place.region && (client->local || client->launching)) { /* The place is an address. */
		*ret = (struct region_place){ .offset = place.offset };
		return 0;
	}
	if (!place.region)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s.region is NULL; a place is a byte of a region", name);
	ret->offset = place.offset;
	return region_param(client, place.region, name, &ret->region);
}
