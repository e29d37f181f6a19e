/* SPDX-License-Identifier: Apache-2.0 */
/* Envelopes of messages, which are arrays: [0, msgid, method, params], [1, msgid, error, result] and [2,
 * method, params]. Their contents are encoded and decoded by the codec.
 *
 * A decoder is a zone that is cleared for each message. It keeps one chunk, which has room for the objects of
 * every request that the schema allows.
 */
#include "rpc.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "proto/status.h"

#define ZONE_CHUNK_SIZE (12 * 1024)

#define RING "ring" /* the only notification that the service accepts */
#define DONE "done" /* the only notification that the service sends */
#define ENDS "ends" /* key in the details of an error after which the service closes the connection */

enum rpc_type { RPC_TYPE_REQUEST = 0, RPC_TYPE_REPLY = 1, RPC_TYPE_NOTIFICATION = 2 };

struct rpc_decoder {
	msgpack_zone zone;
	msgpack_object root;
};

struct rpc_decoder *rpc_decoder_new(void)
{
	struct rpc_decoder *decoder = calloc(1, sizeof *decoder);

	if (decoder && !msgpack_zone_init(&decoder->zone, ZONE_CHUNK_SIZE)) {
		free(decoder);
		return NULL;
	}
	return decoder;
}

void rpc_decoder_free(struct rpc_decoder *decoder)
{
	if (!decoder)
		return;
	msgpack_zone_destroy(&decoder->zone);
	free(decoder);
}

void rpc_decoder_rest(struct rpc_decoder *decoder)
{
	msgpack_zone_clear(&decoder->zone);
}

/* Returns the object that the message consists of, or NULL with err. */
static const msgpack_object *unpack(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
                                    struct error *err)
{
	size_t end = 0;
	msgpack_unpack_return r;

	msgpack_zone_clear(&decoder->zone);
	r = msgpack_unpack((const char *)data, len, &end, &decoder->zone, &decoder->root);
	if (r == MSGPACK_UNPACK_NOMEM_ERROR) {
		error_set(err, STATUS_NO_MEMORY, "no memory for a message of %zu bytes", len);
		return NULL;
	}
	if ((r != MSGPACK_UNPACK_SUCCESS && r != MSGPACK_UNPACK_EXTRA_BYTES) || end != len) {
		error_set(err, STATUS_PROTOCOL, "%zu bytes are not one MessagePack object", len);
		return NULL;
	}
	return &decoder->root;
}

/* Sets *ret to the first element of an envelope. Returns false if the object is not an array that begins with
 * a non-negative integer. */
