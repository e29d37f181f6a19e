/* SPDX-License-Identifier: Apache-2.0 */
#include "prepared.h"

int prepare(struct engine *engine, const struct transform_spec *spec, const struct engine_blocks *blocks,
            struct engine_move *move, struct error *err)
{
	const uint64_t dst = move->dst->base + move->dst_offset, src = move->src->base + move->src_offset;
	const struct plan_places places =
	    blocks ? plan_places_of_many(blocks_bits(blocks, dst, src)) : plan_places(dst, src);
	int r = engine_prepare(engine, spec, places, &move->plan, err);

	if (r == 0)
		move->transform = engine_plan_transform(move->plan);
	return r;
}

void prepared_free(struct engine_move *move)
{
	engine_plan_unref(move->plan);
	move->transform = NULL;
	move->plan = NULL;
}

int prepared_path(struct engine *engine, const struct engine_move *move, const char **ret, struct error *err)
{
	struct engine_explanation explanation;
	int r = engine_explain(engine, move->plan, &explanation, err);

	*ret = r == 0 ? family_names[explanation.family] : "";
	return r;
}

const char *job_path(const struct engine_job *job)
{
	return family_names[job->blocks ? job->blocks->family : job->move.family];
}
