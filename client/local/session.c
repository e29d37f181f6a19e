/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: how they begin and end, how a request finds its method, and which requests are late. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

static local_method *const handlers[METHOD_COUNT]; /* NULL: only a service has the method */

/* ---- Life --------------------------------------------------------------------------------------------- */

/* Lists the methods that need no service. */
static void list_methods(struct local_session *session)
{
	for (uint32_t id = 0; id < METHOD_COUNT; id++)
		if (handlers[id])
			session->methods[session->n_methods++] = method_names[id];
}

int local_session_new(struct local_session **ret, struct local_objects *objects, struct error *err)
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
	session->objects = objects;
	session->ended_fd = -1;
	list_methods(session);
	*ret = session;
	return 0;
}

void local_session_free(struct local_session *session)
{
	if (!session)
		return;
	local_stream_close(&session->stream);
	rpc_decoder_free(session->decoder);
	local_items_free(session->items);
	local_counts_free(session);
	free(session->seen);
	free(session->stats);
	free(session->entries);
	free(session);
}

static int session_open(struct local_session **ret, int ended_fd, struct error *err)
{
	struct local_objects *objects = calloc(1, sizeof *objects);
	int r = objects ? local_session_new(ret, objects, err)
	                : error_set(err, STATUS_NO_MEMORY, "out of memory for a session");

	if (r < 0) {
		free(objects);
		return r;
	}
	objects->forks = local_forks;
	(*ret)->ended_fd = ended_fd;
	local_usage_begin(*ret, true);
	return 0;
}

static void session_close(struct local_session *session)
{
	struct local_objects *objects = session ? session->objects : NULL;

	if (!session)
		return;
	local_late_free(session);
	local_usage_end(session, true);
	local_session_free(session);
	local_objects_free(objects);
}

/* ---- Others ------------------------------------------------------------------------------------------- */

static int method_info(struct local_session *session, const union params *params, union local_result *ret,
                       struct error *err)
{
	const struct engine *engine = local_stream_engine(&session->stream, err);

	(void)params;
	if (!engine)
		return err->status;
	ret->info = (struct msg_info){
		.version = bytes_of(PACKAGE_VERSION),
		.protocol = PROTOCOL_VERSION,
		.boot_id = bytes_of(""),
		.engine = bytes_of(engine->name),
		.device = bytes_of(engine->device),
		.methods = { session->methods, session->n_methods },
		.dtypes = { dtype_names, DTYPE_COUNT },
	};
	return 0;
}

static int method_ping(struct local_session *session, const union params *params, union local_result *ret,
                       struct error *err)
{
	(void)session;
	(void)params;
	(void)ret;
	(void)err;
	return 0;
}

