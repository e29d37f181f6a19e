/* SPDX-License-Identifier: Apache-2.0 */
/* The family that a loop nest belongs to. */
#ifndef KERNELS_NEST_NEST_FAMILY_H
#define KERNELS_NEST_NEST_FAMILY_H

#include "kernels/transform/family.h"
#include "loop_nest.h"

/* Returns the family of a canonical nest. For FAMILY_TILE_TRANSPOSE *ret_src_inner is the dimension with the
 * smallest source stride, an element forwards or backwards (else -1). */
enum family loop_nest_family(const struct loop_nest *nest, int *ret_src_inner);

/* Adds why the nest is not one run: the innermost dimension that is not one with what lies inside it. */
void loop_nest_explain_memcpy(const struct loop_nest *nest, struct family_rules *rules);

#endif
