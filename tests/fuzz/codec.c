/* SPDX-License-Identifier: Apache-2.0 */
/* Checks decoding and encoding by the field tables. The first byte of the input chooses a request, a reply,
 * or one message of schema.def as the outermost map; the rest is messages. What is decoded, encoded and
 * decoded again has the same encoding. Refusals are sentences. */
#include "proto/wire/codec.h"

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "stream.h"
#include "tests/support/oracle.h"
#include "traffic.h"

static const struct message *const messages[] = {
#define MESSAGE(m, doc) &m##_message,
#include "proto/schema.def"
};

#define MESSAGES (sizeof messages / sizeof *messages)

/* Large enough for the struct of any message. */
union any_message {
	uint64_t has;
#define MESSAGE(m, doc) struct msg_##m m;
#include "proto/schema.def"
};

enum kind { KIND_REQUEST, KIND_REPLY, KIND_MESSAGE, KIND_MADE, KINDS };

static struct rpc_decoder *decoder;

static void check_same(const struct buffer *a, const struct buffer *b, const char *what)
{
	fuzz_check(buffer_len(a) == buffer_len(b), "%s: %zu and %zu bytes", what, buffer_len(a),
	           buffer_len(b));
	fuzz_check(!memcmp(a->data + a->start, b->data + b->start, buffer_len(a)), "%s", what);
}

static bool same_values(const struct message *message, const void *a, const void *b);

/* Compares bits, because NaNs differ from themselves and zeros have signs. */
static bool same_scalars(const struct scalar *a, const struct scalar *b)
{
	return a->kind == b->kind && a->u == b->u &&
	       (a->kind != SCALAR_COMPLEX || !memcmp(&a->im, &b->im, sizeof a->im));
}

static bool same_devices(const struct device_name *a, const struct device_name *b)
{
	return !a->uuid.data == !b->uuid.data && a->number == b->number && a->uuid.len == b->uuid.len &&
	       (!a->uuid.len || !memcmp(a->uuid.data, b->uuid.data, a->uuid.len));
}

static bool same_items(const struct item_list *a, const struct item_list *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; i < a->n && same; i++) {
		const struct submit_item *one = &a->items[i], *two = &b->items[i];

		same = one->is_run == two->is_run &&
		       (one->is_run ? same_values(&plan_run_message, &one->run, &two->run)
		                    : same_values(&transform_message, &one->transform, &two->transform));
	}
	return same;
}

static bool same_lists(const struct message *inner, const struct message_list *a,
                       const struct message_list *b)
{
	bool same = a->n == b->n;

	for (uint32_t i = 0; i < a->n && same; i++)
		same = same_values(inner, (const char *)a->items + i * inner->size,
		                   (const char *)b->items + i * inner->size);
	return same;
}

/* Compares nested messages. If the message is absent, its other members have no meaning. */
static bool same_inner(const struct message *message, const void *a, const void *b)
{
	const uint64_t has = *(const uint64_t *)a;

	return has == *(const uint64_t *)b && (has == 0 || same_values(message, a, b));
}

static bool same_operands(const struct message *message, const struct msg_operand *a,
                          const struct msg_operand *b)
{
	if (a->has & b->has & F(operand, number))
		return a->has == b->has && same_scalars(&a->number, &b->number);
	return same_inner(message, a, b);
}

static bool same_field(const struct field *field, const void *a, const void *b)
{
	const struct bytes *text = a, *other = b;
	const struct int_list *ints = a, *others = b;

	switch (field->kind) {
	case FIELD_KIND_BOOL:
		return *(const bool *)a == *(const bool *)b;
	case FIELD_KIND_UINT:
		return *(const uint64_t *)a == *(const uint64_t *)b;
	case FIELD_KIND_STRING:
	case FIELD_KIND_BINARY:
		return text->len == other->len && (!text->len || !memcmp(text->data, other->data, text->len));
	case FIELD_KIND_DEVICE:
		return same_devices(a, b);
	case FIELD_KIND_INTS:
		return ints->n == others->n && !memcmp(ints->v, others->v, ints->n * sizeof *ints->v);
	case FIELD_KIND_VALUE:
		return same_scalars(a, b);
	case FIELD_KIND_PLACE:
		return !memcmp(a, b, sizeof(struct region_place));
	case FIELD_KIND_ITEMS:
		return same_items(a, b);
	case FIELD_KIND_LIST:
		return same_lists(field->inner, a, b);
	case FIELD_KIND_MESSAGE:
		return same_inner(field->inner, a, b);
	case FIELD_KIND_OPERAND:
		return same_operands(field->inner, a, b);
	default:
		return *(const unsigned *)a == *(const unsigned *)b;
	}
}

