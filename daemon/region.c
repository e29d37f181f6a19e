/* The table of a connection's regions, and how a region ends. */
#include "region.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "server.h"
#include "session.h"

/* An id is a generation above a slot's number, which starts at 1 so that no id is 0. */
#define SLOT_BITS 20
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)

static void on_unmapped(uv_work_t *work, int status);

void region_table_init(struct region_table *table, struct session *session)
{
	*table = (struct region_table){ .session = session };
}

void region_table_deinit(struct region_table *table)
{
	assert(table->used == 0);
	free(table->slots);
}

/* A free slot's index, or QUOTA or NO_MEMORY. */
static int64_t find_slot(struct region_table *table, struct error *err)
{
	uint32_t n = table->n_slots;
	struct region **slots;

	if (table->used < n)
		for (uint32_t i = 0; i < n; i++)
			if (!table->slots[i])
				return i;

	n = n ? 2 * n : 4;
	if (n >= SLOT_MASK)
		return error_set(err, STATUS_QUOTA, "%" PRIu32 " regions on one connection", table->used);
	slots = realloc(table->slots, n * sizeof *slots);
	if (!slots)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a region");
	memset(slots + table->n_slots, 0, (n - table->n_slots) * sizeof *slots);
	table->slots = slots;
	table->n_slots = n;
	return table->used;
}

int region_table_add(struct region_table *table, struct engine_memory *memory, struct charge *count,
                     struct charge *bytes, struct region **ret, struct error *err)
{
	struct server *server = table->session->server;
	struct region *region;
	int64_t slot = find_slot(table, err);

	if (slot < 0)
		return (int)slot;
	region = calloc(1, sizeof *region);
	if (!region)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a region");

	region->server = server;
	region->session = table->session;
	region->memory = memory;
	region->id = table->generation++ << SLOT_BITS | ((uint64_t)slot + 1);
	region->count = *count;
	region->bytes = *bytes;
	*count = *bytes = (struct charge){ 0 };
	table->slots[slot] = region;
	table->used++;
	server->n_regions++;
	server->mapped_bytes += memory->size;
	*ret = region;
	return 0;
}

int region_table_find(struct region_table *table, uint64_t id, const char *name, struct region **ret,
                      struct error *err)
{
	uint64_t slot = (id & SLOT_MASK) - 1;
	struct region *region = slot < table->n_slots ? table->slots[slot] : NULL;

	if (!region || region->id != id)
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
	while (*cursor < table->n_slots) {
		struct region *region = table->slots[(*cursor)++];

		if (region)
			return region;
	}
	return NULL;
}

/* ---- The end of a region ------------------------------------------------------------------------------ */

static void unmap(uv_work_t *work)
{
	struct region *region = work->data;

	engine_unmap(region->server->engine, region->memory);
}

static void region_close(struct region *region)
{
	struct region_table *table = &region->session->regions;

	table->slots[(region->id & SLOT_MASK) - 1] = NULL;
	table->used--;
	region->session = NULL;
	region->state = REGION_STATE_CLOSED;
	region->server->mapped_bytes -= region->memory->size;
	region->unmapping.data = region;
	uv_queue_work(&region->server->loop, &region->unmapping, unmap, on_unmapped);
}

static void on_unmapped(uv_work_t *work, int status)
{
	struct region *region = work->data;

	(void)status;
	region->server->n_regions--;
	charge_release(&region->count);
	charge_release(&region->bytes);
	if (region->on_closed)
		region->on_closed(region->on_closed_arg);
	free(region);
}

enum region_state region_release(struct region *region)
{
	if (region->jobs > 0)
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
	for (uint32_t i = 0; i < table->n_slots; i++)
		if (table->slots[i])
			region_release(table->slots[i]);
}

void region_use(struct region *region)
{
	region->jobs++;
}

void region_unuse(struct region *region)
{
	assert(region->jobs > 0);
	if (--region->jobs == 0 && region->state == REGION_STATE_DRAINING)
		region_close(region);
}
