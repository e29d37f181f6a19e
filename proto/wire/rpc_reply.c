/* SPDX-License-Identifier: Apache-2.0 */
/* What the service sends, written and read: replies, and the notification done of a request that was queued.
 */
#include "rpc_envelope.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

#include "codec.h"
#include "pack.h"
#include "proto/text.h"

#define DONE "done" /* the one notification that the service sends */
#define ENDS "ends" /* of an error's details */

static int pack_result(struct buffer *b, const struct method *method, const void *result);
static int pack_error(struct buffer *b, const struct error *error, bool ends);
static bool is_done(const msgpack_object_array *message);
static void decode_error(const msgpack_object *object, struct error *ret);
static bool has_ends(const msgpack_object *error);

/* What follows an envelope's msgid, of a reply and of the notification done alike. */
static int pack_result(struct buffer *b, const struct method *method, const void *result)
{
	int r = pack_nil(b);

	if (r)
		return r;
	switch (method->result_kind) {
	case RESULT_MESSAGE:
		return codec_encode(b, method->result, result);
	case RESULT_LIST:
		return codec_encode_list(b, method->result, result);
	case RESULT_TRUE:
		return pack_bool(b, true);
	}
	assert(!"a method without a result");
	return STATUS_INTERNAL;
}

static int pack_error(struct buffer *b, const struct error *error, bool ends)
{
	const char *name = status_name(error->status);
	char message[sizeof error->message];
	size_t len = text_clean(error->message, strnlen(error->message, sizeof error->message), message,
	                        sizeof message);
	int r = pack_array(b, 3);

	r = r ? r : pack_int(b, error->status);
	r = r ? r : pack_str(b, message, len);
	r = r ? r : pack_map(b, ends ? 2 : 1);
	r = r ? r : pack_str(b, "name", strlen("name"));
	r = r ? r : pack_str(b, name, strlen(name));
	if (!r && ends) {
		r = pack_str(b, ENDS, strlen(ENDS));
		r = r ? r : pack_bool(b, true);
	}
	return r ? r : pack_nil(b);
}

int rpc_encode_result(struct buffer *b, uint32_t msgid, const struct method *method, const void *result)
{
	size_t before = buffer_len(b);
	int r = rpc_pack_envelope(b, RPC_TYPE_REPLY, msgid);

	return rpc_finish(b, before, r ? r : pack_result(b, method, result));
}

int rpc_encode_error(struct buffer *b, uint32_t msgid, const struct error *error)
{
	size_t before = buffer_len(b);
	int r = rpc_pack_envelope(b, RPC_TYPE_REPLY, msgid);

	return rpc_finish(b, before, r ? r : pack_error(b, error, false));
}

int rpc_encode_last_error(struct buffer *b, uint32_t msgid, const struct error *error)
{
	size_t before = buffer_len(b);
	int r = rpc_pack_envelope(b, RPC_TYPE_REPLY, msgid);

	return rpc_finish(b, before, r ? r : pack_error(b, error, true));
}

int rpc_encode_queued(struct buffer *b, uint32_t msgid)
{
	static const struct msg_queued queued = { .queued = true };
	size_t before = buffer_len(b);
	int r = rpc_pack_envelope(b, RPC_TYPE_REPLY, msgid);

	r = r ? r : pack_nil(b);
	return rpc_finish(b, before, r ? r : codec_encode(b, &queued_message, &queued));
}

int rpc_encode_done(struct buffer *b, uint32_t msgid, const struct method *method, const void *result,
                    const struct error *error)
{
	size_t before = buffer_len(b);
	int r = pack_array(b, 3);

	r = r ? r : pack_uint(b, RPC_TYPE_NOTIFICATION);
	r = r ? r : pack_str(b, DONE, strlen(DONE));
	r = r ? r : pack_array(b, 3);
	r = r ? r : pack_uint(b, msgid);
	if (!r)
		r = error ? pack_error(b, error, false) : pack_result(b, method, result);
	return rpc_finish(b, before, r);
}

int rpc_decode_reply(struct rpc_decoder *decoder, const uint8_t *data, size_t len, struct rpc_reply *ret,
                     struct error *err)
{
	const msgpack_object *root = rpc_unpack(decoder, data, len, err);
	const msgpack_object *outcome; /* msgid, error, result */
	uint64_t type;

	if (!root)
		return err->status;
	if (!rpc_envelope_type(root, &type))
		return error_set(err, STATUS_PROTOCOL, "it is not a MessagePack-RPC message");
	outcome = root->via.array.ptr + 1;
	ret->is_done = type == RPC_TYPE_NOTIFICATION && is_done(&root->via.array);
	if (ret->is_done)
		outcome = outcome[1].via.array.ptr;
	else if (type == RPC_TYPE_NOTIFICATION)
		return 1;
	else if (type != RPC_TYPE_REPLY || root->via.array.size != 4 || !rpc_is_msgid(&outcome[0]))
		return error_set(
		    err, STATUS_PROTOCOL,
		    "a message of type %llu with %u elements from the service is not a reply, [1, msgid, "
		    "error, result]",
		    (unsigned long long)type, root->via.array.size);
	ret->msgid = (uint32_t)outcome[0].via.u64;
	ret->document = &outcome[2];
	ret->error.status = STATUS_OK;
	ret->ends = false;
	if (outcome[1].type != MSGPACK_OBJECT_NIL) {
		decode_error(&outcome[1], &ret->error);
		ret->ends = has_ends(&outcome[1]);
	}
	return 0;
}

