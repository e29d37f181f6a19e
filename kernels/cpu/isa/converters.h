/* SPDX-License-Identifier: Apache-2.0 */
/* Elements of any type to numbers to calculate with, and back: the inner loops of one instruction set.
 *
 * A row is converted a block at a time: from the elements of one type to lanes, which are all of one type,
 * and from lanes to the elements of another. In between they may be multiplied and added to. Lanes lie in
 * buffers that are aligned to CPU_LINE and have room for CPU_LINE bytes more than their number; loops may use
 * what lies there.
 */
#ifndef KERNELS_CPU_ISA_CONVERTERS_H
#define KERNELS_CPU_ISA_CONVERTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/tensor.h"

enum cpu_lane {
	CPU_LANE_FLOAT32, /* holds all values of types of up to 16 bits, and of float32 */
	CPU_LANE_FLOAT64, /* rounds 64-bit integers, to nearest even or to odd */
	CPU_LANE_INT64,   /* stands between integers; larger ones are the largest, unless they wrap */
	CPU_LANES
};

/* n elements at src to lanes, and n lanes to elements at dst. Floating types round to nearest even, integers
 * towards zero; integers take the nearest value that they have, and 0 for NaN; bool is whether it is not 0.
 */
typedef void cpu_load_fn(void *lanes, const char *src, int64_t n);
typedef void cpu_store_fn(char *dst, const void *lanes, int64_t n);

/* to = a op b, each rounded to nearest even, n lanes; a may be to. false: none of the results is NaN. */
typedef bool cpu_arithmetic_fn(void *to, const void *a, const void *b, int64_t n);

/* The largest of n elements of a floating type without their signs, as an integer: that of a NaN is larger
 * than that of an infinity, which is larger than those of all numbers. */
typedef uint32_t cpu_magnitude_fn(const char *src, int64_t n);

struct cpu_converters {
	cpu_load_fn *load[CPU_LANES][DTYPE_COUNT]; /* NULL: lanes do not hold the type */
	cpu_load_fn *load_lossy[DTYPE_COUNT];      /* as is_lossy of a struct conversion, which needs them */
	cpu_store_fn *store[CPU_LANES][DTYPE_COUNT];
	cpu_store_fn *store_clamped[CPU_LANES][DTYPE_COUNT]; /* to what is finite; NaN stays */
	cpu_store_fn *store_wrapped[DTYPE_COUNT];            /* keeps the low bits of int64, or all of them */
	cpu_arithmetic_fn *multiply[CPU_LANES];              /* of floating-point lanes */
	bool (*multiply_by)(void *to, const void *a, float by, int64_t n); /* of lanes of float32 */
	cpu_arithmetic_fn *add[CPU_LANES];
	/* Makes NaNs among the results of a and b the same on all machines: a's stays, or else b's, and
	 * becomes a quiet one; one that is made has its sign set. Machines and compilers differ in that. */
	void (*mend[CPU_LANES])(void *to, const void *a, const void *b, int64_t n);
	/* most = max(most, |lanes|) as integers, of n lanes of float32 and up to the end of their vector. */
	void (*magnitudes)(void *most, const void *lanes, int64_t n);
	cpu_magnitude_fn *magnitude[DTYPE_COUNT]; /* NULL: it is none of up to 32 bits */
};

#endif
