/* SPDX-License-Identifier: Apache-2.0 */
/* A loop nest: one strided copy or fill in canonical form, what an engine's inner loops run.
 *
 * Canonical: unit dimensions dropped, dimensions that are contiguous on both sides fused, destination
 * strides positive (a dimension that runs backwards on both sides is reversed), ordered by destination
 * stride with the smallest last, elements widened while sizes, strides and offsets allow (four contiguous
 * uint8 become one 4-byte element). A loop nest of rank 0 is one element; no dimension is empty. A fill keeps
 * the transform's element, the size of its pattern.
 */
#ifndef KERNELS_NEST_LOOP_NEST_H
#define KERNELS_NEST_LOOP_NEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"
#include "proto/tensor.h"

/* A window: index i of the destination reads index i - before of the source where that is in [0, source), and
 * what the border has elsewhere. Subregions have whole windows, before 0 and source n, but for axes that are
 * windowed. */
struct loop_nest_dim {
	int64_t n;
	int64_t dst; /* stride, bytes; > 0 */
	int64_t src; /* stride, bytes; any sign; 0 repeats; unused in a fill */
	int64_t before;
	int64_t source;
	int64_t scale, bias; /* strides of a conversion's operands, bytes; else 0 */
	/* With amax, else 0: index i belongs to block (i + skew) / block, 0 <= skew < block, and results of
	 * the next block lie so many bytes further. */
	int64_t block, skew, to_scale, to_inverse;
};

struct loop_nest {
	int rank;
	uint32_t element; /* bytes: 1, 2, 4, 8 or 16; of the destination */
	/* Of a source whose elements are converted, 0: they are not. */
	uint32_t converted;
	bool fill;          /* no source: the transform's fill pattern */
	int64_t dst_offset; /* bytes from the destination's element [0, ..., 0] */
	int64_t src_offset; /* bytes from the source's element [0, ..., 0]; of source index 0 */
	int64_t scale_offset, bias_offset;             /* the same of a conversion's operands */
	bool in_blocks;                                /* with amax */
	int64_t to_scale_offset, to_inverse_offset;    /* of the results of the first block */
	struct loop_nest_dim dim[TENSOR_MAX_RANK + 1]; /* the last only after loop_nest_narrow */
};

/* Brings a loop nest to canonical form in place. align: bytes that both base addresses are known to be a
 * multiple of (a power of two); widening never goes past it. A padded dimension joins one inside it, or
 * becomes one of wider elements, only if the border has a value. */
void loop_nest_canonicalise(struct loop_nest *nest, uint32_t align, enum pad_mode mode);

int64_t loop_nest_count(const struct loop_nest *nest); /* elements */

/* The whole destination as one loop nest with the pads as its windows; false when no element of the source is
 * read. In modes other than constant a padded dimension stays one, of the transform's elements, so that its
 * border can be told. */
bool loop_nest_window(struct loop_nest *ret, const struct transform *transform, uint32_t align);

/* Returns whether the transform moves one run of bytes unchanged, at whatever addresses. */
bool loop_nest_is_run(const struct transform *transform);

static inline bool loop_nest_dim_is_whole(const struct loop_nest_dim *dim)
{
	return dim->before == 0 && dim->source == dim->n;
}

/* Which index of the source index i of a window reads; -1: none, it is the fill pattern. */
int64_t loop_nest_window_source(const struct loop_nest_dim *dim, enum pad_mode mode, int64_t i);

/* Elements become runs of smaller ones: for addresses that are not a multiple of the element. unit: a power
 * of two below it. */
void loop_nest_narrow(struct loop_nest *nest, uint32_t unit, enum pad_mode mode);

/* A padded transform falls into subregions, each one loop nest: together they write every element of the
 * destination once. Subregions are computed from their number, never stored.
 *
 * Mode constant: the interior first (when it has elements), then for each axis the fill before and the fill
 * after; those of later axes lie within the interior of the earlier ones, so there are 2 * rank + 1 at most.
 *
 * Other modes: each axis falls into segments on which the source index is affine (step 1 in the interior
 * and for wrap, -1 or 1 for reflect and symmetric, 0 for edge and for a source of one element, which is one
 * segment), and each combination is a subregion, in mixed radix over the axes, the last one fastest.
 *
 * An axis that is windowed does not fall: subregions that read the source have all of it, as a window. */
struct subregions {
	const struct transform *transform;
	uint32_t windowed; /* a bit for each axis */
	uint64_t n;
	uint64_t per_axis[TENSOR_MAX_RANK]; /* mode constant: fills, 0 to 2; else segments */
	bool interior;                      /* mode constant: subregion 0 reads the source */
};

/* The transform must outlive *ret. n is 0 when the destination has no element. */
void subregions_init(struct subregions *ret, const struct transform *transform);

/* The same with these axes windowed; *ret has an interior. */
void subregions_init_windowed(struct subregions *ret, const struct transform *transform, uint32_t windowed);

/* Subregion i, canonical. A window stays a dimension of its own. */
void subregions_get(const struct subregions *subregions, uint64_t i, uint32_t align, struct loop_nest *ret);

/* The interior, canonical: the subregion that reads the source unshifted, with all windows; false when there
 * is none (all fill, or no elements). */
bool subregions_interior(const struct subregions *subregions, uint32_t align, struct loop_nest *ret);

#endif
