/* SPDX-License-Identifier: Apache-2.0 */
/* Tests layers at arbitrary addresses: lists of blocks, and runs of plans, over tables of layers. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 6, MOST_ENTRIES = 2 * MOST_LAYERS, MOST_BLOCKS = 12, MOST_NUMBERS = 40 };

TestSuite(local_tables, .init = memory_open, .fini = memory_close);

/* A cache of layers, each in an allocation of its own with blocks of keys and of values in turn. */
struct cache {
	int64_t layers, blocks, numbers; /* numbers in a block */
	uint64_t layer[MOST_LAYERS];
	struct tma_place places[MOST_ENTRIES]; /* two entries for each layer: its keys and its values */
	size_t bytes;                          /* of one layer */
};

static uint32_t number_of(int64_t entry, int64_t block, int64_t i)
{
	return (uint32_t)((entry * MOST_BLOCKS + block) * MOST_NUMBERS + i + 1);
}

/* Draws a cache whose entries are addresses or places in regions. */
static void draw_cache(struct cache *cache, uint64_t *state)
{
	*cache = (struct cache){ .layers = draw(state, 1, MOST_LAYERS),
		                 .blocks = draw(state, 1, MOST_BLOCKS),
		                 .numbers = draw(state, 1, MOST_NUMBERS) };
	cache->bytes = (size_t)(8 * cache->blocks * cache->numbers);
	for (int64_t l = 0; l < cache->layers; l++) {
		const uint64_t at = memory_new(cache->bytes + 64) + (uint64_t)(4 * draw(state, 0, 15));
		const bool has_region = draw(state, 0, 1);

		cache->layer[l] = at;
		for (int64_t kv = 0; kv < 2; kv++)
			cache->places[2 * l + kv] = (struct tma_place){
				.region = has_region ? memory_region(at, cache->bytes, 0) : NULL,
				.offset = (has_region ? 0 : at) + (uint64_t)(4 * kv * cache->numbers)
			};
	}
}

static struct tma_tensor block_of(const struct cache *cache, uint64_t address)
{
	return (struct tma_tensor){
		.offset = address, .dtype = TMA_UINT32, .rank = 1, .shape = { cache->numbers }
	};
}

/* Draws a list of random blocks that names none twice. */
static size_t draw_index(const struct cache *cache, uint64_t *state, int32_t index[MOST_BLOCKS])
{
	const size_t n = (size_t)draw(state, 1, cache->blocks);

	for (int32_t i = 0; i < cache->blocks; i++) {
		const int64_t other = draw(state, 0, i);

		index[i] = index[other];
		index[other] = i;
	}
	return n;
}

