/* From the fields of a request to a plan between two places, for every method that has a transform in it. */
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

/* What is asked, without its places. Refused are strides and shapes that do not agree with each other. */
int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err);

/* Where both tensors of a transform lie. */
struct placed {
	struct region *dst;
	struct region *src;
	uint64_t dst_offset; /* bytes */
	uint64_t src_offset;
};

/* A byte of a region, as the checks of kernels/ take it. */
struct tensor_place place_of(const struct region *region, uint64_t offset);

/* The regions of two places; dst is a writable one. Names are what the places are called in errors:
 * "dst.region". */
int placed_find(struct session *session, const struct region_place *dst, const char *dst_name,
                const struct region_place *src, const char *src_name, struct placed *ret, struct error *err);

/* The same of a transform's tensors, which have to name a region each. */
int placed_of(struct session *session, const struct msg_transform *params, struct placed *ret,
              struct error *err);

/* The engine's facts, with what a plan depends on of the places; NULL: as aligned as can be. */
struct plan_facts placed_facts(const struct session *session, const struct placed *placed);

/* Whether the transform may run there: both tensors within their regions, no byte of both. */
int placed_check(const struct placed *placed, const struct transform *transform, struct error *err);

/* What the engine is to do. */
struct engine_move placed_move(const struct plan_entry *plan, const struct placed *placed);

/* All of it: *ret_plan has a reference for the caller. */
int transform_plan(struct session *session, const struct msg_transform *params, struct placed *ret,
                   struct plan_entry **ret_plan, struct error *err);

/* Queues it, checked, for the request, which transform_done will answer. Takes over the caller's reference on
 * plan. QUOTA or NO_MEMORY. */
int transform_start(struct session *session, const struct rpc_request *request, const struct order *order,
                    struct plan_entry *plan, const struct placed *placed, struct error *err);

#endif
