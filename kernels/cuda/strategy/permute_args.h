/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a tile of many axes. The planner fills in struct permute_args and the kernels
 * (device/permute.cuh) read it.
 *
 * The tile is a box: it has an extent along each dimension. In the source the box consists of "runs" of
 * contiguous bytes. A run spans the source's innermost dimensions, as many as it takes to reach some hundred
 * bytes. In the destination the box consists of runs as well, along the destination's innermost dimensions. A
 * run may end within its outermost dimension, which is then called the split dimension of that side.
 * Dimensions that belong to neither side's run form the "stack": a tile holds one box of the same shape for
 * each index of the stack.
 *
 *     source runs            shared memory               destination runs
 *     loaded in bulk,   ->   a slot for each, at    ->   aligned chunks of 16 bytes, gathered
 *     or by threads          the source's phase          by a table of offsets
 *
 * A "load" is one run of the source; there is one for each index of the dimensions that only the
 * destination's runs span. It is stored in a "slot" of shared memory at the same phase as in the source. The
 * phase is the address modulo 16. A "row" is one run of the destination; there is one for each index of the
 * dimensions that only the source's runs span. To keep the table of a row short, a run may be cut within a
 * dimension that both runs span; each part is then a row.
 */
#ifndef KERNELS_CUDA_STRATEGY_PERMUTE_ARGS_H
#define KERNELS_CUDA_STRATEGY_PERMUTE_ARGS_H

#include <stdint.h>

#include "kernels/nest/divisor.h"

#define PERMUTE_GRID_RANK 10
#define PERMUTE_LIST_RANK 8 /* maximum number of dimensions of the loads, of the rows, and of one row */
#define PERMUTE_NONE      UINT32_MAX
/* Table entry of an element that is border. It is replaced once the masks have been built. */
#define PERMUTE_BORDER   UINT16_MAX
#define PERMUTE_LEAD     8 /* unused table entries before each copy of the table */
#define PERMUTE_NO_SKEW  31
#define PERMUTE_SLOTS_AT 128 /* offset of the slots in shared memory; a barrier lies before them */

struct permute_axis {
	struct divisor by; /* number of indices */
	int64_t dst;       /* bytes from one index to the next */
	int64_t src;
	/* Index i reads index i - before of the source if that is in [0, source); otherwise it is border. */
	int32_t before;
	int32_t source;
};

/* A split dimension. It has n indices, `tile` of which belong to one tile. */
struct permute_split {
	uint32_t axis; /* its position in permute_args.grid, or PERMUTE_NONE */
	uint32_t n;
	uint32_t tile;
	int64_t dst; /* bytes from one index to the next */
	int64_t src;
};

/* The ways in which a kernel finds the bytes of a row in the slots. */
enum permute_how {
	PERMUTE_ELEMENTS, /* A table gives the offset of each element. */
	/* For elements of one or two bytes: a table gives the offset of an element of several neighbouring
	 * rows at once, as many as fill one or two words. */
	PERMUTE_WORDS,
	PERMUTE_PIECES, /* Pieces that are contiguous on both sides are copied. */
	/* Squares of 16 bytes a side are transposed in registers. The runs of both sides must consist of
	 * whole chunks of 16 bytes and share no dimension. */
	PERMUTE_SQUARES,
	PERMUTE_HOWS
};

/* The factor of permute_args.load_bytes: 1, or the tile's number of indices of a split dimension. */
enum permute_by { PERMUTE_BY_NONE, PERMUTE_BY_SPLIT_SRC, PERMUTE_BY_SPLIT_DST };

struct permute_args {
	uint64_t dst; /* addresses of the first element; in a plan, offsets from element [0, ..., 0] */
	uint64_t src;
	uint64_t low; /* Only memory in [low, high) may be read. */
	uint64_t high;

	/* The following fields describe the box. Each list has its innermost dimension first. */
	uint32_t tiles; /* number of tiles in the grid */
	uint32_t n_grid;
	uint32_t n_load;
	uint32_t n_row;
	uint32_t n_run;
	struct permute_axis grid[PERMUTE_GRID_RANK]; /* dimensions along which tiles follow each other */
	struct permute_axis load[PERMUTE_LIST_RANK];
	struct permute_axis row[PERMUTE_LIST_RANK]; /* src counts bytes in the slots */
	/* Dimensions of a row. src counts bytes in the slots, or in the source where run_loads is not 0. */
	struct permute_axis run[PERMUTE_LIST_RANK];
	/* Number of loads from one index of run to the next; 0 if both indices lie in the same slot. */
	uint32_t run_loads[PERMUTE_LIST_RANK];
	struct permute_split split_dst; /* split dimension of the destination's runs */
	/* Split dimension of the source's runs, unless that is split_dst's as well. */
	struct permute_split split_src;
	struct permute_split split_stack;
	uint32_t limited_load; /* index of split_dst's dimension in load, or PERMUTE_NONE */
	uint32_t limited_row;  /* index of split_src's dimension in row, or PERMUTE_NONE */
	uint32_t split_row;    /* index of split_dst's dimension in row, or PERMUTE_NONE */
	uint32_t stack_split;  /* index of split_stack's dimension in load, or PERMUTE_NONE */
	/* The stack's dimensions are load[stack_load] and those after it, and row[stack_row] and those after
	 * it. */
	uint32_t stack_load;
	uint32_t stack_row;
	uint32_t padded;  /* 1 if the window of some dimension is smaller than the dimension */
	uint32_t mode;    /* enum pad_mode */
	uint32_t back;    /* 1 if split_dst also ends the source's runs and is read backwards */
	uint32_t how;     /* enum permute_how */
	uint32_t threads; /* threads of a thread block */

