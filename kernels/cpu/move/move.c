/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a move: chooses its microkernel, divides it into pieces, and runs the loops that lead from a piece to
 * the microkernel. */
#include "move.h"

#include <assert.h>

#include "amax.h"
#include "convert.h"
#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/cpu/tile/tile.h"
#include "kernels/nest/nest_family.h"
#include "proto/arithmetic.h"

/* A piece of a transpose reads runs of FIRST_UNITS units, at most SRC_FIRST bytes, where the source has them:
 * it then writes to as many pages of the destination at once. STAGED_UNITS where its rows are staged, as
 * those are that do not begin whole lines apart.
 *
 * Measured (ratio to memcpy, small pages; tests/bench/EXPERIMENTS.md, "What was tried"): 256 units instead of
 * runs of 1 KiB: uint8 0.75 -> 0.78, float16 0.89 -> 0.96. With huge pages 128 or 512 units, and runs of 1
 * KiB, are within noise. STAGED_UNITS and SRC_FIRST against other values: not measured. */
#define FIRST_UNITS  256
#define STAGED_UNITS 512
#define SRC_FIRST    1024

/* Where the source's dimensions are short, a piece reads runs of SRC_RUN bytes through several of them, and
 * writes runs of DST_RUN bytes; what more it can hold extends along the destination.
 *
 * Measured: going through several dimensions at all: 6-D float32 0.36 -> 0.71 of memcpy, with the next tile
 * fetched ahead 0.76. These two lengths against others: not measured. */
#define SRC_RUN 2048
#define DST_RUN 4096

/* Runs of this many bytes need no further dimension. Not measured. */
#define LONG_RUN 1024

static bool choose_method(struct move *move, const struct loop_nest *nest, const struct move_place *place);
static void choose_microkernel(struct move *move, const struct loop_nest *nest);
static void reverse_rows(struct move *move);
static void choose_strided(struct move *move);
static void choose_chunks(struct move *move, int64_t piece_bytes);
static int64_t choose_crossed(struct move *move, int64_t room, int64_t cost);
static void count_pieces(struct move *move);

/* By whichever way, its pieces are boxes. */
static void init_conversion(struct move *move, const struct loop_nest *nest, const struct move_place *place)
{
	move->tiled = true;
	move->n_row = move->n_run = 0;
	move->row_dim = move->col_dim = -1;
	move->conversion = place->conversion;
	move->conversion.scale += nest->scale_offset;
	move->conversion.bias += nest->bias_offset;
	if (nest->in_blocks) {
		move->conversion.amax_scale += nest->to_scale_offset;
		move->conversion.amax_inverse += nest->to_inverse_offset;
		amax_choose(move, nest, place->piece_bytes);
	} else {
		convert_init(move, nest, place->piece_bytes);
	}
	count_pieces(move);
}

void move_init(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
               const struct move_place *place)
{
	move->isa = isa;
	move->stream = place->stream;
	move->ahead = 0;
	move->unit = nest->element;
	move->dst = place->dst + nest->dst_offset;
	move->src = nest->fill ? place->fill : place->src + nest->src_offset;
	move->rank = nest->rank;
	move->bordered = false;
	move->converts = nest->converted;
	move->pass = AMAX_NONE;
	move->mode = place->mode;
	move->fill = place->fill;
	move->fill_bytes = place->fill_bytes;
	for (int d = 0; d < nest->rank; d++) {
		const struct loop_nest_dim *dim = &nest->dim[d];
		bool is_window = !loop_nest_dim_is_whole(dim);
		move->dim[d] = (struct move_dim){ .n = dim->n,
			                          .dst = dim->dst,
			                          .src = nest->fill ? 0 : dim->src,
			                          .before = is_window ? dim->before : 0,
			                          .source = is_window ? dim->source : 0,
			                          .scale = dim->scale,
			                          .bias = dim->bias,
			                          .block = dim->block,
			                          .skew = dim->skew,
			                          .to_scale = dim->to_scale,
			                          .to_inverse = dim->to_inverse };
		move->bordered |= is_window;
	}
	if (move->converts) {
		init_conversion(move, nest, place);
		return;
	}
	move->tiled = choose_method(move, nest, place);
	if (move->tiled) {
		count_pieces(move);
		return;
	}
	if (move->bordered)
		return;
	choose_microkernel(move, nest);
	choose_chunks(move, place->piece_bytes);
	count_pieces(move);
}

