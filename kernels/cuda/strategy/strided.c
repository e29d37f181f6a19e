/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies whose threads move a window without a tensor map: `rows`, `short`, `channels`, `elements` and
 * `gather`. */
#include <inttypes.h>
#include <math.h>

#include "strategy_launch.h"

#ifdef HAVE_CUDA
/* Returns the slots of a thread block each of whose warps takes one slot. */
static uint32_t warp_slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	(void)args;
	return ROWS_THREADS / WARP_THREADS;
}
#endif

/* ---- Rows ---------------------------------------------------------------------------------------------- */

/* `rows` moves rows that are contiguous on both sides; each warp takes up to ROW_BYTES of one row at a time.
 * It also writes borders of any mode. */

static bool rows_probe(struct plan *plan, const struct strategy_case *c)
{
	struct tma_route_plan *tma = &plan->tma;

	if (tma_row_bytes(c) <= SHORT_ROW_BYTES)
		return false;
	tma_begin_strided(tma, c->nest);
	tma_set_dims(tma, c->nest, c->nest->rank - 1, -1);
	tma->slots = divide_up_u64(tma_row_bytes(c), ROW_BYTES);
	tma_count_tiles(tma, tma->slots, 1);
	return true;
}

static double rows_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element;

	(void)mode;
	/* A warp moves 32 chunks of one row at a time. */
	return 0.01 + (double)divide_up_u64((uint64_t)run, 512) * 512 / run + 150 / run +
	       (tma->element == 1 ? 0.06 : 0);
}

#ifdef HAVE_CUDA
static uint32_t rows_kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	return by_element(transform->mode == PAD_MODE_CONSTANT ? KERNEL_strided_rows_1
	                                                       : KERNEL_strided_modes_1,
	                  tma->element);
}

static uint32_t rows_kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	return by_element(transform->mode == PAD_MODE_CONSTANT ? KERNEL_many_rows_1 : KERNEL_many_modes_1,
	                  tma->element);
}
#endif

const struct strategy strategy_rows = {
	.name = "rows",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_EITHER,
	.has_border = true,
	.spreads = true,
	.probe = rows_probe,
	.cost = rows_cost,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(rows_kernel),
	.slots = WITH_CUDA(warp_slots),
	.many_kernel = WITH_CUDA(rows_kernel_of_many),
};

/* ---- Short --------------------------------------------------------------------------------------------- */

/* `short` moves short rows that are contiguous on both sides, several at a time, through shared memory. */

/* Bytes that a copy writes in 5 us. Rows with a constant border take that much longer than `elements`,
 * however few rows there are. */
#define BORDER_BYTES 10e6

static bool short_probe(struct plan *plan, const struct strategy_case *c)
{
	const uint64_t bytes = tma_row_bytes(c);
	struct tma_route_plan *tma = &plan->tma;

	if (bytes == 0 || bytes > SHORT_ROW_BYTES)
		return false;
	tma_begin_strided(tma, c->nest);
	tma->whole = tma_is_whole(c->nest);
	tma_set_dims(tma, c->nest, c->nest->rank - 1, -1);
	tma->slots = bytes / 16;
	tma_count_tiles(tma, 1, 1);
	return true;
}

static double short_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element, bytes = run * (double)tma->tiles;

	return (0.95 + 70 / run) * (tma->element <= 2 && tma_is_ragged(tma, 16) ? 1.5 : 1) *
	           (mode == PAD_MODE_CONSTANT ? 1 : 1.5) +
	       (mode == PAD_MODE_CONSTANT && !tma->whole ? BORDER_BYTES / bytes : 0);
}

#ifdef HAVE_CUDA
static uint32_t short_slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	return args->rows;
}

static uint32_t short_kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_many_short_1, tma->element);
}
#endif

const struct strategy strategy_short = {
	.name = "short",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_EITHER,
	.has_border = true,
	.spreads = true,
	.probe = short_probe,
	.cost = short_cost,
	.launch = WITH_CUDA(strategy_launch_one),
	.slots = WITH_CUDA(short_slots),
	.many_kernel = WITH_CUDA(short_kernel_of_many),
};

/* ---- Channels ------------------------------------------------------------------------------------------ */

/* `channels` moves pixels with a few channels, which lie together on one side and in separate planes on the
 * other. It needs 16-byte alignment throughout, and no tensor map. */

static bool is_channels(int64_t n)
{
	return (n >= 2 && n <= 4) || n == 6 || n == 8;
}