/* Absent fields have their defaults on both sides. */
static bool same_values(const struct message *message, const void *a, const void *b)
{
	bool same = *(const uint64_t *)a == *(const uint64_t *)b;

	for (uint32_t i = 0; i < message->n_fields && same; i++)
		same = same_field(&message->fields[i], (const char *)a + message->fields[i].offset,
		                  (const char *)b + message->fields[i].offset);
	return same;
}

/* Returns whether the message can be encoded again; lists are decoded separately, one by one. */
static bool is_decodable(const struct message *message)
{
	for (uint32_t i = 0; i < message->n_fields; i++)
		if (message->fields[i].kind == FIELD_KIND_LIST ||
		    message->fields[i].kind == FIELD_KIND_ITEMS ||
		    message->fields[i].kind == FIELD_KIND_CODES ||
		    message->fields[i].kind == FIELD_KIND_NAMES ||
		    message->fields[i].kind == FIELD_KIND_COUNTERS)
			return false;
	return true;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

/* Replaces the items of a submit, the parts of a region_register or the slices of a reshard by the decoded
 * ones, as far as they can be decoded. Returns memory that the caller frees. */
static void *keep_items(struct item_list *list)
{
	struct submit_item *items = calloc(list->n + 1, sizeof *items);
	struct error err = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		if (rpc_decode_item(list, i, &items[n], &err) < 0)
			fuzz_check_error(&err);
		else
			n++;
	}
	*list = (struct item_list){ .items = items, .n = n };
	return items;
}

static void *keep_parts(struct message_list *list)
{
	struct msg_part *parts = calloc(list->n + 1, sizeof *parts);
	struct error err = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		if (rpc_decode_part(list, i, &parts[n], &err) < 0)
			fuzz_check_error(&err);
		else
			n++;
	}
	*list = (struct message_list){ .items = parts, .n = n };
	return parts;
}

static void *keep_further_dst(struct message_list *list)
{
	struct msg_tensor *tensors = calloc(list->n + 1, sizeof *tensors);
	struct error err = { 0 };
	uint32_t n = 0;

	for (uint32_t i = 0; i < list->n; i++) {
		if (rpc_decode_further_dst(list, i, &tensors[n], &err) < 0)
			fuzz_check_error(&err);
		else
			n++;
	}
	*list = (struct message_list){ .items = tensors, .n = n };
	return tensors;
}

/* Puts the slices of both lists into one array. */
static void *keep_slices(struct msg_reshard *params)
{
	struct message_list *lists[] = { &params->destinations, &params->sources };
	static const char *const names[] = { "destinations", "sources" };
	struct msg_slice *slices = calloc(params->destinations.n + params->sources.n + 1, sizeof *slices);
	struct msg_slice *at = slices;
	struct error err = { 0 };

	for (int k = 0; k < 2; k++) {
		struct msg_slice *first = at;

		for (uint32_t i = 0; i < lists[k]->n; i++) {
			if (rpc_decode_slice(lists[k], names[k], i, at, &err) < 0)
				fuzz_check_error(&err);
			else
				at++;
		}
		*lists[k] = (struct message_list){ .items = first, .n = (uint32_t)(at - first) };
	}
	return slices;
}

static void *keep_lists(struct rpc_request *request)
{
	switch (request->method->id) {
	case METHOD_submit:
		return keep_items(&request->params.submit.items);
	case METHOD_transform:
		return keep_further_dst(&request->params.transform.further_dst);
	case METHOD_region_register:
		return keep_parts(&request->params.region_register.parts);
	case METHOD_reshard:
		return keep_slices(&request->params.reshard);
	default:
		return NULL;
	}
}

static void check_dispatch(struct rpc_request *request)
{
	const struct method *method = request->method;
	struct buffer one = { 0 }, two = { 0 };
	struct rpc_request again;
	struct error err = { 0 };
	uint64_t has = request->params.empty.has;
	void *items = keep_lists(request), *items_again;

	fuzz_check(!(has & ~method->accepts) && !(method->requires & ~has), "%s has %llx", method->name,
	           (unsigned long long)has);
	rpc_encode_request(&one, request->msgid, method, &request->params);
	fuzz_check(rpc_decode_request(decoder, one.data, buffer_len(&one), &again, &err) == RPC_DISPATCH,
	           "%s", err.message);
	fuzz_check(again.msgid == request->msgid && again.method == method);
	items_again = keep_lists(&again);
	fuzz_check(same_values(method->params, &request->params, &again.params), "%s", method->name);
	rpc_encode_request(&two, again.msgid, again.method, &again.params);
	check_same(&one, &two, method->name);
	free(items);
	free(items_again);
	buffer_deinit(&one);
	buffer_deinit(&two);
}

