/* SPDX-License-Identifier: Apache-2.0 */
/* The one walk between MessagePack and the structs of schema.h, by their field tables. For rpc_request.c and
 * rpc_reply.c. */
#ifndef PROTO_WIRE_CODEC_H
#define PROTO_WIRE_CODEC_H

#include <stdint.h>

#include <msgpack.h>

#include "buffer.h"
#include "proto/schema.h"
#include "proto/status.h"

/* What a value of each kind is called in sentences and in protocol.md, with its article. */
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

/* What the outermost map may and must hold, as masks of its message's fields; the maps within it hold what
 * their own messages say. */
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

/* Fills the message's struct at ret from map (NULL: from an empty one). 0, or STATUS_INVALID_ARGUMENT with
 * the field's path in err; ret is then filled in part. Messages with NAMES or COUNTERS fields are
 * never decoded. */
int codec_decode(const msgpack_object *map, const struct message *message, const struct codec_rules *rules,
                 void *ret, struct error *err);

/* Sets the fields that the value's `has` does not name to what absent fields read as. */
void codec_set_defaults(const struct message *message, void *value);

/* Entry i of an array of maps, decoded as codec_decode does; field names the array and i in the path. */
int codec_decode_entry(const void *objects, uint32_t i, const char *field, const struct message *message,
                       const struct codec_rules *rules, void *ret, struct error *err);

/* Appends the struct at value as a map: REQUIRED fields, and OPTIONAL ones whose bit in `has` is set. 0, or
 * STATUS_NO_MEMORY with part of it appended. */
int codec_encode(struct buffer *b, const struct message *message, const void *value);

/* The same for an array of maps. */
int codec_encode_list(struct buffer *b, const struct message *inner, const struct message_list *list);

/* "a str", "-5": what object is, in sentences that expected something else. */
#define CODEC_WHAT_SIZE 40
char *codec_what(const msgpack_object *object, char *text, size_t text_size);

#endif