/* Rows of the destination with gaps between them that are shorter than this are written through the cache. */
#define ROW_LEAST 128

/* Bytes of the destination's longest run. */
static int64_t longest_row(const struct loop_nest *nest)
{
	int64_t run = nest->element;
	for (int d = nest->rank - 1; d >= 0 && nest->dim[d].dst == run; d--)
		run *= nest->dim[d].n;
	return run;
}

/* Whether what stays together is of a size that no single move has, in long rows. In an image it can be moved
 * by more than its size, and what is written too much is written over: through the cache, runs of 3 bytes 1.8
 * times as fast, of 7 bytes 1.2 times; of 25 bytes with gaps between them 0.64. */
static bool has_odd_runs(const struct loop_nest *nest)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	int64_t run = inner->n * nest->element;
	return inner->src == nest->element && run < 16 && run & (run - 1) && longest_row(nest) >= ROW_LEAST;
}

/* To what windows need. */
static void shrink_tiles(struct move *move)
{
	for (int d = 0; d < move->rank; d++)
		move->tile[d] = move->dim[d].source > 0 ? move->dim[d].n : 1;
}

static bool set_tile(struct move *move, const struct loop_nest *nest, const struct cpu_tile *tile)
{
	move->in_place =
	    !move->bordered && (move->stream ? longest_row(nest) < ROW_LEAST : !has_odd_runs(nest));
	move->is_exact = move->in_place;
	for (int d = 0; d < move->rank; d++) {
		move->tile[d] = tile->n[d];
		move->dim[d].chunk = tile->piece[d];
	}
	move->n_row = move->n_run = 0;
	move->row_dim = -1;
	move->col_dim = -1;
	if (move->bordered && !tile_fits(move))
		shrink_tiles(move);
	return tile_fits(move);
}

static int forced = -1;

void move_force(int candidate)
{
	forced = candidate;
}

int move_forced(void)
{
	return forced;
}

/* false: by the microkernel. */
static bool choose_method(struct move *move, const struct loop_nest *nest, const struct move_place *place)
{
	struct cpu_choice choice;
	if (move->bordered)
		cpu_choose_candidate(&choice, nest, CPU_USUAL, place->piece_bytes);
	else if (forced >= 0 && cpu_has_tiles(nest))
		cpu_choose_candidate(&choice, nest, forced, place->piece_bytes);
	else
		cpu_choose(&choice, nest,
		           &(struct cpu_case){ place->piece_bytes, place->tiled_bytes, place->stream });
	if (choice.candidate == 0)
		return false;
	if (set_tile(move, nest, &choice.tile))
		return true;
	if (choice.candidate == CPU_USUAL)
		return false;
	cpu_choose_candidate(&choice, nest, CPU_USUAL, place->piece_bytes);
	return set_tile(move, nest, &choice.tile);
}

void move_shift(struct move *move, int64_t dst, int64_t src)
{
	move->dst += dst;
	move->src += src;
	count_pieces(move);
}

/* ---- The microkernel -------------------------------------------------------------------------------- */

static void choose_microkernel(struct move *move, const struct loop_nest *nest)
{
	int src_inner;
	enum family family = loop_nest_family(nest, &src_inner);
	move->col_dim = move->rank - 1;
	move->row_dim = move->rank - 2 < 0 ? -1 : move->rank - 2;
	switch (family) {
	case FAMILY_MEMCPY:
		move->microkernel = microkernel_copy;
		return;
	case FAMILY_TILE_COPY: {
		int64_t run = move->dim[move->rank - 1].n * move->unit;
		move->microkernel = microkernel_copy;
		if (run > CPU_LINE)
			return;
		move->unit = (uint32_t)run;
		move->rank--;
		choose_strided(move);
		return;
	}
	case FAMILY_TILE_TRANSPOSE:
		move->microkernel = microkernel_transpose;
		move->row_dim = src_inner;
		if (move->dim[src_inner].src < 0)
			reverse_rows(move);
		return;
	default:
		choose_strided(move);
		return;
	}
}

/* A source that runs backwards along the row dimension: seen from its end it is a transpose, and the
 * destination runs backwards. */
static void reverse_rows(struct move *move)
{
	struct move_dim *dim = &move->dim[move->row_dim];
	move->dst += (dim->n - 1) * dim->dst;
	move->src += (dim->n - 1) * dim->src;
	dim->dst = -dim->dst;
	dim->src = -dim->src;
}

