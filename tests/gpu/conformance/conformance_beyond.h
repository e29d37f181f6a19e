/* SPDX-License-Identifier: Apache-2.0 */
/* Cases that the random draws avoid. Their outcome is reported without being judged. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_BEYOND_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_BEYOND_H

#include "conformance_draw.h"
#include "conformance_features.h"

struct beyond {
	const char *name;
	enum feature_way way;
	struct draw draw;
};

extern const struct beyond beyond_rows[];
extern const int beyond_count;

#endif
