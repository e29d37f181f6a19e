/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows, divides a converting move into pieces, and goes through the tiles of a box. */
#include "convert.h"

#include <math.h>
#include <string.h>

#include "kernels/cpu/tile/tile.h"
#include "proto/arithmetic.h"

/* ---- What is converted, and how --------------------------------------------------------------------- */

static enum cpu_lane lane_of(enum arithmetic arithmetic)
{
	return arithmetic == ARITHMETIC_NONE      ? CPU_LANE_INT64
	       : arithmetic == ARITHMETIC_FLOAT64 ? CPU_LANE_FLOAT64
	                                          : CPU_LANE_FLOAT32;
}

static cpu_load_fn *load_of(const struct cpu_converters *converters, const struct conversion *conversion)
{
	const enum dtype from = conversion->from;

	if (conversion->is_lossy)
		return converters->load_lossy[from];
	if (conversion_wraps(conversion) && from == DTYPE_UINT64)
		return converters->load[CPU_LANE_INT64][DTYPE_INT64];
	return converters->load[lane_of(conversion->arithmetic)][from];
}

static cpu_store_fn *store_of(const struct cpu_converters *converters, const struct conversion *conversion)
{
	const enum cpu_lane lane = lane_of(conversion->arithmetic);

	if (conversion_wraps(conversion))
		return converters->store_wrapped[conversion->to];
	if (conversion->cast == CAST_SATURATE)
		return converters->store_clamped[lane][conversion->to];
	return converters->store[lane][conversion->to];
}

void converting_init(struct converting *c, const struct move *move)
{
	const struct conversion *conversion = move->conversion.conversion;
	const struct cpu_converters *converters = move->isa->converters;
	enum cpu_lane lane = lane_of(conversion->arithmetic);
	bool is_exact = conversion->cast == CAST_EXACT;

	c->move = move;
	c->converters = converters;
	c->lane = lane;
	c->load = load_of(converters, conversion);
	c->load_back = converters->load[lane][conversion->to];
	c->store = store_of(converters, conversion);
	c->from = dtype_size(conversion->from);
	c->to = dtype_size(conversion->to);
	c->is_exact = is_exact;
	c->changed = 0;
	c->operand[SCALE] = &conversion->scale;
	c->operand[BIAS] = &conversion->bias;
	c->held[SCALE] = c->held[BIAS] = NULL;
	c->reduces = c->by_lanes = c->is_by = false;
	c->magnitude_of = converters->magnitude[conversion->from];
}

/* ---- Operands --------------------------------------------------------------------------------------- */

static double read_number(const char *at, enum dtype dtype)
{
	float narrow;
	double wide;
	if (dtype == DTYPE_FLOAT32) {
		memcpy(&narrow, at, sizeof(narrow));
		return (double)narrow;
	}
	memcpy(&wide, at, sizeof(wide));
	return wide;
}

static void set_lane(char *lanes, enum cpu_lane lane, int64_t i, double value)
{
	if (lane == CPU_LANE_FLOAT32)
		((float *)(void *)lanes)[i] = (float)value;
	else
		((double *)(void *)lanes)[i] = value;
}

static void repeat(char *lanes, enum cpu_lane lane, int64_t n, double value)
{
	for (int64_t i = 0; i < n; i++)
		set_lane(lanes, lane, i, value);
}

static bool is_constant(const struct row *row, int which)
{
	for (int d = 0; d < row->n_dims; d++)
		if (row->dim[d].stride[which])
			return false;
	return true;
}

/* Reads n elements of an operand into its lanes, from `base` on, along the row. */
static void gather_operand(struct converting *c, int which, const char *base, int64_t n)
{
	const struct row *row = &c->row;
	const enum dtype dtype = c->operand[which]->dtype;
	char *lanes = c->operand_lanes[which];
	int64_t at[TENSOR_MAX_RANK] = { 0 };
	for (int64_t i = 0; i < n; i++) {
		set_lane(lanes, c->lane, i, read_number(base, dtype));
		for (int d = 0; d < row->n_dims; d++) {
			base += row->dim[d].stride[which];
			if (++at[d] < row->dim[d].n || d + 1 == row->n_dims)
				break;
			base -= row->dim[d].n * row->dim[d].stride[which];
			at[d] = 0;
		}
	}
	/* Calculations use the last vector as a whole. */
	memset(lanes + n * (c->lane == CPU_LANE_FLOAT32 ? 4 : 8), 0, CPU_LINE);
}

