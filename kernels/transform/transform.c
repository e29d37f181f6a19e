/* SPDX-License-Identifier: Apache-2.0 */
/* Validates a transform and reduces it to axes. Arguments are checked in this order: dtype and ranks; perm;
 * dimension by dimension the crop, the pad and the destination's extent; the conversion and its scales; the
 * padding value; whether elements of the destination overlap each other.
 */
#include "transform.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "aliases.h"
#include "proto/arithmetic.h"
#include "proto/overlap.h"

static int check_ranks(const struct transform_spec *spec, struct error *err);
static int check_perm(const struct transform_spec *spec, struct error *err);
static int reduce_axis(struct transform *t, const struct transform_spec *spec, int d, struct error *err);
static int convert(struct transform *t, const struct transform_spec *spec, struct error *err);
static int make_scales(struct transform *t, const struct transform_spec *spec, struct error *err);
static int encode_value(struct transform *t, const struct transform_spec *spec, struct error *err);
static void count_bytes(struct transform *t);

int transform_init(struct transform *t, const struct transform_spec *spec, struct error *err)
{
	int status;

	*t = (struct transform){
		.rank = spec->src.rank,
		.element = dtype_size(spec->dst.dtype),
		.src_element = dtype_size(spec->src.dtype),
		.mode = spec->mode,
		.dst_layout = spec->dst,
		.src_layout = spec->src,
		.dst_extent = tensor_extent(&spec->dst),
		.src_extent = tensor_extent(&spec->src),
	};
	status = check_ranks(spec, err);
	if (!status)
		status = check_perm(spec, err);
	for (int d = 0; !status && d < t->rank; d++)
		status = reduce_axis(t, spec, d, err);
	if (!status)
		status = convert(t, spec, err);
	if (!status && spec->conversion.amax.is_given)
		status = make_scales(t, spec, err);
	if (!status)
		status = encode_value(t, spec, err);
	if (!status && !spec->dst_is_checked)
		status = transform_check_self_overlap(&spec->dst, "dst", err);
	if (!status)
		count_bytes(t);
	return status;
}

static int check_ranks(const struct transform_spec *spec, struct error *err)
{
	const struct {
		const char *name;
		int n;
	} lists[] = { { "perm", spec->n_perm }, { "before", spec->n_before }, { "after", spec->n_after } };

	if (spec->dst.dtype != spec->src.dtype && !spec->conversion.is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst.dtype: %s, but src is %s; elements are converted only with cast",
		                 dtype_names[spec->dst.dtype], dtype_names[spec->src.dtype]);
	if (spec->dst.rank != spec->src.rank)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "dst.shape: rank %d, but src has rank %d; a transform does not change the rank",
		    spec->dst.rank, spec->src.rank);
	for (int i = 0; i < 3; i++)
		if (lists[i].n >= 0 && lists[i].n != spec->src.rank)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s: length %d, but src has rank %d; each dimension needs one entry",
			                 lists[i].name, lists[i].n, spec->src.rank);
	return 0;
}

static int check_perm(const struct transform_spec *spec, struct error *err)
{
	uint32_t seen = 0;

	for (int d = 0; d < spec->n_perm; d++) {
		int64_t p = spec->perm[d];

		if (p < 0 || p >= spec->n_perm)
			return error_set(
			    err, STATUS_INVALID_ARGUMENT,
			    "perm: %" PRId64
			    " is not a dimension; a permutation of %d dimensions names each of 0..%d once",
			    p, spec->n_perm, spec->n_perm - 1);
		if (seen & UINT32_C(1) << p)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "perm: %" PRId64
			                 " appears twice; a permutation of %d dimensions names "
			                 "each of 0..%d once",
			                 p, spec->n_perm, spec->n_perm - 1);
		seen |= UINT32_C(1) << p;
	}
	return 0;
}

/* Checks dimension d of the destination and fills t->axis[d]. Strides that no element uses stay 0, so that
 * every product formed here has been checked by tensor_layout_init. */
