/* SPDX-License-Identifier: Apache-2.0 */
/* Moves a box of a move tile by tile.
 *
 * A tile is assembled in scratch memory as its image: the bytes that the destination will hold, in rows
 * without gaps where the destination has none. The rows are then written, in whole lines past the cache. If a
 * row continues in another tile, the incomplete line at its end is kept until that tile completes it (isa.h,
 * cpu_flush_fn). Tiles of a move that is in_place have no image: they are assembled in the destination,
 * through the cache. Tiles of a move that is bordered are first assembled as a core, without borders, and the
 * image is then made from the core.
 *
 * Layout of the scratch memory (scratch->move):
 *
 *   | image | core | lines that are kept | planes | packed runs of the source |
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
