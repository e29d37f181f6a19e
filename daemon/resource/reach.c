/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the sources of regions, and maps them for further devices. */
#include "reach.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/net/session.h"
#include "daemon/server.h"

/* What a region is mapped from once more. */
struct region_source {
	struct engine_handle handle; /* fd: -1, or the source's own */
	char handle_bytes[ENGINE_HANDLE_BYTES];
	struct engine_part
	    part; /* handle.parts, if there are any: all that the region's memory consists of */
};

enum reach_state { REACH_UNDER_WAY, REACH_DONE, REACH_FAILED };

/* A mapping for one device. */
struct reach {
	struct chore chore;
	LIST_ENTRY(reach) entry; /* in session->reaching while it is under way */
	struct region *region;
	uint32_t device;
	uint64_t request; /* session->asking of the one that waits for it */
	enum reach_state state;
	bool is_sealing; /* the file had not been sealed before; it may still be, when that took too long */
	struct engine_handle handle;
	atomic_bool unwanted; /* handle.unwanted */
	struct charge count;
	struct charge fds;            /* that the engine keeps to map it again */
	struct engine_memory *memory; /* NULL: it is not mapped; of the region's own device, the region's */
	struct error err;
};

static bool map(struct chore *chore);
static bool settle(struct chore *chore);
static void on_mapped(struct chore *chore);

/* ---- What is kept -------------------------------------------------------------------------------------- */

static void keep_parts(struct region_source *source, struct engine_memory *memory)
{
	const struct memory_chunks *chunks = memory->chunks;
	const struct memory_chunk *last = &chunks->by_place[chunks->n - 1];

	source->part = (struct engine_part){ .fd = -1, .memory = memory, .size = last->at + last->size };
	source->handle.parts = &source->part;
	source->handle.n_parts = 1;
}

void region_keep_source(struct region *region, const struct engine_handle *handle)
{
	struct region_source *source = region->server->devices.n > 1 ? calloc(1, sizeof *source) : NULL;

	if (!source)
		return;
	source->handle = *handle;
	source->handle.unwanted = NULL;
	source->handle.is_peer = true;
	if (handle->handle.len > 0)
		memcpy(source->handle_bytes, handle->handle.data, handle->handle.len);
	source->handle.handle.data = source->handle_bytes;
	if (handle->n_parts > 0)
		keep_parts(source, region->memory);
	region->source = source;
}

/* ---- Mapping ------------------------------------------------------------------------------------------- */

static struct reach *reach_of(struct chore *chore)
{
	return (struct reach *)((char *)chore - offsetof(struct reach, chore));
}

static const char *uuid_of(const struct region *region, uint32_t device)
{
	return device_engine(&region->server->devices, device)->uuid;
}

int region_may_reach(const struct region *region, uint32_t device, struct error *err)
{
	const struct served_device *other = &region->server->devices.of[device];

	if (region->device == device)
		return 0;
	if (!region->memory->host && other->links[region->device].kind == ENGINE_LINK_NONE)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "region %" PRIu64
		                 " is on device %s, whose memory device %s cannot reach: there is no peer "
		                 "access between them",
		                 region->id, uuid_of(region, region->device), uuid_of(region, device));
	if (!region->source)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "region %" PRIu64
		                 " cannot be mapped for device %s: what it was registered by was not kept",
		                 region->id, uuid_of(region, device));
	return 0;
}

static void forget(struct region *region, uint32_t device)
{
	free(region->reaches[device]);
	region->reaches[device] = NULL;
}

static void release_charges(struct reach *reach)
{
	charge_release(&reach->count);
	charge_release(&reach->fds);
}

static int take_charges(struct reach *reach, struct error *err)
{
	struct accounts *accounts = &reach->region->server->accounts;
	struct account *account = reach->region->session->account;
	int r = charge_take(&reach->count, accounts, account, CHARGE_REGIONS, 1, err);

	if (r == 0 && reach->handle.fd >= 0)
		r = charge_take(&reach->fds, accounts, account, CHARGE_REGION_FDS, 1, err);
	if (r < 0)
		charge_release(&reach->count);
	return r;
}

static struct reach *reach_new(uint32_t device, struct engine_memory *memory)
{
	struct reach *reach = calloc(1, sizeof *reach);

