/* SPDX-License-Identifier: Apache-2.0 */
/* A session's prepared plans, each with the plans for the kinds of places that were used last. */
#include "prepared.h"

#include <inttypes.h>
#include <stdlib.h>

#include "planning.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "kernels/transform/request_blocks.h"

/* Plans are kept for two kinds of places: a pair that is aligned, and one that is not. Others come from the
 * cache. */
#define KEPT_PLANS 2

/* One of the transforms that a run moves. */
struct prepared_part {
	struct transform_spec spec;
	int64_t dst_offset; /* bytes from the places of the run */
	int64_t src_offset;
	struct engine_plan *kept[KEPT_PLANS]; /* NULL: none */
	uint32_t oldest;                      /* index in kept of the next to be replaced */
};

struct prepared {
	uint64_t id;
	struct tensor_layout dst, src; /* all that a run touches */
	struct tensor_extent dst_extent, src_extent;
	struct placed_operand scale, bias; /* numbers; tensors have the places of a run */
	struct charge charge;
	struct charge bytes; /* of all of it, kept plans included */
	uint32_t largest;    /* part */
	uint32_t n;
	struct prepared_part part[];
};

/* ---- Making and releasing ----------------------------------------------------------------------------- */

static void prepared_free(struct prepared *prepared)
{
	for (uint32_t i = 0; i < prepared->n; i++)
		for (int k = 0; k < KEPT_PLANS; k++)
			engine_plan_unref(prepared->part[i].kept[k]);
	charge_release(&prepared->charge);
	charge_release(&prepared->bytes);
	free(prepared);
}

/* Takes over the reference to entry. A second kind of places is charged for; if the user has no room for it,
 * it replaces the first one, whose plan takes as many bytes. */
static void keep(struct session *session, struct prepared *prepared, struct prepared_part *part,
                 struct engine_plan *entry)
{
	struct engine_plan **kept = &part->kept[part->oldest];
	struct error err;

	if (!*kept && charge_take(&prepared->bytes, &session->server->accounts, session->account,
	                          CHARGE_PLAN_BYTES, engine_plan_bytes(entry), &err) < 0)
		kept = &part->kept[0];
	else
		part->oldest = (part->oldest + 1) % KEPT_PLANS;
	engine_plan_unref(*kept);
	*kept = entry;
}

/* The plan for places like these; the caller gets no reference. */
static int find_plan(struct session *session, struct prepared *prepared, struct prepared_part *part,
                     uint32_t device, struct plan_places places, struct engine_plan **ret, struct error *err)
{
	struct engine *engine = device_engine(&session->server->devices, device);
	int r;

	for (int i = 0; i < KEPT_PLANS; i++)
		if (part->kept[i] && engine_plan_suits(part->kept[i], engine, places)) {
			*ret = part->kept[i];
			return 0;
		}
	r = planning_get(session, device, &part->spec, places, ret, err);
	if (r == 0)
		keep(session, prepared, part, *ret);
	return r;
}

static uint64_t bytes_of_all(const struct parts *parts)
{
	uint64_t bytes = sizeof(struct prepared) + parts->n * sizeof(struct prepared_part);

	for (uint32_t i = 0; i < parts->n; i++)
		bytes += engine_plan_bytes(parts->part[i].plan);
	return bytes;
}

static int take_charges(struct session *session, const struct parts *parts, struct charge *count,
                        struct charge *bytes, struct error *err)
{
	struct accounts *accounts = &session->server->accounts;
	int r = charge_take(count, accounts, session->account, CHARGE_PLANS, parts->n, err);

	return r < 0 ? r
	             : charge_take(bytes, accounts, session->account, CHARGE_PLAN_BYTES, bytes_of_all(parts),
	                           err);
}

/* Takes over the references to the plans of all parts, which are for places that are aligned. */
static struct prepared *prepared_new(const struct split *split, struct parts *parts)
{
	struct prepared *prepared = calloc(1, sizeof *prepared + parts->n * sizeof(struct prepared_part));

