/* SPDX-License-Identifier: Apache-2.0 */
/* Requests in the program's own CUDA streams. libtma-local launches a request before the call returns if the
 * stream's device reaches all of its memory (launch.c). Otherwise the service does the request in the order
 * of the stream (stream_order.c). */
#include "client.h"

#include <string.h>

#include "proto/wire/codec.h"

static int check(tma_client *client)
{
	int rc = client_check_usable(client);

	/* Earlier submitted requests must not go into the stream. */
	return rc == 0 && client->local ? tma_flush(client) : rc;
}

static int check_order(tma_client *client, const struct tma_order *order)
{
	int rc = order_check_waiting(client, order);

	if (rc < 0 || client->local || !order || !order->wait.region)
		return rc;
	return client_fail(
	    client, STATUS_UNSUPPORTED,
	    "order.wait: a request in a stream waits for the stream alone; have the stream wait for "
	    "the point (tma_stream_wait)");
}

/* ---- One request -------------------------------------------------------------------------------------- */

static void set_result(tma_client *client, enum method_id method, const union local_result *result)
{
	/* The request only waits or signals for tma_enqueue_items, whose result stays. */
	if (method == METHOD_submit)
		return;
	client->last_result = (struct tma_result){ .reconnects = client->reconnects };
	if (method == METHOD_gather || method == METHOD_scatter)
		result_of_blocks(&client->last_result, &result->blocks_done);
	else
		result_of_transform(&client->last_result, &result->transform_done);
}

/* Launches the request. Returns 0, LAUNCH_ELSEWHERE or the last error. */
static int launch(tma_client *client, const struct call *call, void *stream)
{
	union local_result result;
	union params params;
	int rc = launch_begin(client, stream);

	if (rc)
		return rc;
	memset(&params, 0, sizeof params); /* Absent fields of nested messages read as 0. */
	rc = call->fill(client, call, NULL, &params);
	if (rc == 0) {
		codec_set_defaults(methods[call->method].params, &params);
		rc = launch_run(client, call->method, &params, &result);
	}
	rc = launch_end(client, rc);
	if (rc == 0)
		set_result(client, call->method, &result);
	return rc;
}

/* Returns whether the service has to do the request, as it does if the request has a signal: others may sleep
 * until the word changes, and a stream that writes the word wakes nobody. */
static bool needs_service(const tma_client *client, const struct tma_order *order)
{
	return !client->local && order && order->signal.region;
}

static int enqueue_checked(tma_client *client, const struct call *call, void *stream)
{
	int rc = needs_service(client, call->order) ? LAUNCH_ELSEWHERE : launch(client, call, stream);

	if (rc != LAUNCH_ELSEWHERE)
		return rc;
	rc = stream_order_enqueue(client, call, stream);
	if (rc == 0)
		client->last_result = (struct tma_result){ .reconnects = client->reconnects };
	return rc;
}

static int enqueue(tma_client *client, const struct call *call, void *stream)
{
	int rc = check(client);

	if (rc == 0)
		rc = check_order(client, call->order);
	if (rc == 0)
		rc = enqueue_checked(client, call, stream);
	return rc < 0 ? move_unsent(client, rc) : 0;
}

/* Returns the struct tma_order of request i, where n requests take the place of a single one: only the first
 * of them waits, and only the last signals. */
static struct tma_order order_of_one(const struct tma_order *order, size_t i, size_t n)
{
	struct tma_order one = order ? *order : (struct tma_order){ 0 };

	if (i > 0) {
		one.wait = (struct tma_point){ 0 };
		one.wait_ms = 0;
	}
	if (i + 1 < n)
		one.signal = (struct tma_point){ 0 };
	return one;
}

/* Launches the transform once for each destination. */
static int enqueue_further(tma_client *client, const struct tma_transform *t, void *stream)
{
	struct tma_transform one = *t;
	struct tma_result sum = { 0 };
	int rc = 0;

	one.n_further_dst = 0;
	for (size_t i = 0; i <= t->n_further_dst && rc == 0; i++) {
		const struct tma_order order = order_of_one(t->order, i, 1 + t->n_further_dst);
		struct call call = call_of_transform(METHOD_transform, &one);

		call.order = &order;
		rc = enqueue(client, &call, stream);
		if (rc == 0 && i > 0)
			client->last_result.bytes += sum.bytes;
		sum = client->last_result;
		one.dst = &t->further_dst[i];
	}
	return rc;
}

int tma_enqueue(tma_client *client, const struct tma_transform *transform, void *stream)
{
	const struct call call = call_of_transform(METHOD_transform, transform);

	if (client && transform && transform->n_further_dst > 0 && transform->further_dst &&
	    !needs_service(client, transform->order))
		return enqueue_further(client, transform, stream);
	return enqueue(client, &call, stream);
}

int tma_enqueue_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                    const struct tma_order *order, void *stream)
{
	const struct plan_run run = { plan, dst, src };
	const struct call call = call_of_run(&run, order);

	return enqueue(client, &call, stream);
}