static bool channels_probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	const struct plan_facts *facts = c->facts;
	const int src_inner = c->src_inner;
	struct tma_route_plan *tma = &plan->tma;
	const int inner = nest->rank - 1;
	const int64_t element = nest->element;

	if (!nest_is_turned(c))
		return false;
	/* True: a pixel's channels lie together in the source. False: in the destination. */
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
	family_rules_add(&plan->rules, FAMILY_TILE_TRANSPOSE,
	                 "pixels are %" PRId64 " bytes, but a tile's rows are of %d", channel->n * element,
	                 TRANSPOSE_ROW_BYTES);
	tma_set_dims(tma, nest, pixels, channels);
	tma_begin_strided(tma, nest);
	tma->run = (uint32_t)channel->n;
	tma->slots = divide_up_u64((uint64_t)(pixel->n * element) / 16, 32);
	tma_count_tiles(tma, tma->slots, 2);
	plan->tile_rank = 2;
	plan->tile[0] = together ? channel->n : 512 / element;
	plan->tile[1] = together ? 512 / element : channel->n;
	return true;
}

static double channels_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const double run = (double)tma->dim[0].n * tma->element;

	(void)mode;
	return 1.02 + 0.27 * ((double)tma->slots * 32 * 16 / run - 1); /* warps move 32 chunks at a time */
}

/* Dimension 1 of the plan counts the channels. */
static void channels_describe(const struct plan *plan, struct plan_tile *ret)
{
	const bool is_first = plan->tile[0] == plan->tma.run;

	plan_tile_set_dim(ret, plan, 0, is_first ? 1 : 0);
	plan_tile_set_dim(ret, plan, 1, is_first ? 0 : 1);
}

#ifdef HAVE_CUDA
static uint32_t channels_kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(tma->run > CHANNELS_FEW ? KERNEL_strided_many_1 : KERNEL_strided_few_1,
	                  tma->element);
}
#endif

const struct strategy strategy_channels = {
	.name = "channels",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_FIRST,
	.has_border = true,
	.probe = channels_probe,
	.cost = channels_cost,
	.describe = channels_describe,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(channels_kernel),
	.slots = WITH_CUDA(warp_slots),
};

/* ---- Elements ------------------------------------------------------------------------------------------ */

/* `elements` moves elements of at least 4 bytes one by one, without shared memory. It also writes constant
 * borders. */

#define SECTOR    32
#define LINE      128
#define WARP_LINE 0.275 /* time of a line that a warp reads, relative to that of a byte of a copy */
/* Maximum ratio, without extra cost, of the sectors that a warp reads in part to those that its elements
 * fill. */
#define FEW_SPLIT 0.26
#define CACHED    32768.0 /* bytes that a thread block finds again in its multiprocessor's cache */
/* Time to test an element of 4 bytes against the border, for each dimension but one. */
#define BORDER 0.4

static bool elements_probe(struct plan *plan, const struct strategy_case *c)
{
	const struct loop_nest *nest = c->nest;
	struct tma_route_plan *tma = &plan->tma;
	const uint64_t block = ROWS_THREADS * ELEMENTS_BATCH(nest->element);
	uint64_t count = 1;
	int64_t row = nest->element;

	if (nest->element < 4 || nest->rank == 0 || (!tma_is_whole(nest) && c->mode != PAD_MODE_CONSTANT))
		return false;
	for (int d = 0; d < nest->rank; d++) {
		if (nest->dim[d].n > TMA_LONGEST)
			return false;
		count *= (uint64_t)nest->dim[d].n;
		if (count > INT32_MAX - block)
			return false;
	}
	tma_begin_strided(tma, nest);
	tma->whole = tma_is_whole(nest);
	tma_set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->slots = tma->tiles = count;
	return true;
}

/* Returns the bytes of a run on one side, within the given number of consecutive elements of the
 * destination. */
static double run_of_block(const struct tma_route_plan *tma, uint64_t elements, bool is_src)
{
	uint64_t run = tma->element;
	bool is_longer = true;

	while (is_longer) {
		uint64_t left = elements;

		is_longer = false;
		for (uint32_t d = 0; d < tma->rank && left > 1; d++) {
			const uint64_t n = (uint64_t)tma->dim[d].n, part = min_u64(n, left);
			const int64_t stride = is_src ? tma->dim[d].src : tma->dim[d].dst;

			left = divide_up_u64(left, n);
			if (part < 2 || (uint64_t)magnitude_i64(stride) != run)
				continue;
			run *= part;
			is_longer = part == n;
		}
	}
	return (double)run;
}

/* Returns the time of two activities that overlap: that of the longer one, or somewhat more if they take
 * about as long. */
static double together(double a, double b)
{
	const double longer = a > b ? a : b, shorter = a > b ? b : a, share = shorter / longer;

	return longer * (1 + 0.19 * share * share * share * share);
}

/* Returns whether every run of the source begins at a pair of sectors, provided that the base address is at
 * one. Returns false if runs are read repeatedly, because only the first read of each comes from memory. */
