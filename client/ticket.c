/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that move data, blocking or with tickets, and their results. */
#include "client.h"

#include <inttypes.h>

#include "proto/clock.h"

/* A submit waits while more bytes than this are unsent. */
#define SUBMIT_KEEP_BYTES (64 * 1024)

const struct tma_result *tma_last_result(const tma_client *client)
{
	return client ? &client->last_result : NULL;
}

int move_call(tma_client *client, const struct call *call)
{
	uint32_t slot = 0;
	int rc = client_check_usable(client);

	if (!rc)
		rc = order_check_waiting(client, call->order);
	if (!rc)
		rc = request_run(client, call, client_deadline(client), &slot);
	return rc < 0 ? move_unsent(client, rc) : ticket_end(client, slot, NULL);
}

int move_unsent(tma_client *client, int status)
{
	if (client)
		client->last_result =
		    (struct tma_result){ .status = status, .reconnects = client->reconnects };
	return status;
}

int tma_submit_ping(tma_client *client, tma_ticket *ret)
{
	return move_submit(client, &(struct call){ .method = METHOD_ping, .fd = -1, .on_reply = on_true },
	                   ret);
}

static tma_ticket ticket_of(const tma_client *client, uint32_t slot)
{
	return (uint64_t)client->requests[slot].generation << 32 | (slot + 1);
}

/* A request that is kept for a batch does not wait, so it needs no deadline. */
int move_submit(tma_client *client, struct call *call, tma_ticket *ret)
{
	bool waits = !client || !client->is_batching || client->sock < 0 || client->is_device_lost ||
	             client->is_incomplete;
	int rc = client_check_usable(client);
	int64_t deadline;
	uint32_t slot = 0;

	if (!rc)
		rc = order_check_ticket(client, call->order, ret);
	if (rc < 0)
		return rc;
	call->is_submit = true;
	call->has_ticket = ret;
	deadline = waits ? client_deadline(client) : -1;
	rc = ret ? request_start(client, call, deadline, &slot) : request_post(client, call, deadline);
	if (rc < 0)
		return rc;
	if (buffer_len(&client->out) > SUBMIT_KEEP_BYTES)
		client_wait_sent(client, SUBMIT_KEEP_BYTES, client_deadline(client),
		                 methods[call->method].name);
	if (ret)
		*ret = ticket_of(client, slot);
	return 0;
}

void tma_set_batching(tma_client *client, bool on)
{
	if (client)
		client->is_batching = on;
}

int tma_flush(tma_client *client)
{
	int rc = client_check(client);

	if (rc < 0)
		return rc;
	client_flush(client);
	return client_check(client);
}

int tma_wait(tma_client *client, tma_ticket ticket, struct tma_result *ret)
{
	uint32_t slot = 0;
	int rc = ticket_slot(client, ticket, &slot);

	if (rc < 0)
		return rc;
	client_wait_reply(client, slot, client_deadline(client));
	return ticket_end(client, slot, ret);
}

int tma_poll(tma_client *client, tma_ticket ticket, struct tma_result *ret)
{
	uint32_t slot = 0;
	int rc = ticket_slot(client, ticket, &slot);

	if (rc < 0)
		return rc;
	if (client->requests[slot].state == REQUEST_WAITING)
		return STATUS_PENDING;
	return ticket_end(client, slot, ret);
}

/* A ticket that has ended is returned without a system call. If the connection is lost, all tickets have
 * ended. */
int tma_next(tma_client *client, int timeout_ms, struct tma_completed *ret)
{
	int64_t deadline = timeout_ms < 0 ? -1 : clock_ms() + timeout_ms;
	bool has_time = true;
	uint32_t slot;
	int rc = client_check_ret(client, ret, "the ticket goes");

	if (rc < 0)
		return rc;
	if (!client->n_tickets)
		return client_fail(client, STATUS_NOT_FOUND, "no ticket is outstanding");
	if (client->first_done == NO_SLOT)
		client_flush(client);
	while (client->first_done == NO_SLOT && has_time)
		has_time = client_poll(client, deadline);
	slot = client->first_done;
	if (slot == NO_SLOT)
		return STATUS_PENDING;
	*ret =
	    (struct tma_completed){ .ticket = ticket_of(client, slot), .user = client->requests[slot].user };
	ticket_end(client, slot, &ret->result);
	return 0;
}

int tma_dispatch(tma_client *client)
{
	int rc = client_check(client);

	if (rc < 0)
		return rc;
	client->n_ended = 0;
	client_pump(client);
	if (client->local) {
		const int ended = local_take_ended(client);

		client_pump(client); /* This takes the replies that the eventfd has announced. */
		client->n_ended = ended;
	}
	return client->n_ended ? client->n_ended : client_check(client);
}

int ticket_slot(tma_client *client, tma_ticket ticket, uint32_t *ret_slot)
{
	uint32_t slot = (uint32_t)ticket - 1;

	if (!client)
		return STATUS_INVALID_ARGUMENT;
	if (slot >= client->n_requests || client->requests[slot].state == REQUEST_FREE ||
	    client->requests[slot].generation != ticket >> 32)
		return client_fail(client, STATUS_NOT_FOUND,
		                   "ticket %" PRIu64
		                   " is not outstanding: it was never issued, or has been taken already",
		                   ticket);
	*ret_slot = slot;
	return 0;
}

int ticket_end(tma_client *client, uint32_t slot, struct tma_result *ret)
{
	const struct request *request = &client->requests[slot];

	client->last_result = request->result;
	if (request->error.status)
		client->error = request->error;
	if (ret)
		*ret = request->result;
	request_free(client, slot);
	return client->last_result.status;
}
