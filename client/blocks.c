/* SPDX-License-Identifier: Apache-2.0 */
/* Gather and scatter: one transform for each block of a list. */
#include "client.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

static params_fn blocks_fill;
static int index_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret);
static void step_params(const struct tma_blocks *blocks, struct msg_blocks *ret);
static int layer_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret);
static int table_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret);
static int places_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret);

static int on_blocks_done(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                          void *arg, struct error *err)
{
	struct tma_result *result = arg;
	struct msg_blocks_done done;
	int rc = rpc_decode_result(reply, method, &done, err);

	(void)client;
	if (rc < 0)
		return rc;
	result_of_blocks(result, &done);
	return 0;
}

void result_of_blocks(struct tma_result *ret, const struct msg_blocks_done *done)
{
	result_set_path(ret, done->path);
	ret->bytes = done->bytes;
	ret->ns = done->ns;
	ret->moved = done->moved;
	ret->passed = done->passed;
	ret->beyond = done->beyond;
}

struct call call_of_blocks(enum method_id method, const struct tma_blocks *blocks)
{
	return (struct call){ .method = method,
		              .fill = blocks_fill,
		              .from = blocks,
		              .order = blocks ? blocks->order : NULL,
		              .fd = -1,
		              .on_reply = on_blocks_done };
}

int tma_gather(tma_client *client, const struct tma_blocks *blocks)
{
	struct call call = call_of_blocks(METHOD_gather, blocks);

	return move_call(client, &call);
}

int tma_scatter(tma_client *client, const struct tma_blocks *blocks)
{
	struct call call = call_of_blocks(METHOD_scatter, blocks);

	return move_call(client, &call);
}

int tma_submit_gather(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret)
{
	struct call call = call_of_blocks(METHOD_gather, blocks);

	return move_submit(client, &call, ret);
}

int tma_submit_scatter(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret)
{
	struct call call = call_of_blocks(METHOD_scatter, blocks);

	return move_submit(client, &call, ret);
}

/* ---- Parameters ------------------------------------------------------------------------------------- */

/* Copies the fields that blocks share with a transform. */
static void transform_fields(const struct msg_transform *t, struct msg_blocks *ret)
{
	ret->has = F(blocks, dst) | F(blocks, src);
	ret->dst = t->dst;
	ret->src = t->src;
#define COPY(field)                           \
	if (t->has & F(transform, field)) {   \
		ret->has |= F(blocks, field); \
		ret->field = t->field;        \
	}
	COPY(perm)
	COPY(before)
	COPY(after)
	COPY(mode)
	COPY(value)
	COPY(cast)
	COPY(scale)
	COPY(bias)
#undef COPY
}

static int blocks_fill(tma_client *client, const struct call *call, struct request *request,
                       union params *ret)
{
	const struct tma_blocks *blocks = call->from;
	struct msg_blocks *params = &ret->blocks;
	struct msg_transform transform = { 0 }; /* Absent fields of nested messages read as 0. */
	int rc;

	(void)request;
	if (!blocks)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "blocks is NULL");
	rc = reserved_check(client, blocks->reserved, COUNT(blocks->reserved), "blocks.reserved");
	if (rc == 0)
		rc = place_check(client, &blocks->index_at, "index_at");
	if (rc == 0)
		rc = transform_check_part(client, blocks->transform, "set, but blocks have their own");
	if (rc == 0)
		rc = transform_params(client, blocks->transform, &transform);
	if (rc == 0 && transform.has & F(transform, amax))
		rc = client_fail(
		    client, STATUS_UNSUPPORTED,
		    "amax: lists of blocks compute no scales; a transform, a plan and an item do");
	if (rc < 0)
		return rc;
	transform_fields(&transform, params);
	step_params(blocks, params);
	rc = layer_params(client, blocks, params);
	if (rc == 0)
		rc = table_params(client, blocks, params);
	if (rc == 0)
		rc = places_params(client, blocks, params);
	if (rc == 0)
		rc = index_params(client, blocks, params);
	return rc < 0 ? rc : order_fill(blocks, client, call->order, params);
}

