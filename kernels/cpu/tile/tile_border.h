/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the borders of padded dimensions around the core of a tile, which is its image without them: row by
 * row of the image, by shuffles that fetch a border's elements from where the core has them.
 *
 *   core   a b c d e f      image   0 a b c 0 0 d e f 0      (mode constant)
 */
#ifndef KERNELS_CPU_TILE_TILE_BORDER_H
#define KERNELS_CPU_TILE_TILE_BORDER_H

#include "tile_fill.h"

/* A dimension of the image; windowed ones as in a loop nest (loop_nest.h). */
struct tile_border_dim {
	int64_t n;
	int64_t image, core; /* strides, bytes */
	int64_t before, source;
};

/* What the border has. */
struct tile_border_fill {
	enum pad_mode mode;
	const void *value; /* of mode constant */
	uint32_t bytes;    /* of it: a power of two, no more than an element */
};

/* For tiles of the same extents; large. */
struct tile_border {
	const struct cpu_isa *isa;
	int64_t element;        /* bytes */
	int64_t bytes;          /* of a row of the image that is put together at a time */
	int64_t windows;        /* for each 16 of them; 0: it goes element by element */
	bool is_filled;         /* some are the value */
	uint8_t line[CPU_LINE]; /* the value, repeated */
	uint32_t at[TILE_TABLE];
	struct cpu_shuffle_step step[TILE_STEPS];
	uint8_t fill[TILE_STEPS * 16];
	int n_outer; /* loops over rows, innermost first */
	struct tile_border_loop {
		int64_t n, step, last; /* index i of it is that of the dimension at i * step, or last */
		int64_t image, core;   /* strides */
		int32_t first;         /* of a window's offsets in `core`; else -1 */
	} outer[TENSOR_MAX_RANK];
	int64_t core[TILE_TABLE]; /* offsets of the indices of such windows; -1: they are the value */
};

/* Whether rows of the image are long enough for shuffles. dim is ordered by image stride, smallest first. */
bool tile_border_is_cheap(int64_t element, const struct tile_border_dim *dim, int n);

/* The windowed dimensions have TILE_TABLE indices in all, at most. */
void tile_border_init(struct tile_border *ret, const struct cpu_isa *isa, int64_t element,
                      const struct tile_border_fill *fill, const struct tile_border_dim *dim, int n);

/* 16 bytes behind the core may be read. Nothing is written past the image's rows. */
void tile_border_run(const struct tile_border *border, char *image, const char *core);

#endif
