/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the driver takes the maps that our rules allow, and no others. Our rules are the documented ones;
 * where the driver is known to leave them, its doing so is counted apart, and anything else is a failure. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_JUDGE_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_JUDGE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "conformance_draw.h"

/* What driver 580.159 does on an H200 against its documentation. tmad makes no such maps: it does not
 * interleave, and its boxes fit shared memory. */
enum deviation {
	DEVIATION_NONE,
	DEVIATION_SLICES,  /* refuses an inner box of no multiple of 16 bytes, with interleave */
	DEVIATION_LARGE,   /* refuses a box that is larger than any shared memory */
	DEVIATION_SWIZZLE, /* takes any swizzle, with interleave 32B */
	DEVIATION_COUNT
};

struct judge {
	uint64_t legal; /* alike */
	uint64_t illegal;
	uint64_t apart; /* and no deviation that is known */
	uint64_t deviations[DEVIATION_COUNT];
	int n_kinds;
	struct {
		char fields[48]; /* that it is about, or the deviation */
		int told;
	} kinds[64]; /* of disagreement */
};

/* address: the draw's. True when it is legal by both. A disagreement is printed, the first few of
 * its kind. */
bool judge_map(struct judge *judge, const struct draw *draw, uint64_t address, CUresult result);

/* One line: how often the driver left its documentation as it is known to. */
void judge_print_deviations(const struct judge *judge);

#endif
