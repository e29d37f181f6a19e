/* SPDX-License-Identifier: Apache-2.0 */
/* explain: plans a transform, for this engine or for another one, without running it, and says how long it
 * will take, how long it has taken, and what else is tried. */
#include "dispatch.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/plan/plan_tile.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "transforms.h"

/* Whether plans are for this service's engine, which may run them. */
static bool is_own(const struct session *session, const struct plan_facts *facts)
{
	return facts->tma == device_engine(&session->server->devices, 0)->facts.tma;
}

static void fill_tile(const struct plan *plan, struct msg_explanation *e)
{
	struct plan_tile tile;

	plan_tile_of(plan, &tile);
	e->tile.n = e->tile_dst_strides.n = e->tile_src_strides.n = (uint32_t)tile.rank;
	memcpy(e->tile.v, tile.n, (size_t)tile.rank * sizeof *tile.n);
	memcpy(e->tile_dst_strides.v, tile.dst, (size_t)tile.rank * sizeof *tile.dst);
	memcpy(e->tile_src_strides.v, tile.src, (size_t)tile.rank * sizeof *tile.src);
	e->tile_element = tile.element;
	e->tile_row = tile.row_bytes;
	e->has |= F(explanation, tile_dst_strides) | F(explanation, tile_src_strides) |
	          F(explanation, tile_element) | F(explanation, tile_row);
}

static uint64_t predicted_ns(const struct plan *plan, uint64_t bytes, const struct plan_facts *facts)
{
	return (uint64_t)(plan_predict_ns(plan, bytes, &facts->copy) + 0.5);
}

static void fill_prediction(const struct plan *plan, uint64_t bytes, const struct plan_facts *facts,
                            struct msg_explanation *e)
{
	e->predicted_ns = predicted_ns(plan, bytes, facts);
	e->copy_ns = (uint64_t)(copy_speed_ns(&facts->copy, bytes) + 0.5);
	if (e->predicted_ns)
		e->has |= F(explanation, predicted_ns) | F(explanation, copy_ns);
	else if (plan->predicted > 0)
		e->has |= F(explanation, predicted_percent);
	e->predicted_percent = (uint64_t)(100 * plan->predicted + 0.5);
	e->method = bytes_of(plan_method_names[plan->method]);
	if (plan->method != PLAN_METHOD_OPEN)
		e->has |= F(explanation, method);
}

static void fill_runs(const struct plan_runs *runs, struct msg_explanation *e)
{
	e->runs = runs->n;
	e->measured_runs = runs->n_measured;
	e->measured_ns = plan_runs_median_ns(runs);
	e->has |= F(explanation, runs) | F(explanation, measured_runs);
	if (runs->n_measured)
		e->has |= F(explanation, measured_ns);
}

/* ---- Alternatives -------------------------------------------------------------------------------------- */

static void fill_trial(const struct plan_entry *entry, const struct plan *plan, uint32_t i,
                       struct msg_alternative *ret)
{
	static const char *const states[] = {
		[TRIAL_WAITS] = "untried", [TRIAL_ENDED] = "tried", [TRIAL_DROPPED] = "dropped"
	};
	static const struct trials none = { 0 };
	const struct trials *trials = entry->search ? &entry->search->trials : &none;
	struct plan_tile tile;

	plan_tile_of(plan, &tile);
	ret->family = bytes_of(family_names[plan->family]);
	ret->tile.n = (uint32_t)tile.rank;
	memcpy(ret->tile.v, tile.n, (size_t)tile.rank * sizeof *tile.n);
	ret->predicted_ns = predicted_ns(plan, entry->transform.bytes, &entry->facts);
	ret->state = bytes_of(states[trials_state(trials, i)]);
	ret->in_use = i == trials->best;
	ret->measured_ns = trials_median_ns(trials, i);
	ret->has = ret->measured_ns ? F(alternative, measured_ns) : 0;
}

/* Plans that have lost are freed, so all are made again: they come out the same. The caller frees the items.
 */
static void fill_alternatives(const struct plan_entry *entry, struct msg_explanation *e)
{
	struct alternatives *list = malloc(sizeof *list);
	struct msg_alternative *items = NULL;

	if (!list)
		return;
	alternatives_init(list, &entry->plan, &entry->transform, &entry->facts);
	if (list->n > 1)
		items = calloc((size_t)list->n, sizeof *items);
	for (int i = 0; items && i < list->n; i++)
		fill_trial(entry, &list->plan[i], (uint32_t)i, &items[i]);
	if (items) {
		e->alternatives = (struct message_list){ .items = items, .n = (uint32_t)list->n };
		e->settled = entry->search && trials_are_settled(&entry->search->trials);
		e->has |= F(explanation, alternatives) | F(explanation, settled);
	}
	free(list);
}

/* ---- The answer --------------------------------------------------------------------------------------- */

