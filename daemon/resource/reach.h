/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that further devices reach: a region is mapped by the engine of one device, its own, and for any
 * other one when a request first needs it there. Host memory is pinned once more; memory of a device is
 * mapped as a peer's.
 *
 * Host memory of untrusted users may be loose (struct engine_memory): then it is sealed and settled when a
 * request first needs it, on its own device as on any other. Nobody can map it for writing after that, so all
 * devices map it when it is registered.
 *
 * What that takes, a descriptor or a handle, is kept for as long as the region lives; each further mapping
 * counts as a region, and the descriptors are charged. To map may take long: it is a chore, the session waits
 * (WAIT_MEMORY), and then the request is handled anew. What was mapped stays until the region is unmapped,
 * and goes first.
 */
#ifndef DAEMON_RESOURCE_REACH_H
#define DAEMON_RESOURCE_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"
#include "proto/status.h"
#include "region.h"

struct devices;

/* Not a status: the session waits for memory, and the request is to be handled again when it goes on. */
#define REACH_LATER (-10000)

/* Keeps what mapping the region again takes; takes handle->fd over. Of a region of parts no descriptors are
 * kept: its own memory is the only part of its further mappings. Does nothing where there is one device. */
void region_keep_source(struct region *region, const struct engine_handle *handle);

/* What further devices have mapped of a region that does not exist yet, by their numbers; NULL: out of
 * memory. The memories are the caller's until region_adopt. */
struct reach **reaches_new(const struct devices *devices, struct engine_memory *const *memories);
void reaches_free(const struct devices *devices, struct reach **reaches);

/* Takes them over; their charges are the region's own. */
void region_adopt(struct region *region, struct reach **reaches);

int region_reach_further(struct region *region, uint32_t device, struct error *err);

/* Whether the region could be mapped for the device: 0 or UNSUPPORTED. */
int region_may_reach(const struct region *region, uint32_t device, struct error *err);

/* Has the region mapped and settled for the device: 0 if it is, REACH_LATER, or why it cannot be:
 * UNSUPPORTED, QUOTA, or what engine_map, engine_memory_seal or engine_settle says. */
static inline int region_reach(struct region *region, uint32_t device, struct error *err)
{
	if (region->device == device &&
	    !atomic_load_explicit(&region->memory->is_loose, memory_order_acquire))
		return 0;
	return region_reach_further(region, device, err);
}

/* The same for a region that there may not be. */
static inline int region_reach_if(struct region *region, uint32_t device, struct error *err)
{
	return region ? region_reach(region, device, err) : 0;
}

/* Its memory as the device has it, by region_reach. */
struct engine_memory *region_memory_further(const struct region *region, uint32_t device);

static inline struct engine_memory *region_memory(const struct region *region, uint32_t device)
{
	return region->device == device ? region->memory : region_memory_further(region, device);
}

/* Tells whether a device that was lost and is back cannot map the region again because its client has sealed
 * it. Such a client moves its memory when it connects again. */
bool region_is_to_move(const struct region *region);

/* Nobody waits for mappings any more. */
void session_give_up_reaching(struct session *session);

/* A step of unmapping, off the loop; whether it was the last. */
bool region_unmap_further(struct region *region);

/* After that, on the loop. */
void region_forget_source(struct region *region);

#endif
