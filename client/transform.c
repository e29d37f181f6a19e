/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms. The library checks only what would be unsafe to send. The service checks the rest, and its
 * errors say what is wrong. */
#include "client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int transform_call(tma_client *client, enum method_id method, const struct tma_transform *t);
static int further_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret);
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

/* Returns whether the transform has to be encoded as a request even on "local:". */
static bool takes_request(const struct tma_transform *transform)
{
	return transform->n_further_dst > 0 || (transform->order && transform->order->wait.region);
}

int tma_transform(tma_client *client, const struct tma_transform *transform)
{
	if (client && local_is_idle(client) && !(transform && takes_request(transform)))
		return local_transform(client, transform);
	return transform_call(client, METHOD_transform, transform);
}

int on_transform_done(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                      void *arg, struct error *err)
{
	struct tma_result *result = arg;
	struct msg_transform_done done;
	int rc = rpc_decode_result(reply, method, &done, err);

	(void)client;
	if (rc < 0)
		return rc;
	result_of_transform(result, &done);
	return 0;
}

void result_of_transform(struct tma_result *ret, const struct msg_transform_done *done)
{
	result_set_path(ret, done->path);
	ret->bytes = done->bytes;
	ret->ns = done->ns;
}

void result_set_path(struct tma_result *result, struct bytes path)
{
	size_t len = path.len < sizeof result->path ? path.len : sizeof result->path - 1;

	memcpy(result->path, path.data, len);
	result->path[len] = '\0';
}

struct call call_of_transform(enum method_id method, const struct tma_transform *t)
{
	return (struct call){ .method = method,
		              .fill = transform_fill,
		              .from = t,
		              .order = t ? t->order : NULL,
		              .fd = -1,
		              .on_reply = on_transform_done };
}

static int transform_call(tma_client *client, enum method_id method, const struct tma_transform *t)
{
	struct call call = call_of_transform(method, t);

	return move_call(client, &call);
}

int tma_submit(tma_client *client, const struct tma_transform *transform, tma_ticket *ret)
{
	struct call call = call_of_transform(METHOD_transform, transform);

	return move_submit(client, &call, ret);
}

/* ---- Parameters ------------------------------------------------------------------------------------ */

int transform_fill(tma_client *client, const struct call *call, struct request *request, union params *ret)
{
	struct msg_transform *params = &ret->transform;
	int rc = transform_params(client, call->from, params);

	(void)request;
	if (rc == 0)
		rc = further_params(client, call->from, params);
	return rc < 0 ? rc : order_fill(transform, client, call->order, params);
}

int transform_check_part(tma_client *client, const struct tma_transform *t, const char *what)
{
	if (t && t->n_further_dst > 0)
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "transform.n_further_dst: %zu; only a transform that is a request of its own has "
		    "further destinations",
		    t->n_further_dst);
	if (!t || !t->order)
		return 0;
	return client_fail(client, STATUS_INVALID_ARGUMENT,
	                   "transform.order: %s; only a transform that is a request of its own has an order",
	                   what);
}

int transform_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret)
{
	int64_t perm[TMA_MAX_RANK];
	int n_perm, n_pads, rc;

	if (!t || !t->dst || !t->src)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "%s is NULL; a transform has a dst and a src",
		                   !t        ? "the transform"
		                   : !t->dst ? "dst"
		                             : "src");
	rc = reserved_check(client, t->reserved, COUNT(t->reserved), "transform.reserved");
	if (rc == 0)
		rc = reserved_check(client, t->value.reserved, COUNT(t->value.reserved), "value.reserved");
	if (rc < 0)
		return rc;
	ret->has = F(transform, dst) | F(transform, src);
	rc = tensor_params(client, t->dst, "dst", &ret->dst);
	if (rc < 0)
		return rc;
	rc = tensor_params(client, t->src, "src", &ret->src);
	if (rc < 0)
		return rc;
	n_perm = t->src->rank + t->src->n_split;
	n_pads = t->dst->rank + t->dst->n_split;
	if (t->perm) {
		for (int d = 0; d < n_perm; d++)
			perm[d] = t->perm[d];
		ret->has |= F(transform, perm);
		ints_params(&ret->perm, n_perm, perm);
	}
	if (t->before) {
		ret->has |= F(transform, before);
		ints_params(&ret->before, n_pads, t->before);
	}
	if (t->after) {
		ret->has |= F(transform, after);
		ints_params(&ret->after, n_pads, t->after);
	}
	if (t->mode) {
		if ((unsigned)t->mode >= PAD_MODE_COUNT)
			return client_fail(client, STATUS_INVALID_ARGUMENT,
			                   "mode: %d is not an enum tma_pad_mode", (int)t->mode);
		ret->has |= F(transform, mode);
		ret->mode = (enum pad_mode)t->mode;
	}
	if (scalar_from_number(&t->value, &ret->value) < 0)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "value.kind: %d is not an enum tma_number_kind", (int)t->value.kind);
	if (ret->value.kind != SCALAR_UNSIGNED || ret->value.u)
		ret->has |= F(transform, value);
	return t->conversion ? conversion_params(client, t->conversion, ret) : 0;
}

/* elements of the envelope and the order of a message */
#define ENVELOPE_ELEMENTS 32

static int further_room(tma_client *client, size_t n)
{
	struct msg_tensor *grown;

	if (n <= client->further_dst_room)
		return 0;
	grown = realloc(client->further_dst, n * sizeof *grown);
	if (!grown)
		return client_fail(client, STATUS_NO_MEMORY,
		                   "out of memory for the destinations of a transform");
	client->further_dst = grown;
	client->further_dst_room = n;
	return 0;
}