	if (!reach)
		return NULL;
	reach->device = device;
	reach->memory = memory;
	reach->state = REACH_DONE;
	return reach;
}

/* memory is NULL if it is still to be mapped. */
static struct reach *add(struct region *region, uint32_t device, struct engine_memory *memory,
                         struct error *err)
{
	struct reach *reach = reach_new(device, memory);

	if (!region->reaches)
		region->reaches = calloc(region->server->devices.n, sizeof(*region->reaches));
	if (!reach || !region->reaches) {
		error_set(err, STATUS_NO_MEMORY, "no memory to map a region for a device");
		free(reach);
		return NULL;
	}
	reach->region = region;
	region->reaches[device] = reach;
	return reach;
}

void reaches_free(const struct devices *devices, struct reach **reaches)
{
	for (uint32_t i = 0; reaches && i < devices->n; i++)
		free(reaches[i]);
	free(reaches);
}

struct reach **reaches_new(const struct devices *devices, struct engine_memory *const *memories)
{
	struct reach **reaches = calloc(devices->n, sizeof(*reaches));
	bool is_whole = reaches;

	for (uint32_t i = 0; is_whole && i < devices->n; i++)
		if (memories[i]) {
			reaches[i] = reach_new(i, memories[i]);
			is_whole = reaches[i];
		}
	if (is_whole)
		return reaches;
	reaches_free(devices, reaches);
	return NULL;
}

void region_adopt(struct region *region, struct reach **reaches)
{
	for (uint32_t i = 0; i < region->server->devices.n; i++)
		if (reaches[i])
			reaches[i]->region = region;
	region->reaches = reaches;
}

static void start(struct reach *reach, bool (*step)(struct chore *chore))
{
	struct region *region = reach->region;
	struct session *session = region->session;

	reach->state = REACH_UNDER_WAY;
	reach->request = session->asking;
	reach->err.status = 0;
	reach->chore = (struct chore){ .step = step, .on_done = on_mapped };
	region_use(region);
	session->mappings++;
	LIST_INSERT_HEAD(&session->reaching, reach, entry);
	chores_add(&session->server->chores, session->account, &reach->chore);
}

static int start_mapping(struct region *region, uint32_t device, struct error *err)
{
	struct reach *reach;

	if (region_may_reach(region, device, err) < 0)
		return err->status;
	reach = add(region, device, NULL, err);
	if (!reach)
		return err->status;
	reach->handle = region->source->handle;
	reach->handle.unwanted = &reach->unwanted;
	if (take_charges(reach, err) < 0) {
		forget(region, device);
		return err->status;
	}
	start(reach, map);
	return err->status = REACH_LATER;
}

/* A device that is away would come back to a file that it cannot map any more. */
static int start_settling(struct reach *reach, struct error *err)
{
	const struct engine *engine = device_engine(&reach->region->server->devices, reach->device);

	if (engine->lost)
		return error_set(err, STATUS_DEVICE_LOST, "the device is lost and not back yet: %.200s",
		                 engine->lost_why);
	start(reach, settle);
	return err->status = REACH_LATER;
}

/* What failed is tried again for a later request. */
static struct reach *forget_failure(struct reach *reach)
{
	if (!reach->memory) {
		forget(reach->region, reach->device);
		return NULL;
	}
	reach->state = REACH_DONE; /* it is still mapped, and loose */
	return reach;
}

int region_reach_further(struct region *region, uint32_t device, struct error *err)
{
	struct reach *reach = region->reaches ? region->reaches[device] : NULL;

	if (reach && reach->state == REACH_FAILED) {
		if (reach->request == region->session->asking) {
			*err = reach->err;
			return err->status;
		}
		reach = forget_failure(reach);
	}
	if (!reach && region->device == device)
		reach = add(region, device, region->memory, err);
	else if (!reach)
		return start_mapping(region, device, err);
	if (!reach)
		return err->status;
	if (reach->state == REACH_UNDER_WAY)
		return err->status = REACH_LATER;
	return atomic_load(&reach->memory->is_loose) ? start_settling(reach, err) : 0;
}

struct engine_memory *region_memory_further(const struct region *region, uint32_t device)
{
	return region->reaches[device]->memory;
}

