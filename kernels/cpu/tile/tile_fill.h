/* SPDX-License-Identifier: Apache-2.0 */
/* Fills the image of a tile from the source, or from its packed runs, in the fastest way that the strides
 * allow.
 *
 *   way        what it moves at a time
 *   panel      rows that are contiguous in the source by columns that are contiguous in the image
 *   few rows   a panel of fewer than 16 / unit rows
 *   few cols   a panel of fewer than 16 / unit columns
 *   split      pixels of a few channels, into one row for each channel
 *   merge      one row for each channel, into pixels
 *   shuffle    16 bytes of the image from a few windows of the source
 *   dense      single units, over which the image is contiguous
 *   sparse     single units at any place in the image
 *   runs       runs that are contiguous on both sides
 *
 * A unit is an element, or several elements that are contiguous on both sides and are moved as one. Rows and
 * columns are products of dimensions; tables say where each row and column lies.
 */
#ifndef KERNELS_CPU_TILE_TILE_FILL_H
#define KERNELS_CPU_TILE_TILE_FILL_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"
#include "proto/tensor.h"

#define TILE_TABLE 1024 /* maximum number of entries of a table */
#define TILE_STEPS 512  /* maximum number of steps of a shuffle */
#define TILE_DIMS  (TENSOR_MAX_RANK + 8)

struct tile_dim {
	int64_t n;
	int64_t image, src, packed; /* strides in bytes */
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

/* The plan for filling the image, which serves all tiles of the same extents. The struct is large. */
struct tile_fill {
	const struct cpu_isa *isa;
	enum tile_way way;
	bool exact;   /* nothing is written beyond a unit, not even bytes that are overwritten later */
	int64_t unit; /* bytes of a unit */
	/* Rows and columns that the way moves at a time. Ways that use a table of units count these in
	 * cols. */
	int64_t rows, cols;
	double cost;     /* approximate number of instructions for 16 bytes of the image */
	int64_t shift;   /* bytes from the tile's first element to where the way begins in the source */
	int64_t windows; /* windows of a shuffle for each 16 bytes */
	int n_outer;     /* loops around the way, innermost first */
	struct tile_dim outer[TILE_DIMS];
	int64_t image[TILE_TABLE]; /* offsets of rows in the image, or of units if the way is TILE_SPARSE */
	int64_t src[TILE_TABLE];   /* offsets of columns in the source */
	uint32_t at[TILE_TABLE];   /* offsets of units in the packed runs */
	struct cpu_shuffle_step step[TILE_STEPS];
};

/* The tile to be filled. dim is ordered by image stride, smallest first. All extents are above 1, and all
 * image strides are positive. */
struct tile_shape {
	const struct cpu_isa *isa;
	int64_t element;
	bool exact;
	/* The tile is filled straight from the source, so only ways are allowed that read it in long runs,
	 * and nothing is read beyond an element. */
	bool direct;
	int n;
	struct tile_dim dim[TENSOR_MAX_RANK];
};

/* Chooses a way. Returns false if shape->direct is set and no way is possible. */
bool tile_fill_init(struct tile_fill *ret, const struct tile_shape *shape);

/* Fills the image. src is the tile's first element: in the source if the fill is direct, else in the packed
 * runs, after which 64 bytes may be read. A direct fill prefetches lines from `next`, where the next tile
 * begins (NULL: there is none); other fills prefetch the lines that *fetch names. */
void tile_fill_run(const struct tile_fill *fill, char *image, const char *src, const char *next,
                   struct cpu_fetch *fetch);

/* ---- For stages before and after a fill (tile_stages.h) --------------------------------------------- */

/* Finds the windows for the 16 bytes from byte `from` on, of units that lie at the offsets `at`. Returns
 * their number, or most + 1 if there are more than `most`. Units at SHUFFLE_FILL are in no window. */
#define SHUFFLE_FILL UINT32_MAX
int64_t shuffle_windows(const uint32_t *at, int64_t unit, int64_t from, int64_t most,
                        struct cpu_shuffle_step *step);

/* Adds empty windows from the n-th on, so that there are `windows` in all. */
void shuffle_add_windows(struct cpu_shuffle_step *step, int64_t n, int64_t windows);

/* Approximate number of instructions for 16 bytes when pixels whose size is a power of two are taken
 * apart. */
#define TILE_SPLIT_COST 5.0

/* Returns the cost of pixels of `bytes` bytes, which are widened to the next power of two. `full` is the cost
 * of pixels of that size. */
double pixel_cost(int64_t bytes, double full);

#endif
