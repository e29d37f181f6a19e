/* SPDX-License-Identifier: Apache-2.0 */
/* What a client sends, written and read: requests, the items of a submit, and the notification ring. */
#include "rpc_envelope.h"

#include <string.h>

#include "codec.h"
#include "pack.h"
#include "proto/text.h"

#define RING "ring" /* the one notification that the service takes */

static enum rpc_outcome decode_envelope(const msgpack_object *root, struct rpc_request *ret,
                                        struct error *err);
static enum rpc_outcome decode_notification(const msgpack_object_array *message, struct error *err);
static enum rpc_outcome decode_call(const msgpack_object_array *message, struct rpc_request *ret,
                                    struct error *err);
static int decode_params(const struct method *method, const msgpack_object *params, union params *ret,
                         struct error *err);
static bool names_plan(const msgpack_object *item);

int rpc_encode_request(struct buffer *b, uint32_t msgid, const struct method *method, const void *params)
{
	size_t before = buffer_len(b);
	bool fields = params && method->params->n_fields;
	int r = rpc_pack_envelope(b, RPC_TYPE_REQUEST, msgid);

	r = r ? r : pack_str(b, method->name, strlen(method->name));
	r = r ? r : pack_array(b, fields);
	if (!r && fields)
		r = codec_encode(b, method->params, params);
	return rpc_finish(b, before, r);
}

int rpc_encode_ring(struct buffer *b)
{
	size_t before = buffer_len(b);
	int r = pack_array(b, 3);

	r = r ? r : pack_uint(b, RPC_TYPE_NOTIFICATION);
	r = r ? r : pack_str(b, RING, strlen(RING));
	return rpc_finish(b, before, r ? r : pack_array(b, 0));
}

enum rpc_outcome rpc_decode_request(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
                                    struct rpc_request *ret, struct error *err)
{
	const msgpack_object *root = rpc_unpack(decoder, data, len, err);

	return root ? decode_envelope(root, ret, err) : RPC_BROKEN;
}

static enum rpc_outcome decode_envelope(const msgpack_object *root, struct rpc_request *ret,
                                        struct error *err)
{
	uint64_t type;

	if (!rpc_envelope_type(root, &type)) {
		error_set(err, STATUS_PROTOCOL, "a message is an array that starts with its type, 0 or 2");
		return RPC_BROKEN;
	}
	if (type == RPC_TYPE_REQUEST)
		return decode_call(&root->via.array, ret, err);
	if (type == RPC_TYPE_NOTIFICATION)
		return decode_notification(&root->via.array, err);
	error_set(
	    err, STATUS_PROTOCOL,
	    "a message of type %llu is neither a request, [0, msgid, method, params], nor a notification, "
	    "[2, method, params]",
	    (unsigned long long)type);
	return RPC_BROKEN;
}

static enum rpc_outcome decode_notification(const msgpack_object_array *message, struct error *err)
{
	const msgpack_object *items = message->ptr;
	char what[CODEC_WHAT_SIZE];

	if (message->size != 3)
		error_set(err, STATUS_PROTOCOL,
		          "a notification has 3 elements, [2, method, params], but this one has %u",
		          message->size);
	else if (!rpc_is_name(&items[1]))
		error_set(err, STATUS_PROTOCOL, "a notification's method must be a str, got %s",
		          codec_what(&items[1], what, sizeof what));
	else if (items[2].type != MSGPACK_OBJECT_ARRAY)
		error_set(err, STATUS_PROTOCOL, "a notification's params must be an array, got %s",
		          codec_what(&items[2], what, sizeof what));
	else
		return rpc_has_name(&items[1], RING) ? RPC_RING : RPC_IGNORE;
	return RPC_BROKEN;
}

/* What has a msgid can be answered. */
static enum rpc_outcome decode_call(const msgpack_object_array *message, struct rpc_request *ret,
                                    struct error *err)
{
	const msgpack_object *items = message->ptr;
	const msgpack_object_str *name = &items[2].via.str;
	char quote[TEXT_QUOTE_SIZE], what[CODEC_WHAT_SIZE];

	if (message->size != 4) {
		error_set(err, STATUS_PROTOCOL,
		          "a request has 4 elements, [0, msgid, method, params], but this one has %u",
		          message->size);
		return RPC_BROKEN;
	}
	if (!rpc_is_msgid(&items[1])) {
		error_set(err, STATUS_PROTOCOL, "a request's msgid must be an integer from 0 to %u, got %s",
		          UINT32_MAX, codec_what(&items[1], what, sizeof what));
		return RPC_BROKEN;
	}
	ret->msgid = (uint32_t)items[1].via.u64;
	ret->method = NULL;
	if (!rpc_is_name(&items[2])) {
		error_set(err, STATUS_INVALID_ARGUMENT, "method: expected a str, got %s",
		          codec_what(&items[2], what, sizeof what));
		return RPC_REFUSE;
	}
	ret->method = method_find(name->ptr, name->size);
	if (!ret->method) {
		error_set(err, STATUS_UNSUPPORTED, "no method %s; info lists the methods",
		          text_quote(name->ptr, name->size, quote, sizeof quote));
		return RPC_REFUSE;
	}
	return decode_params(ret->method, &items[3], &ret->params, err) < 0 ? RPC_REFUSE : RPC_DISPATCH;
}