/* The row dimension is the one that the source runs along, when the column dimension is not. */
static void choose_strided(struct move *move)
{
	int col = move->rank - 1;
	int row = move->rank - 2 < 0 ? -1 : move->rank - 2;
	int64_t unit = move->unit;
	move->microkernel = microkernel_strided;
	move->col_dim = col;
	move->row_dim = row;
	if (col < 0)
		return;
	if (move->dim[col].dst == unit && move->dim[col].src == 0 && unit <= 16 && !(unit & (unit - 1))) {
		move->microkernel = microkernel_repeat;
		return;
	}
	if (move->dim[col].dst == unit && move->dim[col].src == -unit && unit <= 16 && !(unit & (unit - 1))) {
		move->microkernel = microkernel_reverse;
		return;
	}
	int64_t least = magnitude_i64(move->dim[col].src);
	for (int d = col - 1; d >= 0; d--) {
		int64_t stride = magnitude_i64(move->dim[d].src);
		if (stride && stride < least) {
			least = stride;
			move->row_dim = d;
		}
	}
}

/* ---- Pieces ----------------------------------------------------------------------------------------- */

/* n cut into equal chunks of most at most, each a multiple of step where there is more than one. */
static int64_t even_chunk(int64_t n, int64_t most, int64_t step)
{
	if (most >= n)
		return n;
	if (most < 1)
		most = 1;
	int64_t chunk = divide_up_i64(n, divide_up_i64(n, most));
	return divide_up_i64(chunk, step) * step;
}

/* The dimension whose stride is `stride` on one side and that has no chunk yet; -1: none. */
static int find_next(const struct move *move, bool dst, int64_t stride)
{
	for (int d = 0; d < move->rank; d++)
		if (!move->dim[d].chunk && (dst ? move->dim[d].dst : move->dim[d].src) == stride)
			return d;
	return -1;
}

/* Bytes of lines that one unit costs on one side: no less than its own, and a line where no dimension of the
 * microkernel brings its neighbours. A piece has to end soon even if each unit lies on a page of its own. */
static int64_t unit_cost(const struct move *move, bool dst)
{
	int64_t units = 1, span = move->unit;
	for (int i = 0; i < 2; i++) {
		int d = i ? move->row_dim : move->col_dim;
		if (d < 0)
			continue;
		int64_t stride = magnitude_i64(dst ? move->dim[d].dst : move->dim[d].src);
		if (stride >= CPU_LINE && stride > move->unit)
			continue;
		units *= move->dim[d].n;
		span += (move->dim[d].n - 1) * stride;
	}
	/* A transpose goes on where its own two dimensions end. */
	while (move->microkernel == microkernel_transpose && span == units * move->unit && span < CPU_LINE) {
		int next = find_next(move, dst, span);
		if (next < 0)
			break;
		units *= move->dim[next].n;
		span *= move->dim[next].n;
	}
	return max_i64(move->unit, divide_up_i64(max_i64(span, CPU_LINE), units));
}

/* Goes on from dimension d while it is whole and its run is short, up to `want` bytes; gives how many times
 * more units a piece then has, `most` at most. */
static int64_t chain(struct move *move, bool dst, int d, int64_t want, int64_t most)
{
	const struct move_dim *dim = &move->dim[d];
	int8_t *found = dst ? move->run_chain : move->row_chain;
	int *n = dst ? &move->n_run : &move->n_row;
	int64_t run = move->unit * dim->n, times = 1;
	while (*n < MICROKERNEL_DIMS && dim->chunk == dim->n && run < LONG_RUN && times * 2 <= most) {
		int next = find_next(move, dst, run);
		if (next < 0)
			break;
		dim = &move->dim[next];
		move->dim[next].chunk =
		    even_chunk(dim->n, min_i64(most / times, divide_up_i64(want, run)), 1);
		found[(*n)++] = (int8_t)next;
		times *= dim->chunk;
		run *= dim->n;
	}
	return times;
}

