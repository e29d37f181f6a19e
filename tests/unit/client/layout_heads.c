/* SPDX-License-Identifier: Apache-2.0 */
/* Tests parts of KV caches: ranks and groups of heads, against a walk over indices that knows no strides, and
 * lists of blocks. */
#include "layouts.h"

/* ---- Ranks, parts, groups ------------------------------------------------------------------------------ */

/* Returns the position of element [l, k, n, t, head, d] of the model in the cache, counted by walking the
 * layout's order from the outermost dimension in. */
static int64_t walk(const struct tma_layout_cache *cache, const int64_t index[6], int64_t heads,
                    int64_t first_head)
{
	const int64_t group = cache->group ? cache->group : 1, kv = cache->kv ? cache->kv : 2;
	const bool has_groups = strchr(tma_layout_order(cache->layout), 'g');
	const int64_t head = index[4] - first_head;
	int64_t at = 0;

	for (const char *c = tma_layout_order(cache->layout); *c; c++) {
		switch (*c) {
		case 'l':
			at = at * cache->layers + index[0];
			break;
		case 'k':
			at = at * kv + index[1];
			break;
		case 'n':
			at = at * cache->blocks + index[2];
			break;
		case 't':
			at = at * cache->tokens + index[3];
			break;
		case 'g':
			at = at * (heads / group) + head / group;
			break;
		case 'h':
			at = has_groups ? at * group + head % group : at * heads + head;
			break;
		case 'd':
			at = at * cache->head_size + index[5];
			break;
		default:
			break;
		}
	}
	return at;
}

/* Returns the position of the same element by the tensor's strides; its dimensions 4 to rank - 2 are
 * heads. */
static int64_t by_tensor(const struct tma_tensor *t, const int64_t index[6], int64_t first_head)
{
	int64_t at = (int64_t)(t->offset / tma_dtype_size(t->dtype)), head = index[4] - first_head;

	for (int d = 0; d < 4; d++)
		at += index[d] * t->strides[d];
	for (int d = t->rank - 2; d >= 4; d--) {
		at += head % t->shape[d] * t->strides[d];
		head /= t->shape[d];
	}
	return at + index[5] * t->strides[t->rank - 1];
}

struct heads_row {
	const char *name;
	const char *layout[2]; /* of dst and of src */
	int64_t group[2];
	uint32_t ranks[2], rank[2];
	int64_t first, heads; /* heads that are moved */
	int rank_of_tensor;
};

static void assert_moves(const struct heads_row *row, const struct tma_layout_cache cache[2],
                         const struct tma_layout_move *move)
{
	const struct tma_tensor *tensor[] = { &move->dst, &move->src };

	for (int s = 0; s < 2; s++) {
		const int64_t ranks = row->ranks[s] ? row->ranks[s] : 1, heads = cache[s].heads;
		const int64_t mine = heads > ranks ? heads / ranks : 1, first = row->rank[s] * heads / ranks;
		int64_t index[6];

		cr_assert_eq(tensor[s]->rank, row->rank_of_tensor, "%s: rank %d", row->name, tensor[s]->rank);
		for (index[0] = 0; index[0] < L; index[0]++)
			for (index[1] = 0; index[1] < 2; index[1]++)
				for (index[2] = 0; index[2] < N; index[2]++)
					for (index[3] = 0; index[3] < T; index[3]++)
						for (index[4] = row->first;
						     index[4] < row->first + row->heads; index[4]++)
							for (index[5] = 0; index[5] < D; index[5]++)
								cr_assert_eq(
								    by_tensor(tensor[s], index, row->first),
								    walk(&cache[s], index, mine, first),
								    "%s, side %d, head %ld", row->name, s,
								    (long)index[4]);
	}
	for (int d = 0; d < row->rank_of_tensor; d++)
		cr_assert_eq(move->dst.shape[d], move->src.shape[d], "%s: dimension %d", row->name, d);
}

