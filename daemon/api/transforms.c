/* SPDX-License-Identifier: Apache-2.0 */
/* Gets from the parameters of a transform to a plan between two places, and handles the methods copy,
 * transpose, pad, transform and explain. */
#include "transforms.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/jobs/job.h"
#include "daemon/jobs/planning.h"
#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "kernels/elsewhere.h"
#include "dispatch.h"

/* ---- Checks and plans ---------------------------------------------------------------------------------- */

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

/* Plans a split transform. The places are checked before plans are made, because there may be many plans. */
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
		r = parts_charge(job ? &job->charge : NULL, (uint32_t)split.n_parts, err);
	if (r < 0)
		return r;
	r = parts_plan(session, &split, true, ret, err);
	if (r == 0)
		r = parts_check_operands(ret, &sides, err);
	if (r < 0)
		parts_discharge(job ? &job->charge : NULL, (uint32_t)split.n_parts, r);
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
		return parts_check_operands(ret, &sides, err);
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

static void answer_transform(struct job *job)
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
	struct job *job = job_new(session, request, order, answer_transform, err);
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

/* ---- copy, transpose, pad, transform
 * =============================================================================== */

/* The methods copy, transpose, pad and transform check the request against the regions, find or make the
 * plan, and queue the job. */

int method_transform(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct parts parts;
	struct order order;
	int r = order_of(session, transform, p, &order, err);

	if (r == 0 && p->further_dst.n > 0)
		return destinations_start(session, request, &order, err);
	if (r == 0 && transform_is_bounced(session, p))
		return bounced_start(session, request, &order, err);
	if (r == 0)
		r = transform_plan(session, p, DEVICE_ANY, NULL, &parts, err);
	if (r == 0)
		r = transform_start(session, request, &order, &parts, err);
	return r;
}

/* ---- explain ================================================================================= */

/* explain plans a transform for this service's engine or for another one, without running it, and tells how
 * long it is predicted to take and how long it has taken. */

/* Replies with the explanation `of`, which answers the question. */
static void answer_explanation(struct session *session, const struct rpc_request *request,
                               const struct planning_question *question, const struct engine_explanation *of)
{
	struct msg_rule rules[FAMILY_MOST_RULES];
	struct msg_explanation e;

	explanation_answer(of, question->engine ? question->engine->name : question->name, &e, rules);
	if (question->engine) {
		e.device = bytes_of(question->engine->uuid);
		e.has |= e.device.len > 0 ? F(explanation, device) : 0;
	}
	if (question->n > 1) {
		e.parts = question->n;
		e.has |= F(explanation, parts);
	} else if (question->engine) { /* only plans of this service's engines have runs */
		explanation_add_runs(engine_plan_runs(question->plans[0]), &e);
	}
	session_reply(session, request->msgid, request->method, &e, -1);
}

/* Sets *ret to the name of the engine that the request asks about, or to NULL if it is this service's. */
static int other_engine(const struct session *session, const struct msg_transform *p, const char **ret,
                        struct error *err)
{
	const struct engine *own = device_engine(&session->service->devices, 0);

	*ret = NULL;
	if (!(p->has & F(transform, engine)) ||
	    (p->engine.len == strlen(own->name) && !memcmp(p->engine.data, own->name, p->engine.len)) ||
	    explanation_is_of((const char *)p->engine.data, p->engine.len, ret))
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT, "engine: expected cpu or cuda");
}

static int explain(struct session *session, const struct rpc_request *request,
                   const struct planning_question *question, struct error *err)
{
	const struct engine_explanation *explanation;
	int r = planning_explain(session, question, &explanation, err);

	if (r == 0)
		answer_explanation(session, request, question, explanation);
	return r;
}

static int explain_elsewhere(struct session *session, const struct rpc_request *request, const char *engine,
                             struct error *err)
{
	struct split split;
	int r = transform_split_of(&request->params.transform, &split, err);

	return r < 0 ? r
	             : explain(session, request,
	                       &(const struct planning_question){ .name = engine,
	                                                          .split = &split,
	                                                          .n = (uint32_t)split.n_parts,
	                                                          .largest = (uint32_t)split.largest },
	                       err);
}

/* Plans a transform without regions: no range is checked, and the device is the first one that is not
 * lost. */
static int plan_anywhere(struct session *session, const struct msg_transform *p, struct parts *ret,
                         struct error *err)
{
	const struct devices *devices = &session->service->devices;
	struct split split;
	int r = transform_split_of(p, &split, err);

	ret->placed.device = 0;
	for (uint32_t i = devices->n; i-- > 0;)
		if (!devices->of[i].is_away)
			ret->placed.device = i;
	return r < 0 ? r : parts_plan(session, &split, false, ret, err);
}

/* Regions may be left out. If both are named, everything is checked as for a transform; otherwise, and for
 * another engine, ranges are not checked. */
int method_explain(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	const bool is_placed = p->dst.has & p->src.has & F(tensor, region);
	struct engine_plan *plans[SPLIT_MAX_PARTS];
	const char *other;
	struct parts parts;
	int r = other_engine(session, p, &other, err);

	if (r < 0)
		return r;
	if (other)
		return explain_elsewhere(session, request, other, err);
	r = is_placed ? transform_plan(session, p, DEVICE_ASKED, NULL, &parts, err)
	              : plan_anywhere(session, p, &parts, err);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < parts.n; i++)
		plans[i] = parts.part[i].plan;
	r = explain(session, request,
	            &(const struct planning_question){
			.engine = device_engine(&session->service->devices, parts.placed.device),
			.plans = plans,
			.n = parts.n,
			.largest = parts.largest },
	            err);
	parts_unref(&parts);
	return r;
}
