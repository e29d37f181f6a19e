/* SPDX-License-Identifier: Apache-2.0 */
/* The two ways to move a padded transform together with its border, where its subregions would be slow one by
 * one: they share cache lines with their neighbours, the more so the shorter rows and borders are, and read
 * the source's once more.
 *
 * Windows (loop_nest.h): axes whose border is short in the destination, or lies across the source, are put
 * together with it in tiles.
 *
 * Scratch blocks: a destination with short rows is divided into blocks that fit a thread's scratch memory.
 * Each is put together there and then written once, line by line, past the cache. A scratch block is a
 * stretch of one axis with all the axes inside it, as long as fits; that axis and those outside it are not
 * padded, some of those inside it are, and the destination is contiguous there.
 */
#ifndef KERNELS_CPU_PLAN_PADDED_H
#define KERNELS_CPU_PLAN_PADDED_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/move/move.h"
#include "kernels/transform/transform.h"

/* Chooses the axes that are moved as windows: a bit for each; 0: none. */
uint32_t windows_choose(const struct transform *transform, const struct cpu_isa *isa,
                        const struct move_place *place);

struct scratch_blocks {
	const struct transform *transform;
	int axis;
	int64_t step;  /* of the axis; a scratch block's extent */
	int64_t bytes; /* of one step */
	uint64_t n;
};

/* False when the transform is better off subregion by subregion, or cannot be cut. It must outlive *ret. */
bool scratch_blocks_init(struct scratch_blocks *ret, const struct transform *transform);

/* Makes scratch block i and writes it. place: of the whole destination and source. scratch as for move_run.
 */
void scratch_blocks_run(const struct scratch_blocks *scratch_blocks, uint64_t i, const struct cpu_isa *isa,
                        const struct move_place *place, struct cpu_scratch *scratch);

#endif
