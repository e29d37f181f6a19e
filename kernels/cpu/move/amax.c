/* SPDX-License-Identifier: Apache-2.0 */
/* Divides a transform with large blocks into groups of blocks, and makes the moves for the passes of each
 * group. Goes through the blocks of a box, finds their largest magnitudes, and converts by the scales. */
#include "amax.h"

#include <stdatomic.h>
#include <string.h>

#include "convert.h"
#include "kernels/cpu/tile/tile.h"
#include "proto/arithmetic.h"

/* Blocks whose source has at most this many bytes are processed in one pass, in which they stay in the
 * second-level cache. Not measured. */
#define WHOLE_MOST (256 << 10)

/* Blocks whose rows have fewer elements than this are processed side by side, in strips. Not measured. */
#define STRIP_BELOW 32

/* ---- Grids: a box in cells -------------------------------------------------------------------------- */

/* A box that is divided into cells of `step` elements in each dimension. The first cell lacks its first
 * `lead` elements. */
struct grid {
	int rank;
	int64_t n[TENSOR_MAX_RANK], lead[TENSOR_MAX_RANK], step[TENSOR_MAX_RANK];
	/* The current cell: its start in the box, its extent, and its number. */
	int64_t at[TENSOR_MAX_RANK], extent[TENSOR_MAX_RANK], index[TENSOR_MAX_RANK];
};

static void grid_rewind(struct grid *grid, int d)
{
	grid->at[d] = grid->index[d] = 0;
	grid->extent[d] = min_i64(grid->step[d] - grid->lead[d], grid->n[d]);
}

/* Goes to the next cell along a dimension. After the last cell it goes back to the first one and returns
 * false. */
static bool grid_next(struct grid *grid, int d)
{
	int64_t at = grid->at[d] + grid->extent[d];
	if (at >= grid->n[d]) {
		grid_rewind(grid, d);
		return false;
	}
	grid->at[d] = at;
	grid->extent[d] = min_i64(grid->step[d], grid->n[d] - at);
	grid->index[d]++;
	return true;
}

/* ---- Choosing --------------------------------------------------------------------------------------- */

static int64_t block_extent(const struct loop_nest_dim *dim)
{
	return min_i64(dim->block, dim->n);
}

/* Returns whether blocks are small enough to be processed in one pass. */
static bool is_whole(const struct move *move, const struct loop_nest *nest)
{
	int64_t extent[TENSOR_MAX_RANK], bytes = nest->converted;
	for (int d = 0; d < nest->rank; d++) {
		extent[d] = block_extent(&nest->dim[d]);
		if (__builtin_mul_overflow(bytes, extent[d], &bytes) || bytes > WHOLE_MOST)
			return false;
	}
	return convert_is_direct(nest) || convert_tile_fits(move, nest->converted, extent);
}

/* Returns a number of elements of a dimension that is about `wanted`, and either a multiple of the block or
 * the whole dimension. */
static int64_t whole_blocks(const struct loop_nest_dim *dim, int64_t wanted)
{
	int64_t all = dim->n + dim->skew;
	int64_t n = max_i64(wanted - wanted % dim->block, dim->block);
	return wanted >= dim->n || n >= all ? all : n;
}

static bool set_tiles(struct move *move, const struct loop_nest *nest, const struct cpu_tile *tile)
{
	int64_t extent[TENSOR_MAX_RANK];
	for (int d = 0; d < move->rank; d++) {
		const struct loop_nest_dim *dim = &nest->dim[d];
		int64_t piece = whole_blocks(dim, tile->piece[d]), n = whole_blocks(dim, tile->n[d]);
		move->tile[d] = n;
		move->dim[d].chunk =
		    piece >= dim->n + dim->skew ? dim->n + dim->skew : max_i64(piece - piece % n, n);
		extent[d] = min_i64(n, dim->n);
	}
	return convert_tile_fits(move, nest->converted, extent);
}

static void choose_whole_tiles(struct move *move, const struct loop_nest *nest, int64_t piece_bytes)
{
	struct cpu_tile_want want = convert_want(nest, piece_bytes);
	struct loop_nest twin;
	struct cpu_tile tile;
	convert_twin_of(nest, &twin);
	for (; want.tile > 0; want.tile /= 2) {
		cpu_tile_choose(&tile, &twin, &want);
		if (set_tiles(move, nest, &tile))
			return;
	}
	for (int d = 0; d < move->rank; d++)
		tile.n[d] = tile.piece[d] = 1;
	set_tiles(move, nest, &tile);
}

