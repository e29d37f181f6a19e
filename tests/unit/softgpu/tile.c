/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which bytes a tile moves, against the simplest loop, which finds every byte of the tile by its index,
 * one coordinate at a time. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <string.h>

#include "tests/softgpu/model.h"
#include "tests/softgpu/model/tile.h"
#include "tests/support/oracle.h"

enum { ROOM = 1 << 16, ADDRESS = 1 << 20 };

/* The content of a byte of a tile: the tensor's byte at `address` if inside is set, and fill otherwise. */
struct cell {
	bool used;
	bool inside;
	uint64_t address;
};

static uint32_t swizzled(enum tensor_map_swizzle swizzle, uint32_t a)
{
	switch (swizzle) {
	case TENSOR_MAP_SWIZZLE_32B:
		return a ^ (a >> 7 & 1) << 4;
	case TENSOR_MAP_SWIZZLE_64B:
		return a ^ (a >> 7 & 1) << 4 ^ (a >> 8 & 1) << 5;
	case TENSOR_MAP_SWIZZLE_128B:
		return a ^ (a >> 7 & 1) << 4 ^ (a >> 8 & 1) << 5 ^ (a >> 9 & 1) << 6;
	default:
		return a;
	}
}

/* Sets the cells of a tile element by element. With interleave an element is a slice, and dimension rank - 2
 * has one. Rows of a swizzled tile of elements take at least the swizzle's width; rows of slices leave no
 * gaps, and the tile's end is rounded up to that width. Returns the bytes that are moved, and sets *ret_span
 * to the bytes that the tile takes. */
static uint32_t expect(const struct tensor_map_layout *layout, const int32_t *c, struct cell *cells,
                       uint32_t *ret_span)
{
	static const uint32_t widths[] = { 0, 32, 64, 128 };
	bool sliced = layout->interleave != TENSOR_MAP_INTERLEAVE_NONE;
	uint32_t size = layout->interleave == TENSOR_MAP_INTERLEAVE_16B ? 16
	                : layout->interleave == TENSOR_MAP_INTERLEAVE_32B
	                    ? 32
	                    : tensor_map_type_size(layout->type);
	uint32_t i[5] = { 0 }, to = 0, row = 0, moved = 0;

	for (uint32_t d = 0; d < layout->rank;) {
		bool inside = true;
		uint64_t address = ADDRESS;

		for (uint32_t k = 0; k < layout->rank; k++) {
			int64_t at = c[k] + (int64_t)i[k];

			inside = inside && at >= 0 && at < (int64_t)layout->dim[k];
			address += (uint64_t)at * (k ? layout->stride[k - 1] : size);
		}
		for (uint32_t byte = 0; byte < size; byte++, moved++)
			cells[swizzled(layout->swizzle, to++)] =
			    (struct cell){ true, inside, address + byte };
		for (d = 0; d < layout->rank; d++) {
			i[d] += d == 0 && !sliced ? 1 : layout->element_stride[d];
			if (i[d] < layout->box[d] && !(sliced && d == layout->rank - 2))
				break;
			i[d] = 0;
		}
		if (d > 0 && !sliced) {
			to = to - row < widths[layout->swizzle] ? row + widths[layout->swizzle] : to;
			row = to;
		}
	}
	while (layout->swizzle && to % widths[layout->swizzle])
		to++;
	*ret_span = to;
	return moved;
}

static void compare(const struct tensor_map_layout *layout, const int32_t *c, const char *name)
{
	static struct cell wanted[ROOM], got[ROOM];
	struct tile_walk walk;
	struct tile_piece piece;
	uint32_t bytes, span;

	memset(wanted, 0, sizeof(wanted));
	memset(got, 0, sizeof(got));
	bytes = expect(layout, c, wanted, &span);
	cr_assert_eq(tile_bytes(layout), bytes, "%s: %u bytes, not %u", name, tile_bytes(layout), bytes);
	cr_assert_eq(tile_span(layout), span, "%s: spans %u bytes, not %u", name, tile_span(layout), span);
	tile_begin(&walk, layout, ADDRESS, c, 0);
	while (tile_next(&walk, &piece))
		for (uint32_t i = 0; i < TILE_PIECE; i++) {
			struct cell *cell = &got[piece.shared + i];

			cr_assert(!cell->used, "%s: byte %u comes twice", name, piece.shared + i);
			*cell = (struct cell){ true, i >= piece.first && i < piece.last, piece.global + i };
		}
	for (uint32_t i = 0; i < ROOM; i++) {
		cr_assert_eq(got[i].used, wanted[i].used, "%s: byte %u used %d", name, i, got[i].used);
		cr_assert_eq(got[i].inside, wanted[i].inside, "%s: byte %u inside %d", name, i,
		             got[i].inside);
		if (wanted[i].inside)
			cr_assert_eq(got[i].address, wanted[i].address, "%s: byte %u from %llx, not %llx",
			             name, i, (unsigned long long)got[i].address,
			             (unsigned long long)wanted[i].address);
	}
}

