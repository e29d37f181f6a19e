/* SPDX-License-Identifier: Apache-2.0 */
/* A session's regions, and the requests that need no service. */
#include "door.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "kernels/transform/request.h"
#include "proto/wire/rpc.h"

struct region {
	uint64_t start; /* address */
	uint64_t size;  /* 0: there is no region of this id */
	bool writable;
};

struct local_session {
	struct local_stream stream;
	struct rpc_decoder *decoder;
	struct rpc_request request;
	struct engine_explanation explained;
	struct msg_rule rules[FAMILY_MOST_RULES];
	struct region *regions; /* region i has the id i + 1 */
	uint64_t n_regions;
};

/* The result of a method, in which others' names and rules are borrowed until the next request. */
union local_result {
	struct msg_info info;
	struct msg_transform_done transform_done;
	struct msg_region_released region_released;
	struct msg_explanation explanation;
};

/* ---- Life --------------------------------------------------------------------------------------------- */

static int session_open(struct local_session **ret, struct error *err)
{
	struct local_session *session = calloc(1, sizeof *session);
	int r;

	if (!session)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for a session");
	session->decoder = rpc_decoder_new();
	r = session->decoder ? local_stream_open(&session->stream, err)
	                     : error_set(err, STATUS_NO_MEMORY, "out of memory for a session");
	if (r < 0) {
		rpc_decoder_free(session->decoder);
		free(session);
		return r;
	}
	*ret = session;
	return 0;
}

static void session_close(struct local_session *session)
{
	if (!session)
		return;
	local_stream_close(&session->stream);
	rpc_decoder_free(session->decoder);
	free(session->regions);
	free(session);
}

/* ---- Regions ------------------------------------------------------------------------------------------ */

static struct region *region_free_one(struct local_session *session)
{
	struct region *grown;
	uint64_t n = session->n_regions;

	for (uint64_t i = 0; i < n; i++)
		if (session->regions[i].size == 0)
			return &session->regions[i];
	grown = realloc(session->regions, (2 * n + 8) * sizeof *grown);
	if (!grown)
		return NULL;
	memset(grown + n, 0, (n + 8) * sizeof *grown);
	session->regions = grown;
	session->n_regions = 2 * n + 8;
	return &grown[n];
}

static int session_map(struct local_session *session, const void *address, uint64_t size, bool writable,
                       uint64_t *ret, struct error *err)
{
	const uint64_t start = (uint64_t)(uintptr_t)address;
	struct region *region;

	if (size == 0 || start == 0 || start + size < start)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%" PRIu64 " bytes at %p are no memory of this process", size, address);
	region = region_free_one(session);
	if (!region)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for a region");
	*region = (struct region){ .start = start, .size = size, .writable = writable };
	*ret = (uint64_t)(region - session->regions) + 1;
	return 0;
}

static struct region *region_find(const struct local_session *session, uint64_t id, const char *name,
                                  struct error *err)
{
	if (id > 0 && id <= session->n_regions && session->regions[id - 1].size > 0)
		return &session->regions[id - 1];
	error_set(err, STATUS_NOT_FOUND, "%s: there is no region %" PRIu64, name, id);
	return NULL;
}

/* ---- Places ------------------------------------------------------------------------------------------- */

/* Where a tensor of a request lies: in a region, or at the address that its offset is. */
static int place_of(const struct local_session *session, bool has_region, uint64_t id, uint64_t offset,
                    bool is_written, const char *name, struct tensor_place *ret, struct error *err)
{
	const struct region *region;

	*ret = (struct tensor_place){ .offset = offset, .size = UINT64_C(1) << 56 };
	if (!has_region)
		return 0;
	region = region_find(session, id, name, err);
	if (!region)
		return err->status;
	if (is_written && !region->writable)
		return error_set(err, STATUS_PERMISSION, "%s: region %" PRIu64 " is read-only", name, id);
	ret->base = region->start;
	ret->size = region->size;
	return 0;
}

static int place_of_tensor(const struct local_session *session, const struct msg_tensor *tensor,
                           bool is_written, const char *name, struct tensor_place *ret, struct error *err)
{
	return place_of(session, tensor->has & F(tensor, region), tensor->region, tensor->offset, is_written,
	                name, ret, err);
}

static int place_of_operand(const struct local_session *session, const struct msg_operand *operand,
                            bool is_given, const char *name, struct tensor_place *ret, struct error *err)
{
	return is_given && !(operand->has & F(operand, number))
	           ? place_of(session, operand->has & F(operand, region), operand->region, operand->offset,
	                      false, name, ret, err)
	           : 0;
}

