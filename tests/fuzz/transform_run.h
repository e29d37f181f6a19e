/* SPDX-License-Identifier: Apache-2.0 */
/* The engines of the transform target, and running the parts of a small transform on one of them. */
#ifndef TESTS_FUZZ_TRANSFORM_RUN_H
#define TESTS_FUZZ_TRANSFORM_RUN_H

#include "kernels/cuda/strategy/plan.h"
#include "kernels/transform/split.h"
#include "tests/support/oracle.h"
#include "transform_request.h"

#define RUN_MOST_BYTES (1 << 16) /* bytes of a region */

/* Runs all parts, which are the transforms between the places of the request, as one job, and compares both
 * memories with what split_oracle_run moves. */
void transform_run(const struct transform_request *request, const struct transform_spec *spec,
                   const struct split *split, const struct transform *parts);

#endif
