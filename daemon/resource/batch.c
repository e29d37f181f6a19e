/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of batches, and their results: a status for each item, and sentences for the first items that
 * failed. */
#include "batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "region.h"
#include "table.h"
#include "daemon/method/blocks_job.h"
#include "daemon/server.h"

/* The smallest batch that is allocated, and the largest that is kept, in items. */
#define ROOM_LEAST     64
#define ROOM_KEPT_MOST 1024

/* The bytes of an error in a reply besides its sentence. */
#define ERROR_BYTES 64

#define UNSAID SIZE_MAX /* the sentence was not kept */

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void deallocate(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->items);
	free(batch->statuses);
	free(batch->moves);
	free(batch);
}

static struct batch *allocate(uint32_t room)
{
	struct batch *batch = malloc(sizeof *batch);

	if (!batch)
		return NULL;
	*batch = (struct batch){ .room = room };
	batch->items = malloc(room * sizeof *batch->items);
	batch->statuses = malloc(room * sizeof *batch->statuses);
	if (batch->items && batch->statuses)
		return batch;
	deallocate(batch);
	return NULL;
}

/* Room for items that continue the last one, besides those that the request has. */
static bool make_item_room(struct batch *batch, uint32_t n)
{
	const uint32_t room = batch->room + n;
	struct batch_item *items = realloc(batch->items, room * sizeof *items);
	int32_t *statuses;

	if (items)
		batch->items = items;
	statuses = items ? realloc(batch->statuses, room * sizeof *statuses) : NULL;
	if (!statuses)
		return false;
	batch->statuses = statuses;
	batch->room = room;
	return true;
}

/* Room for n more moves. */
static bool make_room(struct batch *batch, uint32_t n)
{
	uint32_t room = batch->moves_room ?: batch->room;
	struct engine_move *moves;

	if (batch->moves_room - batch->n_moves >= n)
		return true;
	while (room - batch->n_moves < n)
		room *= 2;
	moves = realloc(batch->moves, room * sizeof *moves);
	if (!moves)
		return false;
	batch->moves = moves;
	batch->moves_room = room;
	return true;
}

struct batch *batch_new(struct server *server, uint32_t n)
{
	struct batch *batch = server->kept_batch;

	if (batch && batch->room >= n)
		server->kept_batch = NULL;
	else
		batch = allocate(n < ROOM_LEAST ? ROOM_LEAST : n);
	if (!batch)
		return NULL;
	batch->server = server;
	batch->n = batch->n_asked = batch->n_good = batch->n_moves = 0;
	batch->errors_bytes = server->limits.reply_pause_bytes;
	if (make_room(batch, 1)) /* an engine knows a batch by its moves, also where there are none */
		return batch;
	deallocate(batch);
	return NULL;
}

#define ITEM_REGIONS 6

/* NULL: none. */
static void regions_of(const struct batch_item *item, struct region *ret[ITEM_REGIONS])
{
	ret[0] = item->dst;
	ret[1] = item->src;
	ret[2] = item->scale;
	ret[3] = item->bias;
	ret[4] = item->amax_scale;
	ret[5] = item->amax_inverse;
}

void batch_free(struct batch *batch)
{
	struct server *server = batch ? batch->server : NULL;
	struct region *regions[ITEM_REGIONS];

	if (!batch)
		return;
	for (uint32_t i = 0; i < batch->n_moves; i++)
		engine_plan_unref(batch->moves[i].plan);
	for (uint32_t i = 0; i < batch->n; i++) {
		if (!batch->items[i].n_moves)
			continue;
		regions_of(&batch->items[i], regions);
		for (int r = 0; r < ITEM_REGIONS; r++)
			if (regions[r])
				region_unuse(regions[r]);
		table_unref(batch->items[i].dst_table);
		table_unref(batch->items[i].src_table);
	}
	buffer_deinit(&batch->sentences);
	if (!server->kept_batch && batch->room <= ROOM_KEPT_MOST && batch->moves_room <= ROOM_KEPT_MOST)
		server->kept_batch = batch;
	else
		deallocate(batch);
}

