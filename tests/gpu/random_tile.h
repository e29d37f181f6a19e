/* SPDX-License-Identifier: Apache-2.0 */
/* Random tiles of several axes: the kernels have to move any box that they accept. */
#ifndef TESTS_GPU_RANDOM_TILE_H
#define TESTS_GPU_RANDOM_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"
#include "kernels/transform/transform.h"

/* Makes a plan that moves the transform by random tiles, including its border; state is as oracle_random
 * takes it. Returns false if none of the boxes drawn can be a tile, for instance if the transform reads
 * nothing. */
bool random_tile_plan(uint64_t *state, const struct transform *transform, const struct plan_facts *facts,
                      struct plan *ret);

#endif
