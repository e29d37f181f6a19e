/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts the cost of a tile of many axes by a linear model. Its weights were fitted to some thousand tiles
 * of random tensors of at least 64 MiB, measured on an H200 (tests/bench/EXPERIMENTS.md). The second half of
 * the file sketches tiles: it predicts what the tiles of a box would cost without building them. */
#include "permute_plan.h"

#include "proto/arithmetic.h"
#include "tuning.h"

#define MULTIPROCESSOR_SHARED (227 * 1024)
/* Bytes of shared memory that the driver reserves for each thread block. */
#define BLOCK_RESERVED 1024
/* Maximum number of wavefronts for a warp's chunks that costs no extra time. */
#define FEW_WAVEFRONTS   24
#define ENOUGH_IN_FLIGHT 100000.0 /* bytes in flight in a multiprocessor */
#define FEW_IN_FLIGHT    45000.0  /* with fewer, other thread blocks cannot hide a tile's load latency */
#define STARVED          2.0      /* weight of the squared relative shortfall from FEW_IN_FLIGHT */
/* Work on the table, for each chunk, that is hidden because the loads are in flight meanwhile. */
#define HIDDEN_TABLE 3.0
#define GAPS         0.45 /* weight of the bytes of gaps that are loaded for each byte that is needed */
#define PADDED_TABLE 0.08 /* extra work for each unit of table work where entries may be border */
/* Instructions for a load, a row, an entry of the table and a piece. */
#define LOAD_WORK  30.0
#define ROW_WORK   12.0
#define ENTRY_WORK 4.0
#define PIECE_WORK 5.0

/* The weights of the model. Each is multiplied by the quantity that its comment names, and the products are
 * added up. */
struct weights {
	double own;        /* 1 (the constant term) */
	double load;       /* 1 / bytes of a load */
	double row;        /* 1 / bytes of a row */
	double unaligned;  /* 1 / bytes of a load if loads are not whole chunks, else 0 */
	double ragged;     /* 1 / bytes of a row if rows begin within chunks, else 0 */
	double exact;      /* 1 / bytes of a row if rows share sectors, else 0 */
	double wasted;     /* bytes of all tiles / bytes of the tensor - 1 */
	double table;      /* work on the table for each chunk of the tile */
	double lists;      /* work on loads and rows for each chunk of the tile */
	double tile;       /* 1 / bytes of a tile */
	double flight;     /* relative shortfall of the bytes in flight from ENOUGH_IN_FLIGHT */
	double banks;      /* shared memory wavefronts beyond FEW_WAVEFRONTS for a warp's chunks */
	double waves;      /* thread blocks that run at once / tiles: the idle share of the last wave */
	double crowd;      /* relative excess of the bytes in flight over ENOUGH_IN_FLIGHT */
	double long_table; /* work on the table for each chunk beyond HIDDEN_TABLE */
	double split;      /* 1 if lines of the source arrive in two parts, else 0 */
	double narrow;     /* requests for each line of the destination beyond the first */
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
	/* The weights for 2 bytes have not been measured. They are slightly above those of elements[2], so
	 * that words become an alternative, which benchmarks then measure. */
	static const struct weights words[] = {
		[1] = { 0.8, 16, 1.3, 26, 34, 50, 0.71, 0.049, 0.015, 3700, 0.064, 0.0062, 0.22, 0.057, 0.067, 0.049, 0.015 },
		[2] = { 1, 4.2, 0.25, 2.5, 23, 46, 0.47, 0.0097, 0.044, 0, 0.27, 0.0015, 0.17, 0.045, 0.037, 0.027, 0.017 }
	};
	static const struct weights pieces = { 1, 5.5, 4.7, 4.5, 21, 40, 0.33, 0.16, 0.021, 520, 0.27, 0, 0.12, 0.016, 0.05, 0.068, 0.02 };
	/* clang-format on */

	return how == PERMUTE_PIECES ? &pieces : how == PERMUTE_WORDS ? &words[element] : &elements[element];
}

/* Returns a number that grows with `value`, ever more slowly, towards 2: a move of few tiles is slow in any
 * case. */
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

