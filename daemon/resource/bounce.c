/* SPDX-License-Identifier: Apache-2.0 */
/* Makes bounce buffers, off the loop. */
#include "bounce.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/net/session.h"
#include "daemon/server.h"
#include "reach.h"
#include "region.h"

struct bounce {
	struct chore chore;
	struct session *session;
	uint32_t device;
	uint64_t bytes;
	bool is_making;
	struct region *region; /* NULL: there is none */
	struct region_charges charges;
	struct engine_memory *memory;
	struct engine_export made;
	struct error err; /* status: of the last one that could not be made, until that has been told */
};

/* Descriptors that are kept to map it again: the engine's, and the region's for further devices. */
#define KEPT_FDS 2

static bool make(struct chore *chore);
static void on_made(struct chore *chore);
static bool unmake(struct chore *chore);
static void on_unmade(struct chore *chore);

static struct bounce *bounce_of(struct chore *chore)
{
	return (struct bounce *)((char *)chore - offsetof(struct bounce, chore));
}

static int take_charges(struct bounce *bounce, struct error *err)
{
	struct account *account = bounce->session->account;
	struct accounts *accounts = &bounce->session->server->accounts;
	struct region_charges *charges = &bounce->charges;
	int r = charge_take(&charges->count, accounts, account, CHARGE_REGIONS, 1, err);

	if (r == 0)
		r = charge_take(&charges->bytes, accounts, account, CHARGE_MAPPED_BYTES, bounce->bytes, err);
	if (r == 0)
		r = charge_take(&charges->created, accounts, account, CHARGE_CREATED_BYTES, bounce->bytes,
		                err);
	if (r == 0)
		r = charge_take(&charges->fds, accounts, account, CHARGE_REGION_FDS, KEPT_FDS, err);
	if (r < 0)
		region_charges_release(charges);
	return r;
}

static int start(struct bounce *bounce, uint32_t device, uint64_t bytes, struct error *err)
{
	struct session *session = bounce->session;
	int r;

	if (bounce->region)
		region_release(bounce->region); /* jobs may still use it */
	bounce->region = NULL;
	bounce->device = device;
	bounce->bytes = bytes;
	r = take_charges(bounce, err);
	if (r < 0)
		return r;
	bounce->is_making = true;
	bounce->memory = NULL;
	bounce->made.fd = -1;
	bounce->chore = (struct chore){ .step = make, .on_done = on_made };
	session->mappings++;
	chores_add(&session->server->chores, session->account, &bounce->chore);
	return err->status = REACH_LATER;
}

int bounce_find(struct session *session, uint32_t device, uint64_t bytes, struct region **ret,
                struct error *err)
{
	struct bounce *bounce = session->bounce;

	if (!bounce)
		bounce = session->bounce = calloc(1, sizeof *bounce);
	if (!bounce)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a bounce buffer");
	bounce->session = session;
	if (bounce->is_making)
		return err->status = REACH_LATER;
	if (bounce->err.status) {
		*err = bounce->err;
		bounce->err.status = 0; /* the next request tries again */
		return err->status;
	}
	if (!bounce->region || bounce->region->memory->size < bytes)
		return start(bounce, device, bytes, err);
	*ret = bounce->region;
	return 0;
}

static bool make(struct chore *chore)
{
	struct bounce *bounce = bounce_of(chore);
	const struct engine_handle wanted = { .kind = REGION_KIND_MEMFD, .fd = -1, .size = bounce->bytes };
	struct engine *engine = device_engine(&bounce->session->server->devices, bounce->device);
	struct error why;

	if (engine_make(engine, &wanted, &bounce->memory, &bounce->made, &why) < 0) {
		bounce->memory = NULL;
		error_set(&bounce->err, why.status, "no bounce buffer for device %s: %s", engine->uuid,
		          why.message);
	}
	return true;
}

static void keep_source(struct bounce *bounce)
{
	const struct engine_handle handle = {
		.kind = REGION_KIND_MEMFD, .fd = bounce->made.fd, .size = bounce->bytes, .writable = true
	};

	region_keep_source(bounce->region, &handle);
	if (!bounce->region->source)
		close(bounce->made.fd);
}

/* What waits for it goes on. */
static void settle(struct bounce *bounce)
{
	struct session *session = bounce->session;

	bounce->is_making = false;
	session->mappings--;
	region_charges_release(&bounce->charges);
	session_on_memory(session);
	session_settle(session);
}

static void on_made(struct chore *chore)
{
	struct bounce *bounce = bounce_of(chore);
	struct session *session = bounce->session;

	if (!bounce->memory) {
		settle(bounce);
		return;
	}
	if (region_table_add(&session->regions, bounce->device, bounce->memory, &bounce->charges,
	                     &bounce->region, &bounce->err) < 0) {
		close(bounce->made.fd);
		bounce->chore = (struct chore){ .step = unmake, .on_done = on_unmade };
		chores_add(&session->server->chores, session->account, &bounce->chore);
		return;
	}
	bounce->region->is_bounce = true;
	keep_source(bounce);
	if (session->state == SESSION_ENDED)
		region_release(bounce->region);
	settle(bounce);
}

static bool unmake(struct chore *chore)
{
	struct bounce *bounce = bounce_of(chore);

	return engine_unmap_step(device_engine(&bounce->session->server->devices, bounce->device),
	                         bounce->memory);
}

static void on_unmade(struct chore *chore)
{
	settle(bounce_of(chore));
}

void bounce_free(struct session *session)
{
	free(session->bounce);
	session->bounce = NULL;
}
