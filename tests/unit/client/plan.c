/* SPDX-License-Identifier: Apache-2.0 */
/* Tests plans: what the client sends for them, and that it prepares them anew on a later connection. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "server.h"

static struct tma_tensor tensor = { .offset = 8, .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static struct tma_transform transform = { .dst = &tensor, .src = &tensor };

static int seen[METHOD_COUNT];     /* requests by method, on all connections */
static struct msg_transform asked; /* the last plan_prepare */
static struct msg_plan_run run;    /* the last plan_run */
static int deaths;                 /* connections that still end when a plan_run or a ping comes */
static int refusals;               /* plan_prepare requests that later connections still refuse */

/* Connection c numbers its regions from 100 * (c + 1) on, and its plans from 50 above that. */
static void script(struct server *s)
{
	uint64_t region = 100 * (uint64_t)(s->connection + 1), plan = region + 50;
	struct rpc_request request;

	while (server_request(s, &request)) {
		seen[request.method->id]++;
		switch (request.method->id) {
		case METHOD_region_register:
			server_answer_registered(s, &request, region++);
			break;
		case METHOD_plan_prepare:
			asked = request.params.transform;
			if (s->connection > 0 && refusals-- > 0)
				server_refuse(s, request.msgid, STATUS_QUOTA, "no more of that");
			else
				server_answer(s, &request, &(struct msg_plan_prepared){ .plan = plan++ });
			break;
		case METHOD_plan_run:
			run = request.params.plan_run;
			if (s->connection < deaths)
				return;
			server_answer_transform(s, request.msgid, "memcpy", 8);
			break;
		case METHOD_ping:
			server_answer_true(s, &request);
			if (s->connection < deaths)
				return;
			break;
		case METHOD_transform:
			if (request.params.transform.reply != COMPLETION_SIGNAL)
				server_answer_transform(s, request.msgid, "memcpy", 8);
			break;
		default:
			server_answer(s, &request, NULL);
		}
	}
}

static tma_client *start(struct server *s)
{
	tma_client *client;

	s->connections = deaths + 1;
	server_start(s, script);
	client = server_client(s, 5000);
	tma_set_reconnect(client, 1000);
	return client;
}

static tma_region *region_of(tma_client *client)
{
	int fd = memfd_create("region", MFD_CLOEXEC);
	tma_region *region;

	cr_assert_eq(ftruncate(fd, 4096), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 0, &region), 0, "%s",
	             tma_last_error(client));
	close(fd);
	return region;
}

static tma_plan *plan_of(tma_client *client)
{
	tma_plan *plan = NULL;

	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), 0, "%s", tma_last_error(client));
	return plan;
}

Test(plan, life)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	tma_region *region = region_of(client);
	struct tma_result result;
	tma_ticket ticket;
	tma_plan *plan;

	tensor.region = region;
	plan = plan_of(client);
	cr_assert_eq(asked.dst.has, F(tensor, dtype) | F(tensor, shape), "neither region nor offset");
	cr_assert_eq(asked.src.has, F(tensor, dtype) | F(tensor, shape));
	cr_assert_eq(tma_plan_run(client, plan, (struct tma_place){ .region = region, .offset = 1000 },
	                          (struct tma_place){ .region = region, .offset = 2000 }, NULL),
	             0, "%s", tma_last_error(client));
	cr_assert_eq(run.has, F(plan_run, plan) | F(plan_run, dst) | F(plan_run, src));
	cr_assert(run.plan == 150 && run.dst.region == 100 && run.dst.offset == 1000 &&
	          run.src.region == 100 && run.src.offset == 2000);
	cr_assert_eq(tma_last_result(client)->bytes, 8);
	cr_assert_eq(tma_submit_run(client, plan, (struct tma_place){ .region = region, .offset = 0 },
	                            (struct tma_place){ .region = region, .offset = 8 }, NULL, &ticket),
	             0);
	cr_assert_eq(tma_wait(client, ticket, &result), 0);
	cr_assert_str_eq(result.path, "memcpy");
	cr_assert_eq(tma_plan_release(plan), 0, "%s", tma_last_error(client));
	cr_assert_eq(seen[METHOD_plan_release], 1);
	cr_assert_eq(tma_plan_release(NULL), 0);
	plan_of(client); /* the plan is freed with the client */
	tma_free(client);
	server_stop(&s);
}

Test(plan, what_is_refused_here)
{
	struct server s = { 0 };
	tma_client *client = start(&s), *other = tma_new();
	tma_region *region = region_of(client);
	struct tma_place place = { .region = region, .offset = 0 };
	struct tma_order order = { 0 };
	tma_plan *plan = plan_of(client), *none = NULL;
	tma_ticket ticket;

	cr_assert_eq(tma_plan_prepare(NULL, &transform, &none), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_plan_prepare(client, NULL, &none), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "the transform is NULL; a transform has a dst and a src");
	transform.order = &order;
	cr_assert_eq(tma_plan_prepare(client, &transform, &none), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "transform.order"), "%s", tma_last_error(client));
	cr_assert_null(none);
	cr_assert_eq(tma_plan_run(NULL, plan, place, place, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_plan_run(client, NULL, place, place, NULL), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "plan is NULL"), "%s", tma_last_error(client));
	cr_assert_eq(
	    tma_plan_run(client, plan, place, (struct tma_place){ .region = NULL, .offset = 0 }, NULL),
	    TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "src.region is NULL; a place is a byte of a region");
	cr_assert_eq(tma_last_result(client)->status, TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_submit_run(client, NULL, place, place, NULL, &ticket), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_connect(other, s.path), 0);
	cr_assert_eq(tma_plan_run(other, plan, place, place, NULL), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(other), "belongs to another client"), "%s", tma_last_error(other));
	cr_assert_eq(seen[METHOD_plan_run], 0);
	cr_assert_eq(seen[METHOD_plan_prepare], 1);
	tma_free(other);
	tma_free(client);
	server_stop(&s);
}

