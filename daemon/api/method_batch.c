/* SPDX-License-Identifier: Apache-2.0 */
/* Handles submit and reshard, whose jobs move the items of a batch on one device or on several at once. Also
 * handles gather and scatter, whose jobs move a list of blocks. */
#include "dispatch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/jobs/batch.h"
#include "daemon/jobs/blocks_job.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/links.h"
#include "daemon/jobs/planning.h"
#include "daemon/jobs/table.h"
#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "kernels/transform/reshard.h"
#include "proto/overlap.h"
#include "proto/wire/rpc.h"
#include "transforms.h"

/* ==== Jobs of a batch ================================================================================ */

/* These functions make a job of a batch, and run it on the devices of the items. The items must have been
 * checked. */

/* ---- Devices ------------------------------------------------------------------------------------------ */

/* Returns the device of the first item that has moves. If there is none, returns the device of the memory
 * that the job signals or waits for, or 0 if that is host memory. */
static uint32_t device_of(const struct job *job, const struct batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++)
		if (batch->items[i].n_moves)
			return batch->items[i].device;
	if (job->signal && !job->signal->memory->host)
		return job->signal->device;
	return job->wait && !job->wait->memory->host ? job->wait->device : 0;
}

static bool is_spread(const struct batch *batch, uint32_t device)
{
	for (uint32_t i = 0; i < batch->n; i++)
		if (batch->items[i].n_moves && batch->items[i].device != device)
			return true;
	return false;
}

/* Has the job run on the devices of its items. Returns 0, or what job_run_on and spread_new do; after an
 * error the caller drops the job. */
static int batch_job_run_on(struct job *job, struct batch *batch, struct error *err)
{
	const uint32_t device = device_of(job, batch);
	int r = job_run_on(job, device, err);

	if (r < 0 || job->session->service->devices.n == 1 || !is_spread(batch, device))
		return r;
	return spread_new(job, batch, &job->spread, err);
}

/* ---- Start and end ------------------------------------------------------------------------------------ */

static void answer_at_once(struct job *job)
{
	if (job->completion == COMPLETION_QUEUED)
		session_reply_queued(job->session, job->msgid);
	job->answer(job);
	job_drop(job);
}

/* Submits the job for the batch's moves, or answers it at once if there is nothing to do or to wait for. */
static void batch_job_submit(struct job *job, struct batch *batch)
{
	const struct engine_job *engine_job = &job->engine_job;

	if (batch->n_moves == 0 &&
	    (batch->n > 0 || !(engine_job->wait.memory || engine_job->signal.memory))) {
		answer_at_once(job);
		return;
	}
	job->engine_job.moves = batch->moves;
	job->engine_job.n_moves = batch->n_moves;
	job_submit(job);
}

/* Counts what each item has moved; `bytes` is the sum. The engine measures the batch as a whole, so each item
 * that succeeded gets a share of the time in proportion to its bytes. */
static void batch_job_count(struct job *job, const struct batch *batch, uint64_t bytes)
{
	const struct batch_item *item = batch->items;
	double share = bytes ? (double)job->engine_job.ns / (double)bytes : 0;
	uint64_t counted = 0, counted_ns = 0;
	bool is_told = false;

	for (const struct engine_move *move = batch->moves; move < batch->moves + batch->n_moves; item++) {
		const int status = batch_item_status(item, move);
		enum family family;
		uint64_t moved, ns;

		if (!item->n_moves)
			continue;
		moved = batch_item_moved(item, move, &family);
		counted += moved;
		if (!item->continues)
			is_told = false;
		if (status) {
			if (!is_told)
				session_count_error(job->session, status);
			is_told = true;
		} else {
			ns = (uint64_t)(share * (double)counted + 0.5) - counted_ns;
			counted_ns += ns;
			job_count_on(job, item->device, family, moved, ns);
			job_count_item(job, item, move);
		}
		move += item->n_moves;
	}
}

/* ==== The method submit ============================================================================== */

/* submit runs many transforms and runs of plans as one job. Each item is checked on its own; bad items are
 * left out. */

/* ---- The items ---------------------------------------------------------------------------------------- */

/* Adds a run over tables. The job must have been charged for all of its moves. */
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

/* Adds a run over tables, which has one move for each entry of a table. The moves are charged as jobs_per_uid
 * before the entries are looked at. */
static int add_tables(struct job *job, const struct msg_plan_run *run, struct error *err)
{
	const uint32_t n = table_entries(job->session, run->dst_table), more = n > 1 ? n - 1 : 0;
	int r = more > 0 ? transforms_charge_add(&job->charge, more, err) : 0;

	if (r < 0)
		return r;
	r = add_charged(job, run, err);
	if (r < 0)
		transforms_charge_shrink(&job->charge, more);
	return r;
}

