/* SPDX-License-Identifier: Apache-2.0 */
/* Named layouts against a real tmad: every ordered pair of the KV cache layouts, there and back, between all
 * tensor-parallel sizes. A model of a GPU is slow, so each pair gets only one of the sizes there. */
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

TestSuite(library_layout, .init = setup, .fini = teardown, .timeout = 300);

static bool is_cuda(void)
{
	return strcmp(process_engine(), "cuda") == 0;
}

/* Sends one request from each rank to each rank that has some of the same heads. */
static void convert(size_t to, tma_region *dst, uint32_t dst_ranks, size_t from, tma_region *src,
                    uint32_t src_ranks)
{
	const uint32_t pieces = dst_ranks > src_ranks ? dst_ranks : src_ranks;

	for (uint32_t i = 0; i < pieces; i++) {
		const struct tma_layout_cache d =
		    kv_cache(&kv_formats[to], dst, dst_ranks, i / (pieces / dst_ranks));
		const struct tma_layout_cache s =
		    kv_cache(&kv_formats[from], src, src_ranks, i / (pieces / src_ranks));
		struct tma_layout_move move;
		int rc = tma_layout_convert(client, &d, NULL, &s, NULL, &move);

		if (rc == 0)
			rc = tma_transform(client, &move.transform);
		cr_assert_eq(rc, 0, "%s of %u to %s of %u: %s", tma_layout_name(s.layout), src_ranks,
		             tma_layout_name(d.layout), dst_ranks, tma_last_error(client));
	}
}

static void assert_holds(tma_region *region, size_t format, int size, const char *what, size_t other,
                         int other_size)
{
	cr_assert_eq(memcmp(rig_data(region), kv_formats[format].expected[size], BYTES), 0,
	             "%s: %s in groups of %ld of %u ranks; %s in groups of %ld of %u", what,
	             tma_layout_name(kv_formats[format].layout), (long)kv_formats[format].group, kv_tp[size],
	             tma_layout_name(kv_formats[other].layout), (long)kv_formats[other].group,
	             kv_tp[other_size]);
}

static void there_and_back(tma_region *a, tma_region *b, size_t from, int from_size, size_t to, int to_size)
{
	const size_t bytes = BYTES;

	memcpy(rig_data(a), kv_formats[from].expected[from_size], bytes);
	memset(rig_data(b), 0xff, bytes);
	convert(to, b, kv_tp[to_size], from, a, kv_tp[from_size]);
	assert_holds(b, to, to_size, "there", from, from_size);
	memset(rig_data(a), 0xff, bytes);
	convert(from, a, kv_tp[from_size], to, b, kv_tp[to_size]);
	assert_holds(a, from, from_size, "and back", to, to_size);
}

static void every_pair_from(int from_size)
{
	tma_region *a = rig_region(client, BYTES), *b = rig_region(client, BYTES);

	for (size_t from = 0; from < kv_format_count; from++)
		for (size_t to = 0; to < kv_format_count; to++)
			for (int to_size = 0; to_size < KV_SIZES; to_size++)
				if (!is_cuda() || (from + to) % (KV_SIZES * KV_SIZES) ==
				                      (size_t)(from_size * KV_SIZES + to_size))
					there_and_back(a, b, from, from_size, to, to_size);
}

Test(library_layout, every_pair_from_all_heads)
{
	every_pair_from(0);
}

Test(library_layout, every_pair_from_halves)
{
	every_pair_from(1);
}

Test(library_layout, every_pair_from_quarters)
{
	every_pair_from(2);
}

Test(library_layout, every_pair_from_single_heads)
{
	every_pair_from(3);
}

/* There are more ranks than heads, so several ranks have the same head. */
Test(library_layout, heads_that_several_ranks_have)
{
	enum { FEW = 2, RANKS = 8, SHARD = ELEMENTS / HEADS };
	static const struct kv_index size = { LAYERS, 2, BLOCKS, TOKENS, 1, HEAD_SIZE };
	static const struct kv_index few = { LAYERS, 2, BLOCKS, TOKENS, FEW, HEAD_SIZE };
	tma_region *all = rig_region(client, FEW * SHARD * sizeof(uint16_t)),
		   *shards = rig_region(client, BYTES);
	uint16_t *a = rig_data(all), *b = rig_data(shards);

	for (int i = 0; i < FEW * SHARD; i++)
		a[i] = (uint16_t)i;
	for (size_t f = 0; f < kv_format_count; f++) {
		const struct kv_format *format = &kv_formats[f];
		struct tma_layout_cache one = kv_cache(&kv_formats[0], all, 1, 0);

		one.heads = FEW;
		memset(b, 0xff, BYTES);
		for (uint32_t r = 0; r < RANKS; r++) {
			struct tma_layout_cache other = kv_cache(format, shards, RANKS, r);
			struct tma_layout_move move;
			struct kv_index at = { 0 };

			other.heads = FEW;
			cr_assert_eq(tma_layout_convert(client, &other, NULL, &one, NULL, &move), 0, "%s",
			             tma_last_error(client));
			cr_assert_eq(tma_transform(client, &move.transform), 0, "%s", tma_last_error(client));
			do {
				struct kv_index from = at;

				from.h = r * FEW / RANKS;
				if (at.h == 0)
					cr_assert_eq(b[r * SHARD + kv_place(format, &at, &size)],
					             a[kv_place(&kv_formats[0], &from, &few)], "%s, rank %u",
					             tma_layout_name(format->layout), r);
			} while (kv_index_next(&at));
		}
	}
}
