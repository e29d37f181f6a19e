/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs are created, submitted, answered when the engine has finished them, and reused. */
#include "job.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "batch.h"
#include "links.h"
#include "planning.h"
#include "reach.h"
#include "region.h"
#include "sequence.h"
#include "spread.h"
#include "table.h"
#include "daemon/server.h"
#include "daemon/net/session.h"
#include "daemon/method/blocks_job.h"
#include "daemon/method/transforms.h"

static void on_job_done(struct engine_job *engine_job);

/* ---- Making and dropping ----------------------------------------------------------------------------- */

static struct job *take_kept(struct server *server)
{
	struct job *job = server->free_jobs;

	if (!job)
		return calloc(1, sizeof *job);
	server->free_jobs = job->next_free;
	memset(job, 0, sizeof *job);
	return job;
}

static void keep(struct server *server, struct job *job)
{
	job->next_free = server->free_jobs;
	server->free_jobs = job;
}

void jobs_free_kept(struct server *server)
{
	struct job *job;

	while ((job = server->free_jobs)) {
		server->free_jobs = job->next_free;
		free(job);
	}
}

static void set_order(struct job *job, const struct order *order)
{
	job->completion = order->completion;
	job->engine_job.priority = order->priority;
	job->engine_job.multiprocessors = order->multiprocessors;
	job->engine_job.host_threads = order->host_threads;
	if (order->wait) {
		job->engine_job.wait =
		    (struct engine_point){ order->wait->memory, order->wait_offset, order->wait_value };
		job->engine_job.wait_until_ns = uv_hrtime() + limit_ns(order->wait_ms);
		job->wait_ms = order->wait_ms;
		job->wait = order->wait;
		job_use(job, order->wait);
	}
	if (order->signal) {
		job->engine_job.signal =
		    (struct engine_point){ order->signal->memory, order->signal_offset, order->signal_value };
		job->signal = order->signal;
		job_use(job, order->signal);
	}
}

struct job *job_new(struct session *session, const struct rpc_request *request, const struct order *order,
                    void (*answer)(struct job *job), struct error *err)
{
	struct server *server = session->server;
	struct job *job = take_kept(server);

	if (!job) {
		error_set(err, STATUS_NO_MEMORY, "no memory for a job");
		return NULL;
	}
	job->session = session;
	job->device = DEVICE_ANY;
	job->is_behind = order->wait || session->waiting_jobs > 0;
	if (job_charge(job, 1, err) < 0) {
		charge_release(&job->charge);
		keep(server, job);
		return NULL;
	}
	job->msgid = request->msgid;
	job->method = request->method;
	job->answer = answer;
	job->start_ns = server->taken_ns;
	job->engine_job.on_done = on_job_done;
	set_order(job, order);
	return job;
}

static int run_where_reached(struct job *job, uint32_t device, struct error *err)
{
	struct engine_job *engine_job = &job->engine_job;
	int r = region_reach_if(job->wait, device, err);

	if (r == 0)
		r = region_reach_if(job->signal, device, err);
	if (r == 0)
		r = session_open_stream(job->session, device, err);
	if (r < 0)
		return r;
	if (engine_job->wait.memory)
		engine_job->wait.memory = region_memory(job->wait, device);
	if (engine_job->signal.memory)
		engine_job->signal.memory = region_memory(job->signal, device);
	return 0;
}

/* The only device has all regions, and each session has a stream on the first. */
int job_run_on(struct job *job, uint32_t device, struct error *err)
{
	job->device = device;
	return job->session->server->devices.need_reach ? run_where_reached(job, device, err) : 0;
}

int job_charge(struct job *job, uint64_t more, struct error *err)
{
	struct session *session = job->session;
	struct accounts *accounts = &session->server->accounts;
	int r = charge_take(&job->charge, accounts, session->account, CHARGE_JOBS, more, err);

	if (r < 0 || !job->is_behind)
		return r;
	r = charge_take(&job->behind, accounts, session->account, CHARGE_BEHIND_WAITS, more, err);
	if (r < 0)
		charge_shrink(&job->charge, more);
	return r;
}

/* Charges for more transforms, past the limit. */
static void extend(struct job *job, uint64_t more)
{
	charge_extend(&job->charge, more);
	if (job->is_behind)
		charge_extend(&job->behind, more);
}

