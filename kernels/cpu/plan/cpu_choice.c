/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses tiles, predicts costs, and chooses a strategy.
 *
 * While a tile is chosen, the runs of both sides grow in turns: the side whose run is further from its wanted
 * length is next. The cost of a line that is moved is that of copying it, plus an amount that is the larger
 * the shorter the runs are to which the line belongs on either side, plus that of the instructions that
 * permute it. The model is fitted to all candidates of 185 random cases of 16 to 48 MiB on Zen 3 with AVX2,
 * with one and two threads (tests/bench/EXPERIMENTS.md).
 */
#include "cpu_choice.h"

#include <stdbool.h>

#include "kernels/cpu/move/move.h"
#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

#define LINE 64

/* Maximum number of consecutive tiles along a row of the destination in a piece. */
#define ROW_TILES 8

/* In a dimension that is at least LONG_TILES tiles long, a tile may have runs of up to LONG_BYTES, which can
 * be more than its tables hold. Other values were not measured. Without such runs, a transform that moves
 * pairs of runs of 44 bytes took 13.5 instead of 4.6 ns per 16 bytes. */
#define LONG_BYTES (8 << 10)
#define LONG_TILES 64

/* One side of a tile: its dimensions, smallest stride first, and the length of its run so far. */
struct side {
	int n, at;
	int dim[TENSOR_MAX_RANK];
	int64_t run; /* bytes from the run's first to its last, including short gaps */
	int64_t want;
	bool is_done;
};

static int64_t stride_of(const struct loop_nest *nest, int d, bool dst)
{
	return dst ? nest->dim[d].dst : magnitude_i64(nest->dim[d].src);
}

static void side_init(struct side *side, const struct loop_nest *nest, bool dst, int64_t want)
{
	*side = (struct side){ .run = nest->element, .want = want };
	for (int d = nest->rank - 1; d >= 0; d--) {
		int at = side->n;
		if (stride_of(nest, d, dst) == 0)
			continue;
		for (; at > 0 && stride_of(nest, side->dim[at - 1], dst) > stride_of(nest, d, dst); at--)
			side->dim[at] = side->dim[at - 1];
		side->dim[at] = d;
		side->n++;
	}
}

/* ---- Lines of a box
 * ------------------------------------------------------------------------------------------ */

/* Returns the approximate bytes of the lines that a box of these extents touches on one side. */
static int64_t box_lines(const struct loop_nest *nest, const int64_t *extent, bool dst)
{
	struct side side;
	int64_t span = nest->element, runs = 1;
	side_init(&side, nest, dst, 0);
	for (int i = 0; i < side.n; i++) {
		int d = side.dim[i];
		int64_t stride = stride_of(nest, d, dst);
		if (runs == 1 && stride <= span + LINE)
			span += (extent[d] - 1) * stride;
		else
			runs *= extent[d];
	}
	return runs * divide_up_i64(span, LINE) * LINE;
}

static int64_t box_cost(const struct loop_nest *nest, const int64_t *extent)
{
	return max_i64(box_lines(nest, extent, true), box_lines(nest, extent, false));
}

/* ---- A tile ----------------------------------------------------------------------------------------- */

/* Divides n into the least number of equal parts that are at most `most` large, and returns the size of a
 * part, rounded up. */
static int64_t even(int64_t n, int64_t most)
{
	return most >= n ? n : divide_up_i64(n, divide_up_i64(n, max_i64(most, 1)));
}

/* Does the same, but with a size that is a multiple of step where possible. */
static int64_t stepped(int64_t n, int64_t most, int64_t step)
{
	if (most >= n)
		return n;
	int64_t up = divide_up_i64(even(n, most), step) * step;
	if (up <= most)
		return min_i64(up, n);
	return max_i64(most / step * step, min_i64(most, step));
}

/* Extends the tile along the side's next dimension, up to the length that the side wants for its run
 * (side->want). *room is the factor by which the tile may still grow, and is reduced. */
