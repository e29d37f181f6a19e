/* SPDX-License-Identifier: Apache-2.0 */
/* KV caches in named layouts: their tensors, and the requests that convert one into another. */
#include "layout.h"

#include <inttypes.h>

int tma_layout_bytes(tma_client *client, const struct tma_layout_cache *cache, uint64_t *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct kv_side side;
	int rc = kv_side_init(&side, cache, NULL, "cache", err);

	if (rc == 0)
		rc = pointer_check(ret, "ret", "the number of bytes goes", err);
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
		rc = pointer_check(strides, "strides", "the strides of the tensor go", err);
	if (rc == 0)
		rc = pointer_check(ret, "ret", "the tensor goes", err);
	if (rc == 0)
		kv_tensor(&side, &groups, 0, strides, ret);
	return rc;
}

/* Checks both sides and finds the group sizes that their heads have in common. */
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
		rc = pointer_check(ret, "ret", "the transform goes", err);
	if (rc == 0)
		move_init(ret, &to, &from, &groups, 0);
	return rc;
}

/* ---- Lists of blocks ---------------------------------------------------------------------------------- */

/* The two sides of a list of blocks. Here, one layer means a layer of the model or, if keys and values lie
 * apart, the keys or the values of one. */
struct listed {
	struct kv_side to, from;
	struct kv_groups groups;
	uint32_t layers;
	const struct kv_side *apart; /* the side whose layers the caller places; NULL: neither */
	bool is_kv_apart;            /* Keys and values of that side lie apart as well. */
};

static uint64_t step_of(const struct kv_side *side, enum kv_dimension d)
{
	return (uint64_t)side->stride[d] * tma_dtype_size(side->cache->dtype);
}

/* Returns whether `side` describes only one of the layers that `other` has, or only the keys where `other`
 * has keys and values. */
static bool is_apart(const struct kv_side *side, const struct kv_side *other)
{
	return side->extent[KV_LAYER] == 1 &&
	       (other->extent[KV_LAYER] > 1 || (side->extent[KV_KV] == 1 && other->extent[KV_KV] > 1));
}

/* Reduces both sides to one block of one layer, and checks that these match. */
static int listed_match(struct listed *l, struct error *err)
{
	struct kv_side *whole = l->apart == &l->from ? &l->to : &l->from;
	int64_t layers = whole->extent[KV_LAYER];
	int rc;

	if (l->apart) {
		l->is_kv_apart = l->apart->extent[KV_KV] == 1 && whole->extent[KV_KV] > 1;
		whole->extent[KV_LAYER] = 1;
		if (l->is_kv_apart) {
			layers *= whole->extent[KV_KV];
			whole->extent[KV_KV] = 1;
		}
	}
	l->to.extent[KV_BLOCK] = l->from.extent[KV_BLOCK] = 1;
	rc = kv_sides_match(&l->to, &l->from, err);
	if (rc == 0 && layers > UINT32_MAX)
		rc = error_set(err, STATUS_INVALID_ARGUMENT,
		               "layers: %" PRId64 ", but it must be 1 to %" PRIu32, layers, UINT32_MAX);
	l->layers = (uint32_t)layers;
	return rc < 0 ? rc : kv_groups_of(&l->groups, &l->to, &l->from, err);
}

static int listed_init(struct listed *ret, const struct tma_layout_cache *dst,
                       const struct tma_layout_part *dst_part, const struct tma_layout_cache *src,
                       const struct tma_layout_part *src_part, struct error *err)
{
	int rc;

	*ret = (struct listed){ 0 };
	rc = kv_side_init(&ret->to, dst, dst_part, "dst", err);
	if (rc == 0)
		rc = kv_side_init(&ret->from, src, src_part, "src", err);
	if (rc == 0 && is_apart(&ret->to, &ret->from))
		ret->apart = &ret->to;
	else if (rc == 0 && is_apart(&ret->from, &ret->to))
		ret->apart = &ret->from;
	return rc;
}

int tma_layout_blocks(tma_client *client, const struct tma_layout_cache *dst,
                      const struct tma_layout_part *dst_part, const struct tma_layout_cache *src,
                      const struct tma_layout_part *src_part, bool scatter, struct tma_layout_move *move,
                      struct tma_blocks *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct tma_blocks blocks;
	struct listed l;
	int rc = listed_init(&l, dst, dst_part, src, src_part, err);

	if (rc == 0)
		rc = pointer_check(move, "move", "the transform goes", err);
	if (rc == 0)
		rc = pointer_check(ret, "ret", "the request goes", err);
	if (rc < 0)
		return rc;
	blocks = (struct tma_blocks){
		.transform = &move->transform,
		.count = (size_t)(scatter ? &l.from : &l.to)->extent[KV_BLOCK],
		.limit = (uint64_t)(scatter ? &l.to : &l.from)->extent[KV_BLOCK],
		.dst_step = step_of(&l.to, KV_BLOCK),
		.src_step = step_of(&l.from, KV_BLOCK),
	};
	rc = listed_match(&l, err);
	if (rc < 0)
		return rc;
	if (l.layers > 1) {
		blocks.layers = l.layers;
		if (l.apart != &l.to && !l.is_kv_apart)
			blocks.dst_layer_step = step_of(&l.to, KV_LAYER);
		if (l.apart != &l.from && !l.is_kv_apart)
			blocks.src_layer_step = step_of(&l.from, KV_LAYER);
	}
	move_init(move, &l.to, &l.from, &l.groups, 1u << KV_BLOCK | 1u << KV_LAYER);
	*ret = blocks;
	return 0;
}

int tma_layout_layer_offsets(tma_client *client, const struct tma_layout_cache *cache,
                             const struct tma_layout_part *part, int64_t *ret)
{
	struct error ignored, *err = layout_error(client, &ignored);
	struct kv_side side;
	int rc = kv_side_init(&side, cache, part, "cache", err);

	if (rc == 0)
		rc = pointer_check(ret, "ret", "the offsets go", err);
	if (rc < 0)
		return rc;
	for (int64_t l = 0; l < side.extent[KV_LAYER]; l++)
		for (int64_t k = 0; k < side.extent[KV_KV]; k++)
			*ret++ = (int64_t)((uint64_t)l * step_of(&side, KV_LAYER) +
			                   (uint64_t)k * step_of(&side, KV_KV));
	return 0;
}
