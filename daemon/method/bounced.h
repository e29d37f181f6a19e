/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms between two devices that do not reach each other: the source's device packs what a box of the
 * destination is made of into a half of a bounce buffer, and the destination's device makes the box of it,
 * while the other half is packed.
 */
#ifndef DAEMON_METHOD_BOUNCED_H
#define DAEMON_METHOD_BOUNCED_H

#include <stdbool.h>

#include "proto/schema.h"
#include "proto/status.h"

struct order;
struct rpc_request;
struct session;

/* Whether it is one of those. */
bool transform_is_bounced(struct session *session, const struct msg_transform *params);

/* Checks the request and queues it; transform_done will answer it. What transform_plan says, or what
 * bounce_find does; UNSUPPORTED: it has a box that is too large, or too many boxes. */
int bounced_start(struct session *session, const struct rpc_request *request, const struct order *order,
                  struct error *err);

#endif
