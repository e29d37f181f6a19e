/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion between two layouts of a KV cache, or between a plain tensor and a blocked one, built from the
 * options of the group conversion. */
#ifndef CLIENT_TMACTL_EXPLAIN_CONVERSION_H
#define CLIENT_TMACTL_EXPLAIN_CONVERSION_H

#include "client/tmactl/tmactl.h"
#include "client/tmactl/transform_request.h"

struct conversion {
	/* For a blocked tensor, only the layout of one side is set; the other side is plain. */
	struct tma_layout_cache dst, src;
	const char *given; /* last option of the group that was given, without dashes; NULL: none was */
	const char *size;  /* last option that is a number, without dashes; only KV caches take them */
	/* Set by conversion_init(). For a blocked tensor, only move.dst and move.src are set. */
	struct tma_layout_move move;
};

/* Parses an option. Returns 0, -1 with f set, or 1 if it is not an option of the group. */
int conversion_set(struct conversion *c, int opt, const char *text, struct failure *f);

/* Returns whether one of the layouts is of blocked tensors. Such a conversion is described by the shape of
 * the plain tensor. */
bool conversion_is_blocked(const struct conversion *c);

/* Checks the options against each other and initializes the request, which points into c. dtype is NULL if it
 * was not given. plain holds rank and shape of the plain tensor; NULL: they were not given. */
int conversion_init(struct conversion *c, const enum tma_dtype *dtype, const struct npy *plain,
                    struct transform_request *ret, struct failure *f);

/* Prints what is converted, in two lines. The first begins with the label, and the second is indented by as
 * much. */
void conversion_print(const struct conversion *c, const char *label);

#endif
