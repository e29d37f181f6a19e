/* SPDX-License-Identifier: Apache-2.0 */
/* Tries the routes without a tensor map: aligned runs by the unit's plain copies; else rows, tiles and
 * gathers without the unit, which accept every layout.
 */
#include "tma_route.h"

#include <inttypes.h>
#include <stdlib.h>

#define BULK_ALIGN 128  /* bytes: runs that cross lines are faster by map */
#define BULK_LEAST 2048 /* bytes of a run */
#define BULK_AGAIN                                                                                          \
	8192            /* bytes of a run that is read for each time that it is written: it stays in the L2 \
	                 */
#define ROWS_LEAST  64  /* bytes of a run, below which a row is not worth a slot */
#define PADS_LEAST  512 /* the same where other routes leave the border to another launch */
#define TILES_LEAST 32  /* bytes of a run, below which a tile is not worth it */
#define GATHER_MOST 16  /* elements of a run, up to which a warp that gathers reads whole sectors */

bool tma_try_bulk(struct plan *plan, const struct loop_nest *nest, const struct plan_facts *facts)
{
	struct tma_route_plan *tma = &plan->tma;
	uint64_t bits =
	    (facts->dst_phase + (uint64_t)nest->dst_offset) | (facts->src_phase + (uint64_t)nest->src_offset);
	uint64_t run = (uint64_t)nest->dim[nest->rank - 1].n * nest->element;

	if (!tma_is_whole(nest) || run < BULK_LEAST)
		return false;
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	tma->dim[0].n = (int64_t)run;
	tma->chunk = (uint32_t)divide_up_u64(part_of(run, COPY_TILE_BYTES), 16) * 16;
	tma->tiles = divide_up_u64(run, tma->chunk);
	tma->repeats = 1;
	bits |= run % 16 ? run : 0;
	for (uint32_t d = 1; d < tma->rank; d++) {
		bits |= (uint64_t)tma->dim[d].dst | (uint64_t)tma->dim[d].src;
		if ((tma->dim[d].src == 0 && run < BULK_AGAIN) || tma->dim[d].n > TMA_LONGEST)
			return false;
		tma->tiles *= (uint64_t)tma->dim[d].n;
	}
	if (bits % BULK_ALIGN || tma->tiles > UINT32_MAX)
		return false;
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->route = TMA_ROUTE_BULK;
	plan->tile_rank = 1;
	plan->tile[0] = tma->chunk / nest->element;
	return true;
}

/* ---- CHANNELS ---------------------------------------------------------------------------------------- */

static bool is_channels(int64_t n)
{
	return (n >= 2 && n <= 4) || n == 6 || n == 8;
}

bool tma_try_channels(struct plan *plan, const struct loop_nest *nest, int src_inner,
                      const struct plan_facts *facts)
{
	struct tma_route_plan *tma = &plan->tma;
	const int inner = nest->rank - 1;
	const int64_t element = nest->element;
	/* In the source, or in the destination. */
	const bool together =
	    !is_channels(nest->dim[inner].n) || nest->dim[src_inner].dst != element * nest->dim[inner].n;
	const int pixels = together ? inner : src_inner, channels = together ? src_inner : inner;
	const struct loop_nest_dim *pixel = &nest->dim[pixels], *channel = &nest->dim[channels];
	uint64_t bits = facts->dst_phase + (uint64_t)nest->dst_offset;

	bits |= facts->src_phase + (uint64_t)nest->src_offset;
	bits |= (uint64_t)(pixel->n * element);
	bits |= (uint64_t)(together ? channel->dst : channel->src);
	for (int d = 0; d < nest->rank; d++)
		if (d != pixels && d != channels)
			bits |= (uint64_t)nest->dim[d].dst | (uint64_t)nest->dim[d].src;
	if (!tma_is_whole(nest) || element > 8 || !is_channels(channel->n) || bits % 16 ||
	    (together ? pixel->src : pixel->dst) != channel->n * element ||
	    (together ? channel->src : channel->dst) != element)
		return false;
	plan_add_rule(plan, FAMILY_TILE_TRANSPOSE,
	              "pixels are %" PRId64 " bytes, but a tile's rows are of %d", channel->n * element,
	              TRANSPOSE_ROW_BYTES);
	tma_set_dims(tma, nest, pixels, channels);
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->repeats = 1;
	tma->run = (uint32_t)channel->n;
	tma->slots = divide_up_u64((uint64_t)(pixel->n * element) / 16, 32);
	tma->tiles = tma->slots;
	for (uint32_t d = 2; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	tma->route = TMA_ROUTE_CHANNELS;
	plan->tile_rank = 2;
	plan->tile[0] = together ? channel->n : 512 / element;
	plan->tile[1] = together ? 512 / element : channel->n;
	return true;
}

/* ---- ROWS, TILES, GATHER and ELEMENTS ---------------------------------------------------------------- */

static void begin_strided(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	tma->element = nest->element;
	tma->dst_offset = nest->dst_offset;
	tma->src_offset = nest->src_offset;
	tma->repeats = 1;
}

static void set_rows(struct plan *plan, const struct loop_nest *nest)
{
	struct tma_route_plan *tma = &plan->tma;

	const uint64_t bytes = (uint64_t)nest->dim[nest->rank - 1].n * nest->element;

	tma_set_dims(tma, nest, nest->rank - 1, -1);
	if (bytes <= SHORT_ROW_BYTES) {
		tma->route = TMA_ROUTE_SHORT;
		tma->slots = bytes / 16;
		tma->tiles = 1;
	} else {
		tma->route = TMA_ROUTE_ROWS;
		tma->slots = divide_up_u64(bytes, ROW_BYTES);
		tma->tiles = tma->slots;
	}
	for (uint32_t d = 1; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
}

static void set_gather(struct plan *plan, const struct loop_nest *nest)
{
	struct tma_route_plan *tma = &plan->tma;
	int64_t row = nest->element;

	tma_set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->run < 3 && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->slots = row_chunks((uint64_t)row);
	tma->tiles = tma->slots;
	for (uint32_t d = tma->run; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	tma->route = TMA_ROUTE_GATHER;
}

static void set_tiles(struct plan *plan, const struct loop_nest *nest, int src_inner)
{
	struct tma_route_plan *tma = &plan->tma;
	const uint32_t element = nest->element;
	uint64_t columns, rows;

	tma_set_dims(tma, nest, nest->rank - 1, src_inner);
	if (tma->rank == 1)
		tma->dim[tma->rank++] = tma_unit_dim(nest->element);
	/* A row's last chunk may begin a margin after where it would in an aligned row. */
	columns = divide_up_u64((uint64_t)tma->dim[0].n + TILES_MARGIN(element), TILES_X(element));
	rows = divide_up_u64((uint64_t)tma->dim[1].n, TILES_Y(element));
	tma->grid[0] = (uint32_t)columns;
	tma->grid[1] = (uint32_t)rows;
	tma->tiles = columns * rows;
	for (uint32_t d = 2; d < tma->rank; d++)
		tma->tiles *= (uint64_t)tma->dim[d].n;
	tma->route = TMA_ROUTE_TILES;
	plan->tile_rank = 2;
	plan->tile[0] = TILES_Y(element);
	plan->tile[1] = TILES_X(element);
}

bool tma_try_elements(struct plan *plan, const struct loop_nest *nest)
{
	struct tma_route_plan *tma = &plan->tma;
	const uint64_t block = ROWS_THREADS * ELEMENTS_BATCH(nest->element);
	uint64_t count = 1;
	int64_t row = nest->element;

	if (nest->element < 4 || nest->rank == 0)
		return false;
	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].n > TMA_LONGEST)
			return false;
		count *= (uint64_t)nest->dim[d].n;
		if (count > INT32_MAX - block)
			return false;
	}
	begin_strided(tma, nest);
	tma->whole = tma_is_whole(nest);
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->slots = tma->tiles = count;
	tma->route = TMA_ROUTE_ELEMENTS;
	return true;
}

