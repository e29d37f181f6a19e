/* SPDX-License-Identifier: Apache-2.0 */
/* Handles the methods for what a connection prepares once and uses many times: plan_prepare, plan_run and
 * plan_release; table_prepare and table_release; ring_open and ring_close. */
#include "dispatch.h"

#include <inttypes.h>

#include "daemon/jobs/batch.h"
#include "daemon/jobs/blocks_job.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/links.h"
#include "daemon/jobs/planning.h"
#include "daemon/jobs/submission.h"
#include "daemon/jobs/table.h"
#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "proto/submission.h"
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

/* Counts what each device has moved, with a share of the time in proportion to its number of moves. */
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
		job_count_item(job, item, move);
		done.bytes += bytes;
		move += item->n_moves;
	}
	done.path = bytes_of(family_names[family]);
	job_reply(job, &done);
}

/* Queues a run over tables whose entries are on several devices. Each device's engine runs its entries as one
 * job, and each entry counts as a move. Takes over the list. */
static int spread_run(struct session *session, const struct rpc_request *request, const struct order *order,
                      struct blocks_job *list, struct error *err)
{
	const uint32_t device = list->placed.device;
	struct job *job = job_new(session, request, order, answer_spread, err);
	int r = job ? job_run_on(job, device, err) : err->status;

	if (r == 0) {
		job->parts = batch_new(session->service, 1);
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

/* ==== Tables ========================================================================================= */

/* table_prepare checks places of layers once for many requests; table_release drops them. */

int method_table_prepare(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct msg_table_prepared prepared = { 0 };
	int r = table_add(session, &request->params.table_prepare.places, &prepared.table, err);

	if (r == 0)
		session_reply(session, request->msgid, request->method, &prepared, -1);
	return r;
}

int method_table_release(struct session *session, const struct rpc_request *request, struct error *err)
{
	int r = table_release(session, request->params.table_release.table, err);

	if (r == 0)
		session_reply(session, request->msgid, request->method, NULL, -1);
	return r;
}

/* ==== Rings ========================================================================================== */

/* ring_open and ring_close open and close a submission ring in memory that the connection shares. */

static int check_entries(uint64_t entries, struct error *err)
{
	if (entries >= SUBMISSION_LEAST_ENTRIES && entries <= SUBMISSION_MOST_ENTRIES &&
	    (entries & (entries - 1)) == 0)
		return 0;
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "entries: %" PRIu64 ", but it must be a power of two from %d to %d", entries,
	                 SUBMISSION_LEAST_ENTRIES, SUBMISSION_MOST_ENTRIES);
}

static int check_place(const struct region *region, uint64_t offset, uint64_t bytes, struct error *err)
{
	const struct engine_memory *memory = region->memory;

	if (!memory->host)
		return error_set(err, STATUS_UNSUPPORTED, "at: region %" PRIu64 " is not host memory (memfd)",
		                 region->id);
	if (((uintptr_t)memory->host + offset) % SUBMISSION_LINE)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "at: byte %" PRIu64 " of region %" PRIu64 " is not aligned to %d bytes",
		                 offset, region->id, SUBMISSION_LINE);
	if (offset > memory->size || memory->size - offset < bytes)
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "at: the ring's %" PRIu64 " bytes from byte %" PRIu64
		                 " exceed region %" PRIu64 ", which has %" PRIu64,
		                 bytes, offset, region->id, memory->size);
	return 0;
}

int method_ring_open(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_ring_open *p = &request->params.ring_open;
	uint64_t most = session->service->limits.ring_spin_us;
	struct msg_ring_opened opened = { .spin_us = p->spin_us < most ? p->spin_us : most };
	struct region *region;
	int r;

	if (session->submission)
		return error_set(err, STATUS_ALREADY_EXISTS, "ring_open: this connection already has a ring");
	r = check_entries(p->entries, err);
	if (r == 0)
		r = region_table_find(&session->regions, p->at.region, "at", &region, err);
	if (r == 0)
		r = region_check_writable(region, "at", err);
	if (r == 0)
		r = check_place(region, p->at.offset, submission_bytes((uint32_t)p->entries), err);
	if (r == 0)
		r = region_reach(region, region->device, err);
	if (r == 0)
		r = submission_open(session, region, p->at.offset, (uint32_t)p->entries, opened.spin_us, err);
	if (r < 0)
		return r;
	opened.spin_us = session->submission->spin_ns / 1000;
	session_reply(session, request->msgid, request->method, &opened, -1);
	return 0;
}

int method_ring_close(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct submission *ring = session->submission;
	uint32_t runs;

	if (!ring)
		return error_set(err, STATUS_NOT_FOUND, "ring_close: this connection has no ring");
	if (submission_is_rung(ring))
		return err->status = REACH_LATER;
	runs = submission_count(ring);
	if (runs > 0)
		return error_set(err, STATUS_BUSY, "ring_close: runs still under way: %" PRIu32, runs);
	submission_close(ring);
	session_reply(session, request->msgid, request->method, NULL, -1);
	return 0;
}