	/* The following fields describe the loads. */
	uint32_t loads;
	struct divisor by_loads; /* divides by the number of loads of one stack index */
	uint32_t load_bytes;
	uint32_t load_by;  /* enum permute_by: the factor that load_bytes is multiplied by */
	uint32_t load_gap; /* bytes to subtract from that product: the gap behind the load's last index */

	/* The following fields describe the rows. */
	uint32_t rows;
	uint32_t row_bytes; /* bytes of a row, margin included */
	uint32_t row_unit;  /* bytes from one index of a row's outermost dimension to the next */
	uint32_t row_lead;  /* bytes from the tile's lowest address to its first element */
	/* 1 if split_dst is the outermost dimension of a row. If it is 0, the tile has last_n indices of that
	 * outermost dimension. */
	uint32_t row_split;
	uint32_t last_n;
	/* Number of indices of a row's outermost dimension if runs are cut; 0 if they are not. */
	uint32_t cut;
	/* Index in row of the dimension that counts the parts of a run, or PERMUTE_NONE. */
	uint32_t cut_row;
	/* Number of split_dst indices before the tile's own that the tile also reads, so that its rows can
	 * write whole sectors. */
	uint32_t margin;
	uint32_t ragged; /* 1 if rows may begin within a chunk */
	/* 1 if rows share sectors and there is no margin. Rows are then written to the exact byte. */
	uint32_t exact;
	/* Divides by the number of chunks that lanes step through for a row: the row's own, or a few more. */
	struct divisor by_chunks;
	/* This is the divisor for tiles in which no run of the destination begins or ends. */
	struct divisor by_inner_chunks;
	/* Binary logarithm of the number of rows in a group, which are read together; 0 except for WORDS. */
	uint32_t log_group;
	/* Binary logarithm of the number of groups that lie side by side in a warp. */
	uint32_t log_side;
	/* WORDS: the alignment of each word that is read from the slots, in bytes, at most 8. */
	uint32_t aligned;
	uint32_t pattern[4]; /* the fill as it lies in an aligned chunk of the destination */

	/* The following fields describe the slots. */
	/* Bytes from one slot to the next, a multiple of 16. `pad` more bytes follow every 1 << pad_shift
	 * slots. */
	uint32_t pitch;
	uint32_t pad;
	uint32_t pad_shift;
	uint32_t stack_pitch; /* bytes from one stack index to the next */
	/* A load's address and its place in the slots agree in these bits. The mask is 15, or 127 where the
	 * Tensor Memory Accelerator then reads whole lines. */
	uint32_t phase_mask;
	/* 16 bytes are skipped after every 1 << skew bytes of the slots; PERMUTE_NO_SKEW: none are. */
	uint32_t skew;
	/* Divides by the maximum number of copies that bring one load. A copy ends wherever bytes are
	 * skipped. SQUARES: divides by the number of chunks of a load. */
	struct divisor by_parts;
	uint32_t run_base; /* offset of a row's first element from the start of its slot */
	/* Offset of the first row where rows step backwards in the slots. It is not part of run_base, and it
	 * includes slot_lead. The kernels add the share along split_dst (back_part). */
	uint32_t row_base;
	/* If back is set and rows step along split_dst: the number of split_dst indices in a row; else 0. */
	uint32_t back_part;
	uint32_t slot_lead; /* unused bytes before the first slot */
	/* If this is 1, the phase of a load's address (modulo 16) is added to the offsets of its rows; if it
	 * is 0, to the table's entries. */
	uint32_t row_phase;

	/* The table has an entry for each element of a row's chunks. There is one copy of the table for each
	 * phase that a row may have (its address modulo 16, shifted right by phase_shift). */
	uint32_t table; /* number of entries in one copy of the table */
	uint32_t phases;
	uint32_t phase_shift;

	/* PIECES: the dimensions run[piece_rank] and those after it step from piece to piece. */
	uint32_t pieces; /* number of pieces in a row */
	uint32_t piece_rank;
	struct divisor by_piece; /* divides by the bytes of a piece */

	/* Offsets in shared memory of what lies behind the slots, and its total size in bytes. */
	uint32_t row_notes; /* number of notes: rows, rounded up to whole groups side by side in a warp */
	uint32_t rows_at;
	uint32_t table_at;
	/* If padded is set, the masks of the border bytes of each chunk begin here, one set for each copy of
	 * the table. */
	uint32_t masks_at;
	uint32_t shared;
};

/* A row's note in shared memory, with its fields from the lowest bit up:
 *
 *   word 0   32 bits: offset of the first chunk from the tile's first sector
 *
 *   word 1   16: offset of the first element in the slots
 *            16: number of chunks
 *
 *   word 2   16: offset of the first chunk's entries in the table; PIECES: offset of the first chunk's first
 *                byte in the row, plus 16
 *            16: offset of the first chunk's mask
 *
 *   word 3   8: number of leading bytes of the first chunk that belong to another row
 *            8: number of leading bytes of the last chunk that belong to this row
 *            8: number of bytes by which the row begins after the phase of its copy of the table
 *            8: 1 if the whole row is border
 *
 * A row's note of WORDS has two words:
 *
 *   word 0   32 bits: offset of the row's first byte from the tile's first sector
 *
 *   word 1   16: offset from the row's first chunk at which writing begins
 *            16: offset from the row's first chunk at which writing ends
 *
 * The notes of all rows are followed by 16 bits for each row: the offset of the row's first element in the
 * slots, or PERMUTE_BORDER.
 *
 * A row's note of SQUARES has one word: the offset of the row's first byte from the tile's lowest address.
 */
#define PERMUTE_NOTE         16
#define PERMUTE_WORDS_NOTE   8
#define PERMUTE_WORDS_PLACE  2
#define PERMUTE_SQUARES_NOTE 4

#endif
