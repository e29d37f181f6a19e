/* SPDX-License-Identifier: Apache-2.0 */
/* Reads layouts, conversions, splits, places, further destinations and lists of blocks out of requests. */
#include "request.h"

#include <assert.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/overlap.h"
#include "proto/status.h"

/* strides may be NULL, which means contiguous. */
static int layout_of(struct tensor_layout *ret, enum dtype dtype, const struct int_list *shape,
                     const struct int_list *strides, const char *name, struct error *err)
{
	if (strides && strides->n != shape->n)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.strides: %" PRIu32 " entries, but shape has %" PRIu32, name, strides->n,
		                 shape->n);
	return tensor_layout_init(ret, dtype, shape->n, shape->v, strides ? strides->v : NULL, name, err);
}

int tensor_layout_of(struct tensor_layout *ret, const struct msg_tensor *tensor, const char *name,
                     struct error *err)
{
	return layout_of(ret, tensor->dtype, &tensor->shape,
	                 tensor->has & F(tensor, strides) ? &tensor->strides : NULL, name, err);
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
	ret->kind = OPERAND_NONE;
	if (!is_given)
		return 0;
	ret->kind = params->has & F(operand, number) ? OPERAND_NUMBER : OPERAND_TENSOR;
	if (ret->kind == OPERAND_NUMBER)
		return 0;
	return layout_of(&ret->layout, params->dtype, &params->shape,
	                 params->has & F(operand, strides) ? &params->strides : NULL, name, err);
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

static struct request_operand converts_with(const struct msg_operand *params, bool is_given)
{
	const bool is_number = is_given && params->has & F(operand, number);

	return (struct request_operand){ .is_given = is_given,
		                         .is_tensor = is_given && !is_number,
		                         .number = is_number ? real_of(&params->number) : 0,
		                         .has_region = params->has & F(operand, region),
		                         .has_offset = params->has & F(operand, offset),
		                         .region = params->region,
		                         .offset = params->offset,
		                         .shape = &params->shape };
}

static struct request_operand result_of(const struct msg_tensor *params, bool is_given)
{
	return (struct request_operand){ .is_given = is_given,
		                         .is_tensor = is_given,
		                         .has_region = params->has & F(tensor, region),
		                         .has_offset = params->has & F(tensor, offset),
		                         .region = params->region,
		                         .offset = params->offset,
		                         .shape = &params->shape };
}

struct request_operand request_operand(const struct msg_transform *params, enum operand_role role)
{
	const uint64_t amax = params->has & F(transform, amax) ? params->amax.has : 0;

	switch (role) {
	case ROLE_SCALE:
		return converts_with(&params->scale, params->has & F(transform, scale));
	case ROLE_BIAS:
		return converts_with(&params->bias, params->has & F(transform, bias));
	case ROLE_AMAX_SCALE:
		return result_of(&params->amax.scale, amax & F(amax, scale));
	default:
		return result_of(&params->amax.inverse, amax & F(amax, inverse));
	}
}

bool request_run_place(const struct msg_plan_run *run, enum operand_role role, struct region_place *ret)
{
	const struct {
		uint64_t has;
		const struct region_place *at;
	} fields[ROLE_COUNT] = {
		[ROLE_SCALE] = { F(plan_run, scale), &run->scale },
		[ROLE_BIAS] = { F(plan_run, bias), &run->bias },
		[ROLE_AMAX_SCALE] = { F(plan_run, amax_scale), &run->amax_scale },
		[ROLE_AMAX_INVERSE] = { F(plan_run, amax_inverse), &run->amax_inverse },
	};

	*ret = *fields[role].at;
	return run->has & fields[role].has;
}

int request_check_run_place(const struct msg_plan_run *run, enum operand_role role, bool is_wanted,
                            struct error *err)
{
	struct region_place at;
	const bool is_given = request_run_place(run, role, &at);

