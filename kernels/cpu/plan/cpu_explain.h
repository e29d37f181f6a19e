/* SPDX-License-Identifier: Apache-2.0 */
/* Says how the CPU engine moves a transform, where it does not matter how the transform is divided among
 * threads. Pure. */
#ifndef KERNELS_CPU_PLAN_CPU_EXPLAIN_H
#define KERNELS_CPU_PLAN_CPU_EXPLAIN_H

#include <stdint.h>

#include "kernels/explanation.h"
#include "kernels/transform/transform.h"

/* align: of both base addresses, bytes; the interior's elements are widened by it at most. The method stays
 * empty where it is chosen when the transform is moved: for what is small, and for conversions. */
void cpu_explain(struct engine_explanation *ret, const struct transform *transform, uint32_t align);

#endif
