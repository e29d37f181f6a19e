/* Packing and unpacking against msgpack-c's own, which is the reference. */
#include "proto/pack.h"
#include "proto/unpack.h"

#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "proto/frame.h"

/* ---- Packing ---------------------------------------------------------------------------------------- */

static int append(void *buffer, const char *data, size_t len)
{
	return buffer_append(buffer, data, len);
}

static void same(struct buffer *ours, struct buffer *theirs, const char *what, uint64_t value)
{
	cr_assert_eq(buffer_len(ours), buffer_len(theirs), "%s %ju", what, (uintmax_t)value);
	cr_assert_arr_eq(ours->data + ours->start, theirs->data + theirs->start, buffer_len(ours), "%s %ju",
	                 what, (uintmax_t)value);
	buffer_consume(ours, buffer_len(ours), SIZE_MAX);
	buffer_consume(theirs, buffer_len(theirs), SIZE_MAX);
}

Test(pack, is_what_msgpack_packs)
{
	static char data[70000];
	struct buffer ours = { 0 }, theirs = { 0 };
	msgpack_packer packer;

	msgpack_packer_init(&packer, &theirs, append);
	/* Around every power of two, which is where the forms change. */
	for (int shift = 0; shift < 64; shift++) {
		for (int d = -2; d <= 2; d++) {
			uint64_t value = (UINT64_C(1) << shift) + (uint64_t)(int64_t)d;
			size_t len = value < sizeof data ? (size_t)value : 0;
			int64_t minus = (int64_t)(0 - value);
			double real = (double)value / 3;

			cr_assert_eq(pack_uint(&ours, value), 0);
			msgpack_pack_uint64(&packer, value);
			same(&ours, &theirs, "uint", value);
			cr_assert_eq(pack_int(&ours, minus), 0);
			msgpack_pack_int64(&packer, minus);
			same(&ours, &theirs, "minus", value);
			cr_assert_eq(pack_double(&ours, real), 0);
			msgpack_pack_double(&packer, real);
			same(&ours, &theirs, "a third of", value);
			cr_assert_eq(pack_array(&ours, (uint32_t)value), 0);
			msgpack_pack_array(&packer, (uint32_t)value);
			same(&ours, &theirs, "array", value);
			cr_assert_eq(pack_map(&ours, (uint32_t)value), 0);
			msgpack_pack_map(&packer, (uint32_t)value);
			same(&ours, &theirs, "map", value);
			cr_assert_eq(pack_str(&ours, data, len), 0);
			msgpack_pack_str(&packer, len);
			msgpack_pack_str_body(&packer, data, len);
			same(&ours, &theirs, "str", len);
			cr_assert_eq(pack_bin(&ours, data, len), 0);
			msgpack_pack_bin(&packer, len);
			msgpack_pack_bin_body(&packer, data, len);
			same(&ours, &theirs, "bin", len);
		}
	}
	cr_assert(pack_nil(&ours) == 0 && pack_bool(&ours, true) == 0 && pack_bool(&ours, false) == 0);
	msgpack_pack_nil(&packer);
	msgpack_pack_true(&packer);
	msgpack_pack_false(&packer);
	same(&ours, &theirs, "nil and booleans", 0);
	buffer_deinit(&ours);
	buffer_deinit(&theirs);
}

/* ---- Unpacking -------------------------------------------------------------------------------------- */

static uint64_t state = 1;

static uint64_t next_random(void)
{
	state = state * 6364136223846793005u + 1442695040888963407u;
	return state >> 24;
}

/* A number of any size. */
static uint64_t next_number(void)
{
	return (next_random() << 40 ^ next_random()) >> next_random() % 64;
}

static void pack_random(msgpack_packer *packer, int depth)
{
	static const char text[300];
	size_t n = next_random() % 6;

	switch (next_random() % (depth ? 10 : 8)) {
	case 0:
		msgpack_pack_uint64(packer, next_number());
		break;
	case 1:
		msgpack_pack_int64(packer, (int64_t)(0 - next_number()));
		break;
	case 2:
		msgpack_pack_double(packer, (double)next_number());
		break;
	case 3:
		msgpack_pack_float(packer, (float)next_number() / 3);
		break;
	case 4:
		msgpack_pack_nil(packer);
		break;
	case 5:
		n & 1 ? msgpack_pack_true(packer) : msgpack_pack_false(packer);
		break;
	case 6:
		n = next_random() % sizeof text;
		msgpack_pack_str(packer, n);
		msgpack_pack_str_body(packer, text, n);
		break;
	case 7:
		n = next_random() % sizeof text;
		msgpack_pack_bin(packer, n);
		msgpack_pack_bin_body(packer, text, n);
		break;
	case 8:
		msgpack_pack_array(packer, n);
		for (; n > 0; n--)
			pack_random(packer, depth - 1);
		break;
	default:
		msgpack_pack_map(packer, n);
		for (n *= 2; n > 0; n--)
			pack_random(packer, depth - 1);
	}
}

