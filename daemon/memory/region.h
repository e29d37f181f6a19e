/* SPDX-License-Identifier: Apache-2.0 */
/* A region is memory that a client has shared with the service (register) or that the service has created for
 * it.
 *
 * A region's id is valid on its connection only and is never reused. A released region exists until no job
 * and no table uses it any more, and is then unmapped off the loop, because unmapping can take long. Its
 * charges are released, and its release is answered with "closed", only after the memory has been unmapped.
 *
 * Except where a comment says otherwise, only the loop's thread may call these functions.
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

/* Maps the ids that a client uses to objects of its connection (regions, tables, plans).
 *
 * An id has the number of a slot in its lower bits and a generation counter above it, so that no id is given
 * twice and a lookup reads one slot. The table does not own its objects. A zeroed table is empty.
 */
struct id_slot {
	void *object; /* NULL: the slot is free */
	uint64_t id;  /* id of the object; in a free slot, number of the next free slot or 0 */
};

struct id_table {
	struct id_slot *slots;
	uint32_t n_slots;    /* allocated slots */
	uint32_t used;       /* slots that have an object */
	uint32_t first_free; /* number of the first free slot; 0: there is none */
	uint64_t generation; /* number of ids given so far */
};

/* Frees the slots. All objects must have been removed. */
void id_table_deinit(struct id_table *table);

/* Adds object and sets *ret_id to its new id, which is never 0. Returns 0, QUOTA or NO_MEMORY. nouns is what
 * error messages call the objects, such as "regions". */
int id_table_add(struct id_table *table, void *object, const char *nouns, uint64_t *ret_id,
                 struct error *err);

/* Returns the object with that id, or NULL if there is none. */
void *id_table_find(const struct id_table *table, uint64_t id);

/* Removes the object with that id, which must be in the table. */
void id_table_remove(struct id_table *table, uint64_t id);

/* Returns the next object in no particular order, or NULL after the last one. The caller sets *cursor to 0
 * before the first call. Objects may be removed during the iteration. */
void *id_table_next(const struct id_table *table, uint32_t *cursor);

/* All charges for one region. */
struct region_charges {
	struct charge count;   /* regions */
	struct charge bytes;   /* mapped bytes */
	struct charge created; /* bytes of host memory that the service created */
	struct charge pool;    /* regions in memory of CUDA memory pools */
	struct charge fds;     /* descriptors kept so that further devices can map the region */
};

void region_charges_release(struct region_charges *charges);

struct region {
	struct service *service;
	uint64_t id;
	enum region_state state;
	/* Index of the region's own device: the one whose engine mapped the region first. A region in device
	 * memory lies on this device. */
	uint32_t device;
	struct engine_memory *memory; /* mapping by the engine of `device` */
	/* Array indexed by device: the mapping for that device (region_reach), or NULL if it has none. The
	 * array itself is NULL until a device needs a mapping. */
	struct reach **reaches;
	struct region_source
	    *source;             /* handle from which further devices map the region; NULL: none was kept */
	bool is_bounce;          /* a bounce buffer of the service (links.h), which requests cannot name */
	bool is_sealed_here;     /* the file was sealed by the service, not by its client */
	uint32_t jobs;           /* number of references held by jobs, chores and rings (region_use) */
	uint32_t tables;         /* number of table entries that refer to it */
	struct session *session; /* NULL once the region is closed */
	void (*on_closed)(void *arg); /* called when the memory has been unmapped; NULL: nothing is called */
	void *on_closed_arg;
	struct region_charges charges; /* released when the memory has been unmapped */
	struct chore unmapping;        /* unmaps the memory off the loop once the region is closed */
};

struct region_table {
	struct session *session;
	struct id_table ids;
	uint64_t mapped_bytes; /* sum of the sizes of its regions */
};

void region_table_init(struct region_table *table, struct session *session);

/* All regions must have been closed. */
void region_table_deinit(struct region_table *table);

/* Makes a region of memory that the device's engine has mapped, and takes over the memory and *charges.
 * Returns 0, or QUOTA or NO_MEMORY with nothing taken over. */
int region_table_add(struct region_table *table, uint32_t device, struct engine_memory *memory,
                     struct region_charges *charges, struct region **ret, struct error *err);

/* Sets *ret to the open region with that id. Returns 0, or NOT_FOUND. name is the argument that the error
 * message refers to, such as "src.region". */
int region_table_find(struct region_table *table, uint64_t id, const char *name, struct region **ret,
                      struct error *err);

/* Returns 0 if transforms may write to the region, otherwise PERMISSION. name is as for region_table_find. */
int region_check_writable(const struct region *region, const char *name, struct error *err);

