/* SPDX-License-Identifier: Apache-2.0 */
/* Converts elements on their way: runs a move whose destination is of another type.
 *
 * Rows of the destination are converted block by block in the first cache: from elements to lanes, which are
 * multiplied and added to, and back to elements (isa.h). Where the source has the same rows, they are read
 * from there; else a tile of it is permuted first, by the ways of tile_fill.h, into scratch. amax.c uses the
 * parts.
 */
#ifndef KERNELS_CPU_MOVE_CONVERT_H
#define KERNELS_CPU_MOVE_CONVERT_H

#include <stdint.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/nest/loop_nest.h"
#include "move.h"

/* Chooses is_direct, tiles and pieces of a move, whose dimensions are those of the nest. piece_bytes is that
 * of the place. */
void convert_init(struct move *move, const struct loop_nest *nest, int64_t piece_bytes);

/* Returns whether rows of a nest are converted where they lie in the source. */
bool convert_is_direct(const struct loop_nest *nest);

/* Chooses pieces of a move that is direct; each holds whole units of so many elements. */
void convert_choose_direct(struct move *move, const struct loop_nest *nest, int64_t piece_bytes,
                           const int64_t *unit);

/* convert_want returns the sizes that the tiles of other moves should have, and convert_twin_of sets *ret to
 * the nest that they are chosen for. */
struct cpu_tile_want convert_want(const struct loop_nest *nest, int64_t piece_bytes);
void convert_twin_of(const struct loop_nest *nest, struct loop_nest *ret);

/* Returns whether a tile of this extent fits scratch. from is the size of an element of the source in bytes.
 */
bool convert_tile_fits(const struct move *move, int64_t from, const int64_t *extent);

/* Permutes a tile of the source into scratch->made, and sets ret_stride to its strides there. */
void convert_permute(const struct move *move, int64_t from, const char *src, const int64_t *extent,
                     struct cpu_scratch *scratch, int64_t *ret_stride);

/* Sets *ret to the dimensions in which a box has several tiles, the closest in the source first, and returns
 * how many there are. */
int convert_order_loops(const struct move *move, const int64_t *extent, int *ret);

/* So many lanes are converted at a time: three buffers of float64 lanes fill half of a first cache of 32 KiB.
 */
#define CONVERT_BLOCK 512

#define CONVERT_LANES_BYTES (CONVERT_BLOCK * (int64_t)sizeof(double) + CPU_LINE)

enum { SCALE, BIAS, OPERANDS };

/* The dimensions of a row, innermost first. If there are several, all but the last are whole. */
struct row {
	int n_dims;
	int64_t n; /* elements */
	struct row_dim {
		int64_t n, stride[OPERANDS];
	} dim[TENSOR_MAX_RANK];
};

/* The state of a conversion of one piece. */
struct converting {
	const struct move *move;
	const struct cpu_converters *converters;
	cpu_load_fn *load, *load_back;
	cpu_store_fn *store;
	enum cpu_lane lane;
	int64_t from, to; /* sizes of an element of the source and of the destination, bytes */
	bool is_exact;
	uint64_t changed;
	const struct operand *operand[OPERANDS];
	bool is_by; /* float32 lanes are multiplied by `by`, and the scale is not looked at */
	float by;
	struct row row;
	/* If this is set nothing is converted: magnitude becomes the largest of itself and the magnitudes of
	 * the elements. */
	bool reduces;
	/* The magnitudes of a row, which has elements of one block only, are in `result`, lane by lane. */
	bool by_lanes;
	uint32_t magnitude;
	cpu_magnitude_fn *magnitude_of;
	/* These say which elements the lanes of an operand hold; NULL: none yet. */
	const char *held[OPERANDS];
	int64_t held_from[OPERANDS], held_n[OPERANDS];
	_Alignas(CPU_LINE) char lanes[CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char result[CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char operand_lanes[OPERANDS][CONVERT_LANES_BYTES];
	_Alignas(CPU_LINE) char elements[CONVERT_LANES_BYTES];
};

/* Begins to convert for a move: nothing is held, and reduces and is_by are false. */
void converting_init(struct converting *c, const struct move *move);

/* Finds the dimensions of a row of boxes of this extent, whose elements lie src[d] bytes apart in what is
 * read. */
void converting_choose_row(struct converting *c, const int64_t *extent, const int64_t *src);

/* Converts a box, or only finds its magnitude if c->reduces, by the row that was chosen for its extent.
 * operand says where the operands of its first element lie. */
void convert_rows(struct converting *c, char *dst, const char *src, const char *const *operand,
                  const int64_t *extent, const int64_t *src_stride);

#endif
