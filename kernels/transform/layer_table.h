/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of layers: where each layer of one side of a list of blocks lies, in whatever memory. Pure.
 *
 * What a request has to know of all entries at once is found when the table is made: the entry nearest to the
 * start of its region and the one nearest to the end, what all distances between their addresses are
 * multiples of, and how near two of one memory are. A request then costs the same however many entries there
 * are; only two tables that meet in one memory for the first time, and memories that have allocations in
 * common (layer_aliases.h), are gone through.
 */
#ifndef KERNELS_TRANSFORM_LAYER_TABLE_H
#define KERNELS_TRANSFORM_LAYER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "layer_aliases.h"
#include "proto/status.h"
#include "proto/tensor.h"
#include "stretch.h"
#include "transform.h"

#define LAYER_TABLE_MOST 1024 /* entries */

struct bytes;
struct engine_memory;

/* An entry as it travels: the id of its region and the offset there, uint64 each, little-endian. */
#define LAYER_ENTRY_BYTES 16

/* Checks that the bytes are a number of entries that a table may have; errors call them name. */
int layer_entries_check(const struct bytes *entries, const char *name, struct error *err);

/* Sets the region and the offset of entry i. */
void layer_entry_get(const struct bytes *entries, uint32_t i, uint64_t *ret_region, uint64_t *ret_offset);

struct layer_place {
	struct tensor_place at; /* of element [0, ..., 0] of block 0 */
	uint64_t region;        /* by its id, in errors */
	uint64_t address;       /* of that element, for the engine */
};

struct layer_table {
	/* By its owner. What it points to lives as long as the table. */
	uint32_t n; /* > 0 */
	const struct layer_place *places;
	struct engine_memory *const
	    *memories;      /* of each entry; all of one sort: the host's or the device's */
	uint64_t serial;    /* that no other table has; 0: of one request alone */
	uint32_t read_only; /* the first entry that may not be written; n: none */
	const char *noun;   /* in errors of requests: "table" if they call it dst_table or src_table */
	int64_t *layers;    /* room for n: bytes from the first entry's address to each one's */
	uint32_t *order;    /* room for n: entries by their memory, and in it by their place */

	/* By layer_table_init. */
	uint64_t bits;     /* of all layers, or'ed */
	bool is_even;      /* each layer is as far from the one before: */
	uint64_t step;     /* so many bytes */
	uint32_t lowest;   /* the entry with the fewest bytes before it in its region, */
	uint32_t tightest; /* and the one with the fewest from it on: */
	uint64_t room;     /* so many */
	uint32_t most;     /* entries in one memory; if > 1: */
	uint64_t least;    /* bytes between the two that are nearest to each other in one memory: */
	uint32_t near[2];  /* these */
	bool is_regular;   /* neighbours in a memory are always so far apart */
	uint64_t span;     /* bytes from the first to the last entry of a memory, at most */

	/* Of a destination: from an entry on, in which no two of different memories share bytes, as far as is
	 * known (layer_table_check_apart). */
	struct stretch apart;

	/* Layers of blocks that long, so far from each other, are known to share no bytes in one memory if
	 * each layer ends within reach (layers_are_interleaved). */
	struct layers_between {
		uint64_t step, block;
		int128 reach; /* 0: nothing is known */
	} between;

	/* The last table beside which this one was found to be clear, and how far: layer_tables_meet. */
	uint64_t beside;
	struct stretch clear;     /* ways, in one memory */
	struct stretch proven[2]; /* from an entry of this table and of the other, in two memories */
};

/* In its memory. */
static inline uint64_t layer_position(const struct layer_table *table, uint32_t entry)
{
	return table->places[entry].at.base + table->places[entry].at.offset;
}

/* OUT_OF_RANGE if an entry lies outside its region; the error names it, and the table as `name`. */
int layer_table_init(struct layer_table *table, const char *name, struct error *err);

/* Part of that: what follows from the addresses alone, of a table that has been copied to be seen by another
 * engine. */
void layer_table_take_addresses(struct layer_table *table);

/* Whether n > 0 blocks, step bytes apart, lie in the region of each entry, with `added` bytes added to each.
 * side: "dst" or "src". */
int layer_table_check_range(const struct layer_table *table, const char *side, uint64_t n, uint64_t step,
                            struct tensor_extent extent, uint64_t added, struct error *err);

/* PERMISSION if an entry may not be written; the error calls the table name. */
int layer_table_check_writable(const struct layer_table *table, const char *name, struct error *err);

/* Returns whether no two of n layers share bytes, each of which has its blocks step bytes apart and ends
 * within reach. Layers that are so near that they lie between each other must have different remainders by
 * step, with a block's bytes between them. The layers are given by where they begin, in ascending order, and
 * are overwritten. */
bool layers_are_interleaved(int64_t *layers, uint32_t n, uint64_t step, uint64_t block, int128 reach);

/* Whether no two layers of a destination share bytes; blocks of one layer have been checked. of_layer: its
 * stretch, from an entry's place. Exact where all neighbours in a memory are as far apart; else each layer
 * has to end before the next one begins, or they are interleaved; and by their stretches, where two memories
 * have allocations in common. */
int layer_table_check_apart(struct layer_table *table, const struct transform *t, struct stretch of_layer,
                            uint64_t n, uint64_t step, struct error *err);

/* Whether a layer shares bytes with a stretch of another place's memory. of_layer: from an entry's place. */
enum layer_sharing layer_table_meets(const struct layer_table *table, struct stretch of_layer,
                                     const struct tensor_place *other, struct stretch of_other,
                                     uint32_t *ret_entry);

/* Whether a layer of one table shares bytes with a layer of the other. */
enum layer_sharing layer_tables_meet(struct layer_table *dst, struct stretch of_dst,
                                     const struct layer_table *src, struct stretch of_src, uint32_t *ret_dst,
                                     uint32_t *ret_src);

#endif