void batch_free_kept(struct server *server)
{
	deallocate(server->kept_batch);
}

/* ---- Items -------------------------------------------------------------------------------------------- */

static void add_item(struct batch *batch, const struct batch_item *item)
{
	struct region *regions[ITEM_REGIONS];

	regions_of(item, regions);
	batch->items[batch->n++] = *item;
	batch->n_asked += !item->continues;
	batch->n_good += !item->continues;
	for (int i = 0; i < ITEM_REGIONS; i++)
		if (regions[i])
			region_use(regions[i]);
}

/* Takes over the caller's reference to plan. */
static void add_move(struct batch *batch, struct engine_plan *plan, const struct placed *placed)
{
	batch->moves[batch->n_moves++] = placed_move(plan, placed);
}

int batch_add(struct batch *batch, struct parts *parts, struct error *err)
{
	const struct placed *placed = &parts->placed;

	if (!make_room(batch, parts->n)) {
		parts_unref(parts);
		return error_set(err, STATUS_NO_MEMORY, "no memory for the parts of a transform");
	}
	add_item(batch, &(struct batch_item){ .device = placed->device,
	                                      .n_moves = parts->n,
	                                      .largest = parts->largest,
	                                      .dst = placed->dst,
	                                      .src = placed->src,
	                                      .scale = placed->scale.region,
	                                      .bias = placed->bias.region,
	                                      .amax_scale = placed->amax_scale.region,
	                                      .amax_inverse = placed->amax_inverse.region });
	for (uint32_t i = 0; i < parts->n; i++) {
		const struct part *part = &parts->part[i];
		const struct placed at = placed_part(placed, part->dst_offset, part->src_offset);

		add_move(batch, part->plan, &at);
	}
	return 0;
}

/* The runs of a device, as an item. */
static void add_runs(struct batch *batch, const struct blocks_job *list, uint32_t device, bool continues)
{
	struct engine_plan *plan = list->plan[device];
	const struct placed *placed = &list->placed;
	struct batch_item item = { .device = device,
		                   .continues = continues,
		                   .scale = placed->scale.region,
		                   .bias = placed->bias.region,
		                   .dst_table = table_ref(list->dst_table),
		                   .src_table = table_ref(list->src_table) };

	for (uint32_t i = 0; i < list->blocks.layers; i++) {
		struct placed at = *placed;

		if (blocks_job_device(list, i) != device)
			continue;
		at.device = device;
		blocks_job_place(list, i, &at);
		if (item.n_moves++ == 0) { /* that the device reaches */
			item.dst = at.dst;
			item.src = at.src;
		}
		engine_plan_ref(plan);
		add_move(batch, plan, &at);
	}
	add_item(batch, &item);
}

int batch_add_tables(struct batch *batch, const struct blocks_job *list, struct error *err)
{
	const uint32_t n = list->blocks.layers;
	uint32_t devices[ENGINES_MOST];
	const uint32_t n_devices = blocks_job_devices(list, devices);

	if (!make_room(batch, n) || (n_devices > 1 && !make_item_room(batch, n_devices - 1)))
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " moves", n);
	for (uint32_t d = 0; d < n_devices; d++)
		add_runs(batch, list, devices[d], d > 0);
	return 0;
}

/* Where the sentence of an error starts. Those for which the reply will have no room are not kept. */
static size_t keep_sentence(struct batch *batch, const struct error *error)
{
	char sentence[sizeof error->message];
	size_t len = text_clean(error->message, strnlen(error->message, sizeof error->message), sentence,
	                        sizeof sentence);
	size_t at = buffer_len(&batch->sentences);

	if (at < batch->errors_bytes && buffer_append(&batch->sentences, sentence, len + 1) == 0)
		return at;
	return UNSAID;
}

void batch_refuse(struct batch *batch, const struct error *error)
{
	batch->items[batch->n] = (struct batch_item){ .sentence = keep_sentence(batch, error) };
	batch->statuses[batch->n++] = error->status;
	batch->n_asked++;
}

