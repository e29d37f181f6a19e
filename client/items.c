/* SPDX-License-Identifier: Apache-2.0 */
/* Items: many transforms and runs of plans in one request. A message takes as many items as its limit of
 * elements allows. Items that cannot be encoded are refused here, individually.
 *
 * The statuses of the caller's items say which items are under way: those with status PENDING were sent, in
 * the order of the array.
 */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/status.h"

/* Elements of the envelope, the fields and the order of a message. No element has more than 14 bytes of its
 * own (the longest name of a dtype), so a message within the limit of elements is also within that of
 * bytes. */
#define ENVELOPE_ELEMENTS 32
#define RUN_ELEMENTS      10 /* fewest elements of an item: three pairs, and two places of two elements each */

static params_fn items_fill;
static reply_fn on_submit_done;
static int take_items(tma_client *client, struct item_cursor *cursor, struct request *request);
static uint64_t item_elements(const struct submit_item *item);
static void name_item(struct error *error, size_t i, const char *message);

/* ---- Calls -------------------------------------------------------------------------------------------- */

static struct call call_of(struct item_cursor *cursor, const struct tma_order *order)
{
	return (struct call){ .method = METHOD_submit,
		              .fill = items_fill,
		              .cursor = cursor,
		              .order = order,
		              .fd = -1,
		              .on_reply = on_submit_done };
}

static void set_all(struct tma_item *items, size_t n, int status)
{
	for (size_t i = 0; items && i < n; i++)
		items[i].status = status;
}

/* Sets the status of the items that are under way. */
static void end_all(struct tma_item *items, size_t n, int status)
{
	for (size_t i = 0; items && i < n; i++)
		if (items[i].status == STATUS_PENDING)
			items[i].status = status;
}

static int items_check(tma_client *client, const struct tma_item *items, size_t n)
{
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	if (!items)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "items is NULL");
	if (n == 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "n: a request needs at least 1 item, got 0");
	return 0;
}

/* Sends one message and waits until its request has ended. Returns the status that ended the request as a
 * whole, or 0. Adds the request's counts to *sum, and sets *first to its error unless an earlier message of
 * the call has set *first. */
static int send_some(tma_client *client, const struct call *call, int64_t deadline, struct tma_result *sum,
                     struct error *first)
{
	struct item_cursor *cursor = call->cursor;
	uint32_t slot = 0;
	bool is_stopped;
	int rc;

	cursor->taken = cursor->sent = 0;
	rc = request_run(client, call, deadline, &slot);
	if (rc == 0) {
		is_stopped = client->requests[slot].is_stopped;
		rc = ticket_end(client, slot, NULL);
		cursor->is_later = true;
		sum->bytes += client->last_result.bytes;
		sum->ns += client->last_result.ns;
		sum->repeats |= client->last_result.repeats;
	} else {
		is_stopped = cursor->taken == 0 || cursor->sent > 0;
	}
	if (rc < 0 && !first->status)
		*first = client->error;
	cursor->is_failed |= rc < 0;
	return is_stopped ? rc : 0;
}

int tma_run_items(tma_client *client, struct tma_item *items, size_t n, const struct tma_order *order)
{
	struct item_cursor cursor = { .items = items, .n = n };
	struct call call = call_of(&cursor, order);
	struct tma_result sum = { 0 };
	struct error first = { 0 };
	int rc = items_check(client, items, n);
	int64_t deadline;

	set_all(items, n, rc < 0 ? rc : STATUS_PENDING);
	if (!rc)
		rc = order_check_waiting(client, order);
	if (rc < 0) {
		end_all(items, n, rc);
		return move_unsent(client, rc);
	}
	deadline = client_deadline(client);
	while (cursor.n > 0 && !rc) {
		rc = send_some(client, &call, deadline, &sum, &first);
		if (rc < 0)
			end_all(cursor.items, cursor.n, rc);
		cursor.items += cursor.taken;
		cursor.first += cursor.taken;
		cursor.n -= cursor.taken;
	}
	if (first.status)
		client->error = first;
	sum.status = first.status;
	sum.reconnects = client->reconnects;
	client->last_result = sum;
	return sum.status;
}

int tma_submit_items(tma_client *client, struct tma_item *items, size_t n, const struct tma_order *order,
                     tma_ticket *ret)
{
	struct item_cursor cursor = { .items = items, .n = n, .is_whole = true };
	struct call call = call_of(&cursor, order);
	int rc = items_check(client, items, n);

	set_all(items, n, STATUS_PENDING);
	if (!rc)
		rc = move_submit(client, &call, ret);
	if (rc < 0)
		end_all(items, n, rc);
	return rc;
}

/* ---- The message -------------------------------------------------------------------------------------- */

/* Encodes a message. The signal means that all items succeeded, so it is left out if any was refused here or
 * more messages follow. If the signal is all that the caller would see of the request, the call fails
 * instead. */
