/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder is a zone that is cleared for each message and keeps one chunk, large enough for the objects
 * of every request that the schema allows. */
#include "rpc_envelope.h"

#include <stdlib.h>
#include <string.h>

#include "pack.h"

#define ZONE_CHUNK_SIZE (12 * 1024)

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

const msgpack_object *rpc_unpack(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
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

bool rpc_envelope_type(const msgpack_object *root, uint64_t *ret)
{
	if (root->type != MSGPACK_OBJECT_ARRAY || root->via.array.size == 0 ||
	    root->via.array.ptr[0].type != MSGPACK_OBJECT_POSITIVE_INTEGER)
		return false;
	*ret = root->via.array.ptr[0].via.u64;
	return true;
}

bool rpc_is_msgid(const msgpack_object *object)
{
	return object->type == MSGPACK_OBJECT_POSITIVE_INTEGER && object->via.u64 <= UINT32_MAX;
}

/* Old encoders know no str apart from bin; the two lie alike in an object. */
bool rpc_is_name(const msgpack_object *object)
{
	return object->type == MSGPACK_OBJECT_STR || object->type == MSGPACK_OBJECT_BIN;
}

bool rpc_has_name(const msgpack_object *object, const char *name)
{
	return object->via.str.size == strlen(name) && !memcmp(object->via.str.ptr, name, strlen(name));
}

int rpc_pack_envelope(struct buffer *b, enum rpc_type type, uint32_t msgid)
{
	int r = pack_array(b, 4);

	r = r ? r : pack_uint(b, type);
	return r ? r : pack_uint(b, msgid);
}

int rpc_finish(struct buffer *b, size_t before, int r)
{
	if (!r)
		return 0;
	buffer_truncate(b, before);
	return STATUS_NO_MEMORY;
}