/* Only late requests can be canceled: all others have ended already. */
static int method_cancel(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err)
{
	(void)err;
	ret->canceled = (struct msg_canceled){ .canceled = local_late_cancel(
						   session, (uint32_t)params->cancel.request, true) };
	return 0;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

static local_method *const handlers[METHOD_COUNT] = {
	[METHOD_ping] = method_ping,
	[METHOD_info] = method_info,
	[METHOD_region_release] = local_method_region_release,
	[METHOD_copy] = local_method_transform,
	[METHOD_transpose] = local_method_transform,
	[METHOD_pad] = local_method_transform,
	[METHOD_transform] = local_method_transform,
	[METHOD_plan_prepare] = local_method_plan_prepare,
	[METHOD_plan_run] = local_method_plan_run,
	[METHOD_plan_release] = local_method_plan_release,
	[METHOD_submit] = local_method_submit,
	[METHOD_cancel] = method_cancel,
	[METHOD_explain] = local_method_explain,
	[METHOD_gather] = local_method_gather,
	[METHOD_scatter] = local_method_scatter,
	[METHOD_reshard] = local_method_reshard,
	[METHOD_region_list] = local_method_region_list,
	[METHOD_stats] = local_method_stats,
	[METHOD_table_prepare] = local_method_table_prepare,
	[METHOD_table_release] = local_method_table_release,
};

/* Tells whether a request moves something, and when it is answered. */
struct order {
	bool moves;
	enum completion completion;
	const struct order_fields *fields; /* NULL: the method takes no order */
	uint64_t has;                      /* fields that the request has, as F(order, field) */
};

#define ORDER_OF(m, p)                                                                                 \
	(struct order)                                                                                 \
	{                                                                                              \
		.moves = true, .completion = (p)->reply, .fields = &(p)->order, .has = ORDER_HAS(m, p) \
	}

static struct order order_of(enum method_id method, const union params *params)
{
	switch (method) {
	case METHOD_copy:
	case METHOD_transpose:
	case METHOD_pad:
	case METHOD_transform:
		return ORDER_OF(transform, &params->transform);
	case METHOD_gather:
	case METHOD_scatter:
		return ORDER_OF(blocks, &params->blocks);
	case METHOD_plan_run:
		return ORDER_OF(plan_run, &params->plan_run);
	case METHOD_submit:
		return ORDER_OF(submit, &params->submit);
	case METHOD_reshard:
		return ORDER_OF(reshard, &params->reshard);
	default:
		return (struct order){ .completion = COMPLETION_DONE };
	}
}

/* Returns whether the result reports failed items. */
static bool has_failed_items(enum method_id method, const union local_result *result)
{
	return method == METHOD_submit && result->submit_done.errors.n > 0;
}

/* Runs the handler of a method that exists. The point that the request waits for must have been reached,
 * unless the request is launched into a stream, which then waits for the point. */
static int run(struct local_session *session, enum method_id method, const union params *params,
               union local_result *ret, struct error *err)
{
	const struct order order = order_of(method, params);
	struct local_points points;
	int r = local_points_find(session, order.fields, order.has, &points, err);

	if (r < 0)
		return r;
	if (!session->stream.device) {
		r = handlers[method](session, params, ret, err);
		return r < 0 || has_failed_items(method, ret) ? r
		                                              : local_points_signal(session, &points, err);
	}
	local_points_before(session, &points);
	r = handlers[method](session, params, ret, err);
	return local_points_after(session, &points, r, err);
}

static void count_request(struct local_session *session, enum method_id method, int r)
{
	local_count(session, USAGE_REQUESTS + (int)method, 1);
	if (r < 0)
		local_count_error(session, r);
}

int local_session_run(struct local_session *session, enum method_id method, const union params *params,
                      union local_result *ret, struct error *err)
{
	int r = handlers[method] ? run(session, method, params, ret, err)
	                         : error_set(err, STATUS_UNSUPPORTED,
	                                     "%s: only a service does this, and this client has none",
	                                     method_names[method]);

	count_request(session, method, r);
	return r;
}

/* ---- Answers ------------------------------------------------------------------------------------------ */

int local_session_answer(const struct local_asked *asked, bool is_queued, const union local_result *result,
                         const struct error *failed, struct buffer *replies)
{
	int r;

	if (failed && asked->completion != COMPLETION_QUEUED)
		return rpc_encode_error(replies, asked->msgid, failed);
	if (asked->completion == COMPLETION_SIGNAL && !has_failed_items(asked->method->id, result))
		return 0;
	if (asked->completion != COMPLETION_QUEUED)
		return rpc_encode_result(replies, asked->msgid, asked->method, result);
	r = is_queued ? 0 : rpc_encode_queued(replies, asked->msgid);
	return r < 0 ? r : rpc_encode_done(replies, asked->msgid, asked->method, result, failed);
}

/* ---- Late requests ------------------------------------------------------------------------------------ */

/* Checks what a service, too, would report at once: everything except the items of a submit. */
static int check(struct local_session *session, const struct rpc_request *request, struct error *err)
{
	union local_result ignored;
	int r;

	if (request->method->id == METHOD_submit)
		return 0;
	session->only_checks = true;
	r = handlers[request->method->id](session, &request->params, &ignored, err);
	session->only_checks = false;
	return r;
}

/* Adds the request to the late ones, and answers "queued" if that was asked for. */
static int hold(struct local_session *session, const struct rpc_request *request,
                const struct local_asked *asked, const struct local_points *points, const uint8_t *message,
                size_t len, struct buffer *replies, struct error *err)
{
	int r = check(session, request, err);

	if (r == 0)
		r = local_late_add(session, asked, message, len, points, false, err);
	if (r < 0) {
		count_request(session, request->method->id, r);
		return local_session_answer(asked, false, NULL, err, replies);
	}
	return asked->completion == COMPLETION_QUEUED ? rpc_encode_queued(replies, asked->msgid) : 0;
}

/* Sets *ret to whether a request that moves something has to be late. */
static int find_whether_late(struct local_session *session, const struct order *order,
                             struct local_points *points, bool *ret, struct error *err)
{
	int r = local_points_find(session, order->fields, order->has, points, err);

	if (r == 0)
		r = local_late_is_busy(session) ? 0 : local_points_look(session, points, err);
	*ret = r == 0;
	return r < 0 ? r : 0;
}

/* Returns whether the request releases an existing object while late requests, which may name it, are under
 * way. */
static bool is_late_release(struct local_session *session, const struct rpc_request *request)
{
	struct local_objects *objects = session->objects;
	struct local_region region;

	switch (request->method->id) {
	case METHOD_region_release:
		return local_late_is_busy(session) &&
		       local_region_find(session, request->params.region_release.region, &region);
	case METHOD_plan_release:
		return local_late_is_busy(session) &&
		       local_ids_find(session, &objects->plans, request->params.plan_release.plan);
	case METHOD_table_release:
		return local_late_is_busy(session) &&
		       local_ids_find(session, &objects->tables, request->params.table_release.table);
	default:
		return false;
	}
}

/* Answers the release at once, but keeps the object until the requests before the release have ended. */
static int release_late(struct local_session *session, const struct local_asked *asked,
                        const uint8_t *message, size_t len, struct buffer *replies, struct error *err)
{
	const union local_result result = { .region_released.state = REGION_STATE_DRAINING };
	const struct local_points none = { 0 };
	int r = local_late_add(session, asked, message, len, &none, true, err);

	return local_session_answer(asked, false, &result, r < 0 ? err : NULL, replies);
}

static int dispatch(struct local_session *session, const uint8_t *message, size_t len, struct buffer *replies,
                    struct error *err)
{
	const struct rpc_request *request = &session->request;
	const struct order order = order_of(request->method->id, &request->params);
	const struct local_asked asked = { request->msgid, request->method, order.completion };
	struct local_points points;
	union local_result result;
	bool is_late = false;
	int r = order.moves ? find_whether_late(session, &order, &points, &is_late, err) : 0;

	if (is_late)
		return hold(session, request, &asked, &points, message, len, replies, err);
	if (is_late_release(session, request))
		return release_late(session, &asked, message, len, replies, err);
	if (r < 0)
		count_request(session, request->method->id, r);
	else
		r = local_session_run(session, request->method->id, &request->params, &result, err);
	return local_session_answer(&asked, false, &result, r < 0 ? err : NULL, replies);
}

static int session_serve(struct local_session *session, const uint8_t *message, size_t len,
                         struct buffer *replies, bool *ret_is_late, struct error *err)
{
	struct rpc_request *request = &session->request;
	int r;

	switch (rpc_decode_request(session->decoder, message, len, request, err)) {
	case RPC_DISPATCH:
		r = dispatch(session, message, len, replies, err);
		break;
	case RPC_REFUSE:
		local_count_error(session, err->status);
		r = rpc_encode_error(replies, request->msgid, err);
		break;
	case RPC_BROKEN:
		return err->status = STATUS_PROTOCOL;
	default:
		r = 0;
		break;
	}
	rpc_decoder_rest(session->decoder);
	*ret_is_late = local_late_is_there(session);
	return r < 0 ? error_set(err, r, "out of memory for a reply") : 0;
}

static bool session_cancel(struct local_session *session, uint32_t msgid)
{
	return local_late_cancel(session, msgid, false);
}

const struct local_door *tma_local_door(void)
{
	static const struct local_door door = { .version = PACKAGE_VERSION,
		                                .open = session_open,
		                                .close = session_close,
		                                .map = local_map,
		                                .stream_begin = local_stream_begin,
		                                .stream_end = local_stream_end,
		                                .reaches = local_reaches,
		                                .stream_counts = local_stream_counts,
		                                .run = local_session_run,
		                                .serve = session_serve,
		                                .take = local_late_take,
		                                .await = local_late_await,
		                                .cancel = session_cancel };

	return &door;
}
