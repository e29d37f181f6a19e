/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: transforms that the service has checked except for their places. A plan's handle lives until it is
 * released or its client is freed; it holds what a later connection needs to prepare the plan again. */
#include "client.h"

#include <stdlib.h>

static void plan_free(tma_plan *plan);

/* ---- Preparing ---------------------------------------------------------------------------------------- */

static int on_prepared(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                       void *arg, struct error *err)
{
	tma_plan *plan = arg;
	struct msg_plan_prepared done;
	int rc = rpc_decode_result(reply, method, &done, err);

	if (rc < 0)
		return rc;
	plan->id = done.plan;
	plan->connection = client->connection;
	plan->life = REGION_KNOWN;
	return 0;
}

int plan_prepare(tma_plan *plan, int64_t deadline)
{
	return client_call_until(plan->client,
	                         &(struct call){ .method = METHOD_plan_prepare,
	                                         .params = &plan->params,
	                                         .fd = -1,
	                                         .on_reply = on_prepared,
	                                         .arg = plan },
	                         deadline);
}

/* Copy of a transform, whose tensors have no places. */
struct plain {
	struct tma_transform transform;
	struct tma_tensor dst, src;
	struct tma_conversion conversion;
	struct tma_tensor scale, bias;
	struct tma_amax amax;
	struct tma_tensor amax_scale, amax_inverse;
};

/* Copies the tensor to room without its place. Returns room, or NULL if tensor is NULL. */
static const struct tma_tensor *without_place(const struct tma_tensor *tensor, struct tma_tensor *room)
{
	if (!tensor)
		return NULL;
	*room = *tensor;
	room->region = NULL;
	room->offset = 0;
	return room;
}

static void plain_conversion(struct plain *plain, const struct tma_conversion *conversion)
{
	plain->conversion = *conversion;
	plain->conversion.scale_tensor = without_place(conversion->scale_tensor, &plain->scale);
	plain->conversion.bias_tensor = without_place(conversion->bias_tensor, &plain->bias);
	plain->transform.conversion = &plain->conversion;
	if (!conversion->amax)
		return;
	plain->amax = *conversion->amax;
	plain->amax.scale = without_place(conversion->amax->scale, &plain->amax_scale);
	plain->amax.inverse = without_place(conversion->amax->inverse, &plain->amax_inverse);
	plain->conversion.amax = &plain->amax;
}

static int plan_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret)
{
	struct plain plain;

	if (!t || !t->dst || !t->src)
		return transform_params(client, t, ret);
	plain.transform = *t;
	plain.transform.dst = without_place(t->dst, &plain.dst);
	plain.transform.src = without_place(t->src, &plain.src);
	if (t->conversion)
		plain_conversion(&plain, t->conversion);
	return transform_params(client, &plain.transform, ret);
}

int tma_plan_prepare(tma_client *client, const struct tma_transform *transform, tma_plan **ret)
{
	int rc = client_check_ret(client, ret, "the plan goes");
	tma_plan *plan;

	if (rc == 0)
		rc = client_check_usable(client);
	if (rc == 0)
		rc = transform_check_part(client, transform, "set, but each run of a plan has its own");
	if (rc < 0)
		return rc;
	plan = calloc(1, sizeof *plan);
	if (!plan)
		return client_fail(client, STATUS_NO_MEMORY, "out of memory for a plan");
	plan->client = client;
	plan->next = client->plans;
	client->plans = plan;
	rc = plan_params(client, transform, &plan->params);
	if (rc == 0)
		rc = plan_prepare(plan, client_deadline(client));
	if (rc < 0)
		plan_free(plan);
	else
		*ret = plan;
	return rc;
}

/* ---- Running ------------------------------------------------------------------------------------------ */

int plan_param(tma_client *client, const tma_plan *plan, uint64_t *ret)
{
	if (!plan)
		return client_fail(client, STATUS_INVALID_ARGUMENT,
		                   "plan is NULL; tma_plan_prepare makes one");
	if (plan->client != client)
		return client_fail(client, STATUS_INVALID_ARGUMENT, "plan: it belongs to another client");
	/* The plan is const to the program, but the launcher's id is recorded in it. */
	if (client->launching)
		return launch_plan(client, (tma_plan *)plan, ret);
	if (plan->life == REGION_GONE)
		return client_fail(client, plan->error.status, "plan: it could not be prepared again: %s",
		                   plan->error.message);
	*ret = plan->id;
	return 0;
}

