/* SPDX-License-Identifier: Apache-2.0 */
/* Starts transforms that run in steps, on several devices. There are two kinds. A transform with several
 * destinations (further_dst) makes some of them from others, in the way that links.h plans. A transform
 * between two devices that do not reach each other passes through host memory. Both are cut into smaller
 * transforms. */
#include "transforms.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/jobs/batch.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/links.h"
#include "daemon/jobs/planning.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "kernels/transform/request.h"
#include "proto/overlap.h"
#include "proto/wire/rpc.h"

/* ==== Cuts =========================================================================================== */

/* These functions reduce a request's transform to a part of it, by changing shapes, strides and offsets. */

/* The fields of a tensor or an operand that a cut changes. */
struct cut_view {
	enum dtype dtype;
	bool is_strided;
	struct int_list *shape, *strides;
	uint64_t *offset;
};

static void cut_view(const struct cut_view *view, uint32_t dim, int64_t at, int64_t rows)
{
	const uint32_t rank = view->shape->n;
	int64_t stride = 1;

	for (uint32_t d = rank; !view->is_strided && d-- > 0; stride *= view->shape->v[d])
		view->strides->v[d] = stride;
	view->strides->n = rank;
	*view->offset += (uint64_t)(at * view->strides->v[dim]) * dtype_size(view->dtype);
	view->shape->v[dim] = rows;
}

static void cut_tensor(struct msg_tensor *tensor, uint32_t dim, int64_t at, int64_t rows)
{
	cut_view(&(struct cut_view){ tensor->dtype, tensor->has & F(tensor, strides), &tensor->shape,
	                             &tensor->strides, &tensor->offset },
	         dim, at, rows);
	tensor->has |= F(tensor, strides);
}

/* Cuts an operand along dimension dim of the tensor with which it is aligned, which has `rank` dimensions. An
 * operand that is a number or broadcasts along the dimension stays as it is. */
static void cut_operand(struct msg_operand *operand, uint32_t rank, uint32_t dim, int64_t at, int64_t rows)
{
	const uint32_t missing = rank - operand->shape.n;

	if ((operand->has & F(operand, number)) || dim < missing || operand->shape.v[dim - missing] == 1)
		return;
	cut_view(&(struct cut_view){ operand->dtype, operand->has & F(operand, strides), &operand->shape,
	                             &operand->strides, &operand->offset },
	         dim - missing, at, rows);
	operand->has |= F(operand, strides);
}

/* Sets may[d] for each dimension d of dst: whether n rows of dst are made from n rows of src. It is false for
 * dimensions with pads or crops, and for all dimensions of a transform with splits or amax. The transform
 * must have been checked. */
static void transform_may_cut(const struct msg_transform *params, bool may[TENSOR_MAX_RANK])
{
	const bool is_split = (params->dst.has | params->src.has) & F(tensor, split);

	for (uint32_t d = 0; d < params->dst.shape.n; d++)
		may[d] = !is_split && !((params->has & F(transform, amax))) &&
		         !((params->has & F(transform, before)) && params->before.v[d]) &&
		         !((params->has & F(transform, after)) && params->after.v[d]);
}

/* Returns the dimension of src that becomes dimension dim of dst. */
static uint32_t transform_src_dim(const struct msg_transform *params, uint32_t dim)
{
	return params->has & F(transform, perm) ? (uint32_t)params->perm.v[dim] : dim;
}

/* Reduces the transform to the part that makes `rows` rows of dst, from row `at` of dimension dim on. dim
 * must be a dimension that may be cut. */
static void transform_cut(struct msg_transform *params, uint32_t dim, int64_t at, int64_t rows)
{
	const uint32_t rank = params->dst.shape.n;

	cut_tensor(&params->dst, dim, at, rows);
	cut_tensor(&params->src, transform_src_dim(params, dim), at, rows);
	if (params->has & F(transform, scale))
		cut_operand(&params->scale, rank, dim, at, rows);
	if (params->has & F(transform, bias))
		cut_operand(&params->bias, rank, dim, at, rows);
}

