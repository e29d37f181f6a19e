/* SPDX-License-Identifier: Apache-2.0 */
/* Runs transforms, and explains them. */
#include "session.h"

#include <pthread.h>
#include <string.h>

#include "kernels/elsewhere.h"
#include "staging.h"

/* State of a transform that is being run. A transform with splits may consist of several moves. */
struct moving {
	struct request_places places;
	struct split split; /* used if the transform has splits */
	uint32_t n;
	uint32_t largest;
	struct engine_plan *plan[SPLIT_MAX_PARTS];
	struct engine_move move[SPLIT_MAX_PARTS];
	struct local_job job;
};

static struct engine_move move_of(const struct msg_transform *t, const struct request_places *places,
                                  const struct split_part *part, struct engine_plan *plan,
                                  struct engine_memory *own)
{
	struct engine_move move = local_operands(t, places, own);

	move.transform = engine_plan_transform(plan);
	move.plan = plan;
	move.dst = move.src = own;
	move.dst_offset = local_offset(&places->dst, own) + (uint64_t)part->dst_offset;
	move.src_offset = local_offset(&places->src, own) + (uint64_t)part->src_offset;
	return move;
}

static void moving_deinit(struct moving *moving)
{
	for (uint32_t i = 0; i < moving->n; i++)
		engine_plan_unref(moving->plan[i]);
}

static struct plan_places plan_places_of(const struct request_places *places, const struct split_part *part)
{
	return plan_places(local_address(&places->dst) + (uint64_t)part->dst_offset,
	                   local_address(&places->src) + (uint64_t)part->src_offset);
}

static int add_move(struct moving *moving, const struct msg_transform *t, const struct split_part *part,
                    struct engine *engine, struct error *err)
{
	struct engine_plan **made = &moving->plan[moving->n];
	int r = engine_prepare(engine, &part->spec, plan_places_of(&moving->places, part), made, err);

	if (r == 0)
		moving->move[moving->n++] = move_of(t, &moving->places, part, *made, engine->own);
	return r;
}

static int plan_whole(struct moving *moving, const struct msg_transform *t, struct engine *engine,
                      struct error *err)
{
	struct split_part all = { .dst_offset = 0, .src_offset = 0 };
	int r = transform_spec_of(t, &all.spec, err);

	return r < 0 ? r : add_move(moving, t, &all, engine, err);
}

static int plan_split(struct moving *moving, const struct msg_transform *t, struct engine *engine,
                      struct error *err)
{
	struct split *split = &moving->split;
	int r = transform_split_of(t, split, err);

	for (int i = 0; r == 0 && i < split->n_parts; i++) {
		struct split_part part;

		split_get(split, i, &part);
		r = add_move(moving, t, &part, engine, err);
	}
	moving->largest = r == 0 ? (uint32_t)split->largest : 0;
	return r;
}

static struct transform_sides sides_of(const struct moving *moving, const struct msg_transform *t)
{
	return transform_is_split(t) ? split_sides(&moving->split)
	                             : transform_sides(moving->move[0].transform);
}

static int check_places(const struct moving *moving, const struct msg_transform *t, struct error *err)
{
	const struct request_places *places = &moving->places;
	const struct transform_sides sides = sides_of(moving, t);
	int r = transform_check_sides(&sides, &places->dst, &places->src, err);

	return r < 0 ? r
	             : request_check_operands(places, &sides, &moving->move[0].transform->conversion, err);
}

/* Plans a transform between its places, and checks that it may run there. The caller calls moving_deinit,
 * whatever this returns. */
static int prepare(struct moving *moving, struct local_session *session, const struct msg_transform *t,
                   struct error *err)
{
	struct engine *engine = local_stream_engine(&session->stream, err);
	int r = engine ? local_places(session, t, &moving->places, err) : err->status;

	moving->n = moving->largest = 0;
	if (r == 0)
		r = transform_is_split(t) ? plan_split(moving, t, engine, err)
		                          : plan_whole(moving, t, engine, err);
	return r < 0 ? r : check_places(moving, t, err);
}

static uint64_t count_changed(const struct moving *moving)
{
	uint64_t n = 0;

	if (moving->n == 1)
		return moving->job.job.move.changed;
	for (uint32_t i = 0; i < moving->n; i++)
		n += moving->move[i].changed;
	return n;
}

static int run(struct moving *moving, const struct msg_transform *t, struct local_session *session,
               struct error *err)
{
	struct engine_job *job = &moving->job.job;
	int r;

	*job = (struct engine_job){ .share = local_share(&t->order) };
	if (moving->n == 1) {
		job->move = moving->move[0];
	} else {
		job->moves = moving->move;
		job->n_moves = moving->n;
	}
	moving->job.is_counted = moving->n == 1 && !session->is_of_items;
	r = local_stream_run(&session->stream, &moving->job, err);
	if (moving->n == 1)
		moving->move[0] = job->move;
	if (r == STATUS_OUT_OF_RANGE)
		return request_explain_changed(&moving->move[0].transform->conversion, count_changed(moving),
		                               err);
	return r;
}