static void grow(struct side *side, struct cpu_tile *tile, const struct loop_nest *nest, bool dst,
                 int64_t *room)
{
	if (side->at == side->n) {
		side->is_done = true;
		return;
	}
	int d = side->dim[side->at];
	int64_t n = nest->dim[d].n, stride = stride_of(nest, d, dst), have = tile->n[d];
	if (side->at > 0 && stride > side->run + LINE) {
		side->is_done = true;
		return;
	}
	int64_t wanted = min_i64(n, divide_up_i64(side->want, stride));
	int64_t units = max_i64(side->run / nest->element, 1);
	int64_t most = min_i64(have * *room, max_i64(have, CPU_TILE_EXTENT / units));
	int64_t step = min_i64(max_i64(LINE / stride, 1), n);
	int64_t get = max_i64(have, stepped(n, min_i64(wanted, most), step));
	if (get * 5 >= n * 4 && n <= most) /* take the whole dimension rather than leave a short remainder */
		get = n;
	tile->n[d] = get;
	*room = *room * have / get;
	side->run = max_i64(side->run, (get - 1) * stride + side->run);
	side->at++;
	side->is_done = get < n || side->run >= side->want || *room < 2;
}

/* Returns the largest extent of a tile along a dimension of n indices, each of which stands for `units`
 * elements. If the dimension is many tiles long, so that few of them are cut off by its end, the extent may
 * exceed what the tables hold, because the dimension may have no divisor by which to cut it. */
static int64_t extent_most(const struct loop_nest *nest, int64_t n, int64_t units)
{
	int64_t most = LONG_BYTES / nest->element / units;
	return most > 0 && n / most >= LONG_TILES ? max_i64(most, CPU_TILE_EXTENT / units)
	                                          : CPU_TILE_EXTENT / units;
}

/* Chooses a tile of at most `room` elements. */
static void choose_tile(struct cpu_tile *tile, const struct loop_nest *nest, const struct cpu_tile_want *want,
                        int64_t room)
{
	struct side dst, src;
	int64_t src_run = want->src_run, dst_run = want->dst_run, element = nest->element;
	while (src_run > element && dst_run > element && src_run * dst_run > room * element * element) {
		if (src_run * 2 * want->dst_run > dst_run * want->src_run)
			src_run /= 2;
		else
			dst_run /= 2;
	}
	side_init(&dst, nest, true, dst_run);
	side_init(&src, nest, false, src_run);
	for (int d = 0; d < nest->rank; d++) {
		tile->n[d] = loop_nest_dim_is_whole(&nest->dim[d]) ? 1 : nest->dim[d].n;
		room = max_i64(room / tile->n[d], 1);
	}
	while (!dst.is_done || !src.is_done) {
		if (!dst.is_done && (src.is_done || dst.run * src.want <= src.run * dst.want))
			grow(&dst, tile, nest, true, &room);
		else
			grow(&src, tile, nest, false, &room);
	}
	/* The tile grows as far as it still may along the dimensions with the smallest strides in the
	 * destination. */
	int64_t units = 1;
	for (int d = nest->rank - 1; d >= 0 && room >= 2; d--) {
		int64_t have = tile->n[d], n = nest->dim[d].n, most = extent_most(nest, n, units);
		if (most < 2)
			break;
		int64_t get = stepped(n, min_i64(have * room, most), have);
		if (get > have) {
			tile->n[d] = get;
			room = room * have / get;
		}
		units *= tile->n[d];
	}
}

/* ---- A piece ---------------------------------------------------------------------------------------- */

static void grow_piece(struct cpu_tile *tile, const struct loop_nest *nest, int d, int64_t most,
                       int64_t *room)
{
	int64_t have = tile->piece[d], n = nest->dim[d].n;
	int64_t times = min_i64(min_i64(*room, most), divide_up_i64(n, have));
	if (times < 2)
		return;
	int64_t tiles = even(divide_up_i64(n, tile->n[d]), have / tile->n[d] * times);
	tile->piece[d] = min_i64(n, tiles * tile->n[d]);
	*room = *room * have / tile->piece[d];
}

/* Extends pieces along rows of the destination, then along those of the source, because tiles that are
 * neighbours along a row share lines. */
static void choose_piece(struct cpu_tile *tile, const struct loop_nest *nest, int64_t piece_bytes)
{
	struct side dst, src;
	int64_t room = max_i64(piece_bytes / box_cost(nest, tile->n), 1);
	for (int d = 0; d < nest->rank; d++)
		tile->piece[d] = tile->n[d];
	side_init(&dst, nest, true, 0);
	side_init(&src, nest, false, 0);
	for (int i = 0; i < dst.n; i++)
		grow_piece(tile, nest, dst.dim[i], i ? room : ROW_TILES, &room);
	for (int i = 0; i < src.n; i++)
		grow_piece(tile, nest, src.dim[i], room, &room);
}

