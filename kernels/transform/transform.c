/* SPDX-License-Identifier: Apache-2.0 */
/* Validates a transform and reduces it to axes. Arguments are checked in the order in which a reader names
 * them: dtype and ranks, perm, then dimension by dimension the crop, the pad and the destination's extent,
 * last the value and the destination's own overlap. */
#include "transform.h"

#include <inttypes.h>
#include <string.h>

#include "aliases.h"
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
 * only products that tensor_layout_init has seen are formed. */
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

/* Places in two memories, of tensors that have been found to lie in their regions: whether they share
 * allocations, and how many bytes src's memory is further then. */
static enum alias find_alias(const struct transform_sides *sides, const struct tensor_place *dst,
                             const struct tensor_place *src, __int128 *ret_shift)
{
	const uint64_t to = dst->base + dst->offset, from = src->base + src->offset;
	const struct memory_range in_dst = { dst->chunks, to + (uint64_t)sides->dst_extent.low,
		                             to + (uint64_t)sides->dst_extent.high };
	const struct memory_range in_src = { src->chunks, from + (uint64_t)sides->src_extent.low,
		                             from + (uint64_t)sides->src_extent.high };

	return alias_between(&in_dst, &in_src, ret_shift);
}

/* distance: of the source's element [0, ..., 0] from the destination's, in one memory. */
static enum overlap find_overlap(const struct transform_sides *sides, __int128 distance)
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
	__int128 distance = (__int128)src->base + src->offset - dst->base - dst->offset;
	const char *to = sides->dst_name ? sides->dst_name : "dst";
	enum alias alias = ALIAS_ONE;
	__int128 shift = 0;
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
