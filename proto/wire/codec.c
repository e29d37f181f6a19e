/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes and encodes maps by field tables. Decoded strings point into the bytes of the message; everything
 * else is copied. Errors name the field by its path and quote what the peer sent, truncated and escaped.
 * Encoding fails only if memory is exhausted, and returns the first failure. */
#include "codec.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/status.h"

#define PATH_SIZE 64
#define LIST_SIZE 192

/* The field that is being decoded, for error messages. `up` is the field of the enclosing map; NULL in the
 * outermost map. */
struct place {
	const struct place *up;
	const char *name;
};

static int decode_map(const struct place *place, const msgpack_object *map, const struct message *message,
                      const struct codec_rules *rules, void *ret, struct error *err);
static int decode_field(const struct place *place, const struct field *field, const msgpack_object *object,
                        enum codec_unknown unknown, void *at, struct error *err);
static int decode_operand(const struct place *place, const struct field *field, const msgpack_object *object,
                          enum codec_unknown unknown, struct msg_operand *at, struct error *err);
static int decode_name(const struct place *place, const struct field *field, const msgpack_object *object,
                       unsigned *at, struct error *err);
static int decode_ints(const struct place *place, const msgpack_object *object, struct int_list *at,
                       struct error *err);
static int decode_value(const msgpack_object *object, struct scalar *at);
static int decode_device(const msgpack_object *object, struct device_name *at);
static int decode_region_place(const msgpack_object_array *array, struct region_place *at);
static int refuse_kind(const struct place *place, const struct field *field, const msgpack_object *object,
                       struct error *err);
static int refuse_unknown(const struct place *place, const msgpack_object *key, const struct message *message,
                          const struct codec_rules *rules, struct error *err);

const char *const codec_kind_names[FIELD_KIND_COUNT] = {
	[FIELD_KIND_BOOL] = "a boolean",
	[FIELD_KIND_UINT] = "a non-negative integer",
	[FIELD_KIND_STRING] = "a str",
	[FIELD_KIND_BINARY] = "a bin",
	[FIELD_KIND_DTYPE] = "a dtype",
	[FIELD_KIND_PAD_MODE] = "a pad mode",
	[FIELD_KIND_CAST] = "a cast",
	[FIELD_KIND_REGION_KIND] = "a region kind",
	[FIELD_KIND_REGION_STATE] = "a region state",
	[FIELD_KIND_COMPLETION] = "a completion",
	[FIELD_KIND_PRIORITY] = "a priority",
	[FIELD_KIND_DEVICE] = "a UUID or a non-negative integer",
	[FIELD_KIND_INTS] = "an array of integers",
	[FIELD_KIND_VALUE] = "a number or [re, im]",
	[FIELD_KIND_PLACE] = "[region, offset]",
	[FIELD_KIND_ITEMS] = "an array of transforms and runs",
	[FIELD_KIND_CODES] = "an array of codes",
	[FIELD_KIND_MESSAGE] = "a map",
	[FIELD_KIND_OPERAND] = "a number or a map",
	[FIELD_KIND_LIST] = "an array of maps",
	[FIELD_KIND_NAMES] = "an array of strs",
	[FIELD_KIND_COUNTERS] = "a map of str to integer",
};

const struct codec_name_set codec_name_sets[FIELD_KIND_COUNT] = {
	[FIELD_KIND_DTYPE] = { dtype_names, DTYPE_COUNT },
	[FIELD_KIND_PAD_MODE] = { pad_mode_names, PAD_MODE_COUNT },
	[FIELD_KIND_CAST] = { cast_names, CAST_COUNT },
	[FIELD_KIND_REGION_KIND] = { region_kind_names, REGION_KIND_COUNT },
	[FIELD_KIND_REGION_STATE] = { region_state_names, REGION_STATE_COUNT },
	[FIELD_KIND_COMPLETION] = { completion_names, COMPLETION_COUNT },
	[FIELD_KIND_PRIORITY] = { job_priority_names, JOB_PRIORITY_COUNT },
};

