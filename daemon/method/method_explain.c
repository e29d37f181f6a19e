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

/* `of` answers the question, whose engine is NULL if it is not this service's. */
static void answer(struct session *session, const struct rpc_request *request,
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
