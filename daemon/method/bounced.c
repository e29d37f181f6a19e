/* SPDX-License-Identifier: Apache-2.0 */
/* The boxes of a transform, and the two moves of each. */
#include "bounced.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cuts.h"
#include "daemon/net/session.h"
#include "daemon/resource/batch.h"
#include "daemon/resource/bounce.h"
#include "daemon/resource/job.h"
#include "daemon/resource/planning.h"
#include "daemon/resource/spread.h"
#include "daemon/server.h"
#include "order.h"
#include "proto/wire/rpc.h"
#include "transforms.h"

#define MOST_BOXES     256
#define MOST_BOX_BYTES (UINT64_C(64) << 20)
#define ALIGN_BYTES    256 /* of a half, for the fastest plans */

struct bounced {
	const struct msg_transform *params;
	struct placed placed; /* of the whole, without a device */
	struct region *bounce;
	uint64_t half_bytes;
	bool may[TENSOR_MAX_RANK];
	int64_t rows[TENSOR_MAX_RANK]; /* of a box at most, by dimension of dst */
	uint32_t n;                    /* boxes */
};

bool transform_is_bounced(struct session *session, const struct msg_transform *params)
{
	const struct devices *devices = &session->server->devices;
	struct region *dst, *src;
	struct error err;

	return devices->n > 1 &&
	       region_table_find(&session->regions, params->dst.region, "dst.region", &dst, &err) == 0 &&
	       region_table_find(&session->regions, params->src.region, "src.region", &src, &err) == 0 &&
	       !dst->memory->host && !src->memory->host && dst->device != src->device &&
	       devices->of[dst->device].links[src->device].kind == ENGINE_LINK_NONE;
}

/* ---- Boxes --------------------------------------------------------------------------------------------- */

static uint64_t src_bytes(const struct msg_tensor *src)
{
	uint64_t bytes = dtype_size(src->dtype);

	for (uint32_t d = 0; d < src->shape.n; d++)
		bytes *= (uint64_t)src->shape.v[d];
	return bytes;
}

