/* SPDX-License-Identifier: Apache-2.0 */
/* Prepared plans: transforms of a connection that have been checked in advance, except for the places of
 * their tensors.
 *
 * The properties of the places that a plan depends on (their alignment, and their phases for the Tensor
 * Memory Accelerator) rarely change from run to run. The plans for the places used last are kept, so that a
 * run needs no lookup. A job holds the plan that it uses, not the prepared plan, which may be released at any
 * time.
 */
#ifndef DAEMON_RESOURCE_PREPARED_H
#define DAEMON_RESOURCE_PREPARED_H

#include <stdint.h>

#include "proto/schema.h"
#include "daemon/method/transforms.h"

struct session;

/* Adds a prepared plan to the session, charged to its uid by its parts and its bytes. Errors are those of
 * planning_get, QUOTA, and INVALID_ARGUMENT if a place is given. */
int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err);

/* NOT_FOUND: the session has no plan with that id. */
int prepared_release(struct session *session, uint64_t id, struct error *err);

void prepared_release_all(struct session *session);

/* As transform_plan: finds the places of run, and the plans for them, with references for the caller.
 * Allocates nothing if the places are like earlier ones. */
int prepared_plan(struct session *session, const struct msg_plan_run *run, uint32_t device, struct job *job,
                  struct parts *ret, struct error *err);

/* Finds the plan for such places on the device that *placed names. *ret holds a reference for the caller.
 * Sets the operands in *placed; the caller finds and checks the places of dst and src. */
int prepared_plan_for(struct session *session, const struct msg_plan_run *run, struct plan_places places,
                      struct placed *placed, struct engine_plan **ret_plan, struct error *err);

#endif
