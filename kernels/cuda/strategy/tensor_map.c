/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the rules of tensor maps, field by field, in the order of cuTensorMapEncodeTiled's arguments. Where
 * the documentation contradicts its sample code, the documentation's sentence is the rule: a stride is a
 * multiple of 16 below 2^40, so a stride of 0 (a dimension that repeats) and overlapping rows are valid. */
#include "tensor_map.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MAX_DIM            (UINT64_C(1) << 32)
#define MAX_STRIDE         (UINT64_C(1) << 40) /* exclusive */
#define MAX_BOX            256
#define MAX_ELEMENT_STRIDE 8
#define INNER_BOX_BYTES    16 /* a row of a tile is a multiple of this */
#define PACKED_BOX         128
#define INTERLEAVED_RANK   3 /* minimum rank with interleave */

const char *const tensor_map_type_names[TENSOR_MAP_TYPE_COUNT] = {
	[TENSOR_MAP_UINT8] = "uint8",
	[TENSOR_MAP_UINT16] = "uint16",
	[TENSOR_MAP_UINT32] = "uint32",
	[TENSOR_MAP_INT32] = "int32",
	[TENSOR_MAP_UINT64] = "uint64",
	[TENSOR_MAP_INT64] = "int64",
	[TENSOR_MAP_FLOAT16] = "float16",
	[TENSOR_MAP_FLOAT32] = "float32",
	[TENSOR_MAP_FLOAT64] = "float64",
	[TENSOR_MAP_BFLOAT16] = "bfloat16",
	[TENSOR_MAP_FLOAT32_FTZ] = "float32_ftz",
	[TENSOR_MAP_TFLOAT32] = "tfloat32",
	[TENSOR_MAP_TFLOAT32_FTZ] = "tfloat32_ftz",
	[TENSOR_MAP_16U4_ALIGN8B] = "16u4_align8b",
	[TENSOR_MAP_16U4_ALIGN16B] = "16u4_align16b",
	[TENSOR_MAP_16U6_ALIGN16B] = "16u6_align16b",
};

const char *const tensor_map_interleave_names[TENSOR_MAP_INTERLEAVE_COUNT] = {
	[TENSOR_MAP_INTERLEAVE_NONE] = "none",
	[TENSOR_MAP_INTERLEAVE_16B] = "16B",
	[TENSOR_MAP_INTERLEAVE_32B] = "32B",
};

const char *const tensor_map_swizzle_names[TENSOR_MAP_SWIZZLE_COUNT] = {
	[TENSOR_MAP_SWIZZLE_NONE] = "none",
	[TENSOR_MAP_SWIZZLE_32B] = "32B",
	[TENSOR_MAP_SWIZZLE_64B] = "64B",
	[TENSOR_MAP_SWIZZLE_128B] = "128B",
	[TENSOR_MAP_SWIZZLE_128B_ATOM_32B] = "128B_atom_32B",
	[TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B] = "128B_atom_32B_flip_8B",
	[TENSOR_MAP_SWIZZLE_128B_ATOM_64B] = "128B_atom_64B",
};

static void check_rank(const struct tensor_map_layout *l, struct tensor_map_rules *ret);
static void check_dims(const struct tensor_map_layout *l, uint32_t rank, struct tensor_map_rules *ret);
static void check_strides(const struct tensor_map_layout *l, uint32_t rank, struct tensor_map_rules *ret);
static void check_box(const struct tensor_map_layout *l, uint32_t rank, struct tensor_map_rules *ret);
static void check_swizzle(const struct tensor_map_layout *l, struct tensor_map_rules *ret);
static void check_choices(const struct tensor_map_layout *l, struct tensor_map_rules *ret);

/* ---- Sizes ------------------------------------------------------------------------------------------- */

static bool type_is_packed(enum tensor_map_type type)
{
	return type >= TENSOR_MAP_16U4_ALIGN8B && type < TENSOR_MAP_TYPE_COUNT;
}

static bool type_is_floating(enum tensor_map_type type)
{
	return type >= TENSOR_MAP_FLOAT16 && type <= TENSOR_MAP_TFLOAT32_FTZ;
}

