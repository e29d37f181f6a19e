/* SPDX-License-Identifier: Apache-2.0 */
/* A request's tensors and operands have places in regions. This module finds the places of a request, the
 * device and the plans for them, and the request's order. */
#ifndef DAEMON_JOBS_PLACED_H
#define DAEMON_JOBS_PLACED_H

#include "kernels/engine.h"
#include "kernels/transform/request.h"
#include "proto/schema.h"

struct transforms_charge;
struct region;
struct session;

/* An operand is a tensor in a region or, for ROLE_SCALE and ROLE_BIAS, a number. */
struct placed_operand {
	struct region *region; /* NULL: the operand is a number, or there is none */
	uint64_t offset;
	double number;
};

/* The places of both tensors of a transform, and of its operands. */
struct placed {
	uint32_t device; /* device that the transform runs on */
	struct region *dst;
	struct region *src;
	uint64_t dst_offset; /* bytes from the start of the region */
	uint64_t src_offset;
	struct placed_operand operand[ROLE_COUNT];
};

/* Returns the place of the byte at `offset` of a region, in the form that the checks of kernels/ take. */
struct tensor_place place_of(const struct region *region, uint64_t offset);

/* Finds the regions of two places; that of dst must be writable. dst_name and src_name are the arguments that
 * error messages refer to, such as "dst.region". */
int placed_find(struct session *session, const struct region_place *dst, const char *dst_name,
                const struct region_place *src, const char *src_name, struct placed *ret, struct error *err);

/* Sets placed->device to the device that the transform runs on, and has it reach all regions.
 *
 * The transform runs on `device`. If that is DEVICE_ANY, the transform runs on the device of the first region
 * in device memory among those of dst, src and the operands or, if all are in host memory, on that of dst.
 * DEVICE_ASKED does the same, but nothing is mapped. Returns 0, REACH_LATER, or what region_reach does.
 */
int placed_settle(struct placed *placed, uint32_t device, struct error *err);

/* Finds all regions of a transform. Its tensors must name their regions. */
int placed_find_all(struct session *session, const struct msg_transform *params, struct placed *ret,
                    struct error *err);

/* Does what placed_find_all and placed_settle do, in this order. */
int placed_of(struct session *session, const struct msg_transform *params, uint32_t device,
              struct placed *ret, struct error *err);

/* Finds the tensors or numbers that the transform converts by, and the places of its scales, which must be
 * writable. */
int placed_find_operands(struct session *session, const struct msg_transform *params, struct placed *ret,
                         struct error *err);

/* Finds the region of one operand, which must be writable if the transform writes it. name is the argument
 * that error messages refer to. */
int placed_find_operand(struct session *session, enum operand_role role, const char *name,
                        const struct region_place *at, struct placed *ret, struct error *err);

/* Returns what a plan may rely on about the places of dst and src. */
struct plan_places placed_places(const struct placed *placed);

/* Checks that the transform may run between these places: both tensors lie within their regions and do not
 * overlap. */
int placed_check(const struct placed *placed, const struct transform_sides *sides, struct error *err);

/* Checks the operands of a transform. An operand that the conversion reads has to lie in its region, and may
 * not share bytes with the destination. A scale that the transform computes may share bytes with nothing. If
 * there are many destinations, sides is NULL, the check ignores the destinations, and the conversion must not
 * have amax. */
int placed_check_operands(const struct placed *placed, const struct transform_sides *sides,
                          const struct conversion *conversion, struct error *err);

/* Returns the places of a part of a transform. The offsets are in bytes from those of the whole. */
struct placed placed_part(const struct placed *placed, int64_t dst_offset, int64_t src_offset);

/* Returns the move for the engine. If the caller has a reference to the plan, the move takes it over; no
 * further reference is taken. */
struct engine_move placed_move(struct engine_plan *plan, const struct placed *placed);

/* A transform between two places has one part, unless the last block of a split is incomplete. */
struct parts {
	struct placed placed; /* places of the tensors as the request gave them */
	uint32_t n;
	uint32_t largest;
	struct part {
		struct engine_plan *plan;
		int64_t dst_offset; /* bytes from the places in `placed` */
		int64_t src_offset;
	} part[SPLIT_MAX_PARTS];
};

/* Checks the operands of parts that have plans, as placed_check_operands does. Drops the references to the
 * plans if the operands may not be used. */
int parts_check_operands(struct parts *parts, const struct transform_sides *sides, struct error *err);

/* Drops the references to plans. */
void parts_unref(struct parts *parts);

/* Plans all parts of a split transform. The caller sets ret->placed, or only its device if is_placed is
 * false; then the plans assume the best alignment. Returns what planning_get does. */
int parts_plan(struct session *session, const struct split *split, bool is_placed, struct parts *ret,
               struct error *err);

/* parts_charge charges for n parts, the first of which has been charged already. parts_discharge takes that
 * back because of the error r. It does nothing if r is PLANNING_LATER: the parts stay charged while their
 * plans are made, so that no more are made than the user may have. charge may be NULL. */
int parts_charge(struct transforms_charge *charge, uint32_t n, struct error *err);
void parts_discharge(struct transforms_charge *charge, uint32_t n, int r);

/* The order of a request says what it waits for and until when it has to begin, what it signals at its end,
 * when it is answered, and which share of the engine it gets. */
struct order {
	struct region *wait;  /* NULL: it does not wait */
	uint64_t wait_offset; /* bytes from the start of the region to the word */
	uint64_t wait_value;
	uint64_t wait_ms;       /* longest wait for the word, in ms */
	struct region *signal;  /* NULL: no signal */
	uint64_t signal_offset; /* bytes from the start of the region to the word */
	uint64_t signal_value;
	enum completion completion;
	struct engine_share share; /* within the user's limits; begin_until_ns is not set */
	uint64_t deadline_ms;      /* 0: none */
};

/* Returns the lesser of what a request asks for and the limit. In both, 0 stands for no limit. */
static inline uint32_t order_within(uint64_t asked, uint64_t limit)
{
	const uint64_t least = asked && (!limit || asked < limit) ? asked : limit;

	return least < UINT32_MAX ? (uint32_t)least : UINT32_MAX;
}

/* Sets ret->share, and nothing else, to what the fields ask for, within the limits of the session's user. */
void order_set_share(struct session *session, const struct order_fields *fields, struct order *ret);

/* Checks the order of a request and sets *ret to it. `has` is a mask of the fields that the request gives
 * (F(order, field)). Refuses regions that do not belong to the connection or are not writable, words that are
 * misaligned or lie outside the region, and a wait longer than wait_deadline_ms; the request's own
 * deadline_ms has no limit. */
int order_check(struct session *session, const struct order_fields *fields, uint64_t has, struct order *ret,
                struct error *err);

/* Calls order_check for the parameters p of a message; m is the name of the message in the schema. */
#define order_of(session, m, p, ret, err) order_check(session, &(p)->order, ORDER_HAS(m, p), ret, err)

#endif
