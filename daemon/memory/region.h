/* SPDX-License-Identifier: Apache-2.0 */
/* A region is memory that a connection has shared with the service, or had it create.
 *
 * A region's id belongs to its connection and is never given twice. A region lives from the reply that names
 * it until it is released and no job and no table uses it. Then it is unmapped off the loop, because that can
 * take long. Its charges are released, and its release is answered with "closed", only when the memory has
 * really gone.
 */
#ifndef DAEMON_MEMORY_REGION_H
#define DAEMON_MEMORY_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "proto/schema.h"
#include "proto/status.h"
#include "account.h"
#include "chore.h"

struct devices;
struct reach;
struct region_source;
struct service;
struct session;

/* A connection's objects (regions, tables, plans) are found in a table by the ids that the client uses.
 *
 * An id is a slot's number with a generation above it: no id is given twice, and a lookup is one read. The
 * table does not own its objects. A zero-initialised table is empty.
 */
struct id_slot {
	void *object; /* NULL: free */
	uint64_t id;  /* the object's id; for a free slot, the number of the next free slot, 0: none */
};

struct id_table {
	struct id_slot *slots;
	uint32_t n_slots;
	uint32_t used;
	uint32_t first_free; /* number of a slot; 0: none */
	uint64_t generation;
};

/* All objects must have been removed. */
void id_table_deinit(struct id_table *table);

/* Adds object with a new id, which is never 0. Returns 0, QUOTA or NO_MEMORY; the error calls the objects
 * nouns ("regions"). */
int id_table_add(struct id_table *table, void *object, const char *nouns, uint64_t *ret_id,
                 struct error *err);

/* Returns NULL if there is no object with that id. */
void *id_table_find(const struct id_table *table, uint64_t id);

/* Removes the object with that id, which must be in the table. */
void id_table_remove(struct id_table *table, uint64_t id);

/* Iterates over the objects in no particular order, and returns NULL past the last. *cursor starts at 0.
 * Objects may be removed meanwhile. */
void *id_table_next(const struct id_table *table, uint32_t *cursor);

/* A region's memory is charged for by these. */
struct region_charges {
	struct charge count;
	struct charge bytes;
	struct charge created; /* host memory that the service created */
	struct charge pool;    /* memory of a pool */
	struct charge fds;     /* descriptors that are kept where there are several devices */
};

void region_charges_release(struct region_charges *charges);

struct region {
	struct service *service;
	uint64_t id;
	enum region_state state;
	/* This is the device whose engine has mapped it first; a region in device memory is on it. */
	uint32_t device;
	struct engine_memory *memory; /* mapping by the engine of `device` */
	struct reach **reaches;       /* mappings by other devices (region_reach); NULL: none */
	struct region_source *source; /* NULL: it is not kept */
	bool is_bounce;               /* requests cannot name it (links.h) */
	bool is_sealed_here;          /* the service has sealed its file; its client has not */
	uint32_t jobs;                /* jobs that use it by themselves */
	uint32_t tables;              /* entries of tables that name it */
	struct session *session;      /* NULL: the region has left its session's table */
	void (*on_closed)(void *arg); /* NULL: no release is to be answered */
	void *on_closed_arg;
	struct region_charges charges; /* released when the memory has gone */
	struct chore unmapping;
};

struct region_table {
	struct session *session;
	struct id_table ids;
	uint64_t mapped_bytes; /* mapped bytes of all of its regions */
};

void region_table_init(struct region_table *table, struct session *session);

/* All regions must have been released. */
void region_table_deinit(struct region_table *table);

/* Adds memory that the device's engine has mapped, with its charges. Returns 0 or NO_MEMORY, in which case
 * nothing is taken over. */
int region_table_add(struct region_table *table, uint32_t device, struct engine_memory *memory,
                     struct region_charges *charges, struct region **ret, struct error *err);

/* Finds an open region by id. Returns 0, or NOT_FOUND, which names the argument ("src.region"). */
int region_table_find(struct region_table *table, uint64_t id, const char *name, struct region **ret,
                      struct error *err);

