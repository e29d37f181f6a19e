/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what crosses links, plans how a transform with several destinations is divided over devices, and
 * makes the host memory that transforms between devices without a link pass through. */
#include "links.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/memory/devices.h"
#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"

void links_count(struct devices *devices, const struct region *dst, const struct region *src, uint64_t bytes)
{
	if (!dst->memory->host && !src->memory->host && dst->device != src->device)
		devices->of[src->device].sent_bytes[dst->device] += bytes;
}

/* ==== Trees of destinations ========================================================================== */

#define NONE UINT32_MAX

/* ---- Stars --------------------------------------------------------------------------------------------- */

static bool reaches(const struct devices *devices, uint32_t device, uint32_t other)
{
	return device == other || other == DEVICE_ANY ||
	       devices->of[device].links[other].kind != ENGINE_LINK_NONE;
}

static void add(struct multicast_tree *tree, uint32_t dst, uint32_t parent, uint32_t device)
{
	tree->move[tree->n++] = (struct multicast_move){ .dst = dst, .parent = parent, .device = device };
}

bool multicast_plan_star(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret)
{
	ret->n = 0;
	ret->is_chain = false;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t device = on[i] == DEVICE_ANY ? src_on : on[i];

		if (device != DEVICE_ANY && !reaches(devices, device, src_on))
			return false;
		add(ret, i, MULTICAST_SOURCE, device);
	}
	return true;
}

/* ---- Trees --------------------------------------------------------------------------------------------- */

/* State of multicast_plan_tree while it builds a tree. */
struct chain {
	const struct devices *devices;
	const uint32_t *on;         /* device of each destination; DEVICE_ANY: host memory */
	uint32_t n;                 /* number of destinations */
	uint32_t src_on;            /* device of the source; DEVICE_ANY: host memory */
	bool is_left[ENGINES_MOST]; /* indexed by device: it has destinations that are not in the tree yet */
	uint32_t n_left;            /* number of devices with is_left */
	/* Indexed by device: index in the tree of the first move to that device. Valid once such a move has
	 * been added. */
	uint32_t head[ENGINES_MOST];
	uint32_t order[ENGINES_MOST]; /* devices in the order in which they were added */
	uint32_t n_order;             /* number of devices in order */
	struct multicast_tree *tree;
};

/* Returns the device with is_left that reaches `from` by the fastest link. Among equals it is the one whose
 * number comes next after `from`, cyclically. Returns NONE if there is none. */
static uint32_t find_next(const struct chain *chain, uint32_t from)
{
	const struct devices *devices = chain->devices;
	uint32_t best = NONE;

	for (uint32_t i = 1; i < devices->n; i++) {
		const uint32_t device = (from + i) % devices->n;
		const struct engine_link *link = &devices->of[device].links[from];

		if (!chain->is_left[device] || link->kind == ENGINE_LINK_NONE)
			continue;
		if (best == NONE || link->rank < devices->of[best].links[from].rank)
			best = device;
	}
	return best;
}

/* Adds the moves to all destinations on a device: the first one reads from the parent, and the others from
 * the destination of the first. */
static void visit(struct chain *chain, uint32_t device, uint32_t parent)
{
	struct multicast_tree *tree = chain->tree;

	chain->head[device] = tree->n;
	for (uint32_t i = 0; i < chain->n; i++)
		if (chain->on[i] == device)
			add(tree, i, tree->n == chain->head[device] ? parent : chain->head[device], device);
	chain->is_left[device] = false;
	chain->n_left--;
	chain->order[chain->n_order++] = device;
}

static uint32_t first_left(const struct chain *chain)
{
	uint32_t device = 0;

	while (!chain->is_left[device])
		device++;
	return device;
}

/* Begins the chain with the source's device or, if no destination is there, with the device that reaches it
 * by the fastest link. If the source is in host memory, the chain begins with the first destination's device.
 */
static void visit_first(struct chain *chain)
{
	const uint32_t src_on = chain->src_on;
	uint32_t device = src_on, i = 0;

	if (src_on != DEVICE_ANY && !chain->is_left[src_on])
		device = find_next(chain, src_on);
	while (src_on == DEVICE_ANY && chain->on[i] == DEVICE_ANY)
		i++;
	if (src_on == DEVICE_ANY)
		device = chain->on[i];
	visit(chain, device == NONE ? first_left(chain) : device, MULTICAST_SOURCE);
}

/* Adds the next device. It pulls from the last device of the chain from which any remaining device can pull,
 * or else from the source. A device that reaches none of them is added behind the end of the chain, where its
 * move fails and says why. */
