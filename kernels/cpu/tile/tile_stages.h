/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of a tile besides its fill: packing what it reads, taking pixels apart into planes, and
 * assembling borders around its core. tile.h says in which order they come. */
#ifndef KERNELS_CPU_TILE_TILE_STAGES_H
#define KERNELS_CPU_TILE_TILE_STAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "tile_fill.h"

/* ---- Packing ---------------------------------------------------------------------------------------- */

/* Packs the tile's runs of the source one after the other, each from its first byte to its last.
 *
 * Memory answers faster to long runs than to accesses that jump from one run to the next, and packed runs do
 * not evict each other from the cache, wherever they come from.
 */
#define TILE_PACK_RUNS 1024 /* maximum number of runs of a tile */

/* The plan for packing, which serves all tiles of the same extents. */
struct tile_pack {
	int64_t n;            /* number of runs */
	int64_t bytes, pitch; /* bytes of a run, and bytes from one packed run to the next */
	int64_t low;          /* bytes from the tile's first element to its lowest one in the source; <= 0 */
	int64_t first;        /* bytes from the lowest element to the first one, once packed */
	int64_t offset[TILE_PACK_RUNS]; /* bytes from the lowest element to each run in the source */
};

/* Sets up *ret, and the packed strides of the n dimensions. Returns false if there are too many runs. */
bool tile_pack_init(struct tile_pack *ret, int64_t element, struct tile_dim *dim, int n);

/* Returns the bytes that the packed runs take, including CPU_LINE bytes after them that may be read. */
int64_t tile_pack_size(const struct tile_pack *pack);

/* Packs a tile. src is its first element. */
void tile_pack_run(const struct tile_pack *pack, char *packed, const char *src);

/* ---- Planes ----------------------------------------------------------------------------------------- */

/* Takes pixels apart into a plane for each channel, if the image can be filled faster from the planes than
 * from the packed runs.
 *
 * A pixel consists of the dimensions that are innermost in the source, 16 bytes or less in all, if they are
 * followed by others that continue contiguously and are longer.
 *
 *   packed   r g b r g b r g b ...    planes   r r r ... g g g ... b b b ...
 */

/* Maximum number of bytes by which the planes of a tile exceed the tile itself. The bytes after the last
 * plane may be read. */
#define TILE_TURN_MORE (17 * 2 * CPU_LINE)

struct tile_turn {
	const struct cpu_isa *isa;
	double cost; /* as in struct tile_fill */
	int64_t unit, channels, pixels;
	int64_t row[16];
	int n_outer;
	struct tile_dim outer[TENSOR_MAX_RANK]; /* image strides are those in the planes here */
};

/* Returns false if there are no such pixels. Otherwise sets the packed strides of the dimensions to those in
 * the planes. */
bool tile_turn_init(struct tile_turn *ret, const struct cpu_isa *isa, int64_t element, struct tile_dim *dim,
                    int n);

/* Takes the pixels apart. packed is the tile's first element, which must be the one with the lowest
 * address. */
void tile_turn_run(const struct tile_turn *turn, char *planes, const char *packed);

/* ---- Borders ---------------------------------------------------------------------------------------- */

/* Assembles the image of a tile from its core, which is the image without the borders of windowed dimensions:
 * row by row, by shuffles that take a border's elements from their places in the core.
 *
 *   core   a b c d e f      image   0 a b c 0 0 d e f 0      (mode constant)
 */

/* A dimension of the image. before and source are those of a window (loop_nest.h). */
struct tile_border_dim {
	int64_t n;
	int64_t image, core; /* strides in bytes */
	int64_t before, source;
};

/* The content of a border. */
struct tile_border_fill {
	enum pad_mode mode;
	const void *value; /* the value, in mode constant */
	uint32_t bytes;    /* bytes of the value: a power of two, at most the size of an element */
};

/* The plan for borders, which serves all tiles of the same extents. The struct is large. */
struct tile_border {
	const struct cpu_isa *isa;
	int64_t element; /* bytes of an element */
	int64_t bytes;   /* bytes of a row of the image that are assembled at a time */
	/* Windows for each 16 bytes of a row; 0: rows are assembled element by element. */
	int64_t windows;
	bool is_filled;         /* some bytes of a row are the border's value */
	uint8_t line[CPU_LINE]; /* the value, repeated */
	uint32_t at[TILE_TABLE];
	struct cpu_shuffle_step step[TILE_STEPS];
	uint8_t fill[TILE_STEPS * 16];
	int n_outer; /* loops over rows, innermost first */
	struct tile_border_loop {
		/* Index i of the loop is index i * step of the dimension, or `last` if that is less. */
		int64_t n, step, last;
		int64_t image, core; /* strides in bytes */
		/* Index in `core` of the first offset of a window; -1: the dimension is not windowed. */
		int32_t first;
	} outer[TENSOR_MAX_RANK];
	/* Offset in the core for each index of the windows; -1: the border's value. */
	int64_t core[TILE_TABLE];
};

/* Returns whether rows of the image are long enough for shuffles. dim is ordered by image stride, smallest
 * first. */
bool tile_border_is_cheap(int64_t element, const struct tile_border_dim *dim, int n);

/* Sets up *ret. The windowed dimensions must have at most TILE_TABLE indices in all. */
void tile_border_init(struct tile_border *ret, const struct cpu_isa *isa, int64_t element,
                      const struct tile_border_fill *fill, const struct tile_border_dim *dim, int n);

/* Assembles an image from its core, after which 16 bytes may be read. Nothing is written beyond the rows of
 * the image. */
void tile_border_run(const struct tile_border *border, char *image, const char *core);

#endif