static int places_of(const struct local_session *session, const struct msg_transform *t,
                     struct request_places *ret, struct error *err)
{
	const uint64_t amax = t->has & F(transform, amax) ? t->amax.has : 0;
	int r = place_of_tensor(session, &t->dst, true, "dst.region", &ret->dst, err);

	if (r == 0)
		r = place_of_tensor(session, &t->src, false, "src.region", &ret->src, err);
	if (r < 0 || !transform_has_operands(t))
		return r;
	r = place_of_operand(session, &t->scale, t->has & F(transform, scale), "scale.region", &ret->scale,
	                     err);
	if (r == 0)
		r = place_of_operand(session, &t->bias, t->has & F(transform, bias), "bias.region",
		                     &ret->bias, err);
	if (r == 0 && amax & F(amax, scale))
		r = place_of_tensor(session, &t->amax.scale, true, "amax.scale.region", &ret->amax_scale,
		                    err);
	if (r == 0 && amax & F(amax, inverse))
		r = place_of_tensor(session, &t->amax.inverse, true, "amax.inverse.region",
		                    &ret->amax_inverse, err);
	return r;
}

/* The offset of a place in all memory of the process. */
static uint64_t offset_of(const struct tensor_place *place, const struct engine_memory *own)
{
	return place->base + place->offset - own->base;
}

/* ---- Transforms --------------------------------------------------------------------------------------- */

/* A transform that is under way. Splits make several moves of it. */
struct moving {
	struct request_places places;
	uint32_t n;
	uint32_t largest;
	struct engine_plan *plan[SPLIT_MAX_PARTS];
	struct engine_move move[SPLIT_MAX_PARTS];
	struct local_job job;
};

static struct engine_operand operand_of(const struct msg_operand *params, bool is_given,
                                        const struct tensor_place *place, struct engine_memory *own)
{
	const bool is_tensor = is_given && !(params->has & F(operand, number));

	return (struct engine_operand){ .number = operand_number(params, is_given),
		                        .memory = is_tensor ? own : NULL,
		                        .offset = is_tensor ? offset_of(place, own) : 0 };
}

static struct engine_result result_of(bool is_given, const struct tensor_place *place,
                                      struct engine_memory *own)
{
	return (struct engine_result){ .memory = is_given ? own : NULL,
		                       .offset = is_given ? offset_of(place, own) : 0 };
}

static struct engine_move move_of(const struct msg_transform *t, const struct request_places *places,
                                  const struct split_part *part, struct engine_plan *plan,
                                  struct engine_memory *own)
{
	const uint64_t amax = t->has & F(transform, amax) ? t->amax.has : 0;

	return (struct engine_move){
		.transform = engine_plan_transform(plan),
		.plan = plan,
		.dst = own,
		.src = own,
		.dst_offset = offset_of(&places->dst, own) + (uint64_t)part->dst_offset,
		.src_offset = offset_of(&places->src, own) + (uint64_t)part->src_offset,
		.scale = operand_of(&t->scale, t->has & F(transform, scale), &places->scale, own),
		.bias = operand_of(&t->bias, t->has & F(transform, bias), &places->bias, own),
		.amax_scale = result_of(amax & F(amax, scale), &places->amax_scale, own),
		.amax_inverse = result_of(amax & F(amax, inverse), &places->amax_inverse, own),
	};
}

static void moving_deinit(struct moving *moving)
{
	for (uint32_t i = 0; i < moving->n; i++)
		engine_plan_unref(moving->plan[i]);
}

static struct plan_places plan_places_of(const struct request_places *places, const struct split_part *part)
{
	return plan_places(places->dst.base + places->dst.offset + (uint64_t)part->dst_offset,
	                   places->src.base + places->src.offset + (uint64_t)part->src_offset);
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

static int check_places(const struct moving *moving, const struct transform_sides *sides, struct error *err)
{
	const struct request_places *places = &moving->places;
	int r = transform_check_sides(sides, &places->dst, &places->src, err);

	return r < 0 ? r : request_check_operands(places, sides, &moving->move[0].transform->conversion, err);
}

static int plan_whole(struct moving *moving, const struct msg_transform *t, struct engine *engine,
                      struct error *err)
{
	struct split_part all = { .dst_offset = 0, .src_offset = 0 };
	struct transform_sides sides;
	int r = transform_spec_of(t, &all.spec, err);