/* Creates a job, has fill(job, arg) add its batch and steps, and queues it. `charged` is the number of its
 * moves that have been charged for when fill returns. */
static int start_steps(struct session *session, const struct rpc_request *request, const struct order *order,
                       void (*answer)(struct job *job),
                       int (*fill)(struct job *job, const void *arg, struct error *err), const void *arg,
                       uint64_t charged, struct error *err)
{
	struct job *job = job_new(session, request, order, answer, err);
	int r = job ? fill(job, arg, err) : err->status;

	if (r == 0)
		job_submit_parts(job, charged);
	else if (job)
		job_drop(job);
	return r;
}

/* ==== Several destinations =========================================================================== */

/* A transform with several destinations becomes the moves of a tree (links.h). */

struct destinations {
	/* Transform from the source; dst is set for one destination at a time. */
	struct msg_transform transform;
	struct multicast_tree tree;
	bool is_star; /* every destination is made from the source */
	struct multicast_cut cut;
	bool is_first_cut; /* moves from the source are cut, too, not only copies between destinations */
	uint64_t steps;    /* steps that searches for overlaps had taken before the request (overlap_steps) */
	uint32_t n;        /* number of destinations */
	struct region *regions[1 + MULTICAST_FURTHER]; /* indexed by destination */
	struct request_destination of[];               /* indexed by destination */
};

/* Number of items of the job's batch that each move of the tree consists of, kept for the answer. */
struct made {
	uint32_t n;
	uint32_t items[];
};

/* ---- Checks -------------------------------------------------------------------------------------------- */

static int check_transform(struct session *session, const struct msg_transform *params,
                           struct request_destination *ret, struct region **ret_region, struct error *err)
{
	struct checked_transform checked;
	int r = transform_check(session, params, &checked, err);

	if (r < 0)
		return r;
	ret->tensor = params->dst;
	ret->layout = checked.dst;
	ret->extent = checked.dst_extent;
	ret->place = place_of(checked.placed.dst, params->dst.offset);
	*ret_region = checked.placed.dst;
	return 0;
}

static int take_further(struct destinations *all, struct session *session, const struct msg_transform *params,
                        uint32_t i, struct error *err)
{
	struct msg_tensor *tensor = &all->transform.dst;
	int r = rpc_decode_further_dst(&params->further_dst, i, tensor, err);

	if (r < 0)
		return r;
	r = request_take_further(&params->dst, tensor, err);
	if (r == 0)
		r = check_transform(session, &all->transform, &all->of[1 + i], &all->regions[1 + i], err);
	return r < 0 ? request_name_further(i, err) : request_check_effort(all->steps, err);
}

static int take_destinations(struct destinations *all, struct session *session,
                             const struct msg_transform *params, struct error *err)
{
	int r;

	all->steps = overlap_steps();
	all->n = 1 + params->further_dst.n;
	all->transform = *params;
	all->transform.has &= ~F(transform, further_dst);
	r = check_transform(session, &all->transform, &all->of[0], &all->regions[0], err);
	for (uint32_t i = 0; r == 0 && i < params->further_dst.n; i++)
		r = take_further(all, session, params, i, err);
	return r;
}

/* ---- The tree ------------------------------------------------------------------------------------------ */

static uint32_t device_of(const struct region *region)
{
	return region->memory->host ? DEVICE_ANY : region->device;
}

static void plan_cut(struct destinations *all, uint64_t bytes, uint64_t chunk_bytes)
{
	const struct int_list *shape = &all->of[0].tensor.shape;
	const int rank = (int)shape->n;
	bool may[TENSOR_MAX_RANK];

	all->cut = (struct multicast_cut){ .n = 1 };
	if (!all->tree.is_chain || transform_is_split(&all->transform))
		return;
	transform_may_cut(&all->transform, may);
	all->cut = multicast_plan_cut(rank, shape->v, may, bytes, chunk_bytes, all->n);
	all->is_first_cut = all->cut.n > 1;
	if (!all->is_first_cut)
		all->cut = multicast_plan_cut(rank, shape->v, NULL, bytes, chunk_bytes, all->n);
}

