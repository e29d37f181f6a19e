/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the table of named layouts against strides of each KV cache and parts of each blocked tensor that
 * were written by hand. */
#include "layouts.h"

/* The strides of [layer, kv, block, token, head, element] that follow from the shapes in the programs' own
 * code, for these sizes. */
Test(layout, strides_of_every_kv_layout)
{
	static const struct {
		const char *name;
		int64_t strides[6];
	} rows[] = {
		/* [layers] x [blocks, tokens, heads, key and value], and [blocks, heads, tokens, key and
		   value] */
		{ "vllm_nhd", { N * T * H * 2 * D, D, T * H * 2 * D, H * 2 * D, 2 * D, 1 } },
		{ "vllm_hnd", { N * H * T * 2 * D, D, H * T * 2 * D, 2 * D, T * 2 * D, 1 } },
		/* [layers] x [2, blocks, tokens, heads, head size] */
		{ "nhd", { 2 * N * T * H * D, N * T * H * D, T * H * D, H * D, D, 1 } },
		/* [layers] x [2, blocks, heads, tokens, head size] */
		{ "hnd", { 2 * N * H * T * D, N * H * T * D, H * T * D, D, T * D, 1 } },
		/* [layers] x [pages, 2, page size, heads, head size] */
		{ "flashinfer_nhd", { N * 2 * T * H * D, T * H * D, 2 * T * H * D, H * D, D, 1 } },
		/* [layers] x [pages, 2, heads, page size, head size] */
		{ "flashinfer_hnd", { N * 2 * H * T * D, H * T * D, 2 * H * T * D, D, T * D, 1 } },
		/* [layers] x [tokens, 2, heads * head size] */
		{ "token_first", { N * T * 2 * H * D, H * D, T * 2 * H * D, 2 * H * D, D, 1 } },
		/* [layers, blocks, tokens, heads, key and value] */
		{ "lbnhc", { N * T * H * 2 * D, D, T * H * 2 * D, H * 2 * D, 2 * D, 1 } },
		{ "lbhnc", { N * H * T * 2 * D, D, H * T * 2 * D, 2 * D, T * 2 * D, 1 } },
		{ "lhbnc", { H * N * T * 2 * D, D, T * 2 * D, 2 * D, N * T * 2 * D, 1 } },
		/* [blocks] x [layers, 2, tokens, heads, head size] */
		{ "block_first", { 2 * T * H * D, T * H * D, L * 2 * T * H * D, H * D, D, 1 } },
		{ "block_first_hnd", { 2 * H * T * D, H * T * D, L * 2 * H * T * D, D, T * D, 1 } },
		{ "blnhc", { T * H * 2 * D, D, L * T * H * 2 * D, H * 2 * D, 2 * D, 1 } },
		{ "blhnc", { H * T * 2 * D, D, L * H * T * 2 * D, 2 * D, T * 2 * D, 1 } },
		{ "bhlnc", { T * 2 * D, D, H * L * T * 2 * D, 2 * D, L * T * 2 * D, 1 } },
		/* [blocks] x [heads, layers, 2, tokens, head size] */
		{ "universal", { 2 * T * D, T * D, H * L * 2 * T * D, D, L * 2 * T * D, 1 } },
		{ "universal_pp", { H * 2 * T * D, T * D, L * H * 2 * T * D, D, 2 * T * D, 1 } },
		/* With one head in a group this is the same as universal. */
		{ "page_unified", { 2 * T * D, T * D, H * L * 2 * T * D, D, L * 2 * T * D, 1 } },
		/* [2] x [layers, tokens, heads, head size] */
		{ "layer_first", { N * T * H * D, L * N * T * H * D, T * H * D, H * D, D, 1 } },
		/* [2] x [tokens, layers, heads, head size] */
		{ "page_first", { H * D, N * T * L * H * D, T * L * H * D, L * H * D, D, 1 } },
		/* [2] x [pages, layers, page size, heads, head size] */
		{ "page_first_direct", { T * H * D, N * L * T * H * D, L * T * H * D, H * D, D, 1 } },
		/* [2] x [pages, heads, page size, layers, head size] */
		{ "page_head", { D, N * H * T * L * D, H * T * L * D, L * D, T * L * D, 1 } },
	};
	static const int64_t shape[] = { L, 2, N, T, H, D };
	size_t n = 0;

	for (size_t i = 0; tma_layout_at(i); i++)
		n += !tma_layout_is_blocked(tma_layout_at(i));
	cr_assert_eq(n, COUNT(rows), "a layout has no row here");
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct tma_layout_cache cache = cache_of(rows[i].name);
		int64_t strides[TMA_MAX_RANK];
		struct tma_tensor t;
		uint64_t bytes;

		cr_assert_eq(tma_layout_tensor(NULL, &cache, NULL, strides, &t), 0, "%s", rows[i].name);
		assert_strides(rows[i].name, &t, 6, rows[i].strides);
		cr_assert_eq(memcmp(t.shape, shape, sizeof shape), 0, "%s", rows[i].name);
		cr_assert_eq(t.offset, 0, "%s", rows[i].name);
		cr_assert_eq(tma_layout_bytes(NULL, &cache, &bytes), 0, "%s", rows[i].name);
		cr_assert_eq(bytes, L * 2 * N * T * H * D * 2, "%s", rows[i].name);
	}
}

