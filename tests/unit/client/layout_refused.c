/* SPDX-License-Identifier: Apache-2.0 */
/* Tests what the functions of named layouts refuse, and with which message. */
#include "layouts.h"

static struct tma_layout_cache dst, src;
static struct tma_layout_part dst_part, src_part;

static void set_null_layout(void)
{
	dst.layout = NULL;
}

static void set_blocked(void)
{
	src.layout = tma_layout_find("nchw16c");
}

static void set_dtype(void)
{
	dst.dtype = (enum tma_dtype)99;
}

static void set_other_dtype(void)
{
	dst.dtype = TMA_FLOAT32;
}

static void set_no_tokens(void)
{
	src.tokens = 0;
}

static void set_negative_layers(void)
{
	dst.layers = -1;
}

static void set_rank(void)
{
	dst.ranks = dst.rank = 2;
}

static void set_odd_ranks(void)
{
	dst.ranks = 3;
}

static void set_unused(void)
{
	src.unused = 1;
}

static void set_reserved(void)
{
	src.reserved[7] = 1;
}

static void set_part_reserved(void)
{
	dst_part.reserved[2] = 1;
}

static void set_huge(void)
{
	dst.blocks = src.blocks = INT64_MAX / (L * 2 * T * H * D);
}

static void set_far(void)
{
	src.offset = UINT64_MAX - 100;
}

static void set_odd_step(void)
{
	src.layer_step = 2 * 2 * N * T * H * D + 1;
}

static void set_short_step(void)
{
	dst.block_step = 2 * T * H * D - 2;
}

static void set_negative_step(void)
{
	dst.layer_step = -16;
}

static void set_long_step(void)
{
	dst.layer_step = INT64_MAX / 2 * 2;
}

static void set_group(void)
{
	dst.layout = tma_layout_find("page_unified");
	dst.group = 3;
}

static void set_negative_group(void)
{
	dst.group = -1;
}

static void set_part_of_groups(void)
{
	dst.layout = tma_layout_find("page_unified");
	dst.group = 2;
	dst_part.heads = src_part.heads = 3;
}

static void set_other_groups(void)
{
	dst.layout = src.layout = tma_layout_find("page_unified");
	dst.heads = src.heads = 6;
	dst.group = 2;
	src.group = 3;
}

static void set_other_blocks(void)
{
	dst.blocks = N - 1;
}

static void set_other_heads(void)
{
	dst.heads = H + 1;
}

static void set_other_part(void)
{
	dst_part.heads = 1;
}

static void set_apart(void)
{
	dst.ranks = src.ranks = 2;
	dst.rank = 1;
}

static void set_past_the_end(void)
{
	src_part.first_block = N - 1;
	src_part.blocks = 2;
}

static void set_empty_part(void)
{
	src_part.first_block = N;
}

static void set_negative_part(void)
{
	dst_part.first_token = -1;
}

static void set_part_of_other_rank(void)
{
	dst.ranks = 2;
	dst.rank = 1;
	dst_part.heads = src_part.heads = 1;
}

