/* SPDX-License-Identifier: Apache-2.0 */
/* What a tile must be, by the dumbest loop: element by element, byte by byte. Knows nothing of the model.
 *
 * A tile is bytes of shared memory that starts at a multiple of 1024; used says which of them the unit
 * writes.
 */
#ifndef TESTS_SEEDS_EXPECT_H
#define TESTS_SEEDS_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

/* Bytes that are moved, and bytes of shared memory that they lie in. */
struct expect_size {
	uint32_t moved;
	uint32_t span;
};

struct expect_size expect_size(const struct tensor_map_layout *layout);

/* tensor: the bytes from the map's address on. */
void expect_load(const struct tensor_map_layout *layout, const int32_t *c, const uint8_t *tensor,
                 uint8_t *tile, bool *used);
void expect_store(const struct tensor_map_layout *layout, const int32_t *c, const uint8_t *tile,
                  uint8_t *tensor);

#endif