int tma_enqueue_gather(tma_client *client, const struct tma_blocks *blocks, void *stream)
{
	const struct call call = call_of_blocks(METHOD_gather, blocks);

	return enqueue(client, &call, stream);
}

int tma_enqueue_scatter(tma_client *client, const struct tma_blocks *blocks, void *stream)
{
	const struct call call = call_of_blocks(METHOD_scatter, blocks);

	return enqueue(client, &call, stream);
}

/* ---- Items -------------------------------------------------------------------------------------------- */

static int item_fill(tma_client *client, const struct call *call, struct request *request, union params *ret)
{
	struct submit_item travels;
	int rc;

	(void)request;
	memset(&travels, 0, sizeof travels); /* Absent fields of nested messages read as 0. */
	rc = item_params(client, call->from, &travels);
	if (rc < 0)
		return rc;
	if (travels.is_run) {
		ret->plan_run = travels.run;
		return order_fill(plan_run, client, call->order, &ret->plan_run);
	}
	ret->transform = travels.transform;
	return order_fill(transform, client, call->order, &ret->transform);
}

/* Returns the call of an item, which is a request of its own. */
static struct call call_of_item(const struct tma_item *item, const struct tma_order *order)
{
	struct call call =
	    item->transform ? call_of_transform(METHOD_transform, NULL) : call_of_run(NULL, NULL);

	call.fill = item_fill;
	call.from = item;
	call.order = order;
	return call;
}

static int check_items(tma_client *client, const struct tma_item *items, size_t n,
                       const struct tma_order *order)
{
	int rc = check(client);

	if (rc == 0)
		rc = check_order(client, order);
	if (rc == 0 && needs_service(client, order))
		rc = client_fail(client, STATUS_UNSUPPORTED,
		                 "order.signal: items in a stream are requests of their own; have the stream "
		                 "signal the point behind them (tma_stream_signal)");
	if (rc == 0 && (!items || n == 0))
		rc = client_fail(client, STATUS_INVALID_ARGUMENT,
		                 items ? "n: a request needs at least 1 item, got 0" : "items is NULL");
	return rc;
}

static int points_fill(tma_client *client, const struct call *call, struct request *request,
                       union params *ret)
{
	(void)request;
	return order_fill(submit, client, call->order, &ret->submit);
}

/* Has the stream wait for the order's point, or set its signal, by a request that moves nothing. Does nothing
 * if the order has neither. */
static int enqueue_point(tma_client *client, const struct tma_order *order, void *stream)
{
	const struct call call = { .method = METHOD_submit, .fill = points_fill, .order = order, .fd = -1 };

	return order->wait.region || order->signal.region ? launch(client, &call, stream) : 0;
}

/* Enqueues all items, and returns the status of the first that fails. */
static int enqueue_all(tma_client *client, struct tma_item *items, size_t n, const struct tma_order *order,
                       void *stream)
{
	struct tma_result sum = { 0 };
	struct error first = { 0 };

	for (size_t i = 0; i < n; i++) {
		const struct call call = call_of_item(&items[i], order);

		items[i].status = enqueue_checked(client, &call, stream);
		if (items[i].status == 0)
			sum.bytes += client->last_result.bytes;
		else if (!first.status)
			first = client->error;
	}
	if (first.status)
		client->error = first;
	sum.status = first.status;
	sum.reconnects = client->reconnects;
	client->last_result = sum;
	return sum.status;
}

/* The stream waits before the first item and signals after the last. */
int tma_enqueue_items(tma_client *client, struct tma_item *items, size_t n, const struct tma_order *order,
                      void *stream)
{
	const struct tma_order wait = order_of_one(order, 0, 2), each = order_of_one(order, 1, 3),
			       signal = order_of_one(order, 1, 2);
	int rc = check_items(client, items, n, order);

	if (rc == 0)
		rc = enqueue_point(client, &wait, stream);
	for (size_t i = 0; items && i < n; i++)
		items[i].status = rc;
	if (rc < 0)
		return move_unsent(client, rc);
	rc = enqueue_all(client, items, n, &each, stream);
	return rc < 0 ? rc : enqueue_point(client, &signal, stream);
}

/* ---- Counts ------------------------------------------------------------------------------------------- */

int tma_enqueued(tma_client *client, void *stream, struct tma_enqueued *ret)
{
	struct local_counts counts = { 0 };
	int rc = client_check_ret(client, ret, "the counts go");

	if (rc == 0 && (client->local || !client->streams))
		rc = check(client);
	if (rc == 0 && !client->local)
		rc = stream_order_wait(client, stream);
	if (rc == 0 && (client->local || client->launcher))
		rc = launch_counts(client, stream, &counts);
	if (rc < 0)
		return rc;
	*ret = (struct tma_enqueued){ .changed = counts.changed,
		                      .beyond = counts.beyond + client->stream_beyond };
	client->stream_beyond = 0;
	return 0;
}
