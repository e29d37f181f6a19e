/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs are created, submitted, given to engines in their order, answered when an engine has finished them,
 * and reused. */
#include "job.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "batch.h"
#include "blocks_job.h"
#include "links.h"
#include "placed.h"
#include "planning.h"
#include "table.h"

static void sequence_on_end(struct job *job);
static void sequence_add(struct job *job);
static void on_job_done(struct engine_job *engine_job);

/* ---- Making and dropping ----------------------------------------------------------------------------- */

static struct job *take_kept(struct service *service)
{
	struct job *job = service->free_jobs;

	if (!job)
		return calloc(1, sizeof *job);
	service->free_jobs = job->next_free;
	memset(job, 0, sizeof *job);
	return job;
}

static void keep(struct service *service, struct job *job)
{
	job->next_free = service->free_jobs;
	service->free_jobs = job;
}

void jobs_free_kept(struct service *service)
{
	struct job *job;

	while ((job = service->free_jobs)) {
		service->free_jobs = job->next_free;
		free(job);
	}
}

static void set_order(struct job *job, const struct order *order)
{
	job->completion = order->completion;
	job->engine_job.share = order->share;
	if (order->deadline_ms) {
		job->engine_job.share.begin_until_ns = job->session->asked_ns + limit_ns(order->deadline_ms);
		job->deadline_ms = order->deadline_ms;
	}
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
	struct service *service = session->service;
	struct job *job = take_kept(service);

	if (!job) {
		error_set(err, STATUS_NO_MEMORY, "no memory for a job");
		return NULL;
	}
	job->session = session;
	job->device = DEVICE_ANY;
	if (transforms_charge_take(&job->charge, &service->accounts, session->account,
	                           order->wait || session->waiting_jobs > 0, err) < 0) {
		keep(service, job);
		return NULL;
	}
	job->msgid = request->msgid;
	job->method = request->method;
	job->answer = answer;
	job->start_ns = service->taken_ns;
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

/* If need_reach is false, there is one device. It has mapped all regions, and each session has a stream on
 * it. */
int job_run_on(struct job *job, uint32_t device, struct error *err)
{
	job->device = device;
	return job->session->service->devices.need_reach ? run_where_reached(job, device, err) : 0;
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
	for (int i = 0; i < ROLE_COUNT; i++)
		if (placed->operand[i].region)
			job_use(job, placed->operand[i].region);
}

static int set_moves(struct job *job, struct parts *parts, struct error *err)
{
	int r;

	transforms_charge_extend(&job->charge, parts->n - 1);
	job->parts = batch_new(job->session->service, 1);
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
	struct service *service = job->session->service;

	if (job->release)
		job->release(job);
	for (uint32_t i = 0; i < job->n_regions; i++)
		region_unuse(job->regions[i]);
	engine_plan_unref(job->engine_job.move.plan);
	batch_free(job->parts);
	spread_free(job->spread);
	transforms_charge_release(&job->charge);
	keep(service, job);
}

/* ---- Under way --------------------------------------------------------------------------------------- */

void job_submit(struct job *job)
{
	struct session *session = job->session;

	session->jobs++;
	session->transforms += job->charge.jobs.amount;
	session->waiting_jobs += job->engine_job.wait.memory != NULL;
	if (session->account->owners[job->device].is_untrusted)
		stalls_expect(&session->service->stalls, session->account);
	TAILQ_INSERT_TAIL(&session->jobs_under_way, job, entry);
	sequence_add(job);
	/* This may end the session, which then cancels the job. */
	if (job->completion == COMPLETION_QUEUED)
		session_reply_queued(session, job->msgid);
}

void job_submit_parts(struct job *job, uint64_t charged)
{
	transforms_charge_extend(&job->charge, job->parts->n_moves - charged);
	job->engine_job.moves = job->parts->moves;
	job->engine_job.n_moves = job->parts->n_moves;
	job_submit(job);
}

struct job *job_find(const struct session *session, uint32_t msgid)
{
	struct job *job;

	TAILQ_FOREACH_REVERSE(job, &session->jobs_under_way, job_queue, entry)
		if (job->msgid == msgid && !job->refuse) /* entries of rings have no msgid */
			break;
	return job;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* Returns how many multiprocessors the job could occupy at most. */
static uint64_t multiprocessors_of(const struct job *job, const struct engine *engine)
{
	const uint64_t own = job->engine_job.share.multiprocessors, all = engine->multiprocessors;

	return own && own < all ? own : all;
}

void job_count_on(struct job *job, uint32_t at, enum family family, uint64_t bytes, uint64_t ns)
{
	uint64_t latency_ns = job->session->service->reaped_ns - job->start_ns;
	struct served_device *device = &job->session->service->devices.of[at];

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

static uint64_t read_bytes(const struct transform *transform)
{
	return transform->bytes - (uint64_t)transform->count * transform->element;
}

static const struct region *entry(const struct table *table, uint32_t i, const struct region *otherwise)
{
	return table ? table->regions[i] : otherwise;
}

void job_count_item(struct job *job, const struct batch_item *item, const struct engine_move *moves)
{
	struct devices *devices = &job->session->service->devices;

	for (uint32_t i = 0; devices->n > 1 && i < item->n_moves; i++)
		links_count(devices, entry(item->dst_table, i, item->dst),
		            entry(item->src_table, i, item->src), read_bytes(moves[i].transform));
}

/* Counts `bytes` that a list of blocks has read, an equal share in each layer. */
static void count_blocks(struct devices *devices, const struct blocks_job *list, uint64_t bytes)
{
	const uint32_t layers = list->blocks.layers;

	for (uint32_t i = 0; i < layers; i++)
		links_count(devices, entry(list->dst_table, i, list->placed.dst),
		            entry(list->src_table, i, list->placed.src), bytes / layers);
}

/* Counts the bytes that have crossed links. `bytes` is what the job has read and written in all. */
static void count_crossed(struct job *job, uint64_t bytes)
{
	struct devices *devices = &job->session->service->devices;
	const struct transform *transform = job->engine_job.move.transform;

	if (devices->n == 1 || bytes == 0)
		return;
	if (job->parts)
		job_count_item(job, &job->parts->items[0], job->parts->moves);
	else if (job->engine_job.blocks)
		count_blocks(devices, job->own, bytes / transform->bytes * read_bytes(transform));
	else
		links_count(devices, job->dst, job->src, read_bytes(transform));
}

void job_count(struct job *job, enum family family, uint64_t bytes, uint64_t ns)
{
	job_count_on(job, job->device, family, bytes, ns);
	count_crossed(job, bytes);
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

/* Sets *err to the failure of the first of the job's regions that is known to have failed. Returns false, and
 * leaves *err alone, if there is none. */
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

/* Sets *err to the cause of DEVICE or DEVICE_LOST, or returns false if the cause is not known. If the engine
 * has no device, failing memory is the only cause of DEVICE. */
static bool explain_loss(const struct job *job, struct error *err)
{
	const struct engine *engine = device_engine(&job->session->service->devices, job->device);
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

static void explain_timeout(const struct job *job, struct error *err)
{
	const struct engine_point *wait = &job->engine_job.wait;
	const uint64_t until_ns = job->engine_job.share.begin_until_ns;

	if (until_ns && uv_hrtime() >= until_ns)
		error_set(err, STATUS_TIMEOUT,
		          "deadline_ms: the request had not begun %" PRIu64 " ms after it came",
		          job->deadline_ms);
	else
		error_set(err, STATUS_TIMEOUT,
		          "wait: the word at byte %" PRIu64 " of the region had not reached %" PRIu64
		          " after %" PRIu64 " ms",
		          wait->offset, wait->value, job->wait_ms);
}

static void refuse(struct job *job)
{
	struct error err;

	if (job->engine_job.status == STATUS_TIMEOUT)
		explain_timeout(job, &err);
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

/* Returns whether the request is answered with an error. A batch in which single moves failed is not: it is
 * answered with a status for each item. The parts of one transform, or the pieces of a reshard, fail
 * together. */
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

/* Returns whether the job was a batch without items, whose only purpose is its signal, and the device was
 * lost before the signal was set. A client that waits for the signal may read no replies, and would wait for
 * ever. */
static bool is_signal_lost(const struct job *job)
{
	return job->signal && job->method->id == METHOD_submit && job->engine_job.n_moves == 0 &&
	       !job->spread && job->engine_job.status == STATUS_DEVICE_LOST &&
	       job->session->service->state != SERVICE_LOST; /* in SERVICE_LOST all sessions end */
}

/* Counts a successful run for the plan of a single move. A list of blocks or a batch is not counted, because
 * its time is not that of one move. */
static void count_run(const struct engine_job *job)
{
	if (job->move.plan && !job->blocks && job->status == 0)
		engine_plan_count(job->move.plan, job->ns, job->is_measured);
}

static void on_job_done(struct engine_job *engine_job)
{
	struct job *job = (struct job *)engine_job; /* engine_job is its first member */
	struct session *session = job->session;
	struct service *service = session->service;
	struct account *account = session->account;
	const bool ends_session = is_signal_lost(job);

	if (engine_job->status == STATUS_DEVICE_LOST && engine_job->begun &&
	    (service->state == SERVICE_RUNNING || service->state == SERVICE_LOST))
		penalties_suspect(&service->penalties, account->user, uv_hrtime() / 1000000);
	if (is_refused(job))
		refuse(job);
	else
		job->answer(job);
	TAILQ_REMOVE(&session->jobs_under_way, job, entry);
	session->jobs--;
	session->transforms -= job->charge.jobs.amount;
	session->waiting_jobs -= engine_job->wait.memory != NULL;
	sequence_on_end(job);
	count_run(engine_job);
	job_drop(job);
	session_on_job_ended(session);
	if (ends_session) {
		session_flush(session);
		session_end(session, LOG_LEVEL_NOTICE, "the device was lost before it had set a signal");
	}
	session_settle(session);
}

/* ==== The order on engines =========================================================================== */

/* The functions below implement the order that job.h describes. */

static void give_to_engine(struct job *job)
{
	struct session *session = job->session;
	struct served_device *device = &session->service->devices.of[job->device];

	job->is_given = true;
	session->sequence.under_way++;
	session->sequence.device = job->spread ? DEVICE_ANY : job->device;
	if (job->spread) {
		spread_submit(job->spread);
		return;
	}
	device->jobs++;
	engine_submit(device->engine, session->streams[job->device], &job->engine_job);
}

/* Has sequence_reap end a job that was canceled while it was held. */
static void end_canceled(struct job *job)
{
	struct service *service = job->session->service;

	TAILQ_INSERT_TAIL(&service->ended, job, ended_entry);
	service->is_job_done = true;
}

/* Submits held jobs as far as the order allows. A job that was canceled while it was held ends in its turn,
 * too. */
static void go_on(struct session *session)
{
	struct sequence *sequence = &session->sequence;
	struct job *job;

	while ((job = sequence->held)) {
		if (sequence->under_way > 0 &&
		    (job->engine_job.status || job->spread || sequence->device != job->device))
			return;
		sequence->held = TAILQ_NEXT(job, entry);
		if (job->engine_job.status)
			end_canceled(job);
		else
			give_to_engine(job);
	}
}

/* Submits or holds a new job, which must be the last one in session->jobs_under_way. */
static void sequence_add(struct job *job)
{
	struct sequence *sequence = &job->session->sequence;

	job->engine_job.status = 0;
	if (!sequence->held && !job->spread &&
	    (sequence->under_way == 0 || sequence->device == job->device)) {
		give_to_engine(job);
		return;
	}
	if (!sequence->held)
		sequence->held = job;
	go_on(job->session);
}

/* Lets held jobs go on after a job has ended. The job must have been removed from session->jobs_under_way. */
static void sequence_on_end(struct job *job)
{
	struct session *session = job->session;

	session->sequence.under_way -= job->is_given;
	if (job->is_given && !job->spread)
		session->service->devices.of[job->device].jobs--;
	if (session->sequence.held)
		go_on(session);
}

static void cancel_held(struct engine_job *job)
{
	job->status = STATUS_CANCELED;
	job->ns = 0;
	job->begun = job->is_measured = false;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		job->moves[i].status = STATUS_CANCELED;
}

bool job_cancel(struct job *job)
{
	struct session *session = job->session;

	if (job->is_given && job->spread)
		return spread_cancel(job->spread);
	if (job->is_given)
		return engine_cancel(device_engine(&session->service->devices, job->device),
		                     session->streams[job->device], &job->engine_job);
	cancel_held(&job->engine_job);
	return true;
}

void sequence_cancel_all(struct session *session)
{
	const struct devices *devices = &session->service->devices;
	struct job *job;

	TAILQ_FOREACH(job, &session->jobs_under_way, entry)
		if (job->is_given && job->spread)
			spread_stop(job->spread);
	for (job = session->sequence.held; job; job = TAILQ_NEXT(job, entry))
		cancel_held(&job->engine_job);
	for (uint32_t i = 0; i < devices->n; i++)
		if (session->streams[i])
			engine_stream_cancel(device_engine(devices, i), session->streams[i]);
	go_on(session);
}

void sequence_reap(struct service *service)
{
	struct job *job;

	while ((job = TAILQ_FIRST(&service->ended))) {
		TAILQ_REMOVE(&service->ended, job, ended_entry);
		job->engine_job.on_done(&job->engine_job);
	}
}
