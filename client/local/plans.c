/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are transforms that are checked once. The engine caches what it derives from their layouts. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct local_plan {
	uint64_t id;
	struct msg_transform transform; /* without places */
	bool has_scale, has_bias;       /* tensors, which have places */
	bool has_amax_scale, has_amax_inverse;
};

static struct local_plan *find(const struct local_session *session, uint64_t id, struct error *err)
{
	if (id > 0 && id <= session->n_plans && session->plans[id - 1])
		return session->plans[id - 1];
	error_set(err, STATUS_NOT_FOUND, "plan: this connection has no plan %" PRIu64, id);
	return NULL;
}

void local_plans_free(struct local_session *session)
{
	for (uint64_t i = 0; i < session->n_plans; i++)
		free(session->plans[i]);
	free(session->plans);
}

/* ---- Preparing ---------------------------------------------------------------------------------------- */

/* Checks a transform, and refuses it if it has places: a plan gets them when it runs. */
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

/* Returns the id of a plan that is not there. 0: out of memory. */
static uint64_t free_id(struct local_session *session)
{
	const uint64_t n = session->n_plans;
	struct local_plan **grown;

	for (uint64_t i = 0; i < n; i++)
		if (!session->plans[i])
			return i + 1;
	grown = realloc(session->plans, (2 * n + 8) * sizeof *grown);
	if (!grown)
		return 0;
	memset(grown + n, 0, (n + 8) * sizeof *grown);
	session->plans = grown;
	session->n_plans = 2 * n + 8;
	return n + 1;
}

static bool is_tensor(const struct msg_operand *operand, bool is_given)
{
	return is_given && !(operand->has & F(operand, number));
}

int local_method_plan_prepare(struct local_session *session, const union params *params,
                              union local_result *ret, struct error *err)
{
	const struct msg_transform *t = &params->transform;
	const uint64_t amax = t->has & F(transform, amax) ? t->amax.has : 0;
	struct local_plan *plan;
	uint64_t id;
	int r = check(t, err);

	if (r < 0)
		return r;
	plan = malloc(sizeof *plan);
	id = plan ? free_id(session) : 0;
	if (id == 0) {
		free(plan);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a plan");
	}
	*plan = (struct local_plan){ .id = id,
		                     .transform = *t,
		                     .has_scale = is_tensor(&t->scale, t->has & F(transform, scale)),
		                     .has_bias = is_tensor(&t->bias, t->has & F(transform, bias)),
		                     .has_amax_scale = amax & F(amax, scale),
		                     .has_amax_inverse = amax & F(amax, inverse) };
	session->plans[id - 1] = plan;
	ret->plan_prepared = (struct msg_plan_prepared){ .plan = id };
	return 0;
}

int local_method_plan_release(struct local_session *session, const union params *params,
                              union local_result *ret, struct error *err)
{
	struct local_plan *plan = find(session, params->plan_release.plan, err);

	(void)ret;
	if (!plan)
		return err->status;
	session->plans[plan->id - 1] = NULL;
	free(plan);
	return 0;
}

/* ---- Running ------------------------------------------------------------------------------------------ */

/* Region 0 means that there is none; the offset is then an address. */
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

/* Checks that a run has a place for a tensor if the plan has that, and no other. */
static int check_place(bool is_wanted, bool is_given, const char *name, struct error *err)
{
	if (is_given && !is_wanted)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: a place, but the plan has no tensor for it", name);
	if (is_wanted && !is_given)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing, but the plan's is a tensor",
		                 name);
	return 0;
}

static int check_run(const struct local_plan *plan, const struct msg_plan_run *run, struct error *err)
{
	int r;

	if (run->has & (F(plan_run, dst_table) | F(plan_run, src_table)))
		return error_set(
		    err, STATUS_UNSUPPORTED,
		    "%s_table: tables of layers belong to a service; without one, list the layers "
		    "by their distances",
		    run->has & F(plan_run, dst_table) ? "dst" : "src");
	if (!(run->has & F(plan_run, dst)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "dst: missing, as is dst_table");
	if (!(run->has & F(plan_run, src)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src: missing, as is src_table");
	r = check_place(plan->has_scale, run->has & F(plan_run, scale), "scale", err);
	if (r == 0)
		r = check_place(plan->has_bias, run->has & F(plan_run, bias), "bias", err);
	if (r == 0)
		r = check_place(plan->has_amax_scale, run->has & F(plan_run, amax_scale), "amax_scale", err);
	if (r == 0)
		r = check_place(plan->has_amax_inverse, run->has & F(plan_run, amax_inverse), "amax_inverse",
		                err);
	return r < 0 ? r
	             : local_check_points(run->has & F(plan_run, wait), run->has & F(plan_run, signal), err);
}

int local_plan_run(struct local_session *session, const struct msg_plan_run *run,
                   struct msg_transform_done *ret, struct error *err)
{
	const struct local_plan *plan = find(session, run->plan, err);
	struct msg_transform t;
	int r = plan ? check_run(plan, run, err) : err->status;

	if (r < 0)
		return r;
	t = plan->transform;
	place_tensor(&t.dst, &run->dst);
	place_tensor(&t.src, &run->src);
	if (plan->has_scale)
		place_operand(&t.scale, &run->scale);
	if (plan->has_bias)
		place_operand(&t.bias, &run->bias);
	if (plan->has_amax_scale)
		place_tensor(&t.amax.scale, &run->amax_scale);
	if (plan->has_amax_inverse)
		place_tensor(&t.amax.inverse, &run->amax_inverse);
	t.host_threads = run->host_threads;
	t.multiprocessors = run->multiprocessors;
	return local_transform_run(session, &t, ret, err);
}

int local_method_plan_run(struct local_session *session, const union params *params, union local_result *ret,
                          struct error *err)
{
	return local_plan_run(session, &params->plan_run, &ret->transform_done, err);
}