	if (r == 0)
		r = add_move(moving, t, &all, engine, err);
	if (r < 0)
		return r;
	sides = transform_sides(moving->move[0].transform);
	return check_places(moving, &sides, err);
}

static int plan_split(struct moving *moving, const struct msg_transform *t, struct engine *engine,
                      struct error *err)
{
	struct transform_sides sides;
	struct split split;
	int r = transform_split_of(t, &split, err);

	for (int i = 0; r == 0 && i < split.n_parts; i++) {
		struct split_part part;

		split_get(&split, i, &part);
		r = add_move(moving, t, &part, engine, err);
	}
	if (r < 0)
		return r;
	moving->largest = (uint32_t)split.largest;
	sides = split_sides(&split);
	return check_places(moving, &sides, err);
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

	*job = (struct engine_job){ .host_threads = (uint32_t)t->host_threads };
	if (moving->n == 1) {
		job->move = moving->move[0];
	} else {
		job->moves = moving->move;
		job->n_moves = moving->n;
	}
	local_stream_run(&session->stream, &moving->job);
	if (moving->n == 1)
		moving->move[0] = job->move;
	if (job->status == STATUS_OUT_OF_RANGE)
		return conversion_explain_changed(&moving->move[0].transform->conversion,
		                                  count_changed(moving), err);
	return job->status ? error_set(err, job->status, "%s", status_meaning(job->status)) : 0;
}

/* Refuses what only a service has. */
static int check_local(const struct msg_transform *t, struct error *err)
{
	if (t->has & F(transform, further_dst))
		return error_set(err, STATUS_UNSUPPORTED,
		                 "further_dst: without a service a request has one destination");
	if (!(t->has & (F(transform, wait) | F(transform, signal))))
		return 0;
	return error_set(
	    err, STATUS_UNSUPPORTED,
	    "%s: timelines belong to a service; without one a request ends before its call returns",
	    t->has & F(transform, wait) ? "wait" : "signal");
}

static int move(struct local_session *session, const struct msg_transform *t, struct msg_transform_done *ret,
                struct error *err)
{
	struct moving moving;
	struct engine *engine = local_stream_engine(&session->stream, err);
	int r = engine ? places_of(session, t, &moving.places, err) : err->status;

	moving.n = moving.largest = 0;
	if (r == 0)
		r = transform_is_split(t) ? plan_split(&moving, t, engine, err)
		                          : plan_whole(&moving, t, engine, err);
	if (r == 0)
		r = run(&moving, t, session, err);
	if (r == 0) {
		ret->path = bytes_of(family_names[moving.move[moving.largest].family]);
		ret->ns = moving.job.job.ns;
		ret->bytes = 0;
		for (uint32_t i = 0; i < moving.n; i++)
			ret->bytes += moving.move[i].transform->bytes;
	}
	moving_deinit(&moving);
	return r;
}

static int session_transform(struct local_session *session, const struct msg_transform *params,
                             struct msg_transform_done *ret, struct error *err)
{
	int r = check_local(params, err);

	return r < 0 ? r : move(session, params, ret, err);
}

static int method_transform(struct local_session *session, const struct rpc_request *request,
                            union local_result *ret, struct error *err)
{
	return session_transform(session, &request->params.transform, &ret->transform_done, err);
}

/* ---- Explanations ------------------------------------------------------------------------------------- */

/* Explains the largest part, of a transform whose places count as far as they are given. */
static int method_explain(struct local_session *session, const struct rpc_request *request,
                          union local_result *ret, struct error *err)
{
	const struct msg_transform *t = &request->params.transform;
	struct engine *engine = local_stream_engine(&session->stream, err);
	struct engine_plan *plan = NULL;
	struct request_places places;
	struct split_part part;
	struct split split;
	int r = engine ? transform_split_of(t, &split, err) : err->status;

	if (r == 0 && t->has & F(transform, engine) &&
	    (t->engine.len != strlen(engine->name) || memcmp(t->engine.data, engine->name, t->engine.len)))
		r = error_set(err, STATUS_UNSUPPORTED,
		              "engine: without a service only this process's engine, %s, explains",
		              engine->name);
	if (r == 0)
		r = places_of(session, t, &places, err);
	if (r < 0)
		return r;
	split_get(&split, split.largest, &part);
	r = engine_prepare(engine, &part.spec, plan_places_of(&places, &part), &plan, err);
	if (r == 0)
		r = engine_explain(engine, plan, &session->explained, err);
	if (r == 0) {
		explanation_answer(&session->explained, engine->name, &ret->explanation, session->rules);
		explanation_add_runs(engine_plan_runs(plan), &ret->explanation);
		if (split.n_parts > 1) {
			ret->explanation.parts = (uint64_t)split.n_parts;
			ret->explanation.has |= F(explanation, parts);
		}
	}
	engine_plan_unref(plan);
	return r;
}

/* ---- Others ------------------------------------------------------------------------------------------- */

static int method_info(struct local_session *session, const struct rpc_request *request,
                       union local_result *ret, struct error *err)
{
	const struct engine *engine = local_stream_engine(&session->stream, err);