/* All name sets are read and written as unsigned. */
_Static_assert(sizeof(enum dtype) == sizeof(unsigned) && sizeof(enum pad_mode) == sizeof(unsigned) &&
                   sizeof(enum cast) == sizeof(unsigned) && sizeof(enum region_kind) == sizeof(unsigned) &&
                   sizeof(enum region_state) == sizeof(unsigned) &&
                   sizeof(enum completion) == sizeof(unsigned) &&
                   sizeof(enum job_priority) == sizeof(unsigned),
               "enums of the schema are unsigned integers");

/* ---- Sentences ---- */

static char *place_text(const struct place *place, char text[PATH_SIZE])
{
	char up[PATH_SIZE];

	if (place->up)
		snprintf(text, PATH_SIZE, "%s.%s", place_text(place->up, up), place->name);
	else
		snprintf(text, PATH_SIZE, "%s", place->name);
	return text;
}

/* Appends name to the comma-separated list in text, which is truncated if it is too long. */
static void list_append(char text[LIST_SIZE], const char *name)
{
	size_t len = strlen(text);

	snprintf(text + len, LIST_SIZE - len, "%s%s", len ? ", " : "", name);
}

char *codec_what(const msgpack_object *object, char *text, size_t text_size)
{
	static const char *const names[] = {
		[MSGPACK_OBJECT_NIL] = "nil", [MSGPACK_OBJECT_BOOLEAN] = "a boolean",
		[MSGPACK_OBJECT_STR] = "str", [MSGPACK_OBJECT_ARRAY] = "array",
		[MSGPACK_OBJECT_MAP] = "map", [MSGPACK_OBJECT_BIN] = "bin",
		[MSGPACK_OBJECT_EXT] = "ext",
	};

	switch (object->type) {
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		snprintf(text, text_size, "%" PRIu64, object->via.u64);
		break;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		snprintf(text, text_size, "%" PRId64, object->via.i64);
		break;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		snprintf(text, text_size, "float %g", object->via.f64);
		break;
	default:
		snprintf(text, text_size, "%s", names[object->type]);
	}
	return text;
}

/* ---- Decoding ---- */

int codec_decode(const msgpack_object *map, const struct message *message, const struct codec_rules *rules,
                 void *ret, struct error *err)
{
	static const msgpack_object empty = { .type = MSGPACK_OBJECT_MAP };

	return decode_map(NULL, map ? map : &empty, message, rules, ret, err);
}

static bool is_name(const msgpack_object *object, const char *name, size_t len)
{
	return object->via.str.size == len && !memcmp(object->via.str.ptr, name, len);
}

/* Finds the field with this name. Tries `next`, which follows the field decoded last, before all others,
 * because most peers send fields in the order of the table. */
static const struct field *find_field(const struct message *message, const struct field *next,
                                      const msgpack_object *key)
{
	if (key->type != MSGPACK_OBJECT_STR)
		return NULL;
	if (next->name && is_name(key, next->name, next->name_len))
		return next;
	for (const struct field *f = message->fields; f->name; f++)
		if (is_name(key, f->name, f->name_len))
			return f;
	return NULL;
}

/* Sets a field that is absent to its default. */
static void set_default(const struct field *field, void *at)
{
	switch (field->kind) {
	case FIELD_KIND_BOOL:
		*(bool *)at = field->dflt;
		return;
	case FIELD_KIND_UINT:
		*(uint64_t *)at = (uint64_t)field->dflt;
		return;
	case FIELD_KIND_STRING:
	case FIELD_KIND_BINARY:
		*(struct bytes *)at = (struct bytes){ 0 };
		return;
	case FIELD_KIND_DTYPE:
	case FIELD_KIND_PAD_MODE:
	case FIELD_KIND_CAST:
	case FIELD_KIND_REGION_KIND:
	case FIELD_KIND_REGION_STATE:
	case FIELD_KIND_COMPLETION:
	case FIELD_KIND_PRIORITY:
		*(unsigned *)at = (unsigned)field->dflt;
		return;
	case FIELD_KIND_DEVICE:
		*(struct device_name *)at = (struct device_name){ 0 };
		return;
	case FIELD_KIND_INTS:
		((struct int_list *)at)->n = 0;
		return;
	case FIELD_KIND_VALUE:
		*(struct scalar *)at = (struct scalar){ 0 };
		return;
	case FIELD_KIND_PLACE:
		*(struct region_place *)at = (struct region_place){ 0 };
		return;
	case FIELD_KIND_MESSAGE:
	case FIELD_KIND_OPERAND:
		*(uint64_t *)at = 0; /* Only `has` is set; the other members are then meaningless. */
		return;
	case FIELD_KIND_ITEMS:
		*(struct item_list *)at = (struct item_list){ 0 };
		return;
	case FIELD_KIND_CODES:
		*(struct code_list *)at = (struct code_list){ 0 };
		return;
	case FIELD_KIND_LIST:
		*(struct message_list *)at = (struct message_list){ 0 };
		return;
	case FIELD_KIND_NAMES:
	case FIELD_KIND_COUNTERS:
	case FIELD_KIND_COUNT:
		break;
	}
	assert(!"a kind that is never decoded");
}

