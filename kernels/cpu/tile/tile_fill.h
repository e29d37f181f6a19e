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
#ifndef KERNELS_CPU_TILE_TILE_FILL_H
#define KERNELS_CPU_TILE_TILE_FILL_H

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

/* ---- How a way is chosen: shared by the files that know a way each ------------------------------------- */

/* The dimensions of a tile while its way is chosen. Those that the way takes are marked; the others become
 * loops around it. */
struct tile_choice {
	struct tile_fill *fill;
	bool direct;
	int n;
	uint64_t taken;
	int64_t used; /* rows of a panel that are no gaps */
	struct tile_dim dim[TILE_DIMS];
};

bool choice_is_taken(const struct tile_choice *choice, int d);
void choice_take(struct tile_choice *choice, int d);

/* The dimension of that stride that is not taken; -1: none. */
int choice_find_image(const struct tile_choice *choice, int64_t stride);
int choice_find_src(const struct tile_choice *choice, int64_t stride); /* of either sign */

/* Makes dimension d at most `most` long, which it may be already, by cutting it in two; the other part
 * follows it. false: it has no such divisor. */
bool choice_shorten(struct tile_choice *choice, int d, int64_t most);

/* Multiplies the `have` offsets of a table by a dimension. */
void choice_extend(int64_t *table, int64_t have, int64_t n, int64_t stride);

/* The windows of the 16 bytes from byte `from` of units that lie at `at`; most + 1 when there are more. Units
 * at SHUFFLE_FILL are in no window. */
#define SHUFFLE_FILL UINT32_MAX
int64_t shuffle_windows(const uint32_t *at, int64_t unit, int64_t from, int64_t most,
                        struct cpu_shuffle_step *step);

/* Windows from the n-th on that have nothing. */
void shuffle_add_windows(struct cpu_shuffle_step *step, int64_t n, int64_t windows);

/* Instructions for 16 bytes, about: unit by unit, and of pixels that need no room, to take them apart. */
#define TILE_UNITS_COST 40.0
#define TILE_SPLIT_COST 5.0

/* Returns the cost of pixels of so many bytes, which take the next power of two; `full` is the cost of those
 * that take all of that. */
double pixel_cost(int64_t bytes, double full);

/* Each sets the way and takes its dimensions, or leaves the choice as it is and returns false. Panels and
 * pixels are for units of 1, 2, 4, 8 or 16 bytes that are contiguous in different dimensions of the source
 * and of the image. A shuffle that costs more than `most` is not chosen. */
bool choose_panel(struct tile_choice *choice);
bool panel_is_full(const struct tile_fill *fill); /* hardly anything is faster */
bool choose_few(struct tile_choice *choice);
bool choose_pixels(struct tile_choice *choice);
bool choose_shuffle(struct tile_choice *choice, double most);
void choose_table(struct tile_choice *choice);

void few_rows_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch);
void few_cols_run(const struct tile_fill *fill, char *image, const char *src, struct cpu_fetch *fetch);
void table_run(const struct tile_fill *fill, char *image, const char *src);

#endif
