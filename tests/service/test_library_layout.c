/* SPDX-License-Identifier: Apache-2.0 */
/* Named layouts against a real tmad: every ordered pair of those of KV caches, there and back, between all
 * tensor-parallel sizes, and lists of blocks. What a cache has to hold is counted by walking its order,
 * without a stride. A model of a GPU is slow: there each pair has one of the sizes. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "client/tmaclient.h"
#include "tests/support/process.h"

enum { MOST_FORMATS = 64, SIZES = 4, LAYERS = 3, BLOCKS = 5, TOKENS = 7, HEADS = 8, HEAD_SIZE = 5 };
enum { ELEMENTS = LAYERS * 2 * BLOCKS * TOKENS * HEADS * HEAD_SIZE };

static const uint32_t tp_sizes[SIZES] = { 1, 2, 4, 8 };

/* A layout, with groups of heads or without. */
struct format {
	const tma_layout *layout;
	int64_t group;
};

static struct process service;
static tma_client *client;
static struct format formats[MOST_FORMATS];
static size_t n_formats;

/* What all ranks of a format hold, one after the other. Each element is the number of its index. */
static uint16_t *expected[MOST_FORMATS][SIZES];

/* ---- What a cache holds ---------------------------------------------------------------------------------
 */

static int64_t local_heads(int64_t heads, uint32_t ranks)
{
	return heads > ranks ? heads / ranks : 1;
}

/* The first head of a rank. */
static int64_t first_head(int64_t heads, uint32_t ranks, uint32_t rank)
{
	return rank * heads / ranks;
}

/* The group that a rank's heads can have. */
static int64_t group_of(const struct format *format, int64_t local)
{
	return format->group < local ? format->group : local;
}

struct index {
	int64_t l, k, n, t, h, d;
};

static uint16_t number_of(const struct index *at)
{
	return (uint16_t)(((((at->l * 2 + at->k) * BLOCKS + at->n) * TOKENS + at->t) * HEADS + at->h) *
	                      HEAD_SIZE +
	                  at->d);
}

/* Where an element lies among those of its rank; head counts from the rank's first. */
static int64_t place_of(const struct format *format, const struct index *at, int64_t head, int64_t local)
{
	const char *order = tma_layout_order(format->layout);
	const int64_t group = group_of(format, local);
	const bool has_groups = strchr(order, 'g');
	int64_t place = 0;

	for (; *order; order++) {
		if (*order == 'l')
			place = place * LAYERS + at->l;
		else if (*order == 'k')
			place = place * 2 + at->k;
		else if (*order == 'n')
			place = place * BLOCKS + at->n;
		else if (*order == 't')
			place = place * TOKENS + at->t;
		else if (*order == 'g')
			place = place * (local / group) + head / group;
		else if (*order == 'h')
			place = has_groups ? place * group + head % group : place * local + head;
		else if (*order == 'd')
			place = place * HEAD_SIZE + at->d;
	}
	return place;
}

static bool index_next(struct index *at)
{
	int64_t *const digits[] = { &at->d, &at->h, &at->t, &at->n, &at->k, &at->l };
	static const int64_t extents[] = { HEAD_SIZE, HEADS, TOKENS, BLOCKS, 2, LAYERS };

	for (int i = 0; i < 6; i++) {
		if (++*digits[i] < extents[i])
			return true;
		*digits[i] = 0;
	}
	return false;
}

static uint16_t *expected_of(const struct format *format, uint32_t ranks)
{
	const int64_t local = HEADS / ranks;
	uint16_t *all = malloc(ELEMENTS * sizeof *all);
	struct index at = { 0 };

	cr_assert(all);
	do
		all[at.h / local * (ELEMENTS / ranks) + place_of(format, &at, at.h % local, local)] =
		    number_of(&at);
	while (index_next(&at));
	return all;
}

static void formats_init(void)
{
	const tma_layout *layout;

	for (size_t i = 0; (layout = tma_layout_at(i)); i++) {
		const int64_t most = strchr(tma_layout_order(layout), 'g') ? HEADS : 1;

		for (int64_t group = 1; group <= most && !tma_layout_is_blocked(layout); group *= 2) {
			cr_assert_lt(n_formats, MOST_FORMATS);
			formats[n_formats] = (struct format){ layout, group };
			for (int s = 0; s < SIZES; s++)
				expected[n_formats][s] = expected_of(&formats[n_formats], tp_sizes[s]);
			n_formats++;
		}
	}
	cr_assert_geq(n_formats, 20);
}