/* Scatters blocks from one buffer into the cache; a prepared table is used half of the time. */
static void scatter(const struct cache *cache, uint64_t *state, const int32_t *index, size_t n)
{
	const size_t entries = (size_t)(2 * cache->layers);
	const size_t bytes = 4 * entries * n * (size_t)cache->numbers;
	uint32_t *numbers = malloc(bytes), *to = numbers;
	struct tma_tensor src = block_of(cache, memory_new(bytes)), dst = block_of(cache, 0);
	const struct tma_transform t = { .dst = &dst, .src = &src };
	struct tma_blocks blocks = { .transform = &t,
		                     .count = n,
		                     .index_dtype = TMA_INT32,
		                     .index = index,
		                     .limit = (uint64_t)cache->blocks,
		                     .layers = (uint32_t)entries,
		                     .dst_step = (uint64_t)(8 * cache->numbers),
		                     .src_layer_step = bytes / entries };
	tma_table *table = NULL;

	for (size_t e = 0; e < entries; e++)
		for (size_t i = 0; i < n; i++)
			for (int64_t k = 0; k < cache->numbers; k++)
				*to++ = number_of((int64_t)e, index[i], k);
	memory_put(src.offset, numbers, bytes);
	if (draw(state, 0, 1)) {
		cr_assert_eq(tma_table_prepare(client, cache->places, entries, &table), 0, "%s",
		             tma_last_error(client));
		blocks.dst_table = table;
	} else {
		blocks.dst_places = cache->places;
	}
	cr_assert_eq(tma_scatter(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->moved, n);
	cr_assert_eq(tma_last_result(client)->bytes, 2 * bytes);
	cr_assert_eq(tma_table_release(table), 0, "%s", tma_last_error(client));
	free(numbers);
}

/* Blocks that the list does not name have to be unchanged. */
static void check_layers(const struct cache *cache, const int32_t *index, size_t n)
{
	uint32_t *got = malloc(cache->bytes);
	bool is_there[MOST_BLOCKS] = { false };

	for (size_t i = 0; i < n; i++)
		is_there[index[i]] = true;
	for (int64_t e = 0; e < 2 * cache->layers; e++) {
		memory_get(got, cache->layer[e / 2], cache->bytes);
		for (int64_t b = 0; b < cache->blocks; b++)
			for (int64_t k = 0; k < cache->numbers; k++)
				cr_assert_eq(got[(2 * b + e % 2) * cache->numbers + k],
				             is_there[b] ? number_of(e, b, k) : 0xeeeeeeee);
	}
	free(got);
}

/* Gathers the blocks again, from one table to another. */
static void gather(const struct cache *cache, const int32_t *index, size_t n)
{
	const size_t entries = (size_t)(2 * cache->layers), bytes = 4 * n * (size_t)cache->numbers;
	struct tma_tensor src = block_of(cache, 0), dst = block_of(cache, 8);
	const struct tma_transform t = { .dst = &dst, .src = &src };
	struct tma_place places[MOST_ENTRIES] = { 0 };
	uint32_t *got = malloc(bytes + 8);
	tma_table *from, *to;

	for (size_t e = 0; e < entries; e++)
		places[e].offset = memory_new(bytes + 8);
	cr_assert_eq(tma_table_prepare(client, places, entries, &to), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_table_prepare(client, cache->places, entries, &from), 0);
	cr_assert_eq(tma_gather(client, &(struct tma_blocks){ .transform = &t,
	                                                      .count = n,
	                                                      .index_dtype = TMA_INT32,
	                                                      .index = index,
	                                                      .limit = (uint64_t)cache->blocks,
	                                                      .src_step = (uint64_t)(8 * cache->numbers),
	                                                      .dst_table = to,
	                                                      .src_table = from }),
	             0, "%s", tma_last_error(client));
	for (size_t e = 0; e < entries; e++) {
		memory_get(got, places[e].offset, bytes + 8);
		cr_assert(got[0] == 0xeeeeeeee && got[1] == 0xeeeeeeee);
		for (size_t i = 0; i < n; i++)
			for (int64_t k = 0; k < cache->numbers; k++)
				cr_assert_eq(got[2 + (int64_t)i * cache->numbers + k],
				             number_of((int64_t)e, index[i], k));
	}
	free(got);
}

Test(local_tables, of_random_caches)
{
	uint64_t state = 5;

	for (int round = 0; round < 40; round++) {
		int32_t index[MOST_BLOCKS];
		struct cache cache;
		size_t n;

		draw_cache(&cache, &state);
		n = draw_index(&cache, &state, index);
		scatter(&cache, &state, index, n);
		check_layers(&cache, index, n);
		gather(&cache, index, n);
	}
}

/* ---- Plans -------------------------------------------------------------------------------------------- */

enum { ENTRIES = 3, ROWS = 5, COLUMNS = 7, BYTES = 4 * ROWS * COLUMNS };

static tma_plan *transposition(const struct tma_conversion *conversion)
{
	const struct tma_tensor from = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { ROWS, COLUMNS } };
	const struct tma_tensor to = { .dtype = TMA_FLOAT32, .rank = 2, .shape = { COLUMNS, ROWS } };
	tma_plan *plan;

	cr_assert_eq(tma_plan_prepare(client,
	                              &(struct tma_transform){ .dst = &to,
	                                                       .src = &from,
	                                                       .perm = (const int[]){ 1, 0 },
	                                                       .conversion = conversion },
	                              &plan),
	             0, "%s", tma_last_error(client));
	return plan;
}

static void fill(uint64_t address, float first)
{
	float numbers[ROWS * COLUMNS];

	for (int i = 0; i < ROWS * COLUMNS; i++)
		numbers[i] = first + (float)i;
	memory_put(address, numbers, sizeof numbers);
}

static bool is_transposed(uint64_t address, float first, float scale)
{
	float got[ROWS * COLUMNS];
	bool is_right = true;

	memory_get(got, address, sizeof got);
	for (int r = 0; r < ROWS; r++)
		for (int c = 0; c < COLUMNS; c++)
			is_right &= got[c * ROWS + r] == scale * (first + (float)(r * COLUMNS + c));
	return is_right;
}

