/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that convert, most of which succeed when the regions are there. For traffic.c only. */
#ifndef TESTS_FUZZ_TRAFFIC_CAST_H
#define TESTS_FUZZ_TRAFFIC_CAST_H

#include <stdint.h>

#include "proto/schema.h"
#include "tests/support/oracle.h"

/* A random conversion: its transform, and its cast, scale and bias in the message. has_places: operands have
 * them. */
void traffic_cast_transform(struct oracle_case *ret, struct msg_transform *params, bool has_places,
                            uint64_t *random);

/* Places of the operands of a plan, which may have none. */
void traffic_cast_run(struct msg_plan_run *params, uint64_t *random);

/* Blocks become those of another type. */
void traffic_cast_blocks(struct msg_blocks *params, uint64_t *random);

#endif
