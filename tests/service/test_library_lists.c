/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of blocks of named layouts against a real tmad: gathered from a pool in any layout to a buffer in any
 * other, and scattered back; also where the pool's layers lie apart. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "client/tmaclient.h"
#include "tests/support/kv_formats.h"
#include "tests/support/process.h"

static struct process service;
static tma_client *client;

static void setup(void)
{
	process_start(&service, NULL);
	client = tma_new();
	cr_assert_eq(tma_connect(client, service.socket), TMA_OK, "%s", tma_last_error(client));
	kv_formats_init();
}

static void teardown(void)
{
	tma_free(client);
	process_stop(&service, SIGTERM);
	kv_formats_deinit();
}

TestSuite(library_lists, .init = setup, .fini = teardown, .timeout = 300);

static bool is_cuda(void)
{
	return strcmp(process_engine(), "cuda") == 0;
}

static tma_region *region_of(size_t size)
{
	tma_region *region = NULL;

	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, size, &region), TMA_OK, "%s",
	             tma_last_error(client));
	return region;
}

/* Blocks of the list, in a buffer of their own, and of what is not listed 0xffff. */
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
	uint16_t *pooled = tma_region_data(pool), *buffered = tma_region_data(buffer);
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
	tma_region *pool = region_of(BYTES), *buffer = region_of(BYTES);

	for (size_t from = 0; from < kv_format_count; from++)
		for (size_t to = 0; to < kv_format_count; to++)
			if (!is_cuda() || (from + to) % 4 == 0)
				gather_and_scatter(pool, buffer, from, to);
}

/* ---- Layers that lie apart ------------------------------------------------------------------------------
 */

/* A pool whose layers, or the keys and values of each, are out of order and have gaps between them. */
struct apart {
	bool is_kv_apart;
	int64_t offsets[2 * LAYERS];
};

enum { APART_BYTES = 2 * BYTES };

static struct apart apart_of(bool is_kv_apart)
{
	const int n = is_kv_apart ? 2 * LAYERS : LAYERS;
	struct apart apart = { .is_kv_apart = is_kv_apart };

	for (int i = 0; i < n; i++)
		apart.offsets[i] = (int64_t)((i * 5 + 1) % n) * (APART_BYTES / n / 16 * 16) + 16 * (i % 2);
	return apart;
}

static struct tma_layout_cache apart_cache(const struct apart *apart, size_t format, tma_region *region)
{
	struct tma_layout_cache cache = kv_cache(&kv_formats[format], region, 1, 0);

	cache.layers = 1;
	cache.kv = apart->is_kv_apart ? 1 : 2;
	return cache;
}

/* Where an element lies in the pool. */
static int64_t apart_place(const struct apart *apart, size_t format, const struct kv_index *at)
{
	struct kv_index size = kv_whole, in_layer = *at;

	size.l = 1;
	in_layer.l = 0;
	if (apart->is_kv_apart) {
		size.k = 1;
		in_layer.k = 0;
	}
	return apart->offsets[apart->is_kv_apart ? 2 * at->l + at->k : at->l] / (int64_t)sizeof(uint16_t) +
	       kv_place(&kv_formats[format], &in_layer, &size);
}

static void blocks_complete(struct tma_blocks *blocks, const struct apart *apart, const int64_t *of_buffer,
                            bool scatter)
{
	static const int32_t list[BLOCKS] = { 2, 4, 0, 3, 1 };

	blocks->index_dtype = TMA_INT32;
	blocks->index = list;
	*(scatter ? &blocks->dst_layers : &blocks->src_layers) = apart->offsets;
	if (apart->is_kv_apart)
		*(scatter ? &blocks->src_layers : &blocks->dst_layers) = of_buffer;
}

/* From a pool to a buffer that has the same blocks in another order, and back. */
static void gather_and_scatter_apart(const struct apart *apart, tma_region *pool, tma_region *buffer,
                                     size_t in_pool, size_t in_buffer)
{
	static const int64_t list[BLOCKS] = { 2, 4, 0, 3, 1 };
	const struct tma_layout_cache p = apart_cache(apart, in_pool, pool);
	const struct tma_layout_cache b = kv_cache(&kv_formats[in_buffer], buffer, 1, 0);
	const char *names[] = { tma_layout_name(p.layout), tma_layout_name(b.layout) };
	uint16_t *pooled = tma_region_data(pool), *buffered = tma_region_data(buffer);
	int64_t of_buffer[2 * LAYERS];
	struct tma_layout_move move;
	struct tma_blocks blocks;
	struct kv_index at = { 0 };

	memset(pooled, 0xff, APART_BYTES);
	memset(buffered, 0xff, BYTES);
	do
		pooled[apart_place(apart, in_pool, &at)] = kv_number(&at);
	while (kv_index_next(&at));
	cr_assert_eq(tma_layout_layer_offsets(client, &b, NULL, of_buffer), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_layout_blocks(client, &b, NULL, &p, NULL, false, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks_complete(&blocks, apart, of_buffer, false);
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s to %s: %s", names[0], names[1],
	             tma_last_error(client));
	do {
		struct kv_index from = at;

		from.n = list[at.n];
		cr_assert_eq(buffered[kv_place(&kv_formats[in_buffer], &at, &kv_whole)], kv_number(&from),
		             "%s to %s", names[0], names[1]);
	} while (kv_index_next(&at));

	memset(pooled, 0xff, APART_BYTES);
	cr_assert_eq(tma_layout_blocks(client, &p, NULL, &b, NULL, true, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks_complete(&blocks, apart, of_buffer, true);
	cr_assert_eq(tma_scatter(client, &blocks), 0, "%s to %s: %s", names[1], names[0],
	             tma_last_error(client));
	do
		cr_assert_eq(pooled[apart_place(apart, in_pool, &at)], kv_number(&at), "%s to %s", names[1],
		             names[0]);
	while (kv_index_next(&at));
}

static void every_pair_apart(bool is_kv_apart)
{
	const struct apart apart = apart_of(is_kv_apart);
	tma_region *pool = region_of(APART_BYTES), *buffer = region_of(BYTES);

	for (size_t from = 0; from < kv_format_count; from++)
		for (size_t to = 0; to < kv_format_count; to++)
			if (!is_cuda() || (from + to) % 4 == 1)
				gather_and_scatter_apart(&apart, pool, buffer, from, to);
}

Test(library_lists, layers_that_lie_apart)
{
	every_pair_apart(false);
}

Test(library_lists, keys_and_values_that_lie_apart)
{
	every_pair_apart(true);
}