static int run_it(tma_client *client, tma_plan *plan, tma_region *region, const struct tma_order *order)
{
	return tma_plan_run(client, plan, (struct tma_place){ .region = region, .offset = 0 },
	                    (struct tma_place){ .region = region, .offset = 8 }, order);
}

Test(plan, comes_along)
{
	struct server s = { 0 };
	tma_plan *released, *plan;
	tma_region *region;
	tma_client *client;

	deaths = 2;
	client = start(&s);
	released = plan_of(client);
	plan = plan_of(client);
	region = region_of(client);
	cr_assert_eq(tma_plan_release(released), 0);
	for (uint64_t i = 1; i < 3; i++) {
		cr_assert_eq(tma_ping(client), 0);
		server_wait_hang_up(client);
		if (i == 2)
			break;
		deaths = 1;
		cr_assert_eq(run_it(client, plan, region, NULL), 0, "%s", tma_last_error(client));
		cr_assert_eq(run.plan, 250, "the id is the new connection's");
		cr_assert_eq(run.dst.region, 200);
		cr_assert_eq(tma_reconnects(client), 1);
		deaths = 2;
	}
	cr_assert_eq(seen[METHOD_plan_prepare], 3, "the released one is not");
	cr_assert_eq(tma_plan_release(plan), 0, "it went with its connection");
	cr_assert_eq(seen[METHOD_plan_release], 1);
	tma_free(client);
	server_stop(&s);
}

Test(plan, that_is_refused_for_now_is_asked_for_again)
{
	struct server s = { 0 };
	tma_region *region;
	tma_client *client;
	tma_plan *plan;

	deaths = 1;
	refusals = 3;
	client = start(&s);
	region = region_of(client);
	plan = plan_of(client);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(run_it(client, plan, region, NULL), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

Test(plan, that_is_refused_is_gone)
{
	struct server s = { 0 };
	tma_plan *first, *second;
	tma_region *region;
	tma_client *client;

	deaths = refusals = 1;
	client = start(&s);
	region = region_of(client);
	first = plan_of(client);
	second = plan_of(client);
	cr_assert_eq(tma_ping(client), 0);
	tma_set_reconnect(client, 0);
	cr_assert_eq(run_it(client, first, region, NULL), TMA_QUOTA, "the call that connects reports it");
	cr_assert_str_eq(tma_last_error(client),
	                 "connected, but a plan could not be prepared again: no more of that");
	cr_assert_eq(run_it(client, second, region, NULL), TMA_QUOTA, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_last_error(client), "plan: it could not be prepared again: no more of that");
	cr_assert_eq(run_it(client, first, region, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_plan_release(second), 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- Repeats ---------------------------------------------------------------------------------------- */

Test(plan, a_run_is_repeated_once)
{
	struct server s = { 0 };
	tma_client *client;
	tma_plan *plan;

	deaths = 1;
	client = start(&s);
	plan = plan_of(client);
	cr_assert_eq(run_it(client, plan, region_of(client), NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->repeats, 1);
	cr_assert_eq(seen[METHOD_plan_run], 2);
	tma_free(client);
	server_stop(&s);
}

/* A run that signals is not repeated: whoever has seen the signal may have written to the source since. */
Test(plan, not_one_that_signals)
{
	struct server s = { 0 };
	struct tma_order order = { 0 };
	tma_client *client;
	tma_plan *plan;

	deaths = 1;
	client = start(&s);
	plan = plan_of(client);
	order.signal.region = region_of(client);
	cr_assert_eq(run_it(client, plan, order.signal.region, &order), TMA_DISCONNECTED);
	cr_assert_eq(seen[METHOD_plan_run], 1);
	tma_free(client);
	server_stop(&s);
}

/* A run is not repeated after a request without a ticket: nobody knows whether that request has ended. */
Test(plan, not_after_a_request_without_a_ticket)
{
	struct server s = { 0 };
	struct tma_order order = { .completion = TMA_COMPLETION_SIGNAL };
	tma_client *client;
	tma_plan *plan;

	deaths = 1;
	client = start(&s);
	plan = plan_of(client);
	order.signal.region = region_of(client);
	transform.order = &order;
	cr_assert_eq(tma_submit(client, &transform, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(run_it(client, plan, order.signal.region, NULL), TMA_DISCONNECTED);
	cr_assert_eq(seen[METHOD_plan_run], 1);
	cr_assert_eq(tma_take_error(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_take_error(client), 0);
	tma_free(client);
	server_stop(&s);
}