static int reduce_axis(struct transform *t, const struct transform_spec *spec, int d, struct error *err)
{
	struct transform_axis *axis = &t->axis[d];
	int s = spec->n_perm >= 0 ? (int)spec->perm[d] : d;
	int64_t before = spec->n_before >= 0 ? spec->before[d] : 0;
	int64_t after = spec->n_after >= 0 ? spec->after[d] : 0;
	int64_t extent = spec->src.shape[s], source = extent, made;

	if (__builtin_add_overflow(source, before < 0 ? before : 0, &source) ||
	    __builtin_add_overflow(source, after < 0 ? after : 0, &source) || source < 0 ||
	    (source == 0 && extent > 0))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: dimension %d is %" PRId64 ", and cropping it by before %" PRId64
		                 " and after %" PRId64 " leaves nothing",
		                 before < 0 ? "before" : "after", d, extent, before < 0 ? before : 0,
		                 after < 0 ? after : 0);
	if (source == 0 && (before > 0 || after > 0) && spec->mode != PAD_MODE_CONSTANT)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "mode: %s cannot pad dimension %d, which is empty; only constant can",
		                 pad_mode_names[spec->mode], d);
	if (__builtin_add_overflow(source, before > 0 ? before : 0, &made) ||
	    __builtin_add_overflow(made, after > 0 ? after : 0, &made))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: dimension %d of %" PRId64 " overflows 63 bits with before %" PRId64
		                 " and after %" PRId64,
		                 before > after ? "before" : "after", d, extent, before, after);
	if (spec->dst.shape[d] != made)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst.shape: dimension %d is %" PRId64
		                 ", but the transform produces %" PRId64,
		                 d, spec->dst.shape[d], made);

	axis->extent = made;
	axis->before = before > 0 ? before : 0;
	axis->source = source;
	if (made > 1 && t->dst_extent.high)
		axis->dst_stride = spec->dst.stride[d] * t->element;
	if (extent > 1 && t->src_extent.high) {
		axis->src_stride = spec->src.stride[s] * t->src_element;
		t->src_shift += before < 0 ? -before * axis->src_stride : 0;
	}
	return 0;
}

static int convert(struct transform *t, const struct transform_spec *spec, struct error *err)
{
	int64_t shape[TENSOR_MAX_RANK], cropped[TENSOR_MAX_RANK];

	for (int d = 0; d < t->rank; d++) {
		shape[d] = spec->src.shape[spec->n_perm >= 0 ? spec->perm[d] : d];
		cropped[d] = spec->n_before >= 0 && spec->before[d] < 0 ? -spec->before[d] : 0;
	}
	return conversion_init(&t->conversion, &spec->conversion, spec->dst.dtype, spec->src.dtype, t->rank,
	                       shape, cropped, err);
}

static int check_result(const struct amax_result *result, const char *name, struct error *err)
{
	return result->is ? transform_check_self_overlap(&result->layout, name, err) : 0;
}

static int make_scales(struct transform *t, const struct transform_spec *spec, struct error *err)
{
	const struct conversion_spec *conversion = &spec->conversion;
	struct amax *amax = &t->conversion.amax;
	int status;

	if (!conversion->is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT, "amax: only with cast");
	if (conversion->scale.kind || conversion->bias.kind)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "amax: beside %s; elements are multiplied by the inverses that it makes, and "
		    "nothing is added",
		    conversion->scale.kind ? "scale" : "bias");
	for (int d = 0; d < t->rank; d++)
		if (t->axis[d].extent != t->axis[d].source)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "amax: dimension %d is padded; with amax it can only be cropped", d);
	status = amax_init(amax, &conversion->amax, &spec->dst, spec->src.dtype, err);
	if (!status)
		status = check_result(&amax->scale, "amax.scale", err);
	if (!status)
		status = check_result(&amax->inverse, "amax.inverse", err);
	t->conversion.is = true;
	t->conversion.scale.kind = OPERAND_NUMBER;
	return status;
}

