/* SPDX-License-Identifier: Apache-2.0 */
/* The tiles, the costs, and the choice.
 *
 * In a tile both sides' runs grow in turns, the one that lacks more first. A cost is that of a copy, and what
 * is paid beside it for each line that is moved, by how short the runs are that the lines lie in on either
 * side, and by the instructions that permute them. The model is fitted to all candidates of 185 random rows
 * of 16 to 48 MiB on Zen 3 with AVX2, one and two threads (tests/bench/EXPERIMENTS.md).
 */
#include "cpu_choice.h"

#include <stdbool.h>

#include "kernels/cpu/move/move.h"
#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

#define LINE 64

/* Tiles of a row of the destination that follow each other in a piece. */
#define ROW_TILES 8

/* Bytes of a run that its tables may be too short for, in a dimension of so many of its tiles. Against
 * others: not measured; against none, pairs of runs of 44 bytes 4.6 instead of 13.5 ns for 16 bytes. */
#define LONG_BYTES (8 << 10)
#define LONG_TILES 64

/* One side of a tile: its dimensions, smallest stride first, and how far its run goes. */
struct side {
	int n, at;
	int dim[TENSOR_MAX_RANK];
	int64_t run; /* bytes from the run's first to its last, short gaps included */
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

/* Bytes of the lines that a box of these extents touches on one side, about. */
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

/* n in equal parts of at most `most`. */
static int64_t even(int64_t n, int64_t most)
{
	return most >= n ? n : divide_up_i64(n, divide_up_i64(n, max_i64(most, 1)));
}

/* n in parts of at most `most`, which are multiples of step where they can be. */
static int64_t stepped(int64_t n, int64_t most, int64_t step)
{
	if (most >= n)
		return n;
	int64_t up = divide_up_i64(even(n, most), step) * step;
	if (up <= most)
		return min_i64(up, n);
	return max_i64(most / step * step, min_i64(most, step));
}

/* The side's next dimension goes into the tile as far as its run wants and there is room. */
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
	if (get * 5 >= n * 4 && n <= most) /* rather whole than with a remainder that is short */
		get = n;
	tile->n[d] = get;
	*room = *room * have / get;
	side->run = max_i64(side->run, (get - 1) * stride + side->run);
	side->at++;
	side->is_done = get < n || side->run >= side->want || *room < 2;
}

/* Returns the largest extent of a tile along a dimension whose elements come `units` at a time. It exceeds
 * what tables hold where hardly any tile is at the end, because the extent may have no divisor by which to
 * cut it. */
static int64_t extent_most(const struct loop_nest *nest, int64_t n, int64_t units)
{
	int64_t most = LONG_BYTES / nest->element / units;
	return most > 0 && n / most >= LONG_TILES ? max_i64(most, CPU_TILE_EXTENT / units)
	                                          : CPU_TILE_EXTENT / units;
}

/* room: elements. */
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
	/* The dimension that lies closest in the destination gets the room that is left. */
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

/* Along rows of the destination, then along the source, because lines are shared there. */
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

/* These are the costs of a copy, and of bytes that are read or written in vain. Those cost half as much,
 * because a copy does both. */
#define COPY       1.05
#define EXTRA_LINE 0.5

/* These are the costs of each run of a tile, in lines. A run of the source has to be found and fetched from a
 * page of its own. A run of the destination costs more where runs do not begin whole lines apart, and share
 * lines with their neighbours. */
#define SRC_RUN        2.2
#define DST_RUN        0.8
#define DST_RUN_SHARED 4.9

/* WIDE is the cost of tiles that write to more than PAGES pages at once, for each time that they are so many.
 * LARGE is that of tiles that do not stay in a part of the second cache with the tile that is fetched
 * meanwhile. */
#define PAGES      256
#define WIDE       0.39
#define CACHE_TILE (64 << 10)
#define LARGE      0.09

/* These are the costs of a tile's instructions: those that transpose units of 1, 2, 4, 8 and 16 bytes; where
 * one side has less than 16 bytes of them; where they are moved by a table; and of a run that is contiguous
 * on both sides. */