/* Returns the bytes of one row that a warp writes at once. Where rows lie side by side in a warp, it writes
 * less of each. */
static double request_bytes(const struct permute_tile *tile)
{
	const double own = (WARP_THREADS >> tile->args.log_side) * 16.0;

	return tile->row_run < own && tile->args.how != PERMUTE_PIECES ? tile->row_run : own;
}

/* Returns the cost of having too few or too many bytes in flight, and of the last, partly idle wave. Where
 * the tiles do not fill the device, more and smaller tiles are better and the bytes in flight do not
 * matter. */
static double flight_cost(const struct permute_tile *tile, const struct weights *w, uint32_t at_once)
{
	const double room = (double)(tile->processors > 0 ? tile->processors : 1) * at_once;
	const double waves = (double)tile->tiles / room;
	const double full = waves < 1 ? waves : 1, flight = at_once * tile->useful / ENOUGH_IN_FLIGHT;
	const double few = at_once * tile->useful / (tile->args.padded ? 2 : 1) / FEW_IN_FLIGHT;

	return full * (w->flight * above(1, flight) + STARVED * square(above(1, few))) +
	       w->crowd * above(flight, 1) + saturate(w->waves / waves);
}

/* Weights for SQUARES. Squares take few instructions, so the cost depends on the lines that their runs touch
 * beyond those that they would fill if they were aligned. */
