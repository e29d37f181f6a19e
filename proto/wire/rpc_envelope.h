/* SPDX-License-Identifier: Apache-2.0 */
/* What requests and replies share: a decoder, and the array around every message: [0, msgid, method, params],
 * [1, msgid, error, result] or [2, method, params]. For rpc_request.c and rpc_reply.c alone. */
#ifndef PROTO_WIRE_RPC_ENVELOPE_H
#define PROTO_WIRE_RPC_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

#include "rpc.h"

enum rpc_type { RPC_TYPE_REQUEST = 0, RPC_TYPE_REPLY = 1, RPC_TYPE_NOTIFICATION = 2 };

/* The object that a message's bytes are; NULL with err. */
const msgpack_object *rpc_unpack(struct rpc_decoder *decoder, const uint8_t *data, size_t len,
                                 struct error *err);

/* The first element; false when the object is no array that starts with an integer. */
bool rpc_envelope_type(const msgpack_object *root, uint64_t *ret);

bool rpc_is_msgid(const msgpack_object *object);
bool rpc_is_name(const msgpack_object *object);

/* Whether an object for which rpc_is_name holds has that name. */
bool rpc_has_name(const msgpack_object *object, const char *name);

/* Opens an envelope of four items, the first two of them packed. */
int rpc_pack_envelope(struct buffer *b, enum rpc_type type, uint32_t msgid);

/* What was appended stays whole or not at all; packing fails only for want of memory. */
int rpc_finish(struct buffer *b, size_t before, int r);

#endif