	if (is_given && !is_wanted)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: a place, but the plan has no tensor for it", role_run_names[role]);
	if (is_wanted && !is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing, but the plan's is a tensor",
		                 role_run_names[role]);
	return 0;
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

static int refuse_place(const char *name, bool has_region, uint64_t region, bool has_offset, uint64_t offset,
                        struct error *err)
{
	if (has_region)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.region: %" PRIu64
		                 ", but plan_prepare takes no region; pass it to plan_run",
		                 name, region);
	if (has_offset)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.offset: %" PRIu64
		                 ", but plan_prepare takes no offset; pass it to plan_run",
		                 name, offset);
	return 0;
}

int request_refuse_places(const struct msg_transform *params, struct error *err)
{
	int r = refuse_place("dst", params->dst.has & F(tensor, region), params->dst.region,
	                     params->dst.has & F(tensor, offset), params->dst.offset, err);

	if (r == 0)
		r = refuse_place("src", params->src.has & F(tensor, region), params->src.region,
		                 params->src.has & F(tensor, offset), params->src.offset, err);
	for (enum operand_role role = 0; role < ROLE_COUNT && r == 0; role++) {
		const struct request_operand operand = request_operand(params, role);

		if (operand.is_given)
			r = refuse_place(role_names[role], operand.has_region, operand.region,
			                 operand.has_offset, operand.offset, err);
	}
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

/* Checks one result of amax against dst and src. */
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
	const struct tensor_place *scale_place = &places->operand[ROLE_AMAX_SCALE];
	const struct tensor_place *inverse_place = &places->operand[ROLE_AMAX_INVERSE];
	int r;

	if (!amax->is)
		return 0;
	assert(sides);
	r = check_sides(places, sides, scale_place, scale, role_names[ROLE_AMAX_SCALE], err);
	if (r == 0)
		r = check_sides(places, sides, inverse_place, inverse, role_names[ROLE_AMAX_INVERSE], err);
	if (r < 0 || !scale->is || !inverse->is)
		return r;
	return check_result(inverse_place, inverse, role_names[ROLE_AMAX_INVERSE], scale_place,
	                    &scale->layout, scale->extent, role_names[ROLE_AMAX_SCALE], err);
}

int request_check_operands(const struct request_places *places, const struct transform_sides *sides,
                           const struct conversion *conversion, struct error *err)
{
	int r;

	if (!conversion->is)
		return 0;
	r = check_operand(&places->operand[ROLE_SCALE], &conversion->scale, role_names[ROLE_SCALE], sides,
	                  &places->dst, err);
	if (r == 0)
		r = check_operand(&places->operand[ROLE_BIAS], &conversion->bias, role_names[ROLE_BIAS],
		                  sides, &places->dst, err);
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

/* ---- Further destinations ------------------------------------------------------------------------------ */

/* Maximum number of steps, as overlap_steps counts them, that one request's searches for overlaps may
 * take. */
#define MOST_STEPS 65536

#define NAME_SIZE 24 /* enough for "further_dst[64]" */

int request_check_further(const struct msg_transform *params, struct error *err)
{
	if (params->further_dst.n > REQUEST_MOST_FURTHER)
		return error_set(err, STATUS_INVALID_ARGUMENT, "further_dst: %" PRIu32 " tensors, at most %d",
		                 params->further_dst.n, REQUEST_MOST_FURTHER);
	if (params->has & F(transform, amax))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "further_dst: not with amax, whose scales are of one destination");
	return 0;
}

int request_take_further(const struct msg_tensor *dst, struct msg_tensor *further, struct error *err)
{
	char text[2][64];

	if (further->dtype != dst->dtype)
		return error_set(err, STATUS_INVALID_ARGUMENT, "dtype: %s, but dst has %s",
		                 dtype_names[further->dtype], dtype_names[dst->dtype]);
	if (further->shape.n != dst->shape.n ||
	    memcmp(further->shape.v, dst->shape.v, dst->shape.n * sizeof *dst->shape.v) != 0)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT, "shape: %s, but dst has %s",
		    tensor_shape_text((int)further->shape.n, further->shape.v, text[0], sizeof text[0]),
		    tensor_shape_text((int)dst->shape.n, dst->shape.v, text[1], sizeof text[1]));
	if (further->has & F(tensor, split))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "split: that of dst applies to all destinations");
	further->has |= dst->has & F(tensor, split);
	further->split = dst->split;
	return 0;
}