static const double panel[] = { 0.05, 0.14, 0.60, 0.23, 0.28 };
#define FEW        1.35
#define TABLE      0.1
#define TABLE_UNIT 8.0
#define TILE_CALL  1.5

/* These are the costs of the instructions of the transpose's microkernel, by the size of a unit. far is for
 * sources that it does not read from one end to the other, but ROW_UNITS at a time. */
static const double strips[] = { 1.10, 0.45, 0.20, 0.02, 0.03 };
static const double far[] = { 0.80, 0.60, 0.09, 0.05, 0.05 };
#define ROW_UNITS 256

/* These are the costs of a call of that microkernel; of its boxes' rows, which cost less where they follow
 * each other in the source, and of columns that do not in the destination, by their lines; and of both where
 * they have less than 16 bytes, and units are moved one by one. */
#define BOX_CALL 9.0
#define BOX_ROW  0.06
#define BOX_COL  0.9
#define TINY_ROW 0.8
#define TINY_COL 3.3

/* These are the costs of a call for pixels, by the lines of its longer side. The second one holds where the
 * longer side is the destination's, and its rows do not begin whole lines apart: rows of 254 bytes written
 * one by one have 0.25 of memcpy's speed. */
#define PIXEL_CALL        3.0
#define PIXEL_CALL_SHARED 8.0

/* These are the costs of a row that is copied through the cache, and of short ones that follow each other on
 * both sides. */
#define COPY_CALL 0.9
#define SHORT_ROW 0.2

/* These are the costs of the microkernels for rows that repeat a unit or run backwards, which are higher
 * where the rows are built in scratch: of 640 bytes 0.31 to 0.42 of memcpy's speed, of 4096 0.77. The last
 * one is for units one by one. */
#define REVERSE        0.07
#define REVERSE_CALL   0.4
#define REVERSE_CACHED 0.7
#define REVERSE_STAGED 16.0
#define STRIDED_UNIT   32.0

/* Runs that are shorter are written through the cache, which reads their lines first. */
#define CACHED_RUN 512
#define CACHED_ROW 128

/* Gaps of at most so many bytes between a tile's runs of the source are packed with them. */
#define GAP_MOST 32

/* ---- Runs ------------------------------------------------------------------------------------------- */

/* Bytes up to which a side is contiguous from a run of `run` bytes on, in a box of these extents, in
 * dimensions that are not taken. */
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

/* One side of a box: runs of so many bytes, from the first to the last. */
struct runs {
	int64_t n, bytes;
	bool is_cut;  /* each goes on in another box */
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

/* Lines that they lie in, about. What is cut is read on before it is forgotten. */
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

/* Rows are contiguous in the source, columns in the destination; rows do not go on into columns. */
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

/* Bytes of the destination's longest run. */
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

/* Returns whether all strides but the innermost dimension's are whole lines. */
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
	if (run <= LINE && step <= run + LINE) /* on the next line, if not on the same */
		return COPY + SHORT_ROW;
	struct runs src = { .n = 1, .bytes = run, .is_even = is_lines(nest, false) };
	bool is_cached = run < CACHED_RUN && !(run >= 2 * LINE && run % LINE == 0 && is_lines(nest, true));
	double cost = COPY + EXTRA_LINE * (runs_lines(&src) * per_line(run) - 1);
	return is_cached ? cost + EXTRA_LINE + COPY_CALL * per_line(run) : cost;
}

/* Pixels of a few channels, from or to a plane for each. */
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

/* Rows that are contiguous on both sides, which short ones move as units. */
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

/* Moves of fewer bytes end before the comparison pays, which takes a few microseconds. */
#define COMPARED_BYTES (1 << 20)

/* Shorter runs that are contiguous on both sides go by tiles: past the cache, and through it. */
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

/* Bytes of the source's run that do not belong to the destination's innermost dimension. */
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

/* Returns whether the two dimensions of a transpose are long enough for its microkernel. */
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
