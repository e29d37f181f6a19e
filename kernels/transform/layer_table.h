/* SPDX-License-Identifier: Apache-2.0 */
/* A layer table holds the places of the layers of one side of a list of blocks, in any memories. An entry is
 * the place of one layer. The functions have no side effects except on the table.
 *
 * Everything that a request has to know about all entries at once is computed when the table is made: the
 * entry nearest to the start of its region and the one nearest to the end, what all distances between their
 * addresses are multiples of, and the smallest distance between two entries in one memory. A request then
 * costs the same however many entries there are. It looks at all entries only if two tables are used together
 * for the first time and have a memory in common, or if memories have allocations in common (aliases.h).
 */
#ifndef KERNELS_TRANSFORM_LAYER_TABLE_H
#define KERNELS_TRANSFORM_LAYER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "aliases.h"
#include "proto/status.h"
#include "proto/tensor.h"
#include "transform.h"

#define LAYER_TABLE_MOST 1024 /* maximum number of entries of a table */

struct bytes;
struct engine_memory;

/* In a message an entry is the id of its region and the offset in it, each a little-endian uint64. */
#define LAYER_ENTRY_BYTES 16

/* Checks that the bytes are a valid number of entries. name is what errors call them. */
int layer_entries_check(const struct bytes *entries, const char *name, struct error *err);

/* Sets the region and the offset of entry i. */
void layer_entry_get(const struct bytes *entries, uint32_t i, uint64_t *ret_region, uint64_t *ret_offset);

struct layer_place {
	struct tensor_place at; /* where element [0, ..., 0] of block 0 lies */
	uint64_t region;        /* id of the region, for error messages */
	uint64_t address;       /* address of element [0, ..., 0] of block 0, as the engine uses it */
};

struct layer_table {
	/* The owner sets these fields. What they point to must live as long as the table. */
	uint32_t n; /* number of entries; > 0 */
	const struct layer_place *places;
	/* Memory of each entry. All of them must be host memory, or all device memory. */
	struct engine_memory *const *memories;
	uint64_t serial;    /* unique number of the table; 0: the table belongs to one request */
	uint32_t read_only; /* first entry that may not be written; n: there is none */
	const char *noun;   /* what errors of requests call it after "dst_" or "src_", such as "table" */
	int64_t *layers;    /* space for n: bytes from the address of the first entry to that of each entry */
	uint32_t *order;    /* space for n: entries sorted by memory, and within a memory by position */

	/* layer_table_init sets the fields below. */
	uint64_t bits;     /* bitwise OR of all numbers in layers */
	bool is_even;      /* each layer lies `step` bytes after the one before */
	uint64_t step;     /* bytes; valid if is_even */
	uint32_t lowest;   /* entry with the fewest bytes before it in its region */
	uint32_t tightest; /* entry with the fewest bytes from it to the end of its region */
	uint64_t room;     /* bytes from entry `tightest` to the end of its region */
	uint32_t most;     /* maximum number of entries in one memory; if > 1, the next four fields are set */
	uint64_t least;    /* least number of bytes between two entries in one memory */
	uint32_t near[2];  /* two entries that are `least` bytes apart */
	bool is_regular;   /* neighbours in one memory are always `least` bytes apart */
	uint64_t span;     /* maximum number of bytes from the first to the last entry of one memory */

	/* No two entries of the destination in different memories share bytes within this stretch around
	 * their positions, as layer_table_check_apart has found. */
	struct stretch apart;

	/* Layers whose blocks have `block` bytes and are `step` bytes apart share no bytes with other layers
	 * of the same memory, as long as each layer ends within `reach` bytes (layers_are_interleaved). */
	struct layers_between {
		uint64_t step, block;
		int128 reach; /* bytes; 0: nothing is known */
	} between;

	/* Serial of the last table with which this one was compared, as the destination, without finding
	 * common bytes (layer_tables_meet). The fields below say for which stretches this was found. */
	uint64_t beside;
	/* Range of distances between entries of the two tables: no two entries in one memory have such a
	 * distance. */
	struct stretch clear;
	/* Stretches around entries of this table and of the other one that were found to share no bytes in
	 * different memories. */
	struct stretch proven[2];
};

/* Returns the bytes from the start of its memory to an entry. */
static inline uint64_t layer_position(const struct layer_table *table, uint32_t entry)
{
	return table->places[entry].at.base + table->places[entry].at.offset;
}

/* Sets the fields that follow from the entries. Returns 0, or OUT_OF_RANGE if an entry lies outside its
 * region; the error names the entry, and calls the table `name`. */
int layer_table_init(struct layer_table *table, const char *name, struct error *err);

/* Sets the fields that follow from the addresses alone. Needed when a table has been copied for another
 * engine, which uses other addresses. */
void layer_table_take_addresses(struct layer_table *table);

/* Checks that n > 0 blocks, step bytes apart, lie in the region of each entry when `added` bytes are added to
 * the entry's offset. side is "dst" or "src". */
int layer_table_check_range(const struct layer_table *table, const char *side, uint64_t n, uint64_t step,
                            struct tensor_extent extent, uint64_t added, struct error *err);

/* Returns 0, or PERMISSION if an entry may not be written. name is what the error calls the table. */
int layer_table_check_writable(const struct layer_table *table, const char *name, struct error *err);

/* Sorts the offsets of n layers in ascending order. */
void layers_sort(int64_t *layers, uint32_t n);

/* Returns whether no two of n layers share bytes. Each layer's blocks are step bytes apart and it ends within
 * `reach` bytes of its start. Layers that start within each other's reach must have remainders modulo step
 * that differ by at least a block's bytes. layers has the start of each in ascending order, and is
 * overwritten. */
bool layers_are_interleaved(int64_t *layers, uint32_t n, uint64_t step, uint64_t block, int128 reach);

/* Checks that no two layers of a destination share bytes; the blocks within a layer have been checked.
 * of_layer is the stretch of a layer relative to its entry. The check is exact if all neighbours in a memory
 * are equally far apart. Otherwise each layer has to end before the next one begins, or the layers have to be
 * interleaved. Layers in two memories that have allocations in common are compared by their stretches. */
int layer_table_check_apart(struct layer_table *table, const struct transform *t, struct stretch of_layer,
                            uint64_t n, uint64_t step, struct error *err);

/* Finds out whether a layer shares bytes with a stretch of another place's memory. of_layer is the stretch of
 * a layer relative to its entry. If LAYERS_SHARE is returned, *ret_entry is the entry. */
enum layer_sharing layer_table_meets(const struct layer_table *table, struct stretch of_layer,
                                     const struct tensor_place *other, struct stretch of_other,
                                     uint32_t *ret_entry);

/* Finds out whether a layer of one table shares bytes with a layer of the other. Each stretch is relative to
 * an entry. If LAYERS_SHARE is returned, *ret_dst and *ret_src are the two entries. */
enum layer_sharing layer_tables_meet(struct layer_table *dst, struct stretch of_dst,
                                     const struct layer_table *src, struct stretch of_src, uint32_t *ret_dst,
                                     uint32_t *ret_src);

#endif
