/* SPDX-License-Identifier: Apache-2.0 */
/* Makes lists of blocks: those of gather and scatter, which move a block for each entry of a list, and those
 * of runs over tables, which move one block in each layer of the tables. */
#include "blocks_job.h"

#include <endian.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/request.h"
#include "job.h"
#include "planning.h"
#include "table.h"

static int find_table(struct session *session, const struct request_layers *fields, struct table **ret,
                      struct error *err);
static int plan_blocks(struct session *session, const struct msg_blocks *p, struct blocks_job *list,
                       struct error *err);

/* Makes a list that holds copies of what came in the message, and charges for these. On success, takes over
 * the references to the tables. */
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
	r = charge_take(&list->charge, &session->service->accounts, session->account, CHARGE_LIST_BYTES,
	                bytes, err);
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

/* Turns the list into one entry of -1, which moves nothing. Called for a list without entries, or whose
 * blocks have no elements. The list still goes to the engine, because the job has to keep its place in the
 * stream and to set its signal. */
static void blocks_job_move_nothing(struct blocks_job *list)
{
	static const int64_t nothing = -1;

	list->blocks.n = 1;
	list->blocks.layers = 1;
	list->blocks.pairs = false;
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

/* Sets *ret to the table with the layers of a side, with a reference for the caller. Leaves *ret alone if the
 * side has no table. */
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

/* Finds the place of block 0 in the first layer. On a side with a table, the tensor's offset counts from the
 * place of each entry. */
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

/* Does what placed_settle does, and has the device reach all entries of the tables. Then sets the layers of
 * the list to the entries of the tables, with the addresses that they have on the device. */
static int blocks_job_settle(struct blocks_job *list, uint32_t device, struct error *err)
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
		return blocks_check_list(blocks, &session->service->seen, err);
	r = region_table_find(&session->regions, p->index_at.region, "index_at", &list->index, err);
	if (r == 0)
		r = region_reach(list->index, list->placed.device, err);
	if (r < 0)
		return r;
	place = place_of(list->index, p->index_at.offset);
	blocks->index_memory = region_memory(list->index, list->placed.device);
	blocks->index_offset = p->index_at.offset;
	r = blocks_check_index(blocks, t, &dst, &place, err);
	return r < 0 ? r : blocks_check_unread(blocks, err);
}

/* Returns what the plan may rely on about the places of all blocks. */
static struct plan_places blocks_job_places(const struct blocks_job *list)
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
	struct tensor_place dst, src;
	int r = request_block_spec(&transform, &spec, err);

	if (r == 0)
		r = place_sides(session, p, list, err);
	if (r == 0)
		r = placed_find_operands(session, &transform, &list->placed, err);
	if (r == 0)
		r = blocks_job_settle(list, DEVICE_ANY, err);
	if (r < 0)
		return r;
	dst = place_of(placed->dst, placed->dst_offset);
	src = place_of(placed->src, placed->src_offset);
	r = request_set_steps(p, &spec, &dst, &src, blocks, err);
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

/* ==== Runs over tables =============================================================================== */

/* A run of a plan over tables is a list of one block, which is moved in each layer of the tables. */

static const int32_t the_block = 0;

static void use_table(const struct table *table, struct region **ret, uint64_t *ret_offset)
{
	*ret = table->regions[0];
	*ret_offset = table->layers.places[0].at.offset;
}

/* Finds the tables of a run, and the places of their first entries. */
static int place_run(struct session *session, const struct msg_plan_run *p, struct blocks_job *list,
                     struct error *err)
{
	struct placed *placed = &list->placed;
	int r = table_find(session, p->dst_table, "dst_table", &list->dst_table, err);

	if (r == 0)
		r = layer_table_check_writable(&list->dst_table->layers, "dst_table", err);
	if (r < 0)
		return r;
	use_table(list->dst_table, &placed->dst, &placed->dst_offset);
	list->blocks.layers = list->dst_table->layers.n;
	if (!(p->has & F(plan_run, src_table))) {
		placed->src_offset = p->src.offset;
		return region_table_find(&session->regions, p->src.region, "src", &placed->src, err);
	}
	r = table_find(session, p->src_table, "src_table", &list->src_table, err);
	if (r < 0)
		return r;
	use_table(list->src_table, &placed->src, &placed->src_offset);
	if (list->src_table->layers.n != list->blocks.layers)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "src_table: %" PRIu32 " entries, but dst_table has %" PRIu32,
		                 list->src_table->layers.n, list->blocks.layers);
	return 0;
}

/* ---- On which devices ---------------------------------------------------------------------------------- */

void blocks_job_place(const struct blocks_job *list, uint32_t i, struct placed *ret)
{
	ret->dst = list->dst_table->regions[i];
	ret->dst_offset = list->dst_table->layers.places[i].at.offset;
	if (!list->src_table)
		return;
	ret->src = list->src_table->regions[i];
	ret->src_offset = list->src_table->layers.places[i].at.offset;
}

