/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion between two layouts of a KV cache, or between a plain tensor and one in blocks, as the flags
 * of the group conversion say it. */
#ifndef CLIENT_TMACTL_EXPLAIN_CONVERSION_H
#define CLIENT_TMACTL_EXPLAIN_CONVERSION_H

#include "client/tmactl/tmactl.h"
#include "client/tmactl/transform_request.h"

struct conversion {
	struct tma_layout_cache dst, src; /* of a blocked tensor only the layout of one; the other is plain */
	const char *given;                /* the name of one of its options that was given; NULL: none was */
	const char *size;                 /* likewise, of those that are sizes of KV caches */
	struct tma_layout_move move;      /* by conversion_init; of a blocked tensor its tensors alone */
};

/* Takes an option: 0, -1, or 1 if it is none of the group. */
int conversion_set(struct conversion *c, int opt, const char *text, struct failure *f);

/* Whether one of its layouts is of blocked tensors, which are described by the shape of the plain one. */
bool conversion_is_blocked(const struct conversion *c);

/* Checks what belongs together and makes the request of it, which points into c. dtype and plain, of which
 * rank and shape matter: NULL if they were not given. */
int conversion_init(struct conversion *c, const enum tma_dtype *dtype, const struct npy *plain,
                    struct transform_request *ret, struct failure *f);

/* Says what is converted, in two lines, of which the first begins with the label. */
void conversion_print(const struct conversion *c, const char *label);

#endif