static int decode_map(const struct place *place, const msgpack_object *map, const struct message *message,
                      const struct codec_rules *rules, void *ret, struct error *err)
{
	const struct field *next = message->fields;
	char path[PATH_SIZE];
	uint64_t has = 0;

	for (uint32_t i = 0; i < map->via.map.size; i++) {
		const msgpack_object_kv *pair = &map->via.map.ptr[i];
		const struct field *f = find_field(message, next, &pair->key);
		uint64_t bit = f ? UINT64_C(1) << (f - message->fields) : 0;
		int r;

		if (!(bit & rules->accepts)) {
			if (rules->unknown == CODEC_SKIP_UNKNOWN)
				continue;
			return refuse_unknown(place, &pair->key, message, rules, err);
		}
		struct place here = { place, f->name };
		if (bit & has)
			return error_set(err, STATUS_INVALID_ARGUMENT, "field %s appears twice",
			                 place_text(&here, path));
		r = decode_field(&here, f, &pair->val, rules->unknown, (char *)ret + f->offset, err);
		if (r < 0)
			return r;
		has |= bit;
		next = f + 1;
	}

	uint64_t missing = codec_all_fields(message) & ~has;

	if (rules->requires & missing) {
		const struct field *f = &message->fields[__builtin_ctzll(rules->requires & missing)];
		struct place here = { place, f->name };

		return error_set(err, STATUS_INVALID_ARGUMENT, "missing field %s", place_text(&here, path));
	}
	*(uint64_t *)ret = has;
	codec_set_defaults(message, ret);
	return 0;
}

void codec_set_defaults(const struct message *message, void *value)
{
	uint64_t missing = codec_all_fields(message) & ~*(const uint64_t *)value;

	for (; missing; missing &= missing - 1) {
		const struct field *f = &message->fields[__builtin_ctzll(missing)];

		set_default(f, (char *)value + f->offset);
	}
}

