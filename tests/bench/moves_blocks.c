/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of 4 and 32 KiB, picked at random and none twice from twice as many: moved by one request compared
 * with memcpy of as many bytes, and compared with a request, or an item, for each block. */
#include <stdlib.h>
#include <string.h>

#include "baseline.h"
#include "moves.h"

#define BLOCKS       8192
#define QUICK_BLOCKS 64
#define LARGEST      ((size_t)32 << 10) /* bytes of a block */
#define POOL         2                  /* blocks in the pool for each block that is picked */
#define LEAST_CALLS  2                  /* least calls in a run */

/* A permuted block is [TOKENS, HEADS, DIM] of two bytes and becomes [HEADS, TOKENS, DIM]. */
#define TOKENS    16
#define HEADS     8
#define DIM       128
#define ROW_BYTES (2 * (size_t)DIM)

struct work {
	const struct moves *moves;
	struct baseline *memcpy_threads;
	tma_region *dst, *src; /* `sets` sets of blocks each; calls use them in turn */
	int32_t *index;
	tma_ticket *tickets;
	struct tma_item *items;
	size_t blocks;

	/* Bytes of the row's block, and number of sets. */
	size_t block, sets;
	bool scatter, permuted;
	struct tma_tensor dst_tensor, src_tensor; /* the tensor of one block */
	struct tma_transform transform;
	tma_plan *plan;
};

/* The function that is timed: it moves all blocks of a set. */
typedef void block_way(struct work *work, size_t set);

static void pick(int32_t *index, size_t limit)
{
	uint64_t state = 3;

	for (size_t i = 0; i < limit; i++) {
		state = state * 6364136223846793005 + 1442695040888963407;
		size_t other = (size_t)(state >> 33) % (i + 1);

		index[i] = index[other];
		index[other] = (int32_t)i;
	}
}

static void work_init(struct work *work, const struct moves *moves)
{
	size_t blocks = moves->quick ? QUICK_BLOCKS : BLOCKS;
	struct error err;

	*work = (struct work){ .moves = moves, .blocks = blocks };
	if (baseline_new(&work->memcpy_threads, moves->threads, &err) < 0)
		moves_fatal(err.message);
	work->index = calloc(POOL * blocks, sizeof(*work->index));
	work->tickets = calloc(blocks, sizeof(*work->tickets));
	work->items = calloc(blocks, sizeof(*work->items));
	if (!work->index || !work->tickets || !work->items)
		moves_fatal("no memory");
	pick(work->index, POOL * blocks);
	work->dst = moves_region(moves, POOL * blocks * LARGEST, false);
	work->src = moves_region(moves, POOL * blocks * LARGEST, true);
}

static void work_deinit(struct work *work)
{
	moves_must(work->moves->client, tma_region_release(work->dst));
	moves_must(work->moves->client, tma_region_release(work->src));
	baseline_free(work->memcpy_threads);
	free(work->index);
	free(work->tickets);
	free(work->items);
}

/* ---- Ways ------------------------------------------------------------------------------------------- */

static size_t set_offset(const struct work *work, size_t set)
{
	return set * POOL * work->blocks * work->block;
}

static uint64_t dst_offset(const struct work *work, size_t set, size_t i)
{
	return set_offset(work, set) + (work->scatter ? (size_t)work->index[i] : i) * work->block;
}

static uint64_t src_offset(const struct work *work, size_t set, size_t i)
{
	return set_offset(work, set) + (work->scatter ? i : (size_t)work->index[i]) * work->block;
}

static void by_memcpy(struct work *work, size_t set)
{
	size_t at = set_offset(work, set);

	baseline_copy(work->memcpy_threads, (char *)tma_region_data(work->dst) + at,
	              (const char *)tma_region_data(work->src) + at, work->blocks * work->block);
}

