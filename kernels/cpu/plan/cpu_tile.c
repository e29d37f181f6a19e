/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses tiles: both sides' runs grow in turns, the one that lacks more first. */
#include "cpu_tile.h"

#include <stdbool.h>

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

/* ---- Lines ------------------------------------------------------------------------------------------ */

/* Bytes of the lines that a box of these extents touches on one side, about. */
static int64_t lines_of(const struct loop_nest *nest, const int64_t *extent, bool dst)
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
	return max_i64(lines_of(nest, extent, true), lines_of(nest, extent, false));
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

/* Of a dimension from `units` elements on. More than tables have, where hardly any tile is at the end: that
 * of one may have no divisor by which to cut it. */
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
	/* What room is left goes to whatever lies closest in the destination. */
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
