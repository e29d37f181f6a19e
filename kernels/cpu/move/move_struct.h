/* SPDX-License-Identifier: Apache-2.0 */
/* Microkernels, tiles, conversions and amax each move a part of a move, which is declared here. None of them
 * knows move.h, which chooses among them. */
#ifndef KERNELS_CPU_MOVE_MOVE_STRUCT_H
#define KERNELS_CPU_MOVE_MOVE_STRUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cpu/isa/isa.h"
#include "kernels/nest/loop_nest.h"
#include "microkernel.h"

enum amax_pass {
	AMAX_NONE, /* the move computes no scales */
	AMAX_WHOLE,
	AMAX_REDUCE,
	AMAX_CONVERT,
};

/* A conversion has its operands and results in these places. */
struct convert_place {
	const struct conversion *conversion;
	const char *scale, *bias; /* element [0, ..., 0] of the tensor, or the number, a double; not NULL */
	uint64_t *changed; /* of an exact cast: elements whose value changed are counted here, atomically */
	char *amax_scale, *amax_inverse; /* element [0, ..., 0] of what amax writes; NULL: it does not */
};

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

#endif
