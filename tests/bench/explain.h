/* SPDX-License-Identifier: Apache-2.0 */
/* Explains a row's speed: what its plan says, in lines for a report. */
#ifndef TESTS_BENCH_EXPLAIN_H
#define TESTS_BENCH_EXPLAIN_H

#include <stddef.h>

#include "kernels/explanation.h"

/* Writes the tile and the grid, then a line for each rule that excluded a better family. */
void explain_plan(const struct engine_explanation *of, char *text, size_t size);

#endif
