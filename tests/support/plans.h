/* SPDX-License-Identifier: Apache-2.0 */
/* Makes plans, for an engine to run, from transforms that the test has checked itself. */
#ifndef TESTS_SUPPORT_PLANS_H
#define TESTS_SUPPORT_PLANS_H

#include "kernels/engine.h"

/* Returns the plan for elements [0, ..., 0] at these addresses, or at others with the same remainders. It is
 * kept until plans_drop. */
struct engine_plan *plan_for(struct engine *engine, const struct transform *transform, uint64_t dst,
                             uint64_t src);

/* Returns a plan that is valid for all blocks of a list. It is kept until plans_drop. */
struct engine_plan *plan_for_list(struct engine *engine, const struct transform *transform,
                                  const struct engine_blocks *blocks, uint64_t dst, uint64_t src);

/* Drops all plans that this thread has made. No job may use them any more, and the engine must still be
 * open. */
void plans_drop(void);

#endif
