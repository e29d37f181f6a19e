/* SPDX-License-Identifier: Apache-2.0 */
/* One side of a conversion between KV caches: checks its sizes and its part, and derives strides and a tensor
 * from them.
 *
 * Heads are what makes this more than a table of strides. A rank of a tensor-parallel model has only some of
 * the heads, and a layout may put them into groups, so that a range of heads has two strides.
 */
#include "layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int side_ranks(struct kv_side *side, const char *name, struct error *err);
static int side_strides(struct kv_side *side, const int64_t size[KV_DIMENSIONS], const char *name,
                        struct error *err);
static int side_part(struct kv_side *side, const struct tma_layout_part *part,
                     const int64_t size[KV_DIMENSIONS], const char *name, struct error *err);

static const char letters[KV_LETTERS + 1] = "lknthdg";

/* names of the cache's members, for errors */
static const char *const names[KV_DIMENSIONS] = { "layers", "kv", "blocks", "tokens", "heads", "head_size" };

/* ---- The cache ---------------------------------------------------------------------------------------- */

static int64_t or_else(int64_t size, int64_t instead)
{
	return size ? size : instead;
}

static int side_layout(const struct tma_layout_cache *cache, const char *name, struct error *err)
{
	if (!cache->layout)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.layout: NULL, which names no layout",
		                 name);
	if (cache->layout->split)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.layout: %s is of blocked tensors, not of KV caches", name,
		                 cache->layout->name);
	if ((unsigned)cache->dtype >= DTYPE_COUNT)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.dtype: %d is not an enum tma_dtype", name,
		                 (int)cache->dtype);
	return 0;
}

int kv_side_init(struct kv_side *ret, const struct tma_layout_cache *cache,
                 const struct tma_layout_part *part, const char *name, struct error *err)
{
	static const struct tma_layout_part all;
	int64_t size[KV_DIMENSIONS];
	char field[32];
	int rc;

	if (!cache)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: NULL; it must be a struct tma_layout_cache", name);
	*ret = (struct kv_side){ .cache = cache };
	part = part ? part : &all;
	snprintf(field, sizeof field, "%s.reserved", name);
	rc = reserved_find(cache->reserved, COUNT(cache->reserved), field, err);
	snprintf(field, sizeof field, "%s_part.reserved", name);
	if (rc == 0)
		rc = reserved_find(part->reserved, COUNT(part->reserved), field, err);
	if (rc == 0)
		rc = side_layout(cache, name, err);
	if (rc < 0)
		return rc;
	size[KV_LAYER] = or_else(cache->layers, 1);
	size[KV_KV] = or_else(cache->kv, 2);
	size[KV_BLOCK] = or_else(cache->blocks, 1);
	size[KV_TOKEN] = cache->tokens;
	size[KV_HEAD] = cache->heads;
	size[KV_ELEMENT] = cache->head_size;
	for (int d = 0; d < KV_DIMENSIONS; d++)
		if (size[d] < 1)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.%s: %" PRId64 ", but it must be at least 1", name, names[d],
			                 size[d]);
	rc = side_ranks(ret, name, err);
	size[KV_HEAD] = ret->heads_of_rank;
	if (rc == 0)
		rc = side_strides(ret, size, name, err);
	return rc < 0 ? rc : side_part(ret, part, size, name, err);
}

/* Finds the heads of the rank, as models distribute them: equally, or, if there are more ranks than heads,
 * one head to several ranks. */
static int side_ranks(struct kv_side *side, const char *name, struct error *err)
{
	const int64_t heads = side->cache->heads;
	const int64_t ranks = side->cache->ranks ? side->cache->ranks : 1;
	const int64_t rank = side->cache->rank;

	if (side->cache->unused)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.unused: %u, but it must be 0", name,
		                 side->cache->unused);
	if (rank >= ranks)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.rank: %" PRId64 " is not in 0..%" PRId64,
		                 name, rank, ranks - 1);
	if (heads % ranks && ranks % heads)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.heads: %" PRId64 " cannot be shared equally by %" PRId64 " ranks", name,
		                 heads, ranks);
	side->heads_of_rank = heads >= ranks ? heads / ranks : 1;
	side->first_of_rank = heads >= ranks ? rank * side->heads_of_rank : rank / (ranks / heads);
	return 0;
}

static int side_groups(struct kv_side *side, const char *name, struct error *err)
{
	if (side->cache->group < 0)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.group: %" PRId64 " is negative", name,
		                 side->cache->group);
	if (!strchr(side->cache->layout->order, letters[KV_GROUP]))
		return 0;
	side->group = or_else(side->cache->group, 1);
	if (side->heads_of_rank % side->group)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.group: groups of %" PRId64 " do not divide the %" PRId64
		                 " heads of a rank",
		                 name, side->group, side->heads_of_rank);
	return 0;
}

/* Applies the cache's layer_step or block_step, if it has one: side->total, so far the packed distance
 * between two entries of the dimension in elements, becomes the requested distance. */