static bool is_done(const msgpack_object_array *message)
{
	const msgpack_object *items = message->ptr;

	return message->size == 3 && rpc_is_name(&items[1]) && rpc_has_name(&items[1], DONE) &&
	       items[2].type == MSGPACK_OBJECT_ARRAY && items[2].via.array.size == 3 &&
	       rpc_is_msgid(&items[2].via.array.ptr[0]);
}

/* Ours is [code, message, details], code negative. Other servers answer a str, or anything. */
static void decode_error(const msgpack_object *object, struct error *ret)
{
	char quote[TEXT_QUOTE_SIZE];
	char what[CODEC_WHAT_SIZE];

	if (object->type == MSGPACK_OBJECT_ARRAY && object->via.array.size >= 2) {
		const msgpack_object *code = &object->via.array.ptr[0];
		const msgpack_object *message = &object->via.array.ptr[1];

		if (code->type == MSGPACK_OBJECT_NEGATIVE_INTEGER && code->via.i64 >= INT_MIN &&
		    message->type == MSGPACK_OBJECT_STR) {
			ret->status = (int)code->via.i64;
			text_clean(message->via.str.ptr, message->via.str.size, ret->message,
			           sizeof ret->message);
			return;
		}
	}
	if (object->type == MSGPACK_OBJECT_STR)
		text_quote(object->via.str.ptr, object->via.str.size, quote, sizeof quote);
	error_set(ret, STATUS_PROTOCOL, "the service refused with an error that is not [code, message]: %s",
	          object->type == MSGPACK_OBJECT_STR ? quote : codec_what(object, what, sizeof what));
}

static bool has_ends(const msgpack_object *error)
{
	const msgpack_object *details = error->type == MSGPACK_OBJECT_ARRAY && error->via.array.size > 2
	                                    ? &error->via.array.ptr[2]
	                                    : NULL;

	if (!details || details->type != MSGPACK_OBJECT_MAP)
		return false;
	for (uint32_t i = 0; i < details->via.map.size; i++) {
		const msgpack_object_kv *pair = &details->via.map.ptr[i];

		if (pair->key.type == MSGPACK_OBJECT_STR && rpc_has_name(&pair->key, ENDS))
			return pair->val.type == MSGPACK_OBJECT_BOOLEAN && pair->val.via.boolean;
	}
	return false;
}

int rpc_decode_result(const struct rpc_reply *reply, const struct method *method, void *ret,
                      struct error *err)
{
	const struct message *message = method->result;
	const struct codec_rules rules = { .owner = method->name,
		                           .accepts = ~0u,
		                           .requires = message->needed,
		                           .unknown = CODEC_SKIP_UNKNOWN };
	const msgpack_object *map = reply->document;
	char what[CODEC_WHAT_SIZE];
	struct error cause;

	if (map->type != MSGPACK_OBJECT_MAP)
		return error_set(err, STATUS_PROTOCOL, "the reply to %s is not a map but %s", method->name,
		                 codec_what(map, what, sizeof what));
	if (codec_decode(map, message, &rules, ret, &cause) < 0)
		return error_set(err, STATUS_PROTOCOL, "the reply to %s: %s", method->name, cause.message);
	return 0;
}

bool rpc_is_queued(const struct rpc_reply *reply)
{
	const msgpack_object *map = reply->document;
	const msgpack_object_kv *pair = map->type == MSGPACK_OBJECT_MAP ? map->via.map.ptr : NULL;

	return !reply->is_done && pair && map->via.map.size > 0 && pair->key.type == MSGPACK_OBJECT_STR &&
	       rpc_has_name(&pair->key, "queued");
}

int rpc_code_at(const struct code_list *codes, uint32_t i)
{
	const msgpack_object *code = (const msgpack_object *)codes->objects + i;

	if (code->type == MSGPACK_OBJECT_NEGATIVE_INTEGER && code->via.i64 >= -STATUS_COUNT)
		return (int)code->via.i64;
	return code->type == MSGPACK_OBJECT_POSITIVE_INTEGER && code->via.u64 == 0 ? 0 : STATUS_INTERNAL;
}

int rpc_decode_item_error(const struct message_list *errors, uint32_t i, struct msg_item_error *ret,
                          struct error *err)
{
	static const struct codec_rules rules = { .owner = "an error of a submit",
		                                  .accepts = ~0u,
		                                  .unknown = CODEC_SKIP_UNKNOWN };
	struct error cause;

	if (codec_decode_entry(errors->objects, i, "errors", &item_error_message, &rules, ret, &cause) < 0)
		return error_set(err, STATUS_PROTOCOL, "the reply to submit: %s", cause.message);
	return 0;
}
