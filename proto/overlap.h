/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out exactly whether strided sets of bytes overlap, by a bounded search over the strides (a small
 * Diophantine problem). Most layouts are decided by their extents or by nested strides without any search. */
#ifndef PROTO_OVERLAP_H
#define PROTO_OVERLAP_H

#include <stdint.h>

#include "tensor.h"

enum overlap {
	OVERLAP_NONE,
	OVERLAP_SOME,
	OVERLAP_UNKNOWN, /* the search passed its bound: treat as overlap, and say so */
};

/* Says whether two different elements of the layout share a byte. */
enum overlap overlap_self(const struct tensor_layout *layout);

#define OVERLAP_MAX_REPEATS 3

/* A layout is there n times, each so many bytes after the one before. */
struct overlap_repeat {
	uint64_t n;
	uint64_t step;
};

/* Says whether two different elements of the layout, repeated n <= OVERLAP_MAX_REPEATS times over, share a
 * byte. All of it lies within 63 bits. */
enum overlap overlap_self_repeated(const struct tensor_layout *layout, const struct overlap_repeat *repeat,
                                   int n);

/* Says whether any element of a shares a byte with any of b, which starts distance bytes after a
 * (element [0, ..., 0] to element [0, ..., 0]). */
enum overlap overlap_between(const struct tensor_layout *a, const struct tensor_layout *b, int64_t distance);

/* The steps that this thread's searches have taken so far, for callers that bound what several tests cost
 * together: one takes OVERLAP_MOST_STEPS at most, about a third of a millisecond. */
uint64_t overlap_steps(void);

/* Adds the steps of another search of this thread's (aliases.h). */
void overlap_count_steps(uint64_t n);
#define OVERLAP_MOST_STEPS 16384

#endif
