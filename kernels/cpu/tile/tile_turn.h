/* SPDX-License-Identifier: Apache-2.0 */
/* Takes the pixels of what is packed apart, into a plane for each channel, where the image is then filled
 * faster from the planes.
 *
 * A pixel is what the source has first: dimensions of 16 bytes or less in all, with others behind them that
 * are contiguous and longer.
 *
 *   packed   r g b r g b r g b ...    planes   r r r ... g g g ... b b b ...
 */
#ifndef KERNELS_CPU_TILE_TILE_TURN_H
#define KERNELS_CPU_TILE_TILE_TURN_H

#include "tile_fill.h"

/* Planes of a tile take so many bytes more than the tile, at most; those behind the last may be read. */
#define TILE_TURN_MORE (17 * 2 * CPU_LINE)

struct tile_turn {
	const struct cpu_isa *isa;
	double cost; /* as of a fill */
	int64_t unit, channels, pixels;
	int64_t row[16];
	int n_outer;
	struct tile_dim outer[TENSOR_MAX_RANK]; /* image: in the planes */
};

/* false: there are no such pixels. Otherwise `packed` of the dimensions says where things lie in the planes.
 */
bool tile_turn_init(struct tile_turn *ret, const struct cpu_isa *isa, int64_t element, struct tile_dim *dim,
                    int n);

/* packed: the tile's first element, which is the one with the lowest address. */
void tile_turn_run(const struct tile_turn *turn, char *planes, const char *packed);

#endif
