/* SPDX-License-Identifier: Apache-2.0 */
/* A number as it is sent (such as a pad value), and its encoding as an element of a tensor. */
#ifndef PROTO_SCALAR_H
#define PROTO_SCALAR_H

#include <stdint.h>

#include "status.h"
#include "tensor.h"

enum scalar_kind {
	SCALAR_UNSIGNED, /* u */
	SCALAR_SIGNED,   /* i, which is negative: other integers are SCALAR_UNSIGNED */
	SCALAR_FLOATING, /* re */
	SCALAR_COMPLEX,  /* re and im */
};

/* A zero-initialized scalar is the integer 0, the default of every value. */
struct scalar {
	enum scalar_kind kind;
	union {
		uint64_t u;
		int64_t i;
		double re;
	};
	double im;
};

/* Writes value to bytes as dtype_size(dtype) little-endian bytes. Floating types round to nearest even and
 * overflow to infinity, or to NaN in float8_e4m3fn, which has no infinity. Returns 0, or INVALID_ARGUMENT
 * with err, which calls the value `name`, if the value is not an integer in the range of an integer type (0
 * and 1 for bool), or has an imaginary part other than 0 although the type is real. */
int scalar_encode(const struct scalar *value, enum dtype dtype, uint8_t bytes[TENSOR_MAX_ELEMENT],
                  const char *name, struct error *err);

#endif