static const struct {
	/* The fields from own to waves mean the same as in struct weights. */
	double own;
	double load;
	double row;
	double exact;
	double wasted;
	double waves;
	double load_lines; /* permute_tile.load_lines */
	double row_lines;  /* permute_tile.row_lines */
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
	/* Thread blocks that run at once on a multiprocessor. */
	const uint32_t at_once = fit < most ? fit : most;
	const double chunks = tile->useful / 16;
	const double table = args->how == PERMUTE_PIECES
	                         ? args->pieces * PIECE_WORK
	                         : args->row_bytes / (double)tile->nest.element * (ENTRY_WORK + args->phases);
	const double lists = args->loads * (double)args->by_parts.n * LOAD_WORK + args->rows * ROW_WORK;
	/* Rows shorter than a sector are written mostly by single bytes. */
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

/* Returns a lower bound on the cost of a tile whose runs have at most this many bytes. */
static double least_cost(uint32_t element, double load_run, double row_run)
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

/* ---- Sketches ------------------------------------------------------------------------------------------ */

/* A sketch is computed from the extents of the box and the strides, by the rules of permute_tile.c, some of
 * which it simplifies. Only the boxes that look best are built into tiles, so an error in a sketch may lose a
 * good tile but never produces a wrong one. */

#define SLOT_GAP  30   /* extra bytes of a slot whose load does not consist of whole chunks */
#define MOST_LIST 4096 /* maximum number of loads, and of rows */
#define MOST_GAPS 2    /* maximum bytes of slots, with gaps and a margin, for each byte that is needed */

/* The run of one side of the box, along the dimensions of the side's chain. */
struct run {
	const struct permute_chain *chain;
	uint64_t dims;   /* bit d is set if dimension d is in the run */
	int n;           /* number of dimensions in the run */
	int split;       /* dimension of which the box has only a part; -1: none */
	uint64_t count;  /* elements of a run */
	uint64_t others; /* bitwise or of this side's strides of the dimensions outside the run */
};

struct sketch {
	const struct permute_sides *sides;
	const struct permute_box *box;
	struct run dst, src;
	/* The source's split dimension, which the destination's run has too, runs backwards. */
	bool back;
	uint64_t count;  /* elements of the box */
	uint64_t stack;  /* number of indices of the dimensions that are in neither run */
	uint64_t steps;  /* bitwise or of the strides of those dimensions in the source */
	uint64_t dst_at; /* address of the first byte, modulo a power of two that the plan knows */
	uint64_t src_at;
	uint64_t load_run; /* bytes of a run of the source, gaps included */
	uint64_t loads;
	uint64_t margin;
	/* Bytes past the slots that are read because the last part of a cut run is read as if it were as long
	 * as the others. */
	uint64_t beyond;
	/* Only the fields that permute_cost reads are set. */
	struct permute_tile *tile;
};

static bool has(const struct run *run, int d)
{
	return d >= 0 && run->dims >> d & 1;
}

/* Returns the largest power of two, at most `most`, that divides all numbers whose bitwise or is `bits`. */
static uint64_t align_of(uint64_t bits, uint64_t most)
{
	bits |= most;
	return bits & -bits;
}

static struct run run_of(const struct permute_chain *chain, const struct loop_nest *nest,
                         const struct permute_box *box)
{
	struct run run = { .chain = chain, .split = -1, .count = 1 };

	for (; run.n < chain->n && run.split < 0 && box->n[chain->dim[run.n]] > 1; run.n++) {
		const int d = chain->dim[run.n];

		run.dims |= UINT64_C(1) << d;
		run.count *= box->n[d];
		if (box->n[d] < nest->dim[d].n)
			run.split = d;
	}
	return run;
}

/* ---- The box ------------------------------------------------------------------------------------------- */

/* Accounts for dimension d of the source's run, which runs backwards in the source although runs are read
 * forwards. Returns false if the kernels cannot move the box. */
static bool orient(struct sketch *sketch, int d)
{
	const struct loop_nest_dim *dim = &sketch->sides->nest->dim[d];

	if (d == sketch->src.split && has(&sketch->dst, d)) {
		sketch->back = true;
		return d == sketch->dst.split && !sketch->tile->args.padded;
	}
	sketch->src_at += (uint64_t)((dim->source - 1) * dim->src);
	if (!has(&sketch->dst, d))
		sketch->dst_at += (uint64_t)((dim->n - 1) * dim->dst);
	return true;
}

static bool set_dims(struct sketch *sketch)
{
	const struct loop_nest *nest = sketch->sides->nest;
	struct permute_tile *tile = sketch->tile;
	bool has_split = false;

	for (int d = 0; d < nest->rank; d++)
		tile->args.padded |= is_padded(&nest->dim[d]);
	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];
		const uint64_t part = sketch->box->n[d], dst = (uint64_t)magnitude_i64(dim->dst),
			       src = (uint64_t)magnitude_i64(dim->src);
		const bool in_dst = has(&sketch->dst, d), in_src = has(&sketch->src, d);

		sketch->count *= part;
		sketch->dst.others |= in_dst ? 0 : dst;
		sketch->src.others |= in_src ? 0 : src;
		if (part < (uint64_t)dim->n) {
			const uint64_t n = divide_up_u64((uint64_t)dim->n, part);

			tile->tiles *= n;
			tile->wasted *= (double)(n * part) / (double)dim->n;
		}
		if (in_src && dim->src <= 0 && !orient(sketch, d))
			return false;
		if (part == 1 || in_dst || in_src)
			continue;
		if (has_split)
			return false;
		has_split = part < (uint64_t)dim->n;
		sketch->stack *= part;
		sketch->steps |= src;
	}
	return tile->tiles <= INT32_MAX;
}

static bool can_be_padded(const struct sketch *sketch)
{
	const int split = has(&sketch->src, sketch->dst.split) ? sketch->dst.split : sketch->src.split;
	const struct loop_nest_dim *dim = &sketch->sides->nest->dim[split < 0 ? 0 : split];
	const enum pad_mode mode = sketch->sides->mode;

	return split < 0 || !is_padded(dim) || mode == PAD_MODE_CONSTANT || mode == PAD_MODE_EDGE ||
	       (mode != PAD_MODE_WRAP && dim->before < dim->source &&
	        dim->n - dim->before - dim->source < dim->source);
}

static void set_loads(struct sketch *sketch)
{
	const struct loop_nest *nest = sketch->sides->nest;
	struct permute_tile *tile = sketch->tile;
	double elements = 1;

	sketch->load_run = nest->element;
	for (int i = 0; i < sketch->src.n; i++) {
		const int d = sketch->src.chain->dim[i];
		const uint64_t n = min_u64(sketch->box->n[d], (uint64_t)nest->dim[d].source);

		sketch->load_run += (n - 1) * (uint64_t)magnitude_i64(nest->dim[d].src);
		elements *= (double)n;
	}
	sketch->loads = sketch->count / sketch->src.count;
	tile->gaps = (double)sketch->load_run / (elements * nest->element);
	tile->useful = (double)(sketch->count * nest->element);
}

