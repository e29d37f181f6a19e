/* Encoding by the field tables. The packer's callback is all that can fail; its first failure is returned. */
#include "codec.h"

#include <assert.h>
#include <string.h>

static int encode_field(msgpack_packer *packer, const struct field *field, const void *at);
static int encode_ints(msgpack_packer *packer, const struct int_list *ints);
static int encode_value(msgpack_packer *packer, const struct scalar *value);
static int encode_names(msgpack_packer *packer, const struct name_list *list);
static int encode_counters(msgpack_packer *packer, const struct counter_list *list);

int codec_encode(msgpack_packer *packer, const struct message *message, const void *value)
{
	uint32_t sent = (*(const uint32_t *)value & codec_all_fields(message)) | message->needed;
	int r = msgpack_pack_map(packer, (size_t)__builtin_popcount(sent));

	for (const struct field *f = message->fields; f->name && !r; f++) {
		if (!(sent & (1u << (f - message->fields))))
			continue;
		r = codec_encode_str(packer, f->name, strlen(f->name));
		if (!r)
			r = encode_field(packer, f, (const char *)value + f->offset);
	}
	return r;
}

int codec_encode_str(msgpack_packer *packer, const char *data, size_t len)
{
	int r = msgpack_pack_str(packer, len);

	return r ? r : msgpack_pack_str_body(packer, data, len);
}

static int encode_field(msgpack_packer *packer, const struct field *field, const void *at)
{
	const struct bytes *bytes = at;
	const char *name;
	int r;

	switch (field->kind) {
	case FIELD_KIND_BOOL:
		return *(const bool *)at ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
	case FIELD_KIND_UINT:
		return msgpack_pack_uint64(packer, *(const uint64_t *)at);
	case FIELD_KIND_STRING:
		return codec_encode_str(packer, bytes->data, bytes->len);
	case FIELD_KIND_BINARY:
		r = msgpack_pack_bin(packer, bytes->len);
		return r ? r : msgpack_pack_bin_body(packer, bytes->data, bytes->len);
	case FIELD_KIND_DTYPE:
	case FIELD_KIND_PAD_MODE:
	case FIELD_KIND_REGION_KIND:
	case FIELD_KIND_REGION_STATE:
		assert(*(const unsigned *)at < codec_name_sets[field->kind].n);
		name = codec_name_sets[field->kind].names[*(const unsigned *)at];
		return codec_encode_str(packer, name, strlen(name));
	case FIELD_KIND_INTS:
		return encode_ints(packer, at);
	case FIELD_KIND_VALUE:
		return encode_value(packer, at);
	case FIELD_KIND_MESSAGE:
		return codec_encode(packer, field->inner, at);
	case FIELD_KIND_LIST:
		return codec_encode_list(packer, field->inner, at);
	case FIELD_KIND_NAMES:
		return encode_names(packer, at);
	case FIELD_KIND_COUNTERS:
		return encode_counters(packer, at);
	case FIELD_KIND_COUNT:
		break;
	}
	assert(!"a field without a kind");
	return STATUS_INTERNAL;
}

int codec_encode_list(msgpack_packer *packer, const struct message *inner, const struct message_list *list)
{
	int r = msgpack_pack_array(packer, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++)
		r = codec_encode(packer, inner, (const char *)list->items + i * inner->size);
	return r;
}

static int encode_ints(msgpack_packer *packer, const struct int_list *ints)
{
	int r = msgpack_pack_array(packer, ints->n);

	for (uint32_t i = 0; i < ints->n && !r; i++)
		r = msgpack_pack_int64(packer, ints->v[i]);
	return r;
}

static int encode_value(msgpack_packer *packer, const struct scalar *value)
{
	int r;

	switch (value->kind) {
	case SCALAR_UNSIGNED:
		return msgpack_pack_uint64(packer, value->u);
	case SCALAR_SIGNED:
		return msgpack_pack_int64(packer, value->i);
	case SCALAR_FLOATING:
		return msgpack_pack_double(packer, value->re);
	case SCALAR_COMPLEX:
		r = msgpack_pack_array(packer, 2);
		r = r ? r : msgpack_pack_double(packer, value->re);
		return r ? r : msgpack_pack_double(packer, value->im);
	}
	assert(!"a scalar without a kind");
	return STATUS_INTERNAL;
}

static int encode_names(msgpack_packer *packer, const struct name_list *list)
{
	int r = msgpack_pack_array(packer, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++)
		r = codec_encode_str(packer, list->items[i], strlen(list->items[i]));
	return r;
}

static int encode_counters(msgpack_packer *packer, const struct counter_list *list)
{
	int r = msgpack_pack_map(packer, list->n);

	for (uint32_t i = 0; i < list->n && !r; i++) {
		r = codec_encode_str(packer, list->items[i].name, strlen(list->items[i].name));
		if (!r)
			r = msgpack_pack_uint64(packer, list->items[i].value);
	}
	return r;
}