void cpu_tile_choose(struct cpu_tile *ret, const struct loop_nest *nest, const struct cpu_tile_want *want)
{
	int64_t room = max_i64(min_i64(want->tile, want->piece) / nest->element, 1);
	do
		choose_tile(ret, nest, want, room);
	while (box_cost(nest, ret->n) > max_i64(want->piece, LINE) && (room /= 2) > 0);
	choose_piece(ret, nest, want->piece);
}

/* ---- Costs ------------------------------------------------------------------------------------------ */

/* Costs of a copy, and of bytes that are read or written in vain. The latter cost half as much, because a
 * copy reads and writes. Here and below, 1 is the time of copying a line without any overhead. */
#define COPY       1.05
#define EXTRA_LINE 0.5

/* Costs of each run of a tile. A run of the source has to be located and fetched from a page of its own. A
 * run of the destination costs more if runs do not begin whole lines apart and so share lines with their
 * neighbours. */
#define SRC_RUN        2.2
#define DST_RUN        0.8
#define DST_RUN_SHARED 4.9

/* WIDE is added for every further PAGES runs if a tile writes to more than PAGES pages at once. LARGE is
 * added if a tile does not fit into a part of the second-level cache together with the tile that is being
 * fetched. */
#define PAGES      256
#define WIDE       0.39
#define CACHE_TILE (64 << 10)
#define LARGE      0.09

/* Costs of a tile's instructions: panel for transposing units of 1, 2, 4, 8 and 16 bytes; FEW if one side has
 * less than 16 bytes of them; TABLE and TABLE_UNIT if units are moved by a table; TILE_CALL for a run that is
 * contiguous on both sides. */
static const double panel[] = { 0.05, 0.14, 0.60, 0.23, 0.28 };
#define FEW        1.35
#define TABLE      0.1
#define TABLE_UNIT 8.0
#define TILE_CALL  1.5

/* Costs of the instructions of the transpose's microkernel, by the size of a unit. far is added for sources
 * that it does not read from one end to the other, but ROW_UNITS units at a time. */
static const double strips[] = { 1.10, 0.45, 0.20, 0.02, 0.03 };
static const double far[] = { 0.80, 0.60, 0.09, 0.05, 0.05 };
#define ROW_UNITS 256

/* Further costs of that microkernel: a call; a row of a box, if rows do not follow each other in the source;
 * a column by its lines, if columns do not follow each other in the destination; and either of them if it has
 * less than 16 bytes, so that units are moved one by one. */
#define BOX_CALL 9.0
#define BOX_ROW  0.06
#define BOX_COL  0.9
#define TINY_ROW 0.8
#define TINY_COL 3.3

/* Costs of a call for pixels, by the lines of its longer side. The second one applies if the longer side is
 * the destination's and its rows do not begin whole lines apart: rows of 254 bytes written one by one have
 * 0.25 of memcpy's speed. */
#define PIXEL_CALL        3.0
#define PIXEL_CALL_SHARED 8.0

/* Costs of a row that is copied through the cache, and of short rows that follow each other on both sides. */
#define COPY_CALL 0.9
#define SHORT_ROW 0.2

/* Costs of the microkernels for rows that repeat a unit or run backwards. They are higher if rows are built
 * in scratch: 0.31 to 0.42 of memcpy's speed for rows of 640 bytes, 0.77 for 4096. STRIDED_UNIT is the cost
 * of units that are moved one by one. */
#define REVERSE        0.07
#define REVERSE_CALL   0.4
#define REVERSE_CACHED 0.7
#define REVERSE_STAGED 16.0
#define STRIDED_UNIT   32.0

/* Bytes of the shortest run, and of the shortest row, that are written past the cache. Shorter ones are
 * written through the cache, which reads their lines first. */
#define CACHED_RUN 512
#define CACHED_ROW 128

/* Largest gap in bytes between two runs of the source that are packed into a tile together with the gap. */
#define GAP_MOST 32

/* ---- Runs ------------------------------------------------------------------------------------------- */

/* Returns the bytes for which a side is contiguous in a box of these extents, starting from a run of `run`
 * bytes, over dimensions that are not in the bitmap `taken`. */
static int64_t extend_run(const struct loop_nest *nest, const int64_t *extent, bool dst, int64_t run,
                          uint64_t taken)
{
	for (int d = nest->rank - 1; d >= 0; d--) {
		if (taken >> d & 1 || stride_of(nest, d, dst) != run)
			continue;
		taken |= UINT64_C(1) << d;
		run *= extent[d];
		if (extent[d] < nest->dim[d].n)
			break;
		d = nest->rank;
	}
	return run;
}