static bool init(struct sketch *ret, const struct permute_sides *sides, const struct permute_box *box,
                 double most)
{
	const struct loop_nest *nest = sides->nest;

	ret->sides = sides;
	ret->box = box;
	ret->dst = run_of(&sides->dst, nest, box);
	ret->src = run_of(&sides->src, nest, box);
	if (ret->dst.n == 0 || ret->src.n == 0 ||
	    least_cost(nest->element, (double)(MOST_GAPS * ret->src.count * nest->element),
	               (double)(ret->dst.count * nest->element)) >= most)
		return false;
	ret->back = false;
	ret->count = ret->stack = 1;
	ret->steps = 0;
	ret->dst_at = sides->facts->dst_phase + (uint64_t)nest->dst_offset;
	ret->src_at = sides->facts->src_phase + (uint64_t)nest->src_offset;
	ret->tile->args.padded = false;
	ret->tile->args.log_side = 0;
	ret->tile->args.by_parts.n = 1;
	ret->tile->args.threads = PERMUTE_THREADS;
	ret->tile->nest.element = nest->element;
	ret->tile->processors = sides->facts->threads;
	ret->tile->tiles = 1;
	ret->tile->wasted = 1;
	ret->tile->wavefronts = 0;
	ret->tile->split_lines = false;
	if (!set_dims(ret) || (ret->tile->args.padded && !can_be_padded(ret)))
		return false;
	set_loads(ret);
	return true;
}

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* Returns whether a row ends before dimension i of its run because it could not be cut within that dimension.
 * `row` is the number of elements in the dimensions before i. */
static bool ends_before(const struct sketch *sketch, int i, int shared, uint64_t row)
{
	const struct loop_nest *nest = sketch->sides->nest;

	return i > 0 && i >= shared && row * nest->element >= LEAST_ROW &&
	       is_padded(&nest->dim[sketch->dst.chain->dim[i]]);
}

/* The rows of a tile. A row is a whole run of the destination, or a part of one where the table of the whole
 * run would be too long. */
struct row {
	uint64_t elements;
	uint64_t rows;
	int dims;    /* number of the run's dimensions that the row has */
	bool is_cut; /* the row ends within the last of these dimensions */
	/* If is_cut: the number of indices by which the rows of a run together exceed the run. */
	uint64_t over;
};

static struct row row_of(const struct sketch *sketch, enum permute_how how)
{
	const struct permute_chain *chain = sketch->dst.chain;
	const struct loop_nest *nest = sketch->sides->nest;
	uint64_t row = 1, n, part, whole;
	/* Index of the first dimension of the trailing ones that both runs have. */
	int i = 0, shared = sketch->dst.n;

	if (sketch->dst.count <= MOST_TABLE || how == PERMUTE_PIECES)
		return (struct row){ sketch->dst.count, sketch->count / sketch->dst.count, sketch->dst.n };
	while (shared > 0 && has(&sketch->src, chain->dim[shared - 1]))
		shared--;
	for (; i < sketch->dst.n - 1; i++) {
		n = sketch->box->n[chain->dim[i]];
		if (row * n > MOST_TABLE &&
		    (!is_padded(&nest->dim[chain->dim[i]]) || ends_before(sketch, i, shared, row)))
			break;
		row *= n;
	}
	if (i < shared) {
		for (; i < shared; i++)
			row *= sketch->box->n[chain->dim[i]];
		return (struct row){ row, sketch->count / row, shared };
	}
	n = sketch->box->n[chain->dim[i]];
	if (row * n > MOST_TABLE && ends_before(sketch, i, shared, row))
		return (struct row){ row, sketch->count / row, i };
	part = MOST_TABLE / row;
	if (part == 0 || part >= n || is_padded(&nest->dim[chain->dim[i]]))
		return (struct row){ row * n, sketch->count / (row * n), i + 1 };
	whole = SECTOR / align_of(row * nest->element, SECTOR);
	part = part > whole ? part / whole * whole : part;
	return (struct row){ row * part, sketch->count / (row * n) * divide_up_u64(n, part), i + 1, true,
		             divide_up_u64(n, part) * part - n };
}

