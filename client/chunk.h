/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of device memory that regions consist of, as the library keeps them: each once, for all of the
 * client's regions that have it, and told to the service once on a connection.
 *
 * One that was found by its address is exported anew whenever the service has to be told of it, so that a
 * region of hundreds keeps no descriptors; one that came as a descriptor keeps a duplicate.
 */
#ifndef CLIENT_CHUNK_H
#define CLIENT_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "tmaclient.h"

struct chunk {
	uint32_t refs;
	bool is_current; /* in the client's tree, by its address: nothing else is known to be there now */
	int fd;          /* owned; -1: it is exported from its address */
	struct device_span span; /* start 0: it came as a descriptor; size 0: that is not known */
	struct tma_region *home; /* a region that the service was told of, and that has it; NULL: none */
	uint64_t home_at;        /* byte of that region's memory */
};

/* With one reference. Takes fd (-1: none). NULL when out of memory: fd is closed. */
struct chunk *chunk_new(const struct device_span *span, int fd);

/* The client's chunk of that allocation, with a reference for the caller: one that there is, or a new one.
 * Others at its addresses are no longer current, and *ret_stale is set then. */
struct chunk *chunk_at(tma_client *client, const struct device_span *span, bool *ret_stale);

/* Its memory was freed: it is no longer current. */
void chunk_forget(tma_client *client, struct chunk *chunk);

void chunk_unref(tma_client *client, struct chunk *chunk);

/* Whether the service has it on this connection, as part of its home. */
bool chunk_is_known(const tma_client *client, const struct chunk *chunk);

/* The last error unless the allocation that was registered is still there, as far as the driver tells; i is
 * the chunk's number in its region. */
int chunk_check_current(tma_client *client, const struct chunk *chunk, size_t i);

/* A descriptor to send, the chunk's own or a new one, which *ret_is_new says is the caller's to close. The
 * last error when there is none; i as above. */
int chunk_export(tma_client *client, const struct chunk *chunk, size_t i, int *ret, bool *ret_is_new);

/* ---- Of a region's chunks -------------------------------------------------------------------------- */

/* Room for n chunks; the last error when there is none. */
int region_reserve_chunks(tma_region *region, size_t n);

/* The service has the region: it is the home of the chunks that have none. */
void region_settle_chunks(tma_region *region);

/* At the region's end: its chunks find other homes, if they have any, and are unreferenced. */
void region_free_chunks(tma_region *region);

#endif
