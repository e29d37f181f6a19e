/* Prepared plans: transforms of a connection's that have been checked, but for where their tensors lie.
 *
 * What a plan depends on of the places (how far they are aligned, and for the Tensor Memory Accelerator their
 * phases) differs little from run to run: the plans for those met last are kept, so that a run looks nothing
 * up. A job holds the plan that it runs, not the prepared one: that may go at any time.
 */
#ifndef DAEMON_RESOURCE_PREPARED_H
#define DAEMON_RESOURCE_PREPARED_H

#include <stdint.h>

#include "plan_cache.h"
#include "proto/schema.h"
#include "daemon/method/transforms.h"

struct session;

/* Adds what is asked to the session's plans, charged to its uid. Errors are those of transform_spec_of and
 * transform_init, QUOTA, NO_MEMORY, and INVALID_ARGUMENT where a place is given. */
int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err);

/* NOT_FOUND: the session has none with that id. */
int prepared_release(struct session *session, uint64_t id, struct error *err);

void prepared_release_all(struct session *session);

/* As transform_plan: where run's places are, and the plan for them with a reference for the caller. Allocates
 * nothing when the places are like earlier ones. */
int prepared_plan(struct session *session, const struct msg_plan_run *run, struct placed *ret,
                  struct plan_entry **ret_plan, struct error *err);

#endif
