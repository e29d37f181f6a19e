/* Transforms, at once or by ticket. Checked here is only what would be unsafe to send; the service says the
 * rest, in its own sentences. */
#include "client.h"

#include <inttypes.h>
#include <string.h>

/* More bytes than this that the socket does not take make tma_submit wait. */
#define SUBMIT_KEEP_BYTES (64 * 1024)

static int transform_call(tma_client *client, enum method_id method, const struct tma_transform *t);
static int ticket_submit(tma_client *client, struct call *call, tma_ticket *ret);
static int ticket_slot(tma_client *client, tma_ticket ticket, uint32_t *ret_slot);
static int ticket_end(tma_client *client, uint32_t slot, struct tma_result *ret);
static int tensor_params(tma_client *client, const struct tma_tensor *t, const char *name,
                         struct msg_tensor *ret);
static void ints_params(struct int_list *ret, int n, const int64_t *v);

/* ---- Transforms ------------------------------------------------------------------------------------ */

int tma_copy(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src)
{
	return transform_call(client, METHOD_copy, &(struct tma_transform){ .dst = dst, .src = src });
}

int tma_transpose(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                  const int *perm)
{
	return transform_call(client, METHOD_transpose,
	                      &(struct tma_transform){ .dst = dst, .src = src, .perm = perm });
}

int tma_pad(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
            const int64_t *before, const int64_t *after, enum tma_pad_mode mode, struct tma_number value)
{
	return transform_call(
	    client, METHOD_pad,
	    &(struct tma_transform){
		.dst = dst, .src = src, .before = before, .after = after, .mode = mode, .value = value });
}

int tma_transform(tma_client *client, const struct tma_transform *transform)
{
	return transform_call(client, METHOD_transform, transform);
}

const struct tma_result *tma_last_result(const tma_client *client)
{
	return client ? &client->last_result : NULL;
}

static int on_transform_done(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                             void *arg, struct error *err)
{
	struct tma_result *result = arg;
	struct msg_transform_done done;
	int rc = rpc_decode_result(reply, method, &done, err);
	size_t len;

	(void)client;
	if (rc < 0)
		return rc;
	len = done.path.len < sizeof result->path ? done.path.len : sizeof result->path - 1;
	memcpy(result->path, done.path.data, len);
	result->path[len] = '\0';
	result->bytes = done.bytes;
	result->ns = done.ns;
	return 0;
}

static int ticket_check(tma_client *client, const struct call *call)
{
	int rc = client_check_usable(client);

	return !rc && call->method != METHOD_ping && !call->transform ? transform_params(client, NULL, NULL)
	                                                              : rc;
}

static int transform_call(tma_client *client, enum method_id method, const struct tma_transform *t)
{
	struct call call = { .method = method, .transform = t, .fd = -1, .on_reply = on_transform_done };
	int rc = ticket_check(client, &call);
	uint32_t slot = 0;

	if (!rc)
		rc = request_run(client, &call, client_deadline(client), &slot);
	if (!rc)
		return ticket_end(client, slot, NULL);
	if (client)
		client->last_result = (struct tma_result){ .status = rc, .reconnects = client->reconnects };
	return rc;
}

/* ---- Tickets --------------------------------------------------------------------------------------- */

int tma_submit(tma_client *client, const struct tma_transform *transform, tma_ticket *ret)
{
	struct call call = {
		.method = METHOD_transform, .transform = transform, .fd = -1, .on_reply = on_transform_done
	};

	return ticket_submit(client, &call, ret);
}

int tma_submit_ping(tma_client *client, tma_ticket *ret)
{
	return ticket_submit(client, &(struct call){ .method = METHOD_ping, .fd = -1, .on_reply = on_true },
	                     ret);
}

/* A request that is kept for a batch waits for nothing, and needs no deadline. */
static int ticket_submit(tma_client *client, struct call *call, tma_ticket *ret)
{
	bool waits = !client || !client->is_batching || client->sock < 0 || client->is_device_lost;
	int rc = ticket_check(client, call);
	uint32_t slot = 0;

	if (rc < 0)
		return rc;
	call->may_be_kept = true;
	rc = request_start(client, call, waits ? client_deadline(client) : -1, &slot);
	if (rc < 0)
		return rc;
	if (buffer_len(&client->out) > SUBMIT_KEEP_BYTES)
		client_wait_sent(client, SUBMIT_KEEP_BYTES, client_deadline(client),
		                 methods[call->method].name);
	*ret = (uint64_t)client->requests[slot].generation << 32 | (slot + 1);
	return 0;
}

