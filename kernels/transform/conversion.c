/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a conversion and reduces its operands to strides by axis. */
#include "conversion.h"

#include <inttypes.h>

static bool is_integer(enum dtype dtype)
{
	enum dtype_class class = dtype_class(dtype);
	return class == DTYPE_CLASS_BOOLEAN || class == DTYPE_CLASS_UNSIGNED || class == DTYPE_CLASS_SIGNED;
}

/* Types with values that float32 does not hold. */
static bool is_wide(enum dtype dtype)
{
	return dtype == DTYPE_FLOAT64 || (is_integer(dtype) && dtype_size(dtype) >= 4);
}

/* What is clamped only if it is infinite. */
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

/* float64 itself takes the nearest value, and so does a product or a sum in it. */
static bool is_lossy(const struct conversion *conversion)
{
	const enum dtype from = conversion->from, to = conversion->to;

	if (from == DTYPE_INT64 || from == DTYPE_UINT64)
		return dtype_class(to) == DTYPE_CLASS_FLOATING && to != DTYPE_FLOAT64 &&
		       !conversion->scale.kind && !conversion->bias.kind;
	return from == DTYPE_BFLOAT16 && to == DTYPE_FLOAT16;
}

static int check_types(const struct conversion_spec *spec, enum dtype to, enum dtype from, struct error *err)
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

/* Fills what axes there are from the operand's dimensions, which are aligned at the last one. Only a tensor
 * has a layout that may be read. */
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
	int r = check_types(spec, to, from, err);

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
