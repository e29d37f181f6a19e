/* SPDX-License-Identifier: Apache-2.0 */
/* KV caches for tests of named layouts: every layout, with each size of head groups, and the expected
 * contents of a cache, which are found by counting in the layout's order without using strides. Each
 * element's value is the number of its index. */
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

/* The sizes of tensor parallelism, i.e. numbers of ranks. */
extern const uint32_t kv_tp[KV_SIZES];

/* A layout, with or without groups of heads. */
struct kv_format {
	const tma_layout *layout;
	int64_t group;
	uint16_t *expected[KV_SIZES]; /* per size: the contents of all ranks, one after the other */
};

extern struct kv_format kv_formats[KV_MOST_FORMATS];
extern size_t kv_format_count;

void kv_formats_init(void);
void kv_formats_deinit(void);

struct kv_index {
	int64_t l, k, n, t, h, d;
};

extern const struct kv_index kv_whole; /* the extents of the whole cache */

/* Advances to the next index of a whole cache. Returns false after the last. */
bool kv_index_next(struct kv_index *at);

uint16_t kv_number(const struct kv_index *at);

/* Returns the position of an element in a rank's cache; at counts the rank's own heads. */
int64_t kv_place(const struct kv_format *format, const struct kv_index *at, const struct kv_index *size);

/* Returns a rank's cache, which lies behind those of the ranks before it. */
struct tma_layout_cache kv_cache(const struct kv_format *format, tma_region *region, uint32_t ranks,
                                 uint32_t rank);

#endif
