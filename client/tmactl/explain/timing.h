/* SPDX-License-Identifier: Apache-2.0 */
/* Describes how long a plan is predicted to take, and how long its runs took. */
#ifndef CLIENT_TMACTL_EXPLAIN_TIMING_H
#define CLIENT_TMACTL_EXPLAIN_TIMING_H

#include <stddef.h>
#include <stdint.h>

#include "client/tmaclient.h"

#define TIMING_SIZE 256

/* Writes a time such as "0.4 us", "66 us" or "1.24 ms" to text and returns it. */
const char *timing_print_ns(uint64_t ns, char text[32]);

/* Returns the predicted time divided by that of a copy of as many bytes, or 0 if the plan does not have both
 * times. */
double timing_ratio(const tma_document *plan);

/* Returns the same ratio, also if the plan has only the ratio and no times, as for the CPU engine; 0 if it
 * has none. */
double timing_cost(const tma_document *plan);

/* Writes a description to text and returns it, such as "66 us predicted (1.04 times a copy's); 67 us measured
 * (median of 5 runs)" or "1.04 times a copy's predicted". It is empty if the plan has neither. */
char *timing_text(const tma_document *plan, char text[TIMING_SIZE]);

#endif
