/* SPDX-License-Identifier: Apache-2.0 */
/* One tile through a map: on the GPU, and by the dumbest loop. Each prints its case, unless another process
 * has. */
#ifndef TESTS_SEEDS_CASES_H
#define TESTS_SEEDS_CASES_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/tensor_map.h"

/* The tile at c, loaded and looked at as it lies in shared memory. */
void case_load(const struct tensor_map_layout *layout, const int32_t *c, const char *name);

/* The tile at c, stored; nothing else of the tensor's memory changes. */
void case_store(const struct tensor_map_layout *layout, const int32_t *c, const char *name);

/* At the start of each case: whether it is this process's to run. An earlier one may have run it; a launch
 * that failed before is the end of this one. */
bool case_begins(void);

/* Strides for dimensions that lie one in the other, with extra bytes between them. */
void case_fill_strides(struct tensor_map_layout *layout, uint32_t extra);

/* Bytes that are the same each time. */
void case_random(uint8_t *ret, uint32_t n, uint32_t seed);

/* Such bytes for all of the tensor's memory, poison for the tiles', here and on the GPU. */
enum { CASE_POISON = 0xa5 };
void case_prepare(uint8_t *ret_tensor, uint8_t *ret_tiles, uint32_t seed);

/* Every rank, type, fill, swizzle, interleave, element stride and L2 promotion. */
void cases_of_ranks(void);
void cases_of_types(void);
void cases_of_swizzles(void);
void cases_of_element_strides(void);
void cases_of_interleaves(void);

/* The examples that are kernels of their own. */
void cases_of_barriers(void);
void case_bulk(void);
void case_mojo(void);
void case_half_tile(void);

/* A cluster's blocks load for each other and copy to each other. */
void cases_of_multicast(void);
void cases_of_copies(void);

/* Boxes of 3 to 5 axes from one tensor to another. */
void cases_of_moves(void);

#endif