/* One side of a box as n runs, each of which has `bytes` from the first to the last. */
struct runs {
	int64_t n, bytes;
	bool is_cut;  /* each run continues in another box */
	bool is_even; /* runs begin whole lines apart */
};

static struct runs runs_of(const struct loop_nest *nest, const int64_t *extent, bool dst, int64_t gap_most)
{
	struct runs ret = { .n = 1, .bytes = nest->element, .is_even = true };
	uint64_t taken = 0;
	bool is_open = true;
	for (int i = 0; i < nest->rank; i++) {
		int closest = -1;
		for (int d = nest->rank - 1; d >= 0; d--)
			if (!(taken >> d & 1) &&
			    (closest < 0 || stride_of(nest, d, dst) < stride_of(nest, closest, dst)))
				closest = d;
		int64_t stride = stride_of(nest, closest, dst);
		taken |= UINT64_C(1) << closest;
		if (stride == 0)
			continue;
		is_open = is_open && stride - ret.bytes <= min_i64(ret.bytes, gap_most);
		if (is_open) {
			ret.bytes += (extent[closest] - 1) * stride;
			ret.is_cut = extent[closest] < nest->dim[closest].n;
			is_open = !ret.is_cut;
		} else {
			ret.n *= extent[closest];
			ret.is_even = ret.is_even && stride % LINE == 0;
		}
	}
	return ret;
}

/* Returns the approximate number of lines that the runs touch. If runs are cut, partial lines count only as
 * far as they are used, because the next box reads the rest before the line leaves the cache. */
static double runs_lines(const struct runs *runs)
{
	double lines = (double)runs->bytes / LINE;
	if (!runs->is_cut)
		lines = runs->is_even ? (double)divide_up_i64(runs->bytes, LINE)
		                      : (double)(runs->bytes - 1) / LINE + 1;
	return lines * (double)runs->n;
}

static double per_line(int64_t bytes)
{
	return (double)LINE / (double)bytes;
}

/* ---- The cost of tiles
 * ------------------------------------------------------------------------------------------ */

/* Returns the cost of the instructions that permute a tile. Rows are contiguous in the source, columns in the
 * destination; a dimension of columns is not counted as one of rows. */
static double permute_cost(const struct loop_nest *nest, const int64_t *extent)
{
	int64_t unit = nest->element;
	uint64_t taken = 0, in_col = 0;
	int d = nest->rank - 1;
	for (; d >= 0 && nest->dim[d].dst == unit && nest->dim[d].src == unit; d--) {
		unit *= extent[d];
		taken |= UINT64_C(1) << d;
	}
	if (unit > LINE)
		return TILE_CALL * per_line(unit);
	if (d >= 0 && nest->dim[d].dst == unit)
		in_col = UINT64_C(1) << d;
	bool is_short_row = extend_run(nest, extent, false, unit, taken | in_col) < 16;
	bool is_short_col = extend_run(nest, extent, true, unit, taken) < 16;
	if (unit > 16 || unit & (unit - 1) || (is_short_row && is_short_col))
		return TABLE + TABLE_UNIT / (double)unit;
	return is_short_row || is_short_col ? FEW : panel[__builtin_ctzll((uint64_t)unit)];
}

/* Returns the bytes of the longest contiguous run of the destination. */
static int64_t longest_row(const struct loop_nest *nest)
{
	int64_t run = nest->element;
	for (int d = nest->rank - 1; d >= 0 && nest->dim[d].dst == run; d--)
		run *= nest->dim[d].n;
	return run;
}

double cpu_cost_tiles(const struct loop_nest *nest, const struct cpu_tile *tile)
{
	struct runs src = runs_of(nest, tile->n, false, GAP_MOST), dst = runs_of(nest, tile->n, true, 0);
	int64_t bytes = nest->element;
	for (int d = 0; d < nest->rank; d++)
		bytes *= tile->n[d];
	double lines = (double)bytes / LINE, cost = COPY + permute_cost(nest, tile->n);
	cost += EXTRA_LINE * (runs_lines(&src) > lines ? runs_lines(&src) / lines - 1 : 0);
	cost += SRC_RUN * (double)src.n / lines;
	if (longest_row(nest) < CACHED_ROW)
		cost += EXTRA_LINE;
	else
		cost += (dst.is_even ? DST_RUN : DST_RUN_SHARED) * (double)dst.n / lines;
	if (dst.n > PAGES)
		cost += WIDE * ((double)dst.n / PAGES - 1);
	if (bytes > CACHE_TILE)
		cost += LARGE;
	return cost;
}