/* ---- Beside a device ---------------------------------------------------------------------------------- */

/* Returns whether the transform copies the bytes of src, from the first to the last, to dst in the same
 * order. */
static bool is_plain(const struct moving *moving)
{
	const struct transform *t = moving->move[0].transform;

	if (moving->n > 1 || t->conversion.is || t->count == 0 || tensor_count(&t->src_layout) != t->count)
		return false;
	for (int d = 0; d < t->rank; d++) {
		const struct transform_axis *axis = &t->axis[d];

		if (axis->extent > 1 && (axis->before != 0 || axis->source != axis->extent ||
		                         axis->dst_stride != axis->src_stride))
			return false;
	}
	return true;
}

/* Runs a plain move (is_plain) without an intermediate copy, and returns 1: through transfers if one side is
 * ordinary host memory, otherwise by the copy engine. Returns 0 if the host memory has gaps, or a negative
 * status. */
static int bring_plain(struct moving *moving, const struct msg_transform *t, struct local_session *session,
                       struct error *err)
{
	const struct transform *transform = moving->move[0].transform;
	const uint64_t dst = local_address(&moving->places.dst), src = local_address(&moving->places.src);
	enum engine_home to, from;
	struct local_packed packed;
	int r = engine_find_home(session->stream.device, dst, &to, err);

	if (r == 0)
		r = engine_find_home(session->stream.device, src, &from, err);
	if (r == 0 && to != ENGINE_HOME_HOST && from != ENGINE_HOME_HOST)
		r = run(moving, t, session, err) ?: 1;
	if (r != 0)
		return r;
	local_packed_init(&packed, &transform->dst_layout, to == ENGINE_HOME_HOST ? dst : src);
	if (!packed.is_gapless)
		return 0;
	r = to == ENGINE_HOME_HOST
	        ? local_bring(session, &packed, src - packed.first, LOCAL_OUT, t->host_threads, err)
	        : local_bring(session, &packed, dst - packed.first, LOCAL_IN, t->host_threads, err);
	moving->move[0].family = FAMILY_MEMCPY;
	moving->job.job.ns = 0;
	return r < 0 ? r : 1;
}

/* Runs the moves with copies on the device in place of the tensors that need one (staging.h). */
static int run_staged(struct moving *moving, const struct msg_transform *t, struct local_session *session,
                      struct error *err)
{
	struct msg_transform changed = *t;
	struct local_staging staging;
	int r;

	local_staging_init(&staging, session, t->host_threads);
	r = local_stage_tensors(&staging, &changed, &moving->places, true, err);
	if (r == 0) {
		moving_deinit(moving);
		r = prepare(moving, session, &changed, err);
	}
	if (r == 0)
		r = run(moving, &changed, session, err);
	return local_staging_end(&staging, r, err);
}

/* Runs moves that the call waits for, some of whose tensors may lie in host memory. */
static int run_awaited(struct moving *moving, const struct msg_transform *t, struct local_session *session,
                       struct error *err)
{
	int r = is_plain(moving) ? bring_plain(moving, t, session, err) : 0;

	if (r != 0)
		return r < 0 ? r : 0;
	r = local_is_staged(session, t, &moving->places, err);
	if (r < 0)
		return r;
	return r > 0 ? run_staged(moving, t, session, err) : run(moving, t, session, err);
}

/* Cancellation is disabled, because a thread that is canceled while it waits for the device would leave
 * memory of the device allocated. */
static int run_on_device(struct moving *moving, const struct msg_transform *t, struct local_session *session,
                         struct error *err)
{
	int before, r;

	if (!session->stream.is_awaited)
		return run(moving, t, session, err);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	r = run_awaited(moving, t, session, err);
	pthread_setcancelstate(before, NULL);
	return r;
}

/* ---- One transform ------------------------------------------------------------------------------------ */

static void set_done(const struct moving *moving, struct local_session *session,
                     struct msg_transform_done *ret)
{
	const enum family family = moving->move[moving->largest].family;

	ret->path = bytes_of(family_names[family]);
	ret->ns = moving->job.job.ns;
	ret->bytes = 0;
	for (uint32_t i = 0; i < moving->n; i++)
		ret->bytes += moving->move[i].transform->bytes;
	local_count_move(session, family, ret->bytes, ret->ns);
	local_count_latency(session, ret->ns);
}

int local_move(struct local_session *session, const struct msg_transform *t, struct msg_transform_done *ret,
               struct error *err)
{
	struct moving moving = { .n = 0 };
	int r = local_check_operands(session, t, err);

	if (r == 0)
		r = prepare(&moving, session, t, err);
	if (r == 0 && !session->only_checks) {
		r = session->stream.device ? run_on_device(&moving, t, session, err)
		                           : run(&moving, t, session, err);
		if (r == 0)
			set_done(&moving, session, ret);
	}
	moving_deinit(&moving);
	return r;
}