static void visit_next(struct chain *chain)
{
	const uint32_t last = chain->order[chain->n_order - 1];
	uint32_t parent = chain->head[last], device = NONE;

	for (uint32_t i = chain->n_order; i-- > 0 && device == NONE;) {
		device = find_next(chain, chain->order[i]);
		if (device != NONE)
			parent = chain->head[chain->order[i]];
	}
	if (device == NONE && chain->src_on != DEVICE_ANY) {
		device = find_next(chain, chain->src_on);
		if (device != NONE)
			parent = MULTICAST_SOURCE;
	}
	visit(chain, device == NONE ? first_left(chain) : device, parent);
}

/* Adds the destinations in host memory. If there is a chain, its first device copies them from its own
 * destination. Otherwise a device that has the source makes all of them from it. If the source is in host
 * memory too, the first is made from it and the others are copies of the first. */
static void add_hosts(struct chain *chain)
{
	struct multicast_tree *tree = chain->tree;
	const uint32_t device = chain->n_order ? chain->order[0] : chain->src_on;
	uint32_t parent = chain->n_order ? 0 : MULTICAST_SOURCE;

	for (uint32_t i = 0; i < chain->n; i++) {
		if (chain->on[i] != DEVICE_ANY)
			continue;
		add(tree, i, parent, device);
		if (device == DEVICE_ANY)
			parent = 0;
	}
}

void multicast_plan_tree(const struct devices *devices, uint32_t n, const uint32_t *on, uint32_t src_on,
                         struct multicast_tree *ret)
{
	struct chain chain = { .devices = devices, .on = on, .n = n, .src_on = src_on, .tree = ret };

	for (uint32_t i = 0; i < n; i++) {
		if (on[i] == DEVICE_ANY || chain.is_left[on[i]])
			continue;
		chain.is_left[on[i]] = true;
		chain.n_left++;
	}
	ret->n = 0;
	if (chain.n_left > 0)
		visit_first(&chain);
	while (chain.n_left > 0)
		visit_next(&chain);
	ret->is_chain = chain.n_order > 1;
	add_hosts(&chain);
}

/* ---- Chunks -------------------------------------------------------------------------------------------- */

static uint32_t count_chunks(uint64_t bytes, uint64_t chunk_bytes, uint32_t n_destinations)
{
	const uint64_t n = bytes / chunk_bytes, most = MULTICAST_MOVES / n_destinations;
	const uint64_t least = n < MULTICAST_CHUNKS ? n : MULTICAST_CHUNKS;

	return (uint32_t)(least < most ? least : most);
}

struct multicast_cut multicast_plan_cut(int rank, const int64_t *shape, const bool *may, uint64_t bytes,
                                        uint64_t chunk_bytes, uint32_t n_destinations)
{
	const uint32_t wanted = count_chunks(bytes, chunk_bytes, n_destinations);
	struct multicast_cut cut = { .n = 1 };
	int64_t most = 1;

	for (int d = 0; d < rank && most < wanted; d++) {
		if ((may && !may[d]) || shape[d] <= most)
			continue;
		cut.dim = d;
		most = shape[d];
	}
	if (wanted < 2 || most < 2)
		return cut;
	cut.rows = (most + wanted - 1) / wanted;
	cut.n = (uint32_t)((most + cut.rows - 1) / cut.rows);
	return cut;
}

/* ==== Bounce buffers ================================================================================= */

/* Chores make bounce buffers, off the loop. */

struct bounce {
	struct chore chore;
	struct session *session;
	uint32_t device;       /* device whose engine makes the buffer */
	uint64_t bytes;        /* size of the buffer */
	bool is_making;        /* the chore is queued or under way */
	struct region *region; /* NULL: there is none, or it is being made */
	struct region_charges charges;
	struct engine_memory *memory; /* set by the chore; NULL: it failed */
	struct engine_export made;
	/* Why the last buffer was not made. err.status is 0 if it was, or if the error has been reported. */
	struct error err;
};

/* Number of descriptors that are kept to map a buffer again: the engine keeps one, and the region one for
 * further devices. */
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
	struct accounts *accounts = &bounce->session->service->accounts;
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
	chores_add(&session->service->chores, session->account, &bounce->chore);
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
		bounce->err.status = 0; /* the next request makes another attempt */
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
	struct engine *engine = device_engine(&bounce->session->service->devices, bounce->device);
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

/* Ends the making of the buffer, and resumes the requests that wait for it. */
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
		chores_add(&session->service->chores, session->account, &bounce->chore);
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

	return engine_unmap_step(device_engine(&bounce->session->service->devices, bounce->device),
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