/* ---- The cost of microkernels
 * ----------------------------------------------------------------------------------- */

/* Returns whether all strides except that of the innermost dimension are multiples of a line. */
static bool is_lines(const struct loop_nest *nest, bool dst)
{
	for (int d = 0; d < nest->rank - 1; d++)
		if (stride_of(nest, d, dst) % LINE)
			return false;
	return true;
}

static double copy_cost(const struct loop_nest *nest)
{
	int64_t run = nest->dim[nest->rank - 1].n * nest->element;
	int64_t step = stride_of(nest, nest->rank - 2, false);
	if (run <= LINE && step <= run + LINE) /* the next row begins on the same line or on the next */
		return COPY + SHORT_ROW;
	struct runs src = { .n = 1, .bytes = run, .is_even = is_lines(nest, false) };
	bool is_cached = run < CACHED_RUN && !(run >= 2 * LINE && run % LINE == 0 && is_lines(nest, true));
	double cost = COPY + EXTRA_LINE * (runs_lines(&src) * per_line(run) - 1);
	return is_cached ? cost + EXTRA_LINE + COPY_CALL * per_line(run) : cost;
}

/* Returns whether a transpose moves pixels of a few channels from or to a plane for each channel. */
static bool is_pixels(const struct loop_nest *nest, int64_t row, int64_t col, int64_t row_step,
                      int64_t col_step)
{
	return nest->element < 8 && ((row <= 16 && col >= LINE && col_step == row) ||
	                             (col <= 16 && row >= LINE && row_step == col));
}

static double transpose_cost(const struct loop_nest *nest, int src_inner)
{
	const struct loop_nest_dim *r = &nest->dim[src_inner], *c = &nest->dim[nest->rank - 1];
	int64_t unit = nest->element, row = r->n * unit, col = c->n * unit;
	int64_t col_step = magnitude_i64(c->src);
	int shift = __builtin_ctz(nest->element);
	if (is_pixels(nest, row, col, r->dst, col_step)) {
		bool is_shared = col >= LINE && !is_lines(nest, true);
		return COPY + (is_shared ? PIXEL_CALL_SHARED : PIXEL_CALL) * per_line(max_i64(row, col));
	}
	double cost = COPY + BOX_CALL * per_line(r->n * col);
	if (col < 16)
		return cost + TINY_COL;
	if (row < 16)
		return cost + TINY_ROW;
	cost += BOX_ROW * per_line(row);
	if (r->dst != col)
		cost += BOX_COL * per_line(col);
	bool is_far = col_step != row || r->n > ROW_UNITS;
	return cost + strips[shift] + (is_far ? far[shift] : 0);
}

static double reverse_cost(int64_t row, bool is_read)
{
	double cost = COPY + REVERSE + REVERSE_CALL * per_line(row);
	if (!is_read)
		return cost;
	return row < CACHED_RUN ? cost + REVERSE_CACHED : cost + REVERSE_STAGED * per_line(row);
}

/* Returns whether rows are contiguous on both sides. Such rows, if short, are moved as units. */
static bool is_contiguous(const struct loop_nest *nest)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	return inner->dst == nest->element && inner->src == nest->element;
}

double cpu_cost_copy(const struct loop_nest *nest, const struct cpu_tile *tile)
{
	(void)tile;
	return nest->rank <= 1 ? 1 : copy_cost(nest);
}

double cpu_cost_transpose(const struct loop_nest *nest, const struct cpu_tile *tile)
{
	int src_inner;
	(void)tile;
	loop_nest_family(nest, &src_inner);
	return transpose_cost(nest, src_inner);
}

double cpu_cost_rows(const struct loop_nest *nest, const struct cpu_tile *tile)
{
	(void)tile;
	if (nest->fill)
		return 1;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	return is_contiguous(nest) ? copy_cost(nest)
	                           : reverse_cost(inner->n * nest->element, inner->src != 0);
}

double cpu_cost_strided(const struct loop_nest *nest, const struct cpu_tile *tile)
{
	(void)tile;
	if (nest->fill)
		return 1;
	return is_contiguous(nest) ? copy_cost(nest) : COPY + STRIDED_UNIT / nest->element;
}

/* ---- Candidates ------------------------------------------------------------------------------------- */

/* Comparing the candidates takes a few microseconds, which does not pay off for moves of fewer bytes than
 * this. */
#define COMPARED_BYTES (1 << 20)

