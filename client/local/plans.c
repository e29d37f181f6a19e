/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: transforms that were checked once. What the engine derives from their layouts is in the engine's
 * cache. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>

struct local_plan {
	struct msg_transform transform; /* Its tensors have no places. */
	bool has_operand[ROLE_COUNT];   /* The operand is a tensor, for which each run gives a place. */
};

static int refuse(uint64_t id, struct error *err)
{
	return error_set(err, STATUS_NOT_FOUND, "plan: this connection has no plan %" PRIu64, id);
}

/* ---- Preparing ---------------------------------------------------------------------------------------- */

/* Checks a transform. It must have no places, because each run of the plan gives them. */
static int check(const struct msg_transform *t, struct error *err)
{
	struct transform transform;
	struct split_part part;
	struct split split;
	int r = request_refuse_places(t, err);

	if (r == 0)
		r = transform_split_of(t, &split, err);
	for (int i = 0; r == 0 && i < split.n_parts; i++) {
		split_get(&split, i, &part);
		r = transform_init(&transform, &part.spec, err);
	}
	return r;
}

static struct local_plan *plan_new(const struct msg_transform *t)
{
	struct local_plan *plan = malloc(sizeof *plan);

	if (!plan)
		return NULL;
	plan->transform = *t;
	for (enum operand_role role = 0; role < ROLE_COUNT; role++)
		plan->has_operand[role] = request_operand(t, role).is_tensor;
	return plan;
}

int local_method_plan_prepare(struct local_session *session, const union params *params,
                              union local_result *ret, struct error *err)
{
	const struct msg_transform *t = &params->transform;
	struct local_plan *plan;
	uint64_t id;
	int r = check(t, err);

	if (r < 0)
		return r;
	plan = plan_new(t);
	id = plan ? local_ids_add(session, &session->objects->plans, plan) : 0;
	if (id == 0) {
		free(plan);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	}
	ret->plan_prepared = (struct msg_plan_prepared){ .plan = id };
	local_count(session, USAGE_PLANS, 1);
	return 0;
}

int local_method_plan_release(struct local_session *session, const union params *params,
                              union local_result *ret, struct error *err)
{
	struct local_plan *plan =
	    local_ids_take(session, &session->objects->plans, params->plan_release.plan);

	(void)ret;
	if (!plan)
		return refuse(params->plan_release.plan, err);
	local_count(session, USAGE_PLANS, -UINT64_C(1));
	free(plan);
	return 0;
}

/* ---- Running ------------------------------------------------------------------------------------------ */

/* Region 0 means that there is none: the offset is then an address. */
static void place_tensor(struct msg_tensor *tensor, const struct region_place *place)
{
	tensor->region = place->region;
	tensor->offset = place->offset;
	tensor->has |= (place->region ? F(tensor, region) : 0) | F(tensor, offset);
}

static void place_operand(struct msg_operand *operand, const struct region_place *place)
{
	operand->region = place->region;
	operand->offset = place->offset;
	operand->has |= (place->region ? F(operand, region) : 0) | F(operand, offset);
}

static int check_run(const struct local_plan *plan, const struct msg_plan_run *run, struct error *err)
{
	int r = 0;

	for (enum operand_role role = 0; role < ROLE_COUNT && r == 0; role++)
		r = request_check_run_place(run, role, plan->has_operand[role], err);
	return r;
}

/* Returns the plan's transform with the operands and the order of the run. */
static struct msg_transform with_operands(const struct local_plan *plan, const struct msg_plan_run *run)
{
	struct msg_transform t = plan->transform;

	if (plan->has_operand[ROLE_SCALE])
		place_operand(&t.scale, &run->scale);
	if (plan->has_operand[ROLE_BIAS])
		place_operand(&t.bias, &run->bias);
	if (plan->has_operand[ROLE_AMAX_SCALE])
		place_tensor(&t.amax.scale, &run->amax_scale);
	if (plan->has_operand[ROLE_AMAX_INVERSE])
		place_tensor(&t.amax.inverse, &run->amax_inverse);
	t.order = run->order;
	return t;
}

/* Expresses a run over tables as a gather of the single block of each layer. */
static struct msg_blocks blocks_of_run(const struct msg_transform *t, const struct msg_plan_run *run)
{
	static const int32_t the_block = 0;
	struct msg_blocks blocks = { .dst = t->dst,
		                     .src = t->src,
		                     .perm = t->perm,
		                     .before = t->before,
		                     .after = t->after,
		                     .mode = t->mode,
		                     .value = t->value,
		                     .cast = t->cast,
		                     .scale = t->scale,
		                     .bias = t->bias,
		                     .index_dtype = DTYPE_INT32,
		                     .index = { (const char *)&the_block, sizeof the_block },
		                     .limit = 1,
		                     .dst_table = run->dst_table,
		                     .src_table = run->src_table,
		                     .order = t->order };

	blocks.has = F(blocks, index) | F(blocks, limit) | F(blocks, dst_table);
	blocks.has |= t->has & F(transform, perm) ? F(blocks, perm) : 0;
	blocks.has |= t->has & F(transform, before) ? F(blocks, before) : 0;
	blocks.has |= t->has & F(transform, after) ? F(blocks, after) : 0;
	blocks.has |= t->has & F(transform, cast) ? F(blocks, cast) : 0;
	blocks.has |= t->has & F(transform, scale) ? F(blocks, scale) : 0;
	blocks.has |= t->has & F(transform, bias) ? F(blocks, bias) : 0;
	if (run->has & F(plan_run, src_table)) {
		blocks.has |= F(blocks, src_table);
		return blocks;
	}
	place_tensor(&blocks.src, &run->src);
	blocks.has |= F(blocks, src_layer_step); /* The step is 0: all layers have the same source. */
	return blocks;
}

static int run_over_tables(struct local_session *session, const struct local_plan *plan,
                           const struct msg_plan_run *run, struct msg_transform_done *ret, struct error *err)
{
	struct msg_blocks_done done;
	struct msg_transform t;
	struct msg_blocks blocks;
	int r = request_check_run_tables(run, err);

	if (r == 0 && plan->transform.has & F(transform, amax))
		r = error_set(err, STATUS_UNSUPPORTED,
		              "dst_table: the plan has amax, and all its runs would write the same scales");
	if (r == 0)
		r = check_run(plan, run, err);
	if (r < 0)
		return r;
	t = with_operands(plan, run);
	blocks = blocks_of_run(&t, run);
	r = local_blocks_run(session, &blocks, false, &done, err);
	if (r == 0 && !session->only_checks)
		*ret = (struct msg_transform_done){ .path = done.path, .bytes = done.bytes, .ns = done.ns };
	return r;
}

int local_plan_run(struct local_session *session, const struct msg_plan_run *run,
                   struct msg_transform_done *ret, struct error *err)
{
	const struct local_plan *plan = local_ids_find(session, &session->objects->plans, run->plan);
	struct msg_transform t;
	int r;

	if (!plan)
		return refuse(run->plan, err);
	if (run->has & (F(plan_run, dst_table) | F(plan_run, src_table)))
		return run_over_tables(session, plan, run, ret, err);
	r = request_check_run_places(run, err);
	if (r == 0)
		r = check_run(plan, run, err);
	if (r < 0)
		return r;
	t = with_operands(plan, run);
	place_tensor(&t.dst, &run->dst);
	place_tensor(&t.src, &run->src);
	return local_transform_run(session, &t, ret, err);
}

int local_method_plan_run(struct local_session *session, const union params *params, union local_result *ret,
                          struct error *err)
{
	return local_plan_run(session, &params->plan_run, &ret->transform_done, err);
}
