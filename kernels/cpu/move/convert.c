/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a converting move, and goes through the tiles of a box. */
#include "convert.h"

#include <string.h>

#include "convert_rows.h"
#include "kernels/cpu/tile/tile.h"
#include "proto/arithmetic.h"

/* Rows of the source of so many bytes are read where they lie; shorter ones take a call each. Not measured.
 */
#define DIRECT_LEAST 256

/* ---- Tiles in scratch ------------------------------------------------------------------------------- */

/* How a tile lies there: in the destination's order, rows of up to a block without gaps, others a line apart
 * from whole lines, so that the same place in each falls into another set of the cache. from: bytes of an
 * element. Gives its bytes. */
static int64_t lay_out(int rank, int64_t from, const int64_t *extent, int64_t *ret_stride)
{
	int64_t run = from;
	bool is_row = true;
	for (int d = rank - 1; d >= 0; d--) {
		if (is_row && d < rank - 1 && run * extent[d] > CONVERT_BLOCK * from) {
			run = divide_up_i64(run, CPU_LINE) * CPU_LINE + CPU_LINE;
			is_row = false;
		}
		ret_stride[d] = run;
		run *= extent[d];
	}
	return run;
}

/* The move of a tile, of the source's elements, to there. */
static void permute_init(struct move *ret, const struct move *move, int64_t from, const int64_t *extent,
                         const int64_t *stride)
{
	ret->isa = move->isa;
	ret->unit = (uint32_t)from;
	ret->rank = move->rank;
	ret->in_place = true;
	ret->is_exact = ret->stream = ret->bordered = false;
	for (int d = 0; d < move->rank; d++) {
		ret->tile[d] = extent[d];
		ret->dim[d] = (struct move_dim){
			.n = extent[d], .dst = stride[d], .src = move->dim[d].src, .chunk = extent[d]
		};
	}
}

bool convert_tile_fits(const struct move *move, int64_t from, const int64_t *extent)
{
	struct move permute;
	int64_t stride[TENSOR_MAX_RANK];
	if (lay_out(move->rank, from, extent, stride) > MADE_BYTES - CPU_LINE)
		return false;
	permute_init(&permute, move, from, extent, stride);
	return tile_fits(&permute);
}

/* ---- Dividing --------------------------------------------------------------------------------------- */

/* The same permutation with elements of the source's type on both sides. */
void convert_twin_of(const struct loop_nest *nest, struct loop_nest *ret)
{
	int64_t from = nest->converted, to = nest->element, most = INT64_MAX / TENSOR_MAX_ELEMENT;

	ret->rank = nest->rank;
	ret->element = nest->converted;
	ret->converted = 0;
	ret->fill = ret->in_blocks = false;
	for (int d = 0; d < nest->rank; d++) {
		ret->dim[d] = nest->dim[d];
		ret->dim[d].dst = min_i64(nest->dim[d].dst / to, most) * from;
	}
}

bool convert_is_direct(const struct loop_nest *nest)
{
	if (nest->rank == 0)
		return true;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	return (inner->src == nest->converted && inner->n * inner->src >= DIRECT_LEAST) ||
	       (nest->rank == 1 && inner->src == nest->converted);
}

/* unit: NULL: single elements. */
void convert_choose_direct(struct move *move, const struct loop_nest *nest, int64_t piece_bytes,
                           const int64_t *unit)
{
	int64_t room = max_i64(piece_bytes / max_i64(nest->element, nest->converted), 1);
	for (int d = 0; unit && d < move->rank; d++)
		room = max_i64(room / unit[d], 1);
	for (int d = move->rank - 1; d >= 0; d--) {
		struct move_dim *dim = &move->dim[d];
		int64_t step = unit ? unit[d] : 1,
			n = unit ? divide_up_i64(dim->n + dim->skew, step) : dim->n;
		int64_t steps = room >= n ? n : divide_up_i64(n, divide_up_i64(n, room));
		dim->chunk = steps * step;
		move->tile[d] = dim->chunk;
		room = max_i64(room / steps, 1);
	}
}

struct cpu_tile_want convert_want(const struct loop_nest *nest, int64_t piece_bytes)
{
	return (struct cpu_tile_want){ .tile = 32 << 10,
		                       .src_run = 1024,
		                       .dst_run =
		                           max_i64(256 * nest->converted / nest->element, nest->converted),
		                       .piece = piece_bytes };
}

void convert_init(struct move *move, const struct loop_nest *nest, int64_t piece_bytes)
{
	struct cpu_tile_want want = convert_want(nest, piece_bytes);
	struct loop_nest twin;
	struct cpu_tile tile;

	move->is_direct = convert_is_direct(nest);
	if (move->is_direct) {
		convert_choose_direct(move, nest, piece_bytes, NULL);
		return;
	}
	convert_twin_of(nest, &twin);
	do {
		cpu_tile_choose(&tile, &twin, &want);
		want.tile /= 2;
	} while (!convert_tile_fits(move, nest->converted, tile.n) && want.tile > 0);
	for (int d = 0; d < move->rank; d++) {
		move->tile[d] = tile.n[d];
		move->dim[d].chunk = tile.piece[d];
	}
}

