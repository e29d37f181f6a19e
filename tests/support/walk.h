/* SPDX-License-Identifier: Apache-2.0 */
/* Nests and transforms run by the plainest loops: what tests of plans and of parts compare with. */
#ifndef TESTS_SUPPORT_WALK_H
#define TESTS_SUPPORT_WALK_H

#include <stdint.h>

#include "kernels/nest/loop_nest.h"
#include "kernels/transform/transform.h"

/* dst and src: where element [0, ..., 0] lies. */
void walk_nest(const struct loop_nest *nest, const struct transform *t, uint8_t *dst, const uint8_t *src);

/* Subregion by subregion. */
void walk_transform(const struct transform *t, uint8_t *dst, const uint8_t *src);

#endif