static int encode_value(struct transform *t, const struct transform_spec *spec, struct error *err)
{
	const struct scalar *value = &spec->value;
	bool zero = value->kind == SCALAR_FLOATING  ? value->re == 0
	            : value->kind == SCALAR_COMPLEX ? value->re == 0 && value->im == 0
	                                            : value->u == 0;

	if (spec->mode != PAD_MODE_CONSTANT && !zero)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "value: mode %s takes no value; only constant does",
		                 pad_mode_names[spec->mode]);
	return scalar_encode(value, spec->dst.dtype, t->fill, "value", err);
}

int transform_check_self_overlap(const struct tensor_layout *dst, const char *name, struct error *err)
{
	if (tensor_count(dst))
		for (int d = 0; d < dst->rank; d++)
			if (dst->stride[d] == 0 && dst->shape[d] > 1)
				return error_set(err, STATUS_OVERLAP,
				                 "%s.strides: dimension %d has stride 0, so its %" PRId64
				                 " elements overlap; only src may repeat",
				                 name, d, dst->shape[d]);
	switch (overlap_self(dst)) {
	case OVERLAP_NONE:
		return 0;
	case OVERLAP_SOME:
		return error_set(err, STATUS_OVERLAP, "%s.strides: two elements share bytes", name);
	default:
		return error_set(err, STATUS_OVERLAP,
		                 "%s.strides: too complex to prove that no two elements share bytes", name);
	}
}

static void count_bytes(struct transform *t)
{
	uint64_t read = 1;

	t->count = tensor_count(&t->dst_layout);
	for (int d = 0; d < t->rank; d++)
		read *= (uint64_t)t->axis[d].source;
	t->bytes = (uint64_t)t->count * t->element + read * t->src_element;
}

/* ---- Conversions --------------------------------------------------------------------------------------- */

static bool is_integer(enum dtype dtype)
{
	enum dtype_class class = dtype_class(dtype);
	return class == DTYPE_CLASS_BOOLEAN || class == DTYPE_CLASS_UNSIGNED || class == DTYPE_CLASS_SIGNED;
}

/* Returns whether the type has values that float32 cannot represent. */
static bool is_wide(enum dtype dtype)
{
	return dtype == DTYPE_FLOAT64 || (is_integer(dtype) && dtype_size(dtype) >= 4);
}

/* Returns whether the type has infinities. If so, a saturating cast between equal types changes infinite
 * values. */
static bool has_infinity(enum dtype dtype)
{
	return dtype_class(dtype) == DTYPE_CLASS_FLOATING && dtype != DTYPE_FLOAT8_E4M3FN;
}

static enum arithmetic arithmetic_of(const struct conversion *conversion)
{
	bool calculates = conversion->scale.kind || conversion->bias.kind;
	if (!calculates && is_integer(conversion->from) && is_integer(conversion->to))
		return ARITHMETIC_NONE;
	return is_wide(conversion->from) || is_wide(conversion->to) ? ARITHMETIC_FLOAT64 : ARITHMETIC_FLOAT32;
}

/* Returns whether loading may lose something (is_lossy of struct conversion). That a 64-bit integer is
 * rounded to the nearest float64 does not count if float64 is the destination's type, or if the integer is
 * then multiplied or added to in float64. */
static bool is_lossy(const struct conversion *conversion)
{
	const enum dtype from = conversion->from, to = conversion->to;

	if (from == DTYPE_INT64 || from == DTYPE_UINT64)
		return dtype_class(to) == DTYPE_CLASS_FLOATING && to != DTYPE_FLOAT64 &&
		       !conversion->scale.kind && !conversion->bias.kind;
	return from == DTYPE_BFLOAT16 && to == DTYPE_FLOAT16;
}

static int check_cast(const struct conversion_spec *spec, enum dtype to, enum dtype from, struct error *err)
{
	if (!spec->is_given) {
		if (spec->scale.kind || spec->bias.kind)
			return error_set(err, STATUS_INVALID_ARGUMENT, "%s: only with cast",
			                 spec->scale.kind ? "scale" : "bias");
		return 0;
	}
	if (dtype_class(from) == DTYPE_CLASS_COMPLEX || dtype_class(to) == DTYPE_CLASS_COMPLEX)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "cast: %s to %s; complex types are not converted, because a real type has no "
		    "imaginary part",
		    dtype_names[from], dtype_names[to]);
	return 0;
}