static int decode_field(const struct place *place, const struct field *field, const msgpack_object *object,
                        enum codec_unknown unknown, void *at, struct error *err)
{
	/* Kinds that are not listed accept several types, and check them by themselves. */
	static const uint8_t types[FIELD_KIND_COUNT] = {
		[FIELD_KIND_BOOL] = MSGPACK_OBJECT_BOOLEAN,
		[FIELD_KIND_UINT] = MSGPACK_OBJECT_POSITIVE_INTEGER,
		[FIELD_KIND_STRING] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_BINARY] = MSGPACK_OBJECT_BIN,
		[FIELD_KIND_DTYPE] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_PAD_MODE] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_CAST] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_REGION_KIND] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_REGION_STATE] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_COMPLETION] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_PRIORITY] = MSGPACK_OBJECT_STR,
		[FIELD_KIND_INTS] = MSGPACK_OBJECT_ARRAY,
		[FIELD_KIND_PLACE] = MSGPACK_OBJECT_ARRAY,
		[FIELD_KIND_ITEMS] = MSGPACK_OBJECT_ARRAY,
		[FIELD_KIND_CODES] = MSGPACK_OBJECT_ARRAY,
		[FIELD_KIND_LIST] = MSGPACK_OBJECT_ARRAY,
		[FIELD_KIND_MESSAGE] = MSGPACK_OBJECT_MAP,
	};
	const msgpack_object_array *array = &object->via.array;
	int r;

	if (types[field->kind] && object->type != types[field->kind])
		return refuse_kind(place, field, object, err);
	switch (field->kind) {
	case FIELD_KIND_BOOL:
		*(bool *)at = object->via.boolean;
		return 0;
	case FIELD_KIND_UINT:
		*(uint64_t *)at = object->via.u64;
		return 0;
	case FIELD_KIND_STRING:
		*(struct bytes *)at = (struct bytes){ object->via.str.ptr, object->via.str.size };
		return 0;
	case FIELD_KIND_BINARY:
		*(struct bytes *)at = (struct bytes){ object->via.bin.ptr, object->via.bin.size };
		return 0;
	case FIELD_KIND_DTYPE:
	case FIELD_KIND_PAD_MODE:
	case FIELD_KIND_CAST:
	case FIELD_KIND_REGION_KIND:
	case FIELD_KIND_REGION_STATE:
	case FIELD_KIND_COMPLETION:
	case FIELD_KIND_PRIORITY:
		return decode_name(place, field, object, at, err);
	case FIELD_KIND_DEVICE:
		r = decode_device(object, at);
		return r < 0 ? refuse_kind(place, field, object, err) : 0;
	case FIELD_KIND_INTS:
		return decode_ints(place, object, at, err);
	case FIELD_KIND_VALUE:
		r = decode_value(object, at);
		return r < 0 ? refuse_kind(place, field, object, err) : 0;
	case FIELD_KIND_MESSAGE:
		return decode_map(place, object, field->inner,
		                  &(struct codec_rules){ .accepts = codec_all_fields(field->inner),
		                                         .requires = field->inner->needed,
		                                         .unknown = unknown },
		                  at, err);
	case FIELD_KIND_OPERAND:
		return decode_operand(place, field, object, unknown, at, err);
	case FIELD_KIND_PLACE:
		r = decode_region_place(array, at);
		return r < 0 ? refuse_kind(place, field, object, err) : 0;
	case FIELD_KIND_ITEMS:
		*(struct item_list *)at = (struct item_list){ .n = array->size, .objects = array->ptr };
		return 0;
	case FIELD_KIND_CODES:
		*(struct code_list *)at = (struct code_list){ .n = array->size, .objects = array->ptr };
		return 0;
	case FIELD_KIND_LIST:
		*(struct message_list *)at = (struct message_list){ .n = array->size, .objects = array->ptr };
		return 0;
	case FIELD_KIND_NAMES:
	case FIELD_KIND_COUNTERS:
	case FIELD_KIND_COUNT:
		break;
	}
	assert(!"a kind that is never decoded");
	return STATUS_INTERNAL;
}

static int decode_operand(const struct place *place, const struct field *field, const msgpack_object *object,
                          enum codec_unknown unknown, struct msg_operand *at, struct error *err)
{
	if (object->type == MSGPACK_OBJECT_MAP)
		return decode_map(
		    place, object, field->inner,
		    &(struct codec_rules){ .accepts = codec_all_fields(field->inner) & ~F(operand, number),
		                           .requires = field->inner->needed,
		                           .unknown = unknown },
		    at, err);
	at->has = F(operand, number);
	if (object->type == MSGPACK_OBJECT_ARRAY || decode_value(object, &at->number) < 0)
		return refuse_kind(place, field, object, err);
	return 0;
}

static int decode_name(const struct place *place, const struct field *field, const msgpack_object *object,
                       unsigned *at, struct error *err)
{
	const struct codec_name_set *set = &codec_name_sets[field->kind];
	char path[PATH_SIZE];
	char quote[TEXT_QUOTE_SIZE];
	char list[LIST_SIZE] = "";

	for (unsigned i = 0; i < set->n; i++) {
		if (object->via.str.size > 0 && *set->names[i] == *object->via.str.ptr &&
		    is_name(object, set->names[i], strlen(set->names[i]))) {
			*at = i;
			return 0;
		}
	}
	for (unsigned i = 0; i < set->n; i++)
		list_append(list, set->names[i]);
	text_quote(object->via.str.ptr, object->via.str.size, quote, sizeof quote);
	return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %s is not %s (%s)", place_text(place, path),
	                 quote, codec_kind_names[field->kind], list);
}