static int side_step(struct kv_side *side, int d, int64_t item, const char *name, struct error *err)
{
	const struct tma_layout_cache *cache = side->cache;
	const int64_t step = d == KV_LAYER ? cache->layer_step : d == KV_BLOCK ? cache->block_step : 0;
	const char *what = d == KV_LAYER ? "layer" : "block";

	if (step == 0)
		return 0;
	if (step % item || step / item < side->total)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.%s_step: %" PRId64 ", but it must be a multiple of %" PRId64
		                 " bytes and at least %" PRId64,
		                 name, what, step, item, side->total * item);
	side->total = step / item;
	return 0;
}

/* Computes the strides, from the innermost dimension outwards. */
static int side_strides(struct kv_side *side, const int64_t size[KV_DIMENSIONS], const char *name,
                        struct error *err)
{
	const char *order = side->cache->layout->order;
	const int64_t item = (int64_t)tma_dtype_size(side->cache->dtype);
	int64_t extent[KV_LETTERS];
	int64_t bytes = item;
	uint64_t end;
	int rc = side_groups(side, name, err);

	memcpy(extent, size, KV_DIMENSIONS * sizeof *size);
	extent[KV_GROUP] = 1;
	if (side->group) {
		extent[KV_GROUP] = side->heads_of_rank / side->group;
		extent[KV_HEAD] = side->group;
	}
	side->total = 1;
	for (size_t i = strlen(order); rc == 0 && i-- > 0;) {
		const char *letter = strchr(letters, order[i]);
		const int d = letter ? (int)(letter - letters) : KV_LETTERS;

		if (!letter)
			continue;
		rc = side_step(side, d, item, name, err);
		side->stride[d] = side->total;
		if (rc == 0 && (__builtin_mul_overflow(side->total, extent[d], &side->total) ||
		                __builtin_mul_overflow(side->total, item, &bytes)))
			rc =
			    error_set(err, STATUS_INVALID_ARGUMENT,
			              "%s.%s: %" PRId64 " makes the size of the cache overflow 63 bits", name,
			              names[d == KV_GROUP ? KV_HEAD : d], size[d == KV_GROUP ? KV_HEAD : d]);
	}
	if (rc == 0 && __builtin_add_overflow(side->cache->offset, (uint64_t)bytes, &end))
		rc = error_set(err, STATUS_INVALID_ARGUMENT,
		               "%s.offset: %" PRIu64 ", after which %" PRId64 " bytes overflow 64 bits", name,
		               side->cache->offset, bytes);
	return rc;
}

/* ---- The part ----------------------------------------------------------------------------------------- */

/* Checks that [first, first + *n) lies within [low, low + size). If *n is 0, sets it to the number of indices
 * from first on. Errors call the side `name`, and what is counted `what`. */
static int range_check(int64_t first, int64_t *n, int64_t low, int64_t size, const char *name,
                       const char *what, struct error *err)
{
	if (first < low || first > low + size || *n < 0 || *n > low + size - first)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s.%s: the part has %" PRId64 " from %" PRId64
		                 " on, but the cache has %" PRId64 " from %" PRId64 " on",
		                 name, what, *n, first, size, low);
	*n = or_else(*n, low + size - first);
	if (*n == 0)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s.%s: the part has none, because it starts at %" PRId64, name, what,
		                 first);
	return 0;
}

static int side_part(struct kv_side *side, const struct tma_layout_part *part,
                     const int64_t size[KV_DIMENSIONS], const char *name, struct error *err)
{
	const int64_t first[KV_DIMENSIONS] = { part->first_layer, part->first_kv,   part->first_block,
		                               part->first_token, part->first_head, 0 };
	const int64_t extent[KV_DIMENSIONS] = { part->layers, part->kv,    part->blocks,
		                                part->tokens, part->heads, 0 };
	int rc = 0;

	side->has_heads = part->first_head || part->heads;
	for (int d = 0; d < KV_DIMENSIONS && rc == 0; d++) {
		const int64_t low = d == KV_HEAD ? side->first_of_rank : 0;

		side->first[d] = first[d];
		side->extent[d] = extent[d];
		if (d == KV_HEAD && !side->has_heads)
			side->first[d] = low;
		rc = range_check(side->first[d], &side->extent[d], low, size[d], name, names[d], err);
		side->first[d] -= low;
	}
	return rc;
}

/* ---- Two sides ---------------------------------------------------------------------------------------- */

