/* The index list of a list of blocks: read once, checked, and kept a group at a time.
 *
 * A list in a region is a client's memory, which may change or fail: list_read is called in a thread under
 * the guard, and nothing else looks at it.
 */
#ifndef KERNELS_CPU_INDEX_LIST_H
#define KERNELS_CPU_INDEX_LIST_H

#include <stdint.h>

#include "kernels/host/fault.h"
#include "kernels/engine.h"
#include "move.h"

#define LIST_GROUP 1024 /* entries */

struct list_group {
	uint64_t first; /* entry */
	uint32_t n;
	int64_t block[LIST_GROUP]; /* of the indexed side, in [0, limit); -1: passed over */
};

/* The entries from first on, and what is passed over counted. */
void list_read(struct engine_blocks *blocks, uint64_t first, struct list_group *ret);

/* The memory that list_read reads; empty when it is the host's own. */
struct fault_range list_range(const struct engine_blocks *blocks);

/* Where entry's block of a layer lies; block: what the entry names. */
void list_place(const struct engine_job *job, uint64_t entry, int64_t block, uint32_t layer,
                struct move_place *ret);

#endif