/* Both sides matter: a box with runs on each. Gives the units of room that are left for other dimensions. */
static int64_t choose_crossed(struct move *move, int64_t room, int64_t cost)
{
	struct move_dim *r = &move->dim[move->row_dim], *c = &move->dim[move->col_dim];
	int64_t line = move->unit < CPU_LINE ? CPU_LINE / move->unit : 1;
	int64_t units = r->dst % CPU_LINE ? STAGED_UNITS : FIRST_UNITS;
	int64_t run = max_i64(min_i64(units, SRC_FIRST / cost), line);
	int64_t rows, cols;
	rows = r->chunk = even_chunk(r->n, run, line);
	c->chunk = even_chunk(c->n, max_i64(room / run, line), line);
	if (move->microkernel == microkernel_transpose)
		rows *= chain(move, false, move->row_dim, SRC_RUN, room / (rows * c->chunk));
	cols = c->chunk = even_chunk(c->n, max_i64(room / rows, line), line);
	if (move->microkernel == microkernel_transpose)
		cols *= chain(move, true, move->col_dim, DST_RUN, room / (rows * cols));
	if (!move->n_row)
		rows = r->chunk = even_chunk(r->n, max_i64(room / cols, r->chunk), line);
	return room / (rows * cols);
}

static void choose_chunks(struct move *move, int64_t piece_bytes)
{
	for (int d = 0; d < move->rank; d++)
		move->dim[d].chunk = 0;
	int64_t cost = max_i64(unit_cost(move, true), unit_cost(move, false));
	int64_t room = max_i64(piece_bytes / cost, 1); /* units */
	int row = move->row_dim, col = move->col_dim;
	int64_t line = move->unit < CPU_LINE ? CPU_LINE / move->unit : 1;
	move->n_row = move->n_run = 0;
	if (col < 0)
		return;

	struct move_dim *c = &move->dim[col];
	bool crossed = row >= 0 && magnitude_i64(move->dim[row].src) < magnitude_i64(c->src);
	if (crossed) {
		room = choose_crossed(move, room, cost);
	} else {
		c->chunk = even_chunk(c->n, max_i64(room, line), line);
		room /= c->chunk;
	}
	for (int d = move->rank - 1; d >= 0; d--) {
		struct move_dim *dim = &move->dim[d];
		if (!dim->chunk) {
			dim->chunk = even_chunk(dim->n, room, 1);
			room /= dim->chunk;
		}
	}
}

/* Added to indices of a dimension. */
static int64_t lead_of(const struct move *move, int d)
{
	if (move->pass == AMAX_WHOLE)
		return move->dim[d].skew;
	return d == move->col_dim ? move->lead : 0;
}

/* By where the destination begins in a line. */
static void count_pieces(struct move *move)
{
	int col = move->col_dim;
	move->lead = 0;
	move->pieces = 1;
	if (col >= 0 && move->dim[col].chunk < move->dim[col].n && move->dim[col].dst == move->unit) {
		int64_t chunk = move->dim[col].chunk;
		move->lead = (chunk - microkernel_to_line(move->dst) / move->unit % chunk) % chunk;
	}
	for (int d = 0; d < move->rank; d++) {
		const struct move_dim *dim = &move->dim[d];
		move->pieces *= divide_up_i64(dim->n + lead_of(move, d), dim->chunk);
	}
}

/* ---- One piece -------------------------------------------------------------------------------------- */

/* The box of a piece: microkernel is at its first unit, n and strides of the dimensions outside the
 * microkernel. */
struct box {
	struct microkernel microkernel;
	int rank;
	struct move_dim dim[TENSOR_MAX_RANK];
};

/* Which indices of dimension d a piece has: from what is given back up to *ret_to. Dimensions have to be
 * asked for from the innermost out; *piece is what is left of its number. */
static int64_t next_range(const struct move *move, int d, int64_t *piece, int64_t *ret_to)
{
	const struct move_dim *dim = &move->dim[d];
	int64_t lead = lead_of(move, d);
	int64_t count = divide_up_i64(dim->n + lead, dim->chunk);
	int64_t digit = count > 1 ? *piece % count : 0;
	*piece /= count;
	*ret_to = min_i64(dim->n, (digit + 1) * dim->chunk - lead);
	return digit ? digit * dim->chunk - lead : 0;
}