static bool map(struct chore *chore)
{
	struct reach *reach = reach_of(chore);
	struct engine *engine = device_engine(&reach->region->server->devices, reach->device);
	struct error why;

	if (atomic_load(&reach->unwanted)) {
		error_set(&reach->err, STATUS_CANCELED, "nobody is waiting for the memory any longer");
		return true;
	}
	if (engine_map(engine, &reach->handle, &reach->memory, &why) < 0) {
		reach->memory = NULL;
		error_set(&reach->err, why.status, "region %" PRIu64 " cannot be mapped for device %s: %s",
		          reach->region->id, engine->uuid, why.message);
	}
	return true;
}

/* What is under way keeps the memory. A file that cannot be sealed now may be later, and is asked again. */
static bool settle(struct chore *chore)
{
	struct reach *reach = reach_of(chore);
	struct engine *engine = device_engine(&reach->region->server->devices, reach->device);
	struct error why;
	int r;

	reach->is_sealing = engine_memory_may_stall(reach->memory);
	r = engine_memory_seal(reach->memory, &reach->unwanted, &why);
	if (r == 0)
		r = engine_settle(engine, reach->memory, &reach->unwanted, &why);
	if (r < 0)
		error_set(&reach->err, r, "region %" PRIu64 ": %s", reach->region->id, why.message);
	return true;
}

/* The file may be that of several regions. */
static void note_sealed_here(struct session *session, const struct engine_memory *memory)
{
	struct region *region;
	uint32_t cursor = 0;

	while ((region = region_table_next(&session->regions, &cursor)))
		if (region->memory->host && region->memory->memory[0] == memory->memory[0] &&
		    region->memory->memory[1] == memory->memory[1])
			region->is_sealed_here = true;
}

static void on_mapped(struct chore *chore)
{
	struct reach *reach = reach_of(chore);
	struct region *region = reach->region;
	struct session *session = region->session;

	LIST_REMOVE(reach, entry);
	session->mappings--;
	reach->state = reach->err.status == 0 ? REACH_DONE : REACH_FAILED;
	if (reach->is_sealing)
		note_sealed_here(session, region->memory);
	if (!reach->memory)
		release_charges(reach);
	region_unuse(region);
	session_on_memory(session);
	session_settle(session);
}

static bool is_gone(const struct region *region)
{
	bool is = atomic_load(&region->memory->is_gone);

	for (uint32_t i = 0; region->reaches && i < region->server->devices.n; i++)
		if (region->reaches[i] && region->reaches[i]->state == REACH_DONE)
			is |= atomic_load(&region->reaches[i]->memory->is_gone);
	return is;
}

bool region_is_to_move(const struct region *region)
{
	struct engine_memory *memory = region->memory;

	return is_gone(region) && memory->host && memory->seals >= 0 && !engine_memory_may_stall(memory) &&
	       !region->is_sealed_here;
}

void session_give_up_reaching(struct session *session)
{
	struct reach *reach;

	LIST_FOREACH(reach, &session->reaching, entry)
		atomic_store(&reach->unwanted, true);
}

/* ---- The end ------------------------------------------------------------------------------------------- */

/* A descriptor that was mapped is of a file in memory or of the driver: its close keeps nobody waiting. */
static void close_source(struct region_source *source)
{
	if (source->handle.fd >= 0)
		close(source->handle.fd);
	source->handle.fd = -1;
}

bool region_unmap_further(struct region *region)
{
	const struct devices *devices = &region->server->devices;

	for (uint32_t i = 0; region->reaches && i < devices->n; i++) {
		struct reach *reach = region->reaches[i];

		if (!reach || !reach->memory || i == region->device)
			continue;
		if (engine_unmap_step(device_engine(devices, i), reach->memory))
			reach->memory = NULL;
		return false;
	}
	if (region->source)
		close_source(region->source);
	return true;
}

void region_forget_source(struct region *region)
{
	for (uint32_t i = 0; region->reaches && i < region->server->devices.n; i++) {
		if (region->reaches[i])
			release_charges(region->reaches[i]);
		free(region->reaches[i]);
	}
	free(region->reaches);
	free(region->source);
}
