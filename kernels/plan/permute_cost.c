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
	double waves;     /* blocks that run at once / tiles: how much of the last wave is idle */
};

static const struct weights *weights_of(enum permute_how how, uint32_t element)
{
	static const struct weights elements[] = {
		[1] = { 0.939, 4.1, 1.9, 2.3, 60, 49, 0.78, 0.054, 0.057, 430, 0.56, 0.0091, 0.12 },
		[2] = { 0.998, 3.0, 3.3, 2.2, 32, 46, 0.49, 0.010, 0.032, 1890, 0.53, 0.0022, 0.13 },
		[4] = { 1.04, 3.5, 2.4, 8.9, 13, 24, 0.40, 0.0011, 0.029, 1130, 0.41, 0.011, 0.13 },
		[8] = { 1.04, 9.8, 5.1, 7.8, 5.6, 35, 0.19, 0.0066, 0.023, 790, 0.34, 0.012, 0.12 },
		[16] = { 1.03, 7.5, 4.0, 6.0, 4.0, 80, 0.33, 0.0066, 0.016, 1000, 0.29, 0.010, 0.12 },
	};
	static const struct weights words = { 1.02,  11,    1.7,  25,   27,     33,  0.73,
		                              0.037, 0.015, 1900, 0.22, 0.0045, 0.13 };
	static const struct weights pieces = { 1.07,  6.3,   4.8, 4.4,  82, 53,  0.63,
		                               0.080, 0.095, 250, 0.13, 0,  0.14 };

	return how == PERMUTE_PIECES ? &pieces : how == PERMUTE_WORDS ? &words : &elements[element];
}

/* Rises ever more slowly, up to 2: few tiles are slow in any case. */
static double saturate(double value)
{
	return value / (1 + value / 2);
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
	const uint32_t at_once = fit < most ? fit : most; /* blocks in a multiprocessor */
	const double flight = at_once * tile->useful, chunks = tile->useful / 16;
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
	cost += saturate(w->waves * (double)(tile->processors * at_once) / (double)tile->tiles);
	cost += w->banks * above(tile->wavefronts * WARP_THREADS, FEW_WAVEFRONTS);
	return cost;
}
