/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: how a call gets its slot and msgid, and how its outcome comes back. */
#include "client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define UNSENT 1 /* Result of request_try: the connection turned out to be lost before anything was sent. */

static int call_once(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot);
static int request_try(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot);
static int request_encode(tma_client *client, const struct call *call, uint32_t slot);
static int slot_take(tma_client *client, uint32_t *ret_slot);
static void done_append(tma_client *client, uint32_t slot);
static void done_remove(tma_client *client, uint32_t slot);

int client_call(tma_client *client, const struct call *call)
{
	return client_call_until(client, call, client_deadline(client));
}

int client_call_until(tma_client *client, const struct call *call, int64_t deadline)
{
	uint32_t slot = 0;
	int rc = request_run(client, call, deadline, &slot);

	if (rc < 0)
		return rc;
	rc = client->requests[slot].error.status;
	if (rc < 0)
		client->error = client->requests[slot].error;
	request_free(client, slot);
	return rc;
}

/* Repeats the request at most once, so that one that crashes the service does not do so again and again. */
int request_run(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot)
{
	int rc = call_once(client, call, deadline, ret_slot);

	if (rc < 0 || !client->requests[*ret_slot].may_repeat || client->is_bound ||
	    client_check_usable(client) < 0)
		return rc;
	request_free(client, *ret_slot);
	rc = call_once(client, call, deadline, ret_slot);
	if (!rc)
		client->requests[*ret_slot].result.repeats = 1;
	return rc;
}

static int call_once(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot)
{
	int rc = request_start(client, call, deadline, ret_slot);

	if (!rc)
		client_wait_reply(client, *ret_slot, deadline);
	return rc;
}

/* The second attempt finds no connection and opens one. */
int request_start(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot)
{
	int rc = request_try(client, call, deadline, ret_slot);

	if (rc == UNSENT && !client->is_bound && !client_check_usable(client))
		rc = request_try(client, call, deadline, ret_slot);
	if (rc != UNSENT)
		return rc;
	client->error = client->ended;
	return client->error.status;
}

static int request_try(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot)
{
	const struct method *method = &methods[call->method];
	struct request *request;
	uint32_t slot = 0;
	int rc = client_ready(client, deadline, call->is_submit ? PATIENCE_NONE : PATIENCE_FULL);

	if (rc < 0)
		return rc;
	if (call->fd >= 0 || call->brings_fds) {
		client_wait_sent(client, 0, deadline, method->name);
		if (client->sock < 0)
			return UNSENT;
	}
	rc = slot_take(client, &slot);
	if (rc < 0)
		return rc;
	request = &client->requests[slot];
	request->start = client->sent + buffer_len(&client->out);
	request->has_signal = call->order && call->order->signal.region;
	request->completion = call->order ? (enum completion)call->order->completion : COMPLETION_DONE;
	request->has_ticket = call->has_ticket;
	request->user = call->order ? call->order->user : NULL;
	rc = request_encode(client, call, slot);
	if (rc < 0) {
		if (call->brings_fds)
			client->n_out_fds = 0;
		request_free(client, slot);
		return rc;
	}
	if (call->fd >= 0) {
		client->out_fds[0] = call->fd;
		client->n_out_fds = 1;
	}
	request->method = method;
	request->on_reply = call->on_reply;
	request->arg = call->arg;
	request->state = REQUEST_WAITING;
	client->n_tickets += request->has_ticket;
	if (method->id == METHOD_region_create)
		client->n_creating++;
	if (client->local) /* The session may answer it within the flush below, so it is counted before. */
		client->n_silent += request->completion == COMPLETION_SIGNAL;
	if (!client->is_batching || !call->is_submit)
		client_flush(client);
	if (client->requests[slot].is_unsent) {
		request_free(client, slot);
		return UNSENT;
	}
	*ret_slot = slot;
	return 0;
}

/* Appends the request to client->out. A message above the limit is refused here, because it would end the
 * connection. */
static int request_encode(tma_client *client, const struct call *call, uint32_t slot)
{
	struct request *request = &client->requests[slot];
	const struct method *method = &methods[call->method];
	uint32_t msgid = request->completion == COMPLETION_SIGNAL
	                     ? (uint32_t)client->n_silent << 16 | MSGID_SILENT
	                     : request_msgid(request, slot);
	size_t before = buffer_len(&client->out), bytes;
	union params params;
	int rc = call->fill ? call->fill(client, call, request, &params) : 0;

	if (rc < 0)
		return rc;
	rc = rpc_encode_request(&client->out, msgid, method, call->fill ? &params : call->params);
	if (rc < 0)
		return client_fail(client, rc, "out of memory for a request");
	bytes = buffer_len(&client->out) - before;
	if (bytes <= frame_request_limits.bytes)
		return 0;
	buffer_truncate(&client->out, before);
	return client_fail(
	    client, STATUS_INVALID_ARGUMENT, "%s: the request has %zu bytes, but a message has at most %zu%s",
	    method->name, bytes, frame_request_limits.bytes,
	    method->params == &blocks_message ? ": put the list into a region (index_at)" : "");
}

