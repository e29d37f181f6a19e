/* SPDX-License-Identifier: Apache-2.0 */
/* Brings loop nests to canonical form, determines their families, and divides a padded transform into
 * subregions. Nothing here fails or allocates: transform_init has checked every product that is formed. A
 * request can have millions of subregions, so computing one is kept cheap. */
#include "loop_nest.h"

#include <inttypes.h>

#include "proto/arithmetic.h"

/* ---- Canonical form --------------------------------------------------------------------------------- */

static void drop_units_and_flip(struct loop_nest *nest);
static void sort_dims(struct loop_nest *nest);
static void fuse_dims(struct loop_nest *nest, bool padded);
static void widen(struct loop_nest *nest, uint32_t align);

void loop_nest_canonicalise(struct loop_nest *nest, uint32_t align, enum pad_mode mode)
{
	drop_units_and_flip(nest);
	sort_dims(nest);
	fuse_dims(nest, mode == PAD_MODE_CONSTANT);
	if (!nest->fill && !nest->converted &&
	    (mode == PAD_MODE_CONSTANT || nest->rank == 0 ||
	     loop_nest_dim_is_whole(&nest->dim[nest->rank - 1])))
		widen(nest, align);
}

static void flip_operands(struct loop_nest *nest, struct loop_nest_dim *dim)
{
	nest->scale_offset += (dim->source - 1) * dim->scale;
	nest->bias_offset += (dim->source - 1) * dim->bias;
	dim->scale = -dim->scale;
	dim->bias = -dim->bias;
}

/* Reverses the blocks of a dimension. The last block, which may be incomplete, becomes the first. */
static void flip_blocks(struct loop_nest *nest, struct loop_nest_dim *dim)
{
	int64_t last = divide_up_i64(dim->n, dim->block) - 1;

	dim->skew = (last + 1) * dim->block - dim->n;
	nest->to_scale_offset += last * dim->to_scale;
	nest->to_inverse_offset += last * dim->to_inverse;
	dim->to_scale = -dim->to_scale;
	dim->to_inverse = -dim->to_inverse;
}

static void drop_units_and_flip(struct loop_nest *nest)
{
	int rank = 0;

	for (int d = 0; d < nest->rank; d++) {
		struct loop_nest_dim dim = nest->dim[d];

		if (dim.n == 1)
			continue;
		if (nest->fill)
			dim.src = 0;
		if (dim.dst < 0) {
			nest->dst_offset += (dim.n - 1) * dim.dst;
			nest->src_offset += (dim.source - 1) * dim.src;
			dim.dst = -dim.dst;
			dim.src = -dim.src;
			if (nest->converted)
				flip_operands(nest, &dim);
			if (nest->in_blocks)
				flip_blocks(nest, &dim);
			dim.before = dim.n - dim.source - dim.before;
		}
		nest->dim[rank++] = dim;
	}
	nest->rank = rank;
}

/* Insertion sort: ranks are small, and most layouts are sorted already. */
static void sort_dims(struct loop_nest *nest)
{
	for (int d = 1; d < nest->rank; d++) {
		struct loop_nest_dim dim = nest->dim[d];
		int i = d;

		for (; i > 0 && nest->dim[i - 1].dst < dim.dst; i--)
			nest->dim[i] = nest->dim[i - 1];
		nest->dim[i] = dim;
	}
}

/* Returns whether one step of `outer` bytes equals n steps of `inner` bytes. The product may lie outside of
 * the tensor and so overflow 63 bits. */
static bool is_end(int64_t outer, int64_t inner, int64_t n)
{
	int64_t end;

	return !__builtin_mul_overflow(inner, n, &end) && outer == end;
}

/* Merges the blocks of a dimension with those of the one outside it, for fusing the two. That is possible if
 * one block spans the whole inner dimension, or if each index of the outer one consists of whole blocks.
 * Returns whether it is possible. */
static bool fuse_blocks(struct loop_nest_dim *dim, const struct loop_nest_dim *outer)
{
	int64_t blocks = dim->n / dim->block, scale, inverse;

	if (dim->block >= dim->n) {
		dim->block = outer->block * dim->n;
		dim->skew = outer->skew * dim->n;
		dim->to_scale = outer->to_scale;
		dim->to_inverse = outer->to_inverse;
		return true;
	}
	return outer->block == 1 && dim->n % dim->block == 0 &&
	       !__builtin_mul_overflow(blocks, dim->to_scale, &scale) && outer->to_scale == scale &&
	       !__builtin_mul_overflow(blocks, dim->to_inverse, &inverse) && outer->to_inverse == inverse;
}

