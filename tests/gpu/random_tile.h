/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of many axes that nobody chose: whatever box the kernels accept, they have to move. */
#ifndef TESTS_GPU_RANDOM_TILE_H
#define TESTS_GPU_RANDOM_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/transform/transform.h"

/* A plan that moves the transform by random tiles, border included; state: as oracle_random takes it. false:
 * none of the boxes that were drawn can be a tile, as where nothing is read. */
bool random_tile_plan(uint64_t *state, const struct transform *transform, const struct plan_facts *facts,
                      struct plan *ret);

#endif