Test(layout, what_is_refused)
{
	static const struct {
		void (*set)(void);
		int status;
		const char *message;
	} rows[] = {
		{ set_null_layout, TMA_INVALID_ARGUMENT, "dst.layout: NULL, which names no layout" },
		{ set_blocked, TMA_INVALID_ARGUMENT,
		  "src.layout: nchw16c is of blocked tensors, not of KV caches" },
		{ set_dtype, TMA_INVALID_ARGUMENT, "dst.dtype: 99 is not an enum tma_dtype" },
		{ set_other_dtype, TMA_INVALID_ARGUMENT,
		  "dst.dtype: float32, but src is bfloat16; a transform does not convert elements" },
		{ set_no_tokens, TMA_INVALID_ARGUMENT, "src.tokens: 0, but it must be at least 1" },
		{ set_negative_layers, TMA_INVALID_ARGUMENT, "dst.layers: -1, but it must be at least 1" },
		{ set_rank, TMA_INVALID_ARGUMENT, "dst.rank: 2 is not in 0..1" },
		{ set_odd_ranks, TMA_INVALID_ARGUMENT, "dst.heads: 4 cannot be shared equally by 3 ranks" },
		{ set_unused, TMA_INVALID_ARGUMENT, "src.unused: 1, but it must be 0" },
		{ set_reserved, TMA_INVALID_ARGUMENT, "src.reserved[7]: 0x1, which libtmaclient " },
		{ set_part_reserved, TMA_INVALID_ARGUMENT, "dst_part.reserved[2]: 0x1, which libtmaclient " },
		{ set_huge, TMA_INVALID_ARGUMENT,
		  "dst.layers: 3 makes the size of the cache overflow 63 bits" },
		{ set_far, TMA_INVALID_ARGUMENT,
		  "src.offset: 18446744073709551515, after which 13440 bytes overflow 64 bits" },
		{ set_odd_step, TMA_INVALID_ARGUMENT,
		  "src.layer_step: 4481, but it must be a multiple of 2 bytes and at least 4480" },
		{ set_short_step, TMA_INVALID_ARGUMENT,
		  "dst.block_step: 446, but it must be a multiple of 2 bytes and at least 448" },
		{ set_negative_step, TMA_INVALID_ARGUMENT,
		  "dst.layer_step: -16, but it must be a multiple of 2 bytes and at least 4480" },
		{ set_long_step, TMA_INVALID_ARGUMENT,
		  "dst.layers: 3 makes the size of the cache overflow 63 bits" },
		{ set_group, TMA_INVALID_ARGUMENT,
		  "dst.group: groups of 3 do not divide the 4 heads of a rank" },
		{ set_negative_group, TMA_INVALID_ARGUMENT, "dst.group: -1 is negative" },
		{ set_part_of_groups, TMA_INVALID_ARGUMENT,
		  "heads: 3 from 0 on are part of several groups of 2; move whole groups, or heads of one" },
		{ set_other_groups, TMA_INVALID_ARGUMENT,
		  "group: dst has groups of 2 heads and src of 3; one must be a multiple of the other" },
		{ set_other_blocks, TMA_INVALID_ARGUMENT,
		  "blocks: the part of dst has 4, but that of src has 5" },
		{ set_other_heads, TMA_INVALID_ARGUMENT,
		  "heads: dst is of a model with 5 and src of one with 4; " },
		{ set_other_part, TMA_INVALID_ARGUMENT,
		  "heads: the part of dst has 1, but that of src has 4" },
		{ set_apart, TMA_INVALID_ARGUMENT,
		  "heads: dst has 2..3 and src 0..1, of which none is in both" },
		{ set_past_the_end, TMA_OUT_OF_RANGE,
		  "src.blocks: the part has 2 from 4 on, but the cache has 5 from 0 on" },
		{ set_empty_part, TMA_OUT_OF_RANGE, "src.blocks: the part has none, because it starts at 5" },
		{ set_negative_part, TMA_OUT_OF_RANGE,
		  "dst.tokens: the part has 0 from -1 on, but the cache has 7 from 0 on" },
		{ set_part_of_other_rank, TMA_OUT_OF_RANGE,
		  "dst.heads: the part has 1 from 0 on, but the cache has 2 from 2 on" },
	};
	tma_client *client = tma_new();

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct tma_layout_move move, untouched;
		int rc;

		dst = cache_of("hnd");
		src = cache_of("nhd");
		dst_part = src_part = (struct tma_layout_part){ 0 };
		rows[i].set();
		memset(&move, 0x5a, sizeof move);
		memset(&untouched, 0x5a, sizeof untouched);
		rc = tma_layout_convert(client, &dst, &dst_part, &src, &src_part, &move);
		cr_assert_eq(rc, rows[i].status, "%s: %d", rows[i].message, rc);
		cr_assert_eq(strncmp(tma_last_error(client), rows[i].message, strlen(rows[i].message)), 0,
		             "expected %s, got %s", rows[i].message, tma_last_error(client));
		cr_assert_eq(memcmp(&move, &untouched, sizeof move), 0, "%s", rows[i].message);
		cr_assert_eq(tma_layout_convert(NULL, &dst, &dst_part, &src, &src_part, &move),
		             rows[i].status);
	}
	tma_free(client);
}

Test(layout, what_the_other_functions_refuse)
{
	static const int64_t negative[] = { 1, -2, 3, 4 }, huge[] = { INT64_MAX / 16, 17, 1, 1 },
			     plain[4] = { 0 };
	static const struct {
		const char *layout;
		int rank;
		const int64_t *shape;
		const char *message;
	} rows[] = {
		{ "none", 4, plain, "layout: NULL, which names no layout" },
		{ "nhd", 4, plain, "layout: nhd is of KV caches, not of blocked tensors" },
		{ "nchw16c", 3, plain, "rank: 3, but tensors of nchw16c have 4 dimensions" },
		{ "nchw16c", 4, NULL, "shape is NULL, but rank is 4" },
		{ "nchw16c", 4, negative, "shape: dimension 1 is -2, but no dimension can be negative" },
		{ "nchw16c", 4, huge, "shape: in blocks, its number of elements overflows 63 bits" },
	};
	struct tma_layout_blocking blocking;
	struct tma_layout_move move;
	struct tma_blocks blocks;
	int64_t strides[TMA_MAX_RANK];
	struct tma_tensor tensor;
	tma_client *client = tma_new();
	uint64_t bytes;

	for (size_t i = 0; i < COUNT(rows); i++) {
		cr_assert_eq(tma_layout_split(client, tma_layout_find(rows[i].layout), rows[i].rank,
		                              rows[i].shape, &blocking),
		             TMA_INVALID_ARGUMENT, "%s", rows[i].message);
		cr_assert_str_eq(tma_last_error(client), rows[i].message);
	}
	cr_assert_eq(tma_layout_bytes(client, NULL, &bytes), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "cache: NULL; it must be a struct tma_layout_cache");
	cr_assert_eq(tma_layout_tensor(client, NULL, NULL, strides, &tensor), TMA_INVALID_ARGUMENT);
	dst = src = cache_of("nhd");
	cr_assert_eq(tma_layout_convert(client, &dst, NULL, NULL, NULL, &move), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "src: NULL; it must be a struct tma_layout_cache");
	cr_assert_eq(tma_layout_layer_offsets(client, NULL, NULL, strides), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "cache: NULL; it must be a struct tma_layout_cache");
	dst.layers = 2;
	cr_assert_eq(tma_layout_blocks(client, &dst, NULL, &src, NULL, false, &move, &blocks),
	             TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "layers: the part of dst has 2, but that of src has 3");
	dst.kv = 1;
	dst.layers = 3;
	cr_assert_eq(tma_layout_blocks(client, &dst, NULL, &src, NULL, false, &move, &blocks),
	             TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "kv: the part of dst has 1, but that of src has 2");
	dst.kv = 2;
	dst.layers = src.layers = INT64_C(1) << 32;
	cr_assert_eq(tma_layout_blocks(client, &dst, NULL, &src, NULL, false, &move, &blocks),
	             TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "layers: 4294967296, but it must be 1 to 4294967295");
	tma_free(client);
}