uint32_t tensor_map_type_size(enum tensor_map_type type)
{
	switch (type) {
	case TENSOR_MAP_UINT8:
		return 1;
	case TENSOR_MAP_UINT16:
	case TENSOR_MAP_FLOAT16:
	case TENSOR_MAP_BFLOAT16:
		return 2;
	case TENSOR_MAP_UINT32:
	case TENSOR_MAP_INT32:
	case TENSOR_MAP_FLOAT32:
	case TENSOR_MAP_FLOAT32_FTZ:
	case TENSOR_MAP_TFLOAT32:
	case TENSOR_MAP_TFLOAT32_FTZ:
		return 4;
	case TENSOR_MAP_UINT64:
	case TENSOR_MAP_INT64:
	case TENSOR_MAP_FLOAT64:
		return 8;
	default:
		return 0;
	}
}

/* Returns the bytes of shared memory within which a swizzle permutes chunks, or 0 if there is no swizzle. */
static uint32_t swizzle_span(enum tensor_map_swizzle swizzle)
{
	switch (swizzle) {
	case TENSOR_MAP_SWIZZLE_32B:
		return 32;
	case TENSOR_MAP_SWIZZLE_64B:
		return 64;
	case TENSOR_MAP_SWIZZLE_128B:
	case TENSOR_MAP_SWIZZLE_128B_ATOM_32B:
	case TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B:
	case TENSOR_MAP_SWIZZLE_128B_ATOM_64B:
		return 128;
	default:
		return 0;
	}
}

uint32_t tensor_map_tile_extent(const struct tensor_map_layout *l, uint32_t d)
{
	bool interleaved = l->interleave != TENSOR_MAP_INTERLEAVE_NONE;

	if (!interleaved && d == 0)
		return l->box[0];
	if (interleaved && d + 2 == l->rank)
		return 1;
	assert(l->element_stride[d] > 0);
	return (l->box[d] + l->element_stride[d] - 1) / l->element_stride[d];
}

static uint64_t tile_row_bytes(const struct tensor_map_layout *l)
{
	uint64_t unit = l->interleave == TENSOR_MAP_INTERLEAVE_16B   ? 16
	                : l->interleave == TENSOR_MAP_INTERLEAVE_32B ? 32
	                                                             : tensor_map_type_size(l->type);

	return unit * tensor_map_tile_extent(l, 0);
}

static uint64_t tile_rows(const struct tensor_map_layout *l)
{
	uint64_t rows = 1;

	for (uint32_t d = 1; d < l->rank; d++)
		rows *= tensor_map_tile_extent(l, d);
	return rows;
}

uint64_t tensor_map_tile_bytes(const struct tensor_map_layout *l)
{
	return tile_row_bytes(l) * tile_rows(l);
}

uint64_t tensor_map_tile_span(const struct tensor_map_layout *l)
{
	uint64_t row = tile_row_bytes(l), span = swizzle_span(l->swizzle), bytes = row * tile_rows(l);

	if (span == 0)
		return bytes;
	if (row < span && l->interleave == TENSOR_MAP_INTERLEAVE_NONE)
		return span * tile_rows(l);
	return (bytes + span - 1) / span * span;
}

uint32_t tensor_map_align(const struct tensor_map_layout *l)
{
	return l->interleave == TENSOR_MAP_INTERLEAVE_32B || l->type == TENSOR_MAP_16U4_ALIGN16B ||
	               l->type == TENSOR_MAP_16U6_ALIGN16B
	           ? 32
	           : 16;
}

