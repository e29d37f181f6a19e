/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: the allocations of device memory of which regions consist. The library keeps each allocation once
 * for all of the client's regions that contain it, and sends it to the service once per connection.
 *
 * A chunk that was found by its address is exported anew whenever the service has to be told of it, so that a
 * region of hundreds of chunks keeps no descriptors. A chunk that was registered by a descriptor keeps a
 * duplicate of it. Functions that return int return 0 or the last error.
 */
#ifndef CLIENT_CHUNK_H
#define CLIENT_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "tmaclient.h"

struct chunk {
	uint32_t refs;
	/* The chunk is in client->chunks, by its address; no other allocation is known to be there now. */
	bool is_current;
	int fd;                  /* owned; -1: the chunk is exported by its address */
	struct device_span span; /* start 0: registered by a descriptor; size 0: the size is unknown */
	struct tma_region *home; /* a region that contains the chunk and that the service knows; NULL: none */
	uint64_t home_at;        /* offset of the chunk in the memory of home, bytes */
};

/* Creates a chunk for the allocation that span describes, with one reference. Takes over fd (-1: none).
 * Returns NULL if out of memory, and then closes fd. */
struct chunk *chunk_new(const struct device_span *span, int fd);

/* Returns the client's chunk for the allocation, with a reference for the caller, and creates it if
 * necessary. Returns NULL if out of memory. If other chunks are known at these addresses, their memory was
 * freed: marks them as no longer current, and sets *ret_stale to true. */
struct chunk *chunk_at(tma_client *client, const struct device_span *span, bool *ret_stale);

/* Marks the chunk as no longer current, because its memory was freed. */
void chunk_forget(tma_client *client, struct chunk *chunk);

void chunk_unref(tma_client *client, struct chunk *chunk);

/* Returns whether the service knows the chunk on this connection, as part of its home. */
bool chunk_is_known(const tma_client *client, const struct chunk *chunk);

/* Checks that the allocation is still the one that was registered, as far as the driver can tell. i is the
 * chunk's index in its region, for the error message. */
int chunk_check_current(tma_client *client, const struct chunk *chunk, size_t i);

/* Sets *ret to a descriptor of the chunk. *ret_is_new says whether the caller has to close it. i is the
 * chunk's index in its region, for error messages. */
int chunk_export(tma_client *client, const struct chunk *chunk, size_t i, int *ret, bool *ret_is_new);

/* ---- Of a region's chunks -------------------------------------------------------------------------- */

/* Allocates region->chunks for n chunks. */
int region_reserve_chunks(tma_region *region, size_t n);

/* Makes the region the home of those of its chunks that the service did not know before. The service must
 * have registered the region. */
void region_settle_chunks(tma_region *region);

/* Drops the region's references to its chunks. Chunks whose home it was get another one, if another region
 * that the service knows contains them. */
void region_free_chunks(tma_region *region);

#endif
