/* SPDX-License-Identifier: Apache-2.0 */
/* What to change so that a transform becomes fast. */
#ifndef CLIENT_TMACTL_EXPLAIN_HINT_H
#define CLIENT_TMACTL_EXPLAIN_HINT_H

#include "client/tmactl/transform_request.h"

struct hint {
	char text[384]; /* "": nothing that is known of helps */
};

/* Asks the service, for engine, how the transform request would be answered with rows of whole 16 bytes, the
 * smallest change first: what is found is not a guess. plan: the answer to the transform request as it is.
 * has_pitch: the array is in no file, so rows may lie further apart than they are long. Nothing is asked
 * where no time is predicted. 0 or -1. */
int hint_find(struct hint *ret, tma_client *client, const struct transform_request *request,
              const char *engine, const tma_document *plan, bool has_pitch, struct failure *f);

#endif
