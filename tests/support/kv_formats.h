/* SPDX-License-Identifier: Apache-2.0 */
/* KV caches for tests of named layouts: every layout of them, with each size of groups, and what a cache of
 * it holds, which is counted by walking the layout's order, without a stride. Each element is the number of
 * its index. */
#ifndef TESTS_SUPPORT_KV_FORMATS_H
#define TESTS_SUPPORT_KV_FORMATS_H

#include <stdbool.h>
#include <stdint.h>

#include "client/tmaclient.h"

enum { KV_MOST_FORMATS = 64, KV_SIZES = 4, LAYERS = 3, BLOCKS = 5, TOKENS = 7, HEADS = 8, HEAD_SIZE = 5 };
enum {
	ELEMENTS = LAYERS * 2 * BLOCKS * TOKENS * HEADS * HEAD_SIZE,
	BYTES = ELEMENTS * (int)sizeof(uint16_t)
};

/* Tensor-parallel sizes. */
extern const uint32_t kv_tp[KV_SIZES];

/* A layout, with groups of heads or without. */
struct kv_format {
	const tma_layout *layout;
	int64_t group;
	uint16_t *expected[KV_SIZES]; /* what all ranks hold, one after the other */
};

extern struct kv_format kv_formats[KV_MOST_FORMATS];
extern size_t kv_format_count;

void kv_formats_init(void);
void kv_formats_deinit(void);

struct kv_index {
	int64_t l, k, n, t, h, d;
};

extern const struct kv_index kv_whole; /* the extents */

/* The next index of a whole cache; false after the last. */
bool kv_index_next(struct kv_index *at);

uint16_t kv_number(const struct kv_index *at);

/* Where an element lies in a cache of this size, whose heads are those of a rank. */
int64_t kv_place(const struct kv_format *format, const struct kv_index *at, const struct kv_index *size);

/* The cache of a rank, at its place behind those of the ranks before. */
struct tma_layout_cache kv_cache(const struct kv_format *format, tma_region *region, uint32_t ranks,
                                 uint32_t rank);

#endif
