/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements on their way: runs a move whose destination is of another type.
 *
 * Rows of the destination are converted block by block in the first cache: from elements to lanes, which are
 * multiplied and added to, and back to elements (isa/converters.h). Where the source has the same rows, they
 * are read from there; else a tile of it is permuted first, by the ways of tile_fill.h, into scratch.
 */
#ifndef KERNELS_CPU_MOVE_CONVERT_H
#define KERNELS_CPU_MOVE_CONVERT_H

#include <stdint.h>

#include "kernels/cpu/plan/cpu_tile.h"
#include "kernels/nest/loop_nest.h"

struct cpu_scratch;
struct move;
struct tile_box;

/* Chooses is_direct, tiles and pieces of a move, whose dimensions are those of the nest. piece_bytes as in
 * the place. */
void convert_init(struct move *move, const struct loop_nest *nest, int64_t piece_bytes);

/* Whether rows of a nest are converted where they lie in the source. */
bool convert_is_direct(const struct loop_nest *nest);

/* Chooses pieces of a move that is direct; each holds whole units of so many elements. */
void convert_choose_direct(struct move *move, const struct loop_nest *nest, int64_t piece_bytes,
                           const int64_t *unit);

/* What tiles of other moves are to be, and the nest that they are chosen for. */
struct cpu_tile_want convert_want(const struct loop_nest *nest, int64_t piece_bytes);
void convert_twin_of(const struct loop_nest *nest, struct loop_nest *ret);

/* Whether a tile of this extent fits scratch; from: bytes of an element of the source. */
bool convert_tile_fits(const struct move *move, int64_t from, const int64_t *extent);

/* Permutes a tile of the source into scratch->made, and gives its strides there. */
void convert_permute(const struct move *move, int64_t from, const char *src, const int64_t *extent,
                     struct cpu_scratch *scratch, int64_t *ret_stride);

/* The dimensions that a box has several tiles in, the closest in the source first. Gives how many. */
int convert_order_loops(const struct move *move, const int64_t *extent, int *ret);

/* Runs a box. scale and bias: where those of its first element lie. */
void convert_run(const struct move *move, const struct tile_box *box, const char *scale, const char *bias,
                 struct cpu_scratch *scratch);

#endif
