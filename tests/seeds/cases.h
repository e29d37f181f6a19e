/* SPDX-License-Identifier: Apache-2.0 */
/* Each case moves a tile through a map on the GPU, computes the same in the simplest way, and prints the
 * result unless an earlier process has. */
#ifndef TESTS_SEEDS_CASES_H
#define TESTS_SEEDS_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

/* Loads the tile at c and compares its bytes in shared memory. */
void case_load(const struct tensor_map_layout *layout, const int32_t *c, const char *name);

/* Stores the tile at c and checks that nothing else of the tensor's memory changes. */
void case_store(const struct tensor_map_layout *layout, const int32_t *c, const char *name);

/* Called at the start of each case. Returns whether this process runs it: an earlier one may have done so. If
 * a launch has failed before, it ends this process. */
bool case_begins(void);

/* Sets the strides for dimensions nested in order, with `extra` bytes between rows. */
void case_fill_strides(struct tensor_map_layout *layout, uint32_t extra);

/* Writes bytes that depend on the seed alone. */
void case_random(uint8_t *ret, uint32_t n, uint32_t seed);

/* Fills all of the tensor's memory with such bytes, and the tiles' memory with poison, here and on the
 * GPU. */
enum { CASE_POISON = 0xa5 };
void case_prepare(uint8_t *ret_tensor, uint8_t *ret_tiles, uint32_t seed);

/* Cases for every rank, type, fill, swizzle, interleave, element stride and L2 promotion. */
void cases_of_ranks(void);
void cases_of_types(void);
void cases_of_swizzles(void);
void cases_of_element_strides(void);
void cases_of_interleaves(void);

/* Cases for the examples that are separate kernels. */
void cases_of_barriers(void);
void case_bulk(void);
void case_mojo(void);
void case_half_tile(void);

/* Cases where a cluster's blocks load for each other and copy to each other. */
void cases_of_multicast(void);
void cases_of_copies(void);

/* Cases that move boxes of 3 to 5 axes from one tensor to another. */
void cases_of_moves(void);

#endif