static bool is_in_blocks(const struct loop_nest *nest)
{
	return nest->converted && nest->in_blocks;
}

/* Plans the move. Chooses is_direct, tiles, pieces and the pass, which becomes AMAX_WHOLE or AMAX_REDUCE. */
static bool plan(struct move *move, const struct loop_nest *nest, const struct move_place *place,
                 const struct cpu_tile *tile)
{
	int64_t block[TENSOR_MAX_RANK], piece_bytes = place->piece_bytes;
	(void)tile;
	if (!is_whole(move, nest)) {
		convert_init(move, nest, piece_bytes);
		move->pass = AMAX_REDUCE;
		return true;
	}
	move->pass = AMAX_WHOLE;
	move->is_direct = convert_is_direct(nest);
	for (int d = 0; d < nest->rank; d++)
		block[d] = nest->dim[d].block;
	if (move->is_direct)
		convert_choose_direct(move, nest, piece_bytes, block);
	else
		choose_whole_tiles(move, nest, piece_bytes);
	return true;
}

/* ---- A part of a block ------------------------------------------------------------------------------ */

struct scaling {
	struct converting c;
	const struct amax *amax;
	/* Cells of a tile: blocks, or strips of several blocks along the last dimension. */
	struct grid blocks;
	int64_t strip;                   /* number of blocks of a strip; 1: there are no strips */
	int64_t row_of[TENSOR_MAX_RANK]; /* extents for which the row has been chosen; valid if has_row */
	bool has_row;
};

/* Returns the largest magnitude of a block as float32 bits. */
static uint32_t widen(const struct converting *c, uint32_t magnitude)
{
	const enum dtype from = c->move->conversion.conversion->from;
	_Alignas(CPU_LINE) char lanes[2 * CPU_LINE];
	uint16_t half = (uint16_t)magnitude;
	uint8_t byte = (uint8_t)magnitude;
	uint32_t bits;
	if (from == DTYPE_FLOAT32)
		return magnitude;
	if (from == DTYPE_BFLOAT16)
		return magnitude << 16;
	c->load(lanes, c->from == 1 ? (const char *)&byte : (const char *)&half, 1);
	memcpy(&bits, lanes, sizeof(bits));
	return bits;
}

static void put_result(char *at, const struct amax_result *result, float value)
{
	uint8_t bytes[4];
	uint32_t n;
	if (!result->is)
		return;
	n = amax_encode(result->dtype, value, bytes);
	memcpy(at, bytes, n);
}

/* The part of a block that lies in a tile, with its places. */
struct part {
	char *dst;
	const char *src;
	char *to_scale, *to_inverse;
	int64_t magnitude; /* index of the block in the group's magnitudes */
	bool is_first;     /* the part contains the block's first element */
};

static void reduce(struct scaling *s, const struct part *part, const char *const *operand,
                   const int64_t *stride)
{
	s->c.reduces = true;
	s->c.magnitude = 0;
	convert_rows(&s->c, part->dst, part->src, operand, s->blocks.extent, stride);
	s->c.reduces = false;
}

/* Raises the magnitude of a block that other threads may raise at the same time. */
static void add_magnitude(_Atomic uint32_t *most, uint32_t magnitude)
{
	uint32_t before = atomic_load_explicit(most, memory_order_relaxed);
	while (before < magnitude &&
	       !atomic_compare_exchange_weak_explicit(most, &before, magnitude, memory_order_relaxed,
	                                              memory_order_relaxed))
		continue;
}

