/* A whole message as a tree of msgpack-c's objects, in one pass and in a zone of the caller's. */
#ifndef PROTO_UNPACK_H
#define PROTO_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include <msgpack.h>

/* Fills *ret; texts are borrowed from data, arrays and maps are in the zone. STATUS_PROTOCOL when the bytes
 * are not one object without ext types, no deeper than a frame may be; STATUS_NO_MEMORY. */
int unpack_message(msgpack_zone *zone, const uint8_t *data, size_t len, msgpack_object *ret);

#endif