int request_post(tma_client *client, const struct call *call, int64_t deadline)
{
	uint32_t slot = 0;
	int rc = request_start(client, call, deadline, &slot);

	if (rc < 0)
		return rc;
	client->n_silent += !client->local;
	if (client->requests[slot].error.status)
		client_keep_silent(client, &client->requests[slot].error);
	request_free(client, slot);
	return 0;
}

void client_keep_silent(tma_client *client, const struct error *error)
{
	if (!client->silent.status)
		client->silent = *error;
}

void request_end(tma_client *client, uint32_t slot, const struct error *error)
{
	struct request *request = &client->requests[slot];
	struct error end;

	if (request->items) {
		end = *error;
		items_end(request, &end);
		error = &end;
	}
	request->state = REQUEST_DONE;
	if (request->has_ticket) {
		client->n_ended_tickets++;
		done_append(client, slot);
	}
	request->error.status = error->status;
	if (error->status)
		request->error = *error;
	request->result.status = error->status;
	request->result.reconnects = client->reconnects;
	client->n_ended += !request->is_enqueued;
	if (request->method->id == METHOD_region_create)
		client->n_creating--;
	if (request->is_enqueued)
		stream_order_on_end(client, slot);
}

struct request *request_find(tma_client *client, uint32_t msgid, uint32_t *ret_slot)
{
	uint32_t slot = msgid & 0xffff;
	struct request *request = slot < client->n_requests ? &client->requests[slot] : NULL;

	if (!request || request->state != REQUEST_WAITING || request_msgid(request, slot) != msgid)
		return NULL;
	*ret_slot = slot;
	return request;
}

static int slot_take(tma_client *client, uint32_t *ret_slot)
{
	uint32_t n = client->n_requests ? 2 * client->n_requests : 16;
	struct request *grown;
	struct request *request;

	if (client->first_free == client->n_requests) {
		if (client->n_requests >= CLIENT_MAX_SLOTS)
			return client_fail(client, STATUS_BUSY,
			                   "%d requests are under way: wait for some first",
			                   CLIENT_MAX_SLOTS);
		if (n > CLIENT_MAX_SLOTS)
			n = CLIENT_MAX_SLOTS;
		grown = realloc(client->requests, n * sizeof *grown);
		if (!grown)
			return client_fail(client, STATUS_NO_MEMORY, "out of memory for %" PRIu32 " requests",
			                   n);
		memset(grown + client->n_requests, 0, (n - client->n_requests) * sizeof *grown);
		for (uint32_t i = client->n_requests; i < n; i++)
			grown[i].next = i + 1;
		client->requests = grown;
		client->n_requests = n;
	}
	*ret_slot = client->first_free;
	request = &client->requests[*ret_slot];
	client->first_free = request->next;
	request->generation++;
	request->is_unsent = request->may_repeat = request->is_queued = request->has_ticket = false;
	request->is_enqueued = false;
	request->items = NULL;
	request->error.status = 0;
	memset(&request->result, 0, sizeof request->result);
	return 0;
}

void request_free(tma_client *client, uint32_t slot)
{
	struct request *request = &client->requests[slot];

	if (request->has_ticket && request->state != REQUEST_FREE) {
		client->n_tickets--;
		done_remove(client, slot);
	}
	request->state = REQUEST_FREE;
	request->next = client->first_free;
	client->first_free = slot;
}

/* ---- Tickets whose request has ended ----------------------------------------------------------------- */

static void done_append(tma_client *client, uint32_t slot)
{
	struct request *request = &client->requests[slot];

	request->next = NO_SLOT;
	request->before = client->last_done;
	if (client->last_done == NO_SLOT)
		client->first_done = slot;
	else
		client->requests[client->last_done].next = slot;
	client->last_done = slot;
}

static void done_remove(tma_client *client, uint32_t slot)
{
	const struct request *request = &client->requests[slot];

	if (request->before == NO_SLOT)
		client->first_done = request->next;
	else
		client->requests[request->before].next = request->next;
	if (request->next == NO_SLOT)
		client->last_done = request->before;
	else
		client->requests[request->next].before = request->before;
}
