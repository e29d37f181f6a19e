/* SPDX-License-Identifier: Apache-2.0 */
/* Named layouts, as the files of the library share them. Nothing here needs a connection: errors are written
 * to a struct error, which is the client's if the caller has passed a client. Functions that return int
 * return 0 or a negative status with err. */
#ifndef CLIENT_LAYOUT_H
#define CLIENT_LAYOUT_H

#include "client.h"

struct tma_layout {
	const char *name;
	/* how a blocked tensor is split into blocks; NULL: the layout is one of KV caches */
	const char *split;
	const char *order;
	const char *doc;
};

/* Returns where a layout function reports errors: the client's error, or ret if client is NULL. */
static inline struct error *layout_error(tma_client *client, struct error *ret)
{
	return client ? &client->error : ret;
}

/* Dimensions of a KV cache in the order of its tensor. KV_GROUP counts groups of heads; it occurs in layouts,
 * but is not a dimension of its own in the tensor. */
enum kv_dimension {
	KV_LAYER,
	KV_KV,
	KV_BLOCK,
	KV_TOKEN,
	KV_HEAD,
	KV_ELEMENT,
	KV_DIMENSIONS,
	KV_GROUP = KV_DIMENSIONS,
	KV_LETTERS,
};

/* One cache of a conversion and the part of it that is moved, after all checks. All distances are in
 * elements. */
struct kv_side {
	const struct tma_layout_cache *cache;
	int64_t stride[KV_LETTERS];
	int64_t group;         /* heads of a group; 0: the layout has no groups */
	int64_t total;         /* elements of the cache, including padding */
	int64_t first_of_rank; /* the model's number of the rank's first head */
	int64_t heads_of_rank;
	bool has_heads; /* The part names its heads; otherwise all heads of the rank are moved. */
	int64_t first[KV_DIMENSIONS]; /* first index that is moved; heads count within the rank */
	int64_t extent[KV_DIMENSIONS];
};

/* Checks a cache and a part of it; part may be NULL, which means the whole cache. name is what errors call
 * the cache: "dst", "src" or "cache". */
int kv_side_init(struct kv_side *ret, const struct tma_layout_cache *cache,
                 const struct tma_layout_part *part, const char *name, struct error *err);

/* Makes both sides move the heads that they have in common, unless a part names heads. Checks that what they
 * move has the same shape and type. */
int kv_sides_match(struct kv_side *dst, struct kv_side *src, struct error *err);

/* Group sizes by which the moved heads are subdivided, so that each dimension that results has a single
 * stride on every side. There are at most two sizes, ascending, and the second is a multiple of the first. */
struct kv_groups {
	int n;
	int64_t heads[2];
};

/* Finds the group sizes that both sides need. src may be NULL. */
int kv_groups_of(struct kv_groups *ret, const struct kv_side *dst, const struct kv_side *src,
                 struct error *err);

/* Makes *ret the tensor of what a side moves, with its heads divided by groups (kv_groups_of). `without` is a
 * mask (1 << KV_BLOCK, ...) of dimensions to leave out; the tensor is then that of their first entry. strides
 * must have room for TMA_MAX_RANK entries, and *ret points to it. */
void kv_tensor(const struct kv_side *side, const struct kv_groups *groups, unsigned without, int64_t *strides,
               struct tma_tensor *ret);

#endif
