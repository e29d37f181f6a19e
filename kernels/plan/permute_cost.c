/* SPDX-License-Identifier: Apache-2.0 */
/* What a tile costs: a linear model, whose weights were fitted to some thousand tiles of random tensors of 64
 * MiB and more, measured on an H200 (tests/bench/EXPERIMENTS.md).
 */
#include "permute_plan.h"

#define MULTIPROCESSOR_SHARED (227 * 1024)
#define BLOCK_RESERVED        1024     /* bytes of shared memory that the driver takes for each block */
#define FEW_WAVEFRONTS        24       /* for a warp's chunks; this many cost no time of their own */
#define ENOUGH_IN_FLIGHT      100000.0 /* bytes in a multiprocessor */
#define LOAD_WORK             30.0 /* instructions; what a row, an entry of the table and a piece take, too */
#define ROW_WORK              12.0
#define ENTRY_WORK            4.0
#define PIECE_WORK            5.0

/* Each is multiplied by what its comment says; the products are summed. */
struct weights {
	double own;       /* 1 */
	double load;      /* 1 / bytes of a load */
	double row;       /* 1 / bytes of a row */
	double unaligned; /* 1 / bytes of a load, if loads are not whole chunks */
	double ragged;    /* 1 / bytes of a row, if rows begin within chunks */
	double exact;     /* 1 / bytes of a row, if rows share sectors */
	double wasted;    /* the share by which the grid exceeds the tensor */
	double table;     /* work for the table, for each chunk of the tile */
	double lists;     /* work for loads and rows, for each chunk of the tile */
	double tile;      /* 1 / bytes of a tile */
	double flight;    /* the share by which bytes in flight fall short of enough */
	double banks;     /* wavefronts of shared memory beyond a few, for a warp's chunks */
};

static const struct weights *weights_of(enum permute_how how, uint32_t element)
{
	static const struct weights elements[] = {
		[1] = { 0.959, 4.1, 1.9, 2.2, 64, 46, 0.71, 0.055, 0.054, 490, 0.42, 0.0088 },
		[2] = { 0.998, 3.0, 3.4, 2.1, 30, 47, 0.50, 0.012, 0.033, 2360, 0.33, 0.0025 },
		[4] = { 1.05, 3.7, 2.2, 11, 14, 32, 0.47, 0.0011, 0.030, 1560, 0.29, 0.011 },
		[8] = { 1.04, 11, 4.8, 8.3, 4.9, 46, 0.25, 0.0081, 0.024, 1070, 0.29, 0.012 },
		[16] = { 1.05, 8.7, 3.7, 6.0, 4.0, 80, 0.35, 0.0078, 0.017, 1150, 0.27, 0.010 },
	};
	static const struct weights words = { 1.03, 11,    2.0,   19,   24,   46,
		                              0.85, 0.035, 0.018, 1820, 0.24, 0.0050 };
	static const struct weights pieces = {
		1.10, 6.2, 4.6, 4.2, 58, 54, 0.55, 0.081, 0.078, 310, 0.14, 0
	};

	return how == PERMUTE_PIECES ? &pieces : how == PERMUTE_WORDS ? &words : &elements[element];
}

static double above(double value, double least)
{
	return value > least ? value - least : 0;
}

double permute_cost(const struct permute_tile *tile)
{
	const struct permute_args *args = &tile->args;
	const struct weights *w = weights_of((enum permute_how)args->how, tile->nest.element);
	const uint32_t fit = MULTIPROCESSOR_SHARED / (args->shared + BLOCK_RESERVED);
	const uint32_t most = args->how == PERMUTE_WORDS ? WORDS_BLOCKS : PERMUTE_BLOCKS;
	const double flight = (fit < most ? fit : most) * tile->useful, chunks = tile->useful / 16;
	const double table = args->how == PERMUTE_PIECES
	                         ? args->pieces * PIECE_WORK
	                         : args->row_bytes / (double)tile->nest.element * (ENTRY_WORK + args->phases);
	const double lists = args->loads * (double)args->by_parts.n * LOAD_WORK + args->rows * ROW_WORK;
	/* Stores of single bytes take over where rows are shorter than a sector. */
	const double exact = w->exact * args->exact * (1 + SECTOR / tile->row_run);
	double cost = w->own;

	if (fit == 0)
		return PERMUTE_NEVER;
	cost += (w->load + w->unaligned * tile->unaligned_loads) / tile->load_run;
	cost += (w->row + w->ragged * args->ragged + exact) / tile->row_run;
	cost += w->wasted * (tile->wasted - 1);
	cost += (w->table * table + w->lists * lists) / chunks;
	cost += w->tile / tile->useful;
	cost += w->flight * above(1, flight / ENOUGH_IN_FLIGHT);
	cost += w->banks * above(tile->wavefronts * WARP_THREADS, FEW_WAVEFRONTS);
	return cost;
}