void tma_set_batching(tma_client *client, bool on)
{
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
		return STATUS_BUSY;
	return ticket_end(client, slot, ret);
}

int tma_dispatch(tma_client *client)
{
	int rc = client_check(client);

	if (rc < 0)
		return rc;
	client->n_ended = 0;
	client_pump(client);
	return client->n_ended ? client->n_ended : client_check(client);
}

static int ticket_slot(tma_client *client, tma_ticket ticket, uint32_t *ret_slot)
{
	uint32_t slot = (uint32_t)ticket - 1;

	if (!client)
		return STATUS_INVALID_ARGUMENT;
	if (slot >= client->n_requests || client->requests[slot].state == REQUEST_FREE ||
	    client->requests[slot].generation != ticket >> 32)
		return client_fail(
		    client, STATUS_NOT_FOUND,
		    "ticket %" PRIu64 " is not under way: it was never given, or has ended before", ticket);
	*ret_slot = slot;
	return 0;
}

static int ticket_end(tma_client *client, uint32_t slot, struct tma_result *ret)
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

/* ---- Parameters ------------------------------------------------------------------------------------ */

int transform_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret)
{
	int64_t perm[TMA_MAX_RANK];
	int rc;

	if (!t || !t->dst || !t->src)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s is NULL; a transform has a dst and a src",
		                   !t        ? "the transform"
		                   : !t->dst ? "dst"
		                             : "src");
	ret->has = F(transform, dst) | F(transform, src);
	rc = tensor_params(client, t->dst, "dst", &ret->dst);
	if (rc < 0)
		return rc;
	rc = tensor_params(client, t->src, "src", &ret->src);
	if (rc < 0)
		return rc;
	if (t->perm) {
		for (int d = 0; d < t->src->rank; d++)
			perm[d] = t->perm[d];
		ret->has |= F(transform, perm);
		ints_params(&ret->perm, t->src->rank, perm);
	}
	if (t->before) {
		ret->has |= F(transform, before);
		ints_params(&ret->before, t->dst->rank, t->before);
	}
	if (t->after) {
		ret->has |= F(transform, after);
		ints_params(&ret->after, t->dst->rank, t->after);
	}
	if (t->mode) {
		if ((unsigned)t->mode >= PAD_MODE_COUNT)
			return client_fail(client, STATUS_INVALID_ARGUMENT,
			                   "mode: %d is no enum tma_pad_mode", (int)t->mode);
		ret->has |= F(transform, mode);
		ret->mode = (enum pad_mode)t->mode;
	}
	if (scalar_from_number(&t->value, &ret->value) < 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "value.kind: %d is no enum tma_number_kind", (int)t->value.kind);
	if (ret->value.kind != SCALAR_UNSIGNED || ret->value.u)
		ret->has |= F(transform, value);
	return 0;
}

static int tensor_params(tma_client *client, const struct tma_tensor *t, const char *name,
                         struct msg_tensor *ret)
{
	if (t->rank < 0 || t->rank > TMA_MAX_RANK)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.rank: %d is not in 0..%d", name,
		                   t->rank, TMA_MAX_RANK);
	if ((unsigned)t->dtype >= DTYPE_COUNT)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.dtype: %d is no enum tma_dtype", name,
		                   (int)t->dtype);
	ret->has = F(tensor, dtype) | F(tensor, shape);
	ret->dtype = (enum dtype)t->dtype;
	ints_params(&ret->shape, t->rank, t->shape);
	if (t->region) {
		if (t->region->client != client)
			return client_fail(
			    client, STATUS_INVALID_ARGUMENT,
			    "%s.region: it is of another client; regions belong to one connection", name);
		if (t->region->life == REGION_GONE)
			return client_fail(client, t->region->error.status,
			                   "%s.region: it could not be registered again: %s", name,
			                   t->region->error.message);
		ret->has |= F(tensor, region);
		ret->region = t->region->id;
	}
	if (t->offset) {
		ret->has |= F(tensor, offset);
		ret->offset = t->offset;
	}
	if (t->strides) {
		ret->has |= F(tensor, strides);
		ints_params(&ret->strides, t->rank, t->strides);
	}
	return 0;
}

static void ints_params(struct int_list *ret, int n, const int64_t *v)
{
	ret->n = (uint32_t)n;
	memcpy(ret->v, v, (size_t)n * sizeof *v);
}