	(void)request;
	if (!engine)
		return err->status;
	ret->info = (struct msg_info){
		.version = bytes_of(PACKAGE_VERSION),
		.protocol = PROTOCOL_VERSION,
		.boot_id = bytes_of(""),
		.engine = bytes_of(engine->name),
		.device = bytes_of(engine->device),
		.methods = { method_names, METHOD_COUNT },
		.dtypes = { dtype_names, DTYPE_COUNT },
	};
	return 0;
}

static int method_ping(struct local_session *session, const struct rpc_request *request,
                       union local_result *ret, struct error *err)
{
	(void)session;
	(void)request;
	(void)ret;
	(void)err;
	return 0;
}

static int method_region_release(struct local_session *session, const struct rpc_request *request,
                                 union local_result *ret, struct error *err)
{
	struct region *region = region_find(session, request->params.region_release.region, "region", err);

	if (!region)
		return err->status;
	*region = (struct region){ 0 };
	ret->region_released = (struct msg_region_released){ .state = REGION_STATE_CLOSED };
	return 0;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

typedef int method_fn(struct local_session *session, const struct rpc_request *request,
                      union local_result *ret, struct error *err);

static method_fn *const handlers[METHOD_COUNT] = {
	[METHOD_ping] = method_ping,
	[METHOD_info] = method_info,
	[METHOD_region_release] = method_region_release,
	[METHOD_copy] = method_transform,
	[METHOD_transpose] = method_transform,
	[METHOD_pad] = method_transform,
	[METHOD_transform] = method_transform,
	[METHOD_explain] = method_explain,
};

static int handle(struct local_session *session, const struct rpc_request *request, union local_result *ret,
                  struct error *err)
{
	method_fn *handler = handlers[request->method->id];

	if (handler)
		return handler(session, request, ret, err);
	return error_set(err, STATUS_UNSUPPORTED, "%s: only a service does this, and this client has none",
	                 request->method->name);
}

/* When the request is to be answered; one that moves nothing has no such field. */
static enum completion completion_of(const struct rpc_request *request)
{
	return handlers[request->method->id] == method_transform ? request->params.transform.reply
	                                                         : COMPLETION_DONE;
}

static int answer(const struct rpc_request *request, const union local_result *result,
                  const struct error *failed, struct buffer *replies)
{
	const enum completion completion = completion_of(request);
	int r;

	if (failed && completion != COMPLETION_QUEUED)
		return rpc_encode_error(replies, request->msgid, failed);
	if (completion == COMPLETION_SIGNAL)
		return 0;
	if (completion == COMPLETION_DONE)
		return rpc_encode_result(replies, request->msgid, request->method, result);
	r = rpc_encode_queued(replies, request->msgid);
	return r < 0 ? r : rpc_encode_done(replies, request->msgid, request->method, result, failed);
}

static int session_serve(struct local_session *session, const uint8_t *message, size_t len,
                         struct buffer *replies, struct error *err)
{
	struct rpc_request *request = &session->request;
	union local_result result;
	int r;

	switch (rpc_decode_request(session->decoder, message, len, request, err)) {
	case RPC_DISPATCH:
		r = handle(session, request, &result, err);
		r = answer(request, &result, r < 0 ? err : NULL, replies);
		break;
	case RPC_REFUSE:
		r = rpc_encode_error(replies, request->msgid, err);
		break;
	case RPC_BROKEN:
		return err->status = STATUS_PROTOCOL;
	default:
		r = 0;
		break;
	}
	rpc_decoder_rest(session->decoder);
	return r < 0 ? error_set(err, r, "out of memory for a reply") : 0;
}

const struct local_door *tma_local_door(void)
{
	static const struct local_door door = { .version = PACKAGE_VERSION,
		                                .open = session_open,
		                                .close = session_close,
		                                .map = session_map,
		                                .transform = session_transform,
		                                .serve = session_serve };

	return &door;
}
