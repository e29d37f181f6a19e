/* SPDX-License-Identifier: Apache-2.0 */
/* KV caches in named layouts: tensors of them, and the requests that convert one into another. */
#include "layout.h"

#include <inttypes.h>

int tma_layout_bytes(tma_client *client, const struct tma_layout_cache *cache, uint64_t *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct kv_side side;
	int rc = kv_side_init(&side, cache, NULL, "cache", err);

	if (rc < 0)
		return rc;
	*ret = (uint64_t)side.total * tma_dtype_size(cache->dtype);
	return 0;
}

int tma_layout_tensor(tma_client *client, const struct tma_layout_cache *cache,
                      const struct tma_layout_part *part, int64_t *strides, struct tma_tensor *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct kv_groups groups;
	struct kv_side side;
	int rc = kv_side_init(&side, cache, part, "cache", err);

	if (rc == 0)
		rc = kv_groups_of(&groups, &side, NULL, err);
	if (rc == 0)
		kv_tensor(&side, &groups, 0, strides, ret);
	return rc;
}

/* Both sides, checked, with the groups that their heads have in common. */
static int sides_init(struct kv_side *dst, struct kv_side *src, struct kv_groups *groups,
                      const struct tma_layout_cache *dst_cache, const struct tma_layout_part *dst_part,
                      const struct tma_layout_cache *src_cache, const struct tma_layout_part *src_part,
                      struct error *err)
{
	int rc = kv_side_init(dst, dst_cache, dst_part, "dst", err);

	if (rc == 0)
		rc = kv_side_init(src, src_cache, src_part, "src", err);
	if (rc == 0)
		rc = kv_sides_match(dst, src, err);
	return rc < 0 ? rc : kv_groups_of(groups, dst, src, err);
}

static void move_init(struct tma_layout_move *move, const struct kv_side *dst, const struct kv_side *src,
                      const struct kv_groups *groups, unsigned without)
{
	*move = (struct tma_layout_move){ .transform = { .dst = &move->dst, .src = &move->src } };
	kv_tensor(dst, groups, without, move->dst_strides, &move->dst);
	kv_tensor(src, groups, without, move->src_strides, &move->src);
}

int tma_layout_convert(tma_client *client, const struct tma_layout_cache *dst,
                       const struct tma_layout_part *dst_part, const struct tma_layout_cache *src,
                       const struct tma_layout_part *src_part, struct tma_layout_move *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct kv_side to, from;
	struct kv_groups groups;
	int rc = sides_init(&to, &from, &groups, dst, dst_part, src, src_part, err);

	if (rc == 0)
		move_init(ret, &to, &from, &groups, 0);
	return rc;
}

/* ---- Lists of blocks ---------------------------------------------------------------------------------- */

static uint64_t step_of(const struct kv_side *side, enum kv_dimension d)
{
	return (uint64_t)side->stride[d] * tma_dtype_size(side->cache->dtype);
}

int tma_layout_blocks(tma_client *client, const struct tma_layout_cache *dst,
                      const struct tma_layout_part *dst_part, const struct tma_layout_cache *src,
                      const struct tma_layout_part *src_part, bool scatter, struct tma_layout_move *move,
                      struct tma_blocks *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct kv_side to, from;
	const struct kv_side *listed = scatter ? &to : &from, *other = scatter ? &from : &to;
	struct kv_groups groups;
	int rc = kv_side_init(&to, dst, dst_part, "dst", err);
	int64_t blocks[2];

	if (rc == 0)
		rc = kv_side_init(&from, src, src_part, "src", err);
	if (rc < 0)
		return rc;
	/* The list says which blocks, so that the two sides may have different numbers of them. */
	blocks[0] = to.extent[KV_BLOCK];
	blocks[1] = from.extent[KV_BLOCK];
	to.extent[KV_BLOCK] = from.extent[KV_BLOCK] = 1;
	rc = kv_sides_match(&to, &from, err);
	if (rc == 0)
		rc = kv_groups_of(&groups, &to, &from, err);
	if (rc == 0 && to.extent[KV_LAYER] > UINT32_MAX)
		rc = error_set(err, STATUS_INVALID_ARGUMENT,
		               "layers: %" PRId64 ", but it must be 1 to %" PRIu32, to.extent[KV_LAYER],
		               UINT32_MAX);
	if (rc < 0)
		return rc;
	to.extent[KV_BLOCK] = blocks[0];
	from.extent[KV_BLOCK] = blocks[1];
	move_init(move, &to, &from, &groups, 1u << KV_BLOCK | 1u << KV_LAYER);
	*ret = (struct tma_blocks){
		.transform = &move->transform,
		.count = (size_t)other->extent[KV_BLOCK],
		.limit = (uint64_t)listed->extent[KV_BLOCK],
		.dst_step = step_of(&to, KV_BLOCK),
		.src_step = step_of(&from, KV_BLOCK),
	};
	if (to.extent[KV_LAYER] > 1) {
		ret->layers = (uint32_t)to.extent[KV_LAYER];
		ret->dst_layer_step = step_of(&to, KV_LAYER);
		ret->src_layer_step = step_of(&from, KV_LAYER);
	}
	return 0;
}
