/* Whether the driver takes the maps that our rules allow, and no others. */
#ifndef TESTS_GPU_CONFORMANCE_JUDGE_H
#define TESTS_GPU_CONFORMANCE_JUDGE_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "conformance_draw.h"

struct judge {
	uint64_t legal; /* alike */
	uint64_t illegal;
	uint64_t apart;
	int n_kinds;
	struct {
		char fields[48]; /* that it is about */
		int told;
	} kinds[64]; /* of disagreement */
};

/* address: the draw's. True when it is legal by both. A disagreement is printed, the first few of
 * its kind. */
bool judge_map(struct judge *judge, const struct draw *draw, uint64_t address, CUresult result);

#endif
