/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the fields in this order: entries, tables and layers on their own, the transform and its places,
 * then everything that lies in memory (kernels/transform/blocks.h). */
#include "blocks_job.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/net/session.h"
#include "daemon/resource/job.h"
#include "daemon/resource/planning.h"
#include "daemon/resource/reach.h"
#include "daemon/resource/table.h"
#include "daemon/server.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/request_blocks.h"

static int find_table(struct session *session, const struct request_layers *fields, struct table **ret,
                      struct error *err);
static int plan_blocks(struct session *session, const struct msg_blocks *p, struct blocks_job *list,
                       struct error *err);

/* A list with its tables, which it takes over, and room for what came in the message. */
static int new_list(struct session *session, const struct msg_blocks *p, const struct engine_blocks *blocks,
                    struct table *const tables[2], struct blocks_job **ret, struct error *err)
{
	const size_t bytes = request_list_bytes(p);
	struct blocks_job *list = malloc(sizeof *list + bytes);
	int r;

	if (!list)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of blocks");
	*list = (struct blocks_job){ .blocks = *blocks, .n = blocks->n };
	list->sorted = request_copy_lists(p, list->words, &list->blocks);
	r = charge_take(&list->charge, &session->server->accounts, session->account, CHARGE_LIST_BYTES, bytes,
	                err);
	if (r < 0) {
		blocks_job_free(list);
		return r;
	}
	list->dst_table = tables[0];
	list->src_table = tables[1];
	*ret = list;
	return 0;
}

int blocks_job_new(struct session *session, const struct msg_blocks *p, bool scatter, struct blocks_job **ret,
                   struct error *err)
{
	const struct request_layers sides[2] = { REQUEST_LAYERS(p, dst), REQUEST_LAYERS(p, src) };
	struct engine_blocks blocks = { .scatter = scatter,
		                        .dst.layer_step = p->dst_layer_step,
		                        .src.layer_step = p->src_layer_step };
	struct table *tables[2] = { NULL, NULL };
	struct blocks_job *list = NULL;
	int r = request_check_entries(p, &blocks, err);

	for (int i = 0; i < 2 && r == 0; i++)
		r = find_table(session, &sides[i], &tables[i], err);
	if (r == 0)
		r = request_count_layers(p, sides,
		                         (const uint32_t[2]){ tables[0] ? tables[0]->layers.n : 0,
		                                              tables[1] ? tables[1]->layers.n : 0 },
		                         &blocks.layers, err);
	if (r == 0)
		r = new_list(session, p, &blocks, tables, &list, err);
	if (r < 0) {
		table_unref(tables[0]);
		table_unref(tables[1]);
		return r;
	}
	r = plan_blocks(session, p, list, err);
	if (r < 0) {
		blocks_job_free(list);
		return r;
	}
	*ret = list;
	return 0;
}

static void release(struct job *job)
{
	blocks_job_free(job->own);
}

int blocks_job_start(struct session *session, const struct rpc_request *request, const struct order *order,
                     struct blocks_job *list, void (*answer)(struct job *job), struct error *err)
{
	struct job *job = job_new(session, request, order, answer, err);
	int r = job ? job_run_on(job, list->placed.device, err) : err->status;

	if (r < 0) {
		if (job)
			job_drop(job);
		blocks_job_free(list);
		return r;
	}
	job_set_blocks(job, list->plan[list->placed.device], &list->placed, &list->blocks);
	job->own = list;
	job->release = release;
	if (list->index)
		job_use(job, list->index);
	job_submit(job);
	return 0;
}

void blocks_job_move_nothing(struct blocks_job *list)
{
	static const int64_t nothing = -1;

	list->blocks.n = 1;
	list->blocks.layers = 1;
	list->blocks.index = &nothing;
	list->n = 0;
}

void blocks_job_free(struct blocks_job *list)
{
	table_unref(list->dst_table);
	table_unref(list->src_table);
	for (uint32_t i = 0; i < ENGINES_MOST; i++)
		engine_plan_unref(list->plan[i]);
	charge_release(&list->charge);
	free(list);
}

/* ---- Entries and layers by themselves ---------------------------------------------------------------- */

/* The table that a side's layers are in, with a reference; NULL: it has none. */
static int find_table(struct session *session, const struct request_layers *fields, struct table **ret,
                      struct error *err)
{
	const char *name = request_table_name(fields);
	int r = request_check_table(fields, err);

	if (r < 0 || !request_has_table(fields))
		return r;
	return fields->has_table ? table_find(session, fields->table, name, ret, err)
	                         : table_new(session, fields->places, name, ret, err);
}

/* ---- The transform, and what lies in memory ------------------------------------------------------------ */

/* Where block 0 of the first layer lies; one that lies by a table is as far behind its entry as the tensor's
 * offset says. */
