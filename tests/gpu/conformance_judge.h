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
	char kinds[64][48]; /* of disagreements that were told: the fields that they are about */
};

/* address: the draw's. True when it is legal by both. A disagreement is printed, the first of its kind. */
bool judge_map(struct judge *judge, const struct draw *draw, uint64_t address, CUresult result);

#endif
