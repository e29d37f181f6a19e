/* SPDX-License-Identifier: Apache-2.0 */
/* reshard: slices of a global tensor are put together from other slices of it, each piece by the device that
 * its destination is on, all in one job. */
#include "dispatch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "batch_job.h"
#include "daemon/net/session.h"
#include "daemon/resource/batch.h"
#include "daemon/resource/job.h"
#include "daemon/resource/planning.h"
#include "daemon/server.h"
#include "kernels/transform/pieces.h"
#include "proto/wire/rpc.h"
#include "order.h"
#include "transforms.h"

/* The slices of a request, and the regions that they lie in. */
struct sliced {
	struct slices slices;
	struct region **region;
	void *room; /* of all of it */
};

/* ---- Nearness ----------------------------------------------------------------------------------------- */

/* How far a source is from the device that pulls it, ascending; a device's link has DISTANCE_LINK and its
 * rank. Host memory is behind a bus that all devices share. */
enum distance {
	DISTANCE_HERE,
	DISTANCE_LINK,
	DISTANCE_HOST = 1000,
	DISTANCE_AWAY, /* its device was lost and is not back */
	DISTANCE_NONE, /* it cannot be reached; that is refused if nothing else has the elements */
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

/* Returns whose link or bus a source is pulled over. */
static uint32_t giver_of(const struct region *from)
{
	return from->memory->host ? ENGINES_MOST : from->device;
}

struct near {
	const struct devices *devices;
	struct region *const *region; /* of each slice */
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

/* first: where the list's are among all slices. */
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

/* Checks all slices of a request. Regions are held by nobody yet. */
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

/* Pieces that wait for memory or plans are tried all the same, so that all of it is mapped and made at once;
 * the result is then PLANNING_LATER. */
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

static void answer(struct job *job)
{
	const struct batch *batch = job->parts;
	struct msg_reshard_done done = { .ns = job->engine_job.ns, .pieces = batch->n };
	enum family family;

	for (uint32_t i = 0; i < batch->n; i++)
		done.bytes += batch_item_moved(&batch->items[i], &batch->moves[i], &family);
	batch_job_count(job, batch, done.bytes);
	job_reply(job, &done);
}

/* A job that holds a batch for n pieces, each of which counts as a transform; NULL with err. */
static struct job *make_job(struct session *session, const struct rpc_request *request, uint32_t n,
                            struct error *err)
{
	const struct msg_reshard *p = &request->params.reshard;
	struct order order;
	struct job *job;

	if (order_of(session, reshard, p, &order, err) < 0)
		return NULL;
	job = job_new(session, request, &order, answer, err);
	if (!job)
		return NULL;
	if (n > 1 && job_charge(job, n - 1, err) < 0)
		goto err_drop;
	job->parts = batch_new(session->server, n);
	if (job->parts)
		return job;
	error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " pieces", n);

err_drop:
	job_drop(job);
	return NULL;
}

static int start(struct session *session, const struct rpc_request *request, const struct sliced *sliced,
                 const struct pieces *pieces, struct error *err)
{
	struct job *job = make_job(session, request, pieces->n, err);
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
	const struct near near = { &session->server->devices, sliced->region };
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
		r = start(session, request, &sliced, pieces, err);
	free(pieces);
	free(sliced.room);
	return r;
}