int request_name_further(uint32_t i, struct error *err)
{
	const struct error said = *err;

	return error_set(err, said.status, "further_dst[%" PRIu32 "]: %s", i, said.message);
}

struct msg_transform request_copy_between(const struct msg_tensor *dst, const struct msg_tensor *src)
{
	struct msg_transform copy = { .has = F(transform, dst) | F(transform, src),
		                      .dst = *dst,
		                      .src = *src };

	copy.dst.has &= ~F(tensor, split);
	copy.src.has &= ~F(tensor, split);
	return copy;
}

/* ---- Destinations that are apart from each other ------------------------------------------------------- */

static void name_destination(uint32_t i, char text[NAME_SIZE])
{
	if (i == 0)
		strcpy(text, "dst");
	else
		snprintf(text, NAME_SIZE, "further_dst[%" PRIu32 "]", i - 1);
}

static int check_pair(const struct request_destination *of, uint32_t a, uint32_t b, struct error *err)
{
	char name[2][NAME_SIZE];
	const struct transform_sides sides = { .dst = &of[a].layout,
		                               .src = &of[b].layout,
		                               .dst_extent = of[a].extent,
		                               .src_extent = of[b].extent,
		                               .dst_name = name[0] };

	name_destination(a, name[0]);
	name_destination(b, name[1]);
	return transform_check_side(&sides, &of[a].place, &of[b].place, name[1], err);
}

int request_check_destinations(const struct request_destination *of, uint32_t n, uint64_t steps_before,
                               struct error *err)
{
	int r = 0;

	for (uint32_t a = 0; r == 0 && a < n; a++)
		for (uint32_t b = a + 1; r == 0 && b < n; b++) {
			r = check_pair(of, a, b, err);
			if (r == 0)
				r = request_check_effort(steps_before, err);
		}
	return r;
}

int request_check_effort(uint64_t steps_before, struct error *err)
{
	const uint64_t steps = overlap_steps() - steps_before;

	if (steps < MOST_STEPS)
		return 0;
	return error_set(err, STATUS_QUOTA,
	                 "further_dst: checking the destinations for overlap took %" PRIu64
	                 " steps of the %d that a request has; send some of them in another one",
	                 steps, MOST_STEPS);
}

/* ---- Gather and scatter: lists ------------------------------------------------------------------------- */

static int64_t *copy_layers(int64_t *to, const struct bytes *list, const int64_t **ret)
{
	const size_t n = list->len / sizeof *to;

	memcpy(to, list->data, list->len);
	for (size_t l = 0; l < n; l++)
		to[l] = (int64_t)le64toh((uint64_t)to[l]);
	*ret = to;
	return to + n;
}

size_t request_list_bytes(const struct msg_blocks *p)
{
	return 2 * p->dst_layers.len + p->src_layers.len + p->index.len;
}

int64_t *request_copy_lists(const struct msg_blocks *p, int64_t *words, struct engine_blocks *blocks)
{
	int64_t *to = words, *sorted = NULL;

	if (p->has & F(blocks, dst_layers)) {
		to = copy_layers(to, &p->dst_layers, &blocks->dst.layers);
		sorted = to;
		to += blocks->layers;
	}
	if (p->has & F(blocks, src_layers))
		to = copy_layers(to, &p->src_layers, &blocks->src.layers);
	if (p->has & F(blocks, index)) {
		memcpy(to, p->index.data, p->index.len);
		blocks->index = to;
	}
	return sorted;
}