static void run_part(struct scaling *s, const struct part *part, const int64_t *stride)
{
	const struct move *move = s->c.move;
	const char *const operand[OPERANDS] = { s->c.operand_lanes[SCALE], s->c.operand_lanes[BIAS] };
	size_t bytes = (size_t)move->rank * sizeof(*s->row_of);
	if (!s->has_row || memcmp(s->row_of, s->blocks.extent, bytes) != 0) {
		converting_choose_row(&s->c, s->blocks.extent, stride);
		memcpy(s->row_of, s->blocks.extent, bytes);
		s->has_row = true;
	}
	if (move->pass == AMAX_CONVERT)
		s->c.magnitude =
		    atomic_load_explicit(&move->magnitude[part->magnitude], memory_order_relaxed);
	else
		reduce(s, part, operand, stride);
	if (move->pass == AMAX_REDUCE) {
		add_magnitude(&move->magnitude[part->magnitude], s->c.magnitude);
		return;
	}
	struct amax_scale scale = amax_scale_of(&s->amax->rule, widen(&s->c, s->c.magnitude));
	if (part->is_first) {
		put_result(part->to_scale, &s->amax->scale, scale.scale);
		put_result(part->to_inverse, &s->amax->inverse, scale.inverse);
	}
	s->c.by = scale.inverse;
	convert_rows(&s->c, part->dst, part->src, operand, s->blocks.extent, stride);
}

/* ---- Strips of blocks ------------------------------------------------------------------------------- */

/* Computes and writes the scales of a strip's blocks, the first of which lacks its first `lead` elements.
 * Their inverses become the lanes by which the strip's rows are multiplied. */
static void scale_strip(struct scaling *s, const struct part *part, int64_t lead)
{
	const struct move_dim *dim = &s->c.move->dim[s->c.move->rank - 1];
	const uint32_t *most = (const uint32_t *)(const void *)s->c.result;
	float *lanes = (float *)(void *)s->c.operand_lanes[SCALE];
	int64_t n = s->c.row.n, end;
	struct part block = *part;
	for (int64_t at = 0; at < n; at = end, lead = 0) {
		uint32_t magnitude = 0;
		end = min_i64(at + dim->block - lead, n);
		for (int64_t i = at; i < end; i++)
			magnitude = max_u32(magnitude, most[i]);
		struct amax_scale scale = amax_scale_of(&s->amax->rule, magnitude);
		put_result(block.to_scale, &s->amax->scale, scale.scale);
		put_result(block.to_inverse, &s->amax->inverse, scale.inverse);
		for (int64_t i = at; i < end; i++)
			lanes[i] = scale.inverse;
		block.to_scale += dim->to_scale;
		block.to_inverse += dim->to_inverse;
	}
}

static void run_strip(struct scaling *s, const struct part *part, const int64_t *stride)
{
	struct converting *c = &s->c;
	const int inner = c->move->rank - 1;
	const char *const operand[OPERANDS] = { c->operand_lanes[SCALE], c->operand_lanes[BIAS] };
	c->row = (struct row){ .n_dims = 1, .n = s->blocks.extent[inner] };
	c->row.dim[0].n = c->row.n;
	c->by_lanes = true;
	memset(c->result, 0, CONVERT_LANES_BYTES);
	reduce(s, part, operand, stride);
	c->by_lanes = false;
	scale_strip(s, part, s->blocks.at[inner] ? 0 : s->blocks.lead[inner]);
	c->is_by = false;
	c->held[SCALE] = operand[SCALE];
	c->held_from[SCALE] = 0;
	c->held_n[SCALE] = CONVERT_BLOCK;
	convert_rows(c, part->dst, part->src, operand, s->blocks.extent, stride);
}

/* Returns the number of blocks of a strip of a tile, 1 if there are no strips. stride has the strides of the
 * elements that are read. */
static int64_t strip_of(const struct scaling *s, const int64_t *stride)
{
	const struct move *move = s->c.move;
	const int inner = move->rank - 1;
	if (move->pass != AMAX_WHOLE || inner < 0 || move->dim[inner].block >= STRIP_BELOW ||
	    move->dim[inner].n < 2 * move->dim[inner].block || stride[inner] != s->c.from)
		return 1;
	return CONVERT_BLOCK / move->dim[inner].block;
}

/* ---- A tile ----------------------------------------------------------------------------------------- */

/* Processes the blocks of a tile. first has the indices of the tile's first element in the move, and stride
 * has the strides of the elements that are read from src. */
