/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks of named layouts against a real tmad: gathered from a pool in any layout to a buffer in any
 * other, and scattered back; also where the layers lie apart, or in separate regions. */
#include <criterion/criterion.h>
#include <string.h>

#include "rig.h"
#include "tests/support/kv_formats.h"

static struct process service;
static tma_client *client;

static void setup(void)
{
	client = rig_start(&service, NULL);
	kv_formats_init();
}

static void teardown(void)
{
	rig_stop(&service, client);
	kv_formats_deinit();
}

TestSuite(library_lists, .init = setup, .fini = teardown, .timeout = 300);

static bool is_cuda(void)
{
	return strcmp(process_engine(), "cuda") == 0;
}

/* Returns whether the list names the block, and its index there. Blocks that are not listed hold 0xffff. */
static bool is_listed(const int32_t *list, int n, int64_t block, int64_t *ret_i)
{
	for (*ret_i = 0; *ret_i < n; ++*ret_i)
		if (list[*ret_i] == block)
			return true;
	return false;
}

static void gather_and_scatter(tma_region *pool, tma_region *buffer, size_t in_pool, size_t in_buffer)
{
	static const int32_t list[] = { 4, 0, 3 };
	const struct tma_layout_cache p = kv_cache(&kv_formats[in_pool], pool, 1, 0),
				      b = kv_cache(&kv_formats[in_buffer], buffer, 1, 0);
	const char *names[] = { tma_layout_name(p.layout), tma_layout_name(b.layout) };
	uint16_t *pooled = rig_data(pool), *buffered = rig_data(buffer);
	struct tma_layout_move move;
	struct tma_blocks blocks;
	struct kv_index at = { 0 };
	int64_t i;

	memcpy(pooled, kv_formats[in_pool].expected[0], BYTES);
	memset(buffered, 0xff, BYTES);
	cr_assert_eq(tma_layout_blocks(client, &b, NULL, &p, NULL, false, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	cr_assert(blocks.count == BLOCKS && blocks.limit == BLOCKS);
	blocks.count = 3;
	blocks.index_dtype = TMA_INT32;
	blocks.index = list;
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s to %s: %s", names[0], names[1],
	             tma_last_error(client));
	do {
		struct kv_index from = at;
		uint16_t want = 0xffff;

		if (at.n < 3) {
			from.n = list[at.n];
			want = kv_number(&from);
		}
		cr_assert_eq(buffered[kv_place(&kv_formats[in_buffer], &at, &kv_whole)], want, "%s to %s",
		             names[0], names[1]);
	} while (kv_index_next(&at));

	memset(pooled, 0xff, BYTES);
	cr_assert_eq(tma_layout_blocks(client, &p, NULL, &b, NULL, true, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks.count = 3;
	blocks.index_dtype = TMA_INT32;
	blocks.index = list;
	cr_assert_eq(tma_scatter(client, &blocks), 0, "%s to %s: %s", names[1], names[0],
	             tma_last_error(client));
	do
		cr_assert_eq(pooled[kv_place(&kv_formats[in_pool], &at, &kv_whole)],
		             is_listed(list, 3, at.n, &i) ? kv_number(&at) : 0xffff, "%s to %s", names[1],
		             names[0]);
	while (kv_index_next(&at));
}

Test(library_lists, lists_of_blocks_of_every_pair)
{
	tma_region *pool = rig_region(client, BYTES), *buffer = rig_region(client, BYTES);

	for (size_t from = 0; from < kv_format_count; from++)
		for (size_t to = 0; to < kv_format_count; to++)
			if (!is_cuda() || (from + to) % 4 == 0)
				gather_and_scatter(pool, buffer, from, to);
}

/* ---- Layers that lie apart
 * ------------------------------------------------------------------------------ */

/* The layers of a pool, or the keys and values of each layer, out of order and with gaps: at offsets in one
 * region, or in separate regions that a table names. */
struct apart {
	bool is_kv_apart;
	int n;
	int64_t offsets[2 * LAYERS];
	tma_table *table; /* NULL: the layers lie at offsets in one region */
	tma_region *region;
	uint16_t *at[2 * LAYERS];
};

enum { APART_BYTES = 2 * BYTES };

static struct apart apart_of(bool is_kv_apart)
{
	return (struct apart){ .is_kv_apart = is_kv_apart, .n = is_kv_apart ? 2 * LAYERS : LAYERS };
}

static struct apart apart_in_region(bool is_kv_apart)
{
	struct apart apart = apart_of(is_kv_apart);
	const int n = apart.n;

	apart.region = rig_region(client, APART_BYTES);
	for (int i = 0; i < n; i++) {
		apart.offsets[i] = (int64_t)((i * 5 + 1) % n) * (APART_BYTES / n / 16 * 16) + 16 * (i % 2);
		apart.at[i] =
		    (uint16_t *)rig_data(apart.region) + apart.offsets[i] / (int64_t)sizeof(uint16_t);
	}
	return apart;
}

static struct apart apart_in_regions(bool is_kv_apart)
{
	struct apart apart = apart_of(is_kv_apart);
	struct tma_place places[2 * LAYERS] = { 0 };

	for (int i = 0; i < apart.n; i++) {
		places[i].region = rig_region(client, APART_BYTES / (size_t)apart.n);
		places[i].offset = 16 * (uint64_t)(i % 3);
		apart.at[i] = (uint16_t *)rig_data(places[i].region) + places[i].offset / sizeof(uint16_t);
	}
	cr_assert_eq(tma_table_prepare(client, places, (size_t)apart.n, &apart.table), 0, "%s",
	             tma_last_error(client));
	return apart;
}

static void apart_clear(const struct apart *apart)
{
	for (int i = 0; i < apart->n; i++)
		memset(apart->at[i], 0xff, BYTES / (size_t)apart->n);
}

static struct tma_layout_cache apart_cache(const struct apart *apart, size_t format)
{
	struct tma_layout_cache cache = kv_cache(&kv_formats[format], apart->region, 1, 0);

	cache.layers = 1;
	cache.kv = apart->is_kv_apart ? 1 : 2;
	return cache;
}

/* Returns the address of an element of the pool. */
static uint16_t *apart_at(const struct apart *apart, size_t format, const struct kv_index *at)
{
	struct kv_index size = kv_whole, in_layer = *at;

	size.l = 1;
	in_layer.l = 0;
	if (apart->is_kv_apart) {
		size.k = 1;
		in_layer.k = 0;
	}
	return apart->at[apart->is_kv_apart ? 2 * at->l + at->k : at->l] +
	       kv_place(&kv_formats[format], &in_layer, &size);
}

static void apart_fill(const struct apart *apart, size_t format)
{
	struct kv_index at = { 0 };

	apart_clear(apart);
	do
		*apart_at(apart, format, &at) = kv_number(&at);
	while (kv_index_next(&at));
}

static const int32_t order[BLOCKS] = { 2, 4, 0, 3, 1 };

static void blocks_complete(struct tma_blocks *blocks, const struct apart *apart, const int64_t *of_buffer,
                            bool scatter)
{
	blocks->index_dtype = TMA_INT32;
	blocks->index = order;
	if (apart->table)
		*(scatter ? &blocks->dst_table : &blocks->src_table) = apart->table;
	else
		*(scatter ? &blocks->dst_layers : &blocks->src_layers) = apart->offsets;
	if (apart->is_kv_apart)
		*(scatter ? &blocks->src_layers : &blocks->dst_layers) = of_buffer;
}

/* Gathers from a pool to a buffer with the same blocks in another order, and scatters back. */
static void gather_and_scatter_apart(const struct apart *apart, tma_region *buffer, size_t in_pool,
                                     size_t in_buffer)
{
	const struct tma_layout_cache p = apart_cache(apart, in_pool);
	const struct tma_layout_cache b = kv_cache(&kv_formats[in_buffer], buffer, 1, 0);
	const char *names[] = { tma_layout_name(p.layout), tma_layout_name(b.layout) };
	uint16_t *buffered = rig_data(buffer);
	int64_t of_buffer[2 * LAYERS];
	struct tma_layout_move move;
	struct tma_blocks blocks;
	struct kv_index at = { 0 };

	apart_fill(apart, in_pool);
	memset(buffered, 0xff, BYTES);
	cr_assert_eq(tma_layout_layer_offsets(client, &b, NULL, of_buffer), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_layout_blocks(client, &b, NULL, &p, NULL, false, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks_complete(&blocks, apart, of_buffer, false);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s to %s: %s", names[0], names[1],
	             tma_last_error(client));
	do {
		struct kv_index from = at;

		from.n = order[at.n];
		cr_assert_eq(buffered[kv_place(&kv_formats[in_buffer], &at, &kv_whole)], kv_number(&from),
		             "%s to %s", names[0], names[1]);
	} while (kv_index_next(&at));

	apart_clear(apart);
	cr_assert_eq(tma_layout_blocks(client, &p, NULL, &b, NULL, true, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks_complete(&blocks, apart, of_buffer, true);
	cr_assert_eq(tma_scatter(client, &blocks), 0, "%s to %s: %s", names[1], names[0],
	             tma_last_error(client));
	do
		cr_assert_eq(*apart_at(apart, in_pool, &at), kv_number(&at), "%s to %s", names[1], names[0]);
	while (kv_index_next(&at));
}

static void every_pair_apart(const struct apart *apart)
{
	tma_region *buffer = rig_region(client, BYTES);

	for (size_t from = 0; from < kv_format_count; from++)
		for (size_t to = 0; to < kv_format_count; to++)
			if (!is_cuda() || (from + to) % 4 == 1)
				gather_and_scatter_apart(apart, buffer, from, to);
}

Test(library_lists, layers_that_lie_apart)
{
	const struct apart apart = apart_in_region(false);

	every_pair_apart(&apart);
}

Test(library_lists, keys_and_values_that_lie_apart)
{
	const struct apart apart = apart_in_region(true);

	every_pair_apart(&apart);
}

Test(library_lists, layers_in_a_table)
{
	const struct apart apart = apart_in_regions(false);

	every_pair_apart(&apart);
}

Test(library_lists, keys_and_values_in_a_table)
{
	const struct apart apart = apart_in_regions(true);

	every_pair_apart(&apart);
}

/* ---- Pairs -------------------------------------------------------------------------------------------- */

#define NUMBERS 6 /* numbers in a block */
#define POOL    12

/* Returns the tensor of block 0 of a pool of blocks of int32, one behind the other. */
static struct tma_tensor block_of(tma_region *pool)
{
	return (struct tma_tensor){ .region = pool, .dtype = TMA_INT32, .rank = 1, .shape = { NUMBERS } };
}

/* Sets each number of block i to i + first. */
static void fill_pool(tma_region *pool, int32_t first)
{
	for (int i = 0; i < POOL * NUMBERS; i++)
		((int32_t *)rig_data(pool))[i] = i / NUMBERS + first;
}

/* Checks that block i has the number wanted[i]. */
static void assert_pool(tma_region *pool, const int32_t wanted[POOL])
{
	for (int i = 0; i < POOL * NUMBERS; i++)
		cr_assert_eq(((int32_t *)rig_data(pool))[i], wanted[i / NUMBERS], "block %d: %d", i / NUMBERS,
		             ((int32_t *)rig_data(pool))[i]);
}

Test(library_lists, pairs)
{
	static const int64_t list[] = { 3, 1, -1, 2, 11, 0, 5, -1, 3, 7 };
	tma_region *to = rig_region(client, POOL * NUMBERS * 4),
		   *from = rig_region(client, POOL * NUMBERS * 4);
	tma_region *index = rig_region(client, 4096);
	const struct tma_tensor dst = block_of(to), src = block_of(from);
	const struct tma_transform t = { .dst = &dst, .src = &src };
	struct tma_blocks blocks = {
		.transform = &t, .count = 5, .index_dtype = TMA_INT64, .index = list, .pairs = 1
	};
	const struct tma_result *result = tma_last_result(client);
	tma_ticket ticket;

	fill_pool(to, 100);
	fill_pool(from, 0);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	cr_assert(result->moved == 3 && result->passed == 2 && result->beyond == 0);
	assert_pool(to, (int32_t[]){ 11, 3, 102, 103, 104, 105, 106, 3, 108, 109, 110, 111 });

	fill_pool(to, 100);
	memcpy(rig_data(index), list, sizeof list);
	((int64_t *)rig_data(index))[9] = 9; /* names block 9 of dst, which has 8 blocks here */
	blocks.index = NULL;
	blocks.index_at.region = index;
	blocks.dst_limit = 8;
	cr_assert_eq(tma_submit_gather(client, &blocks, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	assert_pool(to, (int32_t[]){ 11, 3, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111 });

	blocks.pairs = 0;
	cr_assert_eq(tma_gather(client, &blocks), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "dst_limit: 8"), "%s", tma_last_error(client));
	blocks.pairs = 1;
	cr_assert_eq(tma_scatter(client, &blocks), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "pairs"), "%s", tma_last_error(client));
}

Test(library_lists, pairs_within_a_pool)
{
	int32_t list[] = { 3, 1, 4, 2, 3, 0, 11, 5 };
	tma_region *pool = rig_region(client, POOL * NUMBERS * 4);
	const struct tma_tensor block = block_of(pool);
	const struct tma_transform t = { .dst = &block, .src = &block };
	const struct tma_blocks blocks = {
		.transform = &t, .count = 4, .index_dtype = TMA_INT32, .index = list, .pairs = 1
	};

	fill_pool(pool, 0);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	assert_pool(pool, (int32_t[]){ 3, 3, 4, 3, 4, 11, 6, 7, 8, 9, 10, 11 });
	list[7] = 4; /* the list is read for it as well */
	cr_assert_eq(tma_gather(client, &blocks), TMA_OVERLAP);
	cr_assert_str_eq(
	    tma_last_error(client),
	    "index[1][0]: 4, as index[3][1]: dst and src are the same blocks, and this one would be "
	    "read and written");
	assert_pool(pool, (int32_t[]){ 3, 3, 4, 3, 4, 11, 6, 7, 8, 9, 10, 11 });
}

/* ---- Tables ------------------------------------------------------------------------------------------- */

/* A range of the blocks, where the offset of the blocks before is added to each place. */
static void gather_between_tables(const struct apart *dst, const struct apart *src, size_t in_dst,
                                  size_t in_src)
{
	static const struct tma_layout_part part = { .first_block = 2, .blocks = 3 };
	static const int32_t list[] = { 2, 0 };
	const struct tma_layout_cache to = apart_cache(dst, in_dst), from = apart_cache(src, in_src);
	struct tma_layout_move move;
	struct tma_blocks blocks;
	struct kv_index at = { 0 };

	apart_fill(src, in_src);
	apart_clear(dst);
	cr_assert_eq(tma_layout_blocks(client, &to, NULL, &from, &part, false, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks.count = 2;
	blocks.index_dtype = TMA_INT32;
	blocks.index = list;
	blocks.dst_table = dst->table;
	blocks.src_table = src->table;
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s", tma_last_error(client));
	do {
		struct kv_index index = at;
		uint16_t want = 0xffff;

		if (at.n < 2) {
			index.n = 2 + list[at.n];
			want = kv_number(&index);
		}
		cr_assert_eq(*apart_at(dst, in_dst, &at), want, "%s to %s", tma_layout_name(from.layout),
		             tma_layout_name(to.layout));
	} while (kv_index_next(&at));
}

Test(library_lists, tables_on_both_sides)
{
	for (int is_kv_apart = 0; is_kv_apart < 2; is_kv_apart++) {
		const struct apart src = apart_in_regions(is_kv_apart), dst = apart_in_regions(is_kv_apart);

		for (size_t from = 0; from < kv_format_count; from++)
			for (size_t to = 0; to < kv_format_count; to++)
				if ((from + to) % 4 == 2)
					gather_between_tables(&dst, &src, to, from);
	}
}
