/* SPDX-License-Identifier: Apache-2.0 */
/* A table of layers says where each layer of one side of a list of blocks lies, in whatever memory. The
 * functions have no side effects.
 *
 * When a table is made, everything is found that a request has to know of all entries at once: the entry
 * nearest to the start of its region and the one nearest to the end, what all distances between their
 * addresses are multiples of, and how near two of one memory are. A request then costs the same however many
 * entries there are; it looks at all of them only if two tables meet in one memory for the first time, or
 * memories have allocations in common (aliases.h).
 */
#ifndef KERNELS_TRANSFORM_LAYER_TABLE_H
#define KERNELS_TRANSFORM_LAYER_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "aliases.h"
#include "proto/status.h"
#include "proto/tensor.h"
#include "transform.h"

#define LAYER_TABLE_MOST 1024 /* entries */

struct bytes;
struct engine_memory;

/* An entry travels as the id of its region and the offset there, which are uint64 each, little-endian. */
#define LAYER_ENTRY_BYTES 16

/* Checks that the bytes are a number of entries that a table may have; errors call them name. */
int layer_entries_check(const struct bytes *entries, const char *name, struct error *err);

/* Sets the region and the offset of entry i. */
void layer_entry_get(const struct bytes *entries, uint32_t i, uint64_t *ret_region, uint64_t *ret_offset);

struct layer_place {
	struct tensor_place at; /* where element [0, ..., 0] of block 0 lies */
	uint64_t region;        /* id of the region, for errors */
	uint64_t address;       /* address of that element, for the engine */
};

struct layer_table {
	/* The owner sets these. What they point to lives as long as the table. */
	uint32_t n; /* > 0 */
	const struct layer_place *places;
	struct engine_memory *const
	    *memories;      /* memory of each entry; all in the host's or all in the device's */
	uint64_t serial;    /* number that no other table has; 0: the table belongs to one request */
	uint32_t read_only; /* the first entry that may not be written; n: none */
	const char *noun;   /* what requests' errors call it: "table" for dst_table or src_table */
	int64_t *layers;    /* room for n: bytes from the first entry's address to each one's */
	uint32_t *order;    /* room for n: entries by their memory, and in it by their place */

	/* layer_table_init sets these. */
	uint64_t bits;     /* bitwise or of all layers */
	bool is_even;      /* each layer is `step` from the one before */
	uint64_t step;     /* bytes, if is_even */
	uint32_t lowest;   /* the entry with the fewest bytes before it in its region */
	uint32_t tightest; /* the entry with the fewest bytes from it to the end of its region */
	uint64_t room;     /* bytes from `tightest` to the end of its region */
	uint32_t most;     /* most entries in one memory; if > 1, the next four are set */
	uint64_t least;    /* least bytes between two entries of one memory */
	uint32_t near[2];  /* the two entries that are `least` apart */
	bool is_regular;   /* neighbours in a memory are always `least` apart */
	uint64_t span;     /* bytes from the first to the last entry of a memory, at most */

	/* It is known that no two entries of a destination in different memories share bytes in this stretch
	 * from each of them (layer_table_check_apart). */
	struct stretch apart;

	/* Layers of blocks that long, so far from each other, are known to share no bytes in one memory if
	 * each layer ends within reach (layers_are_interleaved). */
	struct layers_between {
		uint64_t step, block;
		int128 reach; /* 0: nothing is known */
	} between;

	/* This is the serial of the last table beside which this one was found to be clear, and the stretches
	 * say how far (layer_tables_meet). */
	uint64_t beside;
	struct stretch clear;     /* distances that were found to be clear in one memory */
	struct stretch proven[2]; /* from an entry of this table and of the other, in two memories */
};

/* Returns where an entry lies in its memory. */
static inline uint64_t layer_position(const struct layer_table *table, uint32_t entry)
{
	return table->places[entry].at.base + table->places[entry].at.offset;
}

/* Returns OUT_OF_RANGE if an entry lies outside its region; the error names it, and the table as `name`. */
int layer_table_init(struct layer_table *table, const char *name, struct error *err);

/* Sets the fields that follow from the addresses alone, in a table that has been copied for another engine.
 */
void layer_table_take_addresses(struct layer_table *table);

/* Checks that n > 0 blocks, step bytes apart, lie in the region of each entry, with `added` bytes added to
 * each. side is "dst" or "src". */
int layer_table_check_range(const struct layer_table *table, const char *side, uint64_t n, uint64_t step,
                            struct tensor_extent extent, uint64_t added, struct error *err);

/* Returns PERMISSION if an entry may not be written; the error calls the table name. */
int layer_table_check_writable(const struct layer_table *table, const char *name, struct error *err);

/* Sorts the offsets of layers. */
void layers_sort(int64_t *layers, uint32_t n);

/* Tells if no two of n layers share bytes. Each has its blocks step bytes apart and ends within reach. Layers
 * that are so near that they lie between each other must have different remainders by step, with a block's
 * bytes between them. layers has where each begins, in ascending order, and is overwritten. */
bool layers_are_interleaved(int64_t *layers, uint32_t n, uint64_t step, uint64_t block, int128 reach);

/* Checks that no two layers of a destination share bytes; blocks of one layer have been checked. of_layer is
 * its stretch, from an entry's place. This is exact where all neighbours in a memory are as far apart; else
 * each layer has to end before the next one begins, or they are interleaved. Layers in two memories that have
 * allocations in common are compared by their stretches. */
int layer_table_check_apart(struct layer_table *table, const struct transform *t, struct stretch of_layer,
                            uint64_t n, uint64_t step, struct error *err);

/* Finds out if a layer shares bytes with a stretch of another place's memory. of_layer is a layer's stretch,
 * from its entry's place. */
enum layer_sharing layer_table_meets(const struct layer_table *table, struct stretch of_layer,
                                     const struct tensor_place *other, struct stretch of_other,
                                     uint32_t *ret_entry);

/* Finds out if a layer of one table shares bytes with a layer of the other. */
enum layer_sharing layer_tables_meet(struct layer_table *dst, struct stretch of_dst,
                                     const struct layer_table *src, struct stretch of_src, uint32_t *ret_dst,
                                     uint32_t *ret_src);

#endif
