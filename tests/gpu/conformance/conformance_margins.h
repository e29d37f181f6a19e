/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what stores do to the bytes next to those that they are to write. This is reported without being
 * judged. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_MARGINS_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_MARGINS_H

#include <stdint.h>

#include "conformance_expect.h"

struct margins {
	struct {
		uint64_t stores;  /* stores with bytes of this role */
		uint64_t touched; /* stores that wrote some of these bytes */
		uint64_t most;    /* most bytes from the tile's edge to the farthest byte written */
	} role[BYTE_ROLE_COUNT];
};

/* Counts one store. roles, before and got cover the whole image; only the window is examined. */
void margins_count(struct margins *margins, const struct window *window, const unsigned char *roles,
                   const unsigned char *before, const unsigned char *got);

void margins_print(const struct margins *margins);

#endif
