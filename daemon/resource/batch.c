/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of batches, and their results: a status for each item, and sentences for the first items that
 * failed. */
#include "batch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "plan_cache.h"
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

static struct batch *allocate(uint32_t room)
{
	size_t each = sizeof(struct batch_item) + sizeof(int32_t);
	struct batch *batch = malloc(sizeof *batch + room * each);

	if (!batch)
		return NULL;
	*batch = (struct batch){ .room = room };
	batch->items = (struct batch_item *)(batch + 1);
	batch->statuses = (int32_t *)(batch->items + room);
	return batch;
}

static void deallocate(struct batch *batch)
{
	if (!batch)
		return;
	free(batch->moves);
	free(batch->plans);
	free(batch);
}

/* Room for n more moves. */
static bool make_room(struct batch *batch, uint32_t n)
{
	uint32_t room = batch->moves_room ?: batch->room;
	struct plan_entry **plans;
	struct engine_move *moves;

	if (batch->moves_room - batch->n_moves >= n)
		return true;
	while (room - batch->n_moves < n)
		room *= 2;
	moves = realloc(batch->moves, room * sizeof *moves);
	if (moves)
		batch->moves = moves;
	plans = moves ? realloc(batch->plans, room * sizeof(*plans)) : NULL;
	if (!plans)
		return false;
	batch->plans = plans;
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
	batch->n = batch->n_good = batch->n_moves = 0;
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
	for (uint32_t i = 0; i < batch->n_moves; i++) {
		plan_entry_done(batch->plans[i], batch->moves[i].plan, NULL);
		plan_entry_unref(batch->plans[i]);
	}
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
	batch->n_good++;
	for (int i = 0; i < ITEM_REGIONS; i++)
		if (regions[i])
			region_use(regions[i]);
}

/* Takes over the caller's reference to plan. */
static void add_move(struct batch *batch, struct plan_entry *plan, const struct placed *placed)
{
	batch->moves[batch->n_moves] = placed_move(plan, plan_entry_use(plan, false), placed);
	batch->plans[batch->n_moves++] = plan;
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

int batch_add_tables(struct batch *batch, struct plan_entry *plan, const struct blocks_job *list,
                     struct error *err)
{
	const struct layer_table *dst = list->blocks.dst.table, *src = list->blocks.src.table;
	const struct placed *placed = &list->placed;
	const uint32_t n = dst->n;

	if (!make_room(batch, n))
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " moves", n);
	add_item(batch, &(struct batch_item){ .device = placed->device,
	                                      .n_moves = n,
	                                      .dst = placed->dst,
	                                      .src = placed->src,
	                                      .scale = placed->scale.region,
	                                      .bias = placed->bias.region,
	                                      .dst_table = list->dst_table,
	                                      .src_table = list->src_table });
	for (uint32_t i = 0; i < n; i++) {
		struct engine_move *move = &batch->moves[batch->n_moves];

		if (i > 0)
			plan_entry_ref(plan);
		add_move(batch, plan, placed);
		move->dst = dst->memories[i];
		move->dst_offset = dst->places[i].at.offset;
		if (!src)
			continue;
		move->src = src->memories[i];
		move->src_offset = src->places[i].at.offset;
	}
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
}

/* ---- The result --------------------------------------------------------------------------------------- */

uint64_t batch_item_moved(const struct batch_item *item, const struct engine_move *moves, enum family *ret)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < item->n_moves; i++)
		bytes += moves[i].status ? 0 : moves[i].transform->bytes;
	*ret = moves[item->largest].plan->family;
	return bytes;
}

int batch_item_status(const struct batch_item *item, const struct engine_move *moves)
{
	for (uint32_t i = 0; i < item->n_moves; i++)
		if (moves[i].status)
			return moves[i].status;
	return 0;
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
	error_set(err, STATUS_OUT_OF_RANGE,
	          "cast: exact, but the values of %" PRIu64
	          " element%s of %s are not values of %s; dst has the nearest",
	          changed, text_plural(changed), dtype_names[conversion->from], dtype_names[conversion->to]);
}

/* Fills in the statuses of the moves, and the sentences of casts. Returns how many items of all failed. */
static uint32_t take_statuses(struct batch *batch, uint64_t *ret_bytes)
{
	const struct engine_move *move = batch->moves;
	uint32_t n_bad = 0;

	*ret_bytes = 0;
	for (uint32_t i = 0; i < batch->n; i++) {
		struct batch_item *item = &batch->items[i];
		enum family family;

		if (item->n_moves) {
			batch->statuses[i] = batch_item_status(item, move);
			if (batch->statuses[i] == STATUS_OUT_OF_RANGE) {
				struct error err;

				batch_explain_cast(move, item->n_moves, &err);
				item->sentence = keep_sentence(batch, &err);
			}
			*ret_bytes += batch_item_moved(item, move, &family);
			move += item->n_moves;
		}
		n_bad += batch->statuses[i] != 0;
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

	for (uint32_t i = 0; errors && i < batch->n; i++) {
		const struct batch_item *item = &batch->items[i];
		int status = batch->statuses[i];
		const char *sentence = status_meaning(status);

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
		errors[list.n++] = (struct msg_item_error){ .item = i,
			                                    .name = bytes_of(status_name(status)),
			                                    .message = bytes_of(sentence) };
	}
	return list;
}

uint32_t batch_result(struct batch *batch, struct msg_submit_done *ret)
{
	uint32_t n_bad = take_statuses(batch, &ret->bytes);

	ret->statuses = (struct code_list){ .codes = batch->statuses, .n = batch->n };
	ret->errors = errors_of(batch, n_bad);
	return n_bad;
}
