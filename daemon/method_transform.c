/* copy, transpose, pad, transform: check against the regions, find or make the plan, queue the job.
 * explain: the same without a job. */
#include "dispatch.h"

#include <string.h>

#include "order.h"
#include "server.h"
#include "session.h"
#include "transforms.h"

int method_transform(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct plan_entry *plan;
	struct placed placed;
	struct order order;
	int r = order_of(session, transform, p, &order, err);

	if (r == 0)
		r = transform_plan(session, p, &placed, &plan, err);
	if (r == 0)
		r = transform_start(session, request, &order, plan, &placed, err);
	return r;
}

static void explain(struct session *session, const struct rpc_request *request,
                    const struct plan_entry *entry)
{
	const struct plan *plan = &entry->plan;
	const struct nest *nest = &plan->interior;
	struct msg_rule rules[PLAN_MAX_RULES];
	struct msg_explanation e = {
		.family = bytes_of(family_names[plan->family]),
		.engine = bytes_of(session->server->engine->name),
		.swizzle = bytes_of(plan->swizzle),
		.grid = { .n = 1, .v = { plan->grid } },
		.bytes = entry->transform.bytes,
		.element = nest->element,
		.slabs = plan->n_slabs,
		.rules = { .items = rules, .n = (uint32_t)plan->n_rules },
	};

	e.tile.n = (uint32_t)plan->tile_rank;
	memcpy(e.tile.v, plan->tile, (size_t)plan->tile_rank * sizeof *plan->tile);
	e.shape.n = e.dst_strides.n = e.src_strides.n = (uint32_t)nest->rank;
	for (int i = 0; i < nest->rank; i++) {
		e.shape.v[i] = nest->dim[i].n;
		e.dst_strides.v[i] = nest->dim[i].dst;
		e.src_strides.v[i] = nest->dim[i].src;
	}
	for (int i = 0; i < plan->n_rules; i++)
		rules[i] = (struct msg_rule){ .family = bytes_of(family_names[plan->rules[i].family]),
			                      .rule = bytes_of(plan->rules[i].text) };
	session_reply(session, request->msgid, request->method, &e, -1);
}

/* Regions may be left out; when both are named, all is checked as for a transform. Else ranges are free. */
int method_explain(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct plan_facts facts = placed_facts(session, NULL);
	struct transform_spec spec;
	struct plan_entry *plan;
	struct placed placed;
	int r;

	if (p->dst.has & p->src.has & F(tensor, region)) {
		r = transform_plan(session, p, &placed, &plan, err);
	} else {
		r = transform_spec_of(p, &spec, err);
		if (r == 0)
			r = plan_cache_get(&session->server->plans, &spec, &facts, &plan, err);
	}
	if (r < 0)
		return r;
	explain(session, request, plan);
	plan_entry_unref(plan);
	return 0;
}
