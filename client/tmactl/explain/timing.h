/* SPDX-License-Identifier: Apache-2.0 */
/* How long a plan is predicted to take, and how long its runs took. */
#ifndef CLIENT_TMACTL_EXPLAIN_TIMING_H
#define CLIENT_TMACTL_EXPLAIN_TIMING_H

#include <stddef.h>
#include <stdint.h>

#include "client/tmaclient.h"

#define TIMING_SIZE 256

/* "0.4 us", "66 us", "1.24 ms". Writes to text and returns it. */
const char *timing_print_ns(uint64_t ns, char text[32]);

/* The predicted time by that of a copy of as many bytes; 0: the plan has none. */
double timing_ratio(const tma_document *plan);

/* The same, also where only this ratio is predicted, as for the CPU engine. */
double timing_cost(const tma_document *plan);

/* In words: "66 us predicted (1.04 times a copy's); 67 us measured (median of 5 runs)", or "1.04 times
 * a copy's predicted". "": the plan has neither. Writes to text and returns it. */
char *timing_text(const tma_document *plan, char text[TIMING_SIZE]);

#endif