/* Fuses each dimension with the one outside it if, on both sides, as many steps as its extent equal one step
 * of the outer dimension, and if it has no pads of its own. The outer dimension may have pads only if
 * `padded`. */
static void fuse_dims(struct loop_nest *nest, bool padded)
{
	int rank = 0;

	for (int d = 0; d < nest->rank; d++) {
		struct loop_nest_dim dim = nest->dim[d];

		if (rank > 0) {
			const struct loop_nest_dim *outer = &nest->dim[rank - 1];

			if (is_end(outer->dst, dim.dst, dim.n) && is_end(outer->src, dim.src, dim.n) &&
			    is_end(outer->scale, dim.scale, dim.n) && is_end(outer->bias, dim.bias, dim.n) &&
			    loop_nest_dim_is_whole(&dim) && (padded || loop_nest_dim_is_whole(outer)) &&
			    (!nest->in_blocks || fuse_blocks(&dim, outer))) {
				dim.before = outer->before * dim.n;
				dim.source = outer->source * dim.n;
				dim.n *= outer->n;
				rank--;
			}
		}
		nest->dim[rank++] = dim;
	}
	nest->rank = rank;
}

static void widen(struct loop_nest *nest, uint32_t align)
{
	struct loop_nest_dim *inner;
	uint32_t most = align < TENSOR_MAX_ELEMENT ? align : TENSOR_MAX_ELEMENT;
	uint64_t bits, wide;

	if (nest->rank == 0)
		return;
	inner = &nest->dim[nest->rank - 1];
	if (inner->dst != nest->element || inner->src != nest->element)
		return;
	/* Every width is a power of two. These numbers are all multiples of a width if none of them has a bit
	 * set below the width's bit. */
	bits = (uint64_t)nest->dst_offset | (uint64_t)nest->src_offset | (uint64_t)inner->n * nest->element |
	       (uint64_t)inner->before * nest->element | (uint64_t)inner->source * nest->element;
	for (int d = 0; d < nest->rank - 1; d++)
		bits |= (uint64_t)nest->dim[d].dst | (uint64_t)nest->dim[d].src;
	wide = nest->element;
	while (2 * wide <= most && !(bits & (2 * wide - 1)))
		wide *= 2;
	inner->n /= (int64_t)(wide / nest->element);
	inner->before /= (int64_t)(wide / nest->element);
	inner->source /= (int64_t)(wide / nest->element);
	inner->dst = inner->src = (int64_t)wide;
	nest->element = (uint32_t)wide;
	if (inner->n == 1)
		nest->rank--;
}

void loop_nest_narrow(struct loop_nest *nest, uint32_t unit, enum pad_mode mode)
{
	int64_t n = nest->element / unit;

	nest->dim[nest->rank++] = (struct loop_nest_dim){ .n = n, .dst = unit, .src = unit, .source = n };
	nest->element = unit;
	fuse_dims(nest, mode == PAD_MODE_CONSTANT);
}

int64_t loop_nest_count(const struct loop_nest *nest)
{
	int64_t count = 1;

	for (int d = 0; d < nest->rank; d++)
		count *= nest->dim[d].n;
	return count;
}

int64_t loop_nest_window_source(const struct loop_nest_dim *dim, enum pad_mode mode, int64_t i)
{
	int64_t n = dim->source, at = i - dim->before, period;

	if (at >= 0 && at < n)
		return at;
	switch (mode) {
	case PAD_MODE_CONSTANT:
		return -1;
	case PAD_MODE_EDGE:
		return at < 0 ? 0 : n - 1;
	case PAD_MODE_WRAP:
		return (at % n + n) % n;
	case PAD_MODE_REFLECT:
		period = n > 1 ? 2 * (n - 1) : 1;
		at = (at % period + period) % period;
		return at < n ? at : period - at;
	default: /* symmetric */
		period = 2 * n;
		at = (at % period + period) % period;
		return at < n ? at : period - 1 - at;
	}
}

/* ---- Segments --------------------------------------------------------------------------------------- */

/* A run of output indices whose source indices are affine: output dst + i reads source src + i * step. */
struct segment {
	int64_t n;
	int64_t dst;
	int64_t src;
	int64_t step;
};

