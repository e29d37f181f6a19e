/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the driver accepts exactly the tensor maps that tensor_map_check allows. Those rules are the
 * documented ones. Known deviations of the driver from its documentation are counted separately; any other
 * disagreement is a failure. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_JUDGE_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_JUDGE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "conformance_draw.h"

/* How driver 580.159 on an H200 deviates from its documentation. tmad makes no such maps: it does not
 * interleave, and its boxes fit into shared memory. */
enum deviation {
	DEVIATION_NONE,
	DEVIATION_SLICES,  /* with interleave, refuses an inner box that is no multiple of 16 bytes */
	DEVIATION_LARGE,   /* refuses a box larger than any shared memory */
	DEVIATION_SWIZZLE, /* with interleave 32B, accepts any swizzle */
	DEVIATION_COUNT
};

struct judge {
	uint64_t legal; /* maps that both allow */
	uint64_t illegal;
	uint64_t apart; /* maps on which they disagree without a known deviation */
	uint64_t deviations[DEVIATION_COUNT];
	int n_kinds;
	struct {
		char fields[48]; /* the fields concerned, or the deviation */
		int told;
	} kinds[64]; /* kinds of disagreement */
};

/* address is the draw's. Returns whether the map is legal by both. Prints the first few disagreements of each
 * kind. */
bool judge_map(struct judge *judge, const struct draw *draw, uint64_t address, CUresult result);

/* Prints in one line how often the driver showed its known deviations. */
void judge_print_deviations(const struct judge *judge);

#endif