Test(layout, names)
{
	size_t i = 0;

	for (; tma_layout_at(i); i++) {
		const tma_layout *layout = tma_layout_at(i);
		const char *name = tma_layout_name(layout);

		cr_assert_eq(strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(name), "%s", name);
		cr_assert_eq(tma_layout_find(name), layout, "%s: there are two", name);
		cr_assert(*tma_layout_order(layout) && *tma_layout_doc(layout), "%s", name);
	}
	cr_assert_null(tma_layout_at(SIZE_MAX));
	cr_assert_null(tma_layout_find("nhd "));
	cr_assert_null(tma_layout_find(""));
	cr_assert_null(tma_layout_find(NULL));
	cr_assert_null(tma_layout_name(NULL));
	cr_assert_null(tma_layout_order(NULL));
	cr_assert_null(tma_layout_doc(NULL));
	cr_assert(!tma_layout_is_blocked(NULL));
	cr_assert(tma_layout_is_blocked(tma_layout_find("nchw16c")));
}

/* ---- Blocked tensors ----------------------------------------------------------------------------------- */

static void assert_ints(const char *name, const char *what, int n, const int *got, const int *want)
{
	for (int i = 0; i < n; i++)
		cr_assert_eq(got[i], want[i], "%s: %s %d is %d, not %d", name, what, i, got[i], want[i]);
}

