/* SPDX-License-Identifier: Apache-2.0 */
/* Orders: what a request waits for and signals, when it is answered, and how it is canceled. */
#include "client.h"

static int check_order(tma_client *client, const struct tma_order *order);

_Static_assert((int)TMA_COMPLETION_DONE == (int)COMPLETION_DONE, "tmaclient.h: TMA_COMPLETION_DONE");
_Static_assert((int)TMA_COMPLETION_QUEUED == (int)COMPLETION_QUEUED, "tmaclient.h: TMA_COMPLETION_QUEUED");
_Static_assert((int)TMA_COMPLETION_SIGNAL == (int)COMPLETION_SIGNAL, "tmaclient.h: TMA_COMPLETION_SIGNAL");
_Static_assert((int)TMA_COMPLETION_SIGNAL + 1 == (int)COMPLETION_COUNT, "tmaclient.h: the last completion");

_Static_assert((int)TMA_PRIORITY_NORMAL == (int)JOB_PRIORITY_NORMAL, "tmaclient.h: TMA_PRIORITY_NORMAL");
_Static_assert((int)TMA_PRIORITY_BACKGROUND == (int)JOB_PRIORITY_BACKGROUND,
               "tmaclient.h: TMA_PRIORITY_BACKGROUND");
_Static_assert((int)TMA_PRIORITY_URGENT == (int)JOB_PRIORITY_URGENT, "tmaclient.h: TMA_PRIORITY_URGENT");
_Static_assert((int)TMA_PRIORITY_URGENT + 1 == (int)JOB_PRIORITY_COUNT, "tmaclient.h: the last priority");

/* ---- Checks ----------------------------------------------------------------------------------------- */

static int check_order(tma_client *client, const struct tma_order *order)
{
	int rc;

	if (!order)
		return 0;
	rc = reserved_check(client, order->reserved, COUNT(order->reserved), "order.reserved");
	if (rc == 0)
		rc = reserved_check(client, order->wait.reserved, COUNT(order->wait.reserved),
		                    "order.wait.reserved");
	if (rc == 0)
		rc = reserved_check(client, order->signal.reserved, COUNT(order->signal.reserved),
		                    "order.signal.reserved");
	if (rc < 0)
		return rc;
	if ((unsigned)order->completion >= COMPLETION_COUNT)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "order.completion: %d is not an enum tma_completion",
		                   (int)order->completion);
	if ((unsigned)order->priority >= JOB_PRIORITY_COUNT)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "order.priority: %d is not an enum tma_priority", (int)order->priority);
	return 0;
}

int order_check_waiting(tma_client *client, const struct tma_order *order)
{
	int rc = check_order(client, order);

	if (rc < 0 || !order || order->completion == TMA_COMPLETION_DONE)
		return rc;
	return client_fail(
	    client, STATUS_INVALID_ARGUMENT,
	    "order.completion: %s, but a call that waits for its reply is answered when it is done; "
	    "submit the request instead",
	    completion_names[order->completion]);
}

int order_check_ticket(tma_client *client, const struct tma_order *order, const tma_ticket *ret)
{
	int rc = check_order(client, order);
	bool is_silent = order && order->completion == TMA_COMPLETION_SIGNAL;

	if (rc < 0 || is_silent == !ret)
		return rc;
	if (is_silent)
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "order.completion: signal, but a request that is answered only when it fails has no "
		    "ticket; ret must be NULL");
	return client_fail(client, STATUS_INVALID_ARGUMENT,
	                   "ret is NULL; only a request of TMA_COMPLETION_SIGNAL has no ticket");
}

/* ---- Parameters ------------------------------------------------------------------------------------- */

int order_params(tma_client *client, const struct tma_order *order, struct order_fields *ret, uint64_t *has,
                 uint64_t unit)
{
	uint64_t set = 0;
	int rc = 0;

	if (!order)
		return 0;
	if (order->wait.region) {
		ret->wait = (struct msg_wait){ .has = order->wait_ms ? F(wait, deadline_ms) : 0,
			                       .offset = order->wait.offset,
			                       .value = order->wait.value,
			                       .deadline_ms = order->wait_ms };
		rc = region_param(client, order->wait.region, "order.wait", &ret->wait.region);
		set |= F(order, wait);
	}
	if (order->signal.region && rc == 0) {
		ret->signal =
		    (struct msg_signal){ .offset = order->signal.offset, .value = order->signal.value };
		rc = region_param(client, order->signal.region, "order.signal", &ret->signal.region);
		set |= F(order, signal);
	}
	ret->reply = (enum completion)order->completion;
	ret->priority = (enum job_priority)order->priority;
	ret->multiprocessors = order->multiprocessors;
	ret->host_threads = order->host_threads;
	ret->deadline_ms = order->deadline_ms;
	set |= (order->completion ? F(order, reply) : 0) | (order->priority ? F(order, priority) : 0) |
	       (order->multiprocessors ? F(order, multiprocessors) : 0) |
	       (order->host_threads ? F(order, host_threads) : 0) |
	       (order->deadline_ms ? F(order, deadline_ms) : 0);
	*has |= set * unit;
	return rc;
}

/* ---- Afterwards ------------------------------------------------------------------------------------- */

int tma_take_error(tma_client *client)
{
	int status;

	if (!client)
		return STATUS_INVALID_ARGUMENT;
	client_pump(client);
	status = client->silent.status;
	if (status)
		client->error = client->silent;
	client->silent.status = 0;
	return status;
}

int tma_is_queued(tma_client *client, tma_ticket ticket)
{
	uint32_t slot = 0;
	int rc = ticket_slot(client, ticket, &slot);

	return rc < 0 ? rc : client->requests[slot].state == REQUEST_DONE || client->requests[slot].is_queued;
}

static int on_canceled(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                       void *arg, struct error *err)
{
	struct msg_canceled canceled;
	int rc = rpc_decode_result(reply, method, &canceled, err);
	bool *ret = arg;

	(void)client;
	if (rc == 0)
		*ret = canceled.canceled;
	return rc;
}

/* The call is bound to the connection, because a later connection does not know the request. */
int tma_cancel(tma_client *client, tma_ticket ticket)
{
	struct msg_cancel params = { .has = F(cancel, request) };
	bool is_canceled = false;
	uint32_t slot = 0;
	int rc = ticket_slot(client, ticket, &slot);

	if (rc < 0)
		return rc;
	if (client->requests[slot].state == REQUEST_DONE)
		return 0;
	params.request = request_msgid(&client->requests[slot], slot);
	client->is_bound = true;
	rc = client_call(client, &(struct call){ .method = METHOD_cancel,
	                                         .params = &params,
	                                         .fd = -1,
	                                         .on_reply = on_canceled,
	                                         .arg = &is_canceled });
	client->is_bound = false;
	return rc < 0 ? rc : is_canceled;
}
