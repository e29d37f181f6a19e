/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to a plan between two places, for every method with a transform in it. */
#ifndef DAEMON_METHOD_TRANSFORMS_H
#define DAEMON_METHOD_TRANSFORMS_H

#include "daemon/resource/region.h"
#include "kernels/engine.h"
#include "kernels/transform/request.h"
#include "proto/schema.h"

struct job;
struct order;
struct rpc_request;
struct session;

/* scale or bias: a tensor in a region, or a number. */
struct placed_operand {
	struct region *region; /* NULL: it is the number, or there is none */
	uint64_t offset;
	double number;
};

/* scale or inverse of amax. */
struct placed_result {
	struct region *region; /* NULL: there is none */
	uint64_t offset;
};

/* The places of both tensors of a transform, of what it converts by, and of the scales that it computes. */
struct placed {
	uint32_t device; /* that it runs on */
	struct region *dst;
	struct region *src;
	uint64_t dst_offset; /* bytes */
	uint64_t src_offset;
	struct placed_operand scale, bias;
	struct placed_result amax_scale, amax_inverse;
};

/* The address of a byte of a region for the checks of kernels/. */
struct tensor_place place_of(const struct region *region, uint64_t offset);

/* Finds the regions of two places; that of dst must be writable. Errors use the names of the places:
 * "dst.region". */
int placed_find(struct session *session, const struct region_place *dst, const char *dst_name,
                const struct region_place *src, const char *src_name, struct placed *ret, struct error *err);

/* Chooses the device that a transform between these places runs on, unless it is given (DEVICE_ANY: it is
 * not), and sees to it that the device reaches all of them: REACH_LATER, or what region_reach says. It is the
 * destination's; for one in host memory the source's; and where both are, that of an operand, or else the
 * destination's first. */
int placed_settle(struct placed *placed, uint32_t device, struct error *err);

/* Finds all regions of a transform, whose tensors must name them. */
int placed_find_all(struct session *session, const struct msg_transform *params, struct placed *ret,
                    struct error *err);

/* The same, and settles on a device. */
int placed_of(struct session *session, const struct msg_transform *params, uint32_t device,
              struct placed *ret, struct error *err);

/* Finds what the transform converts by, and where its scales go, which must be writable. */
int placed_find_operands(struct session *session, const struct msg_transform *params, struct placed *ret,
                         struct error *err);

/* Returns what a plan may rely on about the places of dst and src. */
struct plan_places placed_places(const struct placed *placed);

/* Checks that the transform may run there: both tensors lie within their regions and do not overlap. */
int placed_check(const struct placed *placed, const struct transform_sides *sides, struct error *err);

/* The same for what it converts by: a tensor has to lie in its region, and may not share bytes with the
 * destination; and for the scales that it computes, which share bytes with nothing. sides: NULL: there are
 * many destinations, which are then not looked at; not with amax. */
int placed_check_operands(const struct placed *placed, const struct transform_sides *sides,
                          const struct conversion *conversion, struct error *err);

/* The place of a part of a transform. */
struct placed placed_part(const struct placed *placed, int64_t dst_offset, int64_t src_offset);

/* Makes the move for the engine. The move holds no reference to the plan. */
struct engine_move placed_move(struct engine_plan *plan, const struct placed *placed);

/* What is known of a transform that may run. */
struct checked_transform {
	struct placed placed; /* without a device */
	struct tensor_layout dst;
	struct tensor_extent dst_extent;
};

/* All checks of a transform without a plan, whichever device it runs on. */
int transform_check(struct session *session, const struct msg_transform *params,
                    struct checked_transform *ret, struct error *err);

/* A transform between two places: one part, unless the last block of a split is incomplete. */
struct parts {
	struct placed placed; /* of the tensors as the request gave them */
	uint32_t n;
	uint32_t largest;
	struct part {
		struct engine_plan *plan;
		int64_t dst_offset; /* bytes from there */
		int64_t src_offset;
	} part[SPLIT_MAX_PARTS];
};

/* Drops the references to plans. */
void parts_unref(struct parts *parts);

/* Plans all parts of a split transform. The caller sets ret->placed, or only its device if is_placed is
 * false; then the plans assume the best alignment. Returns what planning_get does. */
int parts_plan(struct session *session, const struct split *split, bool is_placed, struct parts *ret,
               struct error *err);

/* All of this in one call: the plans of *ret have a reference for the caller. The job, which may be
 * NULL, is charged for the parts besides the first before they are planned. */
int transform_plan(struct session *session, const struct msg_transform *params, uint32_t device,
                   struct job *job, struct parts *ret, struct error *err);

/* Charges the job, which may be NULL, for n parts besides the first; or takes that back, because of r. Parts
 * whose plans are still to be made stay charged, so that no more are made than the job may have. */
int parts_charge(struct job *job, uint32_t n, struct error *err);
void parts_discharge(struct job *job, uint32_t n, int r);

/* Queues the checked transform for the request, which transform_done will answer. Takes over the caller's
 * references to plans. QUOTA or NO_MEMORY. */
int transform_start(struct session *session, const struct rpc_request *request, const struct order *order,
                    struct parts *parts, struct error *err);

#endif