static void setup(void)
{
	process_start(&service, NULL);
	client = tma_new();
	cr_assert_eq(tma_connect(client, service.socket), TMA_OK, "%s", tma_last_error(client));
	formats_init();
}

static void teardown(void)
{
	tma_free(client);
	process_stop(&service, SIGTERM);
	for (size_t f = 0; f < n_formats; f++)
		for (int s = 0; s < SIZES; s++)
			free(expected[f][s]);
}

TestSuite(library_layout, .init = setup, .fini = teardown, .timeout = 300);

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

/* ---- Pairs ----------------------------------------------------------------------------------------------
 */

static struct tma_layout_cache cache_of(size_t format, tma_region *region, uint32_t ranks, uint32_t rank)
{
	return (struct tma_layout_cache){
		.layout = formats[format].layout,
		.region = region,
		.offset = rank * (ELEMENTS / ranks * sizeof(uint16_t)),
		.dtype = TMA_FLOAT16,
		.ranks = ranks,
		.rank = rank,
		.layers = LAYERS,
		.blocks = BLOCKS,
		.tokens = TOKENS,
		.heads = HEADS,
		.head_size = HEAD_SIZE,
		.group = group_of(&formats[format], HEADS / ranks),
	};
}

/* From each rank to each one that has some of its heads: one request. */
static void convert(size_t to, tma_region *dst, uint32_t dst_ranks, size_t from, tma_region *src,
                    uint32_t src_ranks)
{
	const uint32_t pieces = dst_ranks > src_ranks ? dst_ranks : src_ranks;

	for (uint32_t i = 0; i < pieces; i++) {
		const struct tma_layout_cache d = cache_of(to, dst, dst_ranks, i / (pieces / dst_ranks));
		const struct tma_layout_cache s = cache_of(from, src, src_ranks, i / (pieces / src_ranks));
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
	cr_assert_eq(memcmp(tma_region_data(region), expected[format][size], ELEMENTS * sizeof(uint16_t)), 0,
	             "%s: %s in groups of %ld of %u ranks; %s in groups of %ld of %u", what,
	             tma_layout_name(formats[format].layout), (long)formats[format].group, tp_sizes[size],
	             tma_layout_name(formats[other].layout), (long)formats[other].group,
	             tp_sizes[other_size]);
}

static void there_and_back(tma_region *a, tma_region *b, size_t from, int from_size, size_t to, int to_size)
{
	const size_t bytes = ELEMENTS * sizeof(uint16_t);

	memcpy(tma_region_data(a), expected[from][from_size], bytes);
	memset(tma_region_data(b), 0xff, bytes);
	convert(to, b, tp_sizes[to_size], from, a, tp_sizes[from_size]);
	assert_holds(b, to, to_size, "there", from, from_size);
	memset(tma_region_data(a), 0xff, bytes);
	convert(from, a, tp_sizes[from_size], to, b, tp_sizes[to_size]);
	assert_holds(a, from, from_size, "and back", to, to_size);
}

static void every_pair_from(int from_size)
{
	tma_region *a = region_of(ELEMENTS * sizeof(uint16_t)), *b = region_of(ELEMENTS * sizeof(uint16_t));

	for (size_t from = 0; from < n_formats; from++)
		for (size_t to = 0; to < n_formats; to++)
			for (int to_size = 0; to_size < SIZES; to_size++)
				if (!is_cuda() ||
				    (from + to) % (SIZES * SIZES) == (size_t)(from_size * SIZES + to_size))
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

/* More ranks than heads: several have the same one. */
Test(library_layout, heads_that_several_ranks_have)
{
	enum { FEW = 2, RANKS = 8, SHARD = ELEMENTS / HEADS };
	tma_region *all = region_of(FEW * SHARD * sizeof(uint16_t)),
		   *shards = region_of(RANKS * SHARD * sizeof(uint16_t));
	uint16_t *a = tma_region_data(all), *b = tma_region_data(shards);

	for (size_t f = 0; f < n_formats; f++) {
		struct tma_layout_cache one = cache_of(0, all, 1, 0), other = cache_of(f, shards, RANKS, 0);
		struct tma_layout_move move;

		one.heads = other.heads = FEW;
		one.group = other.group = 1;
		for (int i = 0; i < FEW * SHARD; i++)
			a[i] = (uint16_t)i;
		memset(b, 0xff, RANKS * SHARD * sizeof *b);
		for (uint32_t r = 0; r < RANKS; r++) {
			other.rank = r;
			other.offset = r * SHARD * sizeof *b;
			cr_assert_eq(tma_layout_convert(client, &other, NULL, &one, NULL, &move), 0, "%s",
			             tma_last_error(client));
			cr_assert_eq(tma_transform(client, &move.transform), 0, "%s", tma_last_error(client));
		}
		for (uint32_t r = 0; r < RANKS; r++) {
			struct index at = { 0 };

			do
				if (at.h == 0) {
					const int64_t head = first_head(FEW, RANKS, r);

					cr_assert_eq(b[r * SHARD + place_of(&formats[f], &at, 0,
					                                    local_heads(FEW, RANKS))],
					             a[(((at.l * 2 + at.k) * BLOCKS + at.n) * TOKENS + at.t) *
					                   FEW * HEAD_SIZE +
					               head * HEAD_SIZE + at.d],
					             "%s, rank %u", tma_layout_name(formats[f].layout), r);
				}
			while (index_next(&at));
		}
	}
}

/* ---- Lists of blocks ------------------------------------------------------------------------------------
 */

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
	const size_t bytes = ELEMENTS * sizeof(uint16_t);
	const struct tma_layout_cache p = cache_of(in_pool, pool, 1, 0),
				      b = cache_of(in_buffer, buffer, 1, 0);
	const char *names[] = { tma_layout_name(p.layout), tma_layout_name(b.layout) };
	uint16_t *pooled = tma_region_data(pool), *buffered = tma_region_data(buffer);
	struct tma_layout_move move;
	struct tma_blocks blocks;
	struct index at = { 0 };
	int64_t i;

	memcpy(pooled, expected[in_pool][0], bytes);
	memset(buffered, 0xff, bytes);
	cr_assert_eq(tma_layout_blocks(client, &b, NULL, &p, NULL, false, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	cr_assert(blocks.count == BLOCKS && blocks.limit == BLOCKS);
	blocks.count = 3;
	blocks.index_dtype = TMA_INT32;
	blocks.index = list;
	cr_assert_eq(tma_gather(client, &blocks), 0, "%s to %s: %s", names[0], names[1],
	             tma_last_error(client));
	do {
		struct index from = at;
		uint16_t want = 0xffff;

		if (at.n < 3) {
			from.n = list[at.n];
			want = number_of(&from);
		}
		cr_assert_eq(buffered[place_of(&formats[in_buffer], &at, at.h, HEADS)], want, "%s to %s",
		             names[0], names[1]);
	} while (index_next(&at));

	memset(pooled, 0xff, bytes);
	cr_assert_eq(tma_layout_blocks(client, &p, NULL, &b, NULL, true, &move, &blocks), 0, "%s",
	             tma_last_error(client));
	blocks.count = 3;
	blocks.index_dtype = TMA_INT32;
	blocks.index = list;
	cr_assert_eq(tma_scatter(client, &blocks), 0, "%s to %s: %s", names[1], names[0],
	             tma_last_error(client));
	do
		cr_assert_eq(pooled[place_of(&formats[in_pool], &at, at.h, HEADS)],
		             is_listed(list, 3, at.n, &i) ? number_of(&at) : 0xffff, "%s to %s", names[1],
		             names[0]);
	while (index_next(&at));
}

Test(library_layout, lists_of_blocks_of_every_pair)
{
	tma_region *pool = region_of(ELEMENTS * sizeof(uint16_t)),
		   *buffer = region_of(ELEMENTS * sizeof(uint16_t));

	for (size_t from = 0; from < n_formats; from++)
		for (size_t to = 0; to < n_formats; to++)
			if (!is_cuda() || (from + to) % 4 == 0)
				gather_and_scatter(pool, buffer, from, to);
}