static bool is_held(struct converting *c, int which, const char *base, int64_t from, int64_t n)
{
	bool is = c->held[which] == base && c->held_from[which] == from && c->held_n[which] >= n;
	c->held[which] = base;
	c->held_from[which] = from;
	if (!is)
		c->held_n[which] = n;
	return is;
}

/* Returns the lanes of an operand for n elements of a row, from element `from` on. base is the address of the
 * operand's element for the row's first element. */
static const char *operand_lanes(struct converting *c, int which, const char *base, int64_t from, int64_t n)
{
	const struct operand *operand = c->operand[which];
	char *lanes = c->operand_lanes[which];
	int64_t stride = c->row.dim[0].stride[which];
	bool repeats = is_constant(&c->row, which);
	if (is_held(c, which, base, repeats ? 0 : from, repeats ? CONVERT_BLOCK : n))
		return lanes;
	if (repeats)
		repeat(lanes, c->lane, CONVERT_BLOCK, read_number(base, operand->dtype));
	else if (c->row.n_dims == 1 && stride == dtype_size(operand->dtype) &&
	         c->converters->load[c->lane][operand->dtype])
		c->converters->load[c->lane][operand->dtype](lanes, base + from * stride, n);
	else
		gather_operand(c, which, base + from * stride, n);
	return lanes;
}

/* Multiplies or adds, as function[c->lane] does, n lanes at `from` and at `operand`. Writes the results to
 * `to` and returns `to`. NaNs are made the same on all machines. */
static char *calculate(const struct converting *c, cpu_arithmetic_fn *const *function, char *to,
                       const char *from, const char *operand, int64_t n)
{
	if (function[c->lane](to, from, operand, n))
		c->converters->mend[c->lane](to, from, operand, n);
	return to;
}

/* Does the same for a multiplication by c->by. The lanes of that number are made only if there is a NaN. */
static char *calculate_by(struct converting *c, char *to, const char *from, int64_t n)
{
	float *lanes = (float *)(void *)c->operand_lanes[SCALE];
	if (!c->converters->multiply_by(to, from, c->by, n))
		return to;
	for (int64_t i = 0; i < n; i++)
		lanes[i] = c->by;
	c->converters->mend[CPU_LANE_FLOAT32](to, from, lanes, n);
	return to;
}

/* ---- Exact casts ------------------------------------------------------------------------------------ */

/* Returns whether lanes can hold the exact value of the element at src, which may be an integer of 64
 * bits. */
static bool is_held_whole(const struct converting *c, const char *src)
{
	const struct conversion *conversion = c->move->conversion.conversion;
	uint64_t bits;
	if (conversion->from != DTYPE_INT64 && conversion->from != DTYPE_UINT64)
		return true;
	memcpy(&bits, src, sizeof(bits));
	if (conversion->arithmetic == ARITHMETIC_NONE)
		return conversion->from == DTYPE_INT64 || bits <= INT64_MAX;
	if (conversion->from == DTYPE_UINT64)
		return (double)bits < 0x1p64 && (uint64_t)(double)bits == bits;
	double value = (double)(int64_t)bits;
	return value < 0x1p63 && (int64_t)value == (int64_t)bits;
}

static bool is_same(enum cpu_lane lane, const char *a, const char *b, int64_t i)
{
	if (lane == CPU_LANE_INT64)
		return ((const int64_t *)(const void *)a)[i] == ((const int64_t *)(const void *)b)[i];
	if (lane == CPU_LANE_FLOAT32) {
		float x = ((const float *)(const void *)a)[i], y = ((const float *)(const void *)b)[i];
		return x == y || (isnan(x) && isnan(y));
	}
	double x = ((const double *)(const void *)a)[i], y = ((const double *)(const void *)b)[i];
	return x == y || (isnan(x) && isnan(y));
}