/* Returns the length of the pieces of a padded axis. Its segments are pieces of equal length, of which those
 * at the ends of the axis may be cut short; piece 0 is the interior. For reflect, a piece leaves out the
 * element at which the direction turns, so the interior is one element longer than the other pieces. */
static int64_t piece_length(const struct transform_axis *axis, enum pad_mode mode)
{
	switch (mode) {
	case PAD_MODE_REFLECT:
		return axis->source - 1;
	case PAD_MODE_SYMMETRIC:
	case PAD_MODE_WRAP:
		return axis->source;
	default:
		return axis->extent; /* edge: one piece, however long it is */
	}
}

/* The mode must not be constant, and the axis must have elements. */
static uint64_t segment_count(const struct transform_axis *axis, enum pad_mode mode)
{
	int64_t after = axis->extent - axis->before - axis->source;
	int64_t length;

	if (axis->source == 1 || axis->extent == axis->source)
		return 1;
	length = piece_length(axis, mode);
	return 1 + (uint64_t)divide_up_i64(axis->before, length) + (uint64_t)divide_up_i64(after, length);
}

static struct segment interior_segment(const struct transform_axis *axis)
{
	return (struct segment){ .n = axis->source, .dst = axis->before, .src = 0, .step = 1 };
}

/* Returns piece k of an axis: k < 0 before the interior, k > 0 after it. In it, start and end are output
 * indices counted from the first one of the interior. */
static struct segment piece_get(const struct transform_axis *axis, enum pad_mode mode, int64_t k)
{
	int64_t length = piece_length(axis, mode), end = axis->extent - axis->before;
	int64_t start, into;
	struct segment s = { .n = length };

	if (k == 0)
		return interior_segment(axis);
	if (mode == PAD_MODE_EDGE && k < 0)
		return (struct segment){ .n = axis->before };
	if (mode == PAD_MODE_EDGE)
		return (struct segment){ .n = end - axis->source,
			                 .dst = axis->before + axis->source,
			                 .src = axis->source - 1 };

	start = k * length + (mode == PAD_MODE_REFLECT && k > 0);
	if (start < -axis->before) {
		s.n -= -axis->before - start;
		start = -axis->before;
	}
	if (s.n > end - start)
		s.n = end - start;
	s.dst = axis->before + start;
	into = start - k * length;
	s.step = mode == PAD_MODE_WRAP || k % 2 == 0 ? 1 : -1;
	s.src = s.step > 0 ? into : axis->source - 1 - into;
	return s;
}

static struct segment segment_get(const struct transform_axis *axis, enum pad_mode mode, uint64_t i)
{
	if (axis->extent == axis->source)
		return interior_segment(axis);
	if (axis->source == 1)
		return (struct segment){ .n = axis->extent };
	return piece_get(axis, mode, (int64_t)i - divide_up_i64(axis->before, piece_length(axis, mode)));
}

/* ---- Subregions ------------------------------------------------------------------------------------- */

static void constant_init(struct subregions *subregions);
static void constant_get(const struct subregions *subregions, uint64_t i, struct loop_nest *ret);
static void grid_get(const struct subregions *subregions, uint64_t i, struct loop_nest *ret);

static void loop_nest_begin(struct loop_nest *nest, const struct transform *t, bool fill)
{
	nest->rank = t->rank;
	nest->element = t->element;
	nest->fill = fill;
	nest->converted = t->conversion.is && !fill ? t->src_element : 0;
	nest->dst_offset = 0;
	nest->src_offset = fill ? 0 : t->src_shift;
	nest->scale_offset = t->conversion.scale.shift;
	nest->bias_offset = t->conversion.bias.shift;
	nest->in_blocks = false;
	nest->to_scale_offset = nest->to_inverse_offset = 0;
}

static void subregion_begin(struct loop_nest *nest, const struct transform *t, bool fill)
{
	loop_nest_begin(nest, t, fill);
	nest->in_blocks = nest->converted && t->conversion.amax.is;
}

static void place_operands(struct loop_nest *nest, int d, const struct transform *t, struct segment s)
{
	const struct conversion *conversion = &t->conversion;

	nest->dim[d].scale = s.step * conversion->scale.stride[d];
	nest->dim[d].bias = s.step * conversion->bias.stride[d];
	nest->scale_offset += s.src * conversion->scale.stride[d];
	nest->bias_offset += s.src * conversion->bias.stride[d];
}

/* An axis with blocks is never padded, so it has one segment. */
static void place_blocks(struct loop_nest_dim *dim, int d, const struct amax *amax)
{
	dim->block = amax->block[d];
	dim->to_scale = amax->scale.stride[d];
	dim->to_inverse = amax->inverse.stride[d];
}

