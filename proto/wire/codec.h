/* SPDX-License-Identifier: Apache-2.0 */
/* The one walk between MessagePack and the structs of schema.h, by their field tables; and msgpack-c's packer
 * at the end of a buffer, one item per call. For rpc.c, the launches of the library, and tests.
 */
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

/* Each of these packs one item and returns 0, or STATUS_NO_MEMORY with part of it appended. A packer is its
 * two pointers: one made for each call lets the compiler see through the callback. */
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

/* Sentences and protocol.md call a value of each kind this, with its article. */
extern const char *const codec_kind_names[FIELD_KIND_COUNT];

/* The names that the values of a kind travel as; names is NULL for kinds that do not. */
struct codec_name_set {
	const char *const *names;
	unsigned n;
};

extern const struct codec_name_set codec_name_sets[FIELD_KIND_COUNT];

enum codec_unknown {
	CODEC_REFUSE_UNKNOWN, /* what a server does: a misspelt option must not be lost */
	CODEC_SKIP_UNKNOWN,   /* what a client does: servers grow */
};

/* The rules say what the outermost map may and must hold, as masks of its message's fields. The maps within
 * it hold what their own messages say. */
struct codec_rules {
	const char *owner; /* of the fields: what an unknown one is not a field of */
	uint64_t accepts;
	uint64_t requires;
	enum codec_unknown unknown;
};

static inline uint64_t codec_all_fields(const struct message *message)
{
	return (UINT64_C(1) << message->n_fields) - 1;
}

/* Fills the message's struct at ret from map (NULL: from an empty one). Returns 0, or STATUS_INVALID_ARGUMENT
 * with the field's path in err; ret is then filled in part. Messages with NAMES or COUNTERS fields are never
 * decoded. */
int codec_decode(const msgpack_object *map, const struct message *message, const struct codec_rules *rules,
                 void *ret, struct error *err);

/* Sets the fields that the value's `has` does not name to what absent fields read as. */
void codec_set_defaults(const struct message *message, void *value);

/* Decodes entry i of an array of maps as codec_decode does; field names the array and i in the path. */
int codec_decode_entry(const void *objects, uint32_t i, const char *field, const struct message *message,
                       const struct codec_rules *rules, void *ret, struct error *err);

/* Appends the struct at value as a map: REQUIRED fields, and OPTIONAL ones whose bit in `has` is set. Returns
 * 0, or STATUS_NO_MEMORY with part of it appended. */
int codec_encode(struct buffer *b, const struct message *message, const void *value);

/* Does the same for an array of maps. */
int codec_encode_list(struct buffer *b, const struct message *inner, const struct message_list *list);

/* Writes what object is, as in "a str" or "-5", for sentences that expected something else, and returns text.
 */
#define CODEC_WHAT_SIZE 40
char *codec_what(const msgpack_object *object, char *text, size_t text_size);

#endif
