/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a move whose destination has another type than its source.
 *
 * Rows of the destination are converted block by block in the first-level cache: from elements to lanes,
 * which may be multiplied and added to, and back to elements (isa.h). If the source has the same rows, they
 * are read straight from it. Otherwise a tile of the source is first permuted into scratch, by the ways of
 * tile_fill.h. amax.c uses the functions declared here too.
 */
#ifndef KERNELS_CPU_MOVE_CONVERT_H
#define KERNELS_CPU_MOVE_CONVERT_H

#include <stdint.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/nest/loop_nest.h"
#include "move.h"

/* Chooses is_direct, tiles and pieces of a move, whose dimensions are those of the nest. piece_bytes is that
 * of struct move_place. */
void convert_init(struct move *move, const struct loop_nest *nest, int64_t piece_bytes);

/* Returns whether rows of a nest are converted straight from the source, without tiles. */
bool convert_is_direct(const struct loop_nest *nest);

/* Chooses the pieces of a direct move. Each piece contains whole units of unit[d] elements; unit may be NULL,
 * for single elements. */
void convert_choose_direct(struct move *move, const struct loop_nest *nest, int64_t piece_bytes,
                           const int64_t *unit);

/* convert_want returns the sizes that the tiles of moves that are not direct should have, and convert_twin_of
 * sets *ret to the nest for which they are chosen: the same permutation with elements of the source's type on
 * both sides. */
struct cpu_tile_want convert_want(const struct loop_nest *nest, int64_t piece_bytes);
void convert_twin_of(const struct loop_nest *nest, struct loop_nest *ret);

/* Returns whether a tile of these extents fits scratch memory. from is the size in bytes of an element of the
 * source. */
bool convert_tile_fits(const struct move *move, int64_t from, const int64_t *extent);

/* Permutes a tile of the source into scratch->made, and sets ret_stride to the strides that the tile has
 * there. */
void convert_permute(const struct move *move, int64_t from, const char *src, const int64_t *extent,
                     struct cpu_scratch *scratch, int64_t *ret_stride);

/* Sets *ret to the dimensions in which a box has several tiles, those with the smallest stride in the source
 * first. Returns the number of these dimensions. */
int convert_order_loops(const struct move *move, const int64_t *extent, int *ret);

/* Number of lanes that are converted at a time: three buffers of float64 lanes fill less than half of a
 * first-level cache of 32 KiB. */
#define CONVERT_BLOCK 512

#define CONVERT_LANES_BYTES (CONVERT_BLOCK * (int64_t)sizeof(double) + CPU_LINE)

enum { SCALE, BIAS, OPERANDS };

/* The dimensions that form a row, innermost first. If there are several, all but the last are whole. */
struct row {
	int n_dims;
	int64_t n; /* elements of the row */
	struct row_dim {
		int64_t n, stride[OPERANDS];
	} dim[TENSOR_MAX_RANK];
};

/* State of converting one piece. */
struct converting {
	const struct move *move;
	const struct cpu_converters *converters;
	cpu_load_fn *load, *load_back;
	cpu_store_fn *store;
	enum cpu_lane lane;
	int64_t from, to; /* bytes of an element of the source, and of the destination */
	bool is_exact;
	uint64_t changed;
	const struct operand *operand[OPERANDS];
	bool is_by; /* float32 lanes are multiplied by `by`, and the scale is ignored */
	float by;
	struct row row;
	/* If set, nothing is converted: magnitude becomes the maximum of itself and the magnitudes of the
	 * elements. */
	bool reduces;
	/* Used with `reduces`: the maxima of the rows' elements are collected in `result`, lane by lane. */
	bool by_lanes;
	uint32_t magnitude;
	cpu_magnitude_fn *magnitude_of;
	/* The elements of each operand that its lanes hold at present: `held_n` from index `held_from` on, of
	 * the row whose operands begin at `held`. NULL: none yet. */
	const char *held[OPERANDS];
	int64_t held_from[OPERANDS], held_n[OPERANDS];
	_Alignas(CPU_LINE) char lanes[CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char result[CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char operand_lanes[OPERANDS][CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char elements[CONVERT_LANES_BYTES];
};

/* Prepares to convert for a move. No operand is held; reduces and is_by are false. */
void converting_init(struct converting *c, const struct move *move);

/* Finds the dimensions that form a row in boxes of these extents. src[d] is the stride in bytes of the
 * elements that are read. */
void converting_choose_row(struct converting *c, const int64_t *extent, const int64_t *src);

/* Converts a box, or only finds its magnitude if c->reduces, by the row that was chosen for its extents.
 * operand has the addresses of the operands of the box's first element. */
void convert_rows(struct converting *c, char *dst, const char *src, const char *const *operand,
                  const int64_t *extent, const int64_t *src_stride);

#endif
