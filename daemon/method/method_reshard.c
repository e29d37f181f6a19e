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
#include "order.h"
#include "slices.h"
#include "transforms.h"

/* What finding the pieces of a request may take: the pieces, the boxes into which a destination falls apart
 * on the way, and dimensions that are looked at, a nanosecond or two each. */
#define MOST_PIECES 4096
#define MOST_RESTS  512
#define MOST_STEPS  (1 << 20)

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

/* Whose link or bus a source is pulled over. */
static uint32_t giver_of(const struct region *from)
{
	return from->memory->host ? ENGINES_MOST : from->device;
}

/* ---- Pieces ------------------------------------------------------------------------------------------- */

/* What planning a request needs at once, without the slices. */
struct room {
	uint64_t given[ENGINES_MOST + 1];
	struct box rest[MOST_RESTS];
	struct cover_piece piece[MOST_PIECES];
	uint32_t destination[MOST_PIECES]; /* of each piece */
	uint32_t per_source[];             /* giver, distance and candidate, one after the other */
};

static struct room *room_new(uint32_t n_sources)
{
	struct room *room = malloc(sizeof *room + 3 * (size_t)n_sources * sizeof(uint32_t));

	if (room)
		memset(room->given, 0, sizeof room->given);
	return room;
}

static const char *index_text(const int64_t *index, int rank, char *text, size_t size)
{
	return tensor_shape_text(rank, index, text, size);
}

static int refuse_cover(const struct slices *slices, uint32_t destination, enum cover_outcome outcome,
                        const struct cover *cover, struct error *err)
{
	char name[SLICE_NAME_SIZE], index[160];

	slice_name(slices, destination, name);
	switch (outcome) {
	case COVER_WHOLE:
		break;
	case COVER_GAP:
		return error_set(err, STATUS_OUT_OF_RANGE,
		                 "%s: no source has element %s of the global tensor", name,
		                 index_text(cover->gap, slices->rank, index, sizeof index));
	case COVER_MANY_STEPS:
		return error_set(err, STATUS_QUOTA,
		                 "%s: finding the pieces up to here takes more than %d steps, as many as a "
		                 "request has; send fewer slices in a request",
		                 name, MOST_STEPS);
	case COVER_MANY_RESTS:
		return error_set(
		    err, STATUS_QUOTA,
		    "%s: the sources divide it into more than %d boxes at a time; send parts of it "
		    "in several requests",
		    name, MOST_RESTS);
	case COVER_MANY_PIECES:
		return error_set(
		    err, STATUS_QUOTA,
		    "%s: the pieces up to here are more than the %d that a request has; send fewer "
		    "slices in a request",
		    name, MOST_PIECES);
	}
	return 0;
}

/* The pieces of all destinations. */
static int find_pieces(const struct devices *devices, const struct slices *slices, struct room *room,
                       uint32_t *ret_n, struct error *err)
{
	const uint32_t n_sources = slices->n - slices->n_destinations;
	const struct slice *source = slices->slice + slices->n_destinations;
	uint32_t *giver = room->per_source, *distance = giver + n_sources;
	struct cover cover = { .rank = slices->rank,
		               .n_sources = n_sources,
		               .source = slices->box + slices->n_destinations,
		               .giver = giver,
		               .distance = distance,
		               .given = room->given,
		               .candidate = distance + n_sources,
		               .most_rests = MOST_RESTS,
		               .rest = room->rest,
		               .most_pieces = MOST_PIECES,
		               .piece = room->piece,
		               .most_steps = MOST_STEPS };

	for (uint32_t s = 0; s < n_sources; s++)
		giver[s] = giver_of(source[s].region);
	for (uint32_t i = 0; i < slices->n_destinations; i++) {
		uint32_t piece = cover.n_pieces;
		enum cover_outcome outcome;

		for (uint32_t s = 0; s < n_sources; s++)
			distance[s] = distance_of(devices, slices->slice[i].region, source[s].region);
		outcome = cover_box(&cover, &slices->box[i]);
		if (outcome != COVER_WHOLE)
			return refuse_cover(slices, i, outcome, &cover, err);
		for (; piece < cover.n_pieces; piece++)
			room->destination[piece] = i;
	}
	*ret_n = cover.n_pieces;
	return 0;
}

/* ---- Moves -------------------------------------------------------------------------------------------- */

/* The view of a box that lies in a slice; returns the byte of its first element in the region. */
static uint64_t view_of(const struct slices *slices, uint32_t i, const struct box *box,
                        struct tensor_layout *ret)
{
	const struct slice *slice = &slices->slice[i];
	const int64_t size = dtype_size(slice->layout.dtype);
	int64_t offset = 0;

	*ret = slice->layout;
	for (int d = 0; d < slices->rank; d++) {
		ret->shape[d] = box->high[d] - box->low[d];
		offset += (box->low[d] - slices->box[i].low[d]) * slice->layout.stride[d] * size;
	}
	return slice->offset + (uint64_t)offset;
}

/* The layout of a destination has been checked with all of it. */
static int plan_piece(struct session *session, const struct slices *slices, uint32_t destination,
                      const struct cover_piece *piece, struct parts *ret, struct error *err)
{
	const uint32_t source = slices->n_destinations + piece->source;
	struct transform_spec spec = { .n_perm = -1, .n_before = -1, .n_after = -1, .dst_is_checked = true };
	struct placed *placed = &ret->placed;
	int r;

	*placed = (struct placed){ .dst = slices->slice[destination].region,
		                   .src = slices->slice[source].region,
		                   .dst_offset = view_of(slices, destination, &piece->box, &spec.dst),
		                   .src_offset = view_of(slices, source, &piece->box, &spec.src) };
	r = placed_settle(placed, DEVICE_ANY, err);
	if (r < 0)
		return r;
	ret->part[0] = (struct part){ 0 };
	r = planning_get(session, placed->device, &spec, placed_places(placed), &ret->part[0].plan, err);
	ret->n = r == 0;
	ret->largest = 0;
	return r;
}

/* Pieces that wait for memory or plans are tried all the same, so that all of it is mapped and made at once;
 * the result is then PLANNING_LATER. */
static int plan_pieces(struct job *job, const struct slices *slices, const struct room *room, uint32_t n,
                       struct error *err)
{
	bool is_later = false;
	int r = 0;

	for (uint32_t i = 0; i < n && (r == 0 || r == PLANNING_LATER); i++) {
		struct parts parts;

		r = plan_piece(job->session, slices, room->destination[i], &room->piece[i], &parts, err);
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

static int start(struct session *session, const struct rpc_request *request, const struct slices *slices,
                 const struct room *room, uint32_t n, struct error *err)
{
	struct job *job = make_job(session, request, n, err);
	int r;

	if (!job)
		return err->status;
	r = plan_pieces(job, slices, room, n, err);
	if (r == 0)
		r = batch_job_run_on(job, job->parts, err);
	if (r < 0)
		job_drop(job);
	else
		batch_job_submit(job, job->parts);
	return r;
}

int method_reshard(struct session *session, const struct rpc_request *request, struct error *err)
{
	struct slices slices = { 0 };
	struct room *room = NULL;
	uint32_t n = 0;
	int r = slices_of(session, &request->params.reshard, &slices, err);

	if (r == 0) {
		room = room_new(slices.n - slices.n_destinations);
		r = room ? find_pieces(&session->server->devices, &slices, room, &n, err)
		         : error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " slices", slices.n);
	}
	if (r == 0)
		r = start(session, request, &slices, room, n, err);
	free(room);
	slices_free(&slices);
	return r;
}
