/* SPDX-License-Identifier: Apache-2.0 */
/* What a tile costs: a linear model, whose weights were fitted to some thousand tiles of random tensors of 64
 * MiB and more, measured on an H200 (tests/bench/EXPERIMENTS.md).
 */
#include "permute_plan.h"

#define MULTIPROCESSOR_SHARED (227 * 1024)
#define BLOCK_RESERVED        1024     /* bytes of shared memory that the driver takes for each block */
#define FEW_WAVEFRONTS        24       /* for a warp's chunks; this many cost no time of their own */
#define ENOUGH_IN_FLIGHT      100000.0 /* bytes in a multiprocessor */
#define FEW_IN_FLIGHT         45000.0  /* likewise; with less, others cannot hide what a tile waits for */
#define STARVED               2.0
#define HIDDEN_TABLE          3.0  /* work for each chunk of the tile, while its loads are under way */
#define GAPS                  0.45 /* the share by which what is loaded exceeds what is needed */
#define PADDED_TABLE          0.08 /* more for each instruction of work where entries may be border */
#define LOAD_WORK             30.0 /* instructions; what a row, an entry of the table and a piece take, too */
#define ROW_WORK              12.0
#define ENTRY_WORK            4.0
#define PIECE_WORK            5.0

/* Each is multiplied by what its comment says; the products are summed. */
struct weights {
	double own;        /* 1 */
	double load;       /* 1 / bytes of a load */
	double row;        /* 1 / bytes of a row */
	double unaligned;  /* 1 / bytes of a load, if loads are not whole chunks */
	double ragged;     /* 1 / bytes of a row, if rows begin within chunks */
	double exact;      /* 1 / bytes of a row, if rows share sectors */
	double wasted;     /* the share by which the grid exceeds the tensor */
	double table;      /* work for the table, for each chunk of the tile */
	double lists;      /* work for loads and rows, for each chunk of the tile */
	double tile;       /* 1 / bytes of a tile */
	double flight;     /* the share by which bytes in flight fall short of enough */
	double banks;      /* wavefronts of shared memory beyond a few, for a warp's chunks */
	double waves;      /* blocks that run at once / tiles: how much of the last wave is idle */
	double crowd;      /* the share by which bytes in flight exceed what is enough */
	double long_table; /* work for the table that does not pass while loads are under way */
	double split;      /* 1, if lines of the source arrive in two parts */
	double narrow;     /* requests for a line of the destination beyond the first */
};

static const struct weights *weights_of(enum permute_how how, uint32_t element)
{
	/* clang-format off */
	static const struct weights elements[] = {
		[1] = { 0.88, 5, 1.3, 2.4, 81, 65, 0.68, 0.028, 0.035, 350, 0.42, 0.01, 0.16, 0.046, 0.045, 0.099, 0.017 },
		[2] = { 0.97, 4.2, 0.25, 2.5, 23, 46, 0.47, 0.0097, 0.044, 0, 0.27, 0.0015, 0.17, 0.045, 0.037, 0.027, 0.017 },
		[4] = { 0.95, 3.7, 1.9, 12, 16, 38, 0.35, 0.001, 0.024, 420, 0.36, 0.011, 0.079, 0.07, 0.05, 0.046, 0.019 },
		[8] = { 0.93, 11, 3.8, 5.8, 7.5, 30, 0.22, 0.003, 0.023, 510, 0.3, 0.013, 0.16, 0.084, 0.061, 0.06, 0.028 },
		[16] = { 0.95, 11, 2.5, 6, 4, 35, 0.23, 0.0061, 0.02, 570, 0.2, 0.0099, 0.13, 0.068, 0.038, 0.046, 0.019 },
	};
	/* The weights of 2 bytes have not been measured: they are those of elements and a little more, so that words
	 * become an alternative, which benchmarks measure. */
	static const struct weights words[] = {
		[1] = { 0.8, 16, 1.3, 26, 34, 50, 0.71, 0.049, 0.015, 3700, 0.064, 0.0062, 0.22, 0.057, 0.067, 0.049, 0.015 },
		[2] = { 1, 4.2, 0.25, 2.5, 23, 46, 0.47, 0.0097, 0.044, 0, 0.27, 0.0015, 0.17, 0.045, 0.037, 0.027, 0.017 }
	};
	static const struct weights pieces = { 1, 5.5, 4.7, 4.5, 21, 40, 0.33, 0.16, 0.021, 520, 0.27, 0, 0.12, 0.016, 0.05, 0.068, 0.02 };
	/* clang-format on */

	return how == PERMUTE_PIECES ? &pieces : how == PERMUTE_WORDS ? &words[element] : &elements[element];
}

/* Rises ever more slowly, up to 2: few tiles are slow in any case. */
static double saturate(double value)
{
	return value / (1 + value / 2);
}

static double square(double value)
{
	return value * value;
}

static double above(double value, double least)
{
	return value > least ? value - least : 0;
}

/* Returns the bytes of the destination that a warp writes at once: where rows lie side by side in it, it
 * has less of each. */
static double request_bytes(const struct permute_tile *tile)
{
	const double own = (WARP_THREADS >> tile->args.log_side) * 16.0;

	return tile->row_run < own && tile->args.how != PERMUTE_PIECES ? tile->row_run : own;
}

/* Too few bytes in flight, too many, and the tail: where tiles do not fill the device, more and smaller ones
 * are better, and what is in flight does not matter. */