/* Checks an operand's shape and sets its stride for each axis; its last dimension belongs to the last axis.
 * spec->layout is valid only for a tensor. */
static int reduce_operand(struct operand *ret, const struct operand_spec *spec, const char *name, int rank,
                          const int64_t *shape, const int64_t *cropped, struct error *err)
{
	const struct tensor_layout *layout = &spec->layout;
	int extra;

	ret->kind = spec->kind;
	ret->dtype = DTYPE_FLOAT64;
	if (spec->kind != OPERAND_TENSOR)
		return 0;
	extra = rank - layout->rank;
	if (layout->dtype != DTYPE_FLOAT32 && layout->dtype != DTYPE_FLOAT64)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.dtype: %s, but it must be float32 or float64", name,
		                 dtype_names[layout->dtype]);
	if (extra < 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "%s.shape: rank %d, but the permuted source has rank %d; it does not broadcast", name,
		    layout->rank, rank);
	for (int d = 0; d < layout->rank; d++)
		if (layout->shape[d] != 1 && layout->shape[d] != shape[d + extra])
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s.shape: dimension %d is %" PRId64
			                 ", but dimension %d of the permuted source "
			                 "is %" PRId64 "; it does not broadcast",
			                 name, d, layout->shape[d], d + extra, shape[d + extra]);
	const int64_t size = dtype_size(layout->dtype);
	ret->dtype = layout->dtype;
	ret->layout = *layout;
	ret->extent = tensor_extent(layout);
	ret->shift = 0;
	for (int d = 0; d < rank; d++) {
		ret->stride[d] = 0;
		if (d < extra || layout->shape[d - extra] <= 1 || !ret->extent.high)
			continue;
		ret->stride[d] = layout->stride[d - extra] * size;
		ret->shift += cropped[d] * ret->stride[d];
	}
	return 0;
}

int conversion_init(struct conversion *ret, const struct conversion_spec *spec, enum dtype to,
                    enum dtype from, int rank, const int64_t *shape, const int64_t *cropped,
                    struct error *err)
{
	int r = check_cast(spec, to, from, err);

	ret->is = spec->is_given;
	if (r < 0 || !spec->is_given)
		return r;
	ret->cast = spec->cast;
	ret->to = to;
	ret->from = from;
	r = reduce_operand(&ret->scale, &spec->scale, "scale", rank, shape, cropped, err);
	if (r == 0)
		r = reduce_operand(&ret->bias, &spec->bias, "bias", rank, shape, cropped, err);
	if (r < 0)
		return r;
	ret->arithmetic = arithmetic_of(ret);
	ret->is_lossy = is_lossy(ret);
	ret->is = from != to || ret->scale.kind || ret->bias.kind ||
	          (spec->cast == CAST_SATURATE && has_infinity(to));
	return 0;
}

/* ---- Scales that are computed on the way --------------------------------------------------------------- */

static float largest_of(enum dtype dtype)
{
	switch (dtype) {
	case DTYPE_FLOAT8_E4M3FN:
		return 448;
	case DTYPE_FLOAT8_E5M2:
		return 57344;
	case DTYPE_FLOAT16:
		return 65504;
	case DTYPE_BFLOAT16:
		return 0x1.fep127f;
	default:
		return FLT_MAX;
	}
}

static int check_amax_type(enum dtype dtype, const char *name, struct error *err)
{
	if (dtype_class(dtype) == DTYPE_CLASS_FLOATING && dtype != DTYPE_FLOAT64)
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "amax: %s is %s, but it must be float32, or a floating type of 8 or 16 bits", name,
	                 dtype_names[dtype]);
}

static int check_amax(const struct amax_spec *spec, const struct tensor_layout *dst, enum dtype from,
                      struct error *err)
{
	int r = check_amax_type(from, "src", err);

