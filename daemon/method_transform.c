/* copy, transpose, pad, transform: check against the regions, find or make the plan, queue the job.
 * explain: the same without a job. */
#include "dispatch.h"

#include <inttypes.h>
#include <string.h>

#include "job.h"
#include "region.h"
#include "server.h"
#include "session.h"

/* What explain takes for the alignment of a tensor without a region. */
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

static int spec_of(struct transform_spec *spec, const struct msg_transform *p, struct error *err)
{
	int r = layout_of(&spec->dst, &p->dst, "dst", err);

	if (r == 0)
		r = layout_of(&spec->src, &p->src, "src", err);
	if (r < 0)
		return r;
	spec->n_perm = copy_ints(spec->perm, &p->perm, p->has & F(transform, perm));
	spec->n_before = copy_ints(spec->before, &p->before, p->has & F(transform, before));
	spec->n_after = copy_ints(spec->after, &p->after, p->has & F(transform, after));
	spec->mode = p->mode;
	spec->value = p->value;
	return 0;
}

static int find_region(struct session *session, const struct msg_tensor *tensor, const char *name,
                       struct region **ret, struct error *err)
{
	if (!(tensor->has & F(tensor, region)))
		return error_set(err, STATUS_INVALID_ARGUMENT, "%s: it is missing", name);
	return region_table_find(&session->regions, tensor->region, name, ret, err);
}

static struct tensor_place place_of(const struct region *region, uint64_t offset)
{
	const struct engine_memory *memory = region->memory;

	return (struct tensor_place){ .memory = { memory->memory[0], memory->memory[1] },
		                      .base = memory->base,
		                      .offset = offset,
		                      .size = memory->size };
}

/* The largest power of two, up to GREATEST_ALIGN, that both addresses are a multiple of. */
static uint32_t common_align(uint64_t dst_address, uint64_t src_address)
{
	uint64_t bits = dst_address | src_address | GREATEST_ALIGN;

	return (uint32_t)(bits & -bits);
}

/* A request that has passed every check. */
struct prepared {
	struct plan_entry *plan; /* a reference */
	struct region *dst;      /* NULL when not placed */
	struct region *src;
};

/* placed: both tensors have to lie in regions. Else their bases count as aligned, and ranges are free. */
static int prepare(struct session *session, const struct msg_transform *p, bool placed, struct prepared *ret,
                   struct error *err)
{
	struct server *server = session->server;
	struct plan_facts facts = server->engine->facts;
	struct tensor_place dst = { .offset = p->dst.offset }, src = { .offset = p->src.offset };
	struct transform_spec spec;
	int r = spec_of(&spec, p, err);

	*ret = (struct prepared){ 0 };
	if (r == 0 && placed)
		r = find_region(session, &p->dst, "dst.region", &ret->dst, err);
	if (r == 0 && placed)
		r = find_region(session, &p->src, "src.region", &ret->src, err);
	if (r < 0)
		return r;
	if (placed) {
		if (!ret->dst->memory->writable)
			return error_set(err, STATUS_PERMISSION,
			                 "dst.region: region %" PRIu64
			                 " is read-only (registered with writable=false)",
			                 ret->dst->id);
		dst = place_of(ret->dst, p->dst.offset);
		src = place_of(ret->src, p->src.offset);
	}

	facts.align = common_align(dst.base + dst.offset, src.base + src.offset);
	if (facts.tma) {
		facts.dst_phase = (dst.base + dst.offset) % GREATEST_ALIGN;
		facts.src_phase = (src.base + src.offset) % GREATEST_ALIGN;
	}
	r = plan_cache_get(&server->plans, &spec, &facts, &ret->plan, err);
	if (r < 0)
		return r;
	if (placed)
		r = transform_check_places(&ret->plan->transform, &dst, &src, err);
	if (r < 0)
		plan_entry_unref(ret->plan);
	return r;
}

int method_transform(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct prepared ready;
	int r = prepare(session, p, true, &ready, err);

	if (r < 0)
		return r;
	return job_submit(session, request->msgid, request->method, ready.plan,
	                  (struct job_tensor){ ready.dst, p->dst.offset },
	                  (struct job_tensor){ ready.src, p->src.offset }, err);
}

static void explain(struct session *session, const struct rpc_request *request,
                    const struct plan_entry *entry)
{
	const struct plan *plan = &entry->plan;
	const struct nest *nest = &plan->interior;
	struct msg_rule rules[PLAN_MAX_RULES];
	struct msg_explanation e = {
		.family = bytes_of(family_names[plan->family]),
		.engine = bytes_of(session->server->engine->name),
		.swizzle = bytes_of(plan->swizzle),
		.grid = { .n = 1, .v = { plan->grid } },
		.bytes = entry->transform.bytes,
		.element = nest->element,
		.slabs = plan->n_slabs,
		.rules = { rules, (uint32_t)plan->n_rules },
	};

	e.tile.n = (uint32_t)plan->tile_rank;
	memcpy(e.tile.v, plan->tile, (size_t)plan->tile_rank * sizeof *plan->tile);
	e.shape.n = e.dst_strides.n = e.src_strides.n = (uint32_t)nest->rank;
	for (int i = 0; i < nest->rank; i++) {
		e.shape.v[i] = nest->dim[i].n;
		e.dst_strides.v[i] = nest->dim[i].dst;
		e.src_strides.v[i] = nest->dim[i].src;
	}
	for (int i = 0; i < plan->n_rules; i++)
		rules[i] = (struct msg_rule){ .family = bytes_of(family_names[plan->rules[i].family]),
			                      .rule = bytes_of(plan->rules[i].text) };
	session_reply(session, request->msgid, request->method, &e, -1);
}

/* Regions may be left out; when both are named, all is checked as for a transform. */
int method_explain(struct session *session, const struct rpc_request *request, struct error *err)
{
	const struct msg_transform *p = &request->params.transform;
	struct prepared ready;
	int r = prepare(session, p, (p->dst.has & p->src.has & F(tensor, region)) != 0, &ready, err);

	if (r < 0)
		return r;
	explain(session, request, ready.plan);
	plan_entry_unref(ready.plan);
	return 0;
}
