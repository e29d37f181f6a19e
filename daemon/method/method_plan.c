/* SPDX-License-Identifier: Apache-2.0 */
/* plan_prepare, plan_run, plan_release: a transform that is checked once and run many times. */
#include "dispatch.h"

#include "blocks_job.h"
#include "order.h"
#include "daemon/resource/batch.h"
#include "daemon/resource/job.h"
#include "daemon/resource/links.h"
#include "daemon/resource/prepared.h"
#include "daemon/resource/spread.h"
#include "daemon/net/session.h"
#include "daemon/server.h"
#include "transforms.h"

int method_plan_prepare(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct msg_plan_prepared prepared = { 0 };
	int r = prepared_add(session, &request->params.transform, &prepared.plan, err);

	if (r == 0)
		session_reply(session, request->msgid, request->method, &prepared, -1);
	return r;
}

/* ---- Over tables -------------------------------------------------------------------------------------- */

static void answer(struct job *job)
{
	const struct blocks_job *list = job->own;
	const enum family family = list->blocks.family;
	const struct msg_transform_done done = {
		.path = bytes_of(family_names[family]),
		.bytes = list->blocks.layers * job->engine_job.move.transform->bytes,
		.ns = job->engine_job.ns,
	};

	job_count(job, family, done.bytes, done.ns);
	job_reply(job, &done);
}

/* Each device has had its share of the bytes. */
static void answer_spread(struct job *job)
{
	const struct batch *batch = job->parts;
	const struct engine_move *move = batch->moves;
	struct msg_transform_done done = { .ns = job->engine_job.ns };
	const double share = 1 / (double)batch->n_moves;
	enum family family = move->family;

	for (uint32_t i = 0; i < batch->n; i++) {
		const struct batch_item *item = &batch->items[i];
		const uint64_t bytes = batch_item_moved(item, move, &family);

		job_count_on(job, item->device, family, bytes,
		             (uint64_t)((double)done.ns * share * item->n_moves));
		links_count_item(&job->session->server->devices, item, move);
		done.bytes += bytes;
		move += item->n_moves;
	}
	done.path = bytes_of(family_names[family]);
	job_reply(job, &done);
}

/* Each device's engine runs its entries as one job, which counts each entry as a move. The call takes over
 * the list. */
static int spread_run(struct session *session, const struct rpc_request *request, const struct order *order,
                      struct blocks_job *list, struct error *err)
{
	const uint32_t device = list->placed.device;
	struct job *job = job_new(session, request, order, answer_spread, err);
	int r = job ? job_run_on(job, device, err) : err->status;

	if (r == 0) {
		job->parts = batch_new(session->server, 1);
		r = job->parts ? batch_add_tables(job->parts, list, err)
		               : error_set(err, STATUS_NO_MEMORY, "no memory for a job");
	}
	if (r == 0)
		r = spread_new(job, job->parts, &job->spread, err);
	blocks_job_free(list);
	if (r < 0) {
		if (job)
			job_drop(job);
		return r;
	}
	job_submit_parts(job, 1);
	return 0;
}

static int run_over_tables(struct session *session, const struct rpc_request *request,
                           const struct order *order, struct error *err)
{
	struct blocks_job *list;
	int r = blocks_job_of_run(session, &request->params.plan_run, DEVICE_ANY, &list, err);

	if (r < 0)
		return r;
	return list->is_spread ? spread_run(session, request, order, list, err)
	                       : blocks_job_start(session, request, order, list, answer, err);
}

/* ---- The methods -------------------------------------------------------------------------------------- */

int method_plan_run(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_plan_run *p = &request->params.plan_run;
	struct parts parts;
	struct order order;
	int r = order_of(session, plan_run, p, &order, err);

	if (r == 0 && p->has & (F(plan_run, dst_table) | F(plan_run, src_table)))
		return run_over_tables(session, request, &order, err);
	if (r == 0)
		r = prepared_plan(session, p, DEVICE_ANY, NULL, &parts, err);
	if (r == 0)
		r = transform_start(session, request, &order, &parts, err);
	return r;
}

int method_plan_release(struct session *session, const struct rpc_request *request, struct error *err)
{
	int r = prepared_release(session, request->params.plan_release.plan, err);

	if (r == 0)
		session_reply(session, request->msgid, request->method, NULL, -1);
	return r;
}
