/* SPDX-License-Identifier: Apache-2.0 */
/* Submits: many transforms and runs of plans in one request. Each is checked and run separately, and has a
 * status. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* maximum number of bytes of all error messages in a reply */
#define MOST_SENTENCES (64 * 1024)

/* Outcomes of the items of a submit. The session owns them until the next submit. */
struct local_items {
	int32_t *statuses;
	struct msg_item_error *errors;
	char *sentences;
	size_t sentences_len;
	uint32_t n_errors;
};

void local_items_free(struct local_items *items)
{
	if (!items)
		return;
	free(items->statuses);
	free(items->errors);
	free(items->sentences);
	free(items);
}

static struct local_items *items_new(uint32_t n)
{
	struct local_items *items = calloc(1, sizeof *items);

	if (!items)
		return NULL;
	items->statuses = calloc(n ? n : 1, sizeof *items->statuses);
	items->errors = calloc(n ? n : 1, sizeof *items->errors);
	items->sentences = malloc(MOST_SENTENCES);
	if (items->statuses && items->errors && items->sentences)
		return items;
	local_items_free(items);
	return NULL;
}

/* Sets the status of an item, and keeps its error if the message fits into what is left of
 * items->sentences. */
static void keep_error(struct local_items *items, uint32_t i, const struct error *error)
{
	const size_t len = strlen(error->message);
	char *sentence = items->sentences + items->sentences_len;

	items->statuses[i] = error->status;
	if (len > MOST_SENTENCES - items->sentences_len)
		return;
	memcpy(sentence, error->message, len);
	items->sentences_len += len;
	items->errors[items->n_errors++] = (struct msg_item_error){
		.item = i, .name = bytes_of(status_name(error->status)), .message = { sentence, len }
	};
}

static int run_item(struct local_session *session, const struct msg_submit *p, uint32_t i,
                    struct msg_transform_done *ret, struct error *err)
{
	struct submit_item item;
	int r = rpc_decode_item(&p->items, i, &item, err);

	if (r < 0)
		return r;
	if (item.is_run)
		item.run.order = p->order;
	else
		item.transform.order = p->order;
	return item.is_run ? local_plan_run(session, &item.run, ret, err)
	                   : local_transform_run(session, &item.transform, ret, err);
}

int local_method_submit(struct local_session *session, const union params *params, union local_result *ret,
                        struct error *err)
{
	const struct msg_submit *p = &params->submit;
	struct msg_submit_done *done = &ret->submit_done;

	local_items_free(session->items);
	session->items = items_new(p->items.n);
	if (!session->items)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " items", p->items.n);
	*done = (struct msg_submit_done){ 0 };
	session->is_of_items = true;
	for (uint32_t i = 0; i < p->items.n; i++) {
		struct msg_transform_done one;
		struct error failed;

		if (run_item(session, p, i, &one, &failed) < 0) {
			keep_error(session->items, i, &failed);
			local_count_error(session, failed.status);
			continue;
		}
		done->bytes += one.bytes;
		done->ns += one.ns;
	}
	session->is_of_items = false;
	done->statuses = (struct code_list){ .codes = session->items->statuses, .n = p->items.n };
	done->errors =
	    (struct message_list){ .items = session->items->errors, .n = session->items->n_errors };
	return 0;
}
