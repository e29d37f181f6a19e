/* SPDX-License-Identifier: Apache-2.0 */
/* Reshards: the pieces that are copied from sources to destinations form one job with many moves. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/transform/reshard.h"
#include "proto/wire/rpc.h"

/* State of a reshard. The arrays params and is_on_device have an entry for each slice, and plan and move one
 * for each piece. */
struct resharding {
	struct slices slices;
	struct msg_slice *params; /* fields of each slice */
	/* true if the slice lies in memory of a device, for each slice; set only if the job runs on one */
	bool *is_on_device;
	struct pieces *pieces;
	struct engine_plan **plan; /* plan of each piece */
	struct engine_move *move;  /* move of each piece */
	struct local_job job;
};

static void deinit(struct resharding *r)
{
	for (uint32_t i = 0; r->plan && i < r->pieces->n; i++)
		engine_plan_unref(r->plan[i]);
	free(r->plan);
	free(r->move);
	free(r->pieces);
	free(r->slices.slice);
	free(r->slices.box);
	free(r->params);
	free(r->is_on_device);
}

/* ---- Slices ------------------------------------------------------------------------------------------- */

static int make_room(struct resharding *r, const struct msg_reshard *p, struct error *err)
{
	const uint32_t n = p->destinations.n + p->sources.n;
	struct slice *slice = calloc(n ? n : 1, sizeof *slice);
	struct box *box = calloc(n ? n : 1, sizeof *box);

	r->slices = slices_begin(p->destinations.n, p->sources.n, slice, box);
	r->params = calloc(n ? n : 1, sizeof *r->params);
	r->is_on_device = calloc(n ? n : 1, sizeof *r->is_on_device);
	r->pieces = malloc(pieces_bytes(p->sources.n));
	if (slice && box && r->params && r->is_on_device && r->pieces)
		return 0;
	return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " slices", n);
}

static int decode(struct resharding *r, const struct msg_reshard *p, struct error *err)
{
	int result = 0;

	for (uint32_t i = 0; result == 0 && i < r->slices.n; i++) {
		const bool is_source = i >= p->destinations.n;

		result = rpc_decode_slice(is_source ? &p->sources : &p->destinations,
		                          is_source ? "sources" : "destinations",
		                          is_source ? i - p->destinations.n : i, &r->params[i], err);
	}
	return result;
}

static int check(struct resharding *r, const struct local_session *session, const struct msg_reshard *p,
                 struct error *err)
{
	const struct int_list *shape = p->has & F(reshard, shape) ? &p->shape : NULL;
	int result = 0;

	for (uint32_t i = 0; result == 0 && i < r->slices.n; i++) {
		struct tensor_place place;
		char field[SLICE_FIELD_SIZE];

		result = slices_set(&r->slices, i, &r->params[i], shape, err);
		if (result == 0)
			result = local_place_tensor(session, &r->params[i].tensor, i < p->destinations.n,
			                            slice_region_name(&r->slices, i, field), &place, err);
		/* Slices get no copies on the device. */
		if (result == 0 && !local_is_empty(&r->params[i].tensor.shape))
			result = local_check_reach(session, &place, field, err);
		if (result == 0)
			result = slices_set_place(&r->slices, i, &place, err);
	}
	return result < 0 ? result : slices_check(&r->slices, err);
}

/* ---- Pieces ------------------------------------------------------------------------------------------- */

static uint32_t on_giver(const void *arg, uint32_t source)
{
	const struct resharding *r = arg;

	return r->is_on_device[source];
}

/* Returns 1 if only one of the two slices lies in memory of a device, so that the bus is between them;
 * otherwise 0. */
static uint32_t on_distance(const void *arg, uint32_t destination, uint32_t source)
{
	const struct resharding *r = arg;

	return r->is_on_device[destination] != r->is_on_device[source];
}

static int plan(struct resharding *r, struct engine *engine, struct error *err)
{
	struct engine_memory *own = engine->own;
	const uint32_t n = r->pieces->n;
	int result = 0;

	r->plan = calloc(n ? n : 1, sizeof(struct engine_plan *));
	r->move = calloc(n ? n : 1, sizeof *r->move);
	if (!r->plan || !r->move)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " pieces", n);
	for (uint32_t i = 0; result == 0 && i < n; i++) {
		struct piece_move piece;

		pieces_get(r->pieces, &r->slices, i, &piece);
		result = engine_prepare(engine, &piece.spec,
		                        plan_places(local_address(&piece.dst), local_address(&piece.src)),
		                        &r->plan[i], err);
		if (result == 0)
			r->move[i] = (struct engine_move){ .transform = engine_plan_transform(r->plan[i]),
				                           .plan = r->plan[i],
				                           .dst = own,
				                           .src = own,
				                           .dst_offset = local_offset(&piece.dst, own),
				                           .src_offset = local_offset(&piece.src, own) };
	}
	return result;
}

/* Counts the moves, and attributes the job's time to them in proportion to their bytes. */
static void count(const struct resharding *r, struct local_session *session,
                  const struct msg_reshard_done *done)
{
	const double share = done->bytes ? (double)done->ns / (double)done->bytes : 0;

	local_count_latency(session, done->ns);
	for (uint32_t i = 0; i < r->job.job.n_moves; i++) {
		const uint64_t bytes = r->move[i].transform->bytes;

		local_count_move(session, r->move[i].family, bytes, (uint64_t)(share * (double)bytes));
	}
}

static int move(struct resharding *r, struct local_session *session, const struct msg_reshard *p,
                struct msg_reshard_done *ret, struct error *err)
{
	struct engine_job *job = &r->job.job;
	int result = 0;

	*job =
	    (struct engine_job){ .moves = r->move, .n_moves = r->pieces->n, .share = local_share(&p->order) };
	if (job->n_moves > 0)
		result = local_stream_run(&session->stream, &r->job, err);
	*ret = (struct msg_reshard_done){ .ns = job->ns, .pieces = job->n_moves };
	for (uint32_t i = 0; i < job->n_moves; i++)
		ret->bytes += r->move[i].transform->bytes;
	if (result == 0)
		count(r, session, ret);
	return result;
}

static int reshard(struct resharding *r, struct local_session *session, const struct msg_reshard *p,
                   struct msg_reshard_done *ret, struct error *err)
{
	uint64_t given[2] = { 0 };
	const struct nearness nearness = { given, on_giver, on_distance, r };
	struct engine *engine = local_stream_engine(&session->stream, err);
	int result = engine ? check(r, session, p, err) : err->status;

	if (result == 0)
		result = pieces_find(r->pieces, &r->slices, &nearness, err);
	if (result == 0)
		result = plan(r, engine, err);
	return result < 0 || session->only_checks ? result : move(r, session, p, ret, err);
}

/* ---- The method --------------------------------------------------------------------------------------- */

int local_method_reshard(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err)
{
	const struct msg_reshard *p = &params->reshard;
	struct resharding r = { .plan = NULL };
	bool needs_device = false, is_on_device = false;
	int result = make_room(&r, p, err);

	if (result == 0)
		result = decode(&r, p, err);
	for (uint32_t i = 0; result == 0 && i < r.slices.n; i++)
		needs_device |= r.is_on_device[i] = local_needs_device(session, &r.params[i].tensor);
	if (result == 0)
		result = local_device_begin(session, needs_device, &is_on_device, err);
	if (result == 0)
		result = reshard(&r, session, p, &ret->reshard_done, err);
	if (is_on_device)
		local_stream_end(session);
	deinit(&r);
	return result;
}
