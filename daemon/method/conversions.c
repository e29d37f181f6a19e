/* SPDX-License-Identifier: Apache-2.0 */
/* The layouts and places of what a transform converts by, and of the scales that it computes. */
#include "conversions.h"

#include <assert.h>
#include <inttypes.h>

#include "daemon/net/session.h"

/* What a transform converts by, or computes. Most have nothing of it. */
#define OPERANDS (F(transform, scale) | F(transform, bias) | F(transform, amax))

/* ---- Layouts ------------------------------------------------------------------------------------------ */

static int operand_spec_of(const struct msg_operand *params, bool is_given, const char *name,
                           struct operand_spec *ret, struct error *err)
{
	bool strided = params->has & F(operand, strides);

	ret->kind = OPERAND_NONE;
	if (!is_given)
		return 0;
	ret->kind = params->has & F(operand, number) ? OPERAND_NUMBER : OPERAND_TENSOR;
	if (ret->kind == OPERAND_NUMBER)
		return 0;
	if (strided && params->strides.n != params->shape.n)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.strides: %" PRIu32 " entries, but shape has %" PRIu32, name,
		                 params->strides.n, params->shape.n);
	return tensor_layout_init(&ret->layout, params->dtype, params->shape.n, params->shape.v,
	                          strided ? params->strides.v : NULL, name, err);
}

static double real_of(const struct scalar *number)
{
	switch (number->kind) {
	case SCALAR_UNSIGNED:
		return (double)number->u;
	case SCALAR_SIGNED:
		return (double)number->i;
	default:
		return number->re;
	}
}

static int result_spec_of(const struct msg_tensor *params, bool is_given, const char *name,
                          struct amax_result_spec *ret, struct error *err)
{
	ret->is_given = is_given;
	if (!is_given)
		return 0;
	if (params->has & F(tensor, split))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.split: it is not split; only dst and src are", name);
	return tensor_layout_of(&ret->layout, params, name, err);
}

static int amax_spec_of(const struct msg_amax *params, bool is_given, struct amax_spec *ret,
                        struct error *err)
{
	int r;

	ret->is_given = is_given;
	if (!is_given)
		return 0;
	if (params->least.kind == SCALAR_COMPLEX)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "amax.least: a complex number, but it must be real");
	ret->power_of_two = params->power_of_two;
	ret->least = real_of(&params->least);
	ret->n_block = ints_of(ret->block, &params->block, true);
	r = result_spec_of(&params->scale, params->has & F(amax, scale), "amax.scale", &ret->scale, err);
	return r < 0 ? r
	             : result_spec_of(&params->inverse, params->has & F(amax, inverse), "amax.inverse",
	                              &ret->inverse, err);
}

int conversion_spec_of(const struct msg_transform *params, struct conversion_spec *ret, struct error *err)
{
	int r;

	ret->is_given = params->has & F(transform, cast);
	ret->cast = params->cast;
	if (!(params->has & OPERANDS)) {
		ret->scale.kind = ret->bias.kind = OPERAND_NONE;
		ret->amax.is_given = false;
		return 0;
	}
	r = operand_spec_of(&params->scale, params->has & F(transform, scale), "scale", &ret->scale, err);
	if (r == 0)
		r = operand_spec_of(&params->bias, params->has & F(transform, bias), "bias", &ret->bias, err);
	return r < 0 ? r : amax_spec_of(&params->amax, params->has & F(transform, amax), &ret->amax, err);
}

/* ---- Places ------------------------------------------------------------------------------------------- */

/* 0: none is given, or it is a tensor. */
double operand_number(const struct msg_operand *params, bool is_given)
{
	return is_given && params->has & F(operand, number) ? real_of(&params->number) : 0;
}

