/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a move: chooses its strategy and divides it into pieces. Also runs the loops from a piece down to the
 * microkernel. */
#include "move.h"

#include <assert.h>
#include <stddef.h>

#include "kernels/cpu/plan/cpu_choice.h"
#include "kernels/nest/loop_nest.h"
#include "proto/arithmetic.h"

/* A piece of a transpose reads runs of FIRST_UNITS units, but at most SRC_FIRST bytes, if the source has such
 * runs. It then writes to as many pages of the destination at once as a run has units. STAGED_UNITS is used
 * instead if rows do not begin whole lines apart and are therefore staged in scratch.
 *
 * Measured as ratio to memcpy with small pages (tests/bench/EXPERIMENTS.md, "What was tried"): 256 units
 * instead of runs of 1 KiB raise uint8 from 0.75 to 0.78 and float16 from 0.89 to 0.96. With huge pages, 128
 * or 512 units and runs of 1 KiB are as fast, within noise. Other values of STAGED_UNITS and SRC_FIRST were
 * not measured.
 */
#define FIRST_UNITS  256
#define STAGED_UNITS 512
#define SRC_FIRST    1024

/* If the source's dimensions are short, a piece reads runs of SRC_RUN bytes that pass through several of
 * them, and writes runs of DST_RUN bytes. If the piece may be larger still, it is extended along the
 * destination.
 *
 * Measured: going through several dimensions at all raises 6-D float32 from 0.36 to 0.71 of memcpy's speed,
 * and prefetching the next tile to 0.76. Other values of the two lengths were not measured.
 */
#define SRC_RUN 2048
#define DST_RUN 4096

/* Runs of at least this many bytes are not extended by a further dimension. Not measured. */
#define LONG_RUN 1024

static void choose(struct move *move, const struct loop_nest *nest, const struct move_place *place);
static void choose_chunks(struct move *move, int64_t piece_bytes);
static int64_t choose_crossed(struct move *move, int64_t room, int64_t cost);
static void count_pieces(struct move *move);

/* Key under which a move is kept: its loop nest without offsets, and how it is to be run. */
struct move_kind {
	enum kept_kind kept;
	int forced;
	const struct cpu_isa *isa;
	int64_t piece_bytes, tiled_bytes;
	uint32_t element, converted;
	enum pad_mode mode;
	bool stream, fill, in_blocks;
	int rank;
	char dim[TENSOR_MAX_RANK * sizeof(struct loop_nest_dim)];
};

/* A move without its place: dst and src are the bytes from the loop nest's first unit to that of the move. */
struct kept_move {
	int64_t dst, src;
	struct move move; /* only its first `rank` dimensions are stored */
};

/* Returns the number of bytes of the key. */
static size_t kind_init(struct move_kind *kind, const struct cpu_isa *isa, const struct loop_nest *nest,
                        const struct move_place *place)
{
	memset(kind, 0, offsetof(struct move_kind, dim));
	kind->kept = KEPT_MOVE;
	kind->forced = move_forced();
	kind->isa = isa;
	kind->piece_bytes = place->piece_bytes;
	kind->tiled_bytes = place->tiled_bytes;
	kind->element = nest->element;
	kind->converted = nest->converted;
	kind->mode = place->mode;
	kind->stream = place->stream;
	kind->fill = nest->fill;
	kind->in_blocks = nest->in_blocks;
	kind->rank = nest->rank;
	/* The fields after `source` matter only to conversions. */
	const size_t each =
	    nest->converted ? sizeof(struct loop_nest_dim) : offsetof(struct loop_nest_dim, scale);
	for (int d = 0; d < nest->rank; d++)
		memcpy(kind->dim + (size_t)d * each, &nest->dim[d], each);
	return offsetof(struct move_kind, dim) + (size_t)nest->rank * each;
}

static void put_at(struct move *move, const struct loop_nest *nest, const struct move_place *place)
{
	move->kept = place->kept;
	move->dst = place->dst + nest->dst_offset;
	move->src = nest->fill ? place->fill : place->src + nest->src_offset;
	move->fill = place->fill;
	move->fill_bytes = place->fill_bytes;
	if (!nest->converted)
		return;
	move->conversion = place->conversion;
	move->conversion.scale += nest->scale_offset;
	move->conversion.bias += nest->bias_offset;
	if (!nest->in_blocks)
		return;
	move->conversion.amax_scale += nest->to_scale_offset;
	move->conversion.amax_inverse += nest->to_inverse_offset;
}

