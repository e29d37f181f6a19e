/* SPDX-License-Identifier: Apache-2.0 */
/* explain: plans a transform for this engine or another one without running it, and says how long it is
 * predicted to take and how long it has taken. */
#include "dispatch.h"

#include <string.h>

#include "daemon/resource/planning.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "kernels/elsewhere.h"
#include "transforms.h"

static void fill_list(struct int_list *ret, const int64_t *values, int n)
{
	ret->n = (uint32_t)n;
	memcpy(ret->v, values, (size_t)n * sizeof *values);
}

static void fill_layout(const struct engine_explanation *of, struct msg_explanation *e)
{
	e->element = of->element;
	fill_list(&e->shape, of->shape, of->rank);
	fill_list(&e->dst_strides, of->dst, of->rank);
	fill_list(&e->src_strides, of->src, of->rank);
	fill_list(&e->tile, of->tile.n, of->tile.rank);
	fill_list(&e->tile_dst_strides, of->tile.dst, of->tile.rank);
	fill_list(&e->tile_src_strides, of->tile.src, of->tile.rank);
	e->tile_element = of->tile.element;
	e->tile_row = of->tile.row_bytes;
	e->has |= F(explanation, tile_dst_strides) | F(explanation, tile_src_strides) |
	          F(explanation, tile_element) | F(explanation, tile_row);
}

static void fill_prediction(const struct engine_explanation *of, struct msg_explanation *e)
{
	e->predicted_ns = of->predicted_ns;
	e->copy_ns = explanation_copy_ns(of, of->bytes);
	if (e->predicted_ns)
		e->has |= F(explanation, predicted_ns) | F(explanation, copy_ns);
	else if (of->predicted > 0)
		e->has |= F(explanation, predicted_percent);
	e->predicted_percent = (uint64_t)(100 * of->predicted + 0.5);
	e->method = bytes_of(of->method);
	if (e->method.len > 0)
		e->has |= F(explanation, method);
}

/* Only plans of this service's engines have runs. */
static void fill_runs(const struct engine_plan *plan, struct msg_explanation *e)
{
	const struct engine_plan_runs runs = engine_plan_runs(plan);

	e->runs = runs.n;
	e->measured_runs = runs.n_measured;
	e->measured_ns = runs.median_ns;
	e->has |= F(explanation, runs) | F(explanation, measured_runs);
	if (runs.n_measured)
		e->has |= F(explanation, measured_ns);
}

/* `of` answers the question, whose engine is NULL if it is not this service's. */
static void answer(struct session *session, const struct rpc_request *request,
                   const struct planning_question *question, const struct engine_explanation *of)
{
	struct msg_rule rules[FAMILY_MOST_RULES];
	struct msg_explanation e = {
		.family = bytes_of(family_names[of->family]),
		.engine = bytes_of(question->engine ? question->engine->name : question->name),
		.swizzle = bytes_of(of->swizzle),
		.grid = { .n = 1, .v = { of->grid } },
		.bytes = of->bytes,
		.slabs = of->n_subregions,
		.rules = { .items = rules, .n = (uint32_t)of->rules.n },
	};

	fill_layout(of, &e);
	fill_prediction(of, &e);
	if (question->engine) {
		e.device = bytes_of(question->engine->uuid);
		e.has |= e.device.len > 0 ? F(explanation, device) : 0;
	}
	if (question->n > 1) {
		e.parts = question->n;
		e.has |= F(explanation, parts);
	} else if (question->engine) {
		fill_runs(question->plans[0], &e);
	}
	for (int i = 0; i < of->rules.n; i++)
		rules[i] = (struct msg_rule){ .family = bytes_of(family_names[of->rules.rule[i].family]),
			                      .rule = bytes_of(of->rules.rule[i].text) };
	session_reply(session, request->msgid, request->method, &e, -1);
}

/* Sets *ret to the name of the engine that is asked for, or to NULL if it is this service's. */
static int other_engine(const struct session *session, const struct msg_transform *p, const char **ret,
                        struct error *err)
{
	const struct engine *own = device_engine(&session->server->devices, 0);

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
		answer(session, request, question, explanation);
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

/* Without regions, no range is checked, and the device is the first one. */
static int plan_anywhere(struct session *session, const struct msg_transform *p, struct parts *ret,
                         struct error *err)
{
	const struct devices *devices = &session->server->devices;
	struct split split;
	int r = transform_split_of(p, &split, err);

	ret->placed.device = 0;
	for (uint32_t i = devices->n; i-- > 0;)
		if (!devices->of[i].is_away)
			ret->placed.device = i;
	return r < 0 ? r : parts_plan(session, &split, false, ret, err);
}

/* Regions may be left out; if both are named, everything is checked as for a transform. Otherwise ranges are
 * free, as they are for another engine. */
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
			.engine = device_engine(&session->server->devices, parts.placed.device),
			.plans = plans,
			.n = parts.n,
			.largest = parts.largest },
	            err);
	parts_unref(&parts);
	return r;
}