static void loop_nest_place(struct loop_nest *nest, int d, const struct transform *t, struct segment s)
{
	const struct transform_axis *axis = &t->axis[d];

	nest->dim[d] = (struct loop_nest_dim){
		.n = s.n, .dst = axis->dst_stride, .src = s.step * axis->src_stride, .source = s.n
	};
	nest->dst_offset += s.dst * axis->dst_stride;
	if (!nest->fill)
		nest->src_offset += s.src * axis->src_stride;
	if (nest->converted)
		place_operands(nest, d, t, s);
	if (nest->in_blocks)
		place_blocks(&nest->dim[d], d, &t->conversion.amax);
}

/* Sets dimension d to a whole axis. In a fill it has no window. */
static void window_place(struct loop_nest *nest, int d, const struct transform *t)
{
	const struct transform_axis *axis = &t->axis[d];

	nest->dim[d] = (struct loop_nest_dim){
		.n = axis->extent,
		.dst = axis->dst_stride,
		.src = axis->src_stride,
		.before = nest->fill ? 0 : axis->before,
		.source = nest->fill ? axis->extent : axis->source,
		.scale = nest->converted ? t->conversion.scale.stride[d] : 0,
		.bias = nest->converted ? t->conversion.bias.stride[d] : 0,
	};
}

static bool has_interior(const struct transform *t)
{
	for (int d = 0; d < t->rank; d++)
		if (t->axis[d].source == 0)
			return false;
	return true;
}

bool loop_nest_window(struct loop_nest *ret, const struct transform *t, uint32_t align)
{
	if (!has_interior(t))
		return false;
	loop_nest_begin(ret, t, false);
	ret->in_blocks = t->conversion.amax.is;
	for (int d = 0; d < t->rank; d++) {
		window_place(ret, d, t);
		if (ret->in_blocks)
			place_blocks(&ret->dim[d], d, &t->conversion.amax);
	}
	loop_nest_canonicalise(ret, align, t->mode);
	return true;
}

bool loop_nest_is_run(const struct transform *t)
{
	struct loop_nest nest;

	if (t->count == 0 || t->conversion.is || !loop_nest_window(&nest, t, 1) || nest.rank > 1)
		return false;
	return nest.rank == 0 || (nest.dim[0].dst == nest.element && nest.dim[0].src == nest.element &&
	                          loop_nest_dim_is_whole(&nest.dim[0]));
}

void subregions_init(struct subregions *ret, const struct transform *transform)
{
	subregions_init_windowed(ret, transform, 0);
}

static bool is_windowed(const struct subregions *subregions, int d)
{
	return subregions->windowed >> d & 1;
}

void subregions_init_windowed(struct subregions *ret, const struct transform *transform, uint32_t windowed)
{
	ret->transform = transform;
	ret->windowed = windowed;
	ret->interior = has_interior(transform);
	ret->n = 0;
	if (transform->count == 0)
		return;
	if (transform->mode == PAD_MODE_CONSTANT) {
		constant_init(ret);
		return;
	}
	ret->n = 1;
	for (int d = 0; d < transform->rank; d++) {
		ret->per_axis[d] =
		    is_windowed(ret, d) ? 1 : segment_count(&transform->axis[d], transform->mode);
		ret->n *= ret->per_axis[d];
	}
}

/* If there are windows, the mode that is passed on is not constant, so that no window is fused: a fused
 * window could become longer than the caller allows. */
static void canonicalise(const struct subregions *subregions, struct loop_nest *nest, uint32_t align)
{
	loop_nest_canonicalise(nest, align, subregions->windowed ? PAD_MODE_EDGE : PAD_MODE_CONSTANT);
}

void subregions_get(const struct subregions *subregions, uint64_t i, uint32_t align, struct loop_nest *ret)
{
	if (subregions->transform->mode == PAD_MODE_CONSTANT)
		constant_get(subregions, i, ret);
	else
		grid_get(subregions, i, ret);
	canonicalise(subregions, ret, align);
}

bool subregions_interior(const struct subregions *subregions, uint32_t align, struct loop_nest *ret)
{
	const struct transform *t = subregions->transform;

	if (!subregions->interior || !subregions->n)
		return false;
	subregion_begin(ret, t, false);
	for (int d = 0; d < t->rank; d++) {
		if (is_windowed(subregions, d))
			window_place(ret, d, t);
		else
			loop_nest_place(ret, d, t, interior_segment(&t->axis[d]));
	}
	canonicalise(subregions, ret, align);
	return true;
}