/* ---- Any layout that the rules allow --------------------------------------------------------------- */

static bool random_layout(uint64_t *state, struct tensor_map_layout *ret, int32_t *c)
{
	struct tensor_map_rules rules;
	uint64_t extent;

	*ret = (struct tensor_map_layout){
		.type = (enum tensor_map_type)oracle_between(state, 0, TENSOR_MAP_TFLOAT32_FTZ),
		.rank = (uint32_t)oracle_between(state, 1, 5),
		.interleave = (enum tensor_map_interleave)oracle_between(state, 0, 2),
		.swizzle = (enum tensor_map_swizzle)oracle_between(state, 0, 3),
	};
	extent = tensor_map_type_size(ret->type);
	for (uint32_t d = 0; d < ret->rank; d++) {
		ret->dim[d] = (uint64_t)oracle_between(state, 1, 40);
		ret->box[d] = (uint32_t)oracle_between(state, 1, d ? 6 : 32);
		ret->element_stride[d] = (uint32_t)oracle_between(state, 1, 3);
		if (d > 0)
			ret->stride[d - 1] = extent = (extent * ret->dim[d - 1] + 31) / 32 * 32;
		c[d] = (int32_t)oracle_between(state, -8, 40);
	}
	return tensor_map_check(ret, ADDRESS, &rules) == 0 && tile_span(ret) <= ROOM;
}

Test(tile, begins_at_a_piece)
{
	struct tensor_map_layout layout = { .type = TENSOR_MAP_UINT16, .rank = 3 };

	for (int32_t c = -16; c <= 16; c++)
		cr_assert_eq(tile_may_begin(&layout, c), c % 8 == 0, "%d", c);
	cr_assert(!tile_may_begin(&layout, INT32_MAX));
	cr_assert(tile_may_begin(&layout, INT32_MIN));
	layout.type = TENSOR_MAP_FLOAT64;
	for (int32_t c = -16; c <= 16; c++)
		cr_assert_eq(tile_may_begin(&layout, c), c % 2 == 0, "%d", c);
	layout.interleave = TENSOR_MAP_INTERLEAVE_16B;
	for (int32_t c = -16; c <= 16; c++)
		cr_assert(tile_may_begin(&layout, c), "slice %d", c);
}

Test(tile, random)
{
	uint64_t state = 7;
	int seen[3] = { 0 };

	while (seen[0] < 300 || seen[1] < 30 || seen[2] < 30) {
		struct tensor_map_layout layout;
		int32_t c[5];
		char name[128];

		if (!random_layout(&state, &layout, c))
			continue;
		seen[layout.interleave]++;
		snprintf(name, sizeof(name), "%s rank %u swizzle %s interleave %d at %d",
		         tensor_map_type_names[layout.type], layout.rank,
		         tensor_map_swizzle_names[layout.swizzle], (int)layout.interleave, c[0]);
		compare(&layout, c, name);
	}
}

/* ---- Values ---------------------------------------------------------------------------------------- */

struct float_row {
	char name[32];
	uint32_t in;
	uint32_t out;
};

static struct float_row floats[] = {
	{ "zero", 0x00000000, 0x00000000 },
	{ "negative zero", 0x80000000, 0x80000000 },
	{ "one", 0x3f800000, 0x3f800000 },
	{ "a tie goes down to even", 0x3f801000, 0x3f800000 },
	{ "a tie goes up to even", 0x3f803000, 0x3f804000 },
	{ "just above a tie", 0x3f801001, 0x3f802000 },
	{ "the smallest vanishes", 0x00000001, 0x00000000 },
	{ "a subnormal becomes normal", 0x007fffff, 0x00800000 },
	{ "the largest becomes infinite", 0x7f7fffff, 0x7f800000 },
	{ "infinity", 0x7f800000, 0x7f800000 },
	{ "any NaN becomes one", 0xffa12345, 0x7fffe000 },
};

ParameterizedTestParameters(tile, tfloat32)
{
	return cr_make_param_array(struct float_row, floats, sizeof floats / sizeof floats[0]);
}

ParameterizedTest(struct float_row *row, tile, tfloat32)
{
	for (int type = TENSOR_MAP_UINT8; type <= TENSOR_MAP_TFLOAT32_FTZ; type++) {
		struct tensor_map_layout layout = { .type = (enum tensor_map_type)type };
		bool rounds = type == TENSOR_MAP_TFLOAT32 || type == TENSOR_MAP_TFLOAT32_FTZ;
		uint32_t piece[4] = { row->in, row->in, row->in, row->in };

		tile_convert(&layout, (unsigned char *)piece, 4, 12);
		cr_assert_eq(piece[0], row->in, "%s: what is outside changed", row->name);
		cr_assert_eq(piece[3], row->in, "%s: what is outside changed", row->name);
		for (int i = 1; i < 3; i++)
			cr_assert_eq(piece[i], rounds ? row->out : row->in, "%s as %s: %08x", row->name,
			             tensor_map_type_names[type], piece[i]);
	}
}

