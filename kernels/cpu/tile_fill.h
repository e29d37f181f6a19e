/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the image of a tile from the source, or from what is packed of it, in the fastest way that its
 * strides allow.
 *
 *   way        what it moves at a time
 *   panel      rows that are contiguous in the source by columns that are contiguous in the image
 *   few rows   the same, where rows are shorter than 16 bytes
 *   few cols   and where columns are
 *   split      pixels of a few channels, into a row for each channel
 *   merge      and back
 *   shuffle    16 bytes of the image from a few windows of the source
 *   dense      unit by unit, the image contiguous
 *   sparse     unit by unit
 *   runs       runs that are contiguous on both sides
 *
 * A unit is an element, or several that stay together. Rows and columns are products of dimensions; tables
 * say where each lies.
 */
#ifndef KERNELS_CPU_TILE_FILL_H
#define KERNELS_CPU_TILE_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"
#include "proto/tensor.h"

#define TILE_TABLE 1024 /* entries at most */
#define TILE_STEPS 512  /* of a shuffle, at most */
#define TILE_DIMS  (TENSOR_MAX_RANK + 8)

struct tile_dim {
	int64_t n;
	int64_t image, src, packed; /* strides, bytes */
};

enum tile_way {
	TILE_PANEL,
	TILE_FEW_ROWS,
	TILE_FEW_COLS,
	TILE_SPLIT,
	TILE_MERGE,
	TILE_SHUFFLE,
	TILE_DENSE,
	TILE_SPARSE,
	TILE_RUNS,
};

/* For tiles of the same extents; large. */
struct tile_fill {
	const struct cpu_isa *isa;
	enum tile_way way;
	bool exact;         /* nothing is written past a unit, not even what is written over later */
	int64_t unit;       /* bytes */
	int64_t rows, cols; /* of a table: units, in cols */
	double cost;        /* instructions for 16 bytes of the image, about */
	int64_t shift;      /* bytes from the tile's first element to where the way begins in the source */
	int64_t windows;    /* of a shuffle, for each 16 bytes */
	int n_outer;        /* loops around the way, innermost first */
	struct tile_dim outer[TILE_DIMS];
	int64_t image[TILE_TABLE]; /* offsets of rows; of units, where sparse */
	int64_t src[TILE_TABLE];   /* offsets of columns */
	uint32_t at[TILE_TABLE];   /* offsets of units in what is packed */
	struct cpu_shuffle_step step[TILE_STEPS];
};

/* What there is to fill; dim is ordered by image stride, smallest first. All extents are above 1, all strides
 * of the image positive. */
struct tile_shape {
	const struct cpu_isa *isa;
	int64_t element;
	bool exact;
	bool direct; /* from the source: only ways that read it in long runs, and nothing past an element */
	int n;
	struct tile_dim dim[TENSOR_MAX_RANK];
};

/* false: no way is direct. */
bool tile_fill_init(struct tile_fill *ret, const struct tile_shape *shape);

/* src: the tile's first element, in the source if the way is direct, else packed, with 64 bytes behind that
 * may be read. Meanwhile a direct way fetches lines from `next`, where the next tile begins or which is NULL,
 * and another one those that fetch names. */
void tile_fill_run(const struct tile_fill *fill, char *image, const char *src, const char *next,
                   struct cpu_fetch *fetch);

#endif