int run_params(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
               struct msg_plan_run *ret)
{
	int rc = plan_param(client, plan, &ret->plan);

	if (rc == 0)
		rc = place_param(client, dst, "dst", &ret->dst);
	if (rc == 0)
		rc = place_param(client, src, "src", &ret->src);
	ret->has = F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src);
	return rc;
}

static int run_fill(tma_client *client, const struct call *call, struct request *request, union params *ret)
{
	const struct plan_run *run = call->from;
	struct msg_plan_run *params = &ret->plan_run;
	int rc = run_params(client, run->plan, run->dst, run->src, params);

	(void)request;
	return rc < 0 ? rc : order_fill(plan_run, client, call->order, params);
}

struct call call_of_run(const struct plan_run *run, const struct tma_order *order)
{
	return (struct call){ .method = METHOD_plan_run,
		              .fill = run_fill,
		              .from = run,
		              .order = order,
		              .fd = -1,
		              .on_reply = on_transform_done };
}

int tma_plan_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                 const struct tma_order *order)
{
	struct plan_run run = { plan, dst, src };
	struct call call = call_of_run(&run, order);

	return move_call(client, &call);
}

int tma_submit_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                   const struct tma_order *order, tma_ticket *ret)
{
	struct plan_run run = { plan, dst, src };
	struct call call = call_of_run(&run, order);

	return move_submit(client, &call, ret);
}

/* ---- Over tables -------------------------------------------------------------------------------------- */

struct table_run {
	const tma_plan *plan;
	const tma_table *dst, *src;
};

static int table_run_params(tma_client *client, const struct table_run *run, struct msg_plan_run *ret)
{
	int rc = plan_param(client, run->plan, &ret->plan);

	if (rc == 0)
		rc = table_param(client, run->dst, "dst", &ret->dst_table);
	if (rc == 0)
		rc = table_param(client, run->src, "src", &ret->src_table);
	ret->has = F(plan_run, plan) | F(plan_run, dst_table) | F(plan_run, src_table);
	return rc;
}

static int table_run_fill(tma_client *client, const struct call *call, struct request *request,
                          union params *ret)
{
	const struct table_run *run = call->from;
	struct msg_plan_run *params = &ret->plan_run;
	int rc = table_run_params(client, run, params);

	(void)request;
	return rc < 0 ? rc : order_fill(plan_run, client, call->order, params);
}

static struct call table_call_of(const struct table_run *run, const struct tma_order *order)
{
	struct call call = call_of_run(NULL, order);

	call.fill = table_run_fill;
	call.from = run;
	return call;
}

int tma_plan_run_tables(tma_client *client, const tma_plan *plan, const tma_table *dst, const tma_table *src,
                        const struct tma_order *order)
{
	struct table_run run = { plan, dst, src };
	struct call call = table_call_of(&run, order);

	return move_call(client, &call);
}

int tma_submit_run_tables(tma_client *client, const tma_plan *plan, const tma_table *dst,
                          const tma_table *src, const struct tma_order *order, tma_ticket *ret)
{
	struct table_run run = { plan, dst, src };
	struct call call = table_call_of(&run, order);

	return move_submit(client, &call, ret);
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* The service has released the plan already if its connection has ended. */
int tma_plan_release(tma_plan *plan)
{
	tma_client *client = plan ? plan->client : NULL;
	struct msg_plan_release params = { .has = F(plan_release, plan) };
	bool is_stale;
	int rc;

	if (!plan)
		return 0;
	params.plan = plan->id;
	is_stale = plan->connection != client->connection || client->sock < 0 || client->is_device_lost;
	plan_free(plan);
	if (is_stale)
		return 0;
	client->is_bound = true;
	rc = client_call(
	    client, &(struct call){
			.method = METHOD_plan_release, .params = &params, .fd = -1, .on_reply = on_true });
	client->is_bound = false;
	return rc == STATUS_DISCONNECTED ? 0 : rc;
}

static void plan_free(tma_plan *plan)
{
	tma_plan **link = &plan->client->plans;

	while (*link != plan)
		link = &(*link)->next;
	*link = plan->next;
	launch_forget_plan(plan);
	free(plan);
}

void client_free_plans(tma_client *client)
{
	while (client->plans)
		plan_free(client->plans);
}