/* Encodes the further destinations. Fails if they do not fit into a message. */
static int further_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret)
{
	const uint64_t most = frame_request_limits.elements - ENVELOPE_ELEMENTS;
	const size_t n = t->n_further_dst;
	char name[40];
	int rc = 0;

	if (n == 0)
		return 0;
	if (!t->further_dst)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "transform.further_dst is NULL, but n_further_dst is %zu", n);
	if (n < most)
		rc = further_room(client, n);
	for (size_t i = 0; rc == 0 && n < most && i < n; i++) {
		snprintf(name, sizeof name, "further_dst[%zu]", i);
		rc = tensor_params(client, &t->further_dst[i], name, &client->further_dst[i]);
	}
	if (rc < 0)
		return rc;
	ret->has |= F(transform, further_dst);
	ret->further_dst = (struct message_list){ .items = client->further_dst, .n = (uint32_t)n };
	if (n >= most || transform_elements(ret) > most)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "transform.n_further_dst: %zu tensors do not fit into a message", n);
	return 0;
}

/* Checks only what must hold for the list of splits to be read and sent. */
static int split_check(tma_client *client, const struct tma_tensor *t, const char *name)
{
	if (t->n_split < 0 || t->n_split > TMA_MAX_SPLIT)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.n_split: %d is not in 0..%d", name,
		                   t->n_split, TMA_MAX_SPLIT);
	if (!t->split)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.split is NULL, but n_split is %d",
		                   name, t->n_split);
	if (t->rank + t->n_split > TMA_MAX_RANK)
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "%s.n_split: %d splits of rank %d make %d dimensions; at most %d are allowed", name,
		    t->n_split, t->rank, t->rank + t->n_split, TMA_MAX_RANK);
	return 0;
}

int tensor_params(tma_client *client, const struct tma_tensor *t, const char *name, struct msg_tensor *ret)
{
	char field[48];
	int rc;

	snprintf(field, sizeof field, "%s.reserved", name);
	rc = reserved_check(client, t->reserved, COUNT(t->reserved), field);
	if (rc < 0)
		return rc;
	if (t->rank < 0 || t->rank > TMA_MAX_RANK)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.rank: %d is not in 0..%d", name,
		                   t->rank, TMA_MAX_RANK);
	if ((unsigned)t->dtype >= DTYPE_COUNT)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "%s.dtype: %d is not an enum tma_dtype",
		                   name, (int)t->dtype);
	ret->has = F(tensor, dtype) | F(tensor, shape);
	ret->dtype = (enum dtype)t->dtype;
	ints_params(&ret->shape, t->rank, t->shape);
	if (t->region) {
		rc = region_param(client, t->region, name, &ret->region);
		if (rc < 0)
			return rc;
		ret->has |= F(tensor, region);
	}
	if (t->offset) {
		ret->has |= F(tensor, offset);
		ret->offset = t->offset;
	}
	if (t->strides) {
		ret->has |= F(tensor, strides);
		ints_params(&ret->strides, t->rank, t->strides);
	}
	if (t->n_split == 0)
		return 0;
	rc = split_check(client, t, name);
	if (rc == 0) {
		ret->has |= F(tensor, split);
		ints_params(&ret->split, 2 * t->n_split, t->split);
	}
	return rc;
}

uint64_t tensor_elements(const struct msg_tensor *tensor)
{
	return 2 * (uint64_t)__builtin_popcountll(tensor->has) + tensor->shape.n +
	       (tensor->has & F(tensor, strides) ? tensor->strides.n : 0) +
	       (tensor->has & F(tensor, split) ? tensor->split.n : 0);
}

static void ints_params(struct int_list *ret, int n, const int64_t *v)
{
	ret->n = (uint32_t)n;
	memcpy(ret->v, v, (size_t)n * sizeof *v);
}

/* ---- Elements -------------------------------------------------------------------------------------- */

static uint64_t operand_elements(const struct msg_operand *operand)
{
	if (operand->has & F(operand, number))
		return 0;
	return 2 * (uint64_t)__builtin_popcountll(operand->has) + operand->shape.n +
	       (operand->has & F(operand, strides) ? operand->strides.n : 0);
}

static uint64_t amax_elements(const struct msg_amax *amax)
{
	return 2 * (uint64_t)__builtin_popcountll(amax->has) + amax->block.n +
	       (amax->has & F(amax, scale) ? tensor_elements(&amax->scale) : 0) +
	       (amax->has & F(amax, inverse) ? tensor_elements(&amax->inverse) : 0);
}

static uint64_t further_elements(const struct message_list *list)
{
	const struct msg_tensor *tensors = list->items;
	uint64_t n = 0;

	for (uint32_t i = 0; i < list->n; i++)
		n += 1 + tensor_elements(&tensors[i]);
	return n;
}

uint64_t transform_elements(const struct msg_transform *t)
{
	return 2 * (uint64_t)__builtin_popcountll(t->has) + tensor_elements(&t->dst) +
	       tensor_elements(&t->src) + (t->has & F(transform, perm) ? t->perm.n : 0) +
	       (t->has & F(transform, before) ? t->before.n : 0) +
	       (t->has & F(transform, after) ? t->after.n : 0) + (t->value.kind == SCALAR_COMPLEX ? 2 : 0) +
	       (t->has & F(transform, scale) ? operand_elements(&t->scale) : 0) +
	       (t->has & F(transform, bias) ? operand_elements(&t->bias) : 0) +
	       (t->has & F(transform, amax) ? amax_elements(&t->amax) : 0) +
	       (t->has & F(transform, further_dst) ? further_elements(&t->further_dst) : 0);
}
