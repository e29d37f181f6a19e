/* SPDX-License-Identifier: Apache-2.0 */
/* A tile of many axes: the planner fills in this struct, and the kernels (device/permute.cuh) are told of the
 * tile by it.
 *
 * The tile is a box, with an extent for each dimension. In the source it consists of runs of contiguous
 * bytes, which are its innermost dimensions there, as many as make a run of some hundred bytes. In the
 * destination it consists of runs in the same way, with the destination's innermost dimensions. Either kind
 * of run may end within its outermost dimension, which is then that side's split dimension. Dimensions of
 * neither run are the stack: a tile holds several boxes of the same kind, one for each index of the stack.
 *
 *     source runs            shared memory               destination runs
 *     loaded in bulk,   ->   a slot for each, at    ->   aligned chunks of 16 bytes, gathered
 *     or by threads          the source's phase          by a table of offsets
 *
 * A load is a run of the source; there is one for each index of the dimensions that only the destination's
 * runs have. A row is a run of the destination; there is one for each index of those that only the source's
 * have. So that its table stays short, a row may also be a part of a run that is cut within a dimension that
 * both have.
 */
#ifndef KERNELS_CUDA_STRATEGY_PERMUTE_ARGS_H
#define KERNELS_CUDA_STRATEGY_PERMUTE_ARGS_H

#include <stdint.h>

#include "kernels/nest/divisor.h"

#define PERMUTE_GRID_RANK 10
#define PERMUTE_LIST_RANK 8 /* dimensions at most of the loads, of the rows, and of a row */
#define PERMUTE_NONE      UINT32_MAX
#define PERMUTE_BORDER    UINT16_MAX /* marks a border entry of the table until the masks are made */
#define PERMUTE_LEAD      8          /* table entries ahead of each copy of the table */
#define PERMUTE_NO_SKEW   31
#define PERMUTE_SLOTS_AT  128 /* offset of the slots in shared memory; a barrier lies ahead of them */

struct permute_axis {
	struct divisor by; /* indices */
	int64_t dst;       /* bytes from index to index */
	int64_t src;
	int32_t before; /* index i reads index i - before of the source, if that is in [0, source) */
	int32_t source;
};

/* A split dimension has n indices, of which a tile has `tile`. */
struct permute_split {
	uint32_t axis; /* which axis of the grid it is, or PERMUTE_NONE */
	uint32_t n;
	uint32_t tile;
	int64_t dst; /* bytes from index to index */
	int64_t src;
};

/* The bytes of a row are found in the slots in one of these ways. */
enum permute_how {
	PERMUTE_ELEMENTS, /* each element is found by a table */
	/* Elements of one or two bytes are found by a table, for as many rows at a time as fill a word or
	 * two. */
	PERMUTE_WORDS,
	PERMUTE_PIECES, /* pieces that are contiguous on both sides are copied */
	/* Squares of 16 bytes a side are transposed in registers, where runs of both sides are whole chunks
	 * and share no dimension. */
	PERMUTE_SQUARES,
	PERMUTE_HOWS
};

/* load_bytes is multiplied by 1, or by the number of indices of a split dimension. */
enum permute_by { PERMUTE_BY_NONE, PERMUTE_BY_SPLIT_SRC, PERMUTE_BY_SPLIT_DST };

struct permute_args {
	uint64_t dst; /* addresses of the first element; in a plan, offsets from element [0, ..., 0] */
	uint64_t src;
	uint64_t low; /* addresses between which memory may be read */
	uint64_t high;

	/* The box. Each list has its innermost dimension first. */
	uint32_t tiles; /* number of tiles in the grid */
	uint32_t n_grid;
	uint32_t n_load;
	uint32_t n_row;
	uint32_t n_run;
	struct permute_axis grid[PERMUTE_GRID_RANK]; /* dimensions along which tiles follow each other */
	struct permute_axis load[PERMUTE_LIST_RANK];
	struct permute_axis row[PERMUTE_LIST_RANK]; /* here src counts bytes in the slots */
	/* Dimensions of a row; src counts bytes in the slots, or from load to load. */
	struct permute_axis run[PERMUTE_LIST_RANK];
	/* Loads from one index of run to the next; 0: both are in one slot. */
	uint32_t run_loads[PERMUTE_LIST_RANK];
	struct permute_split split_dst; /* split dimension of the destination's runs */
	/* Split dimension of the source's runs, unless it is split_dst's. */
	struct permute_split split_src;
	struct permute_split split_stack;
	uint32_t limited_load; /* index in load of the dimension of split_dst, or PERMUTE_NONE */
	uint32_t limited_row;  /* index in row of the dimension of split_src, or PERMUTE_NONE */
	uint32_t split_row;    /* index in row of the dimension of split_dst, or PERMUTE_NONE */
	uint32_t stack_split;  /* index in load of the dimension of split_stack, or PERMUTE_NONE */
	/* Dimensions of load from stack_load on, and of row from stack_row on, are the stack. */
	uint32_t stack_load;
	uint32_t stack_row;
	uint32_t padded;  /* Some dimension has a window that is not whole. */
	uint32_t mode;    /* enum pad_mode */
	uint32_t back;    /* split_dst ends the source's runs too, and is read backwards. */
	uint32_t how;     /* enum permute_how */
	uint32_t threads; /* threads of a block */

