/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of batches, and their results: a status for each item, and sentences for the first items that
 * failed. */
#include "batch.h"

#include <stdlib.h>
#include <string.h>

#include "plan_cache.h"
#include "proto/text.h"
#include "region.h"
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
	size_t each = sizeof(struct batch_item) + sizeof(struct engine_move) + sizeof(int32_t);
	struct batch *batch = malloc(sizeof *batch + room * each);

	if (!batch)
		return NULL;
	*batch = (struct batch){ .room = room };
	batch->items = (struct batch_item *)(batch + 1);
	batch->moves = (struct engine_move *)(batch->items + room);
	batch->statuses = (int32_t *)(batch->moves + room);
	return batch;
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
	batch->n = batch->n_moves = 0;
	batch->errors_bytes = server->limits.reply_pause_bytes;
	return batch;
}

void batch_free(struct batch *batch)
{
	struct server *server = batch->server;

	const struct engine_move *move = batch->moves;

	for (uint32_t i = 0; i < batch->n; i++) {
		struct batch_item *item = &batch->items[i];

		if (!item->plan)
			continue;
		plan_entry_done(item->plan, (move++)->plan, NULL);
		plan_entry_unref(item->plan);
		region_unuse(item->dst);
		region_unuse(item->src);
	}
	buffer_deinit(&batch->sentences);
	if (!server->kept_batch && batch->room <= ROOM_KEPT_MOST)
		server->kept_batch = batch;
	else
		free(batch);
}

void batch_free_kept(struct server *server)
{
	free(server->kept_batch);
}

/* ---- Items -------------------------------------------------------------------------------------------- */

void batch_add(struct batch *batch, struct plan_entry *plan, const struct placed *placed)
{
	batch->items[batch->n++] =
	    (struct batch_item){ .plan = plan, .dst = placed->dst, .src = placed->src };
	region_use(placed->dst);
	region_use(placed->src);
	batch->moves[batch->n_moves++] = placed_move(plan, plan_entry_use(plan, false), placed);
}

/* Sentences for which the reply will have no room are not kept. */
void batch_refuse(struct batch *batch, const struct error *error)
{
	struct batch_item *item = &batch->items[batch->n];
	char sentence[sizeof error->message];
	size_t len = text_clean(error->message, strnlen(error->message, sizeof error->message), sentence,
	                        sizeof sentence);
	size_t at = buffer_len(&batch->sentences);

	*item = (struct batch_item){ .sentence = UNSAID };
	if (at < batch->errors_bytes && buffer_append(&batch->sentences, sentence, len + 1) == 0)
		item->sentence = at;
	batch->statuses[batch->n++] = error->status;
}

/* ---- The result --------------------------------------------------------------------------------------- */

/* Fills in the statuses of the moves. Returns how many items of all failed. */
static uint32_t take_statuses(struct batch *batch, uint64_t *ret_bytes)
{
	const struct engine_move *move = batch->moves;
	uint32_t n_bad = 0;

	*ret_bytes = 0;
	for (uint32_t i = 0; i < batch->n; i++) {
		if (batch->items[i].plan) {
			batch->statuses[i] = move->status;
			*ret_bytes += move->status ? 0 : move->transform->bytes;
			move++;
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
		const char *sentence;

		if (status == 0)
			continue;
		if (!item->plan && item->sentence == UNSAID)
			break;
		sentence = item->plan ? status_meaning(status)
		                      : (const char *)batch->sentences.data + item->sentence;
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