static void box_init(struct box *box, const struct move *move, int64_t piece, struct cpu_scratch *scratch)
{
	struct microkernel *microkernel = &box->microkernel;
	*microkernel = (struct microkernel){ .isa = move->isa,
		                             .scratch = move->stream ? scratch->move : NULL,
		                             .unit = move->unit,
		                             .dst = move->dst,
		                             .src = move->src,
		                             .rows = 1,
		                             .cols = 1,
		                             .ahead = move->ahead };
	struct microkernel_dim more[TENSOR_MAX_RANK];
	uint32_t in_microkernel = 0;
	for (int i = 0; i < move->n_row; i++)
		in_microkernel |= UINT32_C(1) << move->row_chain[i];
	for (int i = 0; i < move->n_run; i++)
		in_microkernel |= UINT32_C(1) << move->run_chain[i];
	box->rank = 0;
	for (int d = move->rank - 1; d >= 0; d--) {
		const struct move_dim *dim = &move->dim[d];
		int64_t to, from = next_range(move, d, &piece, &to);
		microkernel->dst += from * dim->dst;
		microkernel->src += from * dim->src;
		if (d == move->col_dim) {
			microkernel->cols = to - from;
			microkernel->dst_col = dim->dst;
			microkernel->src_col = dim->src;
		} else if (d == move->row_dim) {
			microkernel->rows = to - from;
			microkernel->dst_row = dim->dst;
			microkernel->src_row = dim->src;
		} else if (in_microkernel & UINT32_C(1) << d) {
			more[d] = (struct microkernel_dim){ to - from, dim->dst, dim->src };
		} else if (to - from > 1) {
			box->dim[box->rank] = *dim;
			box->dim[box->rank++].n = to - from;
		}
	}
	microkernel->row_block = microkernel->rows;
	microkernel->n_row = move->n_row;
	microkernel->n_run = move->n_run;
	for (int i = 0; i < move->n_row; i++) {
		microkernel->row_dim[i] = more[move->row_chain[i]];
		microkernel->rows *= microkernel->row_dim[i].n;
	}
	for (int i = 0; i < move->n_run; i++)
		microkernel->run[i] = more[move->run_chain[i]];
}

static void run_tiles(const struct move *move, int64_t piece, struct cpu_scratch *scratch)
{
	struct tile_box box = { .dst = move->dst, .src = move->src };
	const char *scale = move->conversion.scale, *bias = move->conversion.bias;
	int64_t first[TENSOR_MAX_RANK];
	for (int d = move->rank - 1; d >= 0; d--) {
		const struct move_dim *dim = &move->dim[d];
		int64_t to, from = next_range(move, d, &piece, &to);
		box.dst += from * dim->dst;
		box.src += from * dim->src;
		box.n[d] = to - from;
		first[d] = from;
		if (move->converts) {
			scale += from * dim->scale;
			bias += from * dim->bias;
		}
	}
	if (move->pass)
		amax_run(move, &box, first, scratch);
	else if (move->converts)
		convert_run(move, &box, scale, bias, scratch);
	else
		tile_run(move, &box, scratch);
}

void move_run(const struct move *move, int64_t piece, struct cpu_scratch *scratch)
{
	assert(move->tiled || !move->bordered);
	if (move->tiled) {
		run_tiles(move, piece, scratch);
		return;
	}
	struct box box;
	int64_t at[TENSOR_MAX_RANK];
	box_init(&box, move, piece, scratch);
	for (int d = 0; d < box.rank; d++)
		at[d] = 0;
	for (;;) {
		move->microkernel(&box.microkernel);
		int d = 0;
		for (; d < box.rank; d++) {
			const struct move_dim *dim = &box.dim[d];
			box.microkernel.dst += dim->dst;
			box.microkernel.src += dim->src;
			if (++at[d] < dim->n)
				break;
			at[d] = 0;
			box.microkernel.dst -= dim->n * dim->dst;
			box.microkernel.src -= dim->n * dim->src;
		}
		if (d == box.rank)
			return;
	}
}

void move_piece_nest(const struct move *move, int64_t piece, struct loop_nest *ret, char **ret_dst,
                     const char **ret_src)
{
	*ret = (struct loop_nest){ .rank = move->rank, .element = move->unit };
	*ret_dst = move->dst;
	*ret_src = move->src;
	for (int d = move->rank - 1; d >= 0; d--) {
		const struct move_dim *dim = &move->dim[d];
		int64_t to, from = next_range(move, d, &piece, &to);
		ret->dim[d] = (struct loop_nest_dim){ .n = to - from, .dst = dim->dst, .src = dim->src };
		*ret_dst += from * dim->dst;
		*ret_src += from * dim->src;
	}
}