static int place_operand(struct session *session, const struct msg_operand *params, bool is_given,
                         const char *name, struct placed_operand *ret, struct error *err)
{
	*ret = (struct placed_operand){ 0 };
	if (!is_given)
		return 0;
	if (params->has & F(operand, number)) {
		ret->number = operand_number(params, true);
		return 0;
	}
	if (!(params->has & F(operand, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing", name);
	ret->offset = params->offset;
	return region_table_find(&session->regions, params->region, name, &ret->region, err);
}

static int place_result(struct session *session, const struct msg_tensor *params, bool is_given,
                        const char *name, struct placed_result *ret, struct error *err)
{
	int r;

	*ret = (struct placed_result){ 0 };
	if (!is_given)
		return 0;
	if (!(params->has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing", name);
	ret->offset = params->offset;
	r = region_table_find(&session->regions, params->region, name, &ret->region, err);
	return r < 0 ? r : region_check_writable(ret->region, name, err);
}

static int place_results(struct session *session, const struct msg_transform *params, struct placed *ret,
                         struct error *err)
{
	const struct msg_amax *amax = &params->amax;
	const uint64_t has = params->has & F(transform, amax) ? amax->has : 0;
	int r = place_result(session, &amax->scale, has & F(amax, scale), "amax.scale.region",
	                     &ret->amax_scale, err);

	return r < 0 ? r
	             : place_result(session, &amax->inverse, has & F(amax, inverse), "amax.inverse.region",
	                            &ret->amax_inverse, err);
}

int placed_find_operands(struct session *session, const struct msg_transform *params, struct placed *ret,
                         struct error *err)
{
	int r;

	if (!(params->has & OPERANDS)) {
		ret->scale = ret->bias = (struct placed_operand){ 0 };
		ret->amax_scale = ret->amax_inverse = (struct placed_result){ 0 };
		return 0;
	}
	r = place_operand(session, &params->scale, params->has & F(transform, scale), "scale.region",
	                  &ret->scale, err);
	if (r == 0)
		r = place_operand(session, &params->bias, params->has & F(transform, bias), "bias.region",
		                  &ret->bias, err);
	return r < 0 ? r : place_results(session, params, ret, err);
}

/* ---- Checks ------------------------------------------------------------------------------------------- */

static int check_operand(const struct placed_operand *placed, const struct operand *operand, const char *name,
                         const struct transform_sides *sides, const struct tensor_place *dst,
                         struct error *err)
{
	struct transform_sides with;
	struct tensor_place place;

	if (operand->kind != OPERAND_TENSOR)
		return 0;
	place = place_of(placed->region, placed->offset);
	if (!sides)
		return tensor_check_range(operand->extent, place.offset, place.size, name, err);
	with = *sides;
	with.src = &operand->layout;
	with.src_extent = operand->extent;
	return transform_check_side(&with, dst, &place, name, err);
}

/* In its region, and no byte of it is also a tensor's, which is called other. */
static int check_result(const struct tensor_place *place, const struct amax_result *result, const char *name,
                        const struct tensor_place *other_place, const struct tensor_layout *other,
                        struct tensor_extent other_extent, const char *other_name, struct error *err)
{
	const struct transform_sides sides = { .dst = &result->layout,
		                               .src = other,
		                               .dst_extent = result->extent,
		                               .src_extent = other_extent,
		                               .dst_name = name };
	int r = tensor_check_range(result->extent, place->offset, place->size, name, err);

	return r < 0 ? r : transform_check_side(&sides, place, other_place, other_name, err);
}

/* Between one of amax's results and the tensors. */
static int check_sides(const struct placed *placed, const struct transform_sides *sides,
                       const struct placed_result *at, const struct amax_result *result, const char *name,
                       struct error *err)
{
	struct tensor_place dst = place_of(placed->dst, placed->dst_offset);
	struct tensor_place src = place_of(placed->src, placed->src_offset), place;
	int r;

	if (!result->is)
		return 0;
	place = place_of(at->region, at->offset);
	r = check_result(&place, result, name, &dst, sides->dst, sides->dst_extent, "dst", err);
	return r < 0 ? r
	             : check_result(&place, result, name, &src, sides->src, sides->src_extent, "src", err);
}

static int check_amax(const struct placed *placed, const struct transform_sides *sides,
                      const struct amax *amax, struct error *err)
{
	const struct amax_result *scale = &amax->scale, *inverse = &amax->inverse;
	struct tensor_place at_scale, at_inverse;
	int r;

	if (!amax->is)
		return 0;
	assert(sides);
	r = check_sides(placed, sides, &placed->amax_scale, scale, "amax.scale", err);
	if (r == 0)
		r = check_sides(placed, sides, &placed->amax_inverse, inverse, "amax.inverse", err);
	if (r < 0 || !scale->is || !inverse->is)
		return r;
	at_scale = place_of(placed->amax_scale.region, placed->amax_scale.offset);
	at_inverse = place_of(placed->amax_inverse.region, placed->amax_inverse.offset);
	return check_result(&at_inverse, inverse, "amax.inverse", &at_scale, &scale->layout, scale->extent,
	                    "amax.scale", err);
}

int placed_check_operands(const struct placed *placed, const struct transform_sides *sides,
                          const struct conversion *conversion, struct error *err)
{
	struct tensor_place dst;
	int r;

	if (!conversion->is)
		return 0;
	dst = place_of(placed->dst, placed->dst_offset);
	r = check_operand(&placed->scale, &conversion->scale, "scale", sides, &dst, err);
	if (r == 0)
		r = check_operand(&placed->bias, &conversion->bias, "bias", sides, &dst, err);
	return r < 0 ? r : check_amax(placed, sides, &conversion->amax, err);
}