/* Sets the rows of a tile for ELEMENTS, WORDS or PIECES, and the margin that lets them write whole sectors.
 * Returns false if the kernels cannot move it. */
static bool set_rows(struct sketch *sketch, enum permute_how how)
{
	const struct permute_sides *sides = sketch->sides;
	const struct run *dst = &sketch->dst;
	struct permute_args *args = &sketch->tile->args;
	const int last = dst->chain->dim[dst->n - 1];
	const uint64_t element = sides->nest->element, n = sketch->box->n[last];
	const struct row row = row_of(sketch, how);
	const uint64_t unit = dst->count / n * element, margin = divide_up_u64(SECTOR - 1, unit);
	uint64_t bits = dst->others | sketch->dst_at, align;

	for (int i = row.dims; i < dst->n; i++)
		bits |= (uint64_t)magnitude_i64(sides->nest->dim[dst->chain->dim[i]].dst);
	bits |= dst->split < 0 ? 0 : (uint64_t)magnitude_i64(sides->nest->dim[last].dst) * n;
	align = align_of(bits | (row.is_cut ? row.elements * element : 0), SECTOR);
	args->exact = align < SECTOR;
	sketch->margin = 0;
	if (args->exact && dst->split >= 0 && row.dims == dst->n && !row.is_cut && margin * 4 <= n) {
		sketch->margin = margin;
		args->exact = 0;
		align = align_of(align | margin * unit, SECTOR);
	}
	sketch->beyond = 0;
	if (row.is_cut && has(&sketch->src, dst->chain->dim[row.dims - 1]))
		sketch->beyond =
		    row.over * (uint64_t)magnitude_i64(sides->nest->dim[dst->chain->dim[row.dims - 1]].src);
	args->ragged = align < CHUNK;
	args->phases = align < 4 ? 4 : CHUNK / (uint32_t)min_u64(align, CHUNK);
	args->rows = (uint32_t)row.rows;
	args->row_bytes = (uint32_t)(row.elements * element + sketch->margin * unit);
	sketch->tile->row_run = (double)(row.elements * element);
	return align >= element && args->rows <= MOST_LIST;
}

/* Sets the loads with their margin, and *ret_bytes to the bytes of the slots. Returns false if the kernels
 * cannot move the tile. */
static bool set_slots(struct sketch *sketch, uint64_t *ret_bytes)
{
	const struct loop_nest *nest = sketch->sides->nest;
	const int dst = sketch->dst.split, src = sketch->src.split;
	uint64_t bits = sketch->src.others | sketch->src_at, run = sketch->load_run, loads = sketch->loads;
	uint64_t pitch;

	if (src >= 0)
		bits |= (uint64_t)magnitude_i64(nest->dim[src].src) *
		        (is_padded(&nest->dim[src]) || sketch->back ? 1 : sketch->box->n[src]);
	if (has(&sketch->src, dst)) {
		const uint64_t step = (uint64_t)magnitude_i64(nest->dim[dst].src);

		bits |=
		    step *
		    (is_padded(&nest->dim[dst]) || sketch->back ? 1 : sketch->box->n[dst] | sketch->margin);
		run += step * sketch->margin;
	} else if (dst >= 0) {
		loads = loads / sketch->box->n[dst] * (sketch->box->n[dst] + sketch->margin);
	}
	sketch->tile->unaligned_loads = bits % CHUNK || run % CHUNK;
	sketch->tile->args.loads = (uint32_t)loads;
	sketch->tile->load_run = (double)run;
	pitch = divide_up_u64(run + (bits % CHUNK ? SLOT_GAP : 0), CHUNK) * CHUNK;
	*ret_bytes = loads * pitch + sketch->beyond;
	return loads <= MOST_LIST && *ret_bytes <= PERMUTE_MOST_SLOTS &&
	       (loads == sketch->stack || sketch->steps % CHUNK == 0);
}