/* The dimension other than the innermost along which the source steps least. */
static int source_inner(const struct loop_nest *nest)
{
	int best = -1;

	for (int d = nest->rank - 2; d >= 0; d--)
		if (nest->dim[d].src && nest->dim[d].n > 1 &&
		    (best < 0 || llabs(nest->dim[d].src) < llabs(nest->dim[best].src)))
			best = d;
	return best;
}

static bool try_rows(struct plan *plan, const struct loop_nest *nest, int64_t least)
{
	const struct loop_nest_dim *inner = nest->rank > 0 ? &nest->dim[nest->rank - 1] : NULL;
	const int64_t element = nest->element;

	if (!inner || inner->dst != element || llabs(inner->src) != element || inner->n * element < least)
		return false;
	begin_strided(&plan->tma, nest);
	set_rows(plan, nest);
	return true;
}

bool tma_try_padded_rows(struct plan *plan, const struct loop_nest *nest)
{
	return try_rows(plan, nest, PADS_LEAST);
}

/* Whether lanes that write neighbouring chunks read neighbouring elements of the source: the destination's
 * runs are whole chunks, but so few that a warp's are those of many indices of the dimension around them,
 * which is contiguous in the source. A tile would be nearly empty. */
static bool gathers_sectors(const struct loop_nest *nest, int other)
{
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1], *around = &nest->dim[other];

	return inner->n <= GATHER_MOST && inner->n * nest->element % 16 == 0 && inner->dst == nest->element &&
	       llabs(around->src) == nest->element && around->dst == inner->n * inner->dst;
}

/* Rows where both sides run along one dimension for a while; tiles where they run along two; else, and where
 * a run is short, element by element. */
void tma_set_strided(struct plan *plan, const struct loop_nest *nest)
{
	struct tma_route_plan *tma = &plan->tma;
	const struct loop_nest_dim *inner = &nest->dim[nest->rank - 1];
	int64_t element = nest->element;
	int other = source_inner(nest);
	bool run = inner->dst == element, pair = other >= 0;

	if (try_rows(plan, nest, ROWS_LEAST))
		return;
	begin_strided(tma, nest);
	tma->whole = tma_is_whole(nest);
	for (int d = 0; d < nest->rank; d++)
		tma->whole = tma->whole && nest->dim[d].n <= TMA_LONGEST;
	pair = pair && llabs(nest->dim[other].src) < llabs(inner->src) && inner->n * element >= TILES_LEAST &&
	       nest->dim[other].n * element >= TILES_LEAST && !gathers_sectors(nest, other);
	if (!run || pair)
		set_tiles(plan, nest, other);
	else
		set_gather(plan, nest);
}
