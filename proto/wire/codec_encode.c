/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding by the field tables. Only an allocation can fail; the first failure is returned. */
#include "codec.h"

#include <assert.h>
#include <string.h>

#include "pack.h"

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