/* ---- Cost -------------------------------------------------------------------------------------------- */

static const struct permute_sketch never = { .cost = PERMUTE_NEVER };

static struct permute_sketch sketch_of(const struct permute_tile *tile)
{
	return (struct permute_sketch){ permute_cost(tile), permute_sizes_of(tile) };
}

/* ---- How they are moved -------------------------------------------------------------------------------- */

/* Returns whether as many rows as fill a word are neighbours in the slots. */
static bool suits_words(const struct sketch *sketch)
{
	const struct loop_nest *nest = sketch->sides->nest;
	uint64_t together = 1;

	if (nest->element > 2)
		return false;
	for (int i = 0; i < sketch->src.n; i++) {
		const int d = sketch->src.chain->dim[i];

		if (has(&sketch->dst, d) || is_padded(&nest->dim[d]) ||
		    (uint64_t)magnitude_i64(nest->dim[d].src) != together * nest->element)
			break;
		together *= sketch->box->n[d];
	}
	return together >= 4 / nest->element &&
	       (together % (4 / nest->element) == 0 || together == sketch->tile->args.rows);
}

static bool suits_pieces(struct sketch *sketch)
{
	const struct loop_nest *nest = sketch->sides->nest;
	const int inner = sketch->dst.chain->dim[0];
	const uint64_t piece = sketch->box->n[inner];

	sketch->tile->args.pieces =
	    (uint32_t)(sketch->dst.count / (sketch->dst.n > 1 ? piece : sketch->dst.count));
	return inner == sketch->src.chain->dim[0] && nest->dim[inner].src > 0 &&
	       !is_padded(&nest->dim[inner]) && piece * nest->element >= CHUNK &&
	       sketch->tile->args.pieces <= MOST_PIECES;
}

static struct permute_sketch by(struct sketch *sketch, enum permute_how how, uint64_t slots)
{
	struct permute_args *args = &sketch->tile->args;
	const uint32_t element = sketch->sides->nest->element;
	const uint32_t chunks = (args->row_bytes + (args->ragged ? CHUNK - 1 : 0) + CHUNK - 1) / CHUNK;
	const uint32_t phases = args->phases;
	struct permute_sketch ret;

	args->how = how;
	args->phases = how == PERMUTE_WORDS ? 1 : phases;
	if (how == PERMUTE_ELEMENTS &&
	    args->phases * (args->row_bytes / element + 2 * CHUNK) * 2 > TABLE_BYTES)
		return never;
	args->shared = PERMUTE_SLOTS_AT + (uint32_t)slots + CHUNK;
	args->shared +=
	    args->rows * (how == PERMUTE_WORDS ? PERMUTE_WORDS_NOTE + PERMUTE_WORDS_PLACE : PERMUTE_NOTE);
	if (how == PERMUTE_PIECES)
		args->shared += args->pieces * 2;
	else
		args->shared += args->phases * (chunks * (CHUNK / element) + PERMUTE_LEAD) * 2 +
		                (args->padded ? args->phases * chunks * 2 : 0);
	ret = sketch_of(sketch->tile);
	args->phases = phases;
	return ret;
}

/* ---- Squares ------------------------------------------------------------------------------------------- */

/* Ends a run before the first dimension that the other side's run has as well. */
static void end_run(struct sketch *sketch, struct run *run, const struct run *other, permute_stride *stride)
{
	int n = 0;

	run->count = 1;
	run->split = -1;
	for (; n < run->n && !has(other, run->chain->dim[n]); n++) {
		const int d = run->chain->dim[n];

		run->count *= sketch->box->n[d];
		if (sketch->box->n[d] < sketch->sides->nest->dim[d].n)
			run->split = d;
	}
	for (int i = n; i < run->n; i++) {
		run->dims &= ~(UINT64_C(1) << run->chain->dim[i]);
		run->others |= (uint64_t)magnitude_i64(stride(sketch->sides->nest, run->chain->dim[i]));
	}
	run->n = n;
}

