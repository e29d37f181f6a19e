/* SPDX-License-Identifier: Apache-2.0 */
/* A session's prepared plans, each with the plans for the kinds of places that were used last. */
#include "prepared.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/server.h"
#include "daemon/net/session.h"

/* Plans are kept for two kinds of places: a pair that is aligned, and one that is not. Others come from the
 * cache. */
#define KEPT_PLANS 2

/* A plan, and the properties of the places that it depends on. */
struct kept {
	struct plan_entry *entry; /* NULL: none */
	uint32_t align;
	uint8_t dst_phase;
	uint8_t src_phase;
};

struct prepared {
	uint64_t id;
	struct transform_spec spec;
	struct kept kept[KEPT_PLANS];
	uint32_t oldest; /* index in kept of the next to be replaced */
	struct charge charge;
};

/* ---- Making and releasing ----------------------------------------------------------------------------- */

static void prepared_free(struct prepared *prepared)
{
	for (int i = 0; i < KEPT_PLANS; i++)
		plan_entry_unref(prepared->kept[i].entry);
	charge_release(&prepared->charge);
	free(prepared);
}

static int refuse_place(const struct msg_tensor *tensor, const char *name, struct error *err)
{
	if (tensor->has & F(tensor, region))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.region: %" PRIu64
		                 ", but plan_prepare takes no region; pass it to plan_run",
		                 name, tensor->region);
	if (tensor->has & F(tensor, offset))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.offset: %" PRIu64
		                 ", but plan_prepare takes no offset; pass it to plan_run",
		                 name, tensor->offset);
	return 0;
}

/* The plan for places like these; the caller gets no reference. */
static int find_plan(struct session *session, struct prepared *prepared, const struct plan_facts *facts,
                     struct plan_entry **ret, struct error *err)
{
	struct kept *kept;
	int r;

	for (int i = 0; i < KEPT_PLANS; i++) {
		kept = &prepared->kept[i];
		if (kept->entry && kept->align == facts->align && kept->dst_phase == facts->dst_phase &&
		    kept->src_phase == facts->src_phase) {
			*ret = kept->entry;
			return 0;
		}
	}
	r = plan_cache_get(&session->server->plans, &prepared->spec, facts, ret, err);
	if (r < 0)
		return r;
	kept = &prepared->kept[prepared->oldest];
	prepared->oldest = (prepared->oldest + 1) % KEPT_PLANS;
	plan_entry_unref(kept->entry);
	*kept = (struct kept){ *ret, facts->align, facts->dst_phase, facts->src_phase };
	return 0;
}

int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err)
{
	struct plan_facts facts = placed_facts(session, NULL);
	struct prepared *prepared;
	struct plan_entry *plan;
	int r = refuse_place(&params->dst, "dst", err);

	if (r == 0)
		r = refuse_place(&params->src, "src", err);
	if (r < 0)
		return r;
	prepared = calloc(1, sizeof *prepared);
	if (!prepared)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	r = charge_take(&prepared->charge, &session->server->accounts, session->account, CHARGE_PLANS, 1,
	                err);
	if (r == 0)
		r = transform_spec_of(params, &prepared->spec, err);
	if (r == 0)
		r = find_plan(session, prepared, &facts, &plan, err);
	if (r == 0)
		r = id_table_add(&session->plans, prepared, "plans", &prepared->id, err);
	if (r < 0) {
		prepared_free(prepared);
		return r;
	}
	*ret_id = prepared->id;
	return 0;
}

static int find(struct session *session, uint64_t id, struct prepared **ret, struct error *err)
{
	*ret = id_table_find(&session->plans, id);
	if (!*ret)
		return error_set(err, STATUS_NOT_FOUND, "plan: this connection has no plan %" PRIu64, id);
	return 0;
}

static void end(struct session *session, struct prepared *prepared)
{
	id_table_remove(&session->plans, prepared->id);
	prepared_free(prepared);
}

int prepared_release(struct session *session, uint64_t id, struct error *err)
{
	struct prepared *prepared;
	int r = find(session, id, &prepared, err);

	if (r == 0)
		end(session, prepared);
	return r;
}

void prepared_release_all(struct session *session)
{
	struct prepared *prepared;
	uint32_t cursor = 0;

	while ((prepared = id_table_next(&session->plans, &cursor)))
		end(session, prepared);
}

/* ---- Running ------------------------------------------------------------------------------------------ */

int prepared_plan(struct session *session, const struct msg_plan_run *run, struct placed *ret,
                  struct plan_entry **ret_plan, struct error *err)
{
	struct prepared *prepared;
	struct plan_facts facts;
	int r = find(session, run->plan, &prepared, err);

	if (r == 0)
		r = placed_find(session, &run->dst, "dst", &run->src, "src", ret, err);
	if (r < 0)
		return r;
	facts = placed_facts(session, ret);
	r = find_plan(session, prepared, &facts, ret_plan, err);
	if (r == 0)
		r = placed_check(ret, &(*ret_plan)->transform, err);
	if (r == 0)
		plan_entry_ref(*ret_plan);
	return r;
}
