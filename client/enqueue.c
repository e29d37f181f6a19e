/* SPDX-License-Identifier: Apache-2.0 */
/* These calls have libtma-local launch requests into the program's own streams, before they return. */
#include "client.h"

#include <string.h>

#include "client/local/door.h"
#include "proto/wire/codec.h"

static int check(tma_client *client)
{
	int rc = client_check_usable(client);

	if (rc < 0)
		return rc;
	if (!client->local)
		return client_fail(
		    client, STATUS_UNSUPPORTED,
		    "stream: a client of a service launches nothing into streams of the program; "
		    "a client of \"local:\" does");
	return tma_flush(client); /* Requests that were submitted before must not go into the stream. */
}

/* ---- One request -------------------------------------------------------------------------------------- */

static void set_result(tma_client *client, enum method_id method, const union local_result *result)
{
	client->last_result = (struct tma_result){ .reconnects = client->reconnects };
	if (method == METHOD_gather || method == METHOD_scatter)
		result_of_blocks(&client->last_result, &result->blocks_done);
	else
		result_of_transform(&client->last_result, &result->transform_done);
}

static int launch(tma_client *client, enum method_id method, const union params *params, void *stream)
{
	const struct local_door *door = client->door;
	union local_result result;
	struct error err;
	int rc = door->stream_begin(client->local, stream, &err);

	if (rc == 0) {
		rc = door->run(client->local, method, params, &result, &err);
		door->stream_end(client->local);
	}
	if (rc < 0)
		return client_fail(client, rc, "%s", err.message);
	set_result(client, method, &result);
	return 0;
}

static int enqueue(tma_client *client, const struct call *call, void *stream)
{
	union params params;
	int rc = check(client);

	if (rc == 0)
		rc = order_check_waiting(client, call->order);
	memset(&params, 0, sizeof params); /* Absent fields of nested messages read as 0. */
	if (rc == 0)
		rc = call->fill(client, call, NULL, &params);
	if (rc == 0) {
		codec_set_defaults(methods[call->method].params, &params);
		rc = launch(client, call->method, &params, stream);
	}
	return rc < 0 ? move_unsent(client, rc) : 0;
}

/* Launches the transform once for each destination. */
static int enqueue_further(tma_client *client, const struct tma_transform *t, void *stream)
{
	struct tma_transform one = *t;
	struct tma_result sum = { 0 };
	int rc = 0;

	one.n_further_dst = 0;
	for (size_t i = 0; i <= t->n_further_dst && rc == 0; i++) {
		const struct call call = call_of_transform(METHOD_transform, &one);

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

	if (client && transform && transform->n_further_dst > 0 && transform->further_dst)
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

static int enqueue_item(tma_client *client, const struct tma_item *item, const struct tma_order *order,
                        void *stream)
{
	const uint64_t multiprocessors = order ? order->multiprocessors : 0;
	struct submit_item travels;
	union params params;
	enum method_id method;
	int rc;

	memset(&travels, 0, sizeof travels); /* Absent fields of nested messages read as 0. */
	rc = item_params(client, item, &travels);
	if (rc < 0)
		return rc;
	method = travels.is_run ? METHOD_plan_run : METHOD_transform;
	if (travels.is_run)
		params.plan_run = travels.run;
	else
		params.transform = travels.transform;
	codec_set_defaults(methods[method].params, &params);
	*(travels.is_run ? &params.plan_run.multiprocessors : &params.transform.multiprocessors) =
	    multiprocessors;
	return launch(client, method, &params, stream);
}

static int check_items(tma_client *client, const struct tma_item *items, size_t n,
                       const struct tma_order *order)
{
	int rc = check(client);

	if (rc == 0)
		rc = order_check_waiting(client, order);
	if (rc == 0 && (!items || n == 0))
		rc = client_fail(client, STATUS_INVALID_ARGUMENT,
		                 items ? "n: a request needs at least 1 item, got 0" : "items is NULL");
	return rc;
}

int tma_enqueue_items(tma_client *client, struct tma_item *items, size_t n, const struct tma_order *order,
                      void *stream)
{
	struct tma_result sum = { 0 };
	struct error first = { 0 };
	int rc = check_items(client, items, n, order);

	for (size_t i = 0; items && i < n; i++)
		items[i].status = rc;
	if (rc < 0)
		return move_unsent(client, rc);
	for (size_t i = 0; i < n; i++) {
		items[i].status = enqueue_item(client, &items[i], order, stream);
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

/* ---- Counts ------------------------------------------------------------------------------------------- */

int tma_enqueued(tma_client *client, void *stream, struct tma_enqueued *ret)
{
	struct local_counts counts;
	struct error err;
	int rc = client_check_ret(client, ret, "the counts go");

	if (rc == 0)
		rc = check(client);
	if (rc < 0)
		return rc;
	rc = client->door->stream_counts(client->local, stream, &counts, &err);
	if (rc < 0)
		return client_fail(client, rc, "%s", err.message);
	*ret = (struct tma_enqueued){ .changed = counts.changed, .beyond = counts.beyond };
	return 0;
}
