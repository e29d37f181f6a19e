/* SPDX-License-Identifier: Apache-2.0 */
/* `convert` moves elements and turns them into another type (kernels/cuda/launch/convert.c). It works by
 * chunks of the destination's rows, by tiles where the source is contiguous along another dimension, or
 * element by element, which always works.
 *
 * A constant border is a fill around the window, as for other moves. Elements that other borders repeat are
 * converted again at each place where they are written, element by element.
 */
#include <stdlib.h>

#include "kernels/transform/transform.h"
#include "proto/arithmetic.h"
#include "strategy_launch.h"

/* CHUNKS_LEAST and TILES_LEAST are the minimum bytes of the destination's rows for chunks and for tiles.
 * ROW_LEAST is the minimum bytes of a source row that is one row of a tile. PACKED_MOST is the maximum bytes
 * of a source row for a tile that is read as a single row. These were not measured. */
#define CHUNKS_LEAST 64
#define TILES_LEAST  32
#define ROW_LEAST    16
#define PACKED_MOST  64

/* Plans a conversion that computes the scales of blocks. `aligned` says whether the elements of both sides
 * lie at multiples of their size. */
static void set_amax(struct tma_route_plan *tma, const struct loop_nest *nest, bool aligned);

/* Returns the dimension of the nest that tma_set_dims stores in tma->dim[i] if it gets the innermost
 * dimension as `first`, and the same `second`. */
static int nest_dim(const struct loop_nest *nest, int second, int i)
{
	if (second < 0 || i == 0)
		return nest->rank - 1 - i;
	if (i == 1)
		return second;
	return nest->rank - i > second ? nest->rank - i : nest->rank - 1 - i;
}

/* Returns whether the kernels for float32 lanes can do the conversion. If so, its elements have at most 4
 * bytes. */
static bool is_narrow(const struct transform *t)
{
	return t->conversion.arithmetic == ARITHMETIC_FLOAT32;
}

/* Returns whether the elements of one side lie at multiples of their size. */
static bool is_aligned(const struct plan_facts *facts, uint8_t phase, int64_t offset, uint32_t element)
{
	return facts->align % element == 0 ||
	       (!facts->listed && !facts->spread && ((uint64_t)phase + (uint64_t)offset) % element == 0);
}

/* Sets the plan's dimensions, innermost first, with `second` as dimension 1 unless it is -1. */
static void set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int second)
{
	tma_set_dims(tma, nest, nest->rank - 1, second);
	for (uint32_t i = 0; i < tma->rank; i++) {
		const int own = nest_dim(nest, second, (int)i);

		tma->convert.scale[i] = nest->dim[own].scale;
		tma->convert.bias[i] = nest->dim[own].bias;
	}
}

/* Sets the border in units of the destination's elements, or in smaller units if these are not aligned. */
static void set_border(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts,
                       enum pad_mode mode)
{
	struct loop_nest border = *nest;

	border.converted = 0;
	if (facts->align < border.element)
		loop_nest_narrow(&border, facts->align, mode);
	tma_set_border(plan, &border, border.rank, mode);
}

/* Returns the dimension of a conversion's nest, other than the innermost, along which the source is
 * contiguous; -1 if there is none. */
static int source_row(const struct loop_nest *nest)
{
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == nest->converted && nest->dim[d].n > 1)
			return d;
	return -1;
}

/* Returns whether a tile that spans all of dimension x can be written as one row of the destination, with the
 * same operands for all of its elements. */
static bool is_woven(const struct transform *t, const struct loop_nest *nest, const struct loop_nest_dim *x,
                     const struct loop_nest_dim *y)
{
	const int64_t row = x->n * nest->element;

	return is_narrow(t) && row < TILES_LEAST && y->dst == row && !x->scale && !x->bias && !y->scale &&
	       !y->bias && y->n * nest->converted >= ROW_LEAST;
}

/* Returns whether x counts pixels, which all have the same operands, and y their three or four channels of
 * one byte, whose rows all have the same phase. */
static bool is_of_channels(const struct transform *t, const struct loop_nest *nest,
                           const struct loop_nest_dim *x, const struct loop_nest_dim *y)
{
	return is_narrow(t) && nest->converted == 1 && (y->n == 3 || y->n == 4) && x->src == y->n &&
	       !x->scale && !x->bias && y->dst % 16 == 0 && x->n * nest->element >= CHUNKS_LEAST;
}

/* Chooses tiles of whole lines of the destination; the rest of a tile's bytes determines its extent in the
 * source. */