static int decode_ints(const struct place *place, const msgpack_object *object, struct int_list *at,
                       struct error *err)
{
	char path[PATH_SIZE];
	char what[CODEC_WHAT_SIZE];

	if (object->via.array.size > TENSOR_MAX_RANK)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %u entries, at most %d",
		                 place_text(place, path), object->via.array.size, TENSOR_MAX_RANK);
	for (uint32_t i = 0; i < object->via.array.size; i++) {
		const msgpack_object *entry = &object->via.array.ptr[i];

		if (entry->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
			at->v[i] = entry->via.i64;
		else if (entry->type == MSGPACK_OBJECT_POSITIVE_INTEGER && entry->via.u64 <= INT64_MAX)
			at->v[i] = (int64_t)entry->via.u64;
		else
			return error_set(err, STATUS_INVALID_ARGUMENT,
			                 "%s[%u]: expected an integer of 64 bits, got %s",
			                 place_text(place, path), i, codec_what(entry, what, sizeof what));
	}
	at->n = object->via.array.size;
	return 0;
}

/* Sets *ret to the number as a double. Returns false if the object is not a number. */
static bool real_part(const msgpack_object *object, double *ret)
{
	if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		*ret = (double)object->via.u64;
	else if (object->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
		*ret = (double)object->via.i64;
	else if (object->type == MSGPACK_OBJECT_FLOAT32 || object->type == MSGPACK_OBJECT_FLOAT64)
		*ret = object->via.f64;
	else
		return false;
	return true;
}

/* Returns 0, or a negative status if the object is not a number. A boolean counts as 0 or 1. */
static int decode_value(const msgpack_object *object, struct scalar *at)
{
	switch (object->type) {
	case MSGPACK_OBJECT_BOOLEAN:
		*at = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = object->via.boolean };
		return 0;
	case MSGPACK_OBJECT_POSITIVE_INTEGER:
		*at = (struct scalar){ .kind = SCALAR_UNSIGNED, .u = object->via.u64 };
		return 0;
	case MSGPACK_OBJECT_NEGATIVE_INTEGER:
		*at = (struct scalar){ .kind = SCALAR_SIGNED, .i = object->via.i64 };
		return 0;
	case MSGPACK_OBJECT_FLOAT32:
	case MSGPACK_OBJECT_FLOAT64:
		*at = (struct scalar){ .kind = SCALAR_FLOATING, .re = object->via.f64 };
		return 0;
	case MSGPACK_OBJECT_ARRAY:
		*at = (struct scalar){ .kind = SCALAR_COMPLEX };
		if (object->via.array.size == 2 && real_part(&object->via.array.ptr[0], &at->re) &&
		    real_part(&object->via.array.ptr[1], &at->im))
			return 0;
		return STATUS_INVALID_ARGUMENT;
	default:
		return STATUS_INVALID_ARGUMENT;
	}
}