static void plan_move(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
                      const struct move_place *place)
{
	kept_count(place->kept);
	move->isa = isa;
	move->stream = place->stream;
	move->ahead = 0;
	move->unit = nest->element;
	move->rank = nest->rank;
	move->row_dim = move->col_dim = -1;
	move->n_row = move->n_run = 0;
	move->bordered = false;
	move->pass = AMAX_NONE;
	move->mode = place->mode;
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
	choose(move, nest, place);
	if (move->strategy && move->strategy->microkernel)
		choose_chunks(move, place->piece_bytes);
}

static size_t move_bytes(const struct move *move)
{
	return offsetof(struct move, dim) + (size_t)move->rank * sizeof(move->dim[0]);
}

void move_init(struct move *move, const struct cpu_isa *isa, const struct loop_nest *nest,
               const struct move_place *place)
{
	struct move_kind kind;
	const size_t n = place->kept ? kind_init(&kind, isa, nest, place) : 0;
	const uint64_t hash = n ? kept_hash(&kind, n) : 0;
	const struct kept_move *kept = kept_find(place->kept, &kind, n, hash);

	if (kept) {
		memcpy(move, &kept->move, move_bytes(&kept->move));
		put_at(move, nest, place);
		move->dst += kept->dst;
		move->src += kept->src;
	} else {
		put_at(move, nest, place);
		const char *dst = move->dst, *src = move->src;
		plan_move(move, isa, nest, place);
		if (place->kept) {
			struct kept_move made;
			made.dst = move->dst - dst;
			made.src = move->src - src;
			memcpy(&made.move, move, move_bytes(move));
			kept_add(place->kept, &kind, n, hash, &made,
			         offsetof(struct kept_move, move) + move_bytes(move));
		}
	}
	if (move->strategy)
		count_pieces(move);
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

/* Sets the strategy and plans the move. If the chosen tiles do not fit, the usual ones are tried, and then
 * the first legal strategy without tiles, except for windows, which only tiles can move. */
static void choose(struct move *move, const struct loop_nest *nest, const struct move_place *place)
{
	struct cpu_choice choice;
	if (move->bordered)
		cpu_choose_candidate(&choice, nest, CPU_USUAL, place->piece_bytes);
	else if (forced >= 0 && cpu_strategy_tiles.probe(nest))
		cpu_choose_candidate(&choice, nest, forced, place->piece_bytes);
	else
		cpu_choose(&choice, nest,
		           &(struct cpu_case){ place->piece_bytes, place->tiled_bytes, place->stream });
	bool is_planned = choice.strategy->plan(move, nest, place, &choice.tile);
	if (!is_planned && choice.candidate != CPU_USUAL) {
		cpu_choose_candidate(&choice, nest, CPU_USUAL, place->piece_bytes);
		is_planned = choice.strategy->plan(move, nest, place, &choice.tile);
	}
	if (!is_planned && !move->bordered) {
		choice.strategy = cpu_first_strategy(nest);
		is_planned = choice.strategy->plan(move, nest, place, &choice.tile);
	}
	move->strategy = is_planned ? choice.strategy : NULL;
}

void move_convert_at(struct move *move, const struct convert_place *from, const struct convert_place *to)
{
	struct convert_place *at = &move->conversion;
	at->conversion = to->conversion;
	at->changed = to->changed;
	at->scale += to->scale - from->scale;
	at->bias += to->bias - from->bias;
	at->amax_scale += to->amax_scale - from->amax_scale;
	at->amax_inverse += to->amax_inverse - from->amax_inverse;
}

void move_shift(struct move *move, int64_t dst, int64_t src)
{
	move->dst += dst;
	move->src += src;
	count_pieces(move);
}

/* ---- Pieces ----------------------------------------------------------------------------------------- */

/* Divides n into equal chunks of at most `most`, and returns the size of one, rounded up to a multiple of
 * step if there is more than one. */
static int64_t even_chunk(int64_t n, int64_t most, int64_t step)
{
	if (most >= n)
		return n;
	if (most < 1)
		most = 1;
	int64_t chunk = divide_up_i64(n, divide_up_i64(n, most));
	return divide_up_i64(chunk, step) * step;
}

/* Returns the dimension whose stride on one side is `stride` and that has no chunk yet, or -1. */
static int find_next(const struct move *move, bool dst, int64_t stride)
{
	for (int d = 0; d < move->rank; d++)
		if (!move->dim[d].chunk && (dst ? move->dim[d].dst : move->dim[d].src) == stride)
			return d;
	return -1;
}

/* Returns how many bytes of cache lines are touched for each unit on one side: at least the unit's own size,
 * and a whole line if no dimension of the microkernel moves its neighbours in the line too. This keeps pieces
 * short even if each unit lies on a page of its own. */
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
	/* A transpose continues where its own two dimensions end. */
	while (move->strategy == &cpu_strategy_transpose && span == units * move->unit && span < CPU_LINE) {
		int next = find_next(move, dst, span);
		if (next < 0)
			break;
		units *= move->dim[next].n;
		span *= move->dim[next].n;
	}
	return max_i64(move->unit, divide_up_i64(max_i64(span, CPU_LINE), units));
}

