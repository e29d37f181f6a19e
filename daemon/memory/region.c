/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of ids, the life of regions, and mappings of regions for further devices. */
#include "region.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "service.h"
#include "session.h"

/* ==== Tables of ids ================================================================================== */

/* The slots are an array that doubles when it is full. Free slots form a linked list. */

/* Slots are numbered from 1, so that no id is 0. The number of a slot has this many bits. */
#define SLOT_BITS   20
#define SLOT_MASK   ((UINT64_C(1) << SLOT_BITS) - 1)
#define FIRST_SLOTS 4

void id_table_deinit(struct id_table *table)
{
	assert(table->used == 0);
	free(table->slots);
}

/* Doubles the number of slots. There must be no free slot. */
static int grow(struct id_table *table, const char *nouns, struct error *err)
{
	uint32_t n = table->n_slots ? 2 * table->n_slots : FIRST_SLOTS;
	struct id_slot *slots;

	if (n > SLOT_MASK)
		return error_set(err, STATUS_QUOTA, "%" PRIu32 " %s on one connection", table->used, nouns);
	slots = realloc(table->slots, n * sizeof *slots);
	if (!slots)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " %s", n, nouns);
	for (uint32_t i = table->n_slots; i < n; i++)
		slots[i] = (struct id_slot){ .id = i + 2 };
	slots[n - 1].id = table->first_free;
	table->first_free = table->n_slots + 1;
	table->slots = slots;
	table->n_slots = n;
	return 0;
}

int id_table_add(struct id_table *table, void *object, const char *nouns, uint64_t *ret_id, struct error *err)
{
	struct id_slot *slot;
	uint32_t number;
	int r = table->first_free ? 0 : grow(table, nouns, err);

	if (r < 0)
		return r;
	number = table->first_free;
	slot = &table->slots[number - 1];
	table->first_free = (uint32_t)slot->id;
	*slot = (struct id_slot){ object, table->generation++ << SLOT_BITS | number };
	table->used++;
	*ret_id = slot->id;
	return 0;
}

void *id_table_find(const struct id_table *table, uint64_t id)
{
	uint64_t i = (id & SLOT_MASK) - 1;

	return i < table->n_slots && table->slots[i].id == id ? table->slots[i].object : NULL;
}

void id_table_remove(struct id_table *table, uint64_t id)
{
	uint32_t number = (uint32_t)(id & SLOT_MASK);

	assert(id_table_find(table, id));
	table->slots[number - 1] = (struct id_slot){ .id = table->first_free };
	table->first_free = number;
	table->used--;
}

void *id_table_next(const struct id_table *table, uint32_t *cursor)
{
	while (*cursor < table->n_slots) {
		void *object = table->slots[(*cursor)++].object;

		if (object)
			return object;
	}
	return NULL;
}

/* ==== Regions ======================================================================================== */

/* A region ends in two steps: region_close removes it from its session's table, then a chore unmaps it. */

static void region_forget_source(struct region *region);
static bool region_unmap_further(struct region *region);
static void on_unmapped(struct chore *chore);

void region_table_init(struct region_table *table, struct session *session)
{
	*table = (struct region_table){ .session = session };
}

void region_table_deinit(struct region_table *table)
{
	assert(table->mapped_bytes == 0);
	id_table_deinit(&table->ids);
}

void region_charges_release(struct region_charges *charges)
{
	charge_release(&charges->count);
	charge_release(&charges->bytes);
	charge_release(&charges->created);
	charge_release(&charges->pool);
	charge_release(&charges->fds);
}

int region_table_add(struct region_table *table, uint32_t device, struct engine_memory *memory,
                     struct region_charges *charges, struct region **ret, struct error *err)
{
	struct service *service = table->session->service;
	struct served_device *on = &service->devices.of[device];
	struct region *region;
	int r;

	region = calloc(1, sizeof *region);
	if (!region)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a region");
	r = id_table_add(&table->ids, region, "regions", &region->id, err);
	if (r < 0) {
		free(region);
		return r;
	}

	region->service = service;
	region->session = table->session;
	region->device = device;
	region->memory = memory;
	region->charges = *charges;
	*charges = (struct region_charges){ 0 };
	service->n_regions++;
	service->mapped_bytes += memory->size;
	on->regions++;
	on->mapped_bytes += memory->size;
	table->mapped_bytes += memory->size;
	*ret = region;
	return 0;
}

