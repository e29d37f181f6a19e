/* SPDX-License-Identifier: Apache-2.0 */
/* Where a MessagePack message ends: an iterative scan that allocates nothing and enforces limits before
 * msgpack-c sees a byte (msgpack-c reserves what an array's header declares).
 *
 * The scan is resumable: feeding a message a byte at a time costs the same as feeding it at once.
 */
#ifndef PROTO_WIRE_FRAME_H
#define PROTO_WIRE_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "proto/status.h"

#define FRAME_MAX_DEPTH 16

struct frame_limits {
	size_t bytes;   /* of one message */
	uint32_t depth; /* containers within containers, the outermost counted; <= FRAME_MAX_DEPTH */
	uint64_t
	    elements; /* declared by all array and map headers of a message together (a map's pair is 2) */
};

/* What a server accepts, and what a client does of a server's replies. */
extern const struct frame_limits frame_request_limits; /* 64 KiB, depth 8, 4096 elements */
extern const struct frame_limits frame_reply_limits;   /* 1 MiB, depth 8, 65536 elements */

/* Zero-initialised: at the start of a message; so is one whose pos, elements and depth are 0. */
struct frame_scan {
	size_t pos;        /* bytes of this message scanned so far */
	uint64_t elements; /* declared so far */
	uint32_t depth;
	uint64_t left[FRAME_MAX_DEPTH]; /* items missing in each open container */
};

enum frame_result {
	FRAME_COMPLETE, /* *ret_len bytes are one message; the scan is reset for the next */
	FRAME_PARTIAL,  /* all len bytes belong to a message that has not ended */
	FRAME_BROKEN,   /* a limit is passed, a reserved or ext type: err says which, with its value */
};

/* data[len] is everything of the current message that has arrived, including what earlier calls saw. */
enum frame_result frame_scan(struct frame_scan *scan, const uint8_t *data, size_t len,
                             const struct frame_limits *limits, size_t *ret_len, struct error *err);

#endif
