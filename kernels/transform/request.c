/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts, conversions, splits and places of requests. */
#include "request.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#include "proto/text.h"

int tensor_layout_of(struct tensor_layout *ret, const struct msg_tensor *tensor, const char *name,
                     struct error *err)
{
	bool strided = tensor->has & F(tensor, strides);

	if (strided && tensor->strides.n != tensor->shape.n)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.strides: %" PRIu32 " entries, but shape has %" PRIu32, name,
		                 tensor->strides.n, tensor->shape.n);
	return tensor_layout_init(ret, tensor->dtype, tensor->shape.n, tensor->shape.v,
	                          strided ? tensor->strides.v : NULL, name, err);
}

int ints_of(int64_t *ret, const struct int_list *list, bool present)
{
	if (!present)
		return -1;
	memcpy(ret, list->v, list->n * sizeof *ret);
	return (int)list->n;
}

/* ---- Conversions -------------------------------------------------------------------------------------- */

bool transform_has_operands(const struct msg_transform *params)
{
	return params->has & (F(transform, scale) | F(transform, bias) | F(transform, amax));
}

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

static int conversion_spec_of(const struct msg_transform *params, struct conversion_spec *ret,
                              struct error *err)
{
	int r;

	ret->is_given = params->has & F(transform, cast);
	ret->cast = params->cast;
	if (!transform_has_operands(params)) {
		ret->scale.kind = ret->bias.kind = OPERAND_NONE;
		ret->amax.is_given = false;
		return 0;
	}
	r = operand_spec_of(&params->scale, params->has & F(transform, scale), "scale", &ret->scale, err);
	if (r == 0)
		r = operand_spec_of(&params->bias, params->has & F(transform, bias), "bias", &ret->bias, err);
	return r < 0 ? r : amax_spec_of(&params->amax, params->has & F(transform, amax), &ret->amax, err);
}

double operand_number(const struct msg_operand *params, bool is_given)
{
	return is_given && params->has & F(operand, number) ? real_of(&params->number) : 0;
}

int request_explain_changed(const struct conversion *conversion, uint64_t changed, struct error *err)
{
	return error_set(err, STATUS_OUT_OF_RANGE,
	                 "cast: exact, but the values of %" PRIu64
	                 " element%s of %s are not values of %s; dst has the nearest",
	                 changed, text_plural(changed), dtype_names[conversion->from],
	                 dtype_names[conversion->to]);
}

/* ---- Transforms --------------------------------------------------------------------------------------- */

int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err)
{
	int r = tensor_layout_of(&ret->dst, &params->dst, "dst", err);

	if (r == 0)
		r = tensor_layout_of(&ret->src, &params->src, "src", err);
	if (r < 0)
		return r;
	ret->n_perm = ints_of(ret->perm, &params->perm, params->has & F(transform, perm));
	ret->n_before = ints_of(ret->before, &params->before, params->has & F(transform, before));
	ret->n_after = ints_of(ret->after, &params->after, params->has & F(transform, after));
	ret->mode = params->mode;
	ret->value = params->value;
	ret->dst_is_checked = false;
	return conversion_spec_of(params, &ret->conversion, err);
}

/* ---- Splits ------------------------------------------------------------------------------------------- */

bool transform_is_split(const struct msg_transform *params)
{
	return (params->dst.has | params->src.has) & F(tensor, split);
}

static int split_list_of(const struct msg_tensor *tensor, const char *name, struct split_list *ret,
                         struct error *err)
{
	const struct int_list *pairs = &tensor->split;

	ret->n = 0;
	if (!(tensor->has & F(tensor, split)))
		return 0;
	if (pairs->n % 2)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.split: %" PRIu32
		                 " entries, but a split takes two: a dimension and the extent of its blocks",
		                 name, pairs->n);
	ret->n = (int)pairs->n / 2;
	for (int i = 0; i < ret->n; i++) {
		ret->dim[i] = pairs->v[2 * i];
		ret->by[i] = pairs->v[2 * i + 1];
	}
	return 0;
}

int transform_split_of(const struct msg_transform *params, struct split *ret, struct error *err)
{
	struct transform_spec spec;
	struct split_list dst, src;
	int r = transform_spec_of(params, &spec, err);

	if (r == 0 && !transform_is_split(params)) {
		split_none(ret, &spec);
		return 0;
	}
	if (r == 0)
		r = split_list_of(&params->dst, "dst", &dst, err);
	if (r == 0)
		r = split_list_of(&params->src, "src", &src, err);
	if (r == 0)
		r = split_init(ret, &spec, &dst, &src, err);
	return r;
}

