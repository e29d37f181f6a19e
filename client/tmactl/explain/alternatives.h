/* SPDX-License-Identifier: Apache-2.0 */
/* What the service tries for a transform besides the plan that is predicted to be the fastest. */
#ifndef CLIENT_TMACTL_EXPLAIN_ALTERNATIVES_H
#define CLIENT_TMACTL_EXPLAIN_ALTERNATIVES_H

#include "client/tmaclient.h"

/* Prints how far the search for the fastest plan is, and a line for each plan, in columns of this width and
 * the rest; nothing if the service tries none. */
void alternatives_print(const tma_document *plan, int width);

#endif
