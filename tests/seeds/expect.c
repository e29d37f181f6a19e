/* SPDX-License-Identifier: Apache-2.0 */
/* A single walk visits a tile's elements in the order of shared memory; loads and stores differ in what they
 * do at each element. */
#include "expect.h"

#include <string.h>

struct place {
	uint32_t shared; /* byte offset of the element in shared memory, before swizzling */
	uint64_t global;
	bool inside;
};

typedef void visit_function(const struct tensor_map_layout *layout, struct place place, uint32_t bytes,
                            void *context);

static uint32_t element_bytes(const struct tensor_map_layout *layout)
{
	switch (layout->interleave) {
	case TENSOR_MAP_INTERLEAVE_16B:
		return 16;
	case TENSOR_MAP_INTERLEAVE_32B:
		return 32;
	default:
		return tensor_map_type_size(layout->type);
	}
}

static uint32_t swizzle_bytes(const struct tensor_map_layout *layout)
{
	return layout->swizzle == TENSOR_MAP_SWIZZLE_NONE ? 0 : 16u << layout->swizzle;
}

/* Applies NVIDIA's swizzle formulas bit by bit. */
static uint32_t swizzled(const struct tensor_map_layout *layout, uint32_t a)
{
	uint32_t a7 = a >> 7 & 1, a8 = a >> 8 & 1, a9 = a >> 9 & 1;

	switch (layout->swizzle) {
	case TENSOR_MAP_SWIZZLE_32B:
		return a ^ a7 << 4;
	case TENSOR_MAP_SWIZZLE_64B:
		return a ^ a7 << 4 ^ a8 << 5;
	case TENSOR_MAP_SWIZZLE_128B:
		return a ^ a7 << 4 ^ a8 << 5 ^ a9 << 6;
	default:
		return a;
	}
}

/* Returns the number of steps in dimension d: from 0 by its element stride, below its box. */
static uint32_t step_of(const struct tensor_map_layout *layout, uint32_t d)
{
	return d == 0 && layout->interleave == TENSOR_MAP_INTERLEAVE_NONE ? 1 : layout->element_stride[d];
}

static uint32_t box_of(const struct tensor_map_layout *layout, uint32_t d)
{
	if (d >= layout->rank || (layout->interleave != TENSOR_MAP_INTERLEAVE_NONE && d == layout->rank - 2))
		return 1;
	return layout->box[d];
}

/* Visits each element of the tile. Returns where the last row ends. */
static uint32_t walk(const struct tensor_map_layout *layout, const int32_t *c, visit_function *visit,
                     void *context)
{
	uint32_t bytes = element_bytes(layout), row = 0, at = 0, i[TENSOR_MAP_MAX_RANK] = { 0 };

	for (uint32_t d = 0; d < layout->rank;) {
		struct place place = { .shared = row + at, .inside = true };

		for (uint32_t k = 0; k < layout->rank; k++) {
			int64_t coordinate = (int64_t)c[k] + i[k];

			if (coordinate < 0 || coordinate >= (int64_t)layout->dim[k])
				place.inside = false;
			place.global += (uint64_t)(coordinate * (int64_t)(k ? layout->stride[k - 1] : bytes));
		}
		visit(layout, place, bytes, context);
		at += bytes;

		for (d = 0; d < layout->rank; d++) {
			i[d] += step_of(layout, d);
			if (i[d] < box_of(layout, d))
				break;
			i[d] = 0;
			if (d == 0) {
				row += at > swizzle_bytes(layout) ? at : swizzle_bytes(layout);
				at = 0;
			}
		}
	}
	return row;
}

static void count(const struct tensor_map_layout *layout, struct place place, uint32_t bytes, void *context)
{
	(void)layout;
	(void)place;
	*(uint32_t *)context += bytes;
}

struct expect_size expect_size(const struct tensor_map_layout *layout)
{
	struct expect_size size = { 0 };
	const int32_t c[TENSOR_MAP_MAX_RANK] = { 0 };

	size.span = walk(layout, c, count, &size.moved);
	return size;
}

/* ---- Loads ----------------------------------------------------------------------------------------- */

struct load {
	const uint8_t *tensor;
	uint8_t *tile;
	bool *used;
};

/* A tfloat32 keeps 10 bits of the mantissa, rounded to the nearest, ties to even. */
static uint32_t to_tfloat32(uint32_t bits)
{
	uint32_t below = bits & 0x1fff, kept = bits & ~UINT32_C(0x1fff);

	if ((bits & 0x7f800000) == 0x7f800000 && (bits & 0x7fffff))
		return 0x7fffe000;
	if (below > 0x1000 || (below == 0x1000 && (kept & 0x2000)))
		kept += 0x2000;
	return kept;
}

static void load_element(const struct tensor_map_layout *layout, struct place place, uint32_t bytes,
                         void *context)
{
	static const uint8_t nan[2] = { 0xf7, 0x7f };
	struct load *load = context;
	uint8_t element[32] = { 0 };

	if (place.inside)
		memcpy(element, load->tensor + place.global, bytes);
	else if (layout->fill == TENSOR_MAP_FILL_NAN)
		for (uint32_t i = 0; i < bytes; i++)
			element[i] = nan[i % 2];
	if (place.inside &&
	    (layout->type == TENSOR_MAP_TFLOAT32 || layout->type == TENSOR_MAP_TFLOAT32_FTZ)) {
		for (uint32_t i = 0; i < bytes; i += 4) {
			uint32_t bits;

			memcpy(&bits, element + i, 4);
			bits = to_tfloat32(bits);
			memcpy(element + i, &bits, 4);
		}
	}
	for (uint32_t i = 0; i < bytes; i++) {
		uint32_t to = swizzled(layout, place.shared + i);

		load->tile[to] = element[i];
		load->used[to] = true;
	}
}

void expect_load(const struct tensor_map_layout *layout, const int32_t *c, const uint8_t *tensor,
                 uint8_t *tile, bool *used)
{
	struct load load = { tensor, tile, used };

	walk(layout, c, load_element, &load);
}

/* ---- Stores ---------------------------------------------------------------------------------------- */

struct store {
	const uint8_t *tile;
	uint8_t *tensor;
};

static void store_element(const struct tensor_map_layout *layout, struct place place, uint32_t bytes,
                          void *context)
{
	const struct store *store = context;

	for (uint32_t i = 0; i < bytes && place.inside; i++)
		store->tensor[place.global + i] = store->tile[swizzled(layout, place.shared + i)];
}

void expect_store(const struct tensor_map_layout *layout, const int32_t *c, const uint8_t *tile,
                  uint8_t *tensor)
{
	struct store store = { tile, tensor };

	walk(layout, c, store_element, &store);
}
