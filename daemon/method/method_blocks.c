/* SPDX-License-Identifier: Apache-2.0 */
/* gather and scatter: a transform of each block that a list names. */
#include "dispatch.h"

#include "blocks_job.h"
#include "daemon/resource/job.h"
#include "daemon/net/session.h"

static void answer(struct job *job)
{
	const struct blocks_job *list = job->own;
	const uint64_t passed = list->n > 0 ? list->blocks.passed : 0;
	const uint64_t moved = list->n - passed - list->blocks.beyond;
	const struct msg_blocks_done done = {
		.path = bytes_of(family_names[list->blocks.family]),
		.bytes = moved * list->blocks.layers * job->engine_job.move.transform->bytes,
		.ns = job->engine_job.ns,
		.moved = moved,
		.passed = passed,
		.beyond = list->blocks.beyond,
	};

	job_count(job, list->blocks.family, done.bytes, done.ns);
	job_reply(job, &done);
}

static int move_blocks(struct session *session, const struct rpc_request *request, bool scatter,
                       struct error *err)
{
	const struct msg_blocks *p = &request->params.blocks;
	struct blocks_job *list;
	struct order order;
	int r = order_of(session, blocks, p, &order, err);

	if (r == 0)
		r = blocks_job_new(session, p, scatter, &list, err);
	return r < 0 ? r : blocks_job_start(session, request, &order, list, answer, err);
}

int method_gather(struct session *session, const struct rpc_request *request, struct error *err)
{
	return move_blocks(session, request, false, err);
}

int method_scatter(struct session *session, const struct rpc_request *request, struct error *err)
{
	return move_blocks(session, request, true, err);
}