static bool envelope_type(const msgpack_object *root, uint64_t *ret)
{
	if (root->type != MSGPACK_OBJECT_ARRAY || root->via.array.size == 0 ||
	    root->via.array.ptr[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return false;
	*ret = root->via.array.ptr[0].via.u64;
	return true;
}

static bool is_msgid(const msgpack_object *object)
{
	return object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= UINT32_MAX;
}

/* Old encoders do not distinguish str from bin. The two have the same members in a msgpack_object. */
static bool is_name(const msgpack_object *object)
{
	return object->type == MSGPACK_OBJECT_STR || object->type == MSGPACK_OBJECT_BIN;
}

/* Returns whether an object for which is_name holds has this name. */
static bool has_name(const msgpack_object *object, const char *name)
{
	return object->via.str.size == strlen(name) && !memcmp(object->via.str.ptr, name, strlen(name));
}

/* Opens an envelope of four items and packs the first two. */
static int pack_envelope(struct buffer *b, enum rpc_type type, uint32_t msgid)
{
	int r = pack_array(b, 4);

	r = r ? r : pack_uint(b, type);
	return r ? r : pack_uint(b, msgid);
}

/* Ends the packing of a message that began when the buffer had `before` bytes. Returns 0 if r is 0. Otherwise
 * removes what was appended since and returns NO_MEMORY, the only reason for which packing fails. */
static int finish(struct buffer *b, size_t before, int r)
{
	if (!r)
		return 0;
	buffer_truncate(b, before);
	return STATUS_NO_MEMORY;
}

/* ---- Requests ------------------------------------------------------------------------------------------ */

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
	int r = pack_envelope(b, RPC_TYPE_REQUEST, msgid);

	r = r ? r : pack_str(b, method->name, strlen(method->name));
	r = r ? r : pack_array(b, fields);
	if (!r && fields)
		r = codec_encode(b, method->params, params);
	return finish(b, before, r);
}

int rpc_encode_ring(struct buffer *b)
{
	size_t before = buffer_len(b);
	int r = pack_array(b, 3);

	r = r ? r : pack_uint(b, RPC_TYPE_NOTIFICATION);
	r = r ? r : pack_str(b, RING, strlen(RING));
	return finish(b, before, r ? r : pack_array(b, 0));
}

enum rpc_outcome rpc_decode_request(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
                                    struct rpc_request *ret, struct error *err)
{
	const msgpack_object *root = unpack(decoder, data, len, err);

	return root ? decode_envelope(root, ret, err) : RPC_BROKEN;
}

static enum rpc_outcome decode_envelope(const msgpack_object *root, struct rpc_request *ret,
                                        struct error *err)
{
	uint64_t type;

	if (!envelope_type(root, &type)) {
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
	else if (!is_name(&items[1]))
		error_set(err, STATUS_PROTOCOL, "a notification's method must be a str, got %s",
		          codec_what(&items[1], what, sizeof what));
	else if (items[2].type != MSGPACK_OBJECT_ARRAY)
		error_set(err, STATUS_PROTOCOL, "a notification's params must be an array, got %s",
		          codec_what(&items[2], what, sizeof what));
	else
		return has_name(&items[1], RING) ? RPC_RING : RPC_IGNORE;
	return RPC_BROKEN;
}

/* Decodes a request. One that has a valid msgid can be answered, so its errors lead to RPC_REFUSE; one
 * without is RPC_BROKEN. */
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
	if (!is_msgid(&items[1])) {
		error_set(err, STATUS_PROTOCOL, "a request's msgid must be an integer from 0 to %u, got %s",
		          UINT32_MAX, codec_what(&items[1], what, sizeof what));
		return RPC_BROKEN;
	}
	ret->msgid = (uint32_t)items[1].via.u64;
	ret->method = NULL;
	if (!is_name(&items[2])) {
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

int rpc_decode_item(const struct item_list *items, uint32_t i, struct submit_item *ret, struct error *err)
{
	static const struct codec_rules transform = { "an item",
		                                      ~ORDER(transform) & ~F(transform, engine) &
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

/* Decodes entry i of the list of maps that errors call `name`. The entry may have every field of the message,
 * and must have those that the message requires. Errors about an unknown field call the entry `owner`. */
static int decode_entry(const struct message_list *list, const char *name, uint32_t i,
                        const struct message *message, const char *owner, void *ret, struct error *err)
{
	const struct codec_rules rules = { owner, codec_all_fields(message), message->needed,
		                           CODEC_REFUSE_UNKNOWN };

	return codec_decode_entry(list->objects, i, name, message, &rules, ret, err);
}

int rpc_decode_part(const struct message_list *parts, uint32_t i, struct msg_part *ret, struct error *err)
{
	return decode_entry(parts, "parts", i, &part_message, "a part", ret, err);
}

int rpc_decode_further_dst(const struct message_list *list, uint32_t i, struct msg_tensor *ret,
                           struct error *err)
{
	return decode_entry(list, "further_dst", i, &tensor_message, "a tensor", ret, err);
}

int rpc_decode_slice(const struct message_list *slices, const char *name, uint32_t i, struct msg_slice *ret,
                     struct error *err)
{
	return decode_entry(slices, name, i, &slice_message, "a slice", ret, err);
}

static bool names_plan(const msgpack_object *item)
{
	if (item->type != MSGPACK_OBJECT_MAP)
		return false;
	for (uint32_t i = 0; i < item->via.map.size; i++) {
		const msgpack_object *key = &item->via.map.ptr[i].key;

		if (key->type == MSGPACK_OBJECT_STR && has_name(key, "plan"))
			return true;
	}
	return false;
}

/* ---- Replies ------------------------------------------------------------------------------------------- */

static bool is_done(const msgpack_object_array *message);
static void decode_error(const msgpack_object *object, struct error *ret);
static bool has_ends(const msgpack_object *error);

/* Packs the error and result that follow the msgid in a reply or in the notification done. */
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
	int r = pack_envelope(b, RPC_TYPE_REPLY, msgid);

	return finish(b, before, r ? r : pack_result(b, method, result));
}

int rpc_encode_error(struct buffer *b, uint32_t msgid, const struct error *error)
{
	size_t before = buffer_len(b);
	int r = pack_envelope(b, RPC_TYPE_REPLY, msgid);

	return finish(b, before, r ? r : pack_error(b, error, false));
}

int rpc_encode_last_error(struct buffer *b, uint32_t msgid, const struct error *error)
{
	size_t before = buffer_len(b);
	int r = pack_envelope(b, RPC_TYPE_REPLY, msgid);

	return finish(b, before, r ? r : pack_error(b, error, true));
}

int rpc_encode_queued(struct buffer *b, uint32_t msgid)
{
	static const struct msg_queued queued = { .queued = true };
	size_t before = buffer_len(b);
	int r = pack_envelope(b, RPC_TYPE_REPLY, msgid);

	r = r ? r : pack_nil(b);
	return finish(b, before, r ? r : codec_encode(b, &queued_message, &queued));
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
	return finish(b, before, r);
}

int rpc_decode_reply(struct rpc_decoder *decoder, const uint8_t *data, size_t len, struct rpc_reply *ret,
                     struct error *err)
{
	const msgpack_object *root = unpack(decoder, data, len, err);
	const msgpack_object *outcome; /* three objects: msgid, error, result */
	uint64_t type;

	if (!root)
		return err->status;
	if (!envelope_type(root, &type))
		return error_set(err, STATUS_PROTOCOL, "it is not a MessagePack-RPC message");
	outcome = root->via.array.ptr + 1;
	ret->is_done = type == RPC_TYPE_NOTIFICATION && is_done(&root->via.array);
	if (ret->is_done)
		outcome = outcome[1].via.array.ptr;
	else if (type == RPC_TYPE_NOTIFICATION)
		return 1;
	else if (type != RPC_TYPE_REPLY || root->via.array.size != 4 || !is_msgid(&outcome[0]))
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

	return message->size == 3 && is_name(&items[1]) && has_name(&items[1], DONE) &&
	       items[2].type == MSGPACK_OBJECT_ARRAY && items[2].via.array.size == 3 &&
	       is_msgid(&items[2].via.array.ptr[0]);
}

/* Decodes an error. The service's errors are [code, message, details] with a negative code; other servers may
 * send a str or any other object. */
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

		if (pair->key.type == MSGPACK_OBJECT_STR && has_name(&pair->key, ENDS))
			return pair->val.type == MSGPACK_OBJECT_BOOLEAN && pair->val.via.boolean;
	}
	return false;
}

int rpc_decode_result(const struct rpc_reply *reply, const struct method *method, void *ret,
                      struct error *err)
{
	const struct message *message = method->result;
	const struct codec_rules rules = { .owner = method->name,
		                           .accepts = UINT64_MAX,
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
	       has_name(&pair->key, "queued");
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
		                                  .accepts = UINT64_MAX,
		                                  .unknown = CODEC_SKIP_UNKNOWN };
	struct error cause;

	if (codec_decode_entry(errors->objects, i, "errors", &item_error_message, &rules, ret, &cause) < 0)
		return error_set(err, STATUS_PROTOCOL, "the reply to submit: %s", cause.message);
	return 0;
}

/* ---- The first bytes of a message ---------------------------------------------------------------------- */

/* Reads a non-negative integer at *pos, and moves *pos past it. Returns RPC_HEAD_REQUEST if it succeeds. */
static enum rpc_head read_uint(const uint8_t *data, size_t len, size_t *pos, uint64_t *ret)
{
	size_t size;

	if (*pos >= len)
		return RPC_HEAD_SHORT;
	if (data[*pos] < 0x80) {
		*ret = data[(*pos)++];
		return RPC_HEAD_REQUEST;
	}
	if (data[*pos] < 0xcc || data[*pos] > 0xd3)
		return RPC_HEAD_OTHER;
	size = (size_t)1 << (data[*pos] & 3);
	if (len - *pos <= size)
		return RPC_HEAD_SHORT;
	*ret = 0;
	for (size_t i = 1; i <= size; i++)
		*ret = *ret << 8 | data[*pos + i];
	if (data[*pos] >= 0xd0 && *ret >> (8 * size - 1)) /* a negative value of a signed type */
		return RPC_HEAD_OTHER;
	*pos += 1 + size;
	return RPC_HEAD_REQUEST;
}

/* A request begins with the header of an array of four elements, which has three encodings. The type, which
 * is 0, and the msgid follow. */
enum rpc_head rpc_find_msgid(const uint8_t *data, size_t len, uint32_t *ret)
{
	size_t pos = 1, more = 0;
	uint64_t type, msgid;
	enum rpc_head r;

	if (len == 0)
		return RPC_HEAD_SHORT;
	if (data[0] == 0xdc || data[0] == 0xdd)
		more = data[0] == 0xdc ? 2 : 4;
	else if (data[0] != 0x94)
		return RPC_HEAD_OTHER;
	for (; pos <= more; pos++) {
		if (pos >= len)
			return RPC_HEAD_SHORT;
		if (data[pos] != (pos == more ? 4 : 0))
			return RPC_HEAD_OTHER;
	}
	r = read_uint(data, len, &pos, &type);
	if (r == RPC_HEAD_REQUEST && type != 0)
		return RPC_HEAD_OTHER;
	if (r == RPC_HEAD_REQUEST)
		r = read_uint(data, len, &pos, &msgid);
	if (r != RPC_HEAD_REQUEST)
		return r;
	if (msgid > UINT32_MAX)
		return RPC_HEAD_OTHER;
	*ret = (uint32_t)msgid;
	return r;
}