static void try_request(const uint8_t *data, size_t len)
{
	struct rpc_request request;
	struct error err = { 0 };

	switch (rpc_decode_request(decoder, data, len, &request, &err)) {
	case RPC_DISPATCH:
		check_dispatch(&request);
		break;
	case RPC_REFUSE:
	case RPC_BROKEN:
		fuzz_check_error(&err);
		break;
	case RPC_RING:
	case RPC_IGNORE:
		break;
	}
}

/* ---- Replies ------------------------------------------------------------------------------------------ */

static void check_result(const struct method *method, uint32_t msgid, const union any_message *result)
{
	struct buffer one = { 0 }, two = { 0 };
	union any_message again;
	struct rpc_reply reply;
	struct error err = { 0 };

	rpc_encode_result(&one, msgid, method, result);
	fuzz_check(rpc_decode_reply(decoder, one.data, buffer_len(&one), &reply, &err) == 0, "%s",
	           err.message);
	fuzz_check(reply.msgid == msgid && reply.error.status == 0);
	fuzz_check(rpc_decode_result(&reply, method, &again, &err) == 0, "%s", err.message);
	fuzz_check(same_values(method->result, result, &again), "%s", method->name);
	rpc_encode_result(&two, reply.msgid, method, &again);
	check_same(&one, &two, method->name);
	buffer_deinit(&one);
	buffer_deinit(&two);
}

/* Users are shown what a peer says: it may be UTF-8, but must be text. */
static void check_foreign(const struct error *error)
{
	struct buffer b = { 0 };
	const char *c = error->message;

	fuzz_check(strnlen(c, sizeof error->message) < sizeof error->message);
	for (; *c; c++)
		fuzz_check((unsigned char)*c >= 0x20 && *c != 0x7f, "byte 0x%02x", (unsigned char)*c);
	rpc_encode_error(&b, 1, error);
	buffer_deinit(&b);
}

/* Every status in the lists is a known one; others are refused. */
static void check_submit_done(const struct rpc_reply *reply)
{
	struct msg_submit_done done;
	struct msg_item_error error;
	struct error err = { 0 };

	if (rpc_decode_result(reply, &methods[METHOD_submit], &done, &err) < 0) {
		fuzz_check_error(&err);
		return;
	}
	for (uint32_t i = 0; i < done.statuses.n; i++) {
		int code = rpc_code_at(&done.statuses, i);

		fuzz_check(code <= 0 && code >= -STATUS_COUNT, "code %d", code);
	}
	for (uint32_t i = 0; i < done.errors.n; i++)
		if (rpc_decode_item_error(&done.errors, i, &error, &err) < 0)
			fuzz_check_error(&err);
}

static void try_reply(const uint8_t *data, size_t len)
{
	struct rpc_reply reply = { 0 };
	struct error err = { 0 };
	int r = rpc_decode_reply(decoder, data, len, &reply, &err);

	if (r < 0)
		fuzz_check_error(&err);
	if (r != 0)
		return;
	if (reply.error.status != 0)
		check_foreign(&reply.error);
	check_submit_done(&reply);
	for (int i = 0; i < METHOD_COUNT; i++) {
		union any_message result;

		if (methods[i].result_kind != RESULT_MESSAGE || !is_decodable(methods[i].result))
			continue;
		/* A reply's objects live until the decoder is used again. */
		if (rpc_decode_reply(decoder, data, len, &reply, &err) != 0)
			return;
		if (rpc_decode_result(&reply, &methods[i], &result, &err) < 0)
			fuzz_check_error(&err);
		else
			check_result(&methods[i], reply.msgid, &result);
	}
}

/* ---- Messages ----------------------------------------------------------------------------------------- */

static int decode(const struct message *message, const uint8_t *data, size_t len, enum codec_unknown unknown,
                  union any_message *ret, msgpack_zone *zone, struct error *err)
{
	const struct codec_rules rules = { message->name, codec_all_fields(message), message->needed,
		                           unknown };
	msgpack_object object;
	size_t end = 0;

	msgpack_zone_init(zone, 4096);
	if (msgpack_unpack((const char *)data, len, &end, zone, &object) != MSGPACK_UNPACK_SUCCESS ||
	    object.type != MSGPACK_OBJECT_MAP)
		return error_set(err, STATUS_PROTOCOL, "not a map");
	return codec_decode(&object, message, &rules, ret, err);
}

static void try_message(const struct message *message, const uint8_t *data, size_t len,
                        enum codec_unknown unknown)
{
	struct buffer one = { 0 }, two = { 0 };
	union any_message value, again;
	msgpack_zone zone, zone_again;
	struct error err = { 0 };