static void run_tile(struct scaling *s, char *dst, const char *src, const int64_t *first,
                     const int64_t *extent, const int64_t *stride)
{
	const struct move *move = s->c.move;
	struct grid *blocks = &s->blocks;
	struct part base = { .to_scale = move->conversion.amax_scale,
		             .to_inverse = move->conversion.amax_inverse };
	int d;
	blocks->rank = move->rank;
	s->strip = strip_of(s, stride);
	for (d = 0; d < move->rank; d++) {
		const struct move_dim *dim = &move->dim[d];
		int64_t virtual = first[d] + dim->skew, block = virtual / dim->block;
		blocks->n[d] = extent[d];
		blocks->step[d] = dim->block * (d == move->rank - 1 ? s->strip : 1);
		blocks->lead[d] = virtual - block * dim->block;
		grid_rewind(blocks, d);
		base.to_scale += block * dim->to_scale;
		base.to_inverse += block * dim->to_inverse;
		base.magnitude += block * dim->to_magnitude;
	}
	do {
		struct part part = base;
		part.dst = dst;
		part.src = src;
		part.is_first = true;
		for (d = 0; d < move->rank; d++) {
			const struct move_dim *dim = &move->dim[d];
			part.dst += blocks->at[d] * dim->dst;
			part.src += blocks->at[d] * stride[d];
			int64_t block = blocks->index[d] * (d == move->rank - 1 ? s->strip : 1);
			part.to_scale += block * dim->to_scale;
			part.to_inverse += block * dim->to_inverse;
			part.magnitude += block * dim->to_magnitude;
			part.is_first &= blocks->at[d] > 0 || blocks->lead[d] == 0 || first[d] == 0;
		}
		if (s->strip > 1)
			run_strip(s, &part, stride);
		else
			run_part(s, &part, stride);
		for (d = move->rank - 1; d >= 0 && !grid_next(blocks, d);)
			d--;
	} while (d >= 0);
}

static void run_tiles(struct scaling *s, const struct move_box *box, const int64_t *from,
                      struct cpu_scratch *scratch)
{
	const struct move *move = s->c.move;
	struct grid tiles = { .rank = move->rank };
	int loop[TENSOR_MAX_RANK], n_loop, l;
	for (int d = 0; d < move->rank; d++) {
		bool is_aligned = move->pass == AMAX_WHOLE;
		tiles.n[d] = box->n[d];
		tiles.step[d] = move->tile[d];
		tiles.lead[d] = is_aligned ? (from[d] + move->dim[d].skew) % move->dim[d].block : 0;
		grid_rewind(&tiles, d);
	}
	n_loop = convert_order_loops(move, box->n, loop);
	do {
		int64_t stride[TENSOR_MAX_RANK], first[TENSOR_MAX_RANK];
		char *dst = box->dst;
		const char *src = box->src;
		for (int d = 0; d < move->rank; d++) {
			dst += tiles.at[d] * move->dim[d].dst;
			src += tiles.at[d] * move->dim[d].src;
			first[d] = from[d] + tiles.at[d];
		}
		convert_permute(move, s->c.from, src, tiles.extent, scratch, stride);
		s->has_row = false;
		run_tile(s, dst, scratch->made, first, tiles.extent, stride);
		for (l = 0; l < n_loop && !grid_next(&tiles, loop[l]);)
			l++;
	} while (l < n_loop);
}

static void run(const struct move *move, const struct move_box *box, const int64_t *from,
                struct cpu_scratch *scratch)
{
	struct scaling s;
	int64_t stride[TENSOR_MAX_RANK];

	converting_init(&s.c, move);
	s.amax = &move->conversion.conversion->amax;
	s.c.is_by = true;
	s.has_row = false;
	for (int d = 0; d < move->rank; d++)
		stride[d] = move->dim[d].src;
	if (move->is_direct)
		run_tile(&s, box->dst, box->src, from, box->n, stride);
	else
		run_tiles(&s, box, from, scratch);
	if (s.c.changed)
		__atomic_fetch_add(move->conversion.changed, s.c.changed, __ATOMIC_RELAXED);
}

const struct cpu_strategy cpu_strategy_amax = {
	.name = "amax", .probe = is_in_blocks, .plan = plan, .run = run
};

/* ---- Groups of large blocks ------------------------------------------------------------------------- */

/* Maximum number of bytes of a group's source. They fit into a last-level cache, so that the second pass may
 * find there what the first one has read. Not measured. */
