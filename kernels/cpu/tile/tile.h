/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles move a box of a move one after the other.
 *
 * A tile is put together in scratch as its image: what the destination will hold, in rows without gaps where
 * the destination has none. Then the rows are written, whole lines past the cache. Where a row goes on in
 * another tile, the line between them is kept until that tile makes it whole (isa.h, cpu_flush_fn). Tiles of
 * a move that is in_place have no image: they are put together in the destination, through the cache. Those
 * of one that is bordered are put together as a core, without borders, and from there the image.
 *
 *   scratch->move   | image | core | lines that are kept | planes | what is packed |
 * source |
 */
#ifndef KERNELS_CPU_TILE_TILE_H
#define KERNELS_CPU_TILE_TILE_H

#include "kernels/cpu/move/move.h"

/* Returns whether the tiles of a move, whose dimensions already have their chunks and tiles, fit a thread's
 * scratch memory. */
bool tile_fits(const struct move *move);

/* Returns whether rows are long enough for borders to be assembled by shuffles. */
bool tile_borders_are_cheap(const struct move *move);

/* Runs a box tile by tile. scratch belongs to the calling thread. */
void tile_run(const struct move *move, const struct move_box *box, struct cpu_scratch *scratch);

#endif
