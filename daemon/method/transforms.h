/* SPDX-License-Identifier: Apache-2.0 */
/* From the fields of a request to a plan between two places, for every method with a transform in it. */
#ifndef DAEMON_METHOD_TRANSFORMS_H
#define DAEMON_METHOD_TRANSFORMS_H

#include "kernels/engine.h"
#include "kernels/plan/plan.h"
#include "kernels/plan/transform.h"
#include "daemon/resource/plan_cache.h"
#include "proto/schema.h"
#include "daemon/resource/region.h"

struct order;
struct rpc_request;
struct session;

/* The transform that is asked for, without its places. Refuses strides and shapes that do not agree with each
 * other. */
int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err);

/* The places of both tensors of a transform. */
struct placed {
	struct region *dst;
	struct region *src;
	uint64_t dst_offset; /* bytes */
	uint64_t src_offset;
};

/* The address of a byte of a region for the checks of kernels/. */
struct tensor_place place_of(const struct region *region, uint64_t offset);

/* Finds the regions of two places; that of dst must be writable. Errors use the names of the places:
 * "dst.region". */
int placed_find(struct session *session, const struct region_place *dst, const char *dst_name,
                const struct region_place *src, const char *src_name, struct placed *ret, struct error *err);

/* The same for the tensors of a transform, each of which must name a region. */
int placed_of(struct session *session, const struct msg_transform *params, struct placed *ret,
              struct error *err);

/* The engine's facts, with the properties of the places that a plan depends on; NULL: fully aligned. */
struct plan_facts placed_facts(const struct session *session, const struct placed *placed);

/* Checks that the transform may run there: both tensors lie within their regions and do not overlap. */
int placed_check(const struct placed *placed, const struct transform *transform, struct error *err);

/* The move for the engine, by one of the entry's plans. */
struct engine_move placed_move(const struct plan_entry *entry, const struct plan *plan,
                               const struct placed *placed);

/* All of this in one call: *ret_plan has a reference for the caller. */
int transform_plan(struct session *session, const struct msg_transform *params, struct placed *ret,
                   struct plan_entry **ret_plan, struct error *err);

/* Queues the checked transform for the request, which transform_done will answer. Takes over the caller's
 * reference to plan. QUOTA or NO_MEMORY. */
int transform_start(struct session *session, const struct rpc_request *request, const struct order *order,
                    struct plan_entry *plan, const struct placed *placed, struct error *err);

#endif
