/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what a request names (regions, operands, points of timelines), chooses a device that reaches it, and
 * plans the parts of a transform between such places. */
#include "placed.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "planning.h"

/* ---- Places ------------------------------------------------------------------------------------------- */

int placed_find(struct session *session, const struct region_place *dst, const char *dst_name,
                const struct region_place *src, const char *src_name, struct placed *ret, struct error *err)
{
	int r = region_table_find(&session->regions, dst->region, dst_name, &ret->dst, err);

	if (r == 0)
		r = region_table_find(&session->regions, src->region, src_name, &ret->src, err);
	if (r == 0)
		r = region_check_writable(ret->dst, dst_name, err);
	ret->dst_offset = dst->offset;
	ret->src_offset = src->offset;
	return r;
}

/* Returns the device of the first region in device memory. If all are in host memory, returns that of the
 * first region, which is not NULL; the others may be. */
static uint32_t choose_device(struct region *const regions[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (regions[i] && !regions[i]->memory->host)
			return regions[i]->device;
	return regions[0]->device;
}

static int settle_all(struct placed *placed, uint32_t device, struct error *err)
{
	struct region *regions[2 + ROLE_COUNT] = { placed->dst, placed->src };
	const size_t n = sizeof regions / sizeof *regions;
	const bool is_asked = device == DEVICE_ASKED;
	int r = 0;

	for (int i = 0; i < ROLE_COUNT; i++)
		regions[2 + i] = placed->operand[i].region;
	placed->device = is_asked || device == DEVICE_ANY ? choose_device(regions, n) : device;
	for (size_t i = 0; i < n && (r == 0 || r == REACH_LATER); i++) {
		int one = 0;

		if (regions[i])
			one = is_asked ? region_may_reach(regions[i], placed->device, err)
			               : region_reach(regions[i], placed->device, err);
		r = one < 0 ? one : r;
	}
	return r;
}

int placed_settle(struct placed *placed, uint32_t device, struct error *err)
{
	placed->device = 0;
	return placed->dst->service->devices.need_reach ? settle_all(placed, device, err) : 0;
}

/* ---- Operands ----------------------------------------------------------------------------------------- */

int placed_find_operand(struct session *session, enum operand_role role, const char *name,
                        const struct region_place *at, struct placed *ret, struct error *err)
{
	struct placed_operand *operand = &ret->operand[role];
	int r = region_table_find(&session->regions, at->region, name, &operand->region, err);

	operand->offset = at->offset;
	return r == 0 && role_is_written(role) ? region_check_writable(operand->region, name, err) : r;
}

static int find_operand(struct session *session, const struct msg_transform *params, enum operand_role role,
                        struct placed *ret, struct error *err)
{
	const struct request_operand operand = request_operand(params, role);
	const struct region_place at = { operand.region, operand.offset };
	char name[32];

	ret->operand[role].number = operand.number;
	if (!operand.is_tensor)
		return 0;
	snprintf(name, sizeof name, "%s.region", role_names[role]);
	return operand.has_region ? placed_find_operand(session, role, name, &at, ret, err)
	                          : error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing", name);
}

int placed_find_operands(struct session *session, const struct msg_transform *params, struct placed *ret,
                         struct error *err)
{
	int r = 0;

	memset(ret->operand, 0, sizeof ret->operand);
	if (!transform_has_operands(params))
		return 0;
	for (enum operand_role role = 0; role < ROLE_COUNT && r == 0; role++)
		r = find_operand(session, params, role, ret, err);
	return r;
}

/* ---- All of them -------------------------------------------------------------------------------------- */

int placed_find_all(struct session *session, const struct msg_transform *params, struct placed *ret,
                    struct error *err)
{
	const struct region_place dst = { params->dst.region, params->dst.offset };
	const struct region_place src = { params->src.region, params->src.offset };
	int r;

	if (!(params->dst.has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "dst.region: missing");
	if (!(params->src.has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src.region: missing");
	r = placed_find(session, &dst, "dst.region", &src, "src.region", ret, err);
	if (r == 0)
		r = placed_find_operands(session, params, ret, err);
	return r;
}

int placed_of(struct session *session, const struct msg_transform *params, uint32_t device,
              struct placed *ret, struct error *err)
{
	int r = placed_find_all(session, params, ret, err);

	return r < 0 ? r : placed_settle(ret, device, err);
}

/* The device is part of a memory's identity here, because engines of different devices may give the same
 * numbers to different memories. */
struct tensor_place place_of(const struct region *region, uint64_t offset)
{
	const struct engine_memory *memory = region->memory;
	const uint64_t of_device = memory->host ? 0 : (uint64_t)region->device << 32;

	return (struct tensor_place){ .memory = { memory->memory[0] - of_device, memory->memory[1] },
		                      .base = memory->base,
		                      .offset = offset,
		                      .size = memory->size,
		                      .chunks = memory->chunks };
}

struct plan_places placed_places(const struct placed *placed)
{
	return plan_places(placed->dst->memory->base + placed->dst_offset,
	                   placed->src->memory->base + placed->src_offset);
}

int placed_check(const struct placed *placed, const struct transform_sides *sides, struct error *err)
{
	struct tensor_place dst = place_of(placed->dst, placed->dst_offset);
	struct tensor_place src = place_of(placed->src, placed->src_offset);

	return transform_check_sides(sides, &dst, &src, err);
}

int placed_check_operands(const struct placed *placed, const struct transform_sides *sides,
                          const struct conversion *conversion, struct error *err)
{
	if (!conversion->is)
		return 0;
	struct request_places places = {
		.dst = place_of(placed->dst, placed->dst_offset),
		.src = place_of(placed->src, placed->src_offset),
	};

	for (int i = 0; i < ROLE_COUNT; i++)
		if (placed->operand[i].region)
			places.operand[i] = place_of(placed->operand[i].region, placed->operand[i].offset);
	return request_check_operands(&places, sides, conversion, err);
}

struct placed placed_part(const struct placed *placed, int64_t dst_offset, int64_t src_offset)
{
	struct placed part = *placed;

	part.dst_offset += (uint64_t)dst_offset;
	part.src_offset += (uint64_t)src_offset;
	return part;
}

static struct engine_operand operand_of(const struct placed *placed, const struct placed_operand *operand)
{
	return (struct engine_operand){ .number = operand->number,
		                        .memory = operand->region
		                                      ? region_memory(operand->region, placed->device)
		                                      : NULL,
		                        .offset = operand->offset };
}

struct engine_move placed_move(struct engine_plan *plan, const struct placed *placed)
{
	struct engine_move ret = {
		.transform = engine_plan_transform(plan),
		.plan = plan,
		.dst = region_memory(placed->dst, placed->device),
		.src = region_memory(placed->src, placed->device),
		.dst_offset = placed->dst_offset,
		.src_offset = placed->src_offset,
	};

	for (int i = 0; i < ROLE_COUNT; i++)
		ret.operand[i] = operand_of(placed, &placed->operand[i]);
	return ret;
}

/* ---- Parts --------------------------------------------------------------------------------------------- */

int parts_charge(struct transforms_charge *charge, uint32_t n, struct error *err)
{
	return charge && n > 1 ? transforms_charge_add(charge, n - 1, err) : 0;
}

void parts_discharge(struct transforms_charge *charge, uint32_t n, int r)
{
	if (charge && n > 1 && r != PLANNING_LATER)
		transforms_charge_shrink(charge, n - 1);
}

void parts_unref(struct parts *parts)
{
	for (uint32_t i = 0; i < parts->n; i++)
		engine_plan_unref(parts->part[i].plan);
	parts->n = 0;
}

int parts_check_operands(struct parts *parts, const struct transform_sides *sides, struct error *err)
{
	const struct transform *transform = engine_plan_transform(parts->part[0].plan);
	int r = placed_check_operands(&parts->placed, sides, &transform->conversion, err);

	if (r < 0)
		parts_unref(parts);
	return r;
}

int parts_plan(struct session *session, const struct split *split, bool is_placed, struct parts *ret,
               struct error *err)
{
	const uint32_t device = ret->placed.device;
	bool is_later = false;

	ret->largest = (uint32_t)split->largest;
	for (ret->n = 0; ret->n < (uint32_t)split->n_parts; ret->n++) {
		struct part *part = &ret->part[ret->n];
		struct plan_places places;
		struct split_part one;
		struct placed placed;
		int r;

		split_get(split, (int)ret->n, &one);
		part->dst_offset = one.dst_offset;
		part->src_offset = one.src_offset;
		if (is_placed)
			placed = placed_part(&ret->placed, one.dst_offset, one.src_offset);
		places = is_placed ? placed_places(&placed)
		                   : plan_places((uint64_t)one.dst_offset, (uint64_t)one.src_offset);
		part->plan = NULL;
		r = planning_get(session, device, &one.spec, places, &part->plan, err);
		is_later |= r == PLANNING_LATER;
		if (r < 0 && r != PLANNING_LATER) {
			parts_unref(ret);
			return r;
		}
	}
	if (!is_later)
		return 0;
	parts_unref(ret);
	return err->status = PLANNING_LATER;
}

/* ---- Orders -------------------------------------------------------------------------------------------- */

static int find_word(struct session *session, uint64_t id, uint64_t offset, const char *name,
                     struct region **ret, struct error *err)
{
	struct tensor_place place;
	char region_name[16];
	int r;

	snprintf(region_name, sizeof region_name, "%s.region", name);
	r = region_table_find(&session->regions, id, region_name, ret, err);
	if (r == 0)
		r = region_check_writable(*ret, region_name, err);
	if (r < 0)
		return r;
	place = place_of(*ret, offset);
	return request_check_word(&place, id, name, err);
}

static int check_wait(struct session *session, const struct msg_wait *wait, struct order *ret,
                      struct error *err)
{
	uint64_t most = session->service->limits.wait_deadline_ms;

	ret->wait_ms = wait->has & F(wait, deadline_ms) ? wait->deadline_ms : most;
	if (ret->wait_ms > most)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "wait.deadline_ms: %" PRIu64 ", at most %" PRIu64 " (wait_deadline_ms)",
		                 ret->wait_ms, most);
	ret->wait_offset = wait->offset;
	ret->wait_value = wait->value;
	return find_word(session, wait->region, wait->offset, "wait", &ret->wait, err);
}

int order_check(struct session *session, const struct order_fields *fields, uint64_t has, struct order *ret,
                struct error *err)
{
	const struct msg_signal *signal = &fields->signal;
	int r = 0;

	*ret = (struct order){ .completion = fields->reply, .deadline_ms = fields->deadline_ms };
	order_set_share(session, fields, ret);
	if (fields->reply == COMPLETION_SIGNAL && !(has & F(order, signal)))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "reply: signal, but the request has no signal to tell when it is done");
	if (has & F(order, wait))
		r = check_wait(session, &fields->wait, ret, err);
	if (r == 0 && has & F(order, signal)) {
		ret->signal_offset = signal->offset;
		ret->signal_value = signal->value;
		r = find_word(session, signal->region, signal->offset, "signal", &ret->signal, err);
	}
	return r;
}

void order_set_share(struct session *session, const struct order_fields *fields, struct order *ret)
{
	const struct limits *limits = account_limits(&session->service->accounts, session->account);

	ret->share = (struct engine_share){
		.priority = fields->priority,
		.multiprocessors = order_within(fields->multiprocessors, limits->multiprocessors),
		.host_threads = order_within(fields->host_threads, limits->host_threads),
	};
}