/* Adds the parts of an item. The job must have been charged for them. */
static int add_parts(struct job *job, struct parts *parts, struct error *err)
{
	const uint32_t n = parts->n;
	int r = batch_add(job->own, parts, err);

	if (r < 0)
		parts_discharge(&job->charge, n, r);
	return r;
}

/* Adds item i of the request to the batch. The job must have been charged for one move of each item. Returns
 * 0, PLANNING_LATER, or the reason why the item is refused. */
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
	r = item.is_run ? prepared_plan(session, &item.run, DEVICE_ANY, &job->charge, &parts, err)
	                : transform_plan(session, &item.transform, DEVICE_ANY, job, &parts, err);
	return r < 0 ? r : add_parts(job, &parts, err);
}

/* Logs the number of refused items and the error of the first one. */
static void log_refused(struct session *session, const struct rpc_request *request, const struct batch *batch,
                        uint32_t first, const struct error *error)
{
	session_log(session, LOG_LEVEL_NOTICE, request->msgid,
	            "refused %" PRIu32 " of %" PRIu32 " items, the first: items[%" PRIu32 "]: %s: %s",
	            batch->n_asked - batch->n_good, batch->n_asked, first, status_name(error->status),
	            error->message);
}

/* Counts the errors of refused items. Called once it is known that the request will not be handled again, so
 * that they are not counted twice. */
static void count_refused(struct session *session, const struct batch *batch)
{
	for (uint32_t i = 0; i < batch->n; i++)
		if (!batch->items[i].n_moves)
			session_count_error(session, batch->statuses[i]);
}

/* Limits on the steps of searches for overlaps. Each item has ITEM_STEPS, which are enough for usual layouts;
 * the items of a message together have MOST_STEPS more. */
#define MOST_STEPS 65536
#define ITEM_STEPS 256

static uint64_t beyond(uint64_t taken, uint64_t free)
{
	return taken > free ? taken - free : 0;
}

/* Adds item i, unless the items before it have used up MOST_STEPS. All users share the loop, so items with
 * intricate layouts, which would hold it up, are refused. *taken is the number of steps that items took
 * beyond the ITEM_STEPS that each of them has. */
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

/* Adds all items to the batch, or refuses them. After an item that has to wait for memory or plans, the
 * others are checked all the same, so that everything is mapped and made together. Returns 0, or
 * PLANNING_LATER if an item has to wait. */
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

/* Answers a submit request. One that asked for no reply on success gets one on failure, because no signal
 * would report it. */
static void answer_submit(struct job *job)
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

static void release_batch(struct job *job)
{
	batch_free(job->own);
}

/* ---- The method --------------------------------------------------------------------------------------- */

/* Returns a job with an empty batch for the items, or NULL with *err set. */
static struct job *make_submit(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_submit *p = &request->params.submit;
	uint32_t n = p->items.n;
	struct order order;
	struct job *job;

	if (order_of(session, submit, p, &order, err) < 0)
		return NULL;
	job = job_new(session, request, &order, answer_submit, err);
	if (!job)
		return NULL;
	if (n > 1 && transforms_charge_add(&job->charge, n - 1, err) < 0)
		goto err_drop;
	job->own = batch_new(session->service, n);
	if (!job->own) {
		error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " items", n);
		goto err_drop;
	}
	job->release = release_batch;
	return job;

err_drop:
	job_drop(job);
	return NULL;
}

