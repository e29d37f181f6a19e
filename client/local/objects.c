/* SPDX-License-Identifier: Apache-2.0 */
/* The regions, plans and tables of a session, by their ids. Nothing is locked as long as a single session
 * uses them. While late requests are under way, only their session removes objects, in the order in which the
 * program has released them (late.c), so an object that was found stays valid. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t local_lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t local_forks;

static void keep_still(void)
{
	pthread_mutex_lock(&local_lock);
}

static void go_on(void)
{
	pthread_mutex_unlock(&local_lock);
}

static void start_over(void)
{
	pthread_mutex_init(&local_lock, NULL);
	local_forks++;
}

/* The lock is held during a fork, so that the child finds the objects in a consistent state. */
__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(keep_still, go_on, start_over);
}

static void lock(const struct local_objects *objects)
{
	if (objects->is_shared)
		pthread_mutex_lock(&local_lock);
}

static void unlock(const struct local_objects *objects)
{
	if (objects->is_shared)
		pthread_mutex_unlock(&local_lock);
}

static void free_all(struct local_ids *ids)
{
	for (uint64_t i = 0; i < ids->n; i++)
		free(ids->objects[i]);
	free(ids->objects);
}

void local_objects_free(struct local_objects *objects)
{
	if (!objects)
		return;
	local_unpin_all(objects);
	free_all(&objects->plans);
	free_all(&objects->tables);
	free(objects->regions);
	free(objects);
}

/* ---- Ids ---------------------------------------------------------------------------------------------- */

static uint64_t add(struct local_ids *ids, void *object)
{
	uint64_t i = 0;
	void **grown;

	while (i < ids->n && ids->objects[i])
		i++;
	if (i == ids->n) {
		grown = realloc(ids->objects, (2 * i + 8) * sizeof *grown);
		if (!grown)
			return 0;
		memset(grown + i, 0, (i + 8) * sizeof *grown);
		ids->objects = grown;
		ids->n = 2 * i + 8;
	}
	ids->objects[i] = object;
	return i + 1;
}

uint64_t local_ids_add(struct local_session *session, struct local_ids *ids, void *object)
{
	uint64_t id;

	lock(session->objects);
	id = add(ids, object);
	unlock(session->objects);
	return id;
}

static void *find(const struct local_ids *ids, uint64_t id)
{
	return id > 0 && id <= ids->n ? ids->objects[id - 1] : NULL;
}

void *local_ids_find(const struct local_session *session, const struct local_ids *ids, uint64_t id)
{
	void *object;

	lock(session->objects);
	object = find(ids, id);
	unlock(session->objects);
	return object;
}

void *local_ids_take(struct local_session *session, struct local_ids *ids, uint64_t id)
{
	void *object;

	lock(session->objects);
	object = find(ids, id);
	if (object)
		ids->objects[id - 1] = NULL;
	unlock(session->objects);
	return object;
}

/* ---- Regions ------------------------------------------------------------------------------------------ */

static struct local_region *find_region(const struct local_objects *objects, uint64_t id)
{
	return id > 0 && id <= objects->n_regions && objects->regions[id - 1].size > 0
	           ? &objects->regions[id - 1]
	           : NULL;
}

bool local_region_find(const struct local_session *session, uint64_t id, struct local_region *ret)
{
	const struct local_region *region;

	lock(session->objects);
	region = find_region(session->objects, id);
	if (region)
		*ret = *region;
	unlock(session->objects);
	return region;
}

int local_region(const struct local_session *session, uint64_t id, const char *name, struct local_region *ret,
                 struct error *err)
{
	if (local_region_find(session, id, ret))
		return 0;
	return error_set(err, STATUS_NOT_FOUND, "%s: this connection has no region %" PRIu64, name, id);
}

static struct local_region *free_region(struct local_objects *objects)
{
	struct local_region *grown;
	const uint64_t n = objects->n_regions;

