/* SPDX-License-Identifier: Apache-2.0 */
/* Places in regions that have allocations in common (aliases.h): whether what lies there may share bytes. */
#ifndef KERNELS_PLAN_LAYER_ALIASES_H
#define KERNELS_PLAN_LAYER_ALIASES_H

#include <stdbool.h>
#include <stdint.h>

#include "stretch.h"
#include "transform.h"

struct layer_table;

/* Whether stretches of the memories of two places share a byte, as far as the engine knows. */
bool places_meet(const struct tensor_place *a, struct stretch of_a, const struct tensor_place *b,
                 struct stretch of_b);

/* Whether regions of two entries, one of each table and in different memories, share a byte; true, too, where
 * that would take long to find out. a and b may be the same. It takes steps (overlap_steps). */
bool layer_tables_share(const struct layer_table *a, const struct layer_table *b, uint32_t *ret_a,
                        uint32_t *ret_b);

#endif