/* Without an interior the whole destination is one fill. */
static void constant_init(struct subregions *subregions)
{
	const struct transform *t = subregions->transform;

	subregions->n = 1;
	if (!subregions->interior)
		return;
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];

		subregions->per_axis[d] = 0;
		if (!is_windowed(subregions, d))
			subregions->per_axis[d] =
			    (axis->before > 0) + (axis->extent - axis->before > axis->source);
		subregions->n += subregions->per_axis[d];
	}
}

/* The fills of axis d span the interior of the axes before it and the whole of those after it. */
static void constant_get(const struct subregions *subregions, uint64_t i, struct loop_nest *ret)
{
	const struct transform *t = subregions->transform;
	int fill_axis = -1;

	if (i > 0)
		for (i--, fill_axis = 0; i >= subregions->per_axis[fill_axis]; fill_axis++)
			i -= subregions->per_axis[fill_axis];
	subregion_begin(ret, t, fill_axis >= 0 || !subregions->interior);
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];
		int64_t end = axis->before + axis->source;
		struct segment s = { .n = axis->extent };

		if (is_windowed(subregions, d)) {
			window_place(ret, d, t);
			continue;
		}
		if (subregions->interior && (fill_axis < 0 || d < fill_axis))
			s = interior_segment(axis);
		else if (d == fill_axis && i == 0 && axis->before > 0)
			s.n = axis->before;
		else if (d == fill_axis)
			s = (struct segment){ .n = axis->extent - end, .dst = end };
		loop_nest_place(ret, d, t, s);
	}
}

static void grid_get(const struct subregions *subregions, uint64_t i, struct loop_nest *ret)
{
	const struct transform *t = subregions->transform;

	subregion_begin(ret, t, false);
	for (int d = t->rank - 1; d >= 0; d--) {
		uint64_t n = subregions->per_axis[d];
		uint64_t digit = 0;

		if (is_windowed(subregions, d)) {
			window_place(ret, d, t);
			continue;
		}
		if (n > 1) {
			digit = i % n;
			i /= n;
		}
		loop_nest_place(ret, d, t, segment_get(&t->axis[d], t->mode, digit));
	}
}

/* ---- Families --------------------------------------------------------------------------------------- */

enum family loop_nest_family(const struct loop_nest *nest, int *ret_src_inner)
{
	const struct loop_nest_dim *inner;
	int64_t element = nest->element;

	*ret_src_inner = -1;
	if (nest->fill)
		return FAMILY_FILL;
	if (nest->converted)
		return FAMILY_CONVERT;
	if (nest->rank == 0)
		return FAMILY_MEMCPY;
	inner = &nest->dim[nest->rank - 1];
	if (inner->dst != element)
		return FAMILY_STRIDED;
	if (inner->src == element)
		return nest->rank == 1 ? FAMILY_MEMCPY : FAMILY_TILE_COPY;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == element) {
			*ret_src_inner = d;
			return FAMILY_TILE_TRANSPOSE;
		}
	if (inner->src == 0 || inner->src == -element)
		return FAMILY_STRIDED;
	for (int d = 0; d < nest->rank - 1; d++)
		if (nest->dim[d].src == -element) {
			*ret_src_inner = d;
			return FAMILY_TILE_TRANSPOSE;
		}
	return FAMILY_STRIDED;
}

/* Strides are in bytes, and dimensions are counted from the outermost. */
void loop_nest_explain_memcpy(const struct loop_nest *nest, struct family_rules *rules)
{
	int64_t run = nest->element;

	for (int d = nest->rank - 1; d >= 0; d--) {
		const struct loop_nest_dim *dim = &nest->dim[d];

		if (dim->dst != run)
			family_rules_add(rules, FAMILY_MEMCPY,
			                 "destination stride %d is %" PRId64 " bytes, not %" PRId64, d,
			                 dim->dst, run);
		if (dim->src != run)
			family_rules_add(rules, FAMILY_MEMCPY,
			                 "source stride %d is %" PRId64 " bytes, not %" PRId64, d, dim->src,
			                 run);
		if (dim->source != dim->n)
			family_rules_add(rules, FAMILY_MEMCPY, "dimension %d is padded", d);
		if (rules->n)
			return;
		run *= dim->n;
	}
}