/* ---- Rules ------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void broken(struct tensor_map_rules *ret, const char *format,
                                                         ...)
{
	va_list args;

	assert(ret->n < TENSOR_MAP_MAX_RULES);
	va_start(args, format);
	vsnprintf(ret->text[ret->n++], sizeof ret->text[0], format, args);
	va_end(args);
}

int tensor_map_check(const struct tensor_map_layout *l, uint64_t address, struct tensor_map_rules *ret)
{
	uint32_t rank = l->rank <= TENSOR_MAP_MAX_RANK ? l->rank : TENSOR_MAP_MAX_RANK;
	uint32_t align = tensor_map_align(l);

	ret->n = 0;
	if (l->type >= TENSOR_MAP_TYPE_COUNT)
		broken(ret, "type: %u is not 0 to %d", l->type, TENSOR_MAP_TYPE_COUNT - 1);
	else if (type_is_packed(l->type))
		broken(ret, "type: %s is not on sm_90", tensor_map_type_names[l->type]);
	check_rank(l, ret);
	if (address % align)
		broken(ret, "address: 0x%" PRIx64 " is not a multiple of %u", address, align);
	check_dims(l, rank, ret);
	check_strides(l, rank, ret);
	check_box(l, rank, ret);
	for (uint32_t d = 0; d < rank; d++)
		if (l->element_stride[d] < 1 || l->element_stride[d] > MAX_ELEMENT_STRIDE)
			broken(ret, "element_stride[%u]: %u is not 1 to %d", d, l->element_stride[d],
			       MAX_ELEMENT_STRIDE);
	check_swizzle(l, ret);
	check_choices(l, ret);
	return ret->n;
}

static void check_rank(const struct tensor_map_layout *l, struct tensor_map_rules *ret)
{
	if (l->rank < 1 || l->rank > TENSOR_MAP_MAX_RANK)
		broken(ret, "rank: %u is not 1 to %d", l->rank, TENSOR_MAP_MAX_RANK);
	else if (l->rank < INTERLEAVED_RANK && l->interleave != TENSOR_MAP_INTERLEAVE_NONE)
		broken(ret, "rank: %u is less than %d, with interleave", l->rank, INTERLEAVED_RANK);
}

static void check_dims(const struct tensor_map_layout *l, uint32_t rank, struct tensor_map_rules *ret)
{
	uint32_t packs = l->type == TENSOR_MAP_16U4_ALIGN8B ? 2 : PACKED_BOX;

	for (uint32_t d = 0; d < rank; d++)
		if (l->dim[d] < 1 || l->dim[d] > MAX_DIM)
			broken(ret, "dim[%u]: %" PRIu64 " is not 1 to %" PRIu64, d, l->dim[d], MAX_DIM);
	if (type_is_packed(l->type) && rank > 0 && l->dim[0] % packs)
		broken(ret, "dim[0]: %" PRIu64 " is not a multiple of %u, with %s", l->dim[0], packs,
		       tensor_map_type_names[l->type]);
}

static void check_strides(const struct tensor_map_layout *l, uint32_t rank, struct tensor_map_rules *ret)
{
	uint32_t align = tensor_map_align(l);

	for (uint32_t d = 0; d + 1 < rank; d++) {
		if (l->stride[d] % align)
			broken(ret, "stride[%u]: %" PRIu64 " bytes is not a multiple of %u", d, l->stride[d],
			       align);
		if (l->stride[d] >= MAX_STRIDE)
			broken(ret, "stride[%u]: %" PRIu64 " bytes is not less than %" PRIu64, d,
			       l->stride[d], MAX_STRIDE);
	}
}

static void check_box(const struct tensor_map_layout *l, uint32_t rank, struct tensor_map_rules *ret)
{
	uint64_t bytes = (uint64_t)l->box[0] * tensor_map_type_size(l->type);

	for (uint32_t d = 0; d < rank; d++)
		if (l->box[d] < 1 || l->box[d] > MAX_BOX)
			broken(ret, "box[%u]: %u is not 1 to %d", d, l->box[d], MAX_BOX);
	if (l->interleave == TENSOR_MAP_INTERLEAVE_NONE && bytes % INNER_BOX_BYTES)
		broken(ret, "box[0]: %" PRIu64 " bytes (%u of %s) is not a multiple of %d", bytes, l->box[0],
		       tensor_map_type_names[l->type], INNER_BOX_BYTES);
	if ((l->type == TENSOR_MAP_16U4_ALIGN16B || l->type == TENSOR_MAP_16U6_ALIGN16B) &&
	    l->box[0] != PACKED_BOX)
		broken(ret, "box[0]: %u is not %d, with %s", l->box[0], PACKED_BOX,
		       tensor_map_type_names[l->type]);
}

/* Returns whether the type allows the swizzle. Only the padded packed types restrict it. */
static bool packed_takes(enum tensor_map_type type, enum tensor_map_swizzle swizzle)
{
	bool padded = type == TENSOR_MAP_16U4_ALIGN16B || type == TENSOR_MAP_16U6_ALIGN16B;

	switch (swizzle) {
	case TENSOR_MAP_SWIZZLE_NONE:
	case TENSOR_MAP_SWIZZLE_128B:
	case TENSOR_MAP_SWIZZLE_128B_ATOM_32B:
		return true;
	case TENSOR_MAP_SWIZZLE_128B_ATOM_64B:
		return type != TENSOR_MAP_16U4_ALIGN16B;
	default:
		return !padded;
	}
}

