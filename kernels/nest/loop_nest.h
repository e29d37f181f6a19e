/* SPDX-License-Identifier: Apache-2.0 */
/* A loop nest is one strided copy or fill in canonical form, which an engine's inner loops run.
 *
 * Canonical form means: dimensions of extent 1 are dropped, dimensions that are contiguous on both sides are
 * fused, destination strides are positive (a dimension with a negative one is reversed on both sides),
 * dimensions are ordered by destination stride with the smallest last, and elements are widened as far as
 * sizes, strides and offsets allow (four contiguous uint8 become one 4-byte element). A loop nest of rank 0
 * is one element; no dimension is empty. A fill keeps the transform's element size, which is the size of its
 * pattern.
 */
#ifndef KERNELS_NEST_LOOP_NEST_H
#define KERNELS_NEST_LOOP_NEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"
#include "proto/tensor.h"

/* Each dimension has a window: index i of the destination reads index i - before of the source if that is in
 * [0, source), and the border's value elsewhere. In subregions before is 0 and source is n, except for
 * windowed axes (struct subregions). */
struct loop_nest_dim {
	int64_t n;
	int64_t dst; /* stride in bytes; > 0 */
	int64_t src; /* stride in bytes, of any sign; 0 repeats an element; unused in a fill */
	int64_t before;
	int64_t source;
	int64_t scale, bias; /* strides of a conversion's operands in bytes, else 0 */
	/* Used by a move with amax, else 0. Index i belongs to block (i + skew) / block, where 0 <= skew <
	 * block, and the results of the next block lie to_scale and to_inverse bytes further. */
	int64_t block, skew, to_scale, to_inverse;
};

struct loop_nest {
	int rank;
	uint32_t element; /* bytes of an element of the destination: 1, 2, 4, 8 or 16 */
	/* Bytes of a source element if elements are converted, else 0. */
	uint32_t converted;
	bool fill; /* there is no source: the transform's fill pattern is written */
	/* Bytes from the destination's element [0, ..., 0] to the nest's index 0. */
	int64_t dst_offset;
	/* Bytes from the source's element [0, ..., 0] to the nest's index 0. */
	int64_t src_offset;
	int64_t scale_offset, bias_offset; /* the same for a conversion's operands */
	bool in_blocks;                    /* the move computes the scales of blocks (amax) */
	/* Bytes from the results' element [0, ..., 0] to those of the nest's first block. */
	int64_t to_scale_offset, to_inverse_offset;
	/* The last element is used only after loop_nest_narrow. */
	struct loop_nest_dim dim[TENSOR_MAX_RANK + 1];
};

/* Brings a loop nest to canonical form in place. Both base addresses must be multiples of align bytes, a
 * power of two; elements are not widened beyond align bytes. A padded dimension can be fused with the one
 * inside it, or be widened, only if the mode is constant. */
void loop_nest_canonicalise(struct loop_nest *nest, uint32_t align, enum pad_mode mode);

/* Returns the number of elements. */
int64_t loop_nest_count(const struct loop_nest *nest);

/* Sets *ret to one loop nest for the whole destination, with the pads as its windows. Returns false if no
 * element of the source is read. In modes other than constant, a padded dimension is neither fused nor
 * widened, so that its border can be computed. */
bool loop_nest_window(struct loop_nest *ret, const struct transform *transform, uint32_t align);

/* Returns whether the transform moves one run of bytes unchanged, at whatever addresses. */
bool loop_nest_is_run(const struct transform *transform);

static inline bool loop_nest_dim_is_whole(const struct loop_nest_dim *dim)
{
	return dim->before == 0 && dim->source == dim->n;
}

/* Returns the source index that index i of a window reads, or -1 if that is the fill pattern. */
int64_t loop_nest_window_source(const struct loop_nest_dim *dim, enum pad_mode mode, int64_t i);

/* Divides elements into runs of smaller ones, for addresses that are not multiples of the element size. unit
 * is the new size in bytes, a power of two below the present one. */
void loop_nest_narrow(struct loop_nest *nest, uint32_t unit, enum pad_mode mode);

/* A padded transform is divided into subregions, each one a loop nest. Together they write every element of
 * the destination once. Subregions are computed from their number, never stored.
 *
 * Mode constant: the interior comes first (if it has elements), then for each axis the fill before and the
 * fill after. The fills of an axis lie within the interior of the axes before it, so there are at most 2 *
 * rank + 1 subregions.
 *
 * Other modes: each axis is divided into segments on which the source index is affine (step 1 in the interior
 * and for wrap, -1 or 1 for reflect and symmetric, 0 for edge). If the source has one element, the axis is
 * one segment with step 0. Each combination of segments is a subregion; they are numbered in mixed radix over
 * the axes, with the last one fastest.
 *
 * A windowed axis is not divided: subregions that read the source contain all of the axis, as a window.
 */
struct subregions {
	const struct transform *transform;
	uint32_t windowed; /* bitmap of the windowed axes */
	uint64_t n;
	/* Mode constant: number of fills of the axis, 0 to 2. Other modes: number of its segments. */
	uint64_t per_axis[TENSOR_MAX_RANK];
	bool interior; /* mode constant: subregion 0 reads the source */
};

/* Divides a transform, which must outlive *ret. ret->n is 0 if the destination has no element. */
void subregions_init(struct subregions *ret, const struct transform *transform);

/* Does the same with the axes in `windowed` as windows. The transform must have an interior. */
void subregions_init_windowed(struct subregions *ret, const struct transform *transform, uint32_t windowed);

/* Sets *ret to subregion i in canonical form. A window remains a dimension of its own. */
void subregions_get(const struct subregions *subregions, uint64_t i, uint32_t align, struct loop_nest *ret);

/* Sets *ret to the interior in canonical form, with all windows: the subregion that reads the source
 * unshifted. Returns false if there is none, because everything is fill or there are no elements. */
bool subregions_interior(const struct subregions *subregions, uint32_t align, struct loop_nest *ret);

/* Returns the family of a canonical nest. For FAMILY_TILE_TRANSPOSE, *ret_src_inner is the dimension whose
 * source stride is one element forwards or backwards; else -1. */
enum family loop_nest_family(const struct loop_nest *nest, int *ret_src_inner);

/* Adds the rules that keep the nest from being one contiguous run. They name the innermost dimension that is
 * not contiguous with those inside it. */
void loop_nest_explain_memcpy(const struct loop_nest *nest, struct family_rules *rules);

#endif