	if (!prepared)
		return NULL;
	prepared->dst = split->dst;
	prepared->src = split->src;
	prepared->dst_extent = split->dst_extent;
	prepared->src_extent = split->src_extent;
	prepared->largest = (uint32_t)split->largest;
	prepared->n = parts->n;
	for (uint32_t i = 0; i < parts->n; i++) {
		struct prepared_part *part = &prepared->part[i];
		struct split_part one;

		split_get(split, (int)i, &one);
		part->spec = one.spec;
		part->dst_offset = one.dst_offset;
		part->src_offset = one.src_offset;
		part->kept[0] = parts->part[i].plan;
		part->oldest = 1;
	}
	parts->n = 0;
	return prepared;
}

/* The plans are checked against the limit on their number before they are made, too. */
static int plan_all(struct session *session, const struct split *split, struct parts *ret, struct error *err)
{
	struct charge count = { 0 };
	int r = charge_take(&count, &session->server->accounts, session->account, CHARGE_PLANS,
	                    (uint64_t)split->n_parts, err);

	if (r == 0)
		r = parts_plan(session, split, false, ret, err);
	charge_release(&count);
	return r;
}

static int add(struct session *session, const struct msg_transform *params, const struct split *split,
               struct parts *parts, uint64_t *ret_id, struct error *err)
{
	struct charge count = { 0 }, bytes = { 0 };
	struct prepared *prepared = NULL;
	int r = take_charges(session, parts, &count, &bytes, err);

	if (r == 0) {
		prepared = prepared_new(split, parts);
		r = prepared ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	}
	if (r < 0) {
		charge_release(&count);
		charge_release(&bytes);
		return r;
	}
	prepared->charge = count;
	prepared->bytes = bytes;
	prepared->scale.number = operand_number(&params->scale, params->has & F(transform, scale));
	prepared->bias.number = operand_number(&params->bias, params->has & F(transform, bias));
	r = id_table_add(&session->plans, prepared, "plans", &prepared->id, err);
	if (r < 0)
		prepared_free(prepared);
	else
		*ret_id = prepared->id;
	return r;
}