static double flight_cost(const struct permute_tile *tile, const struct weights *w, uint32_t at_once)
{
	const double room = (double)(tile->processors > 0 ? tile->processors : 1) * at_once;
	const double waves = (double)tile->tiles / room;
	const double full = waves < 1 ? waves : 1, flight = at_once * tile->useful / ENOUGH_IN_FLIGHT;
	const double few = at_once * tile->useful / (tile->args.padded ? 2 : 1) / FEW_IN_FLIGHT;

	return full * (w->flight * above(1, flight) + STARVED * square(above(1, few))) +
	       w->crowd * above(flight, 1) + saturate(w->waves / waves);
}

/* Squares take few instructions; what counts is how many lines their runs touch, beyond those that they would
 * fill. */
static const struct {
	double own;        /* as above */
	double load;       /* likewise */
	double row;        /* likewise */
	double exact;      /* likewise */
	double wasted;     /* likewise */
	double waves;      /* likewise */
	double load_lines; /* the share by which lines that loads touch exceed those that they would
	                      fill */
	double row_lines;  /* the same of rows */
} squares_weights[] = {
	[1] = { 1.04, 2.4, 0.6, 5, 0.23, 0.04, 0.4, 0.3 },
	[2] = { 1.01, 1.4, 1.2, 5, 0.23, 0.18, 0.37, 0.62 },
	[4] = { 0.99, 5.6, 2.7, 4.4, 0.23, 0.09, 0.42, 0.05 },
	[8] = { 0.99, 5.6, 2.7, 4.4, 0.23, 0.09, 0.42, 0.05 },
	[16] = { 0.99, 5.6, 2.7, 4.4, 0.23, 0.09, 0.42, 0.05 },
};

static double squares_cost(const struct permute_tile *tile, uint32_t fit)
{
	const uint32_t element = tile->nest.element;
	const uint32_t most = SQUARES_BLOCKS(element) * SQUARES_MOST_THREADS / tile->args.threads;
	const double room = (double)(tile->processors > 0 ? tile->processors : 1) * (fit < most ? fit : most);
	double cost = squares_weights[element].own;

	cost += squares_weights[element].load / tile->load_run + squares_weights[element].row / tile->row_run;
	cost += squares_weights[element].exact * tile->args.exact / tile->row_run;
	cost += squares_weights[element].wasted * (tile->wasted - 1);
	cost += squares_weights[element].load_lines * tile->load_lines +
	        squares_weights[element].row_lines * tile->row_lines;
	return cost + saturate(squares_weights[element].waves * room / (double)tile->tiles);
}

double permute_cost(const struct permute_tile *tile)
{
	const struct permute_args *args = &tile->args;
	const struct weights *w = weights_of((enum permute_how)args->how, tile->nest.element);
	const uint32_t fit = MULTIPROCESSOR_SHARED / (args->shared + BLOCK_RESERVED);
	const uint32_t most = args->how == PERMUTE_WORDS ? WORDS_BLOCKS
	                      : args->padded             ? PADDED_BLOCKS
	                                                 : PERMUTE_BLOCKS;
	const uint32_t at_once = fit < most ? fit : most; /* blocks in a multiprocessor */
	const double chunks = tile->useful / 16;
	const double table = args->how == PERMUTE_PIECES
	                         ? args->pieces * PIECE_WORK
	                         : args->row_bytes / (double)tile->nest.element * (ENTRY_WORK + args->phases);
	const double lists = args->loads * (double)args->by_parts.n * LOAD_WORK + args->rows * ROW_WORK;
	/* Stores of single bytes take over where rows are shorter than a sector. */
	const double exact = w->exact * args->exact * (1 + SECTOR / tile->row_run);
	double cost = w->own;

	if (fit == 0)
		return PERMUTE_NEVER;
	if (args->how == PERMUTE_SQUARES)
		return squares_cost(tile, fit);
	cost += (w->load + w->unaligned * tile->unaligned_loads) / tile->load_run;
	cost += (w->row + w->ragged * args->ragged + exact) / tile->row_run;
	cost += w->wasted * (tile->wasted - 1) + GAPS * (tile->gaps - 1);
	cost += (w->table * table + w->lists * lists) / chunks;
	cost += w->tile / tile->useful;
	cost += flight_cost(tile, w, at_once);
	cost += w->split * tile->split_lines + w->narrow * above((double)LINE / request_bytes(tile), 1);
	cost += w->long_table * above(table / chunks, HIDDEN_TABLE) +
	        PADDED_TABLE * args->padded * table / chunks;
	cost += w->banks * above(tile->wavefronts * WARP_THREADS, FEW_WAVEFRONTS);
	return cost;
}

double permute_most_wavefronts(const struct permute_tile *tile, double most)
{
	const struct weights *w = weights_of((enum permute_how)tile->args.how, tile->nest.element);

	return w->banks > 0 ? ((most - tile->cost) / w->banks + FEW_WAVEFRONTS) / WARP_THREADS
	                    : PERMUTE_NEVER;
}

double permute_least_cost(uint32_t element, double load_run, double row_run)
{
	double least = squares_weights[element].own + squares_weights[element].load / load_run +
	               squares_weights[element].row / row_run;

	for (int how = 0; how < PERMUTE_SQUARES; how++) {
		const struct weights *w;
		double cost;

		if (how == PERMUTE_WORDS && element > 2)
			continue;
		w = weights_of((enum permute_how)how, element);
		cost = w->own + (w->load + w->lists * LOAD_WORK * 16) / load_run +
		       (w->row + w->lists * ROW_WORK * 16) / row_run +
		       w->narrow * above((double)LINE / row_run, 1);
		least = cost < least ? cost : least;
	}
	return least;
}
