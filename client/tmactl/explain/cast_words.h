/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a conversion of elements in words. */
#ifndef CLIENT_TMACTL_EXPLAIN_CAST_WORDS_H
#define CLIENT_TMACTL_EXPLAIN_CAST_WORDS_H

#include "client/tmactl/cast/cast.h"
#include "client/tmactl/transform_request.h"

/* Prints the description to standard output, or nothing if elements are moved as they are. Lines after the
 * first begin at `column`. */
void cast_print(const struct cast *cast, const struct transform_request *q, int column);

#endif