	for (; objects->first_free < n; objects->first_free++)
		if (objects->regions[objects->first_free].size == 0)
			return &objects->regions[objects->first_free];
	grown = realloc(objects->regions, (2 * n + 8) * sizeof *grown);
	if (!grown)
		return NULL;
	memset(grown + n, 0, (n + 8) * sizeof *grown);
	objects->regions = grown;
	objects->n_regions = 2 * n + 8;
	return &grown[n];
}

/* Returns the id of a new region, or 0 if out of memory. */
static uint64_t add_region(struct local_objects *objects, const struct local_region *new)
{
	struct local_region *region;

	lock(objects);
	region = free_region(objects);
	if (region)
		*region = *new;
	unlock(objects);
	return region ? (uint64_t)(region - objects->regions) + 1 : 0;
}

int local_map(struct local_session *session, const void *address, uint64_t size, bool writable, uint64_t *ret,
              struct error *err)
{
	const struct local_region region = { .start = (uint64_t)(uintptr_t)address,
		                             .size = size,
		                             .writable = writable };
	uint64_t id;

	if (size == 0 || region.start == 0 || region.start + size < region.start)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%" PRIu64 " bytes at %p are not a valid range of addresses", size, address);
	id = add_region(session->objects, &region);
	if (id == 0)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for a region");
	*ret = id;
	local_count(session, USAGE_REGIONS, 1);
	local_count(session, USAGE_MAPPED_BYTES, size);
	return 0;
}

static bool take_region(struct local_objects *objects, uint64_t id, uint64_t *ret_size)
{
	struct local_region *region;

	lock(objects);
	region = find_region(objects, id);
	if (region) {
		local_tables_forget(objects, id);
		*ret_size = region->size;
		*region = (struct local_region){ 0 };
		if (id - 1 < objects->first_free)
			objects->first_free = id - 1;
	}
	unlock(objects);
	return region;
}

int local_method_region_release(struct local_session *session, const union params *params,
                                union local_result *ret, struct error *err)
{
	const uint64_t id = params->region_release.region;
	uint64_t size = 0;

	if (id) /* Words are unpinned while no other region can have the id yet. */
		local_unpin(session->objects, id);
	if (!take_region(session->objects, id, &size))
		return error_set(err, STATUS_NOT_FOUND, "region: this connection has no region %" PRIu64, id);
	local_count(session, USAGE_REGIONS, -UINT64_C(1));
	local_count(session, USAGE_MAPPED_BYTES, -size);
	ret->region_released = (struct msg_region_released){ .state = REGION_STATE_CLOSED };
	return 0;
}

/* Lists all regions in session->entries, without their kinds, and sets *ret_n to their number. Returns false
 * if out of memory. */
static bool list_regions(struct local_session *session, uint32_t *ret_n)
{
	const struct local_objects *objects = session->objects;
	struct msg_region_entry *entries;

	lock(objects);
	entries = realloc(session->entries, (objects->n_regions + 1) * sizeof *entries);
	*ret_n = 0;
	for (uint64_t i = 0; entries && i < objects->n_regions; i++)
		if (objects->regions[i].size > 0)
			entries[(*ret_n)++] =
			    (struct msg_region_entry){ .region = i + 1,
				                       .size = objects->regions[i].size,
				                       .offset = objects->regions[i].start,
				                       .writable = objects->regions[i].writable,
				                       .state = REGION_STATE_OPEN };
	unlock(objects);
	if (entries)
		session->entries = entries;
	return entries;
}

int local_method_region_list(struct local_session *session, const union params *params,
                             union local_result *ret, struct error *err)
{
	uint32_t n;

	if (params->region_list.session)
		return error_set(err, STATUS_NOT_FOUND,
		                 "session: there is no connection %" PRIu64 ", or it belongs to another uid",
		                 params->region_list.session);
	if (!list_regions(session, &n))
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of regions");
	for (uint32_t i = 0; i < n; i++)
		session->entries[i].kind =
		    local_is_on_device(session->entries[i].offset) ? REGION_KIND_CUDA_IPC : REGION_KIND_MEMFD;
	ret->list = (struct message_list){ .items = session->entries, .n = n };
	return 0;
}
