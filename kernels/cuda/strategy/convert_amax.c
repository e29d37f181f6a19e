/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a conversion that computes scales: by tiles of whole blocks, each of which is read once; by tiles of
 * parts of blocks, or of blocks that extend over more than two dimensions, in two passes, one that looks for
 * the largest magnitudes and one that converts; or, where elements lie in another way, one by one.
 */
#include "planner.h"

#include "kernels/transform/transform.h"
#include "proto/arithmetic.h"

/* Bytes of shared memory that a tile's rows take at most: two of them fit a multiprocessor. Not measured. */
#define SHARED_MOST (104 << 10)

/* Bytes of a tile's rows, if blocks allow: of the source where they lie alike on both sides. Not measured. */
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

static void set_dims(struct tma_route_plan *tma, const struct loop_nest *nest, int second)
{
	struct tma_amax_plan *amax = &tma->convert.amax;

	tma_set_dims(tma, nest, nest->rank - 1, second);
	for (uint32_t i = 0; i < tma->rank; i++) {
		const struct loop_nest_dim *dim = &nest->dim[tma_nest_dim(nest, second, (int)i)];

		amax->block[i] = dim->block;
		amax->skew[i] = dim->skew;
		amax->to_scale[i] = dim->to_scale;
		amax->to_inverse[i] = dim->to_inverse;
	}
}

/* ---- Tiles -------------------------------------------------------------------------------------------- */

/* The dimension across rows that are contiguous on both sides: one that blocks extend over, if there is one.
 */
static int find_across(const struct loop_nest *nest)
{
	for (int d = nest->rank - 2; d >= 0; d--)
		if (nest->dim[d].block > 1)
			return d;
	return nest->rank - 2;
}

/* Whether blocks have more than one element along a dimension other than the innermost and the second. */
static bool has_deep_blocks(const struct loop_nest *nest, int second)
{
	for (int d = 0; d < nest->rank - 1; d++)
		if (d != second && nest->dim[d].block > 1)
			return true;
	return false;
}

/* About `wanted` elements of a dimension: whole blocks, or a part of one. */
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

/* Halves an extent, if it may become shorter: whole blocks, or a part of one. */
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

/* whole: tiles have whole blocks. false: such a tile does not fit. */
static bool choose_tile(struct tma_convert *convert, const struct loop_nest *nest,
                        const struct loop_nest_dim *x, const struct loop_nest_dim *y, bool whole)
{
	const bool alike = convert->amax.alike;
	const int64_t from = nest->converted, all = alike ? AMAX_UNITS_TILE : CONVERT_TILE_BYTES / from;
	const int64_t row =
	    alike ? ROW_BYTES_ALIKE / from : max_i64(CONVERT_ROW_BYTES / nest->element, WARP_THREADS);
	int64_t tile_x = extent_of(x, min_i64(row, max_i64(all / (whole ? y->block : 1), 1)), whole),
		tile_y = extent_of(y, max_i64(all / tile_x, 1), whole);

	if (alike) /* few rows: longer ones */
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

/* second: where the source is contiguous, or across rows that are alike; -1: there is none. */
static bool try_tiles(struct tma_route_plan *tma, const struct loop_nest *nest, int second, bool alike)
{
	const struct loop_nest_dim *x = &nest->dim[nest->rank - 1], *y = &nest->dim[second];
	struct tma_convert *convert = &tma->convert;
	bool whole = x->block <= SHARED_MOST && y->block <= SHARED_MOST && !has_deep_blocks(nest, second);

	if (nest->converted == 1 || nest->element == 4)
		return false;
	convert->amax.alike = alike;
	whole = whole && choose_tile(convert, nest, x, y, true);
	if (!whole && (convert->amax.blocks > AMAX_MAGNITUDES || !choose_tile(convert, nest, x, y, false)))
		return false;
	convert->how = TMA_CONVERT_AMAX_TILES;
	convert->amax.two_passes = !whole;
	set_dims(tma, nest, second);
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

static void set_boxes(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	struct tma_amax_plan *amax = &tma->convert.amax;
	const uint64_t elements = elements_of(nest);

	tma->convert.how = TMA_CONVERT_AMAX_BOXES;
	amax->two_passes = elements > AMAX_PART && amax->blocks <= AMAX_MAGNITUDES;
	amax->elements = elements;
	amax->parts = amax->two_passes ? divide_up_u64(elements, AMAX_PART) : 1;
	set_dims(tma, nest, -1);
	tma->tiles = amax->blocks * amax->parts;
}

/* ---- The choice --------------------------------------------------------------------------------------- */

/* A nest of at least two dimensions. */
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

void tma_set_amax(struct tma_route_plan *tma, const struct loop_nest *nest, bool aligned)
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
	second = alike ? find_across(&own) : tma_source_row(&own);
	tma->convert.amax.blocks = blocks_of(&own);
	tma->convert.amax.scale_offset = own.to_scale_offset;
	tma->convert.amax.inverse_offset = own.to_inverse_offset;
	if (!aligned || inner->dst != own.element || second < 0 || !try_tiles(tma, &own, second, alike))
		set_boxes(tma, &own);
}