/* Returns 0, or a negative status if the object does not name a device. */
static int decode_device(const msgpack_object *object, struct device_name *at)
{
	*at = (struct device_name){ 0 };
	if (object->type == MSGPACK_OBJECT_STR)
		at->uuid =
		    (struct bytes){ object->via.str.size ? object->via.str.ptr : "", object->via.str.size };
	else if (object->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
		at->number = object->via.u64;
	else
		return STATUS_INVALID_ARGUMENT;
	return 0;
}

/* Returns 0, or a negative status if the array is not [region, offset]. */
static int decode_region_place(const msgpack_object_array *array, struct region_place *at)
{
	const msgpack_object *entries = array->ptr;

	if (array->size != 2 || entries[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
	    entries[1].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return STATUS_INVALID_ARGUMENT;
	*at = (struct region_place){ .region = entries[0].via.u64, .offset = entries[1].via.u64 };
	return 0;
}

int codec_decode_entry(const void *objects, uint32_t i, const char *field, const struct message *message,
                       const struct codec_rules *rules, void *ret, struct error *err)
{
	const msgpack_object *entry = (const msgpack_object *)objects + i;
	char name[PATH_SIZE];
	char what[CODEC_WHAT_SIZE];
	struct place here = { NULL, name };

	snprintf(name, sizeof name, "%s[%" PRIu32 "]", field, i);
	if (entry->type != MSGPACK_OBJECT_MAP)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected a map, got %s", name,
		                 codec_what(entry, what, sizeof what));
	return decode_map(&here, entry, message, rules, ret, err);
}

static int refuse_kind(const struct place *place, const struct field *field, const msgpack_object *object,
                       struct error *err)
{
	char path[PATH_SIZE];
	char what[CODEC_WHAT_SIZE];

	return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected %s%s, got %s", place_text(place, path),
	                 codec_kind_names[field->kind], codec_name_sets[field->kind].names ? "'s name" : "",
	                 codec_what(object, what, sizeof what));
}

static int refuse_unknown(const struct place *place, const msgpack_object *key, const struct message *message,
                          const struct codec_rules *rules, struct error *err)
{
	char path[PATH_SIZE];
	char text[TEXT_QUOTE_SIZE];
	char list[LIST_SIZE] = "";
	const char *owner = place ? place_text(place, path) : rules->owner;

	if (key->type != MSGPACK_OBJECT_STR)
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: field names must be str, got %s", owner,
		                 codec_what(key, text, sizeof text));
	for (const struct field *f = message->fields; f->name; f++)
		if (rules->accepts & (UINT64_C(1) << (f - message->fields)))
			list_append(list, f->name);
	text_quote(key->via.str.ptr, key->via.str.size, text, sizeof text);
	return error_set(err, STATUS_INVALID_ARGUMENT, "unknown field %s of %s (it has %s)", text, owner,
	                 *list ? list : "none");
}

/* ---- Encoding ------------------------------------------------------------------------------------------ */

static int encode_field(struct buffer *b, const struct field *field, const void *at);
static int encode_device(struct buffer *b, const struct device_name *device);
static int encode_ints(struct buffer *b, const struct int_list *ints);
static int encode_value(struct buffer *b, const struct scalar *value);
static int encode_operand(struct buffer *b, const struct field *field, const struct msg_operand *operand);
static int encode_place(struct buffer *b, const struct region_place *place);
static int encode_items(struct buffer *b, const struct item_list *list);
static int encode_codes(struct buffer *b, const struct code_list *list);
static int encode_names(struct buffer *b, const struct name_list *list);
static int encode_counters(struct buffer *b, const struct counter_list *list);

int codec_encode(struct buffer *b, const struct message *message, const void *value)
{
	uint64_t sent = (*(const uint64_t *)value & codec_all_fields(message)) | message->needed;
	int r = pack_map(b, (size_t)__builtin_popcountll(sent));

	for (const struct field *f = message->fields; f->name && !r; f++) {
		if (!(sent & (UINT64_C(1) << (f - message->fields))))
			continue;
		r = pack_str(b, f->name, f->name_len);
		if (!r)
			r = encode_field(b, f, (const char *)value + f->offset);
	}
	return r;
}