void job_discharge(struct job *job, uint64_t less)
{
	charge_shrink(&job->charge, less);
	if (job->is_behind)
		charge_shrink(&job->behind, less);
}

void job_use(struct job *job, struct region *region)
{
	assert(job->n_regions < JOB_MAX_REGIONS);
	region_use(region);
	job->regions[job->n_regions++] = region;
}

/* The move takes over the caller's reference to the plan. */
static void set_move(struct job *job, struct engine_plan *plan, const struct placed *placed)
{
	job->engine_job.move = placed_move(plan, placed);
	job->dst = placed->dst;
	job->src = placed->src;
	assert(job->device == placed->device);
	job_use(job, placed->dst);
	job_use(job, placed->src);
	if (placed->scale.region)
		job_use(job, placed->scale.region);
	if (placed->bias.region)
		job_use(job, placed->bias.region);
	if (placed->amax_scale.region)
		job_use(job, placed->amax_scale.region);
	if (placed->amax_inverse.region)
		job_use(job, placed->amax_inverse.region);
}

static int set_moves(struct job *job, struct parts *parts, struct error *err)
{
	int r;

	extend(job, parts->n - 1);
	job->parts = batch_new(job->session->server, 1);
	if (!job->parts) {
		parts_unref(parts);
		return error_set(err, STATUS_NO_MEMORY, "no memory for a job");
	}
	r = batch_add(job->parts, parts, err);
	if (r < 0)
		return r;
	job->engine_job.moves = job->parts->moves;
	job->engine_job.n_moves = job->parts->n_moves;
	return 0;
}

int job_set_parts(struct job *job, struct parts *parts, struct error *err)
{
	const struct part *only = &parts->part[0];
	struct placed placed;

	if (parts->n > 1)
		return set_moves(job, parts, err);
	placed = placed_part(&parts->placed, only->dst_offset, only->src_offset);
	set_move(job, only->plan, &placed);
	return 0;
}

uint64_t job_moved(const struct job *job, enum family *ret)
{
	if (job->parts)
		return batch_item_moved(&job->parts->items[0], job->parts->moves, ret);
	*ret = job->engine_job.move.family;
	return job->engine_job.move.transform->bytes;
}

void job_set_blocks(struct job *job, struct engine_plan *plan, const struct placed *placed,
                    struct engine_blocks *blocks)
{
	engine_plan_ref(plan);
	set_move(job, plan, placed);
	job->engine_job.blocks = blocks;
}

void job_drop(struct job *job)
{
	struct server *server = job->session->server;

	if (job->release)
		job->release(job);
	for (uint32_t i = 0; i < job->n_regions; i++)
		region_unuse(job->regions[i]);
	engine_plan_unref(job->engine_job.move.plan);
	batch_free(job->parts);
	spread_free(job->spread);
	charge_release(&job->charge);
	charge_release(&job->behind);
	keep(server, job);
}

/* ---- Under way --------------------------------------------------------------------------------------- */

void job_submit(struct job *job)
{
	struct session *session = job->session;

	session->jobs++;
	session->transforms += job->charge.amount;
	session->waiting_jobs += job->engine_job.wait.memory != NULL;
	if (session->account->owners[job->device].is_untrusted)
		stalls_expect(&session->server->stalls, session->account);
	TAILQ_INSERT_TAIL(&session->jobs_under_way, job, entry);
	sequence_add(job);
	/* This may end the session, which then cancels the job. */
	if (job->completion == COMPLETION_QUEUED)
		session_reply_queued(session, job->msgid);
}

void job_submit_parts(struct job *job, uint64_t charged)
{
	extend(job, job->parts->n_moves - charged);
	job->engine_job.moves = job->parts->moves;
	job->engine_job.n_moves = job->parts->n_moves;
	job_submit(job);
}

struct job *job_find(const struct session *session, uint32_t msgid)
{
	struct job *job;

	TAILQ_FOREACH_REVERSE(job, &session->jobs_under_way, job_queue, entry)
		if (job->msgid == msgid && !job->refuse) /* an entry of a ring has no msgid */
			break;
	return job;
}

