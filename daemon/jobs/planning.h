/* SPDX-License-Identifier: Apache-2.0 */
/* This module gets plans and explanations for requests without holding up the loop.
 *
 * Preparing a plan means checking its transform. That takes a microsecond, or some milliseconds if tensors
 * have to be searched for overlaps. The engine makes its own part of the plan later, when it first needs it.
 * A request may need many plans: one for each part of a split, each item of a batch, each piece of a reshard.
 * Each time that the loop handles a request, it prepares plans for about PLANNING_LOOP_NS. It notes the
 * others, and the session waits (WAIT_MEMORY) until a chore has prepared them. Then the request is handled
 * again and finds them, or notes more. So preparing plans takes little of the loop's time; most of it is the
 * time of the threads that do the user's chores. An explanation needs the engine's part of a plan too, so a
 * chore always makes it.
 *
 * What a request has noted is kept until the request has been answered, because the cache of plans may evict
 * it earlier. It is charged to the user (list_bytes_per_uid).
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

/* PLANNING_LATER is not a status: the request is to be handled again, as if it waited for memory. A request
 * that needs several plans asks for all of them before it returns PLANNING_LATER, so that they are made
 * together. */
#define PLANNING_LATER REACH_LATER

/* Finds the plan for places like `places` on a device. *ret holds a reference for the caller. Returns 0,
 * PLANNING_LATER, QUOTA, or what engine_prepare does. */
int planning_get(struct session *session, uint32_t device, const struct transform_spec *spec,
                 struct plan_places places, struct engine_plan **ret, struct error *err);

/* A question to planning_explain, about plans of an engine or about the parts of a split for an engine that
 * this service does not have. */
struct planning_question {
	struct engine *engine;     /* NULL: this service does not have the engine; name and split are set */
	const char *name;          /* name of the engine; used only if engine is NULL */
	const struct split *split; /* parts to be explained; used only if engine is NULL */
	struct engine_plan *const *plans;
	uint32_t n;       /* number of plans or parts */
	uint32_t largest; /* index of the largest plan or part */
};

/* Explains the largest plan or part; bytes, n_subregions and predicted_ns are sums over all. *ret is valid
 * until the request has been handled. A request may ask only one question. Returns 0, PLANNING_LATER, QUOTA,
 * NO_MEMORY, or what engine_explain and transform_init do. */
int planning_explain(struct session *session, const struct planning_question *question,
                     const struct engine_explanation **ret, struct error *err);

/* planning_begin must be called before the request session->asking is handled. Afterwards planning_end must
 * be called if the request has been handled, or planning_start if it is to be handled again. planning_start
 * has a chore make what the request has noted. */
static inline void planning_begin(struct session *session);
static inline void planning_end(struct session *session);
void planning_start(struct session *session);

/* Tells whether a request of the session waits for plans. */
bool planning_is_under_way(const struct session *session);

/* Drops what the session's requests have noted. Must be called when the session ends. */
void planning_give_up(struct session *session);

/* ---- Inline, because every request passes here ------------------------------------------------------- */

/* Drops what is noted in the slot of the request session->asking, if another request has noted it. */
void planning_forget_other(struct session *session);

/* Drops what the request session->asking has noted. */
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

/* A prepared plan is a transform that a connection has had checked in advance, except for the places of its
 * tensors.
 *
 * A plan depends on some properties of the places: their alignment, and their phases for the Tensor Memory
 * Accelerator. These rarely change from run to run. A prepared plan keeps the engine's plans for the places
 * used last, so that a run needs no lookup. A job holds the engine's plan that it uses, but not the prepared
 * plan, which may be released at any time.
 */

/* Adds a prepared plan to the session, charged to its user by the number and the bytes of its parts. Returns
 * 0, what planning_get returns, QUOTA, or INVALID_ARGUMENT if the parameters give a place. */
int prepared_add(struct session *session, const struct msg_transform *params, uint64_t *ret_id,
                 struct error *err);

/* Returns 0, or NOT_FOUND if the session has no plan with that id. */
int prepared_release(struct session *session, uint64_t id, struct error *err);

void prepared_release_all(struct session *session);

/* Does for a run of a prepared plan what transform_plan does for a transform: finds the places of the run,
 * and the plans for them, with references for the caller. Allocates nothing if the places are like earlier
 * ones. */
int prepared_plan(struct session *session, const struct msg_plan_run *run, uint32_t device,
                  struct transforms_charge *charge, struct parts *ret, struct error *err);

/* Finds the plan for places like `places` on the device placed->device. *ret_plan holds a reference for the
 * caller. Sets the operands in *placed; the caller finds and checks the places of dst and src. */
int prepared_plan_for(struct session *session, const struct msg_plan_run *run, struct plan_places places,
                      struct placed *placed, struct engine_plan **ret_plan, struct error *err);

#endif