/* Selects all heads that both sides have, by their numbers in the model. */
static int match_heads(struct kv_side *dst, struct kv_side *src, struct error *err)
{
	const int64_t dst_end = dst->first_of_rank + dst->heads_of_rank;
	const int64_t src_end = src->first_of_rank + src->heads_of_rank;
	const int64_t first =
	    dst->first_of_rank > src->first_of_rank ? dst->first_of_rank : src->first_of_rank;
	const int64_t end = dst_end < src_end ? dst_end : src_end;

	if (dst->cache->heads != src->cache->heads)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "heads: dst is of a model with %" PRId64 " and src of one with %" PRId64
		                 "; a part says which of them",
		                 dst->cache->heads, src->cache->heads);
	if (first >= end)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "heads: dst has %" PRId64 "..%" PRId64 " and src %" PRId64 "..%" PRId64
		                 ", of which none is in both",
		                 dst->first_of_rank, dst_end - 1, src->first_of_rank, src_end - 1);
	dst->first[KV_HEAD] = first - dst->first_of_rank;
	src->first[KV_HEAD] = first - src->first_of_rank;
	dst->extent[KV_HEAD] = src->extent[KV_HEAD] = end - first;
	return 0;
}

int kv_sides_match(struct kv_side *dst, struct kv_side *src, struct error *err)
{
	int rc = dst->has_heads || src->has_heads ? 0 : match_heads(dst, src, err);

	if (rc < 0)
		return rc;
	if (dst->cache->dtype != src->cache->dtype)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst.dtype: %s, but src is %s; a transform does not convert elements",
		                 tma_dtype_name(dst->cache->dtype), tma_dtype_name(src->cache->dtype));
	for (int d = 0; d < KV_DIMENSIONS; d++)
		if (dst->extent[d] != src->extent[d])
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s: the part of dst has %" PRId64 ", but that of src has %" PRId64,
			                 names[d], dst->extent[d], src->extent[d]);
	return 0;
}

/* ---- Groups of heads ---------------------------------------------------------------------------------- */

/* Adds the group size of a side, unless its heads lie within one group or are evenly spaced. */
static int groups_add(struct kv_groups *groups, const struct kv_side *side, struct error *err)
{
	const int64_t first = side->first[KV_HEAD], n = side->extent[KV_HEAD], group = side->group;

	if (group <= 1 || first % group + n <= group)
		return 0;
	if (first % group || n % group)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "heads: %" PRId64 " from %" PRId64
		                 " on are part of several groups of %" PRId64
		                 "; move whole groups, or heads of one",
		                 n, first + side->first_of_rank, group);
	if (groups->n && groups->heads[0] == group)
		return 0;
	if (groups->n && groups->heads[0] % group && group % groups->heads[0])
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "group: dst has groups of %" PRId64 " heads and src of %" PRId64
		                 "; one must be a multiple of the other",
		                 groups->heads[0], group);
	groups->heads[groups->n++] = group;
	if (groups->n == 2 && groups->heads[0] > group) {
		groups->heads[1] = groups->heads[0];
		groups->heads[0] = group;
	}
	return 0;
}

int kv_groups_of(struct kv_groups *ret, const struct kv_side *dst, const struct kv_side *src,
                 struct error *err)
{
	int rc;

	*ret = (struct kv_groups){ 0 };
	rc = groups_add(ret, dst, err);
	return rc < 0 || !src ? rc : groups_add(ret, src, err);
}

/* Returns the distance between a moved head and the one `heads` further on, in elements. */
static int64_t heads_stride(const struct kv_side *side, int64_t heads)
{
	const int64_t group = side->group;
	const bool is_within = group <= 1 || side->first[KV_HEAD] % group + side->extent[KV_HEAD] <= group;

	if (group == 1)
		return heads * side->stride[KV_GROUP];
	return is_within || heads < group ? heads * side->stride[KV_HEAD]
	                                  : heads / group * side->stride[KV_GROUP];
}

static int64_t heads_offset(const struct kv_side *side)
{
	const int64_t first = side->first[KV_HEAD];

	if (!side->group)
		return first * side->stride[KV_HEAD];
	return first / side->group * side->stride[KV_GROUP] + first % side->group * side->stride[KV_HEAD];
}

void kv_tensor(const struct kv_side *side, const struct kv_groups *groups, unsigned without, int64_t *strides,
               struct tma_tensor *ret)
{
	const struct tma_layout_cache *cache = side->cache;
	int64_t first = heads_offset(side);
	int rank = 0;

	*ret = (struct tma_tensor){ .region = cache->region, .dtype = cache->dtype, .strides = strides };
	for (int d = 0; d < KV_DIMENSIONS; d++) {
		if (d != KV_HEAD)
			first += side->first[d] * side->stride[d];
		if (without & 1u << d)
			continue;
		if (d == KV_HEAD) {
			int64_t n = side->extent[d];

			for (int i = groups->n; i-- > 0; n = groups->heads[i]) {
				ret->shape[rank] = n / groups->heads[i];
				strides[rank++] = heads_stride(side, groups->heads[i]);
			}
			ret->shape[rank] = n;
			strides[rank++] = heads_stride(side, 1);
		} else {
			ret->shape[rank] = side->extent[d];
			strides[rank++] = side->stride[d];
		}
	}
	ret->rank = rank;
	ret->offset = cache->offset + (uint64_t)first * tma_dtype_size(cache->dtype);
}