int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err)
{
	struct parts parts = { 0 };
	struct split split;
	int r = request_refuse_places(params, err);

	if (r == 0)
		r = transform_split_of(params, &split, err);
	if (r == 0)
		r = plan_all(session, &split, &parts, err);
	if (r == 0)
		r = add(session, params, &split, &parts, ret_id, err);
	parts_unref(&parts);
	return r;
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

static int place_operand(struct session *session, enum operand_kind kind, const struct region_place *place,
                         bool is_given, const char *name, struct placed_operand *ret, struct error *err)
{
	if (kind != OPERAND_TENSOR && is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: a place, but the plan has no tensor for it", name);
	if (kind != OPERAND_TENSOR)
		return 0;
	if (!is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing, but the plan's is a tensor",
		                 name);
	ret->offset = place->offset;
	return region_table_find(&session->regions, place->region, name, &ret->region, err);
}

static int place_result(struct session *session, bool is_wanted, const struct region_place *place,
                        bool is_given, const char *name, struct placed_result *ret, struct error *err)
{
	int r;

	*ret = (struct placed_result){ 0 };
	if (!is_wanted && is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: a place, but the plan has no tensor for it", name);
	if (!is_wanted)
		return 0;
	if (!is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing, but the plan's is a tensor",
		                 name);
	ret->offset = place->offset;
	r = region_table_find(&session->regions, place->region, name, &ret->region, err);
	return r < 0 ? r : region_check_writable(ret->region, name, err);
}

static int place_results(struct session *session, const struct amax_spec *amax,
                         const struct msg_plan_run *run, struct placed *ret, struct error *err)
{
	int r = place_result(session, amax->is_given && amax->scale.is_given, &run->amax_scale,
	                     run->has & F(plan_run, amax_scale), "amax_scale", &ret->amax_scale, err);

	return r < 0 ? r
	             : place_result(session, amax->is_given && amax->inverse.is_given, &run->amax_inverse,
	                            run->has & F(plan_run, amax_inverse), "amax_inverse", &ret->amax_inverse,
	                            err);
}

/* Numbers are the plan's. */
static int place_operands(struct session *session, const struct prepared *prepared,
                          const struct msg_plan_run *run, struct placed *ret, struct error *err)
{
	const struct conversion_spec *conversion = &prepared->part[0].spec.conversion;
	int r;

	ret->scale = prepared->scale;
	ret->bias = prepared->bias;
	r = place_operand(session, conversion->scale.kind, &run->scale, run->has & F(plan_run, scale),
	                  "scale", &ret->scale, err);
	if (r == 0)
		r = place_operand(session, conversion->bias.kind, &run->bias, run->has & F(plan_run, bias),
		                  "bias", &ret->bias, err);
	return r < 0 ? r : place_results(session, &conversion->amax, run, ret, err);
}

static int plan_parts(struct session *session, struct prepared *prepared, struct parts *ret,
                      struct error *err)
{
	bool is_later = false;

	ret->largest = prepared->largest;
	for (ret->n = 0; ret->n < prepared->n; ret->n++) {
		struct prepared_part *from = &prepared->part[ret->n];
		struct part *part = &ret->part[ret->n];
		const struct placed placed = placed_part(&ret->placed, from->dst_offset, from->src_offset);
		int r = find_plan(session, prepared, from, placed.device, placed_places(&placed), &part->plan,
		                  err);

		is_later |= r == PLANNING_LATER;
		if (r == 0)
			engine_plan_ref(part->plan);
		else
			part->plan = NULL;
		if (r < 0 && r != PLANNING_LATER) {
			parts_unref(ret);
			return r;
		}
		part->dst_offset = from->dst_offset;
		part->src_offset = from->src_offset;
	}
	if (!is_later)
		return 0;
	parts_unref(ret);
	return err->status = PLANNING_LATER;
}

int prepared_plan(struct session *session, const struct msg_plan_run *run, uint32_t device, struct job *job,
                  struct parts *ret, struct error *err)
{
	struct transform_sides sides;
	struct prepared *prepared;
	int r = find(session, run->plan, &prepared, err);

	if (r == 0)
		r = request_check_run_places(run, err);
	if (r == 0)
		r = placed_find(session, &run->dst, "dst", &run->src, "src", &ret->placed, err);
	if (r == 0)
		r = place_operands(session, prepared, run, &ret->placed, err);
	if (r == 0)
		r = placed_settle(&ret->placed, device, err);
	if (r < 0)
		return r;
	sides = (struct transform_sides){ .dst = &prepared->dst,
		                          .src = &prepared->src,
		                          .dst_extent = prepared->dst_extent,
		                          .src_extent = prepared->src_extent };
	r = placed_check(&ret->placed, &sides, err);
	if (r == 0)
		r = parts_charge(job, prepared->n, err);
	if (r < 0)
		return r;
	r = plan_parts(session, prepared, ret, err);
	if (r == 0) {
		r = placed_check_operands(&ret->placed, &sides,
		                          &engine_plan_transform(ret->part[0].plan)->conversion, err);
		if (r < 0)
			parts_unref(ret);
	}
	if (r < 0)
		parts_discharge(job, prepared->n, r);
	return r;
}

int prepared_plan_for(struct session *session, const struct msg_plan_run *run, struct plan_places places,
                      struct placed *placed, struct engine_plan **ret_plan, struct error *err)
{
	struct prepared *prepared;
	struct engine_plan *plan; /* belongs to the prepared plan */
	int r = find(session, run->plan, &prepared, err);

	if (r == 0 && prepared->n > 1)
		r = error_set(err, STATUS_UNSUPPORTED,
		              "plan: it has %" PRIu32
		              " parts, because the last block of a split is incomplete; a table takes plans "
		              "of one part",
		              prepared->n);
	if (r == 0 && prepared->part[0].spec.conversion.amax.is_given)
		r = error_set(err, STATUS_UNSUPPORTED,
		              "dst_table: the plan has amax, and all its runs would write the same scales");
	if (r == 0)
		r = place_operands(session, prepared, run, placed, err);
	if (r == 0)
		r = placed_settle(placed, placed->device, err);
	if (r == 0)
		r = find_plan(session, prepared, &prepared->part[0], placed->device, places, &plan, err);
	if (r == 0)
		r = placed_check_operands(placed, NULL, &engine_plan_transform(plan)->conversion, err);
	if (r < 0)
		return r;
	engine_plan_ref(plan);
	*ret_plan = plan;
	return 0;
}
