/* SPDX-License-Identifier: Apache-2.0 */
/* Regions that further devices reach: a region is mapped by the engine of one device, its own, and for any
 * other one when a request first needs it there. Host memory is pinned once more; memory of a device is
 * mapped as a peer's.
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

/* Not a status: the session waits for memory, and the request is to be handled again when it goes on. */
#define REACH_LATER (-10000)

/* Keeps what mapping the region again takes; takes handle->fd over. Of a region of parts no descriptors are
 * kept: its own memory is the only part of its further mappings. Does nothing where there is one device. */
void region_keep_source(struct region *region, const struct engine_handle *handle);

int region_reach_further(struct region *region, uint32_t device, struct error *err);

/* Whether the region could be mapped for the device: 0 or UNSUPPORTED. */
int region_may_reach(const struct region *region, uint32_t device, struct error *err);

/* Has the region mapped for the device: 0 if it is, REACH_LATER, or why it cannot be: UNSUPPORTED, QUOTA, or
 * what engine_map says. */
static inline int region_reach(struct region *region, uint32_t device, struct error *err)
{
	return region->device == device ? 0 : region_reach_further(region, device, err);
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

/* Nobody waits for mappings any more. */
void session_give_up_reaching(struct session *session);

/* A step of unmapping, off the loop; whether it was the last. */
bool region_unmap_further(struct region *region);

/* After that, on the loop. */
void region_forget_source(struct region *region);

#endif
