/* SPDX-License-Identifier: Apache-2.0 */
/* A move: one loop nest placed in memory, its microkernel chosen, divided into pieces that threads can run
 * side by side.
 *
 * A piece is a box of the loop nest. Pieces write disjoint bytes, and no two share a cache line of the
 * destination unless the loop nest's own rows do. A move owns no memory and may be copied.
 */
#ifndef KERNELS_CPU_MOVE_H
#define KERNELS_CPU_MOVE_H

#include <stdbool.h>
#include <stdint.h>

#include "amax.h"
#include "kernels/cpu/isa/isa.h"
#include "convert.h"
#include "kernels/plan/loop_nest.h"
#include "microkernel.h"
#include "scratch.h"

struct move_dim {
	int64_t n;
	int64_t dst, src; /* strides, bytes */
	int64_t chunk;    /* of a piece, in units of this dimension */
	/* Of a window as in a loop nest, which tiles and pieces have whole; source 0: it is none. */
	int64_t before, source;
	int64_t scale, bias; /* strides of a conversion's operands */
	/* As in a loop nest; skew is also added to indices so that pieces begin
	 * with a block, where they have whole ones. */
	int64_t block, skew, to_scale, to_inverse;
	int64_t to_magnitude; /* from block to block, in the move's */
};

struct move {
	const struct cpu_isa *isa;
	microkernel_fn *microkernel;
	bool stream;   /* past the cache */
	uint32_t unit; /* bytes */
	char *dst;     /* the first unit */
	const char *src;
	int rank;
	int row_dim, col_dim; /* the microkernel's; -1: one unit */
	/* Further dimensions of a transpose's microkernel, from the inside out: those that go on where
	 * row_dim ends in the source, and where col_dim ends in the destination. All but the last of each are
	 * whole in a piece. */
	int n_row, n_run;
	int8_t row_chain[MICROKERNEL_DIMS], run_chain[MICROKERNEL_DIMS];
	int64_t lead; /* added to indices of col_dim so that pieces begin with a line */
	int64_t pieces;
	bool tiled;
	bool in_place; /* tiles are put together in the destination */
	bool is_exact; /* and nothing is written past an element there, even if it is written over later */
	bool converts; /* it is tiled, or is_direct: its rows are converted where they lie */
	bool is_direct;
	struct convert_place conversion; /* operands at the first element, results at the first block */
	enum amax_pass pass;
	_Atomic uint32_t *magnitude; /* of blocks; of a move in two passes */
	bool bordered;               /* some dimensions are windows */
	enum pad_mode mode;          /* of their border, as in the place */
	const void *fill;
	uint32_t fill_bytes;
	int64_t tile[TENSOR_MAX_RANK]; /* extents of a tile by dimension */
	int64_t ahead; /* bytes to where the same move goes next in the source; 0, as move_init has it: not
	                  known */
	struct move_dim dim[TENSOR_MAX_RANK];
};

/* Where a loop nest's bases lie and how it is to be run. */
struct move_place {
	char *dst;
	const char *src;
	const void *fill; /* the pattern, one element; must outlive the move */
	uint32_t fill_bytes;
	enum pad_mode mode;
	int64_t piece_bytes; /* of the lines that a piece touches on one side, about */
	int64_t tiled_bytes; /* as in the tuning */
	bool stream;
	struct convert_place conversion; /* of a loop nest that is converted; its tensors are not NULL */
};

/* A loop nest with windows is always tiled, in a place that is streamed. Its windows are those that windows.h
 * chooses for such a place. Where their tiles do not fit, as may be while it tries, `tiled` is false, and the
 * move must not be run. */
void move_init(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
               const struct move_place *place);

/* For measuring: moves that can go by this candidate (cpu_choice.h) do, from now on; -1 ends it. Not while a
 * job runs. */
void move_force(int candidate);
int move_forced(void); /* what move_force was given */

/* The same move, so many bytes further on either side. src: 0 for a fill. */
void move_shift(struct move *move, int64_t dst, int64_t src);

/* Runs piece 0 .. pieces - 1. scratch: this thread's. What went past the cache is in order once the caller
 * has called isa->fence. */
void move_run(const struct move *move, int64_t piece, struct cpu_scratch *scratch);

/* A piece as a loop nest of units, between these places. Its strides may be of any sign on either side. */
void move_piece_nest(const struct move *move, int64_t piece, struct loop_nest *ret, char **ret_dst,
                     const char **ret_src);

#endif