int request_check_entries(const struct msg_blocks *p, struct engine_blocks *ret, struct error *err)
{
	const bool in_message = p->has & F(blocks, index), in_region = p->has & F(blocks, index_at);

	if (p->index_dtype != DTYPE_INT32 && p->index_dtype != DTYPE_INT64)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index_dtype: %s, but entries must be int32 or int64",
		                 dtype_names[p->index_dtype]);
	ret->index_bytes = (uint8_t)dtype_size(p->index_dtype);
	if (in_message == in_region)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index: %s; a list is either in the message or in a region",
		                 in_message ? "index_at is given too" : "missing, as is index_at");
	if (in_region != !!(p->has & F(blocks, count)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "count: %s",
		                 in_region
		                     ? "missing; index_at needs it"
		                     : "given too, but the length of index says how many entries there are");
	if (p->pairs && ret->scatter)
		return error_set(err, STATUS_INVALID_ARGUMENT, "pairs: only a gather takes them");
	ret->pairs = p->pairs;
	ret->n = in_region ? p->count : p->index.len / blocks_entry_bytes(ret);
	if (in_message && p->index.len % blocks_entry_bytes(ret))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "index: %zu bytes is not a multiple of the %" PRIu32
		                 " bytes of an entry (%s%s)",
		                 p->index.len, blocks_entry_bytes(ret), p->pairs ? "two of " : "",
		                 dtype_names[p->index_dtype]);
	if (p->has & F(blocks, dst_limit) && !p->pairs)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst_limit: %" PRIu64
		                 ", but only a list of pairs has it; limit is that of the "
		                 "indexed side",
		                 p->dst_limit);
	return 0;
}

static int check_layers(const struct request_layers *fields, uint64_t layers, struct error *err)
{
	const char *side = fields->side;

	if (fields->has_step && fields->has_list)
		return error_set(
		    err, STATUS_INVALID_ARGUMENT,
		    "%s_layers: %s_layer_step is given too; layers are either listed or evenly spaced", side,
		    side);
	if (fields->has_list &&
	    (fields->list_bytes % sizeof(int64_t) || fields->list_bytes / sizeof(int64_t) != layers))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s_layers: %zu bytes, but layers is %" PRIu64 " and each takes 8", side,
		                 fields->list_bytes, layers);
	if (layers > 1 && !fields->has_step && !fields->has_list)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s_layer_step: missing, as is %s_layers, but layers is %" PRIu64, side,
		                 side, layers);
	return 0;
}

/* ---- Gather and scatter: tables ------------------------------------------------------------------------ */

const char *request_table_name(const struct request_layers *fields)
{
	static const char *const names[2][2] = { { "src_places", "src_table" },
		                                 { "dst_places", "dst_table" } };

	return names[fields->side[0] == 'd'][fields->has_table];
}

int request_check_table(const struct request_layers *fields, struct error *err)
{
	const char *side = fields->side, *name = request_table_name(fields);

	if (!request_has_table(fields))
		return 0;
	if (fields->has_table && fields->has_places)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s_places: %s_table is given too; a table is either prepared or sent", side,
		                 side);
	if (fields->has_step || fields->has_list)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: %s_layer%s is given too; a table has layers", name, side,
		                 fields->has_list ? "s" : "_step");
	if (fields->tensor->has & F(tensor, region))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.region: %" PRIu64 ", but %s names regions",
		                 side, fields->tensor->region, name);
	return 0;
}

int request_count_layers(const struct msg_blocks *p, const struct request_layers sides[2],
                         const uint32_t entries[2], uint32_t *ret, struct error *err)
{
	uint64_t layers = p->layers;
	int r = 0;

	for (int i = 1; i >= 0 && !(p->has & F(blocks, layers)); i--)
		layers = entries[i] ? entries[i] : layers;
	if (layers == 0 || layers > UINT32_MAX)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "layers: %" PRIu64 ", but it must be 1 to %" PRIu32, layers, UINT32_MAX);
	for (int i = 0; i < 2 && r == 0; i++)
		if (!entries[i])
			r = check_layers(&sides[i], layers, err);
		else if (entries[i] != layers)
			r = error_set(err, STATUS_INVALID_ARGUMENT,
			              "%s: %" PRIu32 " entries, but there are %" PRIu64 " layers",
			              request_table_name(&sides[i]), entries[i], layers);
	*ret = (uint32_t)layers;
	return r;
}

