/* SPDX-License-Identifier: Apache-2.0 */
/* Computes what a tile must contain in the simplest way, element by element and byte by byte, without the
 * model. A tile is bytes of shared memory that start at a multiple of 1024; `used` marks those that the unit
 * writes. */
#ifndef TESTS_SEEDS_EXPECT_H
#define TESTS_SEEDS_EXPECT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

/* The bytes that are moved, and the bytes of shared memory that they occupy. */
struct expect_size {
	uint32_t moved;
	uint32_t span;
};

struct expect_size expect_size(const struct tensor_map_layout *layout);

/* tensor points to the bytes at the map's address. */
void expect_load(const struct tensor_map_layout *layout, const int32_t *c, const uint8_t *tensor,
                 uint8_t *tile, bool *used);
void expect_store(const struct tensor_map_layout *layout, const int32_t *c, const uint8_t *tile,
                  uint8_t *tensor);

#endif
