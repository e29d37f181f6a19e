/* SPDX-License-Identifier: Apache-2.0 */
/* A run of a plan over tables of places: one block, in each of their layers. */
#include "blocks_job.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/net/session.h"
#include "daemon/resource/planning.h"
#include "daemon/resource/prepared.h"
#include "daemon/resource/reach.h"
#include "daemon/resource/table.h"
#include "daemon/server.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/request_blocks.h"

static const int32_t the_block = 0;

static void use_table(const struct table *table, struct region **ret, uint64_t *ret_offset)
{
	*ret = table->regions[0];
	*ret_offset = table->layers.places[0].at.offset;
}

/* Finds the tables, and where the first run lies. */
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

/* As of a transform by itself. */
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

/* Each device needs what its own entries name, and the operands. */
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
	if (device != DEVICE_ANY || session->server->devices.n == 1 || !is_spread(list))
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

/* Each device gets a plan of its own, which is right for all of its entries. */
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
		r = settle_entries(list, err); /* now that the operands are known */
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
