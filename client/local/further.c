/* SPDX-License-Identifier: Apache-2.0 */
/* Transforms with several destinations. The first destination is made from the source, and the others are
 * copies of the first, so that a conversion is calculated, and its changes are counted, only once. */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>

#include "proto/overlap.h"
#include "proto/wire/rpc.h"

struct destinations {
	/* transform from the source to one of the destinations; its dst is set for each in turn */
	struct msg_transform transform;
	uint64_t steps; /* overlap_steps() before the request */
	uint32_t n;
	struct request_destination of[];
};

static int take_further(struct destinations *all, struct local_session *session,
                        const struct msg_transform *t, uint32_t i, struct error *err)
{
	struct msg_tensor *tensor = &all->transform.dst;
	int r = rpc_decode_further_dst(&t->further_dst, i, tensor, err);

	if (r < 0)
		return r;
	r = request_take_further(&t->dst, tensor, err);
	if (r == 0)
		r = local_check_move(session, &all->transform, &all->of[1 + i], err);
	return r < 0 ? request_name_further(i, err) : request_check_effort(all->steps, err);
}

static int take(struct destinations *all, struct local_session *session, const struct msg_transform *t,
                struct error *err)
{
	int r;

	all->steps = overlap_steps();
	all->n = 1 + t->further_dst.n;
	all->transform = *t;
	all->transform.has &= ~F(transform, further_dst);
	r = local_check_move(session, &all->transform, &all->of[0], err);
	for (uint32_t i = 0; r == 0 && i < t->further_dst.n; i++)
		r = take_further(all, session, t, i, err);
	return r < 0 ? r : request_check_destinations(all->of, all->n, all->steps, err);
}

static int move_all(struct destinations *all, struct local_session *session, struct msg_transform_done *ret,
                    struct error *err)
{
	int r;

	all->transform.dst = all->of[0].tensor;
	r = local_move(session, &all->transform, ret, err);
	for (uint32_t i = 1; r == 0 && i < all->n; i++) {
		const struct msg_transform copy =
		    request_copy_between(&all->of[i].tensor, &all->of[0].tensor);
		struct msg_transform_done one;

		r = local_move(session, &copy, &one, err);
		if (r < 0)
			return request_name_further(i - 1, err);
		ret->bytes += one.bytes;
		ret->ns += one.ns;
	}
	return r;
}

/* Sets *ret to whether the request has to run on a device, which it does if any of its tensors lies there. */
static int needs_device(const struct local_session *session, const struct msg_transform *t, bool *ret,
                        struct error *err)
{
	*ret = local_needs_device(session, &t->dst) || local_needs_device(session, &t->src);
	for (uint32_t i = 0; !*ret && i < t->further_dst.n; i++) {
		struct msg_tensor further;
		int r = rpc_decode_further_dst(&t->further_dst, i, &further, err);

		if (r < 0)
			return r;
		*ret = local_needs_device(session, &further);
	}
	return 0;
}

static int run(struct local_session *session, const struct msg_transform *t, struct destinations *all,
               struct msg_transform_done *ret, struct error *err)
{
	bool is_needed, is_on_device = false;
	int r = needs_device(session, t, &is_needed, err);

	if (r == 0)
		r = local_device_begin(session, is_needed, &is_on_device, err);
	if (r == 0)
		r = take(all, session, t, err);
	if (r == 0 && !session->only_checks)
		r = move_all(all, session, ret, err);
	if (is_on_device)
		local_stream_end(session);
	return r;
}

int local_further_run(struct local_session *session, const struct msg_transform *params,
                      struct msg_transform_done *ret, struct error *err)
{
	struct destinations *all;
	int r = request_check_further(params, err);

	if (r < 0)
		return r;
	all = calloc(1, sizeof *all + (1 + params->further_dst.n) * sizeof all->of[0]);
	if (!all)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %" PRIu32 " destinations",
		                 1 + params->further_dst.n);
	r = run(session, params, all, ret, err);
	free(all);
	return r;
}