int region_table_find(struct region_table *table, uint64_t id, const char *name, struct region **ret,
                      struct error *err)
{
	struct region *region = id_table_find(&table->ids, id);

	if (!region || region->is_bounce)
		return error_set(err, STATUS_NOT_FOUND, "%s: this connection has no region %" PRIu64, name,
		                 id);
	if (region->state != REGION_STATE_OPEN)
		return error_set(err, STATUS_NOT_FOUND, "%s: region %" PRIu64 " has been released", name, id);
	*ret = region;
	return 0;
}

int region_check_writable(const struct region *region, const char *name, struct error *err)
{
	if (region->memory->writable)
		return 0;
	return error_set(err, STATUS_PERMISSION,
	                 "%s: region %" PRIu64 " is read-only (registered with writable=false)", name,
	                 region->id);
}

struct region *region_table_next(const struct region_table *table, uint32_t *cursor)
{
	return id_table_next(&table->ids, cursor);
}

/* ---- The end of a region ------------------------------------------------------------------------------ */

static struct region *region_of(struct chore *chore)
{
	return (struct region *)((char *)chore - offsetof(struct region, unmapping));
}

static bool unmap(struct chore *chore)
{
	struct region *region = region_of(chore);

	return region_unmap_further(region) &&
	       engine_unmap_step(device_engine(&region->service->devices, region->device), region->memory);
}

static void region_close(struct region *region)
{
	struct account *account = region->session->account;
	struct served_device *on = &region->service->devices.of[region->device];

	id_table_remove(&region->session->regions.ids, region->id);
	region->session->regions.mapped_bytes -= region->memory->size;
	region->session = NULL;
	region->state = REGION_STATE_CLOSED;
	region->service->mapped_bytes -= region->memory->size;
	on->mapped_bytes -= region->memory->size;
	region->unmapping = (struct chore){ .step = unmap, .on_done = on_unmapped };
	chores_add(&region->service->chores, account, &region->unmapping);
}

static void on_unmapped(struct chore *chore)
{
	struct region *region = region_of(chore);

	region->service->n_regions--;
	region->service->devices.of[region->device].regions--;
	region_forget_source(region);
	region_charges_release(&region->charges);
	if (region->on_closed)
		region->on_closed(region->on_closed_arg);
	free(region);
}

enum region_state region_release(struct region *region)
{
	if (region->jobs > 0 || region->tables > 0)
		return region->state = REGION_STATE_DRAINING;
	region_close(region);
	return REGION_STATE_CLOSED;
}

void region_when_closed(struct region *region, void (*on_closed)(void *arg), void *arg)
{
	assert(region->state == REGION_STATE_CLOSED);
	region->on_closed = on_closed;
	region->on_closed_arg = arg;
}

void region_table_release_all(struct region_table *table)
{
	struct region *region;
	uint32_t cursor = 0;

	while ((region = region_table_next(table, &cursor)))
		region_release(region);
}

static void close_unused(struct region *region)
{
	if (region->jobs == 0 && region->tables == 0 && region->state == REGION_STATE_DRAINING)
		region_close(region);
}

void region_use(struct region *region)
{
	region->jobs++;
}

void region_unuse(struct region *region)
{
	assert(region->jobs > 0);
	region->jobs--;
	close_unused(region);
}

void region_join_table(struct region *region)
{
	region->tables++;
}

void region_leave_table(struct region *region)
{
	assert(region->tables > 0);
	region->tables--;
	close_unused(region);
}

/* ==== Further devices ================================================================================ */

/* The handle from which further devices map a region. */
struct region_source {
	struct engine_handle handle;            /* fd belongs to the source; -1: there is none */
	char handle_bytes[ENGINE_HANDLE_BYTES]; /* the bytes that handle.handle points to */
	/* The only element of handle.parts: all allocations of the region's own memory. Unused if the region
	 * was not registered as parts. */
	struct engine_part part;
};

/* A mapping under way is queued or running as a chore. A failed one keeps its error until the next try. */
enum reach_state { REACH_UNDER_WAY, REACH_DONE, REACH_FAILED };

