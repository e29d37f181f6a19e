/* SPDX-License-Identifier: Apache-2.0 */
/* Named layouts, inside the library. Nothing here needs a connection: errors go to a struct error, which is
 * the client's where the caller has given one. */
#ifndef CLIENT_LAYOUT_H
#define CLIENT_LAYOUT_H

#include "client.h"

struct tma_layout {
	const char *name;
	const char *split; /* of a blocked tensor; NULL: of a KV cache */
	const char *order;
	const char *doc;
};

/* Where a layout function says why it fails: into client, or, if that is NULL, into ret. */
static inline struct error *layout_error(tma_client *client, struct error *ret)
{
	return client ? &client->error : ret;
}

/* The dimensions of a KV cache, as its tensor has them. GROUP is none of the tensor's own. */
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

/* One side of a conversion, checked: what is moved of it, and where that lies. Counted in elements. */
struct kv_side {
	const struct tma_layout_cache *cache;
	int64_t stride[KV_LETTERS];
	int64_t group;         /* heads of a group; 0: the layout has no groups */
	int64_t total;         /* elements of the cache */
	int64_t first_of_rank; /* the first head of the rank's, among the model's */
	int64_t heads_of_rank;
	bool has_heads;               /* the part says which; else they are all of the rank's */
	int64_t first[KV_DIMENSIONS]; /* what is moved; heads are counted within the rank's */
	int64_t extent[KV_DIMENSIONS];
};

/* Checks a cache and its part (NULL: all of it). name: "dst", "src" or "cache". */
int kv_side_init(struct kv_side *ret, const struct tma_layout_cache *cache,
                 const struct tma_layout_part *part, const char *name, struct error *err);

/* Makes both sides move the same heads, and checks that what they move has one shape and one type. */
int kv_sides_match(struct kv_side *dst, struct kv_side *src, struct error *err);

/* What the heads are divided into, so that each division has one stride on every side: up to two numbers of
 * heads, ascending, each a multiple of the one before. */
struct kv_groups {
	int n;
	int64_t heads[2];
};

/* src may be NULL. */
int kv_groups_of(struct kv_groups *ret, const struct kv_side *dst, const struct kv_side *src,
                 struct error *err);

/* The tensor of what a side moves, without the dimensions in the mask `without` (1 << KV_BLOCK, ...), whose
 * first entry it is then. */
void kv_tensor(const struct kv_side *side, const struct kv_groups *groups, unsigned without, int64_t *strides,
               struct tma_tensor *ret);

#endif