	/* Loads. */
	uint32_t loads;
	struct divisor by_loads; /* divides by the loads of one index of the stack */
	uint32_t load_bytes;
	uint32_t load_by;  /* enum permute_by */
	uint32_t load_gap; /* bytes of the product that lie past the end of the load */

	/* Rows. */
	uint32_t rows;
	uint32_t row_bytes; /* bytes of a row, margin included */
	uint32_t row_unit;  /* bytes from index to index of a row's outermost dimension */
	uint32_t row_lead;  /* bytes from the tile's lowest address to its first element */
	/* If this is set, split_dst is the outermost dimension of a row. Otherwise the tile has last_n
	 * indices of that outermost dimension. */
	uint32_t row_split;
	uint32_t last_n;
	uint32_t cut; /* indices of the outermost dimension in a row, if runs are cut; 0: they are not */
	/* Index in row of the dimension that counts the parts of a run, or PERMUTE_NONE. */
	uint32_t cut_row;
	uint32_t
	    margin; /* indices of split_dst ahead of the tile's own, so that rows can write whole sectors */
	uint32_t ragged; /* Rows begin within a chunk. */
	uint32_t exact;  /* Rows share sectors, and there is no margin: they are written to the byte. */
	/* Divides by the chunks that lanes go through for a row: its own, or a few more. */
	struct divisor by_chunks;
	struct divisor by_inner_chunks; /* the same for tiles in which no run begins or ends */
	uint32_t log_group;             /* binary logarithm of the rows of a group; 0 except for WORDS */
	uint32_t log_side;              /* binary logarithm of the groups that lie side by side in a warp */
	uint32_t aligned;    /* WORDS: bytes that the place of each word read is a multiple of, up to 8 */
	uint32_t pattern[4]; /* the fill as it lies in an aligned chunk of the destination */

	/* Slots. */
	uint32_t
	    pitch; /* bytes from slot to slot, a multiple of 16; `pad` more after 1 << pad_shift of them */
	uint32_t pad;
	uint32_t pad_shift;
	uint32_t stack_pitch; /* bytes from one index of the stack to the next */
	/* A load's address agrees in these bits with its place in the slots: 15, or 127 where the Tensor
	 * Memory Accelerator then reads whole lines. */
	uint32_t phase_mask;
	uint32_t skew; /* 16 bytes are skipped after each 1 << skew of the slots; 31: none */
	/* Divides by the number of copies that bring a load, at most: each ends where bytes are skipped.
	 * SQUARES: by the chunks of a load. */
	struct divisor by_parts;
	uint32_t run_base; /* offset of a row's first element, from its slot */
	/* Offset of the first row, which is not part of run_base, where rows step backwards in the slots;
	 * slot_lead is included. Along split_dst the kernels compute it. */
	uint32_t row_base;
	uint32_t back_part; /* back: indices of split_dst in a row, if rows step along it; else 0 */
	uint32_t slot_lead; /* bytes ahead of the slots */
	/* If this is set, the phase of a load's address (modulo 16) is added to its rows' offsets; otherwise
	 * it is added to those of table entries. */
	uint32_t row_phase;

	/* The table has an entry for each element of a row's chunks. There is a copy of it for every phase
	 * that a row may have (its address modulo 16, shifted right by phase_shift). */
	uint32_t table; /* entries of a copy of the table */
	uint32_t phases;
	uint32_t phase_shift;

	/* In the way PIECES, dimensions of run from piece_rank on step from piece to piece. */
	uint32_t pieces; /* pieces of a row */
	uint32_t piece_rank;
	struct divisor by_piece; /* divides by the bytes of a piece */

	/* These are offsets in shared memory, behind the slots, and its size in bytes. */
	uint32_t row_notes; /* number of notes: rows, rounded up to whole groups side by side */
	uint32_t rows_at;
	uint32_t table_at;
	/* If padded is set, these are the masks of the border bytes of each chunk, for each copy of the
	 * table. */
	uint32_t masks_at;
	uint32_t shared;
};

/* A row's note in shared memory, from the lowest bit on:
 *
 *   word 0   32 bits: offset of the first chunk from the tile's first sector
 *
 *   word 1   16: offset of the first element in the slots
 *            16: number of chunks
 *
 *   word 2   16: offset of the first chunk's entries in the table; PIECES: of its first byte in the row, + 16
 *            16: offset of its mask
 *
 *   word 3   8: bytes of the first chunk that belong to another row
 *            8: bytes of the last chunk that are this row's
 *            8: bytes by which the row begins after the phase of its copy
 *            8: 1 if all of it is border
 *
 * WORDS have two words:
 *
 *   word 0   32 bits: offset of the row's first byte from the tile's first sector
 *
 *   word 1   16: where what is written of the row begins, from its first chunk
 *            16: where that ends
 *
 * After the notes of all rows follow, for each, 16 bits: offset of the first element in the slots, or
 * PERMUTE_BORDER.
 *
 * SQUARES have one: offset of the row's first byte from the tile's lowest address.
 */
#define PERMUTE_NOTE         16
#define PERMUTE_WORDS_NOTE   8
#define PERMUTE_WORDS_PLACE  2
#define PERMUTE_SQUARES_NOTE 4

#endif
