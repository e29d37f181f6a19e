/* SPDX-License-Identifier: Apache-2.0 */
/* A session's life and its regions, and how a request finds its method. */
#include "session.h"

#include <inttypes.h>
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
	list_methods(session);
	local_usage_begin(session);
	*ret = session;
	return 0;
}

static void session_close(struct local_session *session)
{
	if (!session)
		return;
	local_usage_end(session);
	local_stream_close(&session->stream);
	rpc_decoder_free(session->decoder);
	local_items_free(session->items);
	local_plans_free(session);
	local_tables_free(session);
	local_counts_free(session);
	free(session->seen);
	free(session->regions);
	free(session->stats);
	free(session->entries);
	free(session);
}

/* ---- Ids ---------------------------------------------------------------------------------------------- */

uint64_t local_ids_add(struct local_ids *ids, void *object)
{
	uint64_t i = 0;
	void **grown;

	while (i < ids->n && ids->objects[i])
		i++;
	if (i == ids->n) {
		grown = realloc(ids->objects, (2 * i + 8) * sizeof *grown);
		if (!grown)
			return 0;
		memset(grown + i, 0, (i + 8) * sizeof *grown);
		ids->objects = grown;
		ids->n = 2 * i + 8;
	}
	ids->objects[i] = object;
	return i + 1;
}

void *local_ids_take(struct local_ids *ids, uint64_t id)
{
	void *object = local_ids_find(ids, id);

	if (object)
		ids->objects[id - 1] = NULL;
	return object;
}

/* ---- Regions ------------------------------------------------------------------------------------------ */

static struct region *region_free_one(struct local_session *session)
{
	struct region *grown;
	uint64_t n = session->n_regions;

	for (; session->first_free < n; session->first_free++)
		if (session->regions[session->first_free].size == 0)
			return &session->regions[session->first_free];
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
		                 "%" PRIu64 " bytes at %p are not a valid range of addresses", size, address);
	region = region_free_one(session);
	if (!region)
		return error_set(err, STATUS_NO_MEMORY, "out of memory for a region");
	*region = (struct region){ .start = start, .size = size, .writable = writable };
	*ret = (uint64_t)(region - session->regions) + 1;
	local_count(session, USAGE_REGIONS, 1);
	local_count(session, USAGE_MAPPED_BYTES, size);
	return 0;
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

/* Every request has ended before the next one is taken. */
static int method_cancel(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err)
{
	(void)session;
	(void)params;
	(void)err;
	ret->canceled = (struct msg_canceled){ .canceled = false };
	return 0;
}

static int method_region_release(struct local_session *session, const union params *params,
                                 union local_result *ret, struct error *err)
{
	struct region *region = local_region(session, params->region_release.region, "region", err);

	if (!region)
		return err->status;
	local_tables_forget(session, params->region_release.region);
	local_count(session, USAGE_REGIONS, -UINT64_C(1));
	local_count(session, USAGE_MAPPED_BYTES, -region->size);
	*region = (struct region){ 0 };
	if ((uint64_t)(region - session->regions) < session->first_free)
		session->first_free = (uint64_t)(region - session->regions);
	ret->region_released = (struct msg_region_released){ .state = REGION_STATE_CLOSED };
	return 0;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

static local_method *const handlers[METHOD_COUNT] = {
	[METHOD_ping] = method_ping,
	[METHOD_info] = method_info,
	[METHOD_region_release] = method_region_release,
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

/* When a request moves something, and when it is answered. */
struct order {
	enum completion completion;
	const struct msg_wait *wait;     /* NULL: none */
	const struct msg_signal *signal; /* likewise */
};

#define ORDER_OF(m, p)                                                                       \
	(struct order)                                                                       \
	{                                                                                    \
		.completion = (p)->reply, .wait = (p)->has & F(m, wait) ? &(p)->wait : NULL, \
		.signal = (p)->has & F(m, signal) ? &(p)->signal : NULL                      \
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

/* Returns whether the result tells of items that failed. */
static bool has_failed_items(enum method_id method, const union local_result *result)
{
	return method == METHOD_submit && result->submit_done.errors.n > 0;
}

/* Runs the handler of a method that is there, between what the request waits for and what it signals. */
static int run(struct local_session *session, enum method_id method, const union params *params,
               union local_result *ret, struct error *err)
{
	const struct order order = order_of(method, params);
	struct local_points points;
	int r = local_points_find(session, order.wait, order.signal, &points, err);

	if (r == 0)
		r = local_points_wait(session, &points, err);
	if (r == 0)
		r = handlers[method](session, params, ret, err);
	if (r == 0 && !has_failed_items(method, ret))
		r = local_points_signal(session, &points, err);
	return r;
}

static int session_run(struct local_session *session, enum method_id method, const union params *params,
                       union local_result *ret, struct error *err)
{
	int r = handlers[method] ? run(session, method, params, ret, err)
	                         : error_set(err, STATUS_UNSUPPORTED,
	                                     "%s: only a service does this, and this client has none",
	                                     method_names[method]);

	local_count(session, USAGE_REQUESTS + (int)method, 1);
	if (r < 0)
		local_count_error(session, r);
	return r;
}

static int answer(const struct rpc_request *request, const union local_result *result,
                  const struct error *failed, struct buffer *replies)
{
	const enum method_id method = request->method->id;
	const enum completion completion = order_of(method, &request->params).completion;
	int r;

	if (failed && completion != COMPLETION_QUEUED)
		return rpc_encode_error(replies, request->msgid, failed);
	if (completion == COMPLETION_SIGNAL && !has_failed_items(method, result))
		return 0;
	if (completion != COMPLETION_QUEUED)
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
		r = session_run(session, request->method->id, &request->params, &result, err);
		r = answer(request, &result, r < 0 ? err : NULL, replies);
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
	return r < 0 ? error_set(err, r, "out of memory for a reply") : 0;
}

const struct local_door *tma_local_door(void)
{
	static const struct local_door door = { .version = PACKAGE_VERSION,
		                                .open = session_open,
		                                .close = session_close,
		                                .map = session_map,
		                                .stream_begin = local_stream_begin,
		                                .stream_end = local_stream_end,
		                                .reaches = local_reaches,
		                                .stream_counts = local_stream_counts,
		                                .run = session_run,
		                                .serve = session_serve };

	return &door;
}