/* Plans the tree and how it is cut. A star converts once for each destination. It is not used for an exact
 * cast, because it would count each changed value once for each destination. */
static void plan_moves(struct destinations *all, struct session *session, struct region *src)
{
	const struct devices *devices = &session->service->devices;
	const uint64_t chunk_bytes = session->service->limits.device_chunk_bytes;
	const uint64_t bytes =
	    (uint64_t)tensor_count(&all->of[0].layout) * dtype_size(all->of[0].layout.dtype);
	const bool is_exact = (all->transform.has & F(transform, cast)) && all->transform.cast == CAST_EXACT;
	uint32_t on[1 + MULTICAST_FURTHER];

	for (uint32_t i = 0; i < all->n; i++)
		on[i] = device_of(all->regions[i]);
	all->is_star = bytes < 2 * chunk_bytes && !is_exact &&
	               multicast_plan_star(devices, all->n, on, device_of(src), &all->tree);
	if (!all->is_star)
		multicast_plan_tree(devices, all->n, on, device_of(src), &all->tree);
	plan_cut(all, bytes, chunk_bytes);
}

/* ---- Moves --------------------------------------------------------------------------------------------- */

/* Sets *ret to the transform that a move executes: the request's own, or a copy of another destination. */
static void move_params(const struct destinations *all, const struct multicast_move *move,
                        struct msg_transform *ret)
{
	if (move->parent == MULTICAST_SOURCE) {
		*ret = all->transform;
		ret->dst = all->of[move->dst].tensor;
		return;
	}
	*ret = request_copy_between(&all->of[move->dst].tensor,
	                            &all->of[all->tree.move[move->parent].dst].tensor);
}

static uint32_t chunks_of(const struct destinations *all, const struct multicast_move *move)
{
	return move->parent == MULTICAST_SOURCE && !all->is_first_cut ? 1 : all->cut.n;
}

static void take_chunk(struct msg_transform *params, const struct multicast_cut *cut, uint32_t chunk)
{
	const int64_t at = chunk * cut->rows, left = params->dst.shape.v[cut->dim] - at;

	transform_cut(params, (uint32_t)cut->dim, at, left < cut->rows ? left : cut->rows);
}

static int add_chunk(struct job *job, const struct destinations *all, const struct multicast_move *move,
                     uint32_t chunk, struct error *err)
{
	struct msg_transform params;
	struct parts parts;
	int r;

	move_params(all, move, &params);
	if (chunks_of(all, move) > 1)
		take_chunk(&params, &all->cut, chunk);
	r = transform_plan(job->session, &params, move->device, NULL, &parts, err);
	return r < 0 ? r : batch_add(job->parts, &parts, err);
}

/* Plans all moves of the tree, chunk by chunk, and adds them to the batch. after[i] is set as spread_new_tree
 * takes it. After a move that has to wait for memory or plans, the others are planned all the same, so that
 * everything is mapped and made together. Returns PLANNING_LATER if a move has to wait. */
static int add_moves(struct job *job, const struct destinations *all, struct made *made, uint32_t *after,
                     struct error *err)
{
	uint32_t first[1 + MULTICAST_FURTHER], n = 0;
	bool is_later = false;

	for (uint32_t m = 0; m < all->tree.n; m++) {
		const struct multicast_move *move = &all->tree.move[m];
		const uint32_t chunks = chunks_of(all, move);

		first[m] = n;
		made->items[m] = chunks;
		for (uint32_t c = 0; c < chunks; c++) {
			int r = add_chunk(job, all, move, c, err);

			if (r == 0)
				r = request_check_effort(all->steps, err);
			if (r < 0 && r != PLANNING_LATER)
				return r;
			is_later |= r == PLANNING_LATER;
			after[n++] = move->parent == MULTICAST_SOURCE ? SPREAD_AT_ONCE
			             : made->items[move->parent] == 1 ? first[move->parent]
			                                              : first[move->parent] + c;
		}
	}
	made->n = all->tree.n;
	return is_later ? (err->status = PLANNING_LATER) : 0;
}