static int encode_field(struct buffer *b, const struct field *field, const void *at)
{
	const struct bytes *bytes = at;
	const char *name;

	switch (field->kind) {
	case FIELD_KIND_BOOL:
		return pack_bool(b, *(const bool *)at);
	case FIELD_KIND_UINT:
		return pack_uint(b, *(const uint64_t *)at);
	case FIELD_KIND_STRING:
		return pack_str(b, bytes->data, bytes->len);
	case FIELD_KIND_BINARY:
		return pack_bin(b, bytes->data, bytes->len);
	case FIELD_KIND_DTYPE:
	case FIELD_KIND_PAD_MODE:
	case FIELD_KIND_CAST:
	case FIELD_KIND_REGION_KIND:
	case FIELD_KIND_REGION_STATE:
	case FIELD_KIND_COMPLETION:
	case FIELD_KIND_PRIORITY:
		assert(*(const unsigned *)at < codec_name_sets[field->kind].n);
		name = codec_name_sets[field->kind].names[*(const unsigned *)at];
		return pack_str(b, name, strlen(name));
	case FIELD_KIND_DEVICE:
		return encode_device(b, at);
	case FIELD_KIND_INTS:
		return encode_ints(b, at);
	case FIELD_KIND_VALUE:
		return encode_value(b, at);
	case FIELD_KIND_PLACE:
		return encode_place(b, at);
	case FIELD_KIND_ITEMS:
		return encode_items(b, at);
	case FIELD_KIND_CODES:
		return encode_codes(b, at);
	case FIELD_KIND_MESSAGE:
		return codec_encode(b, field->inner, at);
	case FIELD_KIND_OPERAND:
		return encode_operand(b, field, at);
	case FIELD_KIND_LIST:
		return codec_encode_list(b, field->inner, at);
	case FIELD_KIND_NAMES:
		return encode_names(b, at);
	case FIELD_KIND_COUNTERS:
		return encode_counters(b, at);
	case FIELD_KIND_COUNT:
		break;
	}
	assert(!"a field without a kind");
	return STATUS_INTERNAL;
}

int codec_encode_list(struct buffer *b, const struct message *inner, const struct message_list *list)
{
	int r = pack_array(b, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++)
		r = codec_encode(b, inner, (const char *)list->items + i * inner->size);
	return r;
}

static int encode_device(struct buffer *b, const struct device_name *device)
{
	return device->uuid.data ? pack_str(b, device->uuid.data, device->uuid.len)
	                         : pack_uint(b, device->number);
}

static int encode_ints(struct buffer *b, const struct int_list *ints)
{
	int r = pack_array(b, ints->n);

	for (uint32_t i = 0; i < ints->n && !r; i++)
		r = pack_int(b, ints->v[i]);
	return r;
}

static int encode_value(struct buffer *b, const struct scalar *value)
{
	int r;

	switch (value->kind) {
	case SCALAR_UNSIGNED:
		return pack_uint(b, value->u);
	case SCALAR_SIGNED:
		return pack_int(b, value->i);
	case SCALAR_FLOATING:
		return pack_double(b, value->re);
	case SCALAR_COMPLEX:
		r = pack_array(b, 2);
		r = r ? r : pack_double(b, value->re);
		return r ? r : pack_double(b, value->im);
	}
	assert(!"a scalar without a kind");
	return STATUS_INTERNAL;
}

static int encode_operand(struct buffer *b, const struct field *field, const struct msg_operand *operand)
{
	if (operand->has & F(operand, number))
		return encode_value(b, &operand->number);
	return codec_encode(b, field->inner, operand);
}

static int encode_place(struct buffer *b, const struct region_place *place)
{
	int r = pack_array(b, 2);

	r = r ? r : pack_uint(b, place->region);
	return r ? r : pack_uint(b, place->offset);
}

static int encode_items(struct buffer *b, const struct item_list *list)
{
	int r = pack_array(b, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++) {
		const struct submit_item *item = &list->items[i];

		r = item->is_run ? codec_encode(b, &plan_run_message, &item->run)
		                 : codec_encode(b, &transform_message, &item->transform);
	}
	return r;
}

static int encode_codes(struct buffer *b, const struct code_list *list)
{
	int r = pack_array(b, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++)
		r = pack_int(b, list->codes[i]);
	return r;
}

static int encode_names(struct buffer *b, const struct name_list *list)
{
	int r = pack_array(b, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++)
		r = pack_str(b, list->items[i], strlen(list->items[i]));
	return r;
}

static int encode_counters(struct buffer *b, const struct counter_list *list)
{
	int r = pack_map(b, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++) {
		r = pack_str(b, list->items[i].name, strlen(list->items[i].name));
		if (!r)
			r = pack_uint(b, list->items[i].value);
	}
	return r;
}