Test(unpack, finds_what_msgpack_finds)
{
	struct buffer b = { 0 };
	msgpack_object ours, theirs;
	msgpack_packer packer;
	msgpack_zone zone;
	size_t end;

	cr_assert(msgpack_zone_init(&zone, 1024));
	msgpack_packer_init(&packer, &b, append);
	for (int round = 0; round < 3000; round++) {
		pack_random(&packer, 4);
		msgpack_zone_clear(&zone);
		end = 0;
		cr_assert_eq(msgpack_unpack((char *)b.data + b.start, buffer_len(&b), &end, &zone, &theirs),
		             MSGPACK_UNPACK_SUCCESS, "round %d", round);
		cr_assert_eq(unpack_message(&zone, b.data + b.start, buffer_len(&b), &ours), 0, "round %d",
		             round);
		cr_assert(msgpack_object_equal(ours, theirs), "round %d", round);
		/* Whatever is cut off is missed, and what is added is seen. */
		for (size_t len = 0; len < buffer_len(&b); len += 1 + len / 8) {
			uint8_t *cut = malloc(len ? len : 1);

			memcpy(cut, b.data + b.start, len);
			cr_assert_eq(unpack_message(&zone, cut, len, &ours), STATUS_PROTOCOL,
			             "round %d, %zu of %zu bytes", round, len, buffer_len(&b));
			free(cut);
		}
		cr_assert_eq(buffer_append(&b, "\xc0", 1), 0);
		cr_assert_eq(unpack_message(&zone, b.data + b.start, buffer_len(&b), &ours), STATUS_PROTOCOL);
		buffer_consume(&b, buffer_len(&b), SIZE_MAX);
	}
	msgpack_zone_destroy(&zone);
	buffer_deinit(&b);
}

struct refused_row {
	char name[40];
	uint8_t data[16];
	size_t len;
};

ParameterizedTestParameters(unpack, refused)
{
	static struct refused_row rows[] = {
		{ .name = "nothing", .len = 0 },
		{ .name = "reserved", .data = { 0xc1 }, .len = 1 },
		{ .name = "fixext", .data = { 0xd4, 1, 1 }, .len = 3 },
		{ .name = "ext 8", .data = { 0xc7, 1, 1, 1 }, .len = 4 },
		{ .name = "an array of 2^32 - 1", .data = { 0xdd, 0xff, 0xff, 0xff, 0xff, 1, 2 }, .len = 7 },
		{ .name = "a map of 2^32 - 1", .data = { 0xdf, 0xff, 0xff, 0xff, 0xff, 1, 2 }, .len = 7 },
		{ .name = "a str of 2^32 - 1", .data = { 0xdb, 0xff, 0xff, 0xff, 0xff, 1, 2 }, .len = 7 },
		{ .name = "one more than is there", .data = { 0x93, 1, 2 }, .len = 3 },
		{ .name = "a key without a value", .data = { 0x81, 1 }, .len = 2 },
		{ .name = "half a length", .data = { 0xdc, 0 }, .len = 2 },
		{ .name = "half a number", .data = { 0xcd, 0 }, .len = 2 },
	};

	return cr_make_param_array(struct refused_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct refused_row *row, unpack, refused)
{
	msgpack_object object;
	msgpack_zone zone;

	cr_assert(msgpack_zone_init(&zone, 1024));
	cr_assert_eq(unpack_message(&zone, row->data, row->len, &object), STATUS_PROTOCOL, "%s", row->name);
	msgpack_zone_destroy(&zone);
}

Test(unpack, as_deep_as_a_frame_may_be)
{
	uint8_t data[FRAME_MAX_DEPTH + 2];
	msgpack_object object;
	msgpack_zone zone;

	cr_assert(msgpack_zone_init(&zone, 1024));
	memset(data, 0x91, sizeof data);
	data[FRAME_MAX_DEPTH] = 0xc0;
	cr_assert_eq(unpack_message(&zone, data, FRAME_MAX_DEPTH + 1, &object), 0);
	data[FRAME_MAX_DEPTH] = 0x91;
	data[FRAME_MAX_DEPTH + 1] = 0xc0;
	cr_assert_eq(unpack_message(&zone, data, FRAME_MAX_DEPTH + 2, &object), STATUS_PROTOCOL);
	msgpack_zone_destroy(&zone);
}