	if (decode(message, data, len, unknown, &value, &zone, &err) < 0) {
		fuzz_check_error(&err);
		msgpack_zone_destroy(&zone);
		return;
	}
	codec_encode(&one, message, &value);
	fuzz_check(
	    decode(message, one.data, buffer_len(&one), CODEC_REFUSE_UNKNOWN, &again, &zone_again, &err) == 0,
	    "%s: %s", message->name, err.message);
	codec_encode(&two, message, &again);
	check_same(&one, &two, message->name);
	fuzz_check(same_values(message, &value, &again), "%s", message->name);
	msgpack_zone_destroy(&zone);
	msgpack_zone_destroy(&zone_again);
	buffer_deinit(&one);
	buffer_deinit(&two);
}

/* Encodes a struct of random values: the result is one message within a client's limits, and decodes if
 * decoding is possible. */
static void try_made(const struct message *message, uint64_t random)
{
	struct buffer b = { 0 };
	struct frame_scan scan = { 0 };
	union any_message value;
	struct error err = { 0 };
	size_t end = 0;

	traffic_fill(message, (uint32_t)oracle_random(&random) | message->needed, &value, &random);
	codec_encode(&b, message, &value);
	fuzz_check(frame_scan(&scan, b.data, buffer_len(&b), &frame_reply_limits, &end, &err) ==
	                   FRAME_COMPLETE &&
	               end == buffer_len(&b),
	           "%s: %s", message->name, err.message);
	if (is_decodable(message))
		try_message(message, b.data, buffer_len(&b), CODEC_REFUSE_UNKNOWN);
	buffer_deinit(&b);
}

/* ---- The target --------------------------------------------------------------------------------------- */

static void try_one(uint8_t choice, const uint8_t *data, size_t len)
{
	const struct message *message = messages[choice / KINDS % MESSAGES];

	switch ((enum kind)(choice % KINDS)) {
	case KIND_REQUEST:
		try_request(data, len);
		break;
	case KIND_REPLY:
		try_reply(data, len);
		break;
	case KIND_MESSAGE:
		if (is_decodable(message))
			try_message(message, data, len,
			            choice & 0x80 ? CODEC_SKIP_UNKNOWN : CODEC_REFUSE_UNKNOWN);
		break;
	default:
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_scan scan = { 0 };
	struct error err;
	uint8_t choice;
	size_t len;

	if (size == 0)
		return 0;
	choice = data[0];
	decoder = rpc_decoder_new();
	if (choice % KINDS == KIND_MADE && size >= 9) {
		uint64_t random;

		memcpy(&random, data + 1, sizeof random);
		try_made(messages[choice / KINDS % MESSAGES], random);
	}
	data++;
	size--;
	while (size && frame_scan(&scan, data, size, &frame_reply_limits, &len, &err) == FRAME_COMPLETE) {
		uint8_t *exact = malloc(len);

		memcpy(exact, data, len);
		try_one(choice, exact, len);
		free(exact);
		data += len;
		size -= len;
	}
	rpc_decoder_free(decoder);
	return 0;
}

/* Half of the new inputs are what only a service sends: replies, and bare maps. */
static size_t make(uint8_t *data, size_t max_size, uint64_t random)
{
	const struct method *method = &methods[oracle_random(&random) % METHOD_COUNT];
	const struct message *message = method->result;
	uint8_t choice = (uint8_t)oracle_random(&random);
	struct buffer b = { 0 };
	union any_message value;
	size_t len;

	if (choice % KINDS == KIND_MESSAGE)
		message = messages[choice / KINDS % MESSAGES];
	traffic_fill(message, (uint32_t)oracle_random(&random) | message->needed, &value, &random);
	if (choice % KINDS == KIND_MESSAGE)
		codec_encode(&b, message, &value);
	else if (method->result_kind == RESULT_MESSAGE && oracle_random(&random) % 4)
		rpc_encode_result(&b, 7, method, &value);
	else
		rpc_encode_error(&b, 7, &(struct error){ STATUS_QUOTA, "no more, and \xc3\xa4 \xff" });
	len = buffer_len(&b);
	if (len >= max_size)
		len = max_size - 1;
	data[0] = choice;
	memcpy(data + 1, b.data + b.start, len);
	buffer_deinit(&b);
	return 1 + len;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	if (size == 0 && max_size > 1 && seed % 2)
		return make(data, max_size, seed);
	if (size && seed % 32 == 1)
		return make(data, max_size, seed);
	return stream_mutate(data, size, max_size, seed);
}