static void by_list(struct work *work, size_t set)
{
	tma_client *client = work->moves->client;
	const struct tma_blocks blocks = { .transform = &work->transform,
		                           .count = work->blocks,
		                           .index_dtype = TMA_INT32,
		                           .index = work->index,
		                           .limit = POOL * work->blocks };

	work->dst_tensor.offset = work->src_tensor.offset = set_offset(work, set);
	moves_must(client, work->scatter ? tma_scatter(client, &blocks) : tma_gather(client, &blocks));
}

static void wait_for_all(struct work *work)
{
	for (size_t i = 0; i < work->blocks; i++)
		moves_must(work->moves->client, tma_wait(work->moves->client, work->tickets[i], NULL));
}

static void by_requests(struct work *work, size_t set)
{
	tma_client *client = work->moves->client;

	for (size_t i = 0; i < work->blocks; i++) {
		work->dst_tensor.offset = dst_offset(work, set, i);
		work->src_tensor.offset = src_offset(work, set, i);
		moves_must(client, tma_submit(client, &work->transform, &work->tickets[i]));
	}
	wait_for_all(work);
}

static void by_plan_runs(struct work *work, size_t set)
{
	tma_client *client = work->moves->client;

	for (size_t i = 0; i < work->blocks; i++)
		moves_must(client,
		           tma_submit_run(
			       client, work->plan,
			       (struct tma_place){ .region = work->dst, .offset = dst_offset(work, set, i) },
			       (struct tma_place){ .region = work->src, .offset = src_offset(work, set, i) },
			       NULL, &work->tickets[i]));
	wait_for_all(work);
}

static void by_items(struct work *work, size_t set)
{
	tma_client *client = work->moves->client;

	for (size_t i = 0; i < work->blocks; i++)
		work->items[i] =
		    (struct tma_item){ .plan = work->plan,
			               .dst = { .region = work->dst, .offset = dst_offset(work, set, i) },
			               .src = { .region = work->src, .offset = src_offset(work, set, i) } };
	moves_must(client, tma_run_items(client, work->items, work->blocks, NULL));
}

/* ---- Check ------------------------------------------------------------------------------------------ */

static bool is_block_right(const struct work *work, const char *dst, const char *src)
{
	if (!work->permuted)
		return memcmp(dst, src, work->block) == 0;
	for (size_t token = 0; token < TOKENS; token++)
		for (size_t head = 0; head < HEADS; head++)
			if (memcmp(dst + (head * TOKENS + token) * ROW_BYTES,
			           src + (token * HEADS + head) * ROW_BYTES, ROW_BYTES) != 0)
				return false;
	return true;
}

static void must_be_right(const struct work *work)
{
	const char *dst = tma_region_data(work->dst), *src = tma_region_data(work->src);

	for (size_t set = 0; set < work->sets; set++)
		for (size_t i = 0; i < work->blocks; i++)
			if (!is_block_right(work, dst + dst_offset(work, set, i),
			                    src + src_offset(work, set, i)))
				moves_fatal("wrong bytes");
}

/* Checks the poison in blocks that the list does not name and, for a gather, behind its destination. */
static void must_be_poisoned(const struct work *work)
{
	for (size_t set = 0; set < work->sets; set++)
		for (size_t i = work->blocks; i < POOL * work->blocks; i++) {
			const unsigned char *block = tma_region_data(work->dst);

			block += dst_offset(work, set, i);
			if (block[0] != MOVES_POISON || memcmp(block, block + 1, work->block - 1) != 0)
				moves_fatal("bytes that no block was to be moved to have changed");
		}
}

static void poison(const struct work *work)
{
	memset(tma_region_data(work->dst), MOVES_POISON, tma_region_size(work->dst));
}

static void try_way(struct work *work, block_way *way)
{
	poison(work);
	for (size_t set = 0; set < work->sets; set++)
		way(work, set);
	must_be_right(work);
	must_be_poisoned(work);
}

/* ---- Rows ------------------------------------------------------------------------------------------- */

