/* SPDX-License-Identifier: Apache-2.0 */
/* Runs loop nests and transforms with plain loops, for tests of plans to compare with. */
#ifndef TESTS_SUPPORT_WALK_H
#define TESTS_SUPPORT_WALK_H

#include <stdint.h>

#include "kernels/nest/loop_nest.h"
#include "kernels/transform/transform.h"

/* dst and src point to element [0, ..., 0]. */
void walk_nest(const struct loop_nest *nest, const struct transform *t, uint8_t *dst, const uint8_t *src);

/* Runs the transform one subregion after the other. */
void walk_transform(const struct transform *t, uint8_t *dst, const uint8_t *src);

#endif
