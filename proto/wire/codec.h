/* SPDX-License-Identifier: Apache-2.0 */
/* Converts between MessagePack and the structs of schema.h by their field tables, and packs single items at
 * the end of a buffer with msgpack-c. Used by rpc.c, by the library's launches (client/launch.c) and by
 * tests. */
#ifndef PROTO_WIRE_CODEC_H
#define PROTO_WIRE_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

#include "frame.h"
#include "proto/schema.h"
#include "proto/status.h"

/* ---- Packing ------------------------------------------------------------------------------------------- */

static inline int pack_write(void *b, const char *data, size_t len)
{
	return buffer_append(b, data, len);
}

/* Each pack function appends one item and returns 0, or STATUS_NO_MEMORY with part of the item appended. A
 * msgpack_packer consists of two pointers, so one is made for each call, which lets the compiler inline the
 * callback. */
static inline msgpack_packer pack_to(struct buffer *b)
{
	return (msgpack_packer){ .data = b, .callback = pack_write };
}

static inline int pack_nil(struct buffer *b)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_nil(&p);
}

static inline int pack_bool(struct buffer *b, bool value)
{
	msgpack_packer p = pack_to(b);

	return value ? msgpack_pack_true(&p) : msgpack_pack_false(&p);
}

static inline int pack_uint(struct buffer *b, uint64_t value)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_uint64(&p, value);
}

static inline int pack_int(struct buffer *b, int64_t value)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_int64(&p, value);
}

static inline int pack_double(struct buffer *b, double value)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_double(&p, value);
}

static inline int pack_array(struct buffer *b, size_t n)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_array(&p, n);
}

static inline int pack_map(struct buffer *b, size_t n)
{
	msgpack_packer p = pack_to(b);

	return msgpack_pack_map(&p, n);
}

static inline int pack_str(struct buffer *b, const char *data, size_t len)
{
	msgpack_packer p = pack_to(b);
	int r = msgpack_pack_str(&p, len);

	return r ? r : msgpack_pack_str_body(&p, data, len);
}

static inline int pack_bin(struct buffer *b, const char *data, size_t len)
{
	msgpack_packer p = pack_to(b);
	int r = msgpack_pack_bin(&p, len);

	return r ? r : msgpack_pack_bin_body(&p, data, len);
}

/* ---- The codec ----------------------------------------------------------------------------------------- */

/* The term for a value of each kind in error messages and in protocol.md, with its article. */
extern const char *const codec_kind_names[FIELD_KIND_COUNT];

/* The names by which values of a kind are sent. names is NULL for kinds that are not sent by name. */
struct codec_name_set {
	const char *const *names;
	unsigned n;
};

extern const struct codec_name_set codec_name_sets[FIELD_KIND_COUNT];

enum codec_unknown {
	CODEC_REFUSE_UNKNOWN, /* Servers do this, because a misspelled option must not be ignored. */
	CODEC_SKIP_UNKNOWN,   /* Clients do this, because newer servers may send more. */
};

/* The fields that the outermost map may and must have, as masks of its message's fields. Maps within it
 * follow the rules of their own messages. */
struct codec_rules {
	const char *owner; /* what errors call the map that has an unknown field */
	uint64_t accepts;
	uint64_t requires;
	enum codec_unknown unknown;
};

static inline uint64_t codec_all_fields(const struct message *message)
{
	return (UINT64_C(1) << message->n_fields) - 1;
}

/* Decodes map (NULL: an empty one) into the message's struct at ret. Returns 0, or STATUS_INVALID_ARGUMENT
 * with the field's path in err; ret is then set in part. Messages with NAMES or COUNTERS fields cannot be
 * decoded. */
int codec_decode(const msgpack_object *map, const struct message *message, const struct codec_rules *rules,
                 void *ret, struct error *err);

/* Sets the fields that are not in the value's `has` to their defaults. */
void codec_set_defaults(const struct message *message, void *value);

/* Decodes entry i of an array of maps like codec_decode; `field` is the name of the array in paths. */
int codec_decode_entry(const void *objects, uint32_t i, const char *field, const struct message *message,
                       const struct codec_rules *rules, void *ret, struct error *err);

/* Appends the struct at value as a map of its REQUIRED fields and of those OPTIONAL ones whose bit in `has`
 * is set. Returns 0, or STATUS_NO_MEMORY with part of the map appended. */
int codec_encode(struct buffer *b, const struct message *message, const void *value);

/* Appends an array of such maps in the same way: one for each item of the list, a struct of the message
 * inner. */
int codec_encode_list(struct buffer *b, const struct message *inner, const struct message_list *list);

/* Writes a description of an object, such as "a boolean" or "-5", to text, for errors that say what was found
 * instead of the expected object. Returns text. */
#define CODEC_WHAT_SIZE 40
char *codec_what(const msgpack_object *object, char *text, size_t text_size);

#endif
