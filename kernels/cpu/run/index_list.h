/* SPDX-License-Identifier: Apache-2.0 */
/* The index list of a list of blocks: each entry is read once, checked, and kept, a group at a time.
 *
 * A list in a region is a client's memory, which may change or fail: index_list_read runs under the guard
 * (fault.h), and nothing else reads the list.
 */
#ifndef KERNELS_CPU_RUN_INDEX_LIST_H
#define KERNELS_CPU_RUN_INDEX_LIST_H

#include <stdint.h>

#include "kernels/cpu/move/move_struct.h"
#include "kernels/engine.h"
#include "kernels/host/fault.h"

#define INDEX_LIST_GROUP 1024 /* entries */

struct index_list_group {
	uint64_t first; /* entry */
	uint32_t n;
	uint32_t named;                  /* of them, that are not passed over */
	int64_t block[INDEX_LIST_GROUP]; /* of the indexed side, in [0, limit); -1: passed over */
};

/* The entries from first on, and what is passed over counted. */
void index_list_read(struct engine_blocks *blocks, uint64_t first, struct index_list_group *ret);

/* Entries of a list that the host brought (index) that are not -1. */
uint32_t index_list_named(const struct engine_blocks *blocks);

/* Whether the job is of such a list, and that names no block: the job uses none of its memories. */
bool index_list_names_nothing(const struct engine_job *job);

/* The memory that index_list_read reads; empty when it is the host's own. */
struct fault_range index_list_range(const struct engine_blocks *blocks);

/* The memory that blocks of a layer lie in. */
void index_list_layer_ranges(const struct engine_job *job, uint32_t layer, struct fault_range ret[2]);

/* Where entry's block of a layer lies; block: what the entry names. */
void index_list_place(const struct engine_job *job, uint64_t entry, int64_t block, uint32_t layer,
                      struct move_place *ret);

#endif
