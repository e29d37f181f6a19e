/* SPDX-License-Identifier: Apache-2.0 */
/* Every method with a transform in it uses these functions to get from its parameters to a plan between two
 * places. */
#ifndef DAEMON_API_TRANSFORMS_H
#define DAEMON_API_TRANSFORMS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/jobs/placed.h"
#include "proto/schema.h"
#include "proto/status.h"

struct job;
struct rpc_request;
struct session;

/* The result of transform_check. */
struct checked_transform {
	struct placed placed; /* places of the tensors and operands; the device is not set */
	struct tensor_layout dst;
	struct tensor_extent dst_extent;
};

/* Does all checks of a transform that need no plan and hold on any device. Returns 0 or an error. */
int transform_check(struct session *session, const struct msg_transform *params,
                    struct checked_transform *ret, struct error *err);

/* Checks a transform, chooses its device as placed_settle does, and plans it. The plans in *ret have
 * references for the caller. The job, which may be NULL, is charged for the parts besides the first before
 * they are planned. */
int transform_plan(struct session *session, const struct msg_transform *params, uint32_t device,
                   struct job *job, struct parts *ret, struct error *err);

/* Queues the planned transform for the request, which will be answered with a transform_done. Takes over the
 * caller's references to plans, also on failure. Returns 0, QUOTA, NO_MEMORY, or what job_run_on does. */
int transform_start(struct session *session, const struct rpc_request *request, const struct order *order,
                    struct parts *parts, struct error *err);

/* Returns whether the transform is between two devices that do not reach each other. */
bool transform_is_bounced(struct session *session, const struct msg_transform *params);

/* Checks a request for which transform_is_bounced returns true, and queues it; it will be answered with a
 * transform_done. Returns what transform_plan or bounce_find does, or UNSUPPORTED if it needs a box that is
 * too large, or too many boxes. */
int bounced_start(struct session *session, const struct rpc_request *request, const struct order *order,
                  struct error *err);

/* Checks a transform with several destinations and queues it; it will be answered with a transform_done.
 * Returns what transform_plan does, or QUOTA. */
int destinations_start(struct session *session, const struct rpc_request *request, const struct order *order,
                       struct error *err);

#endif
