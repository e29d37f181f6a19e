/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements on their way: runs a move whose destination is of another type.
 *
 * Rows of the destination are converted block by block in the first cache: from elements to lanes, which are
 * multiplied and added to, and back to elements (isa/converters.h). Where the source has the same rows, they
 * are read from there; else a tile of it is permuted first, by the ways of tile_fill.h, into scratch.
 */
#ifndef KERNELS_CPU_CONVERT_H
#define KERNELS_CPU_CONVERT_H

#include <stdint.h>

#include "kernels/plan/conversion.h"
#include "kernels/plan/loop_nest.h"

struct cpu_scratch;
struct move;
struct tile_box;

/* How a job converts. */
struct convert_place {
	const struct conversion *conversion;
	const char *scale, *bias; /* element [0, ..., 0] of the tensor, or the number, a double; not NULL */
	uint64_t *changed; /* of an exact cast: elements whose value changed are counted here, atomically */
};

/* Chooses is_direct, tiles and pieces of a move, whose dimensions are those of the nest. piece_bytes as in
 * the place. */
void convert_init(struct move *move, const struct loop_nest *nest, int64_t piece_bytes);

/* Runs a box. scale and bias: where those of its first element lie. */
void convert_run(const struct move *move, const struct tile_box *box, const char *scale, const char *bias,
                 struct cpu_scratch *scratch);

#endif
