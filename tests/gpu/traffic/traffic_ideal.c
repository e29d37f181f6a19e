/* SPDX-License-Identifier: Apache-2.0 */
/* Visits the elements one by one, as the oracle does, with a bit for each sector of either side. */
#include <stdlib.h>

#include "tests/support/oracle.h"
#include "traffic.h"

struct sectors {
	uint64_t first;
	uint8_t *seen;
	uint64_t n;
};

static bool sectors_init(struct sectors *ret, const struct tensor_layout *layout, uint64_t address)
{
	const struct tensor_extent extent = tensor_extent(layout);

	ret->first = (address + (uint64_t)extent.low) / SOFTGPU_SECTOR;
	ret->n = 0;
	ret->seen = calloc((uint64_t)(extent.high - extent.low) / SOFTGPU_SECTOR + 2, 1);
	return ret->seen != NULL;
}

/* An element lies in one sector, or covers whole ones. */
static void sectors_add(struct sectors *sectors, uint64_t address, uint64_t bytes)
{
	for (uint64_t s = address / SOFTGPU_SECTOR; s <= (address + bytes - 1) / SOFTGPU_SECTOR; s++) {
		sectors->n += !sectors->seen[s - sectors->first];
		sectors->seen[s - sectors->first] = 1;
	}
}

/* Advances to the next index, the last dimension fastest. Returns false after the last. */
static bool step(const struct tensor_layout *layout, int64_t *index)
{
	for (int d = layout->rank - 1; d >= 0; d--) {
		if (++index[d] < layout->shape[d])
			return true;
		index[d] = 0;
	}
	return false;
}

bool traffic_ideal_init(struct traffic_ideal *ret, const struct transform_spec *spec, uint64_t dst,
                        uint64_t src)
{
	const uint64_t size = dtype_size(spec->dst.dtype);
	int64_t index[TENSOR_MAX_RANK] = { 0 }, to, from;
	struct sectors read = { 0 }, written = { 0 };
	const bool made = sectors_init(&read, &spec->src, src) && sectors_init(&written, &spec->dst, dst);

	if (made && tensor_count(&spec->dst) > 0) {
		do {
			if (oracle_element(spec, index, &to, &from))
				sectors_add(&read, src + (uint64_t)from, size);
			sectors_add(&written, dst + (uint64_t)to, size);
		} while (step(&spec->dst, index));
	}
	*ret = (struct traffic_ideal){ .read = read.n, .written = written.n };
	free(read.seen);
	free(written.seen);
	return made;
}
