/* SPDX-License-Identifier: Apache-2.0 */
/* The one operation: dst[...] = pad(cast(permute(src, perm) * scale + bias), before, after, mode, value),
 * with NumPy's meaning; without a cast elements are moved as they are. Instead of scale and bias there may be
 * scales that are computed on the way (amax.h).
 *
 * transform_init validates a request once, without addresses, and reduces it to axes in the destination's
 * order with strides in bytes. Everything below (subregions, loop nests, plans) is derived from it and cannot
 * fail.
 */
#ifndef KERNELS_TRANSFORM_TRANSFORM_H
#define KERNELS_TRANSFORM_TRANSFORM_H

#include <stdbool.h>
#include <stdint.h>

#include "conversion.h"
#include "proto/scalar.h"
#include "proto/status.h"
#include "proto/tensor.h"

/* What is asked. before and after are per dimension of the destination; negative crops. A crop is taken
 * first, then what is left is padded: mode reflect with before = -1, after = 1 reflects the cropped edge. */
struct transform_spec {
	struct tensor_layout dst;
	struct tensor_layout src;
	int n_perm;   /* -1: no perm given, identity; else must be src.rank */
	int n_before; /* -1: none, zeros; else must be src.rank */
	int n_after;
	int64_t perm[TENSOR_MAX_RANK];
	int64_t before[TENSOR_MAX_RANK];
	int64_t after[TENSOR_MAX_RANK];
	enum pad_mode mode;
	struct scalar value;
	struct conversion_spec conversion;
	bool dst_is_checked; /* the caller knows that no two elements of dst share a byte */
};

/* One dimension of the destination. Output index o in [0, extent) reads source index o - before when that
 * is in [0, source), else the border rule of the mode. All strides in bytes. */
struct transform_axis {
	int64_t extent;
	int64_t before; /* >= 0 */
	int64_t source; /* extent of the source after cropping */
	int64_t dst_stride;
	int64_t src_stride;
};

struct transform {
	int rank;
	uint32_t element;     /* bytes: 1, 2, 4, 8 or 16; of the destination */
	uint32_t src_element; /* the same, but in a conversion */
	struct conversion conversion;
	enum pad_mode mode;
	uint8_t fill[TENSOR_MAX_ELEMENT]; /* the value's bits */
	struct transform_axis axis[TENSOR_MAX_RANK];
	int64_t src_shift; /* bytes from the source's element [0, ..., 0] to the first one not cropped */
	int64_t count;     /* elements of the destination */
	uint64_t bytes;    /* read plus written: all elements of the destination, and those of the source that
	                      are    read */
	/* As the request gave them, for range and overlap checks against regions. */
	struct tensor_layout dst_layout;
	struct tensor_layout src_layout;
	struct tensor_extent dst_extent;
	struct tensor_extent src_extent;
};

/* Refuses, with one sentence that names the argument, the rule and the value: shapes, ranks or dtypes that do
 * not agree; a perm that is none; a crop that leaves nothing of a dimension; padding an empty dimension
 * with a mode other than constant; a value that the dtype cannot hold; a destination that overlaps
 * itself. */
int transform_init(struct transform *t, const struct transform_spec *spec, struct error *err);

/* Where a tensor's element [0, ..., 0] lies: memory identifies what is shared (equal for two regions of
 * one memory), base is the region's first byte in it, offset the tensor's in the region. */
struct tensor_place {
	uint64_t memory[2];
	uint64_t base;
	uint64_t offset;
	uint64_t size;                      /* of the region */
	const struct memory_chunks *chunks; /* of the memory, where another memory may have some; else NULL */
};

static inline bool places_in_one_memory(const struct tensor_place *a, const struct tensor_place *b)
{
	return a->memory[0] == b->memory[0] && a->memory[1] == b->memory[1];
}

/* Two tensors as a request gave them, and the bytes that they touch. */
struct transform_sides {
	const struct tensor_layout *dst;
	const struct tensor_layout *src;
	struct tensor_extent dst_extent;
	struct tensor_extent src_extent;
	const char *dst_name; /* NULL: "dst" */
};

static inline struct transform_sides transform_sides(const struct transform *t)
{
	return (struct transform_sides){ .dst = &t->dst_layout,
		                         .src = &t->src_layout,
		                         .dst_extent = t->dst_extent,
		                         .src_extent = t->src_extent };
}

/* Whether a transform may run between these places: both tensors within their regions, and no byte of
 * the destination also the source's (OVERLAP; exact, also for interleaved views, unless they share
 * allocations that lie differently in the two memories, or only some of those between them). */
int transform_check_sides(const struct transform_sides *sides, const struct tensor_place *dst,
                          const struct tensor_place *src, struct error *err);

/* The same for the destination and another tensor, in the place of src, that is called `name`. */
int transform_check_side(const struct transform_sides *sides, const struct tensor_place *dst,
                         const struct tensor_place *place, const char *name, struct error *err);

/* Refuses what is written if two of its elements share a byte (OVERLAP). */
int transform_check_self_overlap(const struct tensor_layout *dst, const char *name, struct error *err);

#endif