/* ---- The result --------------------------------------------------------------------------------------- */

static uint64_t moved_bytes(const struct engine_move *moves, uint32_t n)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < n; i++)
		bytes += moves[i].status ? 0 : moves[i].transform->bytes;
	return bytes;
}

static int status_of(const struct engine_move *moves, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (moves[i].status)
			return moves[i].status;
	return 0;
}

uint64_t batch_item_moved(const struct batch_item *item, const struct engine_move *moves, enum family *ret)
{
	*ret = moves[item->largest].family;
	return moved_bytes(moves, item->n_moves);
}

int batch_item_status(const struct batch_item *item, const struct engine_move *moves)
{
	return status_of(moves, item->n_moves);
}

void batch_explain_cast(const struct engine_move *moves, uint32_t n, struct error *err)
{
	const struct conversion *conversion = NULL;
	uint64_t changed = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (moves[i].changed > 0)
			conversion = &moves[i].transform->conversion;
		changed += moves[i].changed;
	}
	if (!conversion)
		conversion = &moves->transform->conversion;
	request_explain_changed(conversion, changed, err);
}

uint32_t batch_asked(const struct batch *batch, uint32_t i, uint32_t *ret_moves)
{
	uint32_t n = 0;

	*ret_moves = 0;
	do
		*ret_moves += batch->items[i + n++].n_moves;
	while (i + n < batch->n && batch->items[i + n].continues);
	return n;
}

/* Fills in the statuses of the request's items, and the sentences of casts. Returns how many of all failed.
 * A status of one that was refused is at its place among all items, which is not before its own. */
static uint32_t take_statuses(struct batch *batch, uint64_t *ret_bytes)
{
	const struct engine_move *move = batch->moves;
	uint32_t n_bad = 0, asked = 0, n_moves;

	*ret_bytes = 0;
	for (uint32_t i = 0; i < batch->n; asked++) {
		struct batch_item *item = &batch->items[i];
		int32_t *status = &batch->statuses[asked];

		*status = batch->statuses[i];
		i += batch_asked(batch, i, &n_moves);
		if (n_moves) {
			*status = status_of(move, n_moves);
			if (*status == STATUS_OUT_OF_RANGE) {
				struct error err;

				batch_explain_cast(move, n_moves, &err);
				item->sentence = keep_sentence(batch, &err);
			}
			*ret_bytes += moved_bytes(move, n_moves);
			move += n_moves;
		}
		n_bad += *status != 0;
	}
	return n_bad;
}

/* The errors of the first n_bad items that failed, as far as they fit. Without memory there are none: the
 * statuses are enough. */
static struct message_list errors_of(const struct batch *batch, uint32_t n_bad)
{
	struct msg_item_error *errors = n_bad ? calloc(n_bad, sizeof *errors) : NULL;
	struct message_list list = { .items = errors };
	uint64_t left = batch->errors_bytes;

	for (uint32_t i = 0, asked = 0, ignored; errors && i < batch->n; asked++) {
		const struct batch_item *item = &batch->items[i];
		int status = batch->statuses[asked];
		const char *sentence = status_meaning(status);

		i += batch_asked(batch, i, &ignored);

		if (status == 0)
			continue;
		if (!item->n_moves || status == STATUS_OUT_OF_RANGE) {
			if (item->sentence == UNSAID)
				break;
			sentence = (const char *)batch->sentences.data + item->sentence;
		}
		if (strlen(sentence) + ERROR_BYTES > left)
			break;
		left -= strlen(sentence) + ERROR_BYTES;
		errors[list.n++] = (struct msg_item_error){ .item = asked,
			                                    .name = bytes_of(status_name(status)),
			                                    .message = bytes_of(sentence) };
	}
	return list;
}

uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret)
{
	uint32_t n_bad = take_statuses(batch, &ret->bytes);

	ret->statuses = (struct code_list){ .codes = batch->statuses, .n = batch->n_asked };
	ret->errors = errors_of(batch, n_bad);
	return n_bad;
}