Test(tile, fills)
{
	static const uint16_t nan = 0x7ff7;

	for (int fill = TENSOR_MAP_FILL_ZERO; fill <= TENSOR_MAP_FILL_NAN; fill++) {
		struct tensor_map_layout layout = { .type = TENSOR_MAP_FLOAT16,
			                            .fill = (enum tensor_map_fill)fill };
		unsigned char piece[TILE_PIECE];

		memset(piece, 0x55, sizeof(piece));
		tile_fill(&layout, piece);
		for (int i = 0; i < TILE_PIECE; i += 2) {
			uint16_t value;

			memcpy(&value, piece + i, sizeof(value));
			cr_assert_eq(value, fill == TENSOR_MAP_FILL_NAN ? nan : 0, "fill %d: %04x", fill,
			             value);
		}
	}
}

Test(tile, swizzles_repeat)
{
	static const enum tensor_map_swizzle all[] = { TENSOR_MAP_SWIZZLE_NONE, TENSOR_MAP_SWIZZLE_32B,
		                                       TENSOR_MAP_SWIZZLE_64B, TENSOR_MAP_SWIZZLE_128B };
	static const uint32_t repeats[] = { 128, 256, 512, 1024 };

	for (int s = 0; s < 4; s++) {
		cr_assert_eq(tile_align(all[s]), repeats[s], "%s", tensor_map_swizzle_names[all[s]]);
		for (uint32_t a = 0; a < 4096; a++) {
			cr_assert_eq(tile_swizzle(all[s], a), swizzled(all[s], a), "%s at %u",
			             tensor_map_swizzle_names[all[s]], a);
			cr_assert_eq(tile_swizzle(all[s], a + repeats[s]),
			             tile_swizzle(all[s], a) + repeats[s], "%s at %u",
			             tensor_map_swizzle_names[all[s]], a);
			cr_assert_eq(tile_swizzle(all[s], tile_swizzle(all[s], a)), a, "%s at %u",
			             tensor_map_swizzle_names[all[s]], a);
		}
	}
}

/* ---- Maps ------------------------------------------------------------------------------------------ */

Test(map, keeps_the_layout)
{
	uint64_t state = 11;

	for (int n = 0; n < 200;) {
		struct tensor_map_layout layout, back;
		int32_t c[5];
		CUtensorMap map;
		uint64_t address = (uint64_t)oracle_between(&state, 0, 1 << 30) * 16, got;

		if (!random_layout(&state, &layout, c))
			continue;
		n++;
		model_map_encode(&map, &layout, address);
		cr_assert(model_map_decode(&map, &back, &got));
		cr_assert_eq(got, address);
		cr_assert(tensor_map_equal(&layout, &back));
	}
}

Test(map, the_longest)
{
	struct tensor_map_layout back, layout = {
		.type = TENSOR_MAP_FLOAT64,
		.rank = 5,
		.dim = { UINT64_C(1) << 32, UINT64_C(1) << 32, UINT64_C(1) << 32, 1, UINT64_C(1) << 32 },
		.stride = { 16, (UINT64_C(1) << 40) - 16, 32, (UINT64_C(1) << 40) - 16 },
		.box = { 256, 256, 256, 256, 256 },
		.element_stride = { 8, 8, 8, 8, 8 },
		.interleave = TENSOR_MAP_INTERLEAVE_32B,
		.swizzle = TENSOR_MAP_SWIZZLE_32B,
		.l2 = TENSOR_MAP_L2_256B,
		.fill = TENSOR_MAP_FILL_NAN,
	};
	CUtensorMap map;
	uint64_t address;

	model_map_encode(&map, &layout, UINT64_MAX - 15);
	cr_assert(model_map_decode(&map, &back, &address));
	cr_assert(tensor_map_equal(&layout, &back));
	cr_assert_eq(address, UINT64_MAX - 15);
}

Test(map, a_changed_bit_is_no_map)
{
	struct tensor_map_layout back, layout = {
		.type = TENSOR_MAP_UINT8, .rank = 1, .dim = { 64 }, .box = { 16 }, .element_stride = { 1 }
	};
	CUtensorMap map;
	uint64_t address;

	memset(&map, 0, sizeof(map));
	cr_assert(!model_map_decode(&map, &back, &address), "zeros are a map");
	for (size_t bit = 0; bit < 8 * sizeof(map); bit++) {
		model_map_encode(&map, &layout, 4096);
		((unsigned char *)&map)[bit / 8] ^= (unsigned char)(1 << bit % 8);
		cr_assert(!model_map_decode(&map, &back, &address), "bit %zu", bit);
	}
}