/* The state of a region on one device: a mapping for a further device, or the settling of loose memory, which
 * may also be on the region's own device. */
struct reach {
	struct chore chore;      /* maps or settles the memory */
	LIST_ENTRY(reach) entry; /* in session->reaching while the chore is under way */
	struct region *region;
	uint32_t device;
	uint64_t request; /* session->asking of the request that started the chore */
	enum reach_state state;
	/* The file was not sealed before the chore tried to seal it. It may be sealed later even if the
	 * attempt failed because it took too long. */
	bool is_sealing;
	struct engine_handle handle;
	atomic_bool unwanted;         /* nobody waits for the mapping any more; handle.unwanted points here */
	struct charge count;          /* one region */
	struct charge fds;            /* the descriptor that the engine keeps to map the memory again */
	struct engine_memory *memory; /* NULL: not mapped; on the region's own device, region->memory */
	struct error err;             /* why the chore failed; status is 0 if it did not */
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
	struct region_source *source = region->service->devices.n > 1 ? calloc(1, sizeof *source) : NULL;

	if (!source) {
		if (handle->fd >= 0)
			close(handle->fd);
		return;
	}
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
	return device_engine(&region->service->devices, device)->uuid;
}

int region_may_reach(const struct region *region, uint32_t device, struct error *err)
{
	const struct served_device *other = &region->service->devices.of[device];

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
	struct accounts *accounts = &reach->region->service->accounts;
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

/* Adds a reach for the device to the region. memory is NULL if it has yet to be mapped. Returns NULL with
 * *err set if out of memory. */
static struct reach *add(struct region *region, uint32_t device, struct engine_memory *memory,
                         struct error *err)
{
	struct reach *reach = reach_new(device, memory);

	if (!region->reaches)
		region->reaches = calloc(region->service->devices.n, sizeof(*region->reaches));
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
	for (uint32_t i = 0; i < region->service->devices.n; i++)
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
	chores_add(&session->service->chores, session->account, &reach->chore);
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

/* Starts sealing and settling. Returns DEVICE_LOST if the device is lost: when it comes back it maps all
 * memory again, and it could not map a file that has been sealed in the meantime. */
static int start_settling(struct reach *reach, struct error *err)
{
	const struct engine *engine = device_engine(&reach->region->service->devices, reach->device);

	if (engine->lost)
		return error_set(err, STATUS_DEVICE_LOST, "the device is lost and not back yet: %.200s",
		                 engine->lost_why);
	start(reach, settle);
	return err->status = REACH_LATER;
}

/* Forgets a failure, so that a later request tries again. Returns NULL if the memory must be mapped again. */
static struct reach *forget_failure(struct reach *reach)
{
	if (!reach->memory) {
		forget(reach->region, reach->device);
		return NULL;
	}
	reach->state = REACH_DONE; /* the memory is still mapped, and loose */
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
	struct engine *engine = device_engine(&reach->region->service->devices, reach->device);
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

/* Runs as a chore: seals and settles loose memory. Until the chore has ended, region_use keeps the region
 * mapped. A file that cannot be sealed now may be sealable later, so each later request tries again. */
static bool settle(struct chore *chore)
{
	struct reach *reach = reach_of(chore);
	struct engine *engine = device_engine(&reach->region->service->devices, reach->device);
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

/* Notes in every region of the same file that the service has sealed it. */
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

	for (uint32_t i = 0; region->reaches && i < region->service->devices.n; i++)
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

/* Closes the descriptor without a further chore: it is a file in memory or a descriptor of the driver,
 * because engines map nothing else, and closing these does not block for long. */
static void close_source(struct region_source *source)
{
	if (source->handle.fd >= 0)
		close(source->handle.fd);
	source->handle.fd = -1;
}

/* Does one step of unmapping, off the loop. Returns whether nothing but the region's own memory is left
 * mapped. */
static bool region_unmap_further(struct region *region)
{
	const struct devices *devices = &region->service->devices;

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

/* Frees the reaches and the source. Called on the loop after the last step of unmapping. */
static void region_forget_source(struct region *region)
{
	for (uint32_t i = 0; region->reaches && i < region->service->devices.n; i++) {
		if (region->reaches[i])
			release_charges(region->reaches[i]);
		free(region->reaches[i]);
	}
	free(region->reaches);
	free(region->source);
}
