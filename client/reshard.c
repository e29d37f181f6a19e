/* SPDX-License-Identifier: Apache-2.0 */
/* Reshard: makes slices of a global tensor from other slices of it. All slices go into one message. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>

static params_fn reshard_fill;
static int list_params(tma_client *client, const struct tma_slice *slices, size_t n, const char *list,
                       struct msg_slice *ret, uint64_t *left);

/* elements of the envelope, the fields, the order and the shape of a message */
#define ENVELOPE_ELEMENTS (32 + TMA_MAX_RANK)

/* fewest elements of a slice: its entry in the list, two for each of its fields, and two for each field that
 * every tensor has */
#define SLICE_ELEMENTS (1 + 4 + 6)

static int on_reshard_done(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                           void *arg, struct error *err)
{
	struct tma_result *result = arg;
	struct msg_reshard_done done;
	int rc = rpc_decode_result(reply, method, &done, err);

	(void)client;
	if (rc < 0)
		return rc;
	result->bytes = done.bytes;
	result->ns = done.ns;
	result->pieces = done.pieces;
	return 0;
}

static struct call call_of(const struct tma_reshard *reshard)
{
	return (struct call){ .method = METHOD_reshard,
		              .fill = reshard_fill,
		              .from = reshard,
		              .order = reshard ? reshard->order : NULL,
		              .fd = -1,
		              .on_reply = on_reshard_done };
}

int tma_reshard(tma_client *client, const struct tma_reshard *reshard)
{
	struct call call = call_of(reshard);

	return move_call(client, &call);
}

int tma_submit_reshard(tma_client *client, const struct tma_reshard *reshard, tma_ticket *ret)
{
	struct call call = call_of(reshard);

	return move_submit(client, &call, ret);
}

/* ---- Parameters ------------------------------------------------------------------------------------ */

static int check_lists(tma_client *client, const struct tma_reshard *reshard)
{
	const size_t most = (frame_request_limits.elements - ENVELOPE_ELEMENTS) / SLICE_ELEMENTS;

	if (!reshard->destinations && reshard->n_destinations)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "destinations is NULL, but n_destinations is %zu",
		                   reshard->n_destinations);
	if (!reshard->sources && reshard->n_sources)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "sources is NULL, but n_sources is %zu",
		                   reshard->n_sources);
	if (reshard->n_destinations <= most && reshard->n_sources <= most - reshard->n_destinations)
		return 0;
	return client_fail(client, STATUS_INVALID_ARGUMENT,
	                   "%zu destinations and %zu sources, but a message holds %zu slices at most; send "
	                   "fewer destinations at a time",
	                   reshard->n_destinations, reshard->n_sources, most);
}

/* Encodes the global shape, with the rank of the first slice. If another slice has a different rank, the
 * service reports it. */
static void shape_params(const struct tma_reshard *reshard, struct msg_reshard *ret)
{
	const struct msg_slice *first = ret->destinations.n ? ret->destinations.items : ret->sources.items;

	if (!reshard->shape || !(ret->destinations.n + ret->sources.n))
		return;
	ret->has |= F(reshard, shape);
	ret->shape.n = first->tensor.shape.n;
	for (uint32_t d = 0; d < ret->shape.n; d++)
		ret->shape.v[d] = reshard->shape[d];
}

static int reshard_fill(tma_client *client, const struct call *call, struct request *request,
                        union params *ret)
{
	const struct tma_reshard *reshard = call->from;
	struct msg_reshard *params = &ret->reshard;
	uint64_t left = frame_request_limits.elements - ENVELOPE_ELEMENTS;
	struct msg_slice *slices;
	int rc;

	(void)request;
	if (!reshard)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "reshard is NULL");
	rc = reserved_check(client, reshard->reserved, COUNT(reshard->reserved), "reshard.reserved");
	if (rc == 0)
		rc = check_lists(client, reshard);
	if (rc < 0)
		return rc;
	slices = realloc(client->slices, (reshard->n_destinations + reshard->n_sources + 1) * sizeof *slices);
	if (!slices)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for the slices of a message");
	client->slices = slices;
	*params = (struct msg_reshard){ .has = F(reshard, destinations) | F(reshard, sources) };
	params->destinations =
	    (struct message_list){ .items = slices, .n = (uint32_t)reshard->n_destinations };
	params->sources = (struct message_list){ .items = slices + reshard->n_destinations,
		                                 .n = (uint32_t)reshard->n_sources };
	rc = list_params(client, reshard->destinations, reshard->n_destinations, "destinations", slices,
	                 &left);
	if (rc == 0)
		rc = list_params(client, reshard->sources, reshard->n_sources, "sources",
		                 slices + reshard->n_destinations, &left);
	if (rc < 0)
		return rc;
	shape_params(reshard, params);
	return order_fill(reshard, client, call->order, params);
}

static int slice_params(tma_client *client, const struct tma_slice *slice, const char *name,
                        struct msg_slice *ret)
{
	char field[48];
	int rc;

	snprintf(field, sizeof field, "%s.reserved", name);
	rc = reserved_check(client, slice->reserved, COUNT(slice->reserved), field);
	snprintf(field, sizeof field, "%s.tensor", name);
	if (rc == 0)
		rc = tensor_params(client, &slice->tensor, field, &ret->tensor);
	if (rc < 0)
		return rc;
	ret->has = F(slice, tensor) | F(slice, start);
	ret->start.n = ret->tensor.shape.n;
	for (uint32_t d = 0; d < ret->start.n; d++)
		ret->start.v[d] = slice->start ? slice->start[d] : 0;
	return 0;
}

/* Encodes the slices of a list. Fails if they declare more elements than are left (*left), because such a
 * message would end the connection. */
static int list_params(tma_client *client, const struct tma_slice *slices, size_t n, const char *list,
                       struct msg_slice *ret, uint64_t *left)
{
	char name[32];

	for (size_t i = 0; i < n; i++) {
		uint64_t elements;
		int rc;

		snprintf(name, sizeof name, "%s[%zu]", list, i);
		rc = slice_params(client, &slices[i], name, &ret[i]);
		if (rc < 0)
			return rc;
		elements = 5 + tensor_elements(&ret[i].tensor) + ret[i].start.n;
		if (elements > *left)
			return client_fail(client, STATUS_INVALID_ARGUMENT,
			                   "%s: the slices do not fit into a message; send fewer "
			                   "destinations at a time",
			                   name);
		*left -= elements;
	}
	return 0;
}