static bool has_whole_sectors(const struct tma_route_plan *tma, double load)
{
	for (uint32_t d = 0; d < tma->rank; d++) {
		const uint64_t stride = magnitude_i64(tma->dim[d].src);

		if (tma->dim[d].n == 1)
			continue;
		if (stride == 0 || ((double)stride >= load && stride % (2 * SECTOR) != 0))
			return false;
	}
	return tma->src_offset % (2 * SECTOR) == 0 && fmod(load, 2 * SECTOR) == 0;
}

/* Returns the predicted cost. If runs of either side have only a part of a sector, or of two sectors that are
 * fetched together, these are moved more than once. If the lines that a thread block reads exceed its
 * multiprocessor's cache, they are fetched again. The cache takes a cycle for each line that a warp reads. */
static double elements_cost(const struct plan *plan, enum pad_mode mode)
{
	const struct tma_route_plan *tma = &plan->tma;
	const uint64_t elements = ROWS_THREADS * ELEMENTS_BATCH(tma->element);
	const double bytes = (double)elements * tma->element, own = tma->element == 16 ? 1.025 : 1.005;
	const double load = run_of_block(tma, elements, true), row = run_of_block(tma, elements, false);
	const double lines = bytes / load * (load / LINE + 1) * LINE;
	const double warp = run_of_block(tma, WARP_THREADS, true);
	/* Number of the source's runs that a warp reads. */
	const double warps = WARP_THREADS * tma->element / warp;
	const double split = warps * SECTOR / (WARP_THREADS * tma->element);
	const double cache = warps * (double)divide_up_u64((uint64_t)warp, LINE) * WARP_LINE / tma->element;

	const double border = tma->whole ? 0 : 0.02 + BORDER * (tma->rank - 1) * 4 / tma->element;
	const double ends = has_whole_sectors(tma, load) ? 0 : 0.5 * (2 * SECTOR - tma->element) / load;

	(void)mode;
	return together(own, cache) + border + ends + (split > FEW_SPLIT ? 3 * (split - FEW_SPLIT) : 0) +
	       (row < bytes ? 30 / row : 0) + (lines > CACHED ? 0.5 * (lines / CACHED - 1) : 0);
}

#ifdef HAVE_CUDA
static uint32_t elements_kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_strided_elements_4, tma->element / 4);
}

static uint32_t elements_slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)args;
	return ROWS_THREADS * ELEMENTS_BATCH(tma->element);
}
#endif

const struct strategy strategy_elements = {
	.name = "elements",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_INSTEAD,
	.has_border = true,
	.probe = elements_probe,
	.cost = elements_cost,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(elements_kernel),
	.slots = WITH_CUDA(elements_slots),
};

/* ---- Gather -------------------------------------------------------------------------------------------- */

/* `gather` moves windows whose runs are short, element by element where it has to. It always applies. */

static void set_gather(struct tma_route_plan *tma, const struct loop_nest *nest)
{
	int64_t row = nest->element;

	tma_set_dims(tma, nest, nest->rank - 1, -1);
	for (tma->run = 0; tma->run < tma->rank && tma->run < 3 && tma->dim[tma->run].dst == row; tma->run++)
		row *= tma->dim[tma->run].n;
	tma->slots = row_chunks((uint64_t)row);
	tma_count_tiles(tma, tma->slots, tma->run);
}

static bool gather_probe(struct plan *plan, const struct strategy_case *c)
{
	tma_begin_strided(&plan->tma, c->nest);
	tma_set_whole(&plan->tma, c->nest);
	set_gather(&plan->tma, c->nest);
	return true;
}

static double gather_cost(const struct plan *plan, enum pad_mode mode)
{
	(void)mode;
	return 6 + 12.0 / plan->tma.element; /* at worst, each element takes a whole sector */
}

#ifdef HAVE_CUDA
static uint32_t gather_kernel(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_strided_gather_1, tma->element);
}

static uint32_t gather_slots(const struct tma_route_plan *tma, const struct strided_args *args)
{
	(void)tma;
	(void)args;
	return ROWS_THREADS * GATHER_BATCH;
}

static uint32_t gather_kernel_of_many(const struct transform *transform, const struct tma_route_plan *tma)
{
	(void)transform;
	return by_element(KERNEL_many_gather_1, tma->element);
}
#endif

const struct strategy strategy_gather = {
	.name = "gather",
	.family = FAMILY_STRIDED,
	.turn = STRATEGY_FIRST,
	.has_border = true,
	.spreads = true,
	.probe = gather_probe,
	.cost = gather_cost,
	.launch = WITH_CUDA(strategy_launch_strided),
	.kernel = WITH_CUDA(gather_kernel),
	.slots = WITH_CUDA(gather_slots),
	.many_kernel = WITH_CUDA(gather_kernel_of_many),
};
