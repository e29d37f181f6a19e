/* SPDX-License-Identifier: Apache-2.0 */
/* submit: many transforms and runs of plans as one job. Each item is checked on its own; bad items are left
 * out. */
#include "dispatch.h"

#include <inttypes.h>
#include <stdlib.h>

#include "batch_job.h"
#include "blocks_job.h"
#include "daemon/resource/batch.h"
#include "daemon/resource/job.h"
#include "proto/overlap.h"
#include "order.h"
#include "daemon/resource/planning.h"
#include "daemon/resource/prepared.h"
#include "daemon/resource/table.h"
#include "daemon/server.h"
#include "daemon/net/session.h"

/* ---- The items ---------------------------------------------------------------------------------------- */

/* A run that the job has been charged for. */
static int add_charged(struct job *job, const struct msg_plan_run *run, struct error *err)
{
	struct blocks_job *list;
	int r = blocks_job_of_run(job->session, run, DEVICE_ANY, &list, err);

	if (r < 0)
		return r;
	r = batch_add_tables(job->own, list, err);
	blocks_job_free(list);
	return r;
}

/* A run over tables is as many moves as these have entries, and counts as many against jobs_per_uid: before
 * they are gone through. */
static int add_tables(struct job *job, const struct msg_plan_run *run, struct error *err)
{
	const uint32_t n = table_entries(job->session, run->dst_table), more = n > 1 ? n - 1 : 0;
	int r = more > 0 ? job_charge(job, more, err) : 0;

	if (r < 0)
		return r;
	r = add_charged(job, run, err);
	if (r < 0)
		job_discharge(job, more);
	return r;
}

/* The job has been charged for them. */
static int add_parts(struct job *job, struct parts *parts, struct error *err)
{
	const uint32_t n = parts->n;
	int r = batch_add(job->own, parts, err);

	if (r < 0)
		parts_discharge(job, n, r);
	return r;
}

/* The job has been charged for one move of each item. */
static int add_item(struct job *job, const struct item_list *items, uint32_t i, struct error *err)
{
	struct session *session = job->session;
	struct submit_item item;
	struct parts parts;
	int r = rpc_decode_item(items, i, &item, err);

	if (r < 0)
		return r;
	if (item.is_run && (item.run.has & (F(plan_run, dst_table) | F(plan_run, src_table))))
		return add_tables(job, &item.run, err);
	r = item.is_run ? prepared_plan(session, &item.run, DEVICE_ANY, job, &parts, err)
	                : transform_plan(session, &item.transform, DEVICE_ANY, job, &parts, err);
	return r < 0 ? r : add_parts(job, &parts, err);
}

/* Logs refused items once, with the first error. */
static void log_refused(struct session *session, const struct rpc_request *request, const struct batch *batch,
                        uint32_t first, const struct error *error)
{
	session_log(session, LOG_LEVEL_NOTICE, request->msgid,
	            "refused %" PRIu32 " of %" PRIu32 " items, the first: items[%" PRIu32 "]: %s: %s",
	            batch->n_asked - batch->n_good, batch->n_asked, first, status_name(error->status),
	            error->message);
}

/* This is done once it is known that the request will not be handled again. */
static void count_refused(struct session *session, const struct batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++)
		if (!batch->items[i].n_moves)
			session_count_error(session, batch->statuses[i]);
}

/* Steps of searches for overlaps: for all items of a message together, and in addition for each item, enough
 * to decide layouts in use. */
#define MOST_STEPS 65536
#define ITEM_STEPS 256

static uint64_t beyond(uint64_t taken, uint64_t free)
{
	return taken > free ? taken - free : 0;
}

/* All users share the loop: items whose intricate layouts would hold it up are left out. taken counts the
 * steps for those before it, besides ITEM_STEPS for each. */
static int check_item(struct job *job, const struct item_list *items, uint32_t i, uint64_t *taken,
                      struct error *err)
{
	const uint64_t steps = overlap_steps();
	int r;

	if (*taken >= MOST_STEPS)
		return error_set(err, STATUS_QUOTA,
		                 "checking the items before it for overlap took %" PRIu64
		                 " steps of the %d that a message has; send it in another message",
		                 *taken, MOST_STEPS);
	r = add_item(job, items, i, err);
	*taken += beyond(overlap_steps() - steps, ITEM_STEPS);
	return r;
}

/* Items that wait for memory or plans are tried all the same, so that all of it is mapped and made at once;
 * the result is then PLANNING_LATER. */
static int check_items(struct job *job, const struct rpc_request *request)
{
	struct session *session = job->session;
	struct batch *batch = job->own;
	const struct item_list *items = &request->params.submit.items;
	struct error err, first_error;
	uint32_t first = 0;
	uint64_t steps = 0;
	bool is_later = false;

	for (uint32_t i = 0; i < items->n; i++) {
		if (check_item(job, items, i, &steps, &err) == 0)
			continue;
		is_later |= err.status == PLANNING_LATER;
		if (is_later)
			continue;
		if (batch->n_good == i) {
			first_error = err;
			first = i;
		}
		batch_refuse(batch, &err);
	}
	if (is_later)
		return PLANNING_LATER;
	count_refused(session, batch);
	if (batch->n_good < batch->n_asked)
		log_refused(session, request, batch, first, &first_error);
	return 0;
}

/* ---- The answer --------------------------------------------------------------------------------------- */

/* A request that asked for no reply on success gets one on failure: no signal would report it. */
static void answer(struct job *job)
{
	struct batch *batch = job->own;
	struct msg_submit_done done = { .ns = job->engine_job.ns };
	uint32_t n_bad = batch_result(batch, &done);

	batch_job_count(job, batch, done.bytes);
	if (job->completion == COMPLETION_SIGNAL && n_bad > 0)
		session_reply(job->session, job->msgid, job->method, &done, -1);
	else
		job_reply(job, &done);
	free((void *)done.errors.items);
}

static void release(struct job *job)
{
	batch_free(job->own);
}

/* ---- The method --------------------------------------------------------------------------------------- */

/* Creates the job with a batch for its items; NULL with err. */
static struct job *make_job(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_submit *p = &request->params.submit;
	uint32_t n = p->items.n;
	struct order order;
	struct job *job;

	if (order_of(session, submit, p, &order, err) < 0)
		return NULL;
	job = job_new(session, request, &order, answer, err);
	if (!job)
		return NULL;
	if (n > 1 && job_charge(job, n - 1, err) < 0)
		goto err_drop;
	job->own = batch_new(session->server, n);
	if (!job->own) {
		error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " items", n);
		goto err_drop;
	}
	job->release = release;
	return job;

err_drop:
	job_drop(job);
	return NULL;
}

/* The signal means that everything has been moved, so it is not set if an item was refused. */
int method_submit(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct job *job = make_job(session, request, err);
	struct batch *batch;
	int r;

	if (!job)
		return err->status;
	batch = job->own;
	r = check_items(job, request);
	if (r == 0)
		r = batch_job_run_on(job, batch, err);
	if (r < 0) {
		job_drop(job);
		return r;
	}
	if (batch->n_good < batch->n_asked)
		job->engine_job.signal.memory = NULL;
	batch_job_submit(job, batch);
	return 0;
}