/* Counts the values that have changed among n elements at src, which were converted to `out` by way of
 * `lanes`. */
static void count_changed(struct converting *c, const char *src, const char *lanes, const char *out,
                          int64_t n)
{
	bool calculates = c->operand[SCALE]->kind || c->operand[BIAS]->kind;
	char *back = lanes == c->lanes ? c->result : c->lanes;
	c->load_back(back, out, n);
	for (int64_t i = 0; i < n; i++)
		c->changed += !is_same(c->lane, lanes, back, i) ||
		              (!calculates && !is_held_whole(c, src + i * c->from));
}

/* ---- Rows ------------------------------------------------------------------------------------------- */

/* Writes n converted elements from c->elements to dst, `stride` bytes apart. */
static void put(const struct converting *c, char *dst, int64_t stride, int64_t n)
{
	char room[CPU_LINE];
	const struct cpu_isa *isa = c->move->isa;
	if (stride == c->to) {
		isa->flush(dst, 0, c->elements, 0, 1, n * c->to, room, CPU_PART_FIRST | CPU_PART_LAST);
		return;
	}
	for (int64_t i = 0; i < n; i++)
		memcpy(dst + i * stride, c->elements + i * c->to, (size_t)c->to);
}

/* Returns the number of elements of the next block, such that the block after it begins on a cache line of
 * dst. */
static int64_t block_of(const struct converting *c, const char *dst, int64_t n)
{
	int64_t over = (int64_t)((uintptr_t)(dst + CONVERT_BLOCK * c->to) % CPU_LINE) / c->to;
	return n <= CONVERT_BLOCK ? n : CONVERT_BLOCK - over;
}

static void convert_row(struct converting *c, char *dst, int64_t stride, const char *src,
                        const char *const *operand)
{
	bool is_put = stride != c->to || (c->move->stream && c->row.n * c->to >= 2 * CPU_LINE);
	for (int64_t at = 0, n; at < c->row.n; at += n, dst += n * stride) {
		char *lanes = c->lanes;
		n = block_of(c, dst, c->row.n - at);
		c->load(lanes, src + at * c->from, n);
		if (c->is_by)
			lanes = calculate_by(c, c->result, lanes, n);
		else if (c->operand[SCALE]->kind)
			lanes = calculate(c, c->converters->multiply, c->result, lanes,
			                  operand_lanes(c, SCALE, operand[SCALE], at, n), n);
		if (c->operand[BIAS]->kind)
			lanes = calculate(c, c->converters->add, lanes == c->lanes ? c->result : c->lanes,
			                  lanes, operand_lanes(c, BIAS, operand[BIAS], at, n), n);
		char *out = is_put ? c->elements : dst;
		c->store(out, lanes, n);
		if (c->is_exact)
			count_changed(c, src + at * c->from, lanes, out, n);
		if (is_put)
			put(c, dst, stride, n);
	}
}

/* Makes a row of the innermost dimensions of a box: as many as have no gaps between their elements on either
 * side and fit a block. */
void converting_choose_row(struct converting *c, const int64_t *extent, const int64_t *src)
{
	const struct move *move = c->move;
	struct row *row = &c->row;
	int64_t dst_run = c->to, src_run = c->from;
	row->n = 1;
	row->n_dims = 0;
	for (int d = move->rank - 1; d >= 0; d--) {
		const struct move_dim *dim = &move->dim[d];
		bool is_first = row->n_dims == 0;
		if (extent[d] > 1 && (src[d] != src_run || (dim->dst != dst_run && !is_first)))
			break;
		if (!is_first && row->n * extent[d] > CONVERT_BLOCK)
			break;
		row->dim[row->n_dims++] = (struct row_dim){ extent[d], { dim->scale, dim->bias } };
		row->n *= extent[d];
		dst_run *= extent[d];
		src_run *= extent[d];
		if (is_first && dim->dst != c->to)
			break;
	}
}

static void add_lanes(struct converting *c, const char *src)
{
	c->load(c->lanes, src, c->row.n);
	c->converters->magnitudes(c->result, c->lanes, c->row.n);
}