/* Adds to the description of the largest part what concerns all of them. */
static void fill_parts(const struct parts *parts, const struct plan_facts *facts, struct msg_explanation *e)
{
	e->bytes = e->slabs = e->predicted_ns = 0;
	for (uint32_t i = 0; i < parts->n; i++) {
		struct plan_entry *entry = parts->part[i].plan;
		const struct plan *plan = plan_entry_best(entry);

		e->bytes += entry->transform.bytes;
		e->slabs += plan->n_subregions;
		e->predicted_ns += predicted_ns(plan, entry->transform.bytes, facts);
	}
	e->copy_ns = (uint64_t)(copy_speed_ns(&facts->copy, e->bytes) + 0.5);
	e->parts = parts->n;
	e->has |= F(explanation, parts);
	e->has &= ~(F(explanation, runs) | F(explanation, measured_runs) | F(explanation, measured_ns));
}

/* device: that it is for, if the plan is for this service's engine. */
static void explain(struct session *session, const struct rpc_request *request,
                    const struct plan_facts *facts, const struct parts *parts, uint32_t device)
{
	struct plan_entry *entry = parts->part[parts->largest].plan;
	const struct plan *plan = plan_entry_best(entry);
	const struct loop_nest *nest = &plan->interior;
	struct msg_rule rules[PLAN_MAX_RULES];
	struct msg_explanation e = {
		.family = bytes_of(family_names[plan->family]),
		.engine = bytes_of(facts->engine),
		.swizzle = bytes_of(plan->swizzle),
		.grid = { .n = 1, .v = { plan->grid } },
		.bytes = entry->transform.bytes,
		.element = nest->element,
		.slabs = plan->n_subregions,
		.rules = { .items = rules, .n = (uint32_t)plan->n_rules },
	};

	fill_tile(plan, &e);
	fill_prediction(plan, entry->transform.bytes, facts, &e);
	if (plan_entry_is_tuned(entry) && parts->n == 1) /* a job of several parts tries nothing */
		fill_alternatives(entry, &e);
	if (is_own(session, facts)) {
		fill_runs(&entry->runs, &e);
		e.device = bytes_of(device_engine(&session->server->devices, device)->uuid);
		e.has |= e.device.len > 0 ? F(explanation, device) : 0;
	}
	if (parts->n > 1)
		fill_parts(parts, facts, &e);
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
	free((void *)e.alternatives.items);
}

/* The facts of the engine that the request names: this one, unless it is another. */
static int facts_of(struct session *session, const struct msg_transform *p, struct plan_facts *ret,
                    struct error *err)
{
	const struct engine *own = device_engine(&session->server->devices, 0);

	*ret = placed_facts(session, NULL);
	if (!(p->has & F(transform, engine)) ||
	    (p->engine.len == strlen(own->name) && !memcmp(p->engine.data, own->name, p->engine.len)))
		return 0;
	if (plan_facts_of((const char *)p->engine.data, p->engine.len, ret))
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT, "engine: expected cpu or cuda");
}

/* A plan for another engine stays out of the cache: this engine cannot use it. */
static int plan_elsewhere(const struct split *split, const struct plan_facts *facts, struct parts *ret,
                          struct error *err)
{
	ret->largest = (uint32_t)split->largest;
	for (ret->n = 0; ret->n < (uint32_t)split->n_parts; ret->n++) {
		struct plan_facts own;
		struct split_part part;
		int r;

		split_get(split, (int)ret->n, &part);
		own = facts_at(facts, (uint64_t)part.dst_offset, (uint64_t)part.src_offset);
		r = plan_entry_new(&part.spec, &own, &ret->part[ret->n].plan, err);
		if (r < 0) {
			parts_unref(ret);
			return r;
		}
	}
	return 0;
}

static int plan_for(struct session *session, const struct msg_transform *p, const struct plan_facts *facts,
                    struct parts *ret, struct error *err)
{
	struct split split;
	int r = transform_split_of(p, &split, err);

	if (r < 0)
		return r;
	return is_own(session, facts) ? parts_plan(session, &split, false, ret, err)
	                              : plan_elsewhere(&split, facts, ret, err);
}

/* Regions may be left out; if both are named, everything is checked as for a transform. Otherwise ranges are
 * free, as they are for another engine. */
int method_explain(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct plan_facts facts;
	struct parts parts;
	uint32_t device = 0;
	bool is_placed;
	int r = facts_of(session, p, &facts, err);

	if (r < 0)
		return r;
	is_placed = p->dst.has & p->src.has & F(tensor, region) && is_own(session, &facts);
	r = is_placed ? transform_plan(session, p, DEVICE_ASKED, &parts, err)
	              : plan_for(session, p, &facts, &parts, err);
	if (r < 0)
		return r;
	if (is_placed) {
		device = parts.placed.device;
		facts.copy = session->server->devices.of[device].facts.copy;
	}
	explain(session, request, &facts, &parts, device);
	parts_unref(&parts);
	return 0;
}
