/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor map's 128 bytes in the stand-in: fixed fields, a magic number, and a checksum of the rest, which
 * detects bytes that were never a map or have been changed since. */
#include "tests/softgpu/model.h"

#include <assert.h>
#include <string.h>

#define MAP_MAGIC UINT32_C(0x50414d54) /* "TMAP" */

struct packed_map {
	uint32_t magic;
	uint32_t sum;
	uint64_t address;
	uint64_t stride[TENSOR_MAP_MAX_RANK - 1];
	uint32_t last[TENSOR_MAP_MAX_RANK]; /* dimension - 1, since a dimension may be 2^32 */
	uint16_t box[TENSOR_MAP_MAX_RANK];
	uint8_t element_stride[TENSOR_MAP_MAX_RANK];
	uint8_t type;
	uint8_t rank;
	uint8_t interleave;
	uint8_t swizzle;
	uint8_t l2;
	uint8_t fill;
	uint8_t unused[39];
};

_Static_assert(sizeof(struct packed_map) == sizeof(CUtensorMap), "a map is 128 bytes");

/* FNV-1a hash of everything but the sum itself. */
static uint32_t sum_of(struct packed_map map)
{
	const unsigned char *bytes = (const unsigned char *)&map;
	uint32_t sum = UINT32_C(2166136261);

	map.sum = 0;
	for (size_t i = 0; i < sizeof(map); i++)
		sum = (sum ^ bytes[i]) * UINT32_C(16777619);
	return sum;
}

void model_map_encode(CUtensorMap *ret, const struct tensor_map_layout *layout, uint64_t address)
{
	struct packed_map map = {
		.magic = MAP_MAGIC,
		.address = address,
		.type = (uint8_t)layout->type,
		.rank = (uint8_t)layout->rank,
		.interleave = (uint8_t)layout->interleave,
		.swizzle = (uint8_t)layout->swizzle,
		.l2 = (uint8_t)layout->l2,
		.fill = (uint8_t)layout->fill,
	};

	assert(layout->rank >= 1 && layout->rank <= TENSOR_MAP_MAX_RANK);
	for (uint32_t d = 0; d < layout->rank; d++) {
		map.last[d] = (uint32_t)(layout->dim[d] - 1);
		map.box[d] = (uint16_t)layout->box[d];
		map.element_stride[d] = (uint8_t)layout->element_stride[d];
		if (d > 0)
			map.stride[d - 1] = layout->stride[d - 1];
	}
	map.sum = sum_of(map);
	memcpy(ret, &map, sizeof(map));
}

bool model_map_decode(const CUtensorMap *map, struct tensor_map_layout *ret, uint64_t *ret_address)
{
	struct packed_map packed;

	memcpy(&packed, map, sizeof(packed));
	if (packed.magic != MAP_MAGIC || packed.sum != sum_of(packed))
		return false;
	*ret = (struct tensor_map_layout){
		.type = (enum tensor_map_type)packed.type,
		.rank = packed.rank,
		.interleave = (enum tensor_map_interleave)packed.interleave,
		.swizzle = (enum tensor_map_swizzle)packed.swizzle,
		.l2 = (enum tensor_map_l2)packed.l2,
		.fill = (enum tensor_map_fill)packed.fill,
	};
	for (uint32_t d = 0; d < packed.rank; d++) {
		ret->dim[d] = (uint64_t)packed.last[d] + 1;
		ret->box[d] = packed.box[d];
		ret->element_stride[d] = packed.element_stride[d];
		if (d > 0)
			ret->stride[d - 1] = packed.stride[d - 1];
	}
	*ret_address = packed.address;
	return true;
}