	if (r == 0)
		r = check_amax_type(dst->dtype, "dst", err);
	if (r < 0)
		return r;
	if (!spec->scale.is_given && !spec->inverse.is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "amax: scale and inverse are missing; at least one of them is written");
	if (!(spec->least >= 0))
		return error_set(err, STATUS_INVALID_ARGUMENT, "amax.least: %g, but it must be 0 or more",
		                 spec->least);
	if (spec->n_block != dst->rank)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "amax.block: length %d, but dst has rank %d; each dimension needs one entry",
		                 spec->n_block, dst->rank);
	for (int d = 0; d < dst->rank; d++)
		if (spec->block[d] < 1)
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "amax.block: dimension %d is %" PRId64 ", but it must be 1 or more",
			                 d, spec->block[d]);
	return 0;
}

static int reduce_result(struct amax_result *ret, const struct amax_result_spec *spec,
                         const struct amax_spec *amax, const struct tensor_layout *dst, const char *name,
                         struct error *err)
{
	const struct tensor_layout *layout = &spec->layout;
	int64_t size;

	ret->is = spec->is_given;
	memset(ret->stride, 0, sizeof(ret->stride));
	if (!ret->is)
		return 0;
	if (layout->dtype != DTYPE_FLOAT32 && layout->dtype != DTYPE_UINT8)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.dtype: %s, but it must be float32, or uint8 with power_of_two", name,
		                 dtype_names[layout->dtype]);
	if (layout->dtype == DTYPE_UINT8 && !amax->power_of_two)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.dtype: uint8 has the exponents of powers of two; only with power_of_two",
		                 name);
	if (layout->rank != dst->rank)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.shape: rank %d, but dst has rank %d; it has as many dimensions as dst",
		                 name, layout->rank, dst->rank);
	for (int d = 0; d < dst->rank; d++)
		if (layout->shape[d] != divide_up_i64(dst->shape[d], amax->block[d]))
			return error_set(
			    err, STATUS_INVALID_ARGUMENT,
			    "%s.shape: dimension %d is %" PRId64 ", but dst has %" PRId64 " blocks there",
			    name, d, layout->shape[d], divide_up_i64(dst->shape[d], amax->block[d]));
	size = dtype_size(layout->dtype);
	ret->dtype = layout->dtype;
	ret->layout = *layout;
	ret->extent = tensor_extent(layout);
	for (int d = 0; d < dst->rank; d++)
		if (layout->shape[d] > 1 && ret->extent.high)
			ret->stride[d] = layout->stride[d] * size;
	return 0;
}

int amax_init(struct amax *ret, const struct amax_spec *spec, const struct tensor_layout *dst,
              enum dtype from, struct error *err)
{
	int r;

	ret->is = spec->is_given;
	if (!ret->is)
		return 0;
	r = check_amax(spec, dst, from, err);
	if (r == 0)
		r = reduce_result(&ret->scale, &spec->scale, spec, dst, "amax.scale", err);
	if (r == 0)
		r = reduce_result(&ret->inverse, &spec->inverse, spec, dst, "amax.inverse", err);
	if (r < 0)
		return r;
	/* A `least` of -0 becomes 0. */
	ret->rule = (struct amax_rule){ .least = spec->least > 0 ? amax_bits_of((float)spec->least) : 0,
		                        .largest = largest_of(dst->dtype),
		                        .power_of_two = spec->power_of_two };
	for (int d = 0; d < dst->rank; d++)
		ret->block[d] = min_i64(spec->block[d], max_i64(dst->shape[d], 1));
	return 0;
}

/* ---- Places -------------------------------------------------------------------------------------------- */

/* Returns how two places in different memories share allocations, and sets *ret_shift to the number of bytes
 * by which the common bytes lie further into src's memory than into dst's. The tensors must have been found
 * to lie in their regions. */
