/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the tests of plans for the Tensor Memory Accelerator: a move, and the plan that is expected for
 * it. */
#ifndef TESTS_UNIT_KERNELS_TMA_ROWS_H
#define TESTS_UNIT_KERNELS_TMA_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"

struct tma_row {
	char name[48];
	enum dtype dtype;
	int rank;
	/* The strides are those of src; all 0: C order. */
	int64_t src[6], perm[6], strides[6], before[6], after[6];
	bool straight; /* there is no permutation */
	enum pad_mode mode;
	uint64_t value;
	uint8_t dst_phase, src_phase;
	enum strategy_id strategy;
	uint32_t element;
	int64_t tile[5]; /* outermost first, filled up with zeros */
	uint64_t repeats;
	bool border;
	bool patched;
	char rule[120]; /* "family: text" of one of the rules */
};

/* Makes the transform and the plan of a row; listed: the plan for a block of a list. */
void tma_row_plan(const struct tma_row *row, bool listed, struct transform *t, struct plan *ret);

#endif