/* Runs that are contiguous on both sides are moved by the microkernel instead of tiles if they have at least
 * this many bytes: RUN_LEAST past the cache, RUN_LEAST_CACHED through it. */
#define RUN_LEAST        512
#define RUN_LEAST_CACHED LINE

const char *const cpu_candidate_names[CPU_CANDIDATES] = { "microkernel", "32K 1024:256", "64K 1024:256",
	                                                  "128K 1024:256", "64K 512:512" };

static const struct cpu_tile_want wants[CPU_CANDIDATES] = {
	[CPU_USUAL] = { .tile = 32 << 10, .src_run = 1024, .dst_run = 256 },
	[2] = { .tile = 64 << 10, .src_run = 1024, .dst_run = 256 },
	[3] = { .tile = 128 << 10, .src_run = 1024, .dst_run = 256 },
	[4] = { .tile = 64 << 10, .src_run = 512, .dst_run = 512 },
};

const struct cpu_strategy *const cpu_strategies[CPU_STRATEGY_COUNT] = {
#define STRATEGY(name) [CPU_STRATEGY_##name] = &cpu_strategy_##name,
#include "kernels/cpu/move/strategies.def"
};

const struct cpu_strategy *cpu_first_strategy(const struct loop_nest *nest)
{
	int i = 0;
	while (cpu_strategies[i]->variants || !cpu_strategies[i]->probe(nest))
		i++;
	return cpu_strategies[i];
}

static double cost_of(const struct cpu_choice *choice, const struct loop_nest *nest)
{
	return choice->strategy->cost ? choice->strategy->cost(nest, &choice->tile) : 0;
}

void cpu_choose_candidate(struct cpu_choice *ret, const struct loop_nest *nest, int candidate,
                          int64_t piece_bytes)
{
	ret->candidate = candidate;
	ret->strategy = candidate > 0 ? &cpu_strategy_tiles : cpu_first_strategy(nest);
	if (candidate > 0) {
		struct cpu_tile_want want = wants[candidate];
		want.piece = piece_bytes;
		cpu_tile_choose(&ret->tile, nest, &want);
	}
	ret->cost = cost_of(ret, nest);
}

/* ---- By rule ---------------------------------------------------------------------------------------- */

/* Returns the bytes for which the source is contiguous along dimensions other than the destination's
 * innermost. */
static int64_t crossed_run(const struct loop_nest *nest)
{
	int64_t run = nest->element;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].n > 1 && magnitude_i64(nest->dim[d].src) == run) {
			run *= nest->dim[d].n;
			d = -1;
		}
	return run;
}

/* Returns whether both dimensions of a transpose are long enough for its microkernel. */
static bool is_regular(const struct loop_nest *nest)
{
	int inner;
	if (loop_nest_family(nest, &inner) != FAMILY_TILE_TRANSPOSE)
		return false;
	int64_t row = nest->dim[nest->rank - 1].n * nest->element, col = nest->dim[inner].n * nest->element;
	return (row >= LINE && col >= LINE / 2) || (row >= 4 * LINE && crossed_run(nest) >= LINE / 2);
}

static bool is_tiled(const struct loop_nest *nest, bool stream)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	if (magnitude_i64(inner->src) == nest->element || inner->src == 0)
		return inner->n * nest->element < (stream ? RUN_LEAST : RUN_LEAST_CACHED);
	return !is_regular(nest);
}

/* ---- The choice ------------------------------------------------------------------------------------- */

void cpu_choose(struct cpu_choice *ret, const struct loop_nest *nest, const struct cpu_case *c)
{
	int64_t bytes = nest->element * loop_nest_count(nest);
	*ret = (struct cpu_choice){ .strategy = cpu_first_strategy(nest) };
	if (nest->fill || !ret->strategy->cost)
		return;
	bool has_tiles = bytes >= c->tiled_bytes && cpu_strategy_tiles.probe(nest);
	if (!c->stream || bytes < COMPARED_BYTES) {
		if (has_tiles && is_tiled(nest, c->stream))
			cpu_choose_candidate(ret, nest, CPU_USUAL, c->piece_bytes);
		ret->cost = 0;
		return;
	}
	ret->cost = cost_of(ret, nest);
	for (int i = 1; i < CPU_CANDIDATES && has_tiles; i++) {
		struct cpu_choice other;
		cpu_choose_candidate(&other, nest, i, c->piece_bytes);
		if (other.cost < ret->cost)
			*ret = other;
	}
}