static void check_swizzle(const struct tensor_map_layout *l, struct tensor_map_rules *ret)
{
	uint64_t bytes = (uint64_t)l->box[0] * tensor_map_type_size(l->type);
	uint32_t span = swizzle_span(l->swizzle);

	if (l->swizzle >= TENSOR_MAP_SWIZZLE_COUNT) {
		broken(ret, "swizzle: %u is not 0 to %d", l->swizzle, TENSOR_MAP_SWIZZLE_COUNT - 1);
		return;
	}
	if (l->swizzle >= TENSOR_MAP_SWIZZLE_128B_ATOM_32B)
		broken(ret, "swizzle: %s is not on sm_90", tensor_map_swizzle_names[l->swizzle]);
	if (l->interleave == TENSOR_MAP_INTERLEAVE_NONE && span && bytes > span)
		broken(ret, "box[0]: %" PRIu64 " bytes (%u of %s) is more than %u, with swizzle %s", bytes,
		       l->box[0], tensor_map_type_names[l->type], span, tensor_map_swizzle_names[l->swizzle]);
	if (!packed_takes(l->type, l->swizzle))
		broken(ret, "swizzle: %s does not go with %s", tensor_map_swizzle_names[l->swizzle],
		       tensor_map_type_names[l->type]);
	if (l->interleave == TENSOR_MAP_INTERLEAVE_32B && l->swizzle != TENSOR_MAP_SWIZZLE_32B)
		broken(ret, "swizzle: %s is not 32B, with interleave 32B",
		       tensor_map_swizzle_names[l->swizzle]);
}

static void check_choices(const struct tensor_map_layout *l, struct tensor_map_rules *ret)
{
	if (l->interleave >= TENSOR_MAP_INTERLEAVE_COUNT)
		broken(ret, "interleave: %u is not 0 to %d", l->interleave, TENSOR_MAP_INTERLEAVE_COUNT - 1);
	else if (l->type == TENSOR_MAP_16U6_ALIGN16B && l->interleave != TENSOR_MAP_INTERLEAVE_NONE)
		broken(ret, "interleave: %s is not none, with %s", tensor_map_interleave_names[l->interleave],
		       tensor_map_type_names[l->type]);
	if (l->l2 > TENSOR_MAP_L2_256B)
		broken(ret, "l2: %u is not 0 to %d", l->l2, TENSOR_MAP_L2_256B);
	if (l->fill > TENSOR_MAP_FILL_NAN)
		broken(ret, "fill: %u is not 0 to %d", l->fill, TENSOR_MAP_FILL_NAN);
	else if (l->fill == TENSOR_MAP_FILL_NAN && l->type < TENSOR_MAP_TYPE_COUNT &&
	         !type_is_floating(l->type))
		broken(ret, "fill: NaN is not for %s", tensor_map_type_names[l->type]);
}

/* ---- Key --------------------------------------------------------------------------------------------- */

#define KEY_WORDS 17

static_assert(sizeof(struct tensor_map_layout) == KEY_WORDS * sizeof(uint64_t),
              "a layout has no padding: its bytes are its key");

uint64_t tensor_map_hash(const struct tensor_map_layout *l, uint64_t seed)
{
	uint64_t h = seed, word;

	for (size_t i = 0; i < KEY_WORDS; i++) {
		memcpy(&word, (const char *)l + i * sizeof word, sizeof word);
		h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		h ^= h >> 29;
	}
	return h ^ h >> 32;
}

bool tensor_map_equal(const struct tensor_map_layout *a, const struct tensor_map_layout *b)
{
	return !memcmp(a, b, sizeof *a);
}