static int items_fill(tma_client *client, const struct call *call, struct request *request, union params *ret)
{
	struct item_cursor *cursor = call->cursor;
	struct tma_order order = call->order ? *call->order : (struct tma_order){ 0 };
	int rc = take_items(client, cursor, request);

	if (rc < 0)
		return rc;
	if (cursor->is_whole && cursor->taken < cursor->n)
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "n: %zu items, but only the first %zu fit into a message; tma_run_items sends several "
		    "messages",
		    cursor->n, cursor->taken);
	if (cursor->sent == 0 || (request->error.status && order.completion == TMA_COMPLETION_SIGNAL)) {
		client->error = request->error;
		return client->error.status;
	}
	if (cursor->is_later)
		order.wait.region = NULL;
	if (cursor->is_failed || request->error.status || cursor->taken < cursor->n)
		order.signal.region = NULL;
	request->has_signal = order.signal.region;
	ret->submit.has = F(submit, items);
	ret->submit.items = (struct item_list){ .items = client->items, .n = (uint32_t)cursor->sent };
	return order_fill(submit, client, &order, &ret->submit);
}

/* Encodes items from the cursor on into client->items, as many as a message can hold. The first refusal goes
 * to request->error. */
static int take_items(tma_client *client, struct item_cursor *cursor, struct request *request)
{
	uint64_t left = frame_request_limits.elements - ENVELOPE_ELEMENTS, elements;
	size_t most = left / (1 + RUN_ELEMENTS);

	if (!client->items)
		client->items = malloc(most * sizeof *client->items);
	if (!client->items)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for the items of a message");
	request->items = cursor->items;
	request->first = cursor->first;
	request->error.status = 0;
	cursor->sent = 0;
	for (cursor->taken = 0; cursor->taken < cursor->n && cursor->sent < most; cursor->taken++) {
		struct tma_item *item = &cursor->items[cursor->taken];
		struct submit_item *sent = &client->items[cursor->sent];

		item->status = item_params(client, item, sent);
		if (item->status < 0) {
			if (request->error.status)
				continue;
			request->refused = cursor->taken;
			request->error.status = item->status;
			name_item(&request->error, cursor->first + cursor->taken, client->error.message);
			continue;
		}
		elements = 1 + item_elements(sent);
		item->status = STATUS_PENDING;
		if (elements > left)
			break;
		left -= elements;
		cursor->sent++;
	}
	request->n_items = cursor->taken;
	request->n_sent = (uint32_t)cursor->sent;
	request->is_stopped = false;
	return 0;
}

static int table_item_params(tma_client *client, const struct tma_item *item, struct msg_plan_run *ret)
{
	int rc;

	if (!item->plan)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s_table: set, but only a plan runs over tables",
		                   item->dst_table ? "dst" : "src");
	if (item->dst_table && item->dst.region)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "dst: dst_table is given too; it has the places");
	if (item->src_table && item->src.region)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "src: src_table is given too; it has the places");
	rc = plan_param(client, item->plan, &ret->plan);
	if (rc == 0)
		rc = table_param(client, item->dst_table, "dst_table", &ret->dst_table);
	if (rc == 0)
		rc = item->src_table ? table_param(client, item->src_table, "src_table", &ret->src_table)
		                     : place_param(client, item->src, "src", &ret->src);
	ret->has = F(plan_run, plan) | F(plan_run, dst_table) |
	           (item->src_table ? F(plan_run, src_table) : F(plan_run, src));
	return rc;
}

static int operand_param(tma_client *client, const struct tma_place *place, const char *name, uint64_t field,
                         struct region_place *ret, uint64_t *has)
{
	int rc = place_check(client, place, name);

	if (rc < 0 || (!place->region && !((client->local || client->launching) && place->offset)))
		return rc;
	*has |= field;
	return place_param(client, *place, name, ret);
}

static int operands_params(tma_client *client, const struct tma_operands *operands, struct msg_plan_run *ret)
{
	int rc = reserved_check(client, operands->reserved, COUNT(operands->reserved), "operands.reserved");

	if (rc == 0)
		rc = operand_param(client, &operands->scale, "scale", F(plan_run, scale), &ret->scale,
		                   &ret->has);
	if (rc == 0)
		rc = operand_param(client, &operands->bias, "bias", F(plan_run, bias), &ret->bias, &ret->has);
	if (rc == 0)
		rc = operand_param(client, &operands->amax_scale, "amax_scale", F(plan_run, amax_scale),
		                   &ret->amax_scale, &ret->has);
	if (rc == 0)
		rc = operand_param(client, &operands->amax_inverse, "amax_inverse", F(plan_run, amax_inverse),
		                   &ret->amax_inverse, &ret->has);
	return rc;
}

static int plan_item_params(tma_client *client, const struct tma_item *item, struct msg_plan_run *ret)
{
	int rc = item->dst_table || item->src_table
	             ? table_item_params(client, item, ret)
	             : run_params(client, item->plan, item->dst, item->src, ret);

	return rc < 0 || !item->operands ? rc : operands_params(client, item->operands, ret);
}