/* ---- The job ------------------------------------------------------------------------------------------- */

/* Counts each destination as a transform, with a share of the engines' time in proportion to its bytes. */
static void count_destinations(struct job *job, const struct made *made, uint64_t bytes)
{
	const struct batch_item *item = job->parts->items;
	const struct engine_move *move = job->parts->moves;
	const double share = bytes ? (double)job->engine_job.ns / (double)bytes : 0;
	uint64_t counted = 0, counted_ns = 0;

	for (uint32_t m = 0; m < made->n; m++) {
		const uint32_t device = item->device;
		uint64_t own = 0, ns;
		enum family family;

		for (uint32_t i = 0; i < made->items[m]; i++, item++) {
			own += batch_item_moved(item, move, &family);
			job_count_item(job, item, move);
			move += item->n_moves;
		}
		counted += own;
		ns = (uint64_t)(share * (double)counted + 0.5) - counted_ns;
		counted_ns += ns;
		job_count_on(job, device, family, own, ns);
	}
}

static uint64_t bytes_moved(const struct batch *batch)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < batch->n_moves; i++)
		bytes += batch->moves[i].transform->bytes;
	return bytes;
}

/* The path in the reply is that of the first move, which executes the request's own transform. */
static void answer_destinations(struct job *job)
{
	struct msg_transform_done done = { .bytes = bytes_moved(job->parts), .ns = job->engine_job.ns };
	enum family family;

	batch_item_moved(job->parts->items, job->parts->moves, &family);
	done.path = bytes_of(family_names[family]);
	count_destinations(job, job->own, done.bytes);
	job_reply(job, &done);
}

static void release(struct job *job)
{
	free(job->own);
}

static int run_on_devices(struct job *job, const struct destinations *all, const uint32_t *after,
                          struct error *err)
{
	struct batch *batch = job->parts;
	bool is_one = true;
	int r = job_run_on(job, batch->items[0].device, err);

	for (uint32_t i = 1; i < batch->n; i++)
		is_one &= batch->items[i].device == batch->items[0].device;
	if (r < 0 || (all->is_star && is_one))
		return r;
	return all->is_star ? spread_new(job, batch, &job->spread, err)
	                    : spread_new_tree(job, batch, after, &job->spread, err);
}

static int fill_destinations(struct job *job, const void *arg, struct error *err)
{
	const struct destinations *all = arg;
	const uint32_t n_items = all->n * all->cut.n;
	uint32_t *after = malloc(n_items * sizeof *after);
	int r = transforms_charge_add(&job->charge, all->n - 1, err);

	job->own = malloc(sizeof(struct made) + all->n * sizeof(uint32_t));
	job->release = release;
	job->parts = batch_new(job->session->service, n_items);
	if (r == 0 && (!after || !job->own || !job->parts))
		r = error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " destinations", all->n);
	if (r == 0)
		r = add_moves(job, all, job->own, after, err);
	if (r == 0)
		r = run_on_devices(job, all, after, err);
	free(after);
	return r;
}

int destinations_start(struct session *session, const struct rpc_request *request, const struct order *order,
                       struct error *err)
{
	const struct msg_transform *params = &request->params.transform;
	struct destinations *all = NULL;
	struct region *src;
	int r = request_check_further(params, err);

	if (r == 0) {
		all = calloc(1, sizeof *all + (1 + params->further_dst.n) * sizeof all->of[0]);
		r = all ? take_destinations(all, session, params, err)
		        : error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " destinations",
		                    1 + params->further_dst.n);
	}
	if (r == 0)
		r = request_check_destinations(all->of, all->n, all->steps, err);
	if (r == 0)
		r = region_table_find(&session->regions, params->src.region, "src.region", &src, err);
	if (r == 0) {
		plan_moves(all, session, src);
		r = start_steps(session, request, order, answer_destinations, fill_destinations, all, all->n,
		                err);
	}
	free(all);
	return r;
}

