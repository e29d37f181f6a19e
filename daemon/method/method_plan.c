/* SPDX-License-Identifier: Apache-2.0 */
/* plan_prepare, plan_run, plan_release: a transform that is checked once and run many times. */
#include "dispatch.h"

#include "blocks_job.h"
#include "order.h"
#include "daemon/resource/job.h"
#include "daemon/resource/prepared.h"
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
		.bytes = list->blocks.layers * job->plan->transform.bytes,
		.ns = job->engine_job.ns,
	};

	job_count(job, family, done.bytes, done.ns);
	job_reply(job, &done);
}

static int run_over_tables(struct session *session, const struct rpc_request *request,
                           const struct order *order, struct error *err)
{
	struct blocks_job *list;
	struct plan_entry *plan;
	int r = blocks_job_of_run(session, &request->params.plan_run, DEVICE_ANY, &list, &plan, err);

	return r < 0 ? r : blocks_job_start(session, request, order, list, plan, answer, err);
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
		r = prepared_plan(session, p, DEVICE_ANY, &parts, err);
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
