/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tests of plans for the Tensor Memory Accelerator: a move, and what is to be planned for it. */
#ifndef TESTS_UNIT_KERNELS_TMA_ROWS_H
#define TESTS_UNIT_KERNELS_TMA_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/cuda/strategy/plan.h"

struct tma_row {
	char name[48];
	enum dtype dtype;
	int rank;
	int64_t src[6], perm[6], strides[6], before[6], after[6]; /* strides of src; all 0: C order */
	bool straight;                                            /* no permutation */
	enum pad_mode mode;
	uint64_t value;
	uint8_t dst_phase, src_phase;
	enum strategy_id strategy;
	uint32_t element;
	int64_t tile[5]; /* outermost first, 0s at the end */
	uint64_t repeats;
	bool border;
	bool patched;
	char rule[120]; /* "family: text" of one of the rules */
};

/* listed: as for a block of a list. */
void tma_row_plan(const struct tma_row *row, bool listed, struct transform *t, struct plan *ret);

#endif