static enum alias find_alias(const struct transform_sides *sides, const struct tensor_place *dst,
                             const struct tensor_place *src, int128 *ret_shift)
{
	const uint64_t to = dst->base + dst->offset, from = src->base + src->offset;
	const struct memory_range in_dst = { dst->chunks, to + (uint64_t)sides->dst_extent.low,
		                             to + (uint64_t)sides->dst_extent.high };
	const struct memory_range in_src = { src->chunks, from + (uint64_t)sides->src_extent.low,
		                             from + (uint64_t)sides->src_extent.high };

	return alias_between(&in_dst, &in_src, ret_shift);
}

/* Returns whether the two sides share bytes. distance is the number of bytes from the destination's element
 * [0, ..., 0] to the source's in the same memory. */
static enum overlap find_overlap(const struct transform_sides *sides, int128 distance)
{
	if (distance + sides->src_extent.low >= sides->dst_extent.high ||
	    distance + sides->src_extent.high <= sides->dst_extent.low)
		return OVERLAP_NONE;
	return distance == (int64_t)distance ? overlap_between(sides->dst, sides->src, (int64_t)distance)
	                                     : OVERLAP_UNKNOWN;
}

int transform_check_side(const struct transform_sides *sides, const struct tensor_place *dst,
                         const struct tensor_place *src, const char *name, struct error *err)
{
	int128 distance = (int128)src->base + src->offset - dst->base - dst->offset;
	const char *to = sides->dst_name ? sides->dst_name : "dst";
	enum alias alias = ALIAS_ONE;
	int128 shift = 0;
	int status;

	status = tensor_check_range(sides->src_extent, src->offset, src->size, name, err);
	if (status)
		return status;
	if (!places_in_one_memory(dst, src))
		alias = find_alias(sides, dst, src, &shift);
	distance -= shift;
	if (alias == ALIAS_NONE)
		return 0;
	if (alias == ALIAS_MANY)
		return error_set(
		    err, STATUS_OVERLAP,
		    "%s: it shares allocations with %s that follow each other differently in the two "
		    "regions; too complex to prove that it shares no byte with %s",
		    to, name, name);
	switch (find_overlap(sides, distance)) {
	case OVERLAP_NONE:
		return 0;
	case OVERLAP_SOME:
		if (alias == ALIAS_SOME)
			return error_set(
			    err, STATUS_OVERLAP,
			    "%s: it shares allocations with %s, but not all of them; too complex to prove "
			    "that it shares no byte with %s",
			    to, name, name);
		return error_set(err, STATUS_OVERLAP,
		                 "%s: it shares bytes with %s, which starts %" PRId64
		                 " bytes %s it in the same memory",
		                 to, name, (int64_t)(distance < 0 ? -distance : distance),
		                 distance < 0 ? "before" : "after");
	default:
		return error_set(err, STATUS_OVERLAP,
		                 "%s: too complex to prove that it shares no byte with %s in the same memory",
		                 to, name);
	}
}

int transform_check_sides(const struct transform_sides *sides, const struct tensor_place *dst,
                          const struct tensor_place *src, struct error *err)
{
	int status = tensor_check_range(sides->dst_extent, dst->offset, dst->size, "dst", err);

	return status ? status : transform_check_side(sides, dst, src, "src", err);
}

/* ---- Families ------------------------------------------------------------------------------------------ */

const char *const family_names[FAMILY_COUNT] = {
	[FAMILY_MEMCPY] = "memcpy",
	[FAMILY_TILE_COPY] = "tile_copy",
	[FAMILY_TILE_TRANSPOSE] = "tile_transpose",
	[FAMILY_STRIDED] = "strided",
	[FAMILY_FILL] = "fill",
	[FAMILY_CONVERT] = "convert",
};

void family_rules_add(struct family_rules *rules, enum family family, const char *format, ...)
{
	struct family_rule *rule;
	va_list args;

	if (rules->n == FAMILY_MOST_RULES)
		return;
	rule = &rules->rule[rules->n++];
	rule->family = family;
	va_start(args, format);
	vsnprintf(rule->text, sizeof rule->text, format, args);
	va_end(args);
}
