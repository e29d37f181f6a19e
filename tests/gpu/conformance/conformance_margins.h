/* SPDX-License-Identifier: Apache-2.0 */
/* What stores do to the bytes next to those that they are to write: measured, not judged. */
#ifndef TESTS_GPU_CONFORMANCE_CONFORMANCE_MARGINS_H
#define TESTS_GPU_CONFORMANCE_CONFORMANCE_MARGINS_H

#include <stdint.h>

#include "conformance_expect.h"

struct margins {
	struct {
		uint64_t stores;  /* that have bytes of the role */
		uint64_t touched; /* that wrote some */
		uint64_t most;    /* bytes, from the tile's edge to the farthest that was written */
	} role[BYTE_ROLE_COUNT];
};

/* One store. roles, before and got: of the whole image, looked at in the window. */
void margins_count(struct margins *margins, const struct window *window, const unsigned char *roles,
                   const unsigned char *before, const unsigned char *got);

void margins_print(const struct margins *margins);

#endif
