/* SPDX-License-Identifier: Apache-2.0 */
/* A loop nest is one strided copy or fill in canonical form, which an engine's inner loops run.
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

/* Each dimension has a window: index i of the destination reads index i - before of the source where that is
 * in [0, source), and the border's value elsewhere. In subregions before is 0 and source is n, except for
 * axes that are windowed. */
struct loop_nest_dim {
	int64_t n;
	int64_t dst; /* stride, bytes; > 0 */
	int64_t src; /* stride, bytes; any sign; 0 repeats; unused in a fill */
	int64_t before;
	int64_t source;
	int64_t scale, bias; /* strides of a conversion's operands, bytes; else 0 */
	/* A move with amax uses these; they are 0 in others. Index i belongs to block (i + skew) / block,
	 * where 0 <= skew < block, and the results of the next block lie to_scale and to_inverse bytes
	 * further. */
	int64_t block, skew, to_scale, to_inverse;
};

struct loop_nest {
	int rank;
	uint32_t element; /* bytes of an element of the destination: 1, 2, 4, 8 or 16 */
	/* This is the size of the source's elements in bytes if they are converted, else 0. */
	uint32_t converted;
	bool fill;                         /* there is no source: the transform's fill pattern is written */
	int64_t dst_offset;                /* bytes from the destination's element [0, ..., 0] */
	int64_t src_offset;                /* bytes from the source's element [0, ..., 0] to its index 0 */
	int64_t scale_offset, bias_offset; /* the same for a conversion's operands */
	bool in_blocks;                    /* The move computes the scales of blocks (amax). */
	int64_t to_scale_offset, to_inverse_offset; /* where the results of the first block lie */
	/* The last one is used only after loop_nest_narrow. */
	struct loop_nest_dim dim[TENSOR_MAX_RANK + 1];
};

/* Brings a loop nest to canonical form in place. Both base addresses are known to be multiples of align
 * bytes, a power of two; widening never goes past it. A padded dimension joins one inside it, or becomes one
 * of wider elements, only if the border has a value. */
void loop_nest_canonicalise(struct loop_nest *nest, uint32_t align, enum pad_mode mode);

/* Returns the number of elements. */
int64_t loop_nest_count(const struct loop_nest *nest);

/* Makes one loop nest of the whole destination, with the pads as its windows. Returns false if no element of
 * the source is read. In modes other than constant a padded dimension stays one, of the transform's elements,
 * so that its border can be told. */
bool loop_nest_window(struct loop_nest *ret, const struct transform *transform, uint32_t align);

/* Returns whether the transform moves one run of bytes unchanged, at whatever addresses. */
bool loop_nest_is_run(const struct transform *transform);

static inline bool loop_nest_dim_is_whole(const struct loop_nest_dim *dim)
{
	return dim->before == 0 && dim->source == dim->n;
}

/* Returns which index of the source index i of a window reads, or -1 if that is the fill pattern. */
int64_t loop_nest_window_source(const struct loop_nest_dim *dim, enum pad_mode mode, int64_t i);

/* Divides elements into runs of smaller ones, for addresses that are not multiples of the element. unit is
 * the new size in bytes, a power of two below the element. */
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
	/* Mode constant: fills of the axis, 0 to 2; other modes: its segments. */
	uint64_t per_axis[TENSOR_MAX_RANK];
	bool interior; /* mode constant: subregion 0 reads the source */
};

/* The transform must outlive *ret. n is 0 when the destination has no element. */
void subregions_init(struct subregions *ret, const struct transform *transform);

/* Does the same with these axes windowed; *ret has an interior. */
void subregions_init_windowed(struct subregions *ret, const struct transform *transform, uint32_t windowed);

/* Sets *ret to subregion i in canonical form. A window stays a dimension of its own. */
void subregions_get(const struct subregions *subregions, uint64_t i, uint32_t align, struct loop_nest *ret);

/* Sets *ret to the interior in canonical form: the subregion that reads the source unshifted, with all
 * windows. Returns false if there is none, because all of it is fill or there are no elements. */
bool subregions_interior(const struct subregions *subregions, uint32_t align, struct loop_nest *ret);

/* Returns the family of a canonical nest. For FAMILY_TILE_TRANSPOSE *ret_src_inner is the dimension with the
 * smallest source stride, an element forwards or backwards (else -1). */
enum family loop_nest_family(const struct loop_nest *nest, int *ret_src_inner);

/* Adds the rules that keep the nest from being one run: those of the innermost dimension that is not
 * contiguous with what lies inside it. */
void loop_nest_explain_memcpy(const struct loop_nest *nest, struct family_rules *rules);

#endif
