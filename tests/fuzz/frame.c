/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the search for the end of a message. The first byte of the input chooses limits and piece sizes, the
 * rest is messages. The result must not depend on how the bytes arrive: it is compared with that for all
 * bytes at once. What is taken for a message is one to msgpack-c, and observes the limits by an independent
 * count. */
#include "proto/wire/frame.h"

#include <stdlib.h>
#include <string.h>

#include <msgpack.h>

#include "fuzz.h"
#include "stream.h"
#include "tests/support/oracle.h"

struct outcome {
	enum frame_result result;
	size_t len; /* message length for FRAME_COMPLETE */
	struct error err;
};

/* Small limits, which inputs of a few bytes reach. */
static const struct frame_limits small = { .bytes = 64, .depth = 3, .elements = 20 };

static const struct frame_limits *const all_limits[] = { &frame_request_limits, &frame_reply_limits, &small };

static struct outcome scan_whole(const uint8_t *data, size_t size, const struct frame_limits *limits)
{
	struct frame_scan scan = { 0 };
	struct outcome outcome = { 0 };

	outcome.result = frame_scan(&scan, data, size, limits, &outcome.len, &outcome.err);
	return outcome;
}

/* Each prefix is copied to an allocation of its exact size. */
static struct outcome scan_pieces(const uint8_t *data, size_t size, const struct frame_limits *limits,
                                  uint64_t random)
{
	struct frame_scan scan = { 0 };
	struct outcome outcome = { .result = FRAME_PARTIAL };
	size_t most = 1 + oracle_random(&random) % 64;

	for (size_t arrived = 0; arrived < size && outcome.result == FRAME_PARTIAL;) {
		size_t piece = 1 + oracle_random(&random) % most;
		uint8_t *exact;

		arrived = piece < size - arrived ? arrived + piece : size;
		exact = malloc(arrived);
		memcpy(exact, data, arrived);
		outcome.result = frame_scan(&scan, exact, arrived, limits, &outcome.len, &outcome.err);
		free(exact);
	}
	return outcome;
}

/* Counts recursively in what msgpack-c decoded. */
static uint64_t elements_of(const msgpack_object *object, uint32_t depth, uint32_t *deepest)
{
	uint64_t n = 0;

	if (object->type != MSGPACK_OBJECT_ARRAY && object->type != MSGPACK_OBJECT_MAP)
		return 0;
	if (++depth > *deepest)
		*deepest = depth;
	if (object->type == MSGPACK_OBJECT_ARRAY) {
		n = object->via.array.size;
		for (uint32_t i = 0; i < object->via.array.size; i++)
			n += elements_of(&object->via.array.ptr[i], depth, deepest);
		return n;
	}
	n = 2 * (uint64_t)object->via.map.size;
	for (uint32_t i = 0; i < object->via.map.size; i++)
		n += elements_of(&object->via.map.ptr[i].key, depth, deepest) +
		     elements_of(&object->via.map.ptr[i].val, depth, deepest);
	return n;
}

static void check_message(const uint8_t *data, size_t len, const struct frame_limits *limits)
{
	msgpack_zone zone;
	msgpack_object object;
	msgpack_unpack_return r;
	uint32_t depth = 0;
	size_t end = 0;

	fuzz_check(len > 0 && len <= limits->bytes, "%zu bytes", len);
	msgpack_zone_init(&zone, 4096);
	r = msgpack_unpack((const char *)data, len, &end, &zone, &object);
	fuzz_check(r == MSGPACK_UNPACK_SUCCESS && end == len, "msgpack-c: %d, %zu of %zu bytes", (int)r, end,
	           len);
	fuzz_check(elements_of(&object, 0, &depth) <= limits->elements);
	fuzz_check(depth <= limits->depth, "%u levels", depth);
	msgpack_zone_destroy(&zone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct frame_limits *limits;
	struct outcome whole, pieces;
	uint64_t random;

	if (size == 0)
		return 0;
	limits = all_limits[data[0] % 3];
	random = data[0];
	data++;
	size--;
	do {
		whole = scan_whole(data, size, limits);
		pieces = scan_pieces(data, size, limits, random);
		fuzz_check(whole.result == pieces.result, "%d at once, %d in pieces", whole.result,
		           pieces.result);
		if (whole.result == FRAME_BROKEN)
			fuzz_check_error(&whole.err);
		if (whole.result != FRAME_COMPLETE)
			break;
		fuzz_check(whole.len <= size && whole.len == pieces.len, "%zu of %zu bytes, %zu in pieces",
		           whole.len, size, pieces.len);
		check_message(data, whole.len, limits);
		data += whole.len;
		size -= whole.len;
	} while (size);
	return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	return stream_mutate(data, size, max_size, seed);
}