static void set_row(struct work *work, size_t block, bool scatter, bool permuted)
{
	static const int perm[] = { 1, 0, 2 };
	const int64_t elements = (int64_t)block / 2;

	work->block = block;
	work->sets = LARGEST / block;
	work->scatter = scatter;
	work->permuted = permuted;
	work->dst_tensor = work->src_tensor =
	    permuted ? (struct tma_tensor){ .dtype = TMA_FLOAT16, .rank = 3, .shape = { TOKENS, HEADS, DIM } }
		     : (struct tma_tensor){ .dtype = TMA_FLOAT16, .rank = 1, .shape = { elements } };
	if (permuted) {
		work->dst_tensor.shape[0] = HEADS;
		work->dst_tensor.shape[1] = TOKENS;
	}
	work->dst_tensor.region = work->dst;
	work->src_tensor.region = work->src;
	work->transform = (struct tma_transform){ .dst = &work->dst_tensor,
		                                  .src = &work->src_tensor,
		                                  .perm = permuted ? perm : NULL };
}

/* Returns the microseconds of one call, where calls follow each other. */
static double time_us(struct work *work, block_way *way)
{
	size_t calls = work->sets > LEAST_CALLS ? work->sets : LEAST_CALLS;
	double start = moves_now_us();

	for (size_t i = 0; i < calls; i++)
		way(work, i % work->sets);
	return (moves_now_us() - start) / (double)calls;
}

static double time_memcpy_us(struct work *work)
{
	double us;

	baseline_start(work->memcpy_threads, work->blocks * work->block);
	us = time_us(work, by_memcpy);
	baseline_stop(work->memcpy_threads);
	return us;
}

static void against_memcpy(struct work *work, const char *what, double bar)
{
	struct moves_row row = { .what = what, .against = "memcpy", .unit = "GB/s", .bar = bar };
	/* Gigabytes read plus written, divided by 1e-6 s below. */
	double gb = 2e-3 * (double)(work->blocks * work->block);

	try_way(work, by_list);
	for (int run = 0; run < MOVES_RUNS; run++) {
		row.base[run] = gb / time_memcpy_us(work);
		row.ours[run] = gb / time_us(work, by_list);
	}
	must_be_right(work);
	moves_print(&row);
}

static void against_each(struct work *work, const char *against, block_way *each, double bar)
{
	struct moves_row row = { .what = "4 KiB blocks gathered by one request",
		                 .against = against,
		                 .unit = "M blocks/s",
		                 .bar = bar };
	tma_client *client = work->moves->client;

	tma_set_batching(client, true);
	try_way(work, each);
	for (int run = 0; run < MOVES_RUNS; run++) {
		row.base[run] = (double)work->blocks / time_us(work, each);
		row.ours[run] = (double)work->blocks / time_us(work, by_list);
	}
	tma_set_batching(client, false);
	must_be_right(work);
	moves_print(&row);
}

void moves_blocks(const struct moves *moves)
{
	struct work work;

	work_init(&work, moves);
	for (int scatter = 0; scatter < 2; scatter++) {
		set_row(&work, 32 << 10, scatter, false);
		against_memcpy(&work, scatter ? "32 KiB blocks scattered" : "32 KiB blocks gathered", 0.9);
		set_row(&work, 4 << 10, scatter, false);
		against_memcpy(&work, scatter ? "4 KiB blocks scattered" : "4 KiB blocks gathered", 0.7);
		set_row(&work, TOKENS * HEADS * ROW_BYTES, scatter, true);
		against_memcpy(
		    &work, scatter ? "32 KiB blocks scattered, permuted" : "32 KiB blocks gathered, permuted",
		    0.8);
	}
	set_row(&work, 4 << 10, false, false);
	moves_must(moves->client, tma_plan_prepare(moves->client, &work.transform, &work.plan));
	against_each(&work, "a copy request each, pipelined", by_requests, 5);
	against_each(&work, "a plan_run each, pipelined", by_plan_runs, 5);
	against_each(&work, "batches of plan runs", by_items, 0);
	moves_must(moves->client, tma_plan_release(work.plan));
	work_deinit(&work);
}