static int index_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret)
{
	bool is_placed;
	size_t bytes;

	if (blocks->index_dtype != TMA_INT32 && blocks->index_dtype != TMA_INT64)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "index_dtype: %d is neither TMA_INT32 nor TMA_INT64",
		                   (int)blocks->index_dtype);
	if (blocks->pairs) {
		ret->has |= F(blocks, pairs);
		ret->pairs = true;
	}
	ret->has |= F(blocks, index_dtype);
	ret->index_dtype = (enum dtype)blocks->index_dtype;
	/* On "local:", a place may be an address. */
	is_placed = blocks->index_at.region || (client->local && blocks->index_at.offset);
	if (!blocks->index != is_placed)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "index and index_at.region are both %s",
		                   blocks->index ? "given; the list is in one place" : "NULL");
	if (!blocks->index) {
		ret->has |= F(blocks, index_at) | F(blocks, count);
		ret->count = blocks->count;
		return place_param(client, blocks->index_at, "index_at", &ret->index_at);
	}
	if (__builtin_mul_overflow(blocks->count, tma_dtype_size(blocks->index_dtype) << (blocks->pairs != 0),
	                           &bytes) ||
	    bytes > frame_request_limits.bytes)
		return client_fail(
		    client, STATUS_INVALID_ARGUMENT,
		    "count: %zu entries do not fit into a message of %zu bytes; put them into a region "
		    "(index_at)",
		    blocks->count, frame_request_limits.bytes);
	ret->has |= F(blocks, index);
	ret->index = (struct bytes){ blocks->index, bytes };
	return 0;
}

static void step_params(const struct tma_blocks *blocks, struct msg_blocks *ret)
{
#define GIVE(field)                           \
	if (blocks->field) {                  \
		ret->has |= F(blocks, field); \
		ret->field = blocks->field;   \
	}
	GIVE(limit)
	GIVE(dst_limit)
	GIVE(dst_step)
	GIVE(src_step)
	GIVE(layers)
	GIVE(dst_layer_step)
	GIVE(src_layer_step)
#undef GIVE
}

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "lists travel little-endian, as they lie here");

static int layer_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret)
{
	const size_t layers = blocks->layers      ? blocks->layers
	                      : blocks->dst_table ? blocks->dst_table->n
	                      : blocks->src_table ? blocks->src_table->n
	                                          : 1;
	const size_t bytes = layers * sizeof(int64_t);

	if ((blocks->dst_layers || blocks->src_layers) && bytes > frame_request_limits.bytes)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "layers: %zu offsets do not fit into a message of %zu bytes", layers,
		                   frame_request_limits.bytes);
	if (blocks->dst_layers) {
		ret->has |= F(blocks, dst_layers);
		ret->dst_layers = (struct bytes){ (const char *)blocks->dst_layers, bytes };
	}
	if (blocks->src_layers) {
		ret->has |= F(blocks, src_layers);
		ret->src_layers = (struct bytes){ (const char *)blocks->src_layers, bytes };
	}
	return 0;
}

static int table_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret)
{
	int rc = 0;

	if (blocks->dst_table) {
		ret->has |= F(blocks, dst_table);
		rc = table_param(client, blocks->dst_table, "dst_table", &ret->dst_table);
	}
	if (blocks->src_table && rc == 0) {
		ret->has |= F(blocks, src_table);
		rc = table_param(client, blocks->src_table, "src_table", &ret->src_table);
	}
	return rc;
}

/* Encodes the places with the current ids of their regions; name is what errors call the list. */
static int places_param(tma_client *client, const struct tma_place *places, size_t n, const char *name,
                        uint64_t *words, struct bytes *ret)
{
	for (size_t i = 0; i < n; i++) {
		struct region_place place;

		if (place_param(client, places[i], name, &place) < 0) {
			char one[32];

			snprintf(one, sizeof one, "%s[%zu]", name, i);
			return place_param(client, places[i], one, &place);
		}
		words[2 * i] = htole64(place.region);
		words[2 * i + 1] = htole64(place.offset);
	}
	*ret = (struct bytes){ (const char *)words, 2 * n * sizeof *words };
	return 0;
}

static int places_params(tma_client *client, const struct tma_blocks *blocks, struct msg_blocks *ret)
{
	const size_t n = blocks->layers ? blocks->layers : 1, words = 2 * n;
	uint64_t *room;
	int rc = 0;

	if (!blocks->dst_places && !blocks->src_places)
		return 0;
	if (words * sizeof *room > frame_request_limits.bytes)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "layers: %zu places do not fit into a message of %zu bytes", n,
		                   frame_request_limits.bytes);
	room = realloc(client->places, 2 * words * sizeof *room);
	if (!room)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for the places of layers");
	client->places = room;
	if (blocks->dst_places) {
		ret->has |= F(blocks, dst_places);
		rc = places_param(client, blocks->dst_places, n, "dst_places", room, &ret->dst_places);
	}
	if (blocks->src_places && rc == 0) {
		ret->has |= F(blocks, src_places);
		rc =
		    places_param(client, blocks->src_places, n, "src_places", room + words, &ret->src_places);
	}
	return rc;
}
