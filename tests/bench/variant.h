/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU engine makes of a plan that is moved by one of its candidates (kernels/cpu/plan/cpu_choice.h),
 * or by the one that it chooses, which is candidate -1. bytes: read plus written. */
#ifndef TESTS_BENCH_VARIANT_H
#define TESTS_BENCH_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

struct cpu_plan;

/* The predicted ratio to memcpy; 0: none is predicted of plans so small. */
double variant_predict(const struct cpu_plan *plan, uint64_t bytes, int candidate);

/* Whether both move it in the same way, as far as can be said before. */
bool variant_is_alike(const struct cpu_plan *plan, uint64_t bytes, int a, int b);

#endif
