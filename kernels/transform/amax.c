/* SPDX-License-Identifier: Apache-2.0 */
/* Checks a request for scales, and reduces their tensors to strides by axis. */
#include "amax.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "proto/arithmetic.h"

static bool is_allowed(enum dtype dtype)
{
	return dtype_class(dtype) == DTYPE_CLASS_FLOATING && dtype != DTYPE_FLOAT64;
}

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

static int check_type(enum dtype dtype, const char *name, struct error *err)
{
	if (is_allowed(dtype))
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "amax: %s is %s, but it must be float32, or a floating type of 8 or 16 bits", name,
	                 dtype_names[dtype]);
}

static int check_spec(const struct amax_spec *spec, const struct tensor_layout *dst, enum dtype from,
                      struct error *err)
{
	int r = check_type(from, "src", err);

	if (r == 0)
		r = check_type(dst->dtype, "dst", err);
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
	r = check_spec(spec, dst, from, err);
	if (r == 0)
		r = reduce_result(&ret->scale, &spec->scale, spec, dst, "amax.scale", err);
	if (r == 0)
		r = reduce_result(&ret->inverse, &spec->inverse, spec, dst, "amax.inverse", err);
	if (r < 0)
		return r;
	ret->rule =
	    (struct amax_rule){ .least = spec->least > 0 ? amax_bits_of((float)spec->least) : 0, /* not -0 */
		                .largest = largest_of(dst->dtype),
		                .power_of_two = spec->power_of_two };
	for (int d = 0; d < dst->rank; d++)
		ret->block[d] = min_i64(spec->block[d], max_i64(dst->shape[d], 1));
	return 0;
}