/* If an item was refused, the signal is not set, because it means that everything has been moved. */
int method_submit(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct job *job = make_submit(session, request, err);
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

/* ==== The method reshard ============================================================================= */

/* reshard puts slices of a global tensor together from other slices of it. Each piece is moved by the device
 * of its destination, and all pieces are one job. */

/* The slices of a request, and the regions that they lie in. */
struct sliced {
	struct slices slices;
	struct region **region;
	void *room; /* the allocation that holds all of them */
};

/* ---- Nearness ----------------------------------------------------------------------------------------- */

/* How far a source is from the device that pulls it, ascending. The distance over a device's link is
 * DISTANCE_LINK plus the link's rank. Host memory is behind a bus that all devices share. */
enum distance {
	DISTANCE_HERE,
	DISTANCE_LINK,
	DISTANCE_HOST = 1000,
	DISTANCE_AWAY, /* the source's device was lost and is not back */
	/* The source cannot be reached; the request is refused if no other source has the elements. */
	DISTANCE_NONE,
};

static uint32_t distance_of(const struct devices *devices, const struct region *to, const struct region *from)
{
	const struct engine_link *link = &devices->of[to->device].links[from->device];

	if (from->memory->host)
		return DISTANCE_HOST;
	if (devices->of[from->device].is_away)
		return DISTANCE_AWAY;
	if (to->memory->host)
		return DISTANCE_LINK;
	if (to->device == from->device)
		return DISTANCE_HERE;
	if (link->kind == ENGINE_LINK_NONE)
		return DISTANCE_NONE;
	return link->rank < DISTANCE_HOST - DISTANCE_LINK ? DISTANCE_LINK + link->rank : DISTANCE_HOST;
}

/* Returns the device over whose link a source is pulled, or ENGINES_MOST for the bus of host memory. */
static uint32_t giver_of(const struct region *from)
{
	return from->memory->host ? ENGINES_MOST : from->device;
}

struct near {
	const struct devices *devices;
	struct region *const *region; /* indexed by slice */
};

static uint32_t on_distance(const void *arg, uint32_t destination, uint32_t source)
{
	const struct near *near = arg;

	return distance_of(near->devices, near->region[destination], near->region[source]);
}

static uint32_t on_giver(const void *arg, uint32_t source)
{
	const struct near *near = arg;

	return giver_of(near->region[source]);
}

/* ---- Slices ------------------------------------------------------------------------------------------- */

static int make_room(const struct msg_reshard *params, struct sliced *ret, struct error *err)
{
	const uint32_t n = params->destinations.n + params->sources.n;
	struct box *box = calloc(n ?: 1, sizeof *box + sizeof(struct slice) + sizeof *ret->region);
	struct slice *slice = (struct slice *)(box + n);

	if (!box)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " slices", n);
	ret->slices = slices_begin(params->destinations.n, params->sources.n, slice, box);
	ret->region = (struct region **)(slice + n);
	ret->room = box;
	return 0;
}

static int place_slice(struct session *session, struct sliced *sliced, uint32_t i,
                       const struct msg_tensor *tensor, struct error *err)
{
	char field[SLICE_FIELD_SIZE];
	struct tensor_place place;
	int r;

	slice_region_name(&sliced->slices, i, field);
	if (!(tensor->has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: missing", field);
	r = region_table_find(&session->regions, tensor->region, field, &sliced->region[i], err);
	if (r == 0 && i < sliced->slices.n_destinations)
		r = region_check_writable(sliced->region[i], field, err);
	if (r < 0)
		return r;
	place = place_of(sliced->region[i], tensor->offset);
	return slices_set_place(&sliced->slices, i, &place, err);
}

/* Checks and takes the slices of a list. `first` is the index of its first slice among all slices. */
static int take_list(struct session *session, const struct message_list *list, const char *name,
                     const struct int_list *shape, uint32_t first, struct sliced *sliced, struct error *err)
{
	struct msg_slice params;
	int r = 0;

	for (uint32_t i = 0; i < list->n && r == 0; i++) {
		r = rpc_decode_slice(list, name, i, &params, err);
		if (r == 0)
			r = slices_set(&sliced->slices, first + i, &params, shape, err);
		if (r == 0)
			r = place_slice(session, sliced, first + i, &params.tensor, err);
	}
	return r;
}

/* Checks all slices of a request. Their regions are not held yet. */
static int take_slices(struct session *session, const struct msg_reshard *params, struct sliced *ret,
                       struct error *err)
{
	const struct int_list *shape = params->has & F(reshard, shape) ? &params->shape : NULL;
	int r = make_room(params, ret, err);

	if (r == 0)
		r = take_list(session, &params->destinations, "destinations", shape, 0, ret, err);
	if (r == 0)
		r = take_list(session, &params->sources, "sources", shape, params->destinations.n, ret, err);
	return r < 0 ? r : slices_check(&ret->slices, err);
}

/* ---- Moves -------------------------------------------------------------------------------------------- */

static int plan_piece(struct session *session, const struct sliced *sliced, const struct pieces *pieces,
                      uint32_t i, struct parts *ret, struct error *err)
{
	struct placed *placed = &ret->placed;
	struct piece_move move;
	int r;

	pieces_get(pieces, &sliced->slices, i, &move);
	*placed = (struct placed){ .dst = sliced->region[pieces->destination[i]],
		                   .src = sliced->region[pieces_source(pieces, &sliced->slices, i)],
		                   .dst_offset = move.dst.offset,
		                   .src_offset = move.src.offset };
	r = placed_settle(placed, DEVICE_ANY, err);
	if (r < 0)
		return r;
	ret->part[0] = (struct part){ 0 };
	r = planning_get(session, placed->device, &move.spec, placed_places(placed), &ret->part[0].plan, err);
	ret->n = r == 0;
	ret->largest = 0;
	return r;
}

/* Plans all pieces and adds them to the batch. After a piece that has to wait for memory or plans, the others
 * are planned all the same, so that everything is mapped and made together. Returns PLANNING_LATER if a piece
 * has to wait. */
static int plan_pieces(struct job *job, const struct sliced *sliced, const struct pieces *pieces,
                       struct error *err)
{
	bool is_later = false;
	int r = 0;

	for (uint32_t i = 0; i < pieces->n && (r == 0 || r == PLANNING_LATER); i++) {
		struct parts parts;

		r = plan_piece(job->session, sliced, pieces, i, &parts, err);
		if (r == 0)
			r = batch_add(job->parts, &parts, err);
		is_later |= r == PLANNING_LATER;
	}
	return r == 0 && is_later ? PLANNING_LATER : r;
}

/* ---- The method --------------------------------------------------------------------------------------- */

static void answer_reshard(struct job *job)
{
	const struct batch *batch = job->parts;
	struct msg_reshard_done done = { .ns = job->engine_job.ns, .pieces = batch->n };
	enum family family;

	for (uint32_t i = 0; i < batch->n; i++)
		done.bytes += batch_item_moved(&batch->items[i], &batch->moves[i], &family);
	batch_job_count(job, batch, done.bytes);
	job_reply(job, &done);
}

/* Returns a job with an empty batch for n pieces, each of which counts as a transform, or NULL with *err
 * set. */
static struct job *make_reshard(struct session *session, const struct rpc_request *request, uint32_t n,
                                struct error *err)
{
	const struct msg_reshard *p = &request->params.reshard;
	struct order order;
	struct job *job;

	if (order_of(session, reshard, p, &order, err) < 0)
		return NULL;
	job = job_new(session, request, &order, answer_reshard, err);
	if (!job)
		return NULL;
	if (n > 1 && transforms_charge_add(&job->charge, n - 1, err) < 0)
		goto err_drop;
	job->parts = batch_new(session->service, n);
	if (job->parts)
		return job;
	error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " pieces", n);

err_drop:
	job_drop(job);
	return NULL;
}

static int start_reshard(struct session *session, const struct rpc_request *request,
                         const struct sliced *sliced, const struct pieces *pieces, struct error *err)
{
	struct job *job = make_reshard(session, request, pieces->n, err);
	int r;

	if (!job)
		return err->status;
	r = plan_pieces(job, sliced, pieces, err);
	if (r == 0)
		r = batch_job_run_on(job, job->parts, err);
	if (r < 0)
		job_drop(job);
	else
		batch_job_submit(job, job->parts);
	return r;
}

static int find_pieces(struct session *session, const struct sliced *sliced, struct pieces **ret,
                       struct error *err)
{
	const struct slices *slices = &sliced->slices;
	const struct near near = { &session->service->devices, sliced->region };
	uint64_t given[ENGINES_MOST + 1] = { 0 };
	const struct nearness nearness = { given, on_giver, on_distance, &near };

	*ret = malloc(pieces_bytes(slices->n - slices->n_destinations));
	if (!*ret)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " slices", slices->n);
	return pieces_find(*ret, slices, &nearness, err);
}