/* Returns whether the last tile along a split dimension, which may be shorter, has whole chunks as well. */
static bool ends_whole(const struct sketch *sketch, int split, uint64_t step)
{
	return split < 0 ||
	       (uint64_t)sketch->sides->nest->dim[split].n % sketch->box->n[split] * step % CHUNK == 0;
}

static struct permute_sketch squares(const struct sketch *whole)
{
	struct sketch own = *whole;
	const struct loop_nest *nest = own.sides->nest;
	const uint32_t element = nest->element;
	struct permute_args *args = &own.tile->args;
	uint64_t bits, row, dst_step = 0, src_step = 0;

	if (!has(&own.src, own.dst.chain->dim[0]))
		end_run(&own, &own.dst, &own.src, permute_dst_stride);
	else
		end_run(&own, &own.src, &own.dst, permute_src_stride);
	row = own.dst.count * element;
	own.load_run = own.src.count * element;
	if (args->padded || own.stack > 1 || own.src.n == 0 || own.count != own.dst.count * own.src.count ||
	    row % CHUNK || own.load_run % CHUNK || own.count * element > SQUARES_TILE_BYTES(element))
		return never;
	if (own.dst.split >= 0)
		dst_step = (uint64_t)magnitude_i64(nest->dim[own.dst.split].dst);
	if (own.src.split >= 0)
		src_step = (uint64_t)magnitude_i64(nest->dim[own.src.split].src);
	if (!ends_whole(&own, own.src.split, src_step) || !ends_whole(&own, own.dst.split, dst_step))
		return never;
	bits = own.src.others | own.src_at | (src_step ? src_step * own.box->n[own.src.split] : 0);
	own.tile->load_lines = (double)(LINE - align_of(bits | own.load_run, LINE)) / (double)own.load_run;
	if (bits % CHUNK || own.tile->gaps > 1)
		return never;
	bits = own.dst.others | own.dst_at | (dst_step ? dst_step * own.box->n[own.dst.split] : 0);
	own.tile->row_lines = (double)(LINE - align_of(bits | row, LINE)) / (double)row;
	if (bits % CHUNK)
		return never;
	own.tile->load_run = (double)own.load_run;
	own.tile->row_run = (double)row;
	args->how = PERMUTE_SQUARES;
	args->exact = bits % SECTOR != 0;
	args->loads = (uint32_t)own.dst.count;
	args->rows = (uint32_t)own.src.count;
	args->row_bytes = (uint32_t)row;
	args->threads =
	    (uint32_t)divide_up_u64(own.count * element / CHUNK, SQUARES_BATCH(element) * WARP_THREADS) *
	    WARP_THREADS;
	args->shared = PERMUTE_SLOTS_AT + args->loads * (uint32_t)((own.load_run / CHUNK | 1) * CHUNK) +
	               args->rows * PERMUTE_SQUARES_NOTE;
	return sketch_of(own.tile);
}

/* ---- All --------------------------------------------------------------------------------------------- */

void permute_sketch(const struct permute_sides *sides, const struct permute_box *box, double most,
                    struct permute_sketch ret[PERMUTE_HOWS])
{
	struct permute_tile tile;
	struct sketch sketch = { .tile = &tile };
	uint64_t slots;

	for (int how = 0; how < PERMUTE_HOWS; how++)
		ret[how] = never;
	if (!init(&sketch, sides, box, most))
		return;
	ret[PERMUTE_SQUARES] = squares(&sketch);
	if (!set_rows(&sketch, PERMUTE_ELEMENTS) || !set_slots(&sketch, &slots) ||
	    sketch.tile->load_run < LEAST_RUN || sketch.tile->row_run < LEAST_RUN)
		return;
	ret[PERMUTE_ELEMENTS] = by(&sketch, PERMUTE_ELEMENTS, slots);
	if (suits_words(&sketch))
		ret[PERMUTE_WORDS] = by(&sketch, PERMUTE_WORDS, slots);
	if (suits_pieces(&sketch) && set_rows(&sketch, PERMUTE_PIECES) && set_slots(&sketch, &slots))
		ret[PERMUTE_PIECES] = by(&sketch, PERMUTE_PIECES, slots);
}
