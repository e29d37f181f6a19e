/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU engine's cost model says of a plan that is moved by one of its candidates
 * (kernels/cpu/plan/cpu_choice.h), or by the one that it chooses, which is candidate -1. bytes is read plus
 * written. */
#ifndef TESTS_BENCH_VARIANT_H
#define TESTS_BENCH_VARIANT_H

#include <stdbool.h>
#include <stdint.h>

struct cpu_plan;

/* Returns the predicted ratio to memcpy; 0 if the plan is too small for a prediction. */
double variant_predict(const struct cpu_plan *plan, uint64_t bytes, int candidate);

/* Returns whether both candidates move the plan in the same way, as far as can be told in advance. */
bool variant_is_alike(const struct cpu_plan *plan, uint64_t bytes, int a, int b);

#endif
