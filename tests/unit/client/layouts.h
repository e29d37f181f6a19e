/* SPDX-License-Identifier: Apache-2.0 */
/* Defines KV caches that the tests of named layouts share. */
#ifndef TESTS_UNIT_CLIENT_LAYOUTS_H
#define TESTS_UNIT_CLIENT_LAYOUTS_H

#include <stdint.h>
#include <string.h>

#include <criterion/criterion.h>

#include "client/layout.h"

/* All sizes differ, so that no two orders have the same strides. */
enum { L = 3, N = 5, T = 7, H = 4, D = 8 };

static inline struct tma_layout_cache cache_of(const char *name)
{
	return (struct tma_layout_cache){
		.layout = tma_layout_find(name),
		.dtype = TMA_BFLOAT16,
		.layers = L,
		.blocks = N,
		.tokens = T,
		.heads = H,
		.head_size = D,
	};
}

static inline void assert_strides(const char *name, const struct tma_tensor *t, int rank, const int64_t *want)
{
	cr_assert_eq(t->rank, rank, "%s: rank %d", name, t->rank);
	for (int d = 0; d < rank; d++)
		cr_assert_eq(t->strides[d], want[d], "%s: stride %d is %ld, not %ld", name, d,
		             (long)t->strides[d], (long)want[d]);
}

#endif