static int decode_params(const struct method *method, const msgpack_object *params, union params *ret,
                         struct error *err)
{
	const struct codec_rules rules = { method->name, method->accepts, method->requires,
		                           CODEC_REFUSE_UNKNOWN };
	const msgpack_object *map;
	char what[CODEC_WHAT_SIZE];

	if (params->type != MSGPACK_OBJECT_ARRAY)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: params must be an array, empty or with one map of fields, got %s",
		                 method->name, codec_what(params, what, sizeof what));
	map = params->via.array.size ? params->via.array.ptr : NULL;
	if (params->via.array.size > 1)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s: %u parameters, but at most one is allowed, a map of fields",
		                 method->name, params->via.array.size);
	if (map && map->type != MSGPACK_OBJECT_MAP)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected a map of fields, got %s",
		                 method->name, codec_what(map, what, sizeof what));
	return codec_decode(map, method->params, &rules, ret, err);
}

#define FIELDS_OF_ORDER(m)                                                                  \
	(F(m, wait) | F(m, signal) | F(m, reply) | F(m, priority) | F(m, multiprocessors) | \
	 F(m, host_threads))

int rpc_decode_item(const struct item_list *items, uint32_t i, struct submit_item *ret, struct error *err)
{
	static const struct codec_rules transform = { "an item",
		                                      ~FIELDS_OF_ORDER(transform) & ~F(transform, engine) &
		                                          ~F(transform, further_dst) &
		                                          ((UINT64_C(1) << FIELD_COUNT_transform) - 1),
		                                      F(transform, dst) | F(transform, src),
		                                      CODEC_REFUSE_UNKNOWN };
	static const struct codec_rules run = { "an item",
		                                F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src) |
		                                    F(plan_run, dst_table) | F(plan_run, src_table) |
		                                    F(plan_run, scale) | F(plan_run, bias) |
		                                    F(plan_run, amax_scale) | F(plan_run, amax_inverse),
		                                F(plan_run, plan), CODEC_REFUSE_UNKNOWN };

	ret->is_run = names_plan((const msgpack_object *)items->objects + i);
	if (ret->is_run)
		return codec_decode_entry(items->objects, i, "items", &plan_run_message, &run, &ret->run,
		                          err);
	return codec_decode_entry(items->objects, i, "items", &transform_message, &transform, &ret->transform,
	                          err);
}

int rpc_decode_part(const struct message_list *parts, uint32_t i, struct msg_part *ret, struct error *err)
{
	static const struct codec_rules rules = { "a part", (UINT64_C(1) << FIELD_COUNT_part) - 1,
		                                  F(part, size), CODEC_REFUSE_UNKNOWN };

	return codec_decode_entry(parts->objects, i, "parts", &part_message, &rules, ret, err);
}

int rpc_decode_further_dst(const struct message_list *list, uint32_t i, struct msg_tensor *ret,
                           struct error *err)
{
	static const struct codec_rules rules = { "a tensor", (UINT64_C(1) << FIELD_COUNT_tensor) - 1,
		                                  F(tensor, dtype) | F(tensor, shape), CODEC_REFUSE_UNKNOWN };

	return codec_decode_entry(list->objects, i, "further_dst", &tensor_message, &rules, ret, err);
}

int rpc_decode_slice(const struct message_list *slices, const char *name, uint32_t i, struct msg_slice *ret,
                     struct error *err)
{
	static const struct codec_rules rules = { "a slice", (UINT64_C(1) << FIELD_COUNT_slice) - 1,
		                                  F(slice, tensor) | F(slice, start), CODEC_REFUSE_UNKNOWN };

	return codec_decode_entry(slices->objects, i, name, &slice_message, &rules, ret, err);
}

static bool names_plan(const msgpack_object *item)
{
	if (item->type != MSGPACK_OBJECT_MAP)
		return false;
	for (uint32_t i = 0; i < item->via.map.size; i++) {
		const msgpack_object *key = &item->via.map.ptr[i].key;

		if (key->type == MSGPACK_OBJECT_STR && rpc_has_name(key, "plan"))
			return true;
	}
	return false;
}
