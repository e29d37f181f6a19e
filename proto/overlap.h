/* SPDX-License-Identifier: Apache-2.0 */
/* Determines exactly whether strided sets of bytes overlap, by a bounded search over the strides (a small
 * Diophantine problem). Most layouts are decided by their extents or by nested strides, without any search.
 * The functions may be called on any thread. */
#ifndef PROTO_OVERLAP_H
#define PROTO_OVERLAP_H

#include <stdint.h>

#include "tensor.h"

enum overlap {
	OVERLAP_NONE,
	OVERLAP_SOME,
	OVERLAP_UNKNOWN, /* The search exceeded its bound. Callers treat this as an overlap, and say so. */
};

/* Returns whether two different elements of the layout share a byte. */
enum overlap overlap_self(const struct tensor_layout *layout);

#define OVERLAP_MAX_REPEATS 3

/* Repeats a layout n times, each time `step` bytes further on. */
struct overlap_repeat {
	uint64_t n;
	uint64_t step;
};

/* Returns whether two different elements share a byte if the layout is repeated by each of the n <=
 * OVERLAP_MAX_REPEATS repeats. All offsets must fit into 63 bits. */
enum overlap overlap_self_repeated(const struct tensor_layout *layout, const struct overlap_repeat *repeat,
                                   int n);

/* Returns whether any element of a shares a byte with any element of b. distance is the number of bytes from
 * element [0, ..., 0] of a to that of b. */
enum overlap overlap_between(const struct tensor_layout *a, const struct tensor_layout *b, int64_t distance);

/* Returns the steps that all searches of this thread have taken so far, for callers that limit the cost of
 * several tests together. One test takes at most OVERLAP_MOST_STEPS, which is about a third of a
 * millisecond. */
uint64_t overlap_steps(void);

/* Adds n steps of another kind of search (aliases.h) to this thread's count. */
void overlap_count_steps(uint64_t n);
#define OVERLAP_MOST_STEPS 16384

#endif
