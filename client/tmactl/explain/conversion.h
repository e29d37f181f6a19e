/* SPDX-License-Identifier: Apache-2.0 */
/* A conversion between two layouts of a KV cache, as the flags of the group conversion say it. */
#ifndef CLIENT_TMACTL_EXPLAIN_CONVERSION_H
#define CLIENT_TMACTL_EXPLAIN_CONVERSION_H

#include "client/tmactl/tmactl.h"
#include "client/tmactl/transform_request.h"

struct conversion {
	struct tma_layout_cache dst, src;
	const char *given;           /* the name of one of its options that was given; NULL: none was */
	struct tma_layout_move move; /* by conversion_init */
};

/* Takes an option: 0, -1, or 1 if it is none of the group. */
int conversion_set(struct conversion *c, int opt, const char *text, struct failure *f);

/* Checks what belongs together and makes the request of it, which points into c. dtype: NULL if it was not
 * given. */
int conversion_init(struct conversion *c, const enum tma_dtype *dtype, struct transform_request *ret,
                    struct failure *f);

/* Says what is converted, in two lines, of which the first begins with the label. */
void conversion_print(const struct conversion *c, const char *label);

#endif
