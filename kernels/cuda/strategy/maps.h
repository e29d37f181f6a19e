/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies with a tensor map share these functions. The checks return false after adding the family's
 * broken rules to the plan. */
#ifndef KERNELS_CUDA_STRATEGY_MAPS_H
#define KERNELS_CUDA_STRATEGY_MAPS_H

#include "tensor_map.h"
#include "planner.h"

extern const enum tensor_map_type map_types[9]; /* indexed by the bytes of an element, up to 8 */

/* Returns the bytes of the map's elements, which are at most 8. */
uint32_t map_unit(uint32_t element);

/* Returns how many bytes past a multiple of 16 the first element lies. */
uint32_t map_phase(uint32_t base_phase, int64_t offset);

/* Checks the rules of a map. side is "load" or "store", for the rules' texts. */
bool map_check(struct plan *plan, enum family family, const char *side, const struct tensor_map_layout *map);

/* Checks for what no map can say about either side of a dimension. A tile extends along dimension 0 and
 * the one that `also` names; at most `most` dimensions belong to the grid. */
bool map_check_dims(struct plan *plan, enum family family, uint32_t also, uint32_t most);

/* Sets tma->load to a map of the source along tma->dim, and where a tile is loaded from. */
bool map_set_load(struct plan *plan, enum family family, const struct loop_nest *nest, uint32_t phase);

#endif
