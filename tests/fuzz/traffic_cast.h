/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that convert, most of which succeed if the regions exist. For traffic.c only. */
#ifndef TESTS_FUZZ_TRAFFIC_CAST_H
#define TESTS_FUZZ_TRAFFIC_CAST_H

#include <stdint.h>

#include "proto/schema.h"
#include "tests/support/oracle.h"

/* Draws a conversion: its transform, and the message's cast, scale and bias. has_places: operands have
 * places. */
void traffic_cast_transform(struct oracle_case *ret, struct msg_transform *params, bool has_places,
                            uint64_t *random);

/* Draws the places of a plan's operands, which may have none. */
void traffic_cast_run(struct msg_plan_run *params, uint64_t *random);

/* Gives the blocks of one side another type. */
void traffic_cast_blocks(struct msg_blocks *params, uint64_t *random);

#endif