/* ---- Tiles ------------------------------------------------------------------------------------------ */

/* In halves, where it does not fit: a tile that is cut short by an edge may have more runs than a whole one.
 */
static void permute(const struct move *move, int64_t from, char *dst, const char *src, const int64_t *extent,
                    const int64_t *stride, struct cpu_scratch *scratch)
{
	struct tile_box box = { .dst = dst, .src = src };
	struct move permute_move;
	bool is_whole = true;
	int longest = 0;
	permute_init(&permute_move, move, from, extent, stride);
	for (int d = 0; d < move->rank; d++) {
		is_whole &= extent[d] == move->tile[d];
		longest = extent[d] > extent[longest] ? d : longest;
	}
	memcpy(box.n, extent, (size_t)move->rank * sizeof(*extent));
	if (is_whole || tile_fits(&permute_move)) {
		tile_run(&permute_move, &box, scratch);
		return;
	}
	int64_t half = box.n[longest] / 2;
	box.n[longest] = half;
	permute(move, from, dst, src, box.n, stride, scratch);
	box.n[longest] = extent[longest] - half;
	permute(move, from, dst + half * stride[longest], src + half * move->dim[longest].src, box.n, stride,
	        scratch);
}

void convert_permute(const struct move *move, int64_t from, const char *src, const int64_t *extent,
                     struct cpu_scratch *scratch, int64_t *ret_stride)
{
	lay_out(move->rank, from, extent, ret_stride);
	permute(move, from, scratch->made, src, extent, ret_stride, scratch);
}

static void convert_tile(struct converting *c, char *dst, const char *src, const char *const *operand,
                         const int64_t *extent, struct cpu_scratch *scratch)
{
	int64_t stride[TENSOR_MAX_RANK];
	convert_permute(c->move, c->from, src, extent, scratch, stride);
	converting_choose_row(c, extent, stride);
	convert_rows(c, dst, scratch->made, operand, extent, stride);
}

int convert_order_loops(const struct move *move, const int64_t *extent, int *ret)
{
	int n = 0;
	for (int d = move->rank - 1; d >= 0; d--) {
		int at = n;
		if (move->tile[d] >= extent[d])
			continue;
		for (; at > 0 && magnitude_i64(move->dim[ret[at - 1]].src) > magnitude_i64(move->dim[d].src);
		     at--)
			ret[at] = ret[at - 1];
		ret[at] = d;
		n++;
	}
	return n;
}

static void convert_tiles(struct converting *c, const struct tile_box *box, const char *const *operand,
                          struct cpu_scratch *scratch)
{
	const struct move *move = c->move;
	int loop[TENSOR_MAX_RANK], n_loop = convert_order_loops(move, box->n, loop);
	int64_t from[TENSOR_MAX_RANK] = { 0 }, extent[TENSOR_MAX_RANK];
	char *dst = box->dst;
	const char *src = box->src, *of[OPERANDS] = { operand[SCALE], operand[BIAS] };
	for (int d = 0; d < move->rank; d++)
		extent[d] = min_i64(move->tile[d], box->n[d]);
	for (;;) {
		convert_tile(c, dst, src, of, extent, scratch);
		int l = 0;
		for (; l < n_loop; l++) {
			int d = loop[l];
			const struct move_dim *dim = &move->dim[d];
			bool more = from[d] + extent[d] < box->n[d];
			int64_t steps = more ? extent[d] : -from[d];
			dst += steps * dim->dst;
			src += steps * dim->src;
			of[SCALE] += steps * dim->scale;
			of[BIAS] += steps * dim->bias;
			from[d] += steps;
			extent[d] = min_i64(move->tile[d], box->n[d] - from[d]);
			if (more)
				break;
		}
		if (l == n_loop)
			return;
	}
}

/* ---- A piece ---------------------------------------------------------------------------------------- */

void convert_run(const struct move *move, const struct tile_box *box, const char *scale, const char *bias,
                 struct cpu_scratch *scratch)
{
	struct converting c;
	int64_t stride[TENSOR_MAX_RANK];
	const char *const operand[OPERANDS] = { scale, bias };

	converting_init(&c, move);
	for (int d = 0; d < move->rank; d++)
		stride[d] = move->dim[d].src;
	converting_choose_row(&c, box->n, stride);
	if (move->is_direct)
		convert_rows(&c, box->dst, box->src, operand, box->n, stride);
	else
		convert_tiles(&c, box, operand, scratch);
	if (c.changed)
		__atomic_fetch_add(move->conversion.changed, c.changed, __ATOMIC_RELAXED);
}