static void choose_tile(struct tma_convert *convert, const struct loop_nest_dim *x,
                        const struct loop_nest_dim *y, int64_t from, int64_t to)
{
	const int64_t line = CONVERT_ROW_BYTES / to, row = y->n * from;

	if (convert->woven) {
		convert->tile_x = (uint32_t)x->n;
		convert->tile_y =
		    (uint32_t)min_i64(y->n, CONVERT_TILE_BYTES / (x->n * from) / WARP_THREADS * WARP_THREADS);
	} else if (convert->packed) {
		convert->tile_x = (uint32_t)min_i64(x->n, max_i64(CONVERT_TILE_BYTES / row / line, 1) * line);
		convert->tile_y = (uint32_t)y->n;
	} else {
		convert->tile_x = (uint32_t)min_i64(x->n, max_i64(line, WARP_THREADS));
		convert->tile_y = (uint32_t)min_i64(
		    y->n, max_i64(min_i64(CONVERT_TILE_BYTES / convert->tile_x, 2 * CONVERT_ROW_BYTES) / from,
		                  WARP_THREADS));
	}
}

/* Plans tiles along the innermost dimension and `second`, along which the source is contiguous. Returns false
 * if the rows of a side are too short. Short rows are fine if a tile can have all of them, without a gap. */
