/* SPDX-License-Identifier: Apache-2.0 */
/* The layouts, places and plans of requests. */
#include "transforms.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/resource/job.h"
#include "daemon/server.h"
#include "daemon/net/session.h"

/* The alignment assumed for tensors without a place: to a plan, no address is more aligned. */
#define GREATEST_ALIGN 16

static int layout_of(struct tensor_layout *ret, const struct msg_tensor *tensor, const char *name,
                     struct error *err)
{
	bool strided = tensor->has & F(tensor, strides);

	if (strided && tensor->strides.n != tensor->shape.n)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "%s.strides: %" PRIu32 " entries, but shape has %" PRIu32, name,
		                 tensor->strides.n, tensor->shape.n);
	return tensor_layout_init(ret, tensor->dtype, tensor->shape.n, tensor->shape.v,
	                          strided ? tensor->strides.v : NULL, name, err);
}

/* -1: not given. */
static int copy_ints(int64_t *ret, const struct int_list *list, bool present)
{
	if (!present)
		return -1;
	memcpy(ret, list->v, list->n * sizeof *ret);
	return (int)list->n;
}

int transform_spec_of(const struct msg_transform *params, struct transform_spec *ret, struct error *err)
{
	int r = layout_of(&ret->dst, &params->dst, "dst", err);

	if (r == 0)
		r = layout_of(&ret->src, &params->src, "src", err);
	if (r < 0)
		return r;
	ret->n_perm = copy_ints(ret->perm, &params->perm, params->has & F(transform, perm));
	ret->n_before = copy_ints(ret->before, &params->before, params->has & F(transform, before));
	ret->n_after = copy_ints(ret->after, &params->after, params->has & F(transform, after));
	ret->mode = params->mode;
	ret->value = params->value;
	return 0;
}

int placed_find(struct session *session, const struct region_place *dst, const char *dst_name,
                const struct region_place *src, const char *src_name, struct placed *ret, struct error *err)
{
	int r = region_table_find(&session->regions, dst->region, dst_name, &ret->dst, err);

	if (r == 0)
		r = region_table_find(&session->regions, src->region, src_name, &ret->src, err);
	if (r == 0)
		r = region_check_writable(ret->dst, dst_name, err);
	ret->dst_offset = dst->offset;
	ret->src_offset = src->offset;
	return r;
}

int placed_of(struct session *session, const struct msg_transform *params, struct placed *ret,
              struct error *err)
{
	const struct region_place dst = { params->dst.region, params->dst.offset };
	const struct region_place src = { params->src.region, params->src.offset };

	if (!(params->dst.has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "dst.region: missing");
	if (!(params->src.has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "src.region: missing");
	return placed_find(session, &dst, "dst.region", &src, "src.region", ret, err);
}

struct tensor_place place_of(const struct region *region, uint64_t offset)
{
	const struct engine_memory *memory = region->memory;

	return (struct tensor_place){ .memory = { memory->memory[0], memory->memory[1] },
		                      .base = memory->base,
		                      .offset = offset,
		                      .size = memory->size };
}

struct plan_facts placed_facts(const struct session *session, const struct placed *placed)
{
	struct plan_facts facts = session->server->engine->facts;
	uint64_t dst = placed ? placed->dst->memory->base + placed->dst_offset : 0;
	uint64_t src = placed ? placed->src->memory->base + placed->src_offset : 0;
	uint64_t bits = dst | src | GREATEST_ALIGN;

	facts.align = (uint32_t)(bits & -bits); /* the largest power of two that divides both */
	if (facts.tma) {
		facts.dst_phase = dst % PLAN_PHASE;
		facts.src_phase = src % PLAN_PHASE;
	}
	return facts;
}

int placed_check(const struct placed *placed, const struct transform *transform, struct error *err)
{
	struct tensor_place dst = place_of(placed->dst, placed->dst_offset);
	struct tensor_place src = place_of(placed->src, placed->src_offset);

	return transform_check_places(transform, &dst, &src, err);
}

struct engine_move placed_move(const struct plan_entry *entry, const struct plan *plan,
                               const struct placed *placed)
{
	return (struct engine_move){
		.transform = &entry->transform,
		.plan = plan,
		.dst = placed->dst->memory,
		.src = placed->src->memory,
		.dst_offset = placed->dst_offset,
		.src_offset = placed->src_offset,
	};
}

int transform_plan(struct session *session, const struct msg_transform *params, struct placed *ret,
                   struct plan_entry **ret_plan, struct error *err)
{
	struct transform_spec spec;
	struct plan_facts facts;
	int r = transform_spec_of(params, &spec, err);

	if (r == 0)
		r = placed_of(session, params, ret, err);
	if (r < 0)
		return r;
	facts = placed_facts(session, ret);
	r = plan_cache_get(&session->server->plans, &spec, &facts, ret_plan, err);
	if (r < 0)
		return r;
	r = placed_check(ret, &(*ret_plan)->transform, err);
	if (r < 0)
		plan_entry_unref(*ret_plan);
	return r;
}

static void answer(struct job *job)
{
	enum family family = job->engine_job.move.plan->family;
	struct msg_transform_done done = {
		.path = bytes_of(family_names[family]),
		.bytes = job->plan->transform.bytes,
		.ns = job->engine_job.ns,
	};

	job_count(job, family, done.bytes, done.ns);
	job_reply(job, &done);
}

int transform_start(struct session *session, const struct rpc_request *request, const struct order *order,
                    struct plan_entry *plan, const struct placed *placed, struct error *err)
{
	struct job *job = job_new(session, request, order, answer, err);

	if (!job) {
		plan_entry_unref(plan);
		return err->status;
	}
	job_set_move(job, plan, placed);
	job_submit(job);
	return 0;
}
