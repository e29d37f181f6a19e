/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are kept in chains, by the hash of their keys. */
#include "kept.h"

#include <stdlib.h>
#include <string.h>

#define ALIGN _Alignof(max_align_t)

struct kept_node {
	struct kept_node *next;
	uint64_t hash;
	size_t key_bytes;
	long long bytes;                   /* bytes of the node */
	_Alignas(max_align_t) char data[]; /* the plan, followed by its key */
};

/* A hash is computed in two lanes, so that their multiplications run in parallel. */
struct lanes {
	uint64_t a, b;
};

static inline struct lanes mix(struct lanes lanes, const uint64_t words[2])
{
	lanes.a = (lanes.a ^ words[0]) * UINT64_C(0x9e3779b97f4a7c15);
	lanes.b = (lanes.b ^ words[1]) * UINT64_C(0xc2b2ae3d27d4eb4f);
	lanes.a ^= lanes.a >> 29;
	lanes.b ^= lanes.b >> 31;
	return lanes;
}

uint64_t kept_hash(const void *key, size_t n)
{
	const char *at = key;
	struct lanes lanes = { .a = n };
	uint64_t words[2];
	for (; n >= sizeof(words); at += sizeof(words), n -= sizeof(words)) {
		memcpy(words, at, sizeof(words));
		lanes = mix(lanes, words);
	}
	if (n) {
		words[0] = words[1] = 0;
		memcpy(words, at, n);
		lanes = mix(lanes, words);
	}
	const uint64_t all = (lanes.a ^ lanes.b >> 32 ^ lanes.b << 32) * UINT64_C(0x9e3779b97f4a7c15);
	return all ^ all >> 32;
}

static size_t node_bytes(size_t plan, size_t key)
{
	return (sizeof(struct kept_node) + plan + key + ALIGN - 1) / ALIGN * ALIGN;
}

static const char *key_of(const struct kept_node *node)
{
	return (const char *)node + node->bytes - node->key_bytes;
}

const void *kept_find(const struct kept_plans *kept, const void *key, size_t n, uint64_t hash)
{
	if (!kept)
		return NULL;
	const struct kept_node *node =
	    atomic_load_explicit(&kept->chain[hash % KEPT_CHAINS], memory_order_acquire);
	for (; node; node = node->next)
		if (node->hash == hash && node->key_bytes == n && memcmp(key_of(node), key, n) == 0)
			return node->data;
	return NULL;
}

static void give_room(struct kept_plans *kept, long long bytes)
{
	atomic_fetch_add(kept->room, bytes);
	atomic_fetch_sub(&kept->bytes, bytes);
}

/* Reserves `bytes` bytes of what may be kept for a node. Returns false if fewer are left. */
static bool take_room(struct kept_plans *kept, long long bytes)
{
	if (atomic_load(&kept->bytes) > KEPT_MOST - bytes || atomic_load(kept->room) < bytes)
		return false;
	atomic_fetch_add(&kept->bytes, bytes);
	if (atomic_fetch_sub(kept->room, bytes) >= bytes)
		return true;
	give_room(kept, bytes);
	return false;
}

void kept_add(struct kept_plans *kept, const void *key, size_t n, uint64_t hash, const void *plan,
              size_t bytes)
{
	const long long all = (long long)node_bytes(bytes, n);
	if (!kept || !kept->room || !take_room(kept, all))
		return;
	struct kept_node *node = malloc((size_t)all);
	if (!node) {
		give_room(kept, all);
		return;
	}
	node->hash = hash;
	node->key_bytes = n;
	node->bytes = all;
	memcpy(node->data, plan, bytes);
	memcpy((char *)node + all - n, key, n);
	_Atomic(struct kept_node *) *chain = &kept->chain[hash % KEPT_CHAINS];
	node->next = atomic_load_explicit(chain, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(chain, &node->next, node, memory_order_release,
	                                              memory_order_relaxed))
		continue;
}

void kept_forget(struct kept_plans *kept)
{
	for (int i = 0; i < KEPT_CHAINS; i++) {
		struct kept_node *node = atomic_load(&kept->chain[i]), *next;
		for (; node; node = next) {
			next = node->next;
			give_room(kept, node->bytes);
			free(node);
		}
		atomic_store(&kept->chain[i], NULL);
	}
}
