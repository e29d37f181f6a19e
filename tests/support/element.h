/* SPDX-License-Identifier: Apache-2.0 */
/* Converts one element to another type by the definitions of the types: a floating-point number is decoded
 * into its fields, and rounding counts quanta. Shares nothing with kernels/. Of a NaN only the sign is
 * determined. */
#ifndef TESTS_SUPPORT_ELEMENT_H
#define TESTS_SUPPORT_ELEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* Converts the element at src to the one at dst as the spec says; scale and bias are used if the spec has
 * such an operand. Returns whether dst represents the computed value exactly; for an integer source without
 * operands, whether it represents the integer. */
bool element_convert(const struct conversion_spec *spec, enum dtype to, uint8_t *dst, enum dtype from,
                     const uint8_t *src, double scale, double bias);

bool element_is_nan(enum dtype dtype, const uint8_t *element);

/* Returns the bits of a floating-point element without its sign. */
uint64_t element_magnitude(enum dtype dtype, const uint8_t *element);

bool element_has_one_nan(enum dtype dtype); /* whether the type has a single NaN per sign */

#endif