static bool try_tiles(struct tma_route_plan *tma, const struct transform *t, const struct loop_nest *nest,
                      int second)
{
	const struct loop_nest_dim *x = &nest->dim[nest->rank - 1], *y = &nest->dim[second];
	const int64_t row = y->n * (int64_t)nest->converted;
	struct tma_convert *convert = &tma->convert;

	convert->woven = is_woven(t, nest, x, y);
	convert->packed = !convert->woven && x->src == row && row <= PACKED_MOST;
	if (!convert->woven && (x->n * nest->element < TILES_LEAST || (!convert->packed && row < ROW_LEAST)))
		return false;
	choose_tile(convert, x, y, nest->converted, nest->element);
	convert->how = TMA_CONVERT_TILES;
	set_dims(tma, nest, second);
	tma->tiles =
	    divide_up_u64((uint64_t)x->n, convert->tile_x) * divide_up_u64((uint64_t)y->n, convert->tile_y);
	for (uint32_t d = 2; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	return true;
}

/* Sets the slots to the chunks of a row, and the tiles to those of all rows: one row for each index of the
 * dimensions from `outer` on. */
static void set_slots(struct tma_route_plan *tma, const struct loop_nest *nest, uint32_t outer)
{
	tma->slots = row_chunks((uint64_t)tma->dim[0].n * nest->element);
	tma->tiles = tma->slots;
	for (uint32_t d = outer; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
}

static void set_chunks(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->convert.how = TMA_CONVERT_CHUNKS;
	set_dims(tma, nest, -1);
	set_slots(tma, nest, 1);
}

static void set_channels(struct tma_route_plan *tma, const struct loop_nest *nest, int second)
{
	tma->convert.how = TMA_CONVERT_CHANNELS;
	set_dims(tma, nest, second);
	set_slots(tma, nest, 2);
}

static void set_elements(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->convert.how = TMA_CONVERT_ELEMENTS;
	set_dims(tma, nest, -1);
	tma->tiles = (uint64_t)loop_nest_count(nest);
}

void tma_set_convert(struct plan *plan, const struct transform *t, const struct plan_facts *facts,
                     const struct loop_nest *nest)
{
	struct tma_route_plan *tma = &plan->tma;
	struct loop_nest own = *nest;
	const struct loop_nest_dim *inner;
	bool aligned;
	int second;

	if (t->mode == PAD_MODE_CONSTANT && !tma_is_whole(&own)) {
		set_border(plan, &own, facts, t->mode);
		tma_shrink(&own, own.rank, facts->align, t->mode);
	}
	aligned = is_aligned(facts, facts->dst_phase, own.dst_offset, own.element) &&
	          is_aligned(facts, facts->src_phase, own.src_offset, own.converted);
	if (own.rank == 0 && !own.in_blocks) {
		own.rank = 1;
		own.dim[0] =
		    (struct loop_nest_dim){ .n = 1, .dst = own.element, .src = own.converted, .source = 1 };
	}
	tma->strategy = STRATEGY_convert;
	tma->element = own.element;
	tma->dst_offset = own.dst_offset;
	tma->src_offset = own.src_offset;
	tma->convert.scale_offset = own.scale_offset;
	tma->convert.bias_offset = own.bias_offset;
	tma->whole = tma_is_whole(&own);
	if (own.in_blocks) {
		set_amax(tma, &own, aligned);
		return;
	}
	inner = &own.dim[own.rank - 1];
	second = source_row(&own);
	if (!tma->whole || inner->dst != own.element ||
	    !is_aligned(facts, facts->dst_phase, own.dst_offset, own.element)) {
		set_elements(tma, &own);
		return;
	}
	if (second >= 0 && is_of_channels(t, &own, inner, &own.dim[second])) {
		set_channels(tma, &own, second);
		return;
	}
	if (second >= 0 && inner->src != own.converted && aligned && try_tiles(tma, t, &own, second))
		return;
	if (is_narrow(t) && inner->n * (int64_t)own.element >= CHUNKS_LEAST)
		set_chunks(tma, &own);
	else
		set_elements(tma, &own);
}

/* ---- The strategy ------------------------------------------------------------------------------------- */

#ifdef HAVE_CUDA
static int launch(const struct strategy_launch *launch, struct error *err)
{
	return launch_convert(launch->launcher, launch->stream, launch->transform, launch->plan, launch->dst,
	                      launch->src, launch->operands, NULL, NULL, err);
}
#endif

const struct strategy strategy_convert = {
	.name = "convert",
	.family = FAMILY_CONVERT,
	.turn = STRATEGY_NEVER,
	.has_border = true,
	.flat_cost = 1,
	.launch = WITH_CUDA(launch),
};

/* ---- Scales -------------------------------------------------------------------------------------------- */

/* A conversion that computes scales (amax) works in one of three ways. Tiles of whole scaling blocks are read
 * once. Tiles of parts of blocks, or of blocks that extend along more than two dimensions, take two passes:
 * the first finds the largest magnitudes and the second converts. If elements are laid out in another way,
 * they are moved one by one. */

/* Maximum bytes of shared memory for a tile's rows, so that a multiprocessor holds two tiles. This size was
 * not measured. */
#define SHARED_MOST (104 << 10)

/* Bytes of a tile's row of the source, if the scaling blocks allow it, where both sides are contiguous along
 * dimension 0. This size was not measured. */
#define ROW_BYTES_ALIKE 1024

static uint64_t blocks_along(const struct loop_nest_dim *dim)
{
	return amax_blocks(dim->n, dim->skew, dim->block);
}

static uint64_t blocks_of(const struct loop_nest *nest)
{
	uint64_t n = 1;

	for (int d = 0; d < nest->rank; d++)
		n *= blocks_along(&nest->dim[d]);
	return n;
}

static void set_amax_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int second)
{
	struct tma_amax_plan *amax = &tma->convert.amax;

	tma_set_dims(tma, nest, nest->rank - 1, second);
	for (uint32_t i = 0; i < tma->rank; i++) {
		const struct loop_nest_dim *dim = &nest->dim[nest_dim(nest, second, (int)i)];

		amax->block[i] = dim->block;
		amax->skew[i] = dim->skew;
		amax->to_scale[i] = dim->to_scale;
		amax->to_inverse[i] = dim->to_inverse;
	}
}

/* Returns the second dimension of tiles whose rows are contiguous on both sides: one along which scaling
 * blocks extend, if there is one. */
static int find_across(const struct loop_nest *nest)
{
	for (int d = nest->rank - 2; d >= 0; d--)
		if (nest->dim[d].block > 1)
			return d;
	return nest->rank - 2;
}

/* Returns whether scaling blocks have more than one element along a dimension other than the innermost and
 * `second`. */
static bool has_deep_blocks(const struct loop_nest *nest, int second)
{
	for (int d = 0; d < nest->rank - 1; d++)
		if (d != second && nest->dim[d].block > 1)
			return true;
	return false;
}

/* Returns an extent of about `wanted` elements: a number of whole scaling blocks or, unless `whole` is set, a
 * part of one. */
static int64_t extent_of(const struct loop_nest_dim *dim, int64_t wanted, bool whole)
{
	const int64_t all = dim->n + dim->skew;

	if (wanted < dim->block)
		return whole ? dim->block : max_i64(wanted, 1);
	wanted = min_i64(wanted, divide_up_i64(all, dim->block) * dim->block);
	return wanted - wanted % dim->block;
}

static int64_t blocks_within(const struct loop_nest_dim *dim, int64_t extent)
{
	return divide_up_i64(extent, dim->block);
}

/* Halves an extent that consists of whole scaling blocks or, unless `whole` is set, is a part of one. Returns
 * false if the extent cannot get shorter. */
static bool halve(int64_t *extent, const struct loop_nest_dim *dim, bool whole)
{
	const int64_t half = *extent / 2;

	if (*extent > dim->block)
		*extent = max_i64(half - half % dim->block, dim->block);
	else if (!whole && half > 0)
		*extent = half;
	else
		return false;
	return true;
}

/* Chooses a tile, of whole scaling blocks if `whole` is set. Returns false if no such tile fits. */
static bool choose_amax_tile(struct tma_convert *convert, const struct loop_nest *nest,
                             const struct loop_nest_dim *x, const struct loop_nest_dim *y, bool whole)
{
	const bool alike = convert->amax.alike;
	const int64_t from = nest->converted, all = alike ? AMAX_UNITS_TILE : CONVERT_TILE_BYTES / from;
	const int64_t row =
	    alike ? ROW_BYTES_ALIKE / from : max_i64(CONVERT_ROW_BYTES / nest->element, WARP_THREADS);
	int64_t tile_x = extent_of(x, min_i64(row, max_i64(all / (whole ? y->block : 1), 1)), whole),
		tile_y = extent_of(y, max_i64(all / tile_x, 1), whole);

	if (alike) /* few rows allow longer ones */
		tile_x = extent_of(x, max_i64(all / tile_y, tile_x), whole);
	while (blocks_within(x, tile_x) * blocks_within(y, tile_y) > AMAX_TILE_BLOCKS)
		if (blocks_within(y, tile_y) == 1 || !halve(&tile_y, y, whole))
			halve(&tile_x, x, whole);
	while ((alike ? tile_y : tile_x) *
	           amax_pitch((uint64_t)(alike ? tile_x : tile_y) * (uint64_t)from, alike) >
	       SHARED_MOST)
		if (alike ? !halve(&tile_y, y, whole) : !halve(&tile_x, x, whole))
			return false;
	convert->tile_x = (uint32_t)tile_x;
	convert->tile_y = (uint32_t)tile_y;
	return true;
}

static uint64_t tiles_along(const struct loop_nest_dim *dim, uint32_t tile)
{
	return amax_tiles(dim->n, dim->skew, dim->block, tile);
}

/* Plans tiles for a conversion that computes scales. `second` is the dimension along which the source is
 * contiguous or, if `alike` is set, the one across the rows. Returns false if no tile fits. */
static bool try_amax_tiles(struct tma_route_plan *tma, const struct loop_nest *nest, int second, bool alike)
{
	const struct loop_nest_dim *x = &nest->dim[nest->rank - 1], *y = &nest->dim[second];
	struct tma_convert *convert = &tma->convert;
	bool whole = x->block <= SHARED_MOST && y->block <= SHARED_MOST && !has_deep_blocks(nest, second);

	if (nest->converted == 1 || nest->element == 4)
		return false;
	convert->amax.alike = alike;
	whole = whole && choose_amax_tile(convert, nest, x, y, true);
	if (!whole &&
	    (convert->amax.blocks > AMAX_MAGNITUDES || !choose_amax_tile(convert, nest, x, y, false)))
		return false;
	convert->how = TMA_CONVERT_AMAX_TILES;
	convert->amax.two_passes = !whole;
	set_amax_dims(tma, nest, second);
	tma->tiles = tiles_along(x, convert->tile_x) * tiles_along(y, convert->tile_y);
	for (uint32_t d = 2; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	return true;
}

/* ---- Blocks, element by element ----------------------------------------------------------------------- */

static uint64_t elements_of(const struct loop_nest *nest)
{
	uint64_t n = 1;

	for (int d = 0; d < nest->rank; d++)
		n *= (uint64_t)nest->dim[d].block;
	return n;
}

static void set_amax_boxes(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	struct tma_amax_plan *amax = &tma->convert.amax;
	const uint64_t elements = elements_of(nest);

	tma->convert.how = TMA_CONVERT_AMAX_BOXES;
	amax->two_passes = elements > AMAX_PART && amax->blocks <= AMAX_MAGNITUDES;
	amax->elements = elements;
	amax->parts = amax->two_passes ? divide_up_u64(elements, AMAX_PART) : 1;
	set_amax_dims(tma, nest, -1);
	tma->tiles = amax->blocks * amax->parts;
}

/* ---- The choice --------------------------------------------------------------------------------------- */

/* Adds dimensions of one index until the nest has two dimensions. */
static void add_units(struct loop_nest *nest)
{
	for (; nest->rank < 2; nest->rank++) {
		nest->dim[1] = nest->dim[0];
		nest->dim[0] = (struct loop_nest_dim){ .n = 1, .source = 1, .block = 1 };
	}
	if (nest->dim[1].n == 1) {
		nest->dim[1].dst = nest->element;
		nest->dim[1].src = nest->converted;
	}
}

static void set_amax(struct tma_route_plan *tma, const struct loop_nest *nest, bool aligned)
{
	struct loop_nest own = *nest;
	const struct loop_nest_dim *inner;
	bool alike;
	int second;

	if (own.rank == 0)
		own.dim[0] = (struct loop_nest_dim){ .n = 1, .source = 1, .block = 1 };
	add_units(&own);
	inner = &own.dim[own.rank - 1];
	alike = inner->src == own.converted;
	second = alike ? find_across(&own) : source_row(&own);
	tma->convert.amax.blocks = blocks_of(&own);
	tma->convert.amax.scale_offset = own.to_scale_offset;
	tma->convert.amax.inverse_offset = own.to_inverse_offset;
	if (!aligned || inner->dst != own.element || second < 0 || !try_amax_tiles(tma, &own, second, alike))
		set_amax_boxes(tma, &own);
}