/* src_stride[d] is the distance in bytes of elements of src along dimension d. */
void convert_rows(struct converting *c, char *dst, const char *src, const char *const *operand,
                  const int64_t *extent, const int64_t *src_stride)
{
	const struct move *move = c->move;
	int outer = move->rank - c->row.n_dims;
	int64_t stride = move->rank ? move->dim[move->rank - 1].dst : c->to, at[TENSOR_MAX_RANK];
	const char *of[OPERANDS] = { operand[SCALE], operand[BIAS] };
	for (int d = 0; d < outer; d++)
		at[d] = 0;
	for (;;) {
		if (c->reduces && c->by_lanes)
			add_lanes(c, src);
		else if (c->reduces)
			c->magnitude = max_u32(c->magnitude, c->magnitude_of(src, c->row.n));
		else
			convert_row(c, dst, stride, src, of);
		int d = outer - 1;
		for (; d >= 0; d--) {
			const struct move_dim *dim = &move->dim[d];
			bool more = ++at[d] < extent[d];
			int64_t steps = more ? 1 : 1 - extent[d];
			dst += steps * dim->dst;
			src += steps * src_stride[d];
			of[SCALE] += steps * dim->scale;
			of[BIAS] += steps * dim->bias;
			if (more)
				break;
			at[d] = 0;
		}
		if (d < 0)
			return;
	}
}

/* Rows of the source are read in place only if they have at least this many bytes, because each row costs a
 * call. Not measured. */
#define DIRECT_LEAST 256

/* ---- Tiles in scratch ------------------------------------------------------------------------------- */

/* Lays out a tile in scratch, in the order of the destination's dimensions, and sets ret_stride to the
 * strides in bytes. Rows of up to a block are contiguous. Longer distances are rounded up to whole lines plus
 * one line, so that the same position in each row falls into another set of the cache. from is the size of an
 * element in bytes. Returns the number of bytes of the tile. */
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

/* Makes the move that permutes a tile of the source's elements into scratch. */
static void permute_init(struct move *ret, const struct move *move, int64_t from, const int64_t *extent,
                         const int64_t *stride)
{
	ret->isa = move->isa;
	ret->kept = move->kept;
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

/* Destination strides are limited so that the product does not overflow. */
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

/* unit may be NULL, for single elements. */
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

/* Permutes a tile, in halves if it does not fit; a tile that is cut short at an edge may need more runs than
 * a whole one, and so may not fit. */
static void permute(const struct move *move, int64_t from, char *dst, const char *src, const int64_t *extent,
                    const int64_t *stride, struct cpu_scratch *scratch)
{
	struct move_box box = { .dst = dst, .src = src };
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

static void convert_tiles(struct converting *c, const struct move_box *box, const char *const *operand,
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

static bool converts(const struct loop_nest *nest)
{
	return nest->converted;
}

static bool plan(struct move *move, const struct loop_nest *nest, const struct move_place *place,
                 const struct cpu_tile *tile)
{
	(void)tile;
	convert_init(move, nest, place->piece_bytes);
	return true;
}

static void run(const struct move *move, const struct move_box *box, const int64_t *first,
                struct cpu_scratch *scratch)
{
	struct converting c;
	int64_t stride[TENSOR_MAX_RANK];
	const char *operand[OPERANDS] = { move->conversion.scale, move->conversion.bias };

	converting_init(&c, move);
	for (int d = 0; d < move->rank; d++) {
		stride[d] = move->dim[d].src;
		operand[SCALE] += first[d] * move->dim[d].scale;
		operand[BIAS] += first[d] * move->dim[d].bias;
	}
	converting_choose_row(&c, box->n, stride);
	if (move->is_direct)
		convert_rows(&c, box->dst, box->src, operand, box->n, stride);
	else
		convert_tiles(&c, box, operand, scratch);
	if (c.changed)
		__atomic_fetch_add(move->conversion.changed, c.changed, __ATOMIC_RELAXED);
}

const struct cpu_strategy cpu_strategy_convert = {
	.name = "convert", .probe = converts, .plan = plan, .run = run
};