/* ==== Through host memory ============================================================================ */

/* A transform is cut into boxes, each of which takes two moves: one packs the box's source into host memory,
 * the other one moves it from there to its destination. The buffer has two halves, which boxes use in turn.
 *
 * MOST_BOXES is the maximum number of boxes of a transform, and MOST_BOX_BYTES the maximum size of a box's
 * source.
 */

#define MOST_BOXES     256
#define MOST_BOX_BYTES (UINT64_C(64) << 20)
#define ALIGN_BYTES    256 /* alignment of each half, for the fastest plans */

struct bounced {
	const struct msg_transform *params;
	struct placed placed;          /* places of the whole transform; the device is not set */
	struct region *bounce;         /* the buffer */
	uint64_t half_bytes;           /* size of each half of the buffer */
	bool may[TENSOR_MAX_RANK];     /* dimensions of dst that may be cut */
	int64_t rows[TENSOR_MAX_RANK]; /* maximum number of rows of a box, by dimension of dst */
	uint32_t n;                    /* number of boxes */
};

bool transform_is_bounced(struct session *session, const struct msg_transform *params)
{
	const struct devices *devices = &session->service->devices;
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

/* Plans boxes whose source has at most half_bytes, if that is possible, by cutting one dimension after the
 * other, beginning with the outermost one. Sets b->rows and b->n, which is MOST_BOXES + 1 if there are too
 * many boxes. Returns the number of bytes of a box's source. */
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
		n = n <= MOST_BOXES ? n : MOST_BOXES + 1;
	}
	b->n = (uint32_t)n;
	return left;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int plan_bounced(struct bounced *b, uint64_t chunk_bytes, struct error *err)
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

/* Reduces the transform to the box with the number `box`. */
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

static int add_box(struct job *job, const struct msg_transform *params, const struct placed *placed,
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

/* Returns the box's source as it lies in the buffer: without strides, region and offset. */
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
	return add_box(job, &params, &placed, b->placed.src->device, err);
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
	return add_box(job, box, &placed, b->placed.dst->device, err);
}

/* Plans both moves of all boxes and adds them to the batch. after[i] is set as spread_new_tree takes it.
 * After a move that has to wait for memory or plans, the others are planned all the same, so that everything
 * is mapped and made together. Returns PLANNING_LATER if a move has to wait. */
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
		after[2 * i] = i < 2 ? SPREAD_AT_ONCE : 2 * i - 3; /* the move that empties the half */
		after[2 * i + 1] = 2 * i;
	}
	return is_later ? (err->status = PLANNING_LATER) : 0;
}

/* ---- The job ------------------------------------------------------------------------------------------- */

/* The path in the reply is that of the first box's second move, which executes the request's own
 * transform. */
static void answer_bounced(struct job *job)
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

static int fill_bounced(struct job *job, const void *arg, struct error *err)
{
	const struct bounced *b = arg;
	uint32_t *after = malloc(2 * b->n * sizeof *after);
	int r = 0;

	job->parts = batch_new(job->session->service, 2 * b->n);
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

int bounced_start(struct session *session, const struct rpc_request *request, const struct order *order,
                  struct error *err)
{
	struct bounced b = { .params = &request->params.transform };
	struct checked_transform checked;
	int r = transform_check(session, b.params, &checked, err);

	if (r == 0) {
		b.placed = checked.placed;
		r = plan_bounced(&b, session->service->limits.device_chunk_bytes, err);
	}
	if (r == 0)
		r = bounce_find(session, b.placed.src->device, 2 * b.half_bytes, &b.bounce, err);
	return r < 0 ? r : start_steps(session, request, order, answer_bounced, fill_bounced, &b, 1, err);
}
