/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the places of the tensors of requests, for checks and for the engine. */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int local_place(const struct local_session *session, bool has_region, uint64_t id, uint64_t offset,
                bool is_written, const char *name, struct tensor_place *ret, struct error *err)
{
	struct local_region region;
	int r;

	*ret = (struct tensor_place){ .offset = offset, .size = UINT64_C(1) << 56 };
	if (!has_region || id == 0)
		return 0;
	r = local_region(session, id, name, &region, err);
	if (r < 0)
		return r;
	if (is_written && !region.writable)
		return error_set(err, STATUS_PERMISSION,
		                 "%s: region %" PRIu64 " is read-only (registered with writable=false)", name,
		                 id);
	ret->base = region.start;
	ret->size = region.size;
	return 0;
}

int local_check_reach(const struct local_session *session, const struct tensor_place *place, const char *name,
                      struct error *err)
{
	char tensor[32];

	if (!session->stream.device)
		return 0;
	snprintf(tensor, sizeof tensor, "%s", name);
	if (strstr(tensor, ".region"))
		*strstr(tensor, ".region") = '\0';
	return engine_check_place(session->stream.device, local_address(place), tensor, err);
}

/* Does what local_check_reach does. If the call waits, it also accepts host memory, which has a copy on the
 * device then. */
static int check_reach_or_copy(const struct local_session *session, const struct tensor_place *place,
                               const char *name, struct error *err)
{
	enum engine_home home = ENGINE_HOME_DEVICE;
	int r = session->stream.device && session->stream.is_awaited
	            ? engine_find_home(session->stream.device, local_address(place), &home, err)
	            : 0;

	return r < 0 || home == ENGINE_HOME_HOST ? r : local_check_reach(session, place, name, err);
}

bool local_is_empty(const struct int_list *shape)
{
	for (uint32_t d = 0; d < shape->n; d++)
		if (shape->v[d] == 0)
			return true;
	return false;
}

int local_place_tensor(const struct local_session *session, const struct msg_tensor *tensor, bool is_written,
                       const char *name, struct tensor_place *ret, struct error *err)
{
	int r = local_place(session, tensor->has & F(tensor, region), tensor->region, tensor->offset,
	                    is_written, name, ret, err);

	return r < 0 || local_is_empty(&tensor->shape) ? r : check_reach_or_copy(session, ret, name, err);
}

static int place_of_operand(const struct local_session *session, const struct msg_operand *operand,
                            bool is_given, const char *name, struct tensor_place *ret, struct error *err)
{
	int r;

	if (!is_given || operand->has & F(operand, number))
		return 0;
	r = local_place(session, operand->has & F(operand, region), operand->region, operand->offset, false,
	                name, ret, err);
	return r < 0 || local_is_empty(&operand->shape) ? r : check_reach_or_copy(session, ret, name, err);
}

int local_places(const struct local_session *session, const struct msg_transform *t,
                 struct request_places *ret, struct error *err)
{
	const uint64_t amax = t->has & F(transform, amax) ? t->amax.has : 0;
	int r = local_place_tensor(session, &t->dst, true, "dst.region", &ret->dst, err);

	if (r == 0)
		r = local_place_tensor(session, &t->src, false, "src.region", &ret->src, err);
	if (r < 0 || !transform_has_operands(t))
		return r;
	r = place_of_operand(session, &t->scale, t->has & F(transform, scale), "scale.region", &ret->scale,
	                     err);
	if (r == 0)
		r = place_of_operand(session, &t->bias, t->has & F(transform, bias), "bias.region",
		                     &ret->bias, err);
	if (r == 0 && amax & F(amax, scale))
		r = local_place_tensor(session, &t->amax.scale, true, "amax.scale.region", &ret->amax_scale,
		                       err);
	if (r == 0 && amax & F(amax, inverse))
		r = local_place_tensor(session, &t->amax.inverse, true, "amax.inverse.region",
		                       &ret->amax_inverse, err);
	return r;
}

/* ---- For the engine ----------------------------------------------------------------------------------- */

static struct engine_operand operand_of(const struct msg_operand *params, bool is_given,
                                        const struct tensor_place *place, struct engine_memory *own)
{
	const bool is_tensor = is_given && !(params->has & F(operand, number));

	return (struct engine_operand){ .number = operand_number(params, is_given),
		                        .memory = is_tensor ? own : NULL,
		                        .offset = is_tensor ? local_offset(place, own) : 0 };
}

static struct engine_result result_of(bool is_given, const struct tensor_place *place,
                                      struct engine_memory *own)
{
	return (struct engine_result){ .memory = is_given ? own : NULL,
		                       .offset = is_given ? local_offset(place, own) : 0 };
}

struct engine_move local_operands(const struct msg_transform *t, const struct request_places *places,
                                  struct engine_memory *own)
{
	const uint64_t amax = t->has & F(transform, amax) ? t->amax.has : 0;

	return (struct engine_move){
		.scale = operand_of(&t->scale, t->has & F(transform, scale), &places->scale, own),
		.bias = operand_of(&t->bias, t->has & F(transform, bias), &places->bias, own),
		.amax_scale = result_of(amax & F(amax, scale), &places->amax_scale, own),
		.amax_inverse = result_of(amax & F(amax, inverse), &places->amax_inverse, own),
	};
}
