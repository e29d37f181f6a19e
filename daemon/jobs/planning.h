/* SPDX-License-Identifier: Apache-2.0 */
/* Requests get their plans and explanations here, without holding up the loop.
 *
 * An engine makes its part of a plan where it first needs it. This module checks the transform, which takes a
 * microsecond, or some milliseconds if tensors have to be searched for overlaps. A request may need many
 * plans: one for each part of a split, each item of a batch, each piece of a reshard. The loop prepares them
 * for PLANNING_LOOP_NS each time that it handles a request. It notes the others, and the session waits
 * (WAIT_MEMORY) until a chore has prepared them; then the request is handled anew and finds them, or notes
 * more. So preparing takes its user's share of the threads that do chores, and nobody else's time. An
 * explanation needs the engine's part of a plan too, so a chore always makes it.
 *
 * What a request has noted is kept until it has been answered, because the cache may lose it before. It is
 * charged to the user (list_bytes_per_uid).
 */
#ifndef DAEMON_JOBS_PLANNING_H
#define DAEMON_JOBS_PLANNING_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/memory/region.h"
#include "daemon/memory/service.h"
#include "daemon/memory/session.h"
#include "kernels/engine.h"
#include "kernels/transform/split.h"
#include "proto/schema.h"
#include "placed.h"

struct session;

#define PLANNING_LOOP_NS 50000

/* PLANNING_LATER is no status: the request is to be handled again, as if it waited for memory. A request that
 * needs several plans asks for all of them before it returns PLANNING_LATER, so that they are made together.
 */
#define PLANNING_LATER REACH_LATER

/* Finds the plan for such places on a device. *ret holds a reference for the caller. Returns 0,
 * PLANNING_LATER, QUOTA, or what engine_prepare does. */
int planning_get(struct session *session, uint32_t device, const struct transform_spec *spec,
                 struct plan_places places, struct engine_plan **ret, struct error *err);

/* Names what is to be explained: plans of an engine, or a split for an engine that is not here. */
struct planning_question {
	struct engine *engine;     /* NULL: the engine is not here, and `name` and `split` stand for it */
	const char *name;          /* name of an engine that is not here */
	const struct split *split; /* parts for an engine that is not here */
	struct engine_plan *const *plans;
	uint32_t n;       /* number of plans or parts */
	uint32_t largest; /* index of the largest */
};

/* Explains the largest plan or part; bytes, n_subregions and predicted_ns are sums over all. *ret is valid
 * until the request has been handled. A request may ask only one question. Returns 0, PLANNING_LATER, QUOTA,
 * NO_MEMORY, or what engine_explain and transform_init do. */
int planning_explain(struct session *session, const struct planning_question *question,
                     const struct engine_explanation **ret, struct error *err);

/* The caller tells that the handling of the request session->asking begins (planning_begin), that the request
 * has been handled (planning_end), or that it is to be handled again once what it noted has been made
 * (planning_start). */
static inline void planning_begin(struct session *session);
static inline void planning_end(struct session *session);
void planning_start(struct session *session);

/* Tells whether a request of the session waits for plans. */
bool planning_is_under_way(const struct session *session);

/* Drops what the session has noted, because it has ended and nobody waits for plans any more. */
void planning_give_up(struct session *session);

/* ---- Inline, because every request passes here ------------------------------------------------------- */

/* Drops what another request has noted in the place of the one that is being handled. */
void planning_forget_other(struct session *session);

/* Drops what the request has noted. */
void planning_forget(struct session *session);

static inline void planning_begin(struct session *session)
{
	session->service->planned_ns = 0;
	if (session->planning[session->asking & 1])
		planning_forget_other(session);
}

static inline void planning_end(struct session *session)
{
	if (session->planning[session->asking & 1])
		planning_forget(session);
}

/* Prepared plans are transforms of a connection that have been checked in advance, except for the places of
 * their tensors.
 *
 * The properties of the places that a plan depends on (their alignment, and their phases for the Tensor
 * Memory Accelerator) rarely change from run to run. The plans for the places used last are kept, so that a
 * run needs no lookup. A job holds the plan that it uses, not the prepared plan, which may be released at any
 * time.
 */

/* Adds a prepared plan to the session, charged to its uid by its parts and its bytes. Errors are those of
 * planning_get, QUOTA, and INVALID_ARGUMENT if a place is given. */
int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err);

/* Returns 0, or NOT_FOUND if the session has no plan with that id. */
int prepared_release(struct session *session, uint64_t id, struct error *err);

void prepared_release_all(struct session *session);

/* Does what transform_plan does for a run: finds its places, and the plans for them, with references for the
 * caller. Allocates nothing if the places are like earlier ones. */
int prepared_plan(struct session *session, const struct msg_plan_run *run, uint32_t device,
                  struct transforms_charge *charge, struct parts *ret, struct error *err);

/* Finds the plan for such places on the device that *placed names. *ret holds a reference for the caller.
 * Sets the operands in *placed; the caller finds and checks the places of dst and src. */
int prepared_plan_for(struct session *session, const struct msg_plan_run *run, struct plan_places places,
                      struct placed *placed, struct engine_plan **ret_plan, struct error *err);

#endif
