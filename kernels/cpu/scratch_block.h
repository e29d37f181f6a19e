/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a padded destination with short rows into scratch blocks, which fit a thread's scratch memory.
 *
 * Its subregions share cache lines, the more so the shorter the rows are. Each scratch block is put together
 * in scratch and then written once, line by line, past the cache. A scratch block is a stretch of one axis
 * with all the axes inside it, as long as fits; that axis and those outside it are not padded, some of those
 * inside it are, and the destination is contiguous there.
 */
#ifndef KERNELS_CPU_SCRATCH_BLOCK_H
#define KERNELS_CPU_SCRATCH_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/plan/transform.h"
#include "move.h"

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