Test(layout, blocked_layouts)
{
	static const struct {
		const char *name;
		int rank;
		int64_t shape[5];
		int blocked_rank;
		int64_t blocked[8];
		int n_split;
		int64_t split[8];
		int perm[8];
	} rows[] = {
		{ "nchw4c", 4, { 2, 5, 3, 7 }, 5, { 2, 2, 3, 7, 4 }, 1, { 1, 4 }, { 0, 1, 3, 4, 2 } },
		{ "nchw8c", 4, { 2, 16, 3, 7 }, 5, { 2, 2, 3, 7, 8 }, 1, { 1, 8 }, { 0, 1, 3, 4, 2 } },
		{ "nchw16c", 4, { 2, 35, 3, 7 }, 5, { 2, 3, 3, 7, 16 }, 1, { 1, 16 }, { 0, 1, 3, 4, 2 } },
		{ "nchw32c", 4, { 1, 33, 3, 7 }, 5, { 1, 2, 3, 7, 32 }, 1, { 1, 32 }, { 0, 1, 3, 4, 2 } },
		{ "ncdhw32c",
		  5,
		  { 1, 33, 2, 3, 7 },
		  6,
		  { 1, 2, 2, 3, 7, 32 },
		  1,
		  { 1, 32 },
		  { 0, 1, 3, 4, 5, 2 } },
		{ "nhwc8c", 4, { 2, 3, 5, 7 }, 5, { 2, 5, 7, 1, 8 }, 1, { 1, 8 }, { 0, 3, 4, 1, 2 } },
		{ "nhwc16c", 4, { 2, 17, 5, 7 }, 5, { 2, 5, 7, 2, 16 }, 1, { 1, 16 }, { 0, 3, 4, 1, 2 } },
		{ "oihw16i16o",
		  4,
		  { 17, 33, 3, 5 },
		  6,
		  { 2, 3, 3, 5, 16, 16 },
		  2,
		  { 0, 16, 2, 16 },
		  { 0, 2, 4, 5, 3, 1 } },
		{ "oihw4i16o4i",
		  4,
		  { 17, 33, 3, 5 },
		  7,
		  { 2, 3, 3, 5, 4, 16, 4 },
		  3,
		  { 0, 16, 2, 16, 3, 4 },
		  { 0, 2, 5, 6, 3, 1, 4 } },
		{ "col32", 2, { 5, 70 }, 3, { 3, 5, 32 }, 1, { 1, 32 }, { 1, 0, 2 } },
		/* [M/128, 4, 32, K/4, 4] -> (0, 3, 2, 1, 4) */
		{ "scales_128x4",
		  2,
		  { 200, 9 },
		  5,
		  { 2, 3, 32, 4, 4 },
		  3,
		  { 0, 128, 1, 32, 3, 4 },
		  { 0, 3, 2, 1, 4 } },
	};
	size_t n = 0;

	for (size_t i = 0; tma_layout_at(i); i++)
		n += tma_layout_is_blocked(tma_layout_at(i));
	cr_assert_eq(n, COUNT(rows), "a layout has no row here");
	for (size_t i = 0; i < COUNT(rows); i++) {
		struct tma_layout_blocking b;

		cr_assert_eq(
		    tma_layout_split(NULL, tma_layout_find(rows[i].name), rows[i].rank, rows[i].shape, &b), 0,
		    "%s", rows[i].name);
		cr_assert_eq(b.rank, rows[i].blocked_rank, "%s: rank %d", rows[i].name, b.rank);
		cr_assert_eq(b.n_split, rows[i].n_split, "%s: %d splits", rows[i].name, b.n_split);
		cr_assert_eq(memcmp(b.shape, rows[i].blocked, (size_t)b.rank * sizeof *b.shape), 0,
		             "%s: shape", rows[i].name);
		cr_assert_eq(memcmp(b.split, rows[i].split, 2 * (size_t)b.n_split * sizeof *b.split), 0,
		             "%s: split", rows[i].name);
		assert_ints(rows[i].name, "perm", b.rank, b.perm, rows[i].perm);
		for (int d = 0; d < b.rank; d++)
			cr_assert_eq(b.inverse[b.perm[d]], d, "%s: inverse", rows[i].name);
	}
}

/* Tests the place of the scale factor in row m and column k within a tile of 512, as cuBLAS's manual defines
 * it. */
Test(layout, scale_factors_lie_where_cublas_reads_them)
{
	static const int64_t shape[] = { 300, 10 };
	struct tma_layout_blocking b;

	cr_assert_eq(tma_layout_split(NULL, tma_layout_find("scales_128x4"), 2, shape, &b), 0);
	for (int64_t m = 0; m < 300; m++)
		for (int64_t k = 0; k < 10; k++) {
			const int64_t part[] = { m / 128, m % 128 / 32, m % 32, k / 4, k % 4 };
			int64_t at = 0;

			for (int d = 0; d < b.rank; d++)
				at = at * b.shape[d] + part[b.perm[d]];
			cr_assert_eq(at, (m / 128 * 3 + k / 4) * 512 + m % 32 * 16 + m % 128 / 32 * 4 + k % 4,
			             "%ld, %ld", (long)m, (long)k);
		}
}