int method_reshard(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct sliced sliced = { .room = NULL };
	struct pieces *pieces = NULL;
	int r = take_slices(session, &request->params.reshard, &sliced, err);

	if (r == 0)
		r = find_pieces(session, &sliced, &pieces, err);
	if (r == 0)
		r = start_reshard(session, request, &sliced, pieces, err);
	free(pieces);
	free(sliced.room);
	return r;
}

/* ==== The methods gather and scatter ================================================================= */

/* gather and scatter run a transform for each block that a list names. */

static void answer_blocks(struct job *job)
{
	const struct blocks_job *list = job->own;
	const uint64_t passed = list->n > 0 ? list->blocks.passed : 0;
	const uint64_t moved = list->n - passed - list->blocks.beyond;
	const struct msg_blocks_done done = {
		.path = bytes_of(family_names[list->blocks.family]),
		.bytes = moved * list->blocks.layers * job->engine_job.move.transform->bytes,
		.ns = job->engine_job.ns,
		.moved = moved,
		.passed = passed,
		.beyond = list->blocks.beyond,
	};

	job_count(job, list->blocks.family, done.bytes, done.ns);
	job_reply(job, &done);
}

static int move_blocks(struct session *session, const struct rpc_request *request, bool scatter,
                       struct error *err)
{
	const struct msg_blocks *p = &request->params.blocks;
	struct blocks_job *list;
	struct order order;
	int r = order_of(session, blocks, p, &order, err);

	if (r == 0)
		r = blocks_job_new(session, p, scatter, &list, err);
	return r < 0 ? r : blocks_job_start(session, request, &order, list, answer_blocks, err);
}

int method_gather(struct session *session, const struct rpc_request *request, struct error *err)
{
	return move_blocks(session, request, false, err);
}

int method_scatter(struct session *session, const struct rpc_request *request, struct error *err)
{
	return move_blocks(session, request, true, err);
}
