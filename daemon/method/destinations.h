/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms with several destinations (further_dst): each is checked as a transform of its own, and then
 * they are made from each other as multicast.h plans it. */
#ifndef DAEMON_METHOD_DESTINATIONS_H
#define DAEMON_METHOD_DESTINATIONS_H

#include "proto/status.h"

struct order;
struct rpc_request;
struct session;

/* Checks the request and queues it; transform_done will answer it. What transform_plan says, or QUOTA. */
int destinations_start(struct session *session, const struct rpc_request *request, const struct order *order,
                       struct error *err);

#endif
