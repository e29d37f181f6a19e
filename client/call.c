/* Requests: how a call gets a slot and a msgid, and how its outcome comes back. */
#include "client.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int slot_take(tma_client *client, uint32_t *ret_slot);

int client_call(tma_client *client, const struct call *call)
{
	int64_t deadline = client_deadline(client);
	uint32_t slot = 0;
	int rc = request_start(client, call, deadline, &slot);

	if (rc < 0)
		return rc;
	client_wait_reply(client, slot, deadline);
	rc = client->requests[slot].error.status;
	if (rc < 0)
		client->error = client->requests[slot].error;
	request_free(client, slot);
	return rc;
}

int request_start(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot)
{
	const struct method *method = &methods[call->method];
	struct request *request;
	uint32_t slot = 0;
	int rc = client_check(client);

	if (rc < 0)
		return rc;
	if (call->fd >= 0) {
		client_wait_sent(client, 0, deadline, method->name);
		if (client->sock < 0) {
			client->error = client->ended;
			return client->error.status;
		}
	}
	rc = slot_take(client, &slot);
	if (rc < 0)
		return rc;
	request = &client->requests[slot];
	rc = rpc_encode_request(&client->out, request_msgid(request, slot), method, call->params);
	if (rc < 0) {
		request_free(client, slot);
		return client_fail(client, rc, "out of memory for a request");
	}
	client->out_fd = call->fd;
	request->method = method;
	request->on_reply = call->on_reply;
	request->arg = call->arg;
	request->state = REQUEST_WAITING;
	if (method->id == METHOD_region_create)
		client->n_creating++;
	*ret_slot = slot;
	return 0;
}

void request_end(tma_client *client, uint32_t slot, const struct error *error)
{
	struct request *request = &client->requests[slot];

	request->state = REQUEST_DONE;
	request->error = *error;
	request->result.status = error->status;
	client->n_ended++;
	if (request->method->id == METHOD_region_create)
		client->n_creating--;
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
		grown = realloc(client->requests, n * sizeof *grown);
		if (!grown)
			return client_fail(client, STATUS_NO_MEMORY, "out of memory for %" PRIu32 " requests",
			                   n);
		memset(grown + client->n_requests, 0, (n - client->n_requests) * sizeof *grown);
		for (uint32_t i = client->n_requests; i < n; i++)
			grown[i].next_free = i + 1;
		client->requests = grown;
		client->n_requests = n;
	}
	*ret_slot = client->first_free;
	request = &client->requests[*ret_slot];
	client->first_free = request->next_free;
	request->generation++;
	memset(&request->result, 0, sizeof request->result);
	return 0;
}

void request_free(tma_client *client, uint32_t slot)
{
	client->requests[slot].state = REQUEST_FREE;
	client->requests[slot].next_free = client->first_free;
	client->first_free = slot;
}