int request_check_run_places(const struct msg_plan_run *p, struct error *err)
{
	if (!(p->has & F(plan_run, dst)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "dst: missing, as is dst_table");
	if (!(p->has & F(plan_run, src)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src: missing, as is src_table");
	return 0;
}

int request_check_run_tables(const struct msg_plan_run *p, struct error *err)
{
	if (!(p->has & F(plan_run, dst_table)))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst_table: missing, but src_table is %" PRIu64
		                 "; many sources have as many destinations",
		                 p->src_table);
	if (p->has & F(plan_run, dst))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "dst: dst_table is given too; it has the places");
	if (!(p->has & F(plan_run, src)) == !(p->has & F(plan_run, src_table)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src: %s",
		                 p->has & F(plan_run, src) ? "src_table is given too; it has the places"
		                                           : "missing, as is src_table");
	return 0;
}

/* ---- Gather and scatter: a block ----------------------------------------------------------------------- */

struct msg_transform request_block(const struct msg_blocks *p)
{
	struct msg_transform transform = {
		.dst = p->dst,
		.src = p->src,
		.perm = p->perm,
		.before = p->before,
		.after = p->after,
		.mode = p->mode,
		.value = p->value,
		.cast = p->cast,
		.scale = p->scale,
		.bias = p->bias,
	};

	transform.has = F(transform, dst) | F(transform, src);
	transform.has |= p->has & F(blocks, perm) ? F(transform, perm) : 0;
	transform.has |= p->has & F(blocks, before) ? F(transform, before) : 0;
	transform.has |= p->has & F(blocks, after) ? F(transform, after) : 0;
	transform.has |= p->has & F(blocks, cast) ? F(transform, cast) : 0;
	transform.has |= p->has & F(blocks, scale) ? F(transform, scale) : 0;
	transform.has |= p->has & F(blocks, bias) ? F(transform, bias) : 0;
	return transform;
}

/* A list moves each block by one transform, while a split with an incomplete last block needs several. */
int request_block_spec(const struct msg_transform *block, struct transform_spec *ret, struct error *err)
{
	struct split split;
	int r;

	if (!transform_is_split(block))
		return transform_spec_of(block, ret, err);
	r = transform_split_of(block, &split, err);
	if (r < 0)
		return r;
	if (split.n_rests > 0)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "%s.split: the last block is incomplete; gather and scatter take only "
		                 "splits into complete blocks",
		                 split.rest[0].is_src ? "src" : "dst");
	*ret = split.spec;
	return 0;
}

/* Returns whether the request gives the number of blocks of the indexed side: dst if is_dst, otherwise
 * src. */
static bool has_limit(const struct msg_blocks *p, bool is_dst)
{
	return (p->has & (p->pairs && is_dst ? F(blocks, dst_limit) : F(blocks, limit))) != 0;
}

int request_check_ends(const struct msg_blocks *p, const struct engine_blocks *blocks, bool dst_has_end,
                       bool src_has_end, struct error *err)
{
	const bool needs_dst = blocks_dst_is_indexed(blocks) && !dst_has_end && !has_limit(p, true);
	const bool needs_src = blocks_src_is_indexed(blocks) && !src_has_end && !has_limit(p, false);

	if (!needs_dst && !needs_src)
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "%slimit: missing; where %s has no region, nothing else says how many blocks it has",
	                 needs_dst && blocks->pairs ? "dst_" : "", needs_dst ? "dst" : "src");
}

int request_set_steps(const struct msg_blocks *p, const struct transform_spec *spec,
                      const struct tensor_place *dst_place, const struct tensor_place *src_place,
                      struct engine_blocks *blocks, struct error *err)
{
	const struct tensor_extent dst = tensor_extent(&spec->dst), src = tensor_extent(&spec->src);
	int r = 0;

	blocks->dst.step = p->has & F(blocks, dst_step) ? p->dst_step : blocks_default_step(dst);
	blocks->src.step = p->has & F(blocks, src_step) ? p->src_step : blocks_default_step(src);
	blocks->limit = p->limit;
	blocks->dst_limit = p->dst_limit;
	if (blocks_dst_is_indexed(blocks) && !has_limit(p, true))
		r = blocks_default_limit(blocks, true, dst, dst_place, err);
	if (r == 0 && blocks_src_is_indexed(blocks) && !has_limit(p, false))
		r = blocks_default_limit(blocks, false, src, src_place, err);
	return r;
}
