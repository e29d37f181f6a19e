/* SPDX-License-Identifier: Apache-2.0 */
/* The places, plans and jobs of requests. */
#include "transforms.h"

#include "daemon/resource/job.h"
#include "daemon/resource/planning.h"
#include "daemon/resource/reach.h"
#include "daemon/server.h"
#include "daemon/net/session.h"

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

/* Of memories in their turn: the first that is on a device has the choice; all in host memory, the first of
 * all. */
static uint32_t choose_device(struct region *const regions[], size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (regions[i] && !regions[i]->memory->host)
			return regions[i]->device;
	return regions[0]->device;
}

/* Of a region that there may not be. */
static int settle_one(struct region *region, uint32_t device, bool is_asked, struct error *err)
{
	if (!region)
		return 0;
	return is_asked ? region_may_reach(region, device, err) : region_reach(region, device, err);
}

static int settle_all(struct placed *placed, uint32_t device, struct error *err)
{
	struct region *const regions[] = {
		placed->dst,
		placed->src,
		placed->scale.region,
		placed->bias.region,
		placed->amax_scale.region,
		placed->amax_inverse.region,
	};
	const size_t n = sizeof regions / sizeof *regions;
	const bool is_asked = device == DEVICE_ASKED;
	int r = 0;

	placed->device = is_asked || device == DEVICE_ANY ? choose_device(regions, n) : device;
	for (size_t i = 0; i < n && (r == 0 || r == REACH_LATER); i++) {
		const int one = settle_one(regions[i], placed->device, is_asked, err);

		r = one < 0 ? one : r;
	}
	return r;
}

int placed_settle(struct placed *placed, uint32_t device, struct error *err)
{
	placed->device = 0;
	return placed->dst->server->devices.need_reach ? settle_all(placed, device, err) : 0;
}