Test(layout, heads_of_ranks_and_groups)
{
	static const struct heads_row rows[] = {
		{ "all heads", { "hnd", "nhd" }, { 0, 0 }, { 0, 1 }, { 0, 0 }, 0, 8, 6 },
		{ "to a rank", { "hnd", "nhd" }, { 0, 0 }, { 4, 1 }, { 3, 0 }, 6, 2, 6 },
		{ "from a rank", { "universal", "page_head" }, { 0, 0 }, { 1, 2 }, { 0, 1 }, 4, 4, 6 },
		{ "to a smaller rank", { "nhd", "lbhnc" }, { 0, 0 }, { 8, 2 }, { 5, 1 }, 5, 1, 6 },
		{ "to a larger rank", { "lbhnc", "nhd" }, { 0, 0 }, { 2, 8 }, { 1, 5 }, 5, 1, 6 },
		{ "more ranks than heads", { "nhd", "hnd" }, { 0, 0 }, { 16, 1 }, { 11, 0 }, 5, 1, 6 },
		{ "replicated on both", { "nhd", "hnd" }, { 0, 0 }, { 16, 32 }, { 11, 21 }, 5, 1, 6 },
		{ "groups", { "page_unified", "nhd" }, { 2, 0 }, { 1, 1 }, { 0, 0 }, 0, 8, 7 },
		{ "from groups", { "hnd", "page_unified" }, { 0, 4 }, { 1, 1 }, { 0, 0 }, 0, 8, 7 },
		{ "one group", { "page_unified", "nhd" }, { 8, 0 }, { 1, 1 }, { 0, 0 }, 0, 8, 6 },
		{ "groups of a rank", { "page_unified", "nhd" }, { 2, 0 }, { 2, 1 }, { 1, 0 }, 4, 4, 7 },
		{ "a rank within a group", { "nhd", "page_unified" }, { 0, 4 }, { 4, 1 }, { 3, 0 }, 6, 2, 6 },
		{ "groups into groups",
		  { "page_unified", "page_unified" },
		  { 2, 4 },
		  { 1, 1 },
		  { 0, 0 },
		  0,
		  8,
		  8 },
		{ "groups into smaller ones",
		  { "page_unified", "page_unified" },
		  { 4, 2 },
		  { 1, 1 },
		  { 0, 0 },
		  0,
		  8,
		  8 },
		{ "the same groups",
		  { "page_unified", "page_unified" },
		  { 4, 4 },
		  { 1, 1 },
		  { 0, 0 },
		  0,
		  8,
		  7 },
		{ "groups into one",
		  { "page_unified", "page_unified" },
		  { 8, 2 },
		  { 1, 1 },
		  { 0, 0 },
		  0,
		  8,
		  7 },
		{ "groups of one head",
		  { "page_unified", "page_unified" },
		  { 1, 0 },
		  { 1, 1 },
		  { 0, 0 },
		  0,
		  8,
		  6 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct tma_layout_cache cache[2];
		struct tma_layout_move move;
		tma_client *client = tma_new();

		for (int s = 0; s < 2; s++) {
			cache[s] = cache_of(rows[i].layout[s]);
			cache[s].heads = 8;
			cache[s].group = rows[i].group[s];
			cache[s].ranks = rows[i].ranks[s];
			cache[s].rank = rows[i].rank[s];
		}
		cr_assert_eq(tma_layout_convert(client, &cache[0], NULL, &cache[1], NULL, &move), 0, "%s: %s",
		             rows[i].name, tma_last_error(client));
		assert_moves(&rows[i], cache, &move);
		cr_assert(move.transform.dst == &move.dst && move.transform.src == &move.src, "%s",
		          rows[i].name);
		tma_free(client);
	}
}

Test(layout, parts)
{
	struct tma_layout_cache cache = cache_of("hnd");
	struct tma_layout_part part = { .first_layer = 1,
		                        .layers = 1,
		                        .first_kv = 1,
		                        .first_block = 2,
		                        .blocks = 3,
		                        .tokens = 5,
		                        .first_head = 1,
		                        .heads = 2 };
	static const int64_t shape[] = { 1, 1, 3, 5, 2, D }, first[] = { 1, 1, 2, 0, 1, 0 };
	int64_t strides[TMA_MAX_RANK];
	struct tma_tensor t;

	cache.offset = 1000;
	cr_assert_eq(tma_layout_tensor(NULL, &cache, &part, strides, &t), 0);
	cr_assert_eq(memcmp(t.shape, shape, sizeof shape), 0);
	cr_assert_eq(t.offset, 1000 + 2 * (uint64_t)walk(&cache, first, H, 0));
}

/* There are gaps between layers, and between blocks within a layer. */
Test(layout, steps)
{
	enum { BLOCK = T * H * D + 3, LAYER = 2 * N * BLOCK + 100 };
	static const int64_t nhd[] = { LAYER, N * BLOCK, BLOCK, H * D, D, 1 };
	static const int64_t page_first[] = {
		H * D + 2, N * (T * L * (H * D + 2) + 7), T * L * (H * D + 2) + 7, L * (H * D + 2), D, 1
	};
	struct tma_layout_cache cache = cache_of("nhd");
	int64_t strides[TMA_MAX_RANK];
	struct tma_tensor t;
	uint64_t bytes;

	cache.layer_step = 2 * LAYER;
	cache.block_step = 2 * BLOCK;
	cr_assert_eq(tma_layout_tensor(NULL, &cache, NULL, strides, &t), 0);
	assert_strides("nhd", &t, 6, nhd);
	cr_assert_eq(tma_layout_bytes(NULL, &cache, &bytes), 0);
	cr_assert_eq(bytes, 2 * L * LAYER);

	cache.layout = tma_layout_find("page_first");
	cache.layer_step = 2 * (H * D + 2);
	cache.block_step = 2 * (T * L * (H * D + 2) + 7);
	cr_assert_eq(tma_layout_tensor(NULL, &cache, NULL, strides, &t), 0);
	assert_strides("page_first", &t, 6, page_first);
}

Test(layout, one_layer_of_one_key_is_the_default)
{
	struct tma_layout_cache cache = {
		.layout = tma_layout_find("nhd"), .dtype = TMA_UINT8, .tokens = T, .heads = H, .head_size = D
	};
	static const int64_t shape[] = { 1, 2, 1, T, H, D };
	int64_t strides[TMA_MAX_RANK];
	struct tma_tensor t;

	cr_assert_eq(tma_layout_tensor(NULL, &cache, NULL, strides, &t), 0);
	cr_assert_eq(memcmp(t.shape, shape, sizeof shape), 0);
}

/* ---- Lists of blocks ----------------------------------------------------------------------------------- */

Test(layout, lists_of_blocks)
{
	const struct tma_layout_part last = { .first_layer = 1, .layers = 2, .first_block = 1 };
	const struct tma_layout_part two = { .layers = 2, .blocks = 3 };
	struct tma_layout_cache pool = cache_of("page_first_direct"), buffer = cache_of("universal");
	static const int64_t shape[] = { 2, T, H, D };
	static const int64_t pool_strides[] = { N * L * T * H * D, H * D, D, 1 };
	static const int64_t buffer_strides[] = { T * D, D, 2 * 2 * T * D, 1 };
	struct tma_layout_move move;
	struct tma_blocks blocks;

	buffer.layers = 2;
	for (int scatter = 0; scatter < 2; scatter++) {
		const struct tma_tensor *in_pool = scatter ? &move.dst : &move.src;
		const struct tma_tensor *in_buffer = scatter ? &move.src : &move.dst;

		cr_assert_eq(
		    scatter ? tma_layout_blocks(NULL, &pool, &last, &buffer, &two, true, &move, &blocks)
			    : tma_layout_blocks(NULL, &buffer, &two, &pool, &last, false, &move, &blocks),
		    0);
		assert_strides("pool", in_pool, 4, pool_strides);
		assert_strides("buffer", in_buffer, 4, buffer_strides);
		cr_assert_eq(memcmp(in_pool->shape, shape, sizeof shape), 0);
		cr_assert_eq(in_pool->offset, 2 * (L * T * H * D + T * H * D));
		cr_assert_eq(in_buffer->offset, 0);
		cr_assert_eq(blocks.transform, &move.transform);
		cr_assert_eq(blocks.count, 3);
		cr_assert_eq(blocks.limit, N - 1);
		cr_assert_eq(blocks.layers, 2);
		cr_assert_eq(scatter ? blocks.dst_step : blocks.src_step, 2 * L * T * H * D);
		cr_assert_eq(scatter ? blocks.src_step : blocks.dst_step, 2 * H * 2 * 2 * T * D);
		cr_assert_eq(scatter ? blocks.dst_layer_step : blocks.src_layer_step, 2 * T * H * D);
		cr_assert_eq(scatter ? blocks.src_layer_step : blocks.dst_layer_step, 2 * 2 * T * D);
	}
	pool.layers = buffer.layers = 1;
	cr_assert_eq(tma_layout_blocks(NULL, &buffer, NULL, &pool, NULL, false, &move, &blocks), 0);
	cr_assert(blocks.layers == 0 && blocks.dst_layer_step == 0 && blocks.src_layer_step == 0);
}

/* If the layers of a side, or its keys and values, lie apart, the tensor describes one of them. */
Test(layout, layers_apart)
{
	static const struct {
		const char *name;
		int64_t layers[2], kv[2]; /* of dst and of src */
		uint32_t want;
		uint64_t dst_layer_step, src_layer_step;
		int64_t kv_of_block;
	} rows[] = {
		{ "layers of src", { L, 1 }, { 2, 2 }, L, 2 * 2 * T * D, 0, 2 },
		{ "layers of dst", { 1, L }, { 2, 2 }, L, 0, 2 * 2 * N * T * H * D, 2 },
		{ "keys and values of src", { L, 1 }, { 2, 1 }, 2 * L, 0, 0, 1 },
		{ "keys and values of dst", { 1, L }, { 1, 2 }, 2 * L, 0, 0, 1 },
		{ "keys and values of a layer", { 1, 1 }, { 1, 2 }, 2, 0, 0, 1 },
		{ "keys alone", { L, 1 }, { 1, 1 }, L, 2 * T * D, 0, 1 },
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct tma_layout_cache to = cache_of("universal"), from = cache_of("nhd");
		struct tma_layout_move move;
		struct tma_blocks blocks;

		to.layers = rows[i].layers[0];
		from.layers = rows[i].layers[1];
		to.kv = rows[i].kv[0];
		from.kv = rows[i].kv[1];
		cr_assert_eq(tma_layout_blocks(NULL, &to, NULL, &from, NULL, false, &move, &blocks), 0, "%s",
		             rows[i].name);
		cr_assert_eq(blocks.layers, rows[i].want, "%s: %u", rows[i].name, blocks.layers);
		cr_assert_eq(blocks.dst_layer_step, rows[i].dst_layer_step, "%s: %lu", rows[i].name,
		             (unsigned long)blocks.dst_layer_step);
		cr_assert_eq(blocks.src_layer_step, rows[i].src_layer_step, "%s: %lu", rows[i].name,
		             (unsigned long)blocks.src_layer_step);
		cr_assert_eq(move.dst.shape[0], rows[i].kv_of_block, "%s", rows[i].name);
		cr_assert_eq(move.src.shape[0], rows[i].kv_of_block, "%s", rows[i].name);
	}
}

Test(layout, offsets_of_layers)
{
	struct tma_layout_cache cache = cache_of("page_first");
	const struct tma_layout_part part = { .first_layer = 1 };
	enum { K = 2 * N * T * L * H * D, NEXT = 2 * H * D };
	static const int64_t want[] = { 0, K, NEXT, NEXT + K };
	int64_t offsets[COUNT(want) + 1] = { [COUNT(want)] = 77 };

	cr_assert_eq(tma_layout_layer_offsets(NULL, &cache, &part, offsets), 0);
	cr_assert_eq(memcmp(offsets, want, sizeof want), 0);
	cr_assert_eq(offsets[COUNT(want)], 77);
}
