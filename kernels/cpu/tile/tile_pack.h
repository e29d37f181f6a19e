/* SPDX-License-Identifier: Apache-2.0 */
/* Packs what a tile reads: its runs of the source, one after the other, each from its first byte to its last.
 *
 * Memory answers faster to runs than to accesses that go from one run to the next, and packed runs do not
 * push each other out of the cache, wherever they come from.
 */
#ifndef KERNELS_CPU_TILE_TILE_PACK_H
#define KERNELS_CPU_TILE_TILE_PACK_H

#include <stdbool.h>
#include <stdint.h>

#include "tile_fill.h"

#define TILE_PACK_RUNS 1024 /* at most */

/* For tiles of the same extents. */
struct tile_pack {
	int64_t n;            /* runs */
	int64_t bytes, pitch; /* of a run; from one to the next where they are packed */
	int64_t low;          /* bytes from the tile's first element to its lowest in the source; <= 0 */
	int64_t first;        /* bytes from the lowest to the first where they are packed */
	int64_t offset[TILE_PACK_RUNS]; /* of runs, from the lowest */
};

/* Sets the `packed` strides of the n dimensions. false: too many runs. */
bool tile_pack_init(struct tile_pack *ret, int64_t element, struct tile_dim *dim, int n);

/* Bytes that it takes, and CPU_LINE behind them that may be read. */
int64_t tile_pack_size(const struct tile_pack *pack);

/* src: the tile's first element. */
void tile_pack_run(const struct tile_pack *pack, char *packed, const char *src);

#endif