int item_params(tma_client *client, const struct tma_item *item, struct submit_item *ret)
{
	int rc;

	rc = reserved_check(client, item->reserved, COUNT(item->reserved), "reserved");
	if (rc == 0)
		rc = place_check(client, &item->dst, "dst");
	if (rc == 0)
		rc = place_check(client, &item->src, "src");
	if (rc < 0)
		return rc;
	if (!item->transform == !item->plan)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "transform and plan are both %s",
		                   item->plan ? "given; an item is one of them"
		                              : "NULL; an item is one of them");
	ret->is_run = item->plan;
	if (item->operands && !item->plan)
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "operands: set, but only a plan takes them; a transform has its conversion");
	if (item->plan || item->dst_table || item->src_table)
		return plan_item_params(client, item, &ret->run);
	rc = transform_check_part(client, item->transform, "set, but the items of a request share one");
	return rc < 0 ? rc : transform_params(client, item->transform, &ret->transform);
}

/* Each operand adds a pair, whose value is a place of two elements. */
static uint64_t run_elements(const struct msg_plan_run *run)
{
	const uint64_t operands =
	    F(plan_run, scale) | F(plan_run, bias) | F(plan_run, amax_scale) | F(plan_run, amax_inverse);

	return RUN_ELEMENTS + 4 * (uint64_t)__builtin_popcountll(run->has & operands);
}

/* Returns the number of elements in the item's own containers, as frame_scan counts them. */
static uint64_t item_elements(const struct submit_item *item)
{
	return item->is_run ? run_elements(&item->run) : transform_elements(&item->transform);
}

/* ---- The answer --------------------------------------------------------------------------------------- */

/* Sets *ret's message to what the service says of item i of those that were sent. In the message, the item
 * gets the number `as`, which is its index in the caller's array. */
static void find_sentence(const struct msg_submit_done *done, uint32_t i, size_t as, struct error *ret)
{
	struct msg_item_error item;
	char message[sizeof ret->message];
	struct error err;

	name_item(ret, as, status_meaning(ret->status));
	for (uint32_t k = 0; k < done->errors.n; k++) {
		if (rpc_decode_item_error(&done->errors, k, &item, &err) < 0 || item.item != i)
			continue;
		text_clean(item.message.data, item.message.len, message, sizeof message);
		name_item(ret, as, message);
		return;
	}
}

/* Prefixes a message with the item's number, or replaces the number that it begins with: "items[7].src.dtype:
 * ..." or "items[7]: src.region: ...". */
static void name_item(struct error *error, size_t i, const char *message)
{
	const char *rest = strncmp(message, "items[", strlen("items[")) ? NULL : strchr(message, ']');
	char sentence[sizeof error->message];

	snprintf(sentence, sizeof sentence, "items[%zu]%s%.*s", i, rest ? "" : ": ",
	         (int)sizeof sentence - 32, rest ? rest + 1 : message);
	memcpy(error->message, sentence, sizeof sentence);
}

static int on_submit_done(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                          void *arg, struct error *err)
{
	struct tma_result *result = arg;
	struct msg_submit_done done;
	struct request *request;
	uint32_t slot = 0, k = 0;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	request = request_find(client, reply->msgid, &slot);
	result->bytes = done.bytes;
	result->ns = done.ns;
	for (size_t i = 0; i < request->n_items; i++) {
		struct tma_item *item = &request->items[i];

		if (item->status != STATUS_PENDING)
			continue;
		if (k >= done.statuses.n)
			break;
		item->status = rpc_code_at(&done.statuses, k);
		if (item->status && !err->status) {
			err->status = item->status;
			find_sentence(&done, k, request->first + i, err);
		}
		if (item->status == STATUS_DEVICE_LOST)
			client->is_device_lost = true;
		k++;
	}
	if (k != done.statuses.n || k != request->n_sent)
		return error_set(err, STATUS_PROTOCOL, "it has %u statuses for %u items", done.statuses.n,
		                 request->n_sent);
	return 0;
}

void items_end(struct request *request, struct error *error)
{
	bool is_first = request->error.status;

	for (size_t i = 0; i < request->n_items; i++) {
		struct tma_item *item = &request->items[i];

		if (item->status == STATUS_PENDING) {
			item->status = error->status;
			request->is_stopped = true;
		}
		if (item->status && i < request->refused)
			is_first = false;
	}
	if (is_first)
		*error = request->error;
}

int items_silent_error(const struct rpc_reply *reply, struct error *ret)
{
	struct msg_submit_done done;
	struct error err;

	if (rpc_decode_result(reply, &methods[METHOD_submit], &done, &err) < 0)
		return STATUS_PROTOCOL;
	for (uint32_t i = 0; i < done.statuses.n; i++) {
		ret->status = rpc_code_at(&done.statuses, i);
		if (!ret->status)
			continue;
		find_sentence(&done, i, i, ret);
		return 0;
	}
	return STATUS_PROTOCOL;
}