static int place_side(struct session *session, const struct request_layers *fields, const struct table *table,
                      const char *region_name, struct region **ret, uint64_t *ret_offset, struct error *err)
{
	const struct msg_tensor *tensor = fields->tensor;

	*ret_offset = tensor->offset;
	if (table) {
		*ret = table->regions[0];
		*ret_offset += table->layers.places[0].at.offset;
		return 0;
	}
	if (!(tensor->has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s.region: missing", fields->side);
	return region_table_find(&session->regions, tensor->region, region_name, ret, err);
}

static int place_sides(struct session *session, const struct msg_blocks *p, struct blocks_job *list,
                       struct error *err)
{
	const struct request_layers dst = REQUEST_LAYERS(p, dst), src = REQUEST_LAYERS(p, src);
	struct placed *placed = &list->placed;
	int r =
	    place_side(session, &dst, list->dst_table, "dst.region", &placed->dst, &placed->dst_offset, err);

	if (r == 0)
		r = place_side(session, &src, list->src_table, "src.region", &placed->src,
		               &placed->src_offset, err);
	if (r < 0)
		return r;
	return list->dst_table
	           ? layer_table_check_writable(&list->dst_table->layers, request_table_name(&dst), err)
	           : region_check_writable(placed->dst, "dst.region", err);
}

static int settle_side(struct table *table, uint32_t device, struct engine_blocks_side *side,
                       struct error *err)
{
	struct layer_table *layers;
	int r = table ? table_reach(table, device, &layers, err) : 0;

	if (table && r == 0)
		blocks_use_table(side, layers);
	return r;
}

int blocks_job_settle(struct blocks_job *list, uint32_t device, struct error *err)
{
	int r = placed_settle(&list->placed, device, err), one;

	for (int i = 0; i < 2 && (r == 0 || r == REACH_LATER); i++) {
		one = settle_side(i ? list->src_table : list->dst_table, list->placed.device,
		                  i ? &list->blocks.src : &list->blocks.dst, err);
		r = one < 0 ? one : r;
	}
	return r;
}

static int check_list(struct session *session, const struct msg_blocks *p, const struct transform *t,
                      struct blocks_job *list, struct error *err)
{
	const struct placed *placed = &list->placed;
	const struct tensor_place dst = place_of(placed->dst, placed->dst_offset);
	const struct tensor_place src = place_of(placed->src, placed->src_offset);
	struct engine_blocks *blocks = &list->blocks;
	struct tensor_place place;
	int r = blocks_check(blocks, t, &dst, &src, list->sorted, err);

	if (r < 0)
		return r;
	if (blocks->index)
		return blocks_check_list(blocks, &session->server->seen, err);
	r = region_table_find(&session->regions, p->index_at.region, "index_at", &list->index, err);
	if (r == 0)
		r = region_reach(list->index, list->placed.device, err);
	if (r < 0)
		return r;
	place = place_of(list->index, p->index_at.offset);
	blocks->index_memory = region_memory(list->index, list->placed.device);
	blocks->index_offset = p->index_at.offset;
	return blocks_check_index(blocks, t, &dst, &place, err);
}

struct plan_places blocks_job_places(const struct blocks_job *list)
{
	const struct placed *placed = &list->placed;

	return plan_places_of_many(blocks_bits(&list->blocks, placed->dst->memory->base + placed->dst_offset,
	                                       placed->src->memory->base + placed->src_offset));
}

static int plan_blocks(struct session *session, const struct msg_blocks *p, struct blocks_job *list,
                       struct error *err)
{
	const struct msg_transform transform = request_block(p);
	const struct placed *placed = &list->placed;
	struct engine_blocks *blocks = &list->blocks;
	const struct transform *checked;
	struct transform_spec spec;
	struct tensor_place indexed;
	int r = request_block_spec(&transform, &spec, err);

	if (r == 0)
		r = place_sides(session, p, list, err);
	if (r == 0)
		r = placed_find_operands(session, &transform, &list->placed, err);
	if (r == 0)
		r = blocks_job_settle(list, DEVICE_ANY, err);
	if (r < 0)
		return r;
	indexed = blocks->scatter ? place_of(placed->dst, placed->dst_offset)
	                          : place_of(placed->src, placed->src_offset);
	r = request_set_steps(p, &spec, &indexed, blocks, err);
	if (r < 0)
		return r;
	r = planning_get(session, placed->device, &spec, blocks_job_places(list), &list->plan[placed->device],
	                 err);
	if (r < 0)
		return r;
	checked = engine_plan_transform(list->plan[placed->device]);
	r = placed_check_operands(placed, NULL, &checked->conversion, err);
	if (r == 0)
		r = check_list(session, p, checked, list, err);
	if (r < 0)
		return r;
	if (blocks->n == 0 || checked->count == 0)
		blocks_job_move_nothing(list);
	return 0;
}