Test(local_tables, plans_run_over_them)
{
	struct tma_place from[ENTRIES] = { 0 }, to[ENTRIES] = { 0 };
	const struct tma_tensor scalar = { .dtype = TMA_FLOAT32 };
	const struct tma_conversion scaled = { .scale_tensor = &scalar };
	const struct tma_operands operands = { .scale.offset = memory_new(4) };
	const float two = 2;
	struct tma_item items[2] = { 0 };
	tma_table *sources, *destinations;
	tma_plan *plan = transposition(NULL);
	tma_ticket ticket;

	memory_put(operands.scale.offset, &two, sizeof two);
	for (int i = 0; i < ENTRIES; i++) {
		from[i].offset = memory_new(BYTES);
		to[i].offset = memory_new(BYTES);
		fill(from[i].offset, 100 * (float)i);
	}
	cr_assert_eq(tma_table_prepare(client, from, ENTRIES, &sources), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_table_prepare(client, to, ENTRIES, &destinations), 0);
	cr_assert_eq(tma_plan_run_tables(client, plan, destinations, sources, NULL), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->bytes, 2 * ENTRIES * BYTES);
	for (int i = 0; i < ENTRIES; i++)
		cr_assert(is_transposed(to[i].offset, 100 * (float)i, 1));
	fill(from[1].offset, 50);
	cr_assert_eq(tma_submit_run_tables(client, plan, destinations, sources, NULL, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	cr_assert(is_transposed(to[1].offset, 50, 1));

	items[0] = (struct tma_item){ .plan = plan, .dst_table = destinations, .src = from[2] };
	cr_assert_eq(tma_run_items(client, items, 1, NULL), 0, "%s", tma_last_error(client));
	for (int i = 0; i < ENTRIES; i++)
		cr_assert(is_transposed(to[i].offset, 200, 1));
	items[0] = (struct tma_item){ .plan = transposition(&scaled),
		                      .dst_table = destinations,
		                      .src_table = sources,
		                      .operands = &operands };
	items[1] = (struct tma_item){ .plan = plan, .dst_table = destinations, .src_table = destinations };
	cr_assert_eq(tma_run_items(client, items, 2, NULL), TMA_OVERLAP);
	cr_assert(items[0].status == 0 && items[1].status == TMA_OVERLAP);
	for (int i = 0; i < ENTRIES; i++)
		cr_assert(is_transposed(to[i].offset, i == 1 ? 50 : 100 * (float)i, 2));
}

/* ---- Refused ------------------------------------------------------------------------------------------ */

Test(local_tables, are_checked)
{
	const uint64_t at = memory_new(4096);
	struct tma_place places[2] = { { .region = memory_region(at, BYTES, 0) },
		                       { .region = memory_region(at + BYTES, BYTES, 0) } };
	struct tma_place inside[2] = { { .offset = at }, { .offset = at + BYTES - 4 } };
	const struct tma_place src = { .offset = memory_new(BYTES) };
	struct tma_item item = { .plan = transposition(NULL), .src = src };
	tma_table *table, *single;

	places[1].offset = BYTES;
	cr_assert_eq(tma_table_prepare(client, places, 2, &table), TMA_OUT_OF_RANGE);
	cr_assert_not_null(strstr(tma_last_error(client), "places: entry 1: "), "%s", tma_last_error(client));
	places[1].offset = 4;
	cr_assert_eq(tma_table_prepare(client, places, 2, &table), 0, "%s", tma_last_error(client));
	item.dst_table = table;
	cr_assert_eq(tma_run_items(client, &item, 1, NULL), TMA_OUT_OF_RANGE);
	cr_assert_not_null(strstr(tma_last_error(client), "dst_table: entry 1: "), "%s",
	                   tma_last_error(client));
	cr_assert_eq(tma_table_prepare(client, inside, 2, &table), 0);
	item.dst_table = table;
	cr_assert_eq(tma_run_items(client, &item, 1, NULL), TMA_OVERLAP);
	cr_assert_eq(tma_table_prepare(client, inside, 1, &single), 0);
	cr_assert_eq(tma_plan_run_tables(client, item.plan, table, single, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_table_release(single), 0);
	places[0].region = memory_region(at, BYTES, TMA_REGION_READ_ONLY);
	cr_assert_eq(tma_table_prepare(client, places, 1, &single), 0);
	item.dst_table = single;
	cr_assert_eq(tma_run_items(client, &item, 1, NULL), TMA_PERMISSION);
}

/* A table ends with its regions; other tables do not. */
Test(local_tables, end_with_their_regions)
{
	const uint64_t at = memory_new(2 * BYTES);
	const struct tma_place places[2] = { { .region = memory_region(at, BYTES, 0) }, { .offset = at } };
	const struct tma_place src = { .offset = memory_new(BYTES) };
	struct tma_item item = { .plan = transposition(NULL), .src = src };
	tma_table *tables[2];

	fill(src.offset, 1);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tma_table_prepare(client, &places[i], 1, &tables[i]), 0, "%s",
		             tma_last_error(client));
	cr_assert_eq(tma_region_release(places[0].region), 0);
	item.dst_table = tables[0];
	cr_assert_eq(tma_run_items(client, &item, 1, NULL), TMA_NOT_FOUND);
	cr_assert_not_null(strstr(tma_last_error(client), "was released"), "%s", tma_last_error(client));
	item.dst_table = tables[1];
	cr_assert_eq(tma_run_items(client, &item, 1, NULL), 0, "%s", tma_last_error(client));
	cr_assert(is_transposed(at, 1, 1));
	cr_assert_eq(tma_table_release(tables[0]), 0, "%s", tma_last_error(client));
}