/* ---- Operands ----------------------------------------------------------------------------------------- */

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

	if (!transform_has_operands(params)) {
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

/* What an engine tells memories of its device apart by, others may use too. */
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

/* Returns the place of a tensor in a region, or nothing for a region of NULL. */
static struct tensor_place place_if(const struct region *region, uint64_t offset)
{
	return region ? place_of(region, offset) : (struct tensor_place){ 0 };
}

int placed_check_operands(const struct placed *placed, const struct transform_sides *sides,
                          const struct conversion *conversion, struct error *err)
{
	if (!conversion->is)
		return 0;
	const struct request_places places = {
		.dst = place_if(placed->dst, placed->dst_offset),
		.src = place_if(placed->src, placed->src_offset),
		.scale = place_if(placed->scale.region, placed->scale.offset),
		.bias = place_if(placed->bias.region, placed->bias.offset),
		.amax_scale = place_if(placed->amax_scale.region, placed->amax_scale.offset),
		.amax_inverse = place_if(placed->amax_inverse.region, placed->amax_inverse.offset),
	};

	return request_check_operands(&places, sides, conversion, err);
}

struct placed placed_part(const struct placed *placed, int64_t dst_offset, int64_t src_offset)
{
	struct placed part = *placed;

	part.dst_offset += (uint64_t)dst_offset;
	part.src_offset += (uint64_t)src_offset;
	return part;
}

static struct engine_memory *memory_if(const struct region *region, uint32_t device)
{
	return region ? region_memory(region, device) : NULL;
}

static struct engine_operand operand_of(const struct placed_operand *placed, uint32_t device)
{
	return (struct engine_operand){ .number = placed->number,
		                        .memory = memory_if(placed->region, device),
		                        .offset = placed->offset };
}

static struct engine_result result_of(const struct placed_result *placed, uint32_t device)
{
	return (struct engine_result){ .memory = memory_if(placed->region, device),
		                       .offset = placed->offset };
}

struct engine_move placed_move(struct engine_plan *plan, const struct placed *placed)
{
	return (struct engine_move){
		.transform = engine_plan_transform(plan),
		.plan = plan,
		.dst = region_memory(placed->dst, placed->device),
		.src = region_memory(placed->src, placed->device),
		.dst_offset = placed->dst_offset,
		.src_offset = placed->src_offset,
		.scale = operand_of(&placed->scale, placed->device),
		.bias = operand_of(&placed->bias, placed->device),
		.amax_scale = result_of(&placed->amax_scale, placed->device),
		.amax_inverse = result_of(&placed->amax_inverse, placed->device),
	};
}

int transform_check(struct session *session, const struct msg_transform *params,
                    struct checked_transform *ret, struct error *err)
{
	struct transform_sides sides;
	struct transform transform;
	struct split_part part;
	struct split split;
	int r = transform_split_of(params, &split, err);

	if (r < 0)
		return r;
	split_get(&split, 0, &part);
	r = transform_init(&transform, &part.spec, err);
	if (r == 0)
		r = placed_find_all(session, params, &ret->placed, err);
	if (r < 0)
		return r;
	sides = transform_is_split(params) ? split_sides(&split) : transform_sides(&transform);
	r = placed_check(&ret->placed, &sides, err);
	if (r == 0)
		r = placed_check_operands(&ret->placed, &sides, &transform.conversion, err);
	ret->dst = *sides.dst;
	ret->dst_extent = sides.dst_extent;
	return r;
}

/* ---- Plans -------------------------------------------------------------------------------------------- */

int parts_charge(struct job *job, uint32_t n, struct error *err)
{
	return job && n > 1 ? job_charge(job, n - 1, err) : 0;
}

void parts_discharge(struct job *job, uint32_t n, int r)
{
	if (job && n > 1 && r != PLANNING_LATER)
		job_discharge(job, n - 1);
}

void parts_unref(struct parts *parts)
{
	for (uint32_t i = 0; i < parts->n; i++)
		engine_plan_unref(parts->part[i].plan);
	parts->n = 0;
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

/* Places are checked before plans are made: there may be many. */
static int plan_split(struct session *session, const struct msg_transform *params, uint32_t device,
                      struct job *job, struct parts *ret, struct error *err)
{
	struct transform_sides sides;
	struct split split;
	int r = transform_split_of(params, &split, err);

	if (r == 0)
		r = placed_of(session, params, device, &ret->placed, err);
	if (r < 0)
		return r;
	sides = split_sides(&split);
	r = placed_check(&ret->placed, &sides, err);
	if (r == 0)
		r = parts_charge(job, (uint32_t)split.n_parts, err);
	if (r < 0)
		return r;
	r = parts_plan(session, &split, true, ret, err);
	if (r == 0) {
		r = placed_check_operands(&ret->placed, &sides,
		                          &engine_plan_transform(ret->part[0].plan)->conversion, err);
		if (r < 0)
			parts_unref(ret);
	}
	if (r < 0)
		parts_discharge(job, (uint32_t)split.n_parts, r);
	return r;
}

static int plan_plain(struct session *session, const struct msg_transform *params, uint32_t device,
                      struct parts *ret, struct error *err)
{
	struct engine_plan **plan = &ret->part[0].plan;
	struct transform_sides sides;
	struct transform_spec spec;
	int r = transform_spec_of(params, &spec, err);

	if (r == 0)
		r = placed_of(session, params, device, &ret->placed, err);
	if (r < 0)
		return r;
	r = planning_get(session, ret->placed.device, &spec, placed_places(&ret->placed), plan, err);
	if (r < 0)
		return r;
	ret->n = 1;
	ret->largest = 0;
	ret->part[0].dst_offset = ret->part[0].src_offset = 0;
	sides = transform_sides(engine_plan_transform(*plan));
	r = placed_check(&ret->placed, &sides, err);
	if (r == 0)
		r = placed_check_operands(&ret->placed, &sides, &engine_plan_transform(*plan)->conversion,
		                          err);
	if (r < 0)
		parts_unref(ret);
	return r;
}

int transform_plan(struct session *session, const struct msg_transform *params, uint32_t device,
                   struct job *job, struct parts *ret, struct error *err)
{
	return transform_is_split(params) ? plan_split(session, params, device, job, ret, err)
	                                  : plan_plain(session, params, device, ret, err);
}

/* ---- Jobs --------------------------------------------------------------------------------------------- */

static void answer(struct job *job)
{
	enum family family;
	struct msg_transform_done done = {
		.bytes = job_moved(job, &family),
		.ns = job->engine_job.ns,
	};

	done.path = bytes_of(family_names[family]);
	job_count(job, family, done.bytes, done.ns);
	job_reply(job, &done);
}

int transform_start(struct session *session, const struct rpc_request *request, const struct order *order,
                    struct parts *parts, struct error *err)
{
	struct job *job = job_new(session, request, order, answer, err);
	int r;

	if (!job) {
		parts_unref(parts);
		return err->status;
	}
	r = job_run_on(job, parts->placed.device, err);
	if (r < 0)
		parts_unref(parts);
	else
		r = job_set_parts(job, parts, err);
	if (r < 0)
		job_drop(job);
	else
		job_submit(job);
	return r;
}