/* Extends a piece by dimensions that continue dimension d, up to runs of `want` bytes, as long as the last
 * dimension is whole and the run is short. Returns the factor by which the piece's number of units has grown,
 * at most `most`. */
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

/* Chooses chunks for row_dim and col_dim if the source and the destination are contiguous along different
 * dimensions, so that a piece has runs on both sides. room is the number of units that a piece may have, and
 * cost that of unit_cost. Returns the factor by which other dimensions may still enlarge the piece. */
static int64_t choose_crossed(struct move *move, int64_t room, int64_t cost)
{
	struct move_dim *r = &move->dim[move->row_dim], *c = &move->dim[move->col_dim];
	int64_t line = move->unit < CPU_LINE ? CPU_LINE / move->unit : 1;
	int64_t units = r->dst % CPU_LINE ? STAGED_UNITS : FIRST_UNITS;
	int64_t run = max_i64(min_i64(units, SRC_FIRST / cost), line);
	int64_t rows, cols;
	rows = r->chunk = even_chunk(r->n, run, line);
	c->chunk = even_chunk(c->n, max_i64(room / run, line), line);
	if (move->strategy == &cpu_strategy_transpose)
		rows *= chain(move, false, move->row_dim, SRC_RUN, room / (rows * c->chunk));
	cols = c->chunk = even_chunk(c->n, max_i64(room / rows, line), line);
	if (move->strategy == &cpu_strategy_transpose)
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
	int64_t room = max_i64(piece_bytes / cost, 1); /* in units */
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

/* Returns the number that is added to indices of a dimension when it is divided into chunks. */
static int64_t lead_of(const struct move *move, int d)
{
	if (move->pass == AMAX_WHOLE)
		return move->dim[d].skew;
	return d == move->col_dim ? move->lead : 0;
}

/* Counts the pieces. Their number depends on where in a line the destination begins. */
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

/* The box of a piece. `microkernel` is set up for its first unit; `dim` has the dimensions outside the
 * microkernel. */
struct box {
	struct microkernel microkernel;
	int rank;
	struct move_dim dim[TENSOR_MAX_RANK];
};

/* Returns the first index of dimension d in a piece, and sets *ret_to to the end of its indices. Must be
 * called for the dimensions from the innermost to the outermost. At the first call, *piece is the piece's
 * number; each call divides it by the number of ranges of its dimension. */
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

static void run_box(const struct move *move, int64_t piece, struct cpu_scratch *scratch)
{
	struct move_box box = { .dst = move->dst, .src = move->src };
	int64_t first[TENSOR_MAX_RANK];
	for (int d = move->rank - 1; d >= 0; d--) {
		const struct move_dim *dim = &move->dim[d];
		int64_t to, from = next_range(move, d, &piece, &to);
		box.dst += from * dim->dst;
		box.src += from * dim->src;
		box.n[d] = to - from;
		first[d] = from;
	}
	move->strategy->run(move, &box, first, scratch);
}

void move_run(const struct move *move, int64_t piece, struct cpu_scratch *scratch)
{
	assert(move->strategy);
	if (move->strategy->run) {
		run_box(move, piece, scratch);
		return;
	}
	struct box box;
	int64_t at[TENSOR_MAX_RANK];
	box_init(&box, move, piece, scratch);
	for (int d = 0; d < box.rank; d++)
		at[d] = 0;
	for (;;) {
		move->strategy->microkernel(&box.microkernel);
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