/* Returns PERMISSION unless transforms may write to it; name as above. */
int region_check_writable(const struct region *region, const char *name, struct error *err);

/* Iterates over the open and draining regions of a table, and returns NULL past the last. *cursor starts at
 * 0. */
struct region *region_table_next(const struct region_table *table, uint32_t *cursor);

/* Ends a region. Returns CLOSED if nothing uses it, so that its memory is unmapped now, or DRAINING if it is
 * unmapped when its last job has ended and its last table is gone. */
enum region_state region_release(struct region *region);

/* Has on_closed called once the memory and the charges have gone. To be called after region_release has
 * returned CLOSED. */
void region_when_closed(struct region *region, void (*on_closed)(void *arg), void *arg);

void region_table_release_all(struct region_table *table);

/* A job holds the regions that it uses. */
void region_use(struct region *region);
void region_unuse(struct region *region);

/* Each entry of a table (table.h) holds its regions, too. */
void region_join_table(struct region *region);
void region_leave_table(struct region *region);

/* Further devices can reach a region. It is mapped by the engine of one device, its own, and for any other
 * one when a request first needs it there. Host memory is pinned once more; memory of a device is mapped as a
 * peer's.
 *
 * Host memory of untrusted users may be loose (struct engine_memory): then it is sealed and settled when a
 * request first needs it, on its own device as on any other. Nobody can map it for writing after that, so all
 * devices map it when it is registered.
 *
 * The descriptor or handle that mapping takes is kept for as long as the region lives; each further mapping
 * counts as a region, and the descriptors are charged. Mapping may take long, so it is a chore: the session
 * waits (WAIT_MEMORY), and then the request is handled anew. What was mapped stays until the region is
 * unmapped, and goes first.
 */

/* REACH_LATER is no status: the session waits for memory, and the request is to be handled again when it goes
 * on. */
#define REACH_LATER (-10000)

/* Keeps the handle by which the region can be mapped again, and takes handle->fd over. For a region of parts
 * no descriptors are kept: its own memory is the only part of its further mappings. Does nothing where there
 * is one device. */
void region_keep_source(struct region *region, const struct engine_handle *handle);

/* Returns an array, by device, of what further devices have mapped of a region that does not exist yet, or
 * NULL if out of memory. The memories are the caller's until region_adopt. */
struct reach **reaches_new(const struct devices *devices, struct engine_memory *const *memories);
void reaches_free(const struct devices *devices, struct reach **reaches);

/* Gives the region its reaches. Their charges are those of the region. */
void region_adopt(struct region *region, struct reach **reaches);

int region_reach_further(struct region *region, uint32_t device, struct error *err);

/* Returns 0 if the region could be mapped for the device, or UNSUPPORTED. */
int region_may_reach(const struct region *region, uint32_t device, struct error *err);

/* Has the region mapped and settled for the device. Returns 0 if it is, REACH_LATER if a chore does so, or
 * the reason why it cannot be: UNSUPPORTED, QUOTA, or what engine_map, engine_memory_seal or engine_settle
 * returns. */
static inline int region_reach(struct region *region, uint32_t device, struct error *err)
{
	if (region->device == device &&
	    !atomic_load_explicit(&region->memory->is_loose, memory_order_acquire))
		return 0;
	return region_reach_further(region, device, err);
}

/* region may be NULL. */
static inline int region_reach_if(struct region *region, uint32_t device, struct error *err)
{
	return region ? region_reach(region, device, err) : 0;
}

/* Returns the region's memory as the device has mapped it (region_reach). */
struct engine_memory *region_memory_further(const struct region *region, uint32_t device);

static inline struct engine_memory *region_memory(const struct region *region, uint32_t device)
{
	return region->device == device ? region->memory : region_memory_further(region, device);
}

/* Tells whether a device that was lost and is back cannot map the region again because its client has sealed
 * it. Such a client moves its memory when it connects again. */
bool region_is_to_move(const struct region *region);

/* Gives up mappings for further devices, because nobody waits for them any more. */
void session_give_up_reaching(struct session *session);

#endif