#define GROUP_BYTES (16 << 20)

static int64_t blocks_of(const struct loop_nest_dim *dim)
{
	return divide_up_i64(dim->n + dim->skew, dim->block);
}

/* Sorts dimensions by their stride in the source, smallest first, so that a group has long runs of the
 * source. */
static void order_by_source(const struct loop_nest *nest, int *ret)
{
	for (int d = 0; d < nest->rank; d++) {
		int at = d;
		for (; at > 0 && magnitude_i64(nest->dim[ret[at - 1]].src) > magnitude_i64(nest->dim[d].src);
		     at--)
			ret[at] = ret[at - 1];
		ret[at] = d;
	}
}

void amax_groups_init(struct amax_groups *groups, const struct loop_nest *nest)
{
	int order[TENSOR_MAX_RANK];
	int64_t room = GROUP_BYTES / nest->converted, blocks = AMAX_GROUP_BLOCKS;
	groups->nest = *nest;
	groups->n = 1;
	for (int d = 0; d < nest->rank; d++)
		room = max_i64(room / min_i64(nest->dim[d].block, nest->dim[d].n), 1);
	order_by_source(nest, order);
	for (int i = 0; i < nest->rank; i++) {
		const struct loop_nest_dim *dim = &nest->dim[order[i]];
		int64_t n = blocks_of(dim), have = min_i64(n, min_i64(room, blocks));
		groups->step[order[i]] = have * dim->block;
		groups->n *= (uint64_t)divide_up_i64(n, have);
		room /= have;
		blocks /= have;
	}
}

/* Restricts dimension d of the nest to group `number` of those that have `step` indices each. */
static void take(struct loop_nest *nest, int d, int64_t step, int64_t number)
{
	struct loop_nest_dim *dim = &nest->dim[d];
	int64_t start = max_i64(number * step - dim->skew, 0);
	int64_t end = min_i64((number + 1) * step - dim->skew, dim->n);
	int64_t block = number * (step / dim->block);
	nest->dst_offset += start * dim->dst;
	nest->src_offset += start * dim->src;
	nest->to_scale_offset += block * dim->to_scale;
	nest->to_inverse_offset += block * dim->to_inverse;
	dim->n = dim->source = end - start;
	dim->skew = number ? 0 : dim->skew;
}

void amax_groups_move(struct amax_groups *groups, uint64_t i, enum amax_pass pass, const struct cpu_isa *isa,
                      const struct move_place *place, struct move *ret)
{
	struct loop_nest nest = groups->nest;
	int64_t blocks = 1;
	for (int d = nest.rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest.dim[d];
		uint64_t n = (uint64_t)divide_up_i64(blocks_of(dim) * dim->block, groups->step[d]);
		take(&nest, d, groups->step[d], (int64_t)(i % n));
		i /= n;
	}
	move_init(ret, isa, &nest, place);
	ret->pass = pass;
	/* Counts the pieces again, because in these passes pieces need not contain whole blocks. */
	move_shift(ret, 0, 0);
	ret->magnitude = groups->magnitude;
	for (int d = nest.rank - 1; d >= 0; d--) {
		ret->dim[d].to_magnitude = blocks;
		blocks *= blocks_of(&nest.dim[d]);
	}
	for (int64_t b = 0; b < blocks && pass == AMAX_REDUCE; b++)
		atomic_store_explicit(&groups->magnitude[b], 0, memory_order_relaxed);
}

bool amax_run_groups(const struct loop_nest *nest, const struct cpu_isa *isa, const struct move_place *place,
                     const atomic_bool *stopped, struct cpu_scratch *scratch)
{
	struct amax_groups groups;
	amax_groups_init(&groups, nest);
	for (uint64_t i = 0; i < groups.n; i++)
		for (enum amax_pass pass = AMAX_REDUCE; pass <= AMAX_CONVERT; pass++) {
			struct move move;
			amax_groups_move(&groups, i, pass, isa, place, &move);
			for (int64_t piece = 0; piece < move.pieces; piece++) {
				if (stopped && atomic_load_explicit(stopped, memory_order_relaxed))
					return false;
				move_run(&move, piece, scratch);
			}
		}
	return true;
}