/* ---- Plans -------------------------------------------------------------------------------------------- */

static int refuse_place(const struct msg_tensor *tensor, const char *name, struct error *err)
{
	if (tensor->has & F(tensor, region))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.region: %" PRIu64
		                 ", but plan_prepare takes no region; pass it to plan_run",
		                 name, tensor->region);
	if (tensor->has & F(tensor, offset))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.offset: %" PRIu64
		                 ", but plan_prepare takes no offset; pass it to plan_run",
		                 name, tensor->offset);
	return 0;
}

static int refuse_operand_place(const struct msg_operand *operand, bool is_given, const char *name,
                                struct error *err)
{
	if (is_given && operand->has & (F(operand, region) | F(operand, offset)))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: plan_prepare takes no region and no offset; pass them to plan_run",
		                 name);
	return 0;
}

int request_refuse_places(const struct msg_transform *params, struct error *err)
{
	const uint64_t amax = params->has & F(transform, amax) ? params->amax.has : 0;
	int r = refuse_place(&params->dst, "dst", err);

	if (r == 0)
		r = refuse_place(&params->src, "src", err);
	if (r == 0)
		r = refuse_operand_place(&params->scale, params->has & F(transform, scale), "scale", err);
	if (r == 0)
		r = refuse_operand_place(&params->bias, params->has & F(transform, bias), "bias", err);
	if (r == 0 && amax & F(amax, scale))
		r = refuse_place(&params->amax.scale, "amax.scale", err);
	if (r == 0 && amax & F(amax, inverse))
		r = refuse_place(&params->amax.inverse, "amax.inverse", err);
	return r;
}

/* ---- Places ------------------------------------------------------------------------------------------- */

static int check_operand(const struct tensor_place *place, const struct operand *operand, const char *name,
                         const struct transform_sides *sides, const struct tensor_place *dst,
                         struct error *err)
{
	struct transform_sides with;

	if (operand->kind != OPERAND_TENSOR)
		return 0;
	if (!sides)
		return tensor_check_range(operand->extent, place->offset, place->size, name, err);
	with = *sides;
	with.src = &operand->layout;
	with.src_extent = operand->extent;
	return transform_check_side(&with, dst, place, name, err);
}

/* Checks that a result lies in its region and shares no byte with another tensor, which errors call
 * other_name. */
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

/* Checks one of amax's results against dst and src. */
static int check_sides(const struct request_places *places, const struct transform_sides *sides,
                       const struct tensor_place *place, const struct amax_result *result, const char *name,
                       struct error *err)
{
	int r;

	if (!result->is)
		return 0;
	r = check_result(place, result, name, &places->dst, sides->dst, sides->dst_extent, "dst", err);
	return r < 0 ? r
	             : check_result(place, result, name, &places->src, sides->src, sides->src_extent, "src",
	                            err);
}

static int check_amax(const struct request_places *places, const struct transform_sides *sides,
                      const struct amax *amax, struct error *err)
{
	const struct amax_result *scale = &amax->scale, *inverse = &amax->inverse;
	int r;

	if (!amax->is)
		return 0;
	assert(sides);
	r = check_sides(places, sides, &places->amax_scale, scale, "amax.scale", err);
	if (r == 0)
		r = check_sides(places, sides, &places->amax_inverse, inverse, "amax.inverse", err);
	if (r < 0 || !scale->is || !inverse->is)
		return r;
	return check_result(&places->amax_inverse, inverse, "amax.inverse", &places->amax_scale,
	                    &scale->layout, scale->extent, "amax.scale", err);
}

int request_check_operands(const struct request_places *places, const struct transform_sides *sides,
                           const struct conversion *conversion, struct error *err)
{
	int r;

	if (!conversion->is)
		return 0;
	r = check_operand(&places->scale, &conversion->scale, "scale", sides, &places->dst, err);
	if (r == 0)
		r = check_operand(&places->bias, &conversion->bias, "bias", sides, &places->dst, err);
	return r < 0 ? r : check_amax(places, sides, &conversion->amax, err);
}

int request_check_word(const struct tensor_place *place, uint64_t region, const char *name, struct error *err)
{
	const uint64_t bytes = sizeof(uint64_t);

	if (place->offset > place->size || place->size - place->offset < bytes)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s.offset: %" PRIu64 ", but a word has 8 bytes and region %" PRIu64
		                 " only %" PRIu64,
		                 name, place->offset, region, place->size);
	if ((place->base + place->offset) % bytes)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.offset: byte %" PRIu64 " of region %" PRIu64
		                 " is not aligned to 8 bytes",
		                 name, place->offset, region);
	return 0;
}