int local_check_move(struct local_session *session, const struct msg_transform *t,
                     struct request_destination *ret, struct error *err)
{
	struct moving moving;
	int r = prepare(&moving, session, t, err);

	if (r == 0) {
		const struct transform_sides sides = sides_of(&moving, t);

		*ret = (struct request_destination){ .tensor = t->dst,
			                             .layout = *sides.dst,
			                             .extent = sides.dst_extent,
			                             .place = moving.places.dst };
	}
	moving_deinit(&moving);
	return r;
}

int local_transform_run(struct local_session *session, const struct msg_transform *params,
                        struct msg_transform_done *ret, struct error *err)
{
	bool is_on_device;
	int r;

	if (params->has & F(transform, further_dst))
		return local_further_run(session, params, ret, err);
	r = local_device_begin(
	    session, local_needs_device(session, &params->dst) || local_needs_device(session, &params->src),
	    &is_on_device, err);
	if (r == 0)
		r = local_move(session, params, ret, err);
	if (is_on_device)
		local_stream_end(session);
	return r;
}

int local_method_transform(struct local_session *session, const union params *params, union local_result *ret,
                           struct error *err)
{
	return local_transform_run(session, &params->transform, &ret->transform_done, err);
}

/* ---- Explanations ------------------------------------------------------------------------------------- */

/* State of an explanation. */
struct explaining {
	struct split split;
	struct request_places places;
	struct engine *engine; /* NULL: the requested engine does not exist in this process */
	const char *name;
	struct engine_plan_runs runs; /* runs of the part that was explained last */
};

/* Sets the engine to explain for: the session's own, unless the request names another one. */
static int find_engine(const struct msg_transform *t, struct engine *own, struct explaining *ret,
                       struct error *err)
{
	ret->name = own->name;
	if (t->has & F(transform, engine) &&
	    !explanation_is_of((const char *)t->engine.data, t->engine.len, &ret->name))
		return error_set(err, STATUS_INVALID_ARGUMENT, "engine: expected cpu or cuda");
	ret->engine = strcmp(ret->name, own->name) == 0 ? own : NULL;
	return 0;
}

static int explain_here(struct explaining *e, const struct split_part *part, struct engine_explanation *ret,
                        struct error *err)
{
	struct engine_plan *plan = NULL;
	int r = engine_prepare(e->engine, &part->spec, plan_places_of(&e->places, part), &plan, err);

	if (r == 0)
		r = engine_explain(e->engine, plan, ret, err);
	if (r == 0)
		e->runs = local_plan_runs(plan);
	engine_plan_unref(plan);
	return r;
}

static int explain_elsewhere(const struct explaining *e, const struct split_part *part,
                             struct engine_explanation *ret, struct error *err)
{
	struct transform transform;
	int r = transform_init(&transform, &part->spec, err);

	if (r == 0)
		explanation_elsewhere(ret, e->name, &transform,
		                      local_address(&e->places.dst) + (uint64_t)part->dst_offset,
		                      local_address(&e->places.src) + (uint64_t)part->src_offset);
	return r;
}

/* Explains the largest part, with the bytes, the subregions and the predicted time of all parts. */
static int explain_parts(struct explaining *e, struct engine_explanation *ret, struct error *err)
{
	uint64_t bytes = 0, n_subregions = 0, predicted_ns = 0;

	for (int i = 0; i < e->split.n_parts; i++) {
		struct engine_explanation one;
		struct split_part part;
		int r;

		split_get(&e->split, i, &part);
		r = e->engine ? explain_here(e, &part, &one, err) : explain_elsewhere(e, &part, &one, err);
		if (r < 0)
			return r;
		bytes += one.bytes;
		n_subregions += one.n_subregions;
		predicted_ns += one.predicted_ns;
		if (i == e->split.largest)
			*ret = one;
	}
	ret->bytes = bytes;
	ret->n_subregions = n_subregions;
	ret->predicted_ns = predicted_ns;
	return 0;
}

/* The plan depends on the addresses of dst and src. A tensor with neither region nor offset is taken to lie
 * at address 0. */
int local_method_explain(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err)
{
	const struct msg_transform *t = &params->transform;
	struct engine *engine = local_stream_engine(&session->stream, err);
	struct msg_explanation *answer = &ret->explanation;
	struct explaining e;
	int r = engine ? find_engine(t, engine, &e, err) : err->status;

	if (r == 0)
		r = transform_split_of(t, &e.split, err);
	if (r == 0)
		r = local_places(session, t, &e.places, err);
	if (r == 0)
		r = explain_parts(&e, &session->explained, err);
	if (r < 0)
		return r;
	explanation_answer(&session->explained, e.name, answer, session->rules);
	if (e.split.n_parts > 1) {
		answer->parts = (uint64_t)e.split.n_parts;
		answer->has |= F(explanation, parts);
	} else if (e.engine) {
		explanation_add_runs(e.runs, answer);
	}
	return 0;
}