/* Returns the next open or draining region of the table, or NULL after the last one. The caller sets *cursor
 * to 0 before the first call. */
struct region *region_table_next(const struct region_table *table, uint32_t *cursor);

/* Releases a region. If nothing uses it, starts unmapping it and returns CLOSED; otherwise returns DRAINING,
 * and the region is unmapped when the last job and the last table entry that use it are gone. */
enum region_state region_release(struct region *region);

/* Arranges for on_closed(arg) to be called when the memory has been unmapped and the charges have been
 * released. Must be called right after region_release has returned CLOSED. */
void region_when_closed(struct region *region, void (*on_closed)(void *arg), void *arg);

void region_table_release_all(struct region_table *table);

/* region_use keeps the region from being unmapped until the matching region_unuse. */
void region_use(struct region *region);
void region_unuse(struct region *region);

/* region_join_table and region_leave_table do the same for an entry of a table (table.h). */
void region_join_table(struct region *region);
void region_leave_table(struct region *region);

/* Mappings of a region for further devices.
 *
 * A region is mapped by the engine of its own device when it is registered, and by the engine of any other
 * device when a request first needs it there: host memory is pinned for that device as well, and memory of a
 * device is mapped as peer memory.
 *
 * Host memory of untrusted users may be loose (struct engine_memory). It is then sealed, and settled for a
 * device, its own or another, when a request first needs it there. A sealed file cannot be mapped for writing
 * any more, so all devices map loose memory when it is registered.
 *
 * The descriptor or handle that mapping needs is kept until the region is unmapped. Each further mapping
 * counts as a region, and kept descriptors are charged. Because mapping may take long, a chore does it: the
 * session waits (WAIT_MEMORY), and then handles the request again from the start. Further mappings last until
 * the region is unmapped, and are unmapped before the region's own memory.
 */

/* Returned in place of a status while a chore maps or settles the memory: the session has to wait for memory,
 * and handle the request again after that. */
#define REACH_LATER (-10000)

/* Copies the handle, so that further devices can map the region, and takes over handle->fd. For a region of
 * parts no descriptors are kept: further devices map the region's own memory as a single part. If the service
 * has one device or is out of memory, only closes the descriptor. */
void region_keep_source(struct region *region, const struct engine_handle *handle);

/* Returns an array for region->reaches of a region that does not exist yet, or NULL if out of memory.
 * memories has an element for each device: what its engine has mapped, or NULL. The caller owns the memories
 * until region_adopt. */
struct reach **reaches_new(const struct devices *devices, struct engine_memory *const *memories);
void reaches_free(const struct devices *devices, struct reach **reaches);

/* Gives the region these mappings, which are covered by the region's own charges. Takes over the array. */
void region_adopt(struct region *region, struct reach **reaches);

/* Does what region_reach does, except for its most frequent case. Call region_reach instead. */
int region_reach_further(struct region *region, uint32_t device, struct error *err);

/* Returns 0 if the device can map the region, otherwise UNSUPPORTED. Maps nothing. */
int region_may_reach(const struct region *region, uint32_t device, struct error *err);

/* Makes the region usable on the device, by mapping and settling it there if necessary. Returns 0 if it is
 * usable, REACH_LATER if a chore is at work on that, or an error: UNSUPPORTED, QUOTA, NO_MEMORY, DEVICE_LOST,
 * or what engine_map, engine_memory_seal or engine_settle returns. */
static inline int region_reach(struct region *region, uint32_t device, struct error *err)
{
	if (region->device == device &&
	    !atomic_load_explicit(&region->memory->is_loose, memory_order_acquire))
		return 0;
	return region_reach_further(region, device, err);
}

/* Does what region_reach does; region may be NULL, for which it returns 0. */
static inline int region_reach_if(struct region *region, uint32_t device, struct error *err)
{
	return region ? region_reach(region, device, err) : 0;
}

/* Returns the mapping by a device other than the region's own. Call region_memory instead. */
struct engine_memory *region_memory_further(const struct region *region, uint32_t device);

/* Returns the region as the device has mapped it, after region_reach has returned 0. */
static inline struct engine_memory *region_memory(const struct region *region, uint32_t device)
{
	return region->device == device ? region->memory : region_memory_further(region, device);
}

/* Returns whether a device that has come back after a loss could not map the region again because the client
 * has sealed its file. A client that reconnects moves such memory to a new file. */
bool region_is_to_move(const struct region *region);

/* Gives up the mappings for further devices that are under way. Must be called when the session ends. */
void session_give_up_reaching(struct session *session);

#endif
