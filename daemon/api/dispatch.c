/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes messages, makes the checks that all requests have in common, and calls the handler of the method
 * from a table. */
#include "dispatch.h"

#include "daemon/jobs/planning.h"
#include "daemon/jobs/submission.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"

static method_handler *const handlers[METHOD_COUNT] = {
	[METHOD_info] = method_info,
	[METHOD_ping] = method_ping,
	[METHOD_region_register] = method_region_register,
	[METHOD_region_create] = method_region_create,
	[METHOD_region_release] = method_region_release,
	[METHOD_region_list] = method_region_list,
	[METHOD_copy] = method_transform,
	[METHOD_transpose] = method_transform,
	[METHOD_pad] = method_transform,
	[METHOD_transform] = method_transform,
	[METHOD_ring_open] = method_ring_open,
	[METHOD_ring_close] = method_ring_close,
	[METHOD_plan_prepare] = method_plan_prepare,
	[METHOD_plan_run] = method_plan_run,
	[METHOD_plan_release] = method_plan_release,
	[METHOD_table_prepare] = method_table_prepare,
	[METHOD_table_release] = method_table_release,
	[METHOD_submit] = method_submit,
	[METHOD_gather] = method_gather,
	[METHOD_scatter] = method_scatter,
	[METHOD_reshard] = method_reshard,
	[METHOD_cancel] = method_cancel,
	[METHOD_explain] = method_explain,
	[METHOD_stats] = method_stats,
	[METHOD_session_list] = method_session_list,
};

static const bool uses_device[METHOD_COUNT] = {
	[METHOD_region_register] = true, [METHOD_region_create] = true, [METHOD_copy] = true,
	[METHOD_transpose] = true,       [METHOD_pad] = true,           [METHOD_transform] = true,
	[METHOD_plan_run] = true,        [METHOD_submit] = true,        [METHOD_gather] = true,
	[METHOD_scatter] = true,         [METHOD_reshard] = true,
};

/* Refuses a request that no handler has seen, and drops its descriptors, which would otherwise be taken for
 * those of the next request: one or, for a region of parts, all that can belong only to this request. */
static void refuse(struct session *session, const struct rpc_request *request, const struct error *err)
{
	const uint32_t most = request->method ? (uint32_t)request->method->fds : 0;
	const uint32_t own = most > 1 ? session_count_own_fds(session) : 0;

	if (most > 0)
		session_drop_fds(session, own > 1 ? own : 1);
	session_refuse(session, request->msgid, request->method, session->service->taken_ns, err);
}

/* Returns whether the request is a batch without items, whose only purpose is its signal. A client that waits
 * for the signal may read no replies, and would wait for ever. */
static bool is_signal_alone(const struct rpc_request *request)
{
	return request->method->id == METHOD_submit && request->params.submit.items.n == 0 &&
	       request->params.submit.has & F(submit, signal);
}

/* Has a request handled or refuses it. Returns what dispatch returns. */
static bool handle(struct session *session, const struct rpc_request *request)
{
	struct service *service = session->service;
	struct error err;
	int r;

	if (service->state == SERVICE_LOST) {
		error_set(&err, STATUS_DEVICE_LOST, "%s: %s", request->method->name,
		          status_meaning(STATUS_DEVICE_LOST));
		refuse(session, request, &err);
		return true;
	}
	if (uses_device[request->method->id] &&
	    penalties_check(&service->penalties, session->account->user, uv_now(&service->loop), &err) < 0) {
		refuse(session, request, &err);
		if (is_signal_alone(request)) {
			session_flush(session);
			session_end(session, LOG_LEVEL_NOTICE, "a signal was refused to its user");
		}
		return true;
	}
	if (!session->is_again)
		service->metrics.requests_by_method[request->method->id]++;
	r = handlers[request->method->id](session, request, &err);
	if (r == PLANNING_LATER)
		return false;
	if (r < 0)
		session_refuse(session, request->msgid, request->method, service->taken_ns, &err);
	return true;
}

bool dispatch(struct session *session, const uint8_t *data, size_t len)
{
	struct service *service = session->service;
	struct rpc_request *request = &service->request;
	bool is_handled = true;
	struct error err;

	switch (rpc_decode_request(service->decoder, data, len, request, &err)) {
	case RPC_DISPATCH:
		if (!session->is_again) {
			session_count_request(session);
			session->asked_ns = service->taken_ns;
		}
		session->asking = session->handled << 1;
		planning_begin(session);
		is_handled = handle(session, request);
		if (is_handled)
			planning_end(session);
		session->is_again = !is_handled;
		break;
	case RPC_REFUSE:
		session_count_request(session);
		refuse(session, request, &err);
		break;
	case RPC_RING:
		submission_ring(session);
		break;
	case RPC_IGNORE:
		break;
	case RPC_BROKEN:
		session_end(session, LOG_LEVEL_NOTICE, err.message);
		break;
	}
	rpc_decoder_rest(service->decoder);
	return is_handled;
}
