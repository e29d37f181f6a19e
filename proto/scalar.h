/* SPDX-License-Identifier: Apache-2.0 */
/* One number as it travels (the pad value), and its bits as an element of a tensor. */
#ifndef PROTO_SCALAR_H
#define PROTO_SCALAR_H

#include <stdint.h>

#include "status.h"
#include "tensor.h"

enum scalar_kind {
	SCALAR_UNSIGNED, /* u */
	SCALAR_SIGNED,   /* i, negative only: a non-negative integer is SCALAR_UNSIGNED */
	SCALAR_FLOATING, /* re */
	SCALAR_COMPLEX,  /* re, im */
};

/* Zero-initialised it is the integer 0, the default of every value. */
struct scalar {
	enum scalar_kind kind;
	union {
		uint64_t u;
		int64_t i;
		double re;
	};
	double im;
};

/* Writes the dtype_size(dtype) little-endian bytes of value to bytes. Floating types round to nearest
 * even, overflow to infinity (float8_e4m3fn, which has none: to NaN). Integer types refuse a value that
 * is not an integer in their range, bool all but 0 and 1, real types a complex value whose imaginary part
 * is not 0: INVALID_ARGUMENT, naming `name`, the rule and the value. */
int scalar_encode(const struct scalar *value, enum dtype dtype, uint8_t bytes[TENSOR_MAX_ELEMENT],
                  const char *name, struct error *err);

#endif