/* Cuts from the outermost dimension on, as far as it takes. Returns the bytes of a box's source. */
static uint64_t plan_boxes(struct bounced *b, uint64_t half_bytes)
{
	const struct int_list *shape = &b->params->dst.shape;
	uint64_t left = src_bytes(&b->params->src), n = 1;

	for (uint32_t d = 0; d < shape->n; d++) {
		const uint64_t extent = (uint64_t)shape->v[d];
		uint64_t row;

		b->rows[d] = shape->v[d];
		if (left <= half_bytes || !b->may[d] || extent < 2)
			continue;
		row = left / extent;
		b->rows[d] = row < half_bytes ? (int64_t)(half_bytes / row) : 1;
		left = row * (uint64_t)b->rows[d];
		n *= (extent + (uint64_t)b->rows[d] - 1) / (uint64_t)b->rows[d];
		n = n < MOST_BOXES ? n : MOST_BOXES + 1;
	}
	b->n = (uint32_t)n;
	return left;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int plan(struct bounced *b, uint64_t chunk_bytes, struct error *err)
{
	const uint64_t all = src_bytes(&b->params->src);
	const uint64_t half = larger(chunk_bytes / 4, all / (MOST_BOXES / 4));
	uint64_t bytes;

	transform_may_cut(b->params, b->may);
	bytes = plan_boxes(b, half < MOST_BOX_BYTES ? half : MOST_BOX_BYTES);
	if (bytes > MOST_BOX_BYTES || b->n > MOST_BOXES)
		return error_set(err, STATUS_UNSUPPORTED,
		                 "the devices of dst and src have no link, and through host memory %" PRIu64
		                 " bytes pass in at most %d boxes of at most %" PRIu64
		                 " bytes, cut where there are no pads, splits and amax; send it in parts",
		                 all, MOST_BOXES, MOST_BOX_BYTES);
	b->half_bytes = (larger(bytes, 1) + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	return 0;
}

/* Leaves the box of a number. */
static void cut_box(const struct bounced *b, uint32_t box, struct msg_transform *params)
{
	for (uint32_t d = params->dst.shape.n; d-- > 0;) {
		const int64_t extent = b->params->dst.shape.v[d], rows = b->rows[d];
		const uint32_t n = rows > 0 ? (uint32_t)((extent + rows - 1) / rows) : 1;
		const int64_t at = box % n * rows;

		box /= n;
		if (n > 1)
			transform_cut(params, d, at, extent - at < rows ? extent - at : rows);
	}
}

/* ---- Moves --------------------------------------------------------------------------------------------- */

static int add(struct job *job, const struct msg_transform *params, const struct placed *placed,
               uint32_t device, struct error *err)
{
	struct parts parts = { .placed = *placed };
	struct split split;
	int r = transform_split_of(params, &split, err);

	if (r == 0)
		r = placed_settle(&parts.placed, device, err);
	if (r == 0)
		r = parts_plan(job->session, &split, true, &parts, err);
	return r < 0 ? r : batch_add(job->parts, &parts, err);
}

/* The box's source, as it is packed. */
static struct msg_tensor packed(const struct msg_tensor *src)
{
	struct msg_tensor tensor = *src;

	tensor.has &= F(tensor, dtype) | F(tensor, shape) | F(tensor, split);
	return tensor;
}

static int add_pack(struct job *job, const struct bounced *b, const struct msg_transform *box, uint64_t at,
                    struct error *err)
{
	struct msg_transform params = { .has = F(transform, dst) | F(transform, src),
		                        .dst = packed(&box->src),
		                        .src = box->src };
	const struct placed placed = {
		.dst = b->bounce, .dst_offset = at, .src = b->placed.src, .src_offset = box->src.offset
	};

	params.dst.has &= ~F(tensor, split);
	params.src.has &= ~F(tensor, split);
	return add(job, &params, &placed, b->placed.src->device, err);
}

static int add_unpack(struct job *job, const struct bounced *b, struct msg_transform *box, uint64_t at,
                      struct error *err)
{
	struct placed placed = b->placed;
	int r = placed_find_operands(job->session, box, &placed, err);

	if (r < 0)
		return r;
	placed.dst_offset = box->dst.offset;
	placed.src = b->bounce;
	placed.src_offset = at;
	box->src = packed(&box->src);
	return add(job, box, &placed, b->placed.dst->device, err);
}

/* Those that wait for memory or plans are tried all the same, so that all of it is mapped and made at once;
 * the result is then PLANNING_LATER. */
static int add_boxes(struct job *job, const struct bounced *b, uint32_t *after, struct error *err)
{
	bool is_later = false;

	for (uint32_t i = 0; i < b->n; i++) {
		struct msg_transform box = *b->params;
		const uint64_t at = i % 2 * b->half_bytes;
		int r;

		cut_box(b, i, &box);
		r = add_pack(job, b, &box, at, err);
		if (r == 0 || r == PLANNING_LATER) {
			is_later |= r == PLANNING_LATER;
			r = add_unpack(job, b, &box, at, err);
		}
		if (r < 0 && r != PLANNING_LATER)
			return r;
		is_later |= r == PLANNING_LATER;
		after[2 * i] = i < 2 ? SPREAD_AT_ONCE : 2 * i - 3; /* that which empties the half */
		after[2 * i + 1] = 2 * i;
	}
	return is_later ? (err->status = PLANNING_LATER) : 0;
}

/* ---- The job ------------------------------------------------------------------------------------------- */

/* The path is that of the first box's second move, the transform's. */
static void answer(struct job *job)
{
	const struct batch *batch = job->parts;
	struct msg_transform_done done = { .ns = job->engine_job.ns };
	enum family family;

	for (uint32_t i = 0; i < batch->n_moves; i++)
		done.bytes += batch->moves[i].transform->bytes;
	batch_item_moved(&batch->items[1], batch->moves + batch->items[0].n_moves, &family);
	done.path = bytes_of(family_names[family]);
	job_count_on(job, batch->items[1].device, family, done.bytes, done.ns);
	job_reply(job, &done);
}

static int fill_job(struct job *job, const struct bounced *b, struct error *err)
{
	uint32_t *after = malloc(2 * b->n * sizeof *after);
	int r = 0;

	job->parts = batch_new(job->session->server, 2 * b->n);
	if (!after || !job->parts)
		r = error_set(err, STATUS_NO_MEMORY, "no memory for a job");
	if (r == 0)
		r = add_boxes(job, b, after, err);
	if (r == 0)
		r = job_run_on(job, b->placed.dst->device, err);
	if (r == 0)
		r = spread_new_tree(job, job->parts, after, &job->spread, err);
	free(after);
	return r;
}

static int start(struct session *session, const struct rpc_request *request, const struct order *order,
                 const struct bounced *b, struct error *err)
{
	struct job *job = job_new(session, request, order, answer, err);
	int r;

	if (!job)
		return err->status;
	r = fill_job(job, b, err);
	if (r < 0) {
		job_drop(job);
		return r;
	}
	job_submit_parts(job, 1);
	return 0;
}

int bounced_start(struct session *session, const struct rpc_request *request, const struct order *order,
                  struct error *err)
{
	struct bounced b = { .params = &request->params.transform };
	struct checked_transform checked;
	int r = transform_check(session, b.params, &checked, err);

	if (r == 0) {
		b.placed = checked.placed;
		r = plan(&b, session->server->limits.device_chunk_bytes, err);
	}
	if (r == 0)
		r = bounce_find(session, b.placed.src->device, 2 * b.half_bytes, &b.bounce, err);
	return r < 0 ? r : start(session, request, order, &b, err);
}
