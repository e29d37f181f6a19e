/* SPDX-License-Identifier: Apache-2.0 */
/* From a transform with several destinations to the moves of its tree. */
#include "destinations.h"

#include <inttypes.h>
#include <stdlib.h>

#include "cuts.h"
#include "daemon/net/session.h"
#include "daemon/resource/batch.h"
#include "daemon/resource/job.h"
#include "daemon/resource/links.h"
#include "daemon/resource/multicast.h"
#include "daemon/resource/planning.h"
#include "daemon/resource/spread.h"
#include "daemon/server.h"
#include "kernels/transform/request_further.h"
#include "proto/overlap.h"
#include "order.h"
#include "proto/wire/rpc.h"
#include "transforms.h"

struct destinations {
	struct msg_transform transform; /* from the source to any of them */
	struct multicast_tree tree;
	bool is_star;
	struct multicast_cut cut;
	bool is_first_cut; /* what is made from the source is cut too */
	uint64_t steps;    /* that searches for overlaps had taken before the request */
	uint32_t n;
	struct region *regions[1 + MULTICAST_FURTHER];
	struct request_destination of[];
};

/* Of the job, for its answer: how many items of its batch make each move of the tree. */
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

static int take(struct destinations *all, struct session *session, const struct msg_transform *params,
                struct error *err)
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

/* A star makes a conversion as often as there are destinations, and would count what it changes as often. */
static void plan_moves(struct destinations *all, struct session *session, struct region *src)
{
	const struct devices *devices = &session->server->devices;
	const uint64_t chunk_bytes = session->server->limits.device_chunk_bytes;
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

/* A destination is made by the transform, or as a copy of another one. */
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

/* Those that wait for memory or plans are tried all the same, so that all of it is mapped and made at once;
 * the result is then PLANNING_LATER. */
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

/* Each destination gets a share of the engines' time by its bytes. */
static void count(struct job *job, const struct made *made, uint64_t bytes)
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
			links_count_item(&job->session->server->devices, item, move);
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

/* The path is that of the first move, the transform's. */
static void answer(struct job *job)
{
	struct msg_transform_done done = { .bytes = bytes_moved(job->parts), .ns = job->engine_job.ns };
	enum family family;

	batch_item_moved(job->parts->items, job->parts->moves, &family);
	done.path = bytes_of(family_names[family]);
	count(job, job->own, done.bytes);
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

static int fill_job(struct job *job, const struct destinations *all, struct error *err)
{
	const uint32_t n_items = all->n * all->cut.n;
	uint32_t *after = malloc(n_items * sizeof *after);
	int r = job_charge(job, all->n - 1, err);

	job->own = malloc(sizeof(struct made) + all->n * sizeof(uint32_t));
	job->release = release;
	job->parts = batch_new(job->session->server, n_items);
	if (r == 0 && (!after || !job->own || !job->parts))
		r = error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " destinations", all->n);
	if (r == 0)
		r = add_moves(job, all, job->own, after, err);
	if (r == 0)
		r = run_on_devices(job, all, after, err);
	free(after);
	return r;
}

static int start(struct session *session, const struct rpc_request *request, const struct order *order,
                 const struct destinations *all, struct error *err)
{
	struct job *job = job_new(session, request, order, answer, err);
	int r;

	if (!job)
		return err->status;
	r = fill_job(job, all, err);
	if (r < 0) {
		job_drop(job);
		return r;
	}
	job_submit_parts(job, all->n);
	return 0;
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
		r = all ? take(all, session, params, err)
		        : error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " destinations",
		                    1 + params->further_dst.n);
	}
	if (r == 0)
		r = request_check_destinations(all->of, all->n, all->steps, err);
	if (r == 0)
		r = region_table_find(&session->regions, params->src.region, "src.region", &src, err);
	if (r == 0) {
		plan_moves(all, session, src);
		r = start(session, request, order, all, err);
	}
	free(all);
	return r;
}
