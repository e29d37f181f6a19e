/* SPDX-License-Identifier: Apache-2.0 */
/* One element to another type, by the definitions of the types: a floating type is its fields, and rounding
 * is to count quanta. Shares nothing with kernels/. Of what a NaN carries it knows the sign alone. */
#ifndef TESTS_SUPPORT_ELEMENT_H
#define TESTS_SUPPORT_ELEMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/transform/transform.h"

/* One element: from bytes at src to bytes at dst, as the spec says. scale and bias count where the spec has
 * such an operand. Whether the value that was calculated, or without operands that of an integer, is now at
 * dst. */
bool element_convert(const struct conversion_spec *spec, enum dtype to, uint8_t *dst, enum dtype from,
                     const uint8_t *src, double scale, double bias);

bool element_is_nan(enum dtype dtype, const uint8_t *element);

/* The element without its sign, of a floating type. */
uint64_t element_magnitude(enum dtype dtype, const uint8_t *element);

bool element_has_one_nan(enum dtype dtype); /* for each sign */

#endif
