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

/* Does what local_check_reach does. If the call waits, it also accepts ordinary host memory, because the
 * request then uses a copy on the device. */
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

static int place_operand(const struct local_session *session, const struct request_operand *operand,
                         enum operand_role role, struct tensor_place *ret, struct error *err)
{
	char name[32];
	int r;

	if (!operand->is_tensor)
		return 0;
	snprintf(name, sizeof name, "%s.region", role_names[role]);
	r = local_place(session, operand->has_region, operand->region, operand->offset, role_is_written(role),
	                name, ret, err);
	return r < 0 || local_is_empty(operand->shape) ? r : check_reach_or_copy(session, ret, name, err);
}

int local_places(const struct local_session *session, const struct msg_transform *t,
                 struct request_places *ret, struct error *err)
{
	int r = local_place_tensor(session, &t->dst, true, "dst.region", &ret->dst, err);

	if (r == 0)
		r = local_place_tensor(session, &t->src, false, "src.region", &ret->src, err);
	if (r < 0 || !transform_has_operands(t))
		return r;
	for (enum operand_role role = 0; role < ROLE_COUNT && r == 0; role++) {
		const struct request_operand operand = request_operand(t, role);

		r = place_operand(session, &operand, role, &ret->operand[role], err);
	}
	return r;
}

/* ---- For the engine ----------------------------------------------------------------------------------- */

struct engine_move local_operands(const struct msg_transform *t, const struct request_places *places,
                                  struct engine_memory *own)
{
	struct engine_move ret = { .transform = NULL };

	for (enum operand_role role = 0; role < ROLE_COUNT; role++) {
		const struct request_operand operand = request_operand(t, role);

		ret.operand[role] = (struct engine_operand){
			.number = operand.number,
			.memory = operand.is_tensor ? own : NULL,
			.offset = operand.is_tensor ? local_offset(&places->operand[role], own) : 0
		};
	}
	return ret;
}
