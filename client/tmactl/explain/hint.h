/* SPDX-License-Identifier: Apache-2.0 */
/* Suggests what to change so that a transform becomes fast. */
#ifndef CLIENT_TMACTL_EXPLAIN_HINT_H
#define CLIENT_TMACTL_EXPLAIN_HINT_H

#include "client/tmactl/transform_request.h"

struct hint {
	char text[384]; /* "": no known change helps */
};

/* Looks for a change of rows to multiples of 16 bytes that makes the request fast, and sets *ret to the first
 * one found. Asks the service to explain the request with each change, the smallest first. plan is the
 * explanation of the unchanged request, and engine the one to plan for; NULL: that of the service. has_pitch
 * says that rows may lie further apart than they are long, which is impossible in a file. Asks nothing if the
 * plan is fast or has no predicted time in ns. Returns 0, or -1 with f set. */
int hint_find(struct hint *ret, tma_client *client, const struct transform_request *request,
              const char *engine, const tma_document *plan, bool has_pitch, struct failure *f);

#endif