bool job_cancel(struct job *job)
{
	return sequence_cancel(job);
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* Returns how many multiprocessors the job could occupy at most. */
static uint64_t multiprocessors_of(const struct job *job, const struct engine *engine)
{
	const uint64_t own = job->engine_job.multiprocessors, all = engine->multiprocessors;

	return own && own < all ? own : all;
}

void job_count_on(struct job *job, uint32_t at, enum family family, uint64_t bytes, uint64_t ns)
{
	uint64_t latency_ns = job->session->server->reaped_ns - job->start_ns;
	struct served_device *device = &job->session->server->devices.of[at];

	device->transforms++;
	device->bytes += bytes;
	device->ns += ns;
	session_count_transform(job->session, &(struct transform_count){
						  .family = family,
						  .bytes = bytes,
						  .ns = ns,
						  .multiprocessors = multiprocessors_of(job, device->engine),
						  .latency_ns = latency_ns,
						  .bar = latency_bar(latency_ns) });
}

void job_count(struct job *job, enum family family, uint64_t bytes, uint64_t ns)
{
	job_count_on(job, job->device, family, bytes, ns);
	links_count_job(&job->session->server->devices, job, bytes);
}

void job_reply(struct job *job, const void *result)
{
	switch (job->completion) {
	case COMPLETION_DONE:
		session_reply(job->session, job->msgid, job->method, result, -1);
		break;
	case COMPLETION_QUEUED:
		session_notify_done(job->session, job->msgid, job->method, result, NULL);
		break;
	case COMPLETION_SIGNAL:
	case COMPLETION_COUNT:
		break;
	}
}

static void refuse_queued(struct job *job, const struct error *err)
{
	if (job->session->state != SESSION_ENDED)
		session_log_refusal(job->session, job->msgid, job->method, job->start_ns, err);
	session_notify_done(job->session, job->msgid, job->method, NULL, err);
}

static bool explain_region(const struct job *job, const struct region *region, uint32_t device,
                           struct error *err)
{
	const struct engine_memory *memory = region_memory(region, device);
	uint64_t bytes;

	switch (engine_memory_loss(memory, &bytes)) {
	case ENGINE_LOSS_SHRUNK:
		error_set(err, STATUS_DEVICE,
		          "%s: the file of region %" PRIu64 " shrank to %" PRIu64
		          " bytes, but the region ends at byte %" PRIu64,
		          job->method->name, region->id, bytes, memory->base + memory->size);
		return true;
	case ENGINE_LOSS_PINS:
		error_set(err, STATUS_DEVICE,
		          "%s: the file of region %" PRIu64
		          " lost pages that the device has pinned; register it again",
		          job->method->name, region->id);
		return true;
	case ENGINE_LOSS_GONE:
		error_set(err, STATUS_DEVICE_LOST,
		          "%s: the device was lost, and region %" PRIu64
		          " could not be mapped again; register it again",
		          job->method->name, region->id);
		return true;
	case ENGINE_LOSS_NONE:
		break;
	}
	return false;
}

static bool explain_layers(const struct job *job, const struct table *table, struct error *err)
{
	for (uint32_t i = 0; table && i < table->layers.n; i++)
		if (explain_region(job, table->regions[i], job->device, err))
			return true;
	return false;
}

static bool explain_items(const struct job *job, const struct batch *batch, struct error *err)
{
	for (uint32_t i = 0; batch && i < batch->n; i++) {
		const struct batch_item *item = &batch->items[i];

		if (explain_region(job, item->dst, item->device, err) ||
		    explain_region(job, item->src, item->device, err))
			return true;
	}
	return false;
}

/* Names the first of the job's regions that is known to have failed. */
static bool explain_regions(const struct job *job, struct error *err)
{
	const struct blocks_job *list = job->engine_job.blocks ? job->own : NULL;

	for (uint32_t i = 0; i < job->n_regions; i++)
		if (explain_region(job, job->regions[i], job->device, err))
			return true;
	if (explain_items(job, job->parts, err))
		return true;
	return list &&
	       (explain_layers(job, list->dst_table, err) || explain_layers(job, list->src_table, err));
}

/* An engine without a device has no other reason for DEVICE. */
static bool explain_loss(const struct job *job, struct error *err)
{
	const struct engine *engine = device_engine(&job->session->server->devices, job->device);
	const int status = job->engine_job.status;

	if (status != STATUS_DEVICE && status != STATUS_DEVICE_LOST)
		return false;
	if (explain_regions(job, err) && err->status == status)
		return true;
	if (status == STATUS_DEVICE_LOST && engine->returns) {
		error_set(err, status, "%s: the device was lost, and comes back by itself; try again",
		          job->method->name);
		return true;
	}
	if (status == STATUS_DEVICE_LOST || engine->multiprocessors > 0)
		return false;
	error_set(err, STATUS_DEVICE,
	          "%s: the memory failed under it; a region's file has a hole there, or was cut meanwhile",
	          job->method->name);
	return true;
}

static void refuse(struct job *job)
{
	const struct engine_point *wait = &job->engine_job.wait;
	struct error err;

	if (job->engine_job.status == STATUS_TIMEOUT)
		error_set(&err, STATUS_TIMEOUT,
		          "wait: the word at byte %" PRIu64 " of the region had not reached %" PRIu64
		          " after %" PRIu64 " ms",
		          wait->offset, wait->value, job->wait_ms);
	else if (job->engine_job.status == STATUS_OUT_OF_RANGE)
		batch_explain_cast(job->engine_job.moves ?: &job->engine_job.move,
		                   job->engine_job.moves ? job->engine_job.n_moves : 1, &err);
	else if (!explain_loss(job, &err))
		error_set(&err, job->engine_job.status, "%s: %s", job->method->name,
		          status_meaning(job->engine_job.status));
	if (job->refuse)
		job->refuse(job, &err);
	else if (job->completion == COMPLETION_QUEUED)
		refuse_queued(job, &err);
	else
		session_refuse(job->session, job->msgid, job->method, job->start_ns, &err);
}

/* A batch of which single moves failed is answered with a status for each item; the parts of one transform,
 * or the pieces of a reshard, fail together. */
static bool is_refused(const struct job *job)
{
	const struct engine_job *engine_job = &job->engine_job;

	if (engine_job->moves && !job->parts)
		for (uint32_t i = 0; i < engine_job->n_moves; i++)
			if (engine_job->status == engine_job->moves[i].status &&
			    (engine_job->status == STATUS_DEVICE ||
			     engine_job->status == STATUS_OUT_OF_RANGE))
				return false;
	return engine_job->status < 0;
}

/* A batch without items is there for its signal. Who waits for that may read no replies, and would wait for
 * ever if the device is lost before it is set. */
static bool is_signal_lost(const struct job *job)
{
	return job->signal && job->method->id == METHOD_submit && job->engine_job.n_moves == 0 &&
	       !job->spread && job->engine_job.status == STATUS_DEVICE_LOST &&
	       job->session->server->state != SERVER_LOST; /* Then all sessions end. */
}

/* A run counts for a plan only if the job had no other. */
static void count_run(const struct engine_job *job)
{
	if (job->move.plan && !job->blocks && job->status == 0)
		engine_plan_count(job->move.plan, job->ns, job->is_measured);
}

static void on_job_done(struct engine_job *engine_job)
{
	struct job *job = (struct job *)engine_job; /* its first member */
	struct session *session = job->session;
	struct server *server = session->server;
	struct account *account = session->account;
	const bool ends_session = is_signal_lost(job);

	if (engine_job->status == STATUS_DEVICE_LOST && engine_job->begun &&
	    (server->state == SERVER_RUNNING || server->state == SERVER_LOST))
		penalties_suspect(&server->penalties, account->user, uv_hrtime() / 1000000);
	if (is_refused(job))
		refuse(job);
	else
		job->answer(job);
	TAILQ_REMOVE(&session->jobs_under_way, job, entry);
	session->jobs--;
	session->transforms -= job->charge.amount;
	session->waiting_jobs -= engine_job->wait.memory != NULL;
	sequence_on_end(job);
	count_run(engine_job);
	job_drop(job);
	time_slices_wake_waiting(server, account);
	session_on_job_ended(session);
	if (ends_session) {
		session_flush(session);
		session_end(session, LOG_LEVEL_NOTICE, "the device was lost before it had set a signal");
	}
	session_settle(session);
}