/* Returns the device that a transform of entry i alone would run on. */
static uint32_t own_device(const struct blocks_job *list, uint32_t i)
{
	struct placed at = list->placed;

	blocks_job_place(list, i, &at);
	return at.dst->memory->host && !at.src->memory->host ? at.src->device : at.dst->device;
}

uint32_t blocks_job_device(const struct blocks_job *list, uint32_t i)
{
	return list->is_spread ? own_device(list, i) : list->placed.device;
}

uint32_t blocks_job_devices(const struct blocks_job *list, uint32_t ret[ENGINES_MOST])
{
	bool is_there[ENGINES_MOST] = { false };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->blocks.layers; i++) {
		const uint32_t device = blocks_job_device(list, i);

		if (!is_there[device])
			ret[n++] = device;
		is_there[device] = true;
	}
	return n;
}

static bool is_spread(const struct blocks_job *list)
{
	for (uint32_t i = 1; i < list->blocks.layers; i++)
		if (own_device(list, i) != own_device(list, 0))
			return true;
	return false;
}

/* Has each device reach the regions of its own entries, and the operands. */
static int settle_entries(struct blocks_job *list, struct error *err)
{
	int r = 0;

	list->placed.device = own_device(list, 0);
	for (uint32_t i = 0; i < list->blocks.layers && (r == 0 || r == REACH_LATER); i++) {
		struct placed at = list->placed;
		int one;

		blocks_job_place(list, i, &at);
		one = placed_settle(&at, own_device(list, i), err);
		r = one < 0 ? one : r;
	}
	blocks_use_table(&list->blocks.dst, &list->dst_table->layers);
	if (list->src_table)
		blocks_use_table(&list->blocks.src, &list->src_table->layers);
	return r;
}

static int settle(struct session *session, struct blocks_job *list, uint32_t device, struct error *err)
{
	if (device != DEVICE_ANY || session->service->devices.n == 1 || !is_spread(list))
		return blocks_job_settle(list, device, err);
	list->is_spread = true;
	return settle_entries(list, err);
}

/* Returns the place of the first entry that runs on the device, with the list's operands. */
static struct placed first_of(const struct blocks_job *list, uint32_t device)
{
	struct placed at = list->placed;
	uint32_t i = 0;

	while (blocks_job_device(list, i) != device)
		i++;
	blocks_job_place(list, i, &at);
	at.device = device;
	return at;
}

/* Makes one plan for each device, which suits all of its entries. */
static int plan_devices(struct session *session, const struct msg_plan_run *p, struct blocks_job *list,
                        struct error *err)
{
	const struct plan_places places = blocks_job_places(list);
	uint32_t devices[ENGINES_MOST];
	const uint32_t n = blocks_job_devices(list, devices);
	bool is_later = false;

	for (uint32_t i = 0; i < n; i++) {
		struct placed at = first_of(list, devices[i]);
		int r = prepared_plan_for(session, p, places, i == 0 ? &list->placed : &at,
		                          &list->plan[devices[i]], err);

		is_later |= r == PLANNING_LATER;
		if (r < 0 && r != PLANNING_LATER)
			return r;
	}
	return is_later ? err->status = PLANNING_LATER : 0;
}

static int plan_run(struct session *session, const struct msg_plan_run *p, uint32_t device,
                    struct blocks_job *list, struct error *err)
{
	const struct placed *placed = &list->placed;
	struct tensor_place dst, src;
	int r = place_run(session, p, list, err);

	if (r == 0)
		r = settle(session, list, device, err);
	if (r == 0)
		r = plan_devices(session, p, list, err);
	if (r == 0 && list->is_spread)
		r = settle_entries(list, err); /* again, because the operands are known only now */
	if (r < 0)
		return r;
	dst = place_of(placed->dst, placed->dst_offset);
	src = place_of(placed->src, placed->src_offset);
	return blocks_check(&list->blocks, engine_plan_transform(list->plan[placed->device]), &dst, &src,
	                    NULL, err);
}

int blocks_job_of_run(struct session *session, const struct msg_plan_run *p, uint32_t device,
                      struct blocks_job **ret, struct error *err)
{
	struct blocks_job *list;
	int r = request_check_run_tables(p, err);

	if (r < 0)
		return r;
	list = malloc(sizeof *list);
	if (!list)
		return error_set(err, STATUS_NO_MEMORY, "no memory for a list of blocks");
	*list = (struct blocks_job){
		.blocks = { .n = 1, .limit = 1, .index = &the_block, .index_bytes = sizeof the_block }, .n = 1
	};
	r = plan_run(session, p, device, list, err);
	if (r < 0) {
		blocks_job_free(list);
		return r;
	}
	if (engine_plan_transform(list->plan[list->placed.device])->count == 0)
		blocks_job_move_nothing(list);
	*ret = list;
	return 0;
}
