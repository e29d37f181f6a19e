/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a connection's regions, and the two steps of a region's end: out of the table, then unmapped.
 */
#include "region.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>

#include "daemon/server.h"
#include "daemon/net/session.h"
#include "reach.h"

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
	struct server *server = table->session->server;
	struct served_device *on = &server->devices.of[device];
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

	region->server = server;
	region->session = table->session;
	region->device = device;
	region->memory = memory;
	region->charges = *charges;
	*charges = (struct region_charges){ 0 };
	server->n_regions++;
	server->mapped_bytes += memory->size;
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
	       engine_unmap_step(device_engine(&region->server->devices, region->device), region->memory);
}

static void region_close(struct region *region)
{
	struct account *account = region->session->account;
	struct served_device *on = &region->server->devices.of[region->device];

	id_table_remove(&region->session->regions.ids, region->id);
	region->session->regions.mapped_bytes -= region->memory->size;
	region->session = NULL;
	region->state = REGION_STATE_CLOSED;
	region->server->mapped_bytes -= region->memory->size;
	on->mapped_bytes -= region->memory->size;
	region->unmapping = (struct chore){ .step = unmap, .on_done = on_unmapped };
	chores_add(&region->server->chores, account, &region->unmapping);
}

static void on_unmapped(struct chore *chore)
{
	struct region *region = region_of(chore);

	region->server->n_regions--;
	region->server->devices.of[region->device].regions--;
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
