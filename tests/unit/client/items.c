/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how items are put into messages, and that each item gets its own status. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "server.h"

#define MOST 1000

static struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static struct tma_transform transform = { .dst = &tensor, .src = &tensor };
static struct tma_item items[MOST];
static tma_plan *plan;
static tma_region *region;

/* Records what the service received in each message and how it answers. */
static struct {
	uint32_t items;  /* number of items in the message */
	uint64_t offset; /* source offset of its first item */
	bool waits;
	bool signals;
	enum completion reply;
} messages[MOST];
static int n_messages;
static int refuses = -1;          /* index of the message that is refused; -1: none */
static int64_t bad = -2;          /* items with this source offset fail with OUT_OF_RANGE */
static const char *sentence = ""; /* the error text of such items */
static uint32_t n_statuses;       /* the wrong number of statuses in a reply; 0: the right one */
static bool drops;                /* the reply leaves the error texts out */

static uint64_t offset_of(const struct submit_item *item)
{
	return item->is_run ? item->run.src.offset : item->transform.src.offset;
}

static void answer(struct server *s, const struct rpc_request *request)
{
	static int32_t codes[MOST];
	const struct msg_submit *p = &request->params.submit;
	struct msg_item_error error = { .name = bytes_of("OUT_OF_RANGE"), .message = bytes_of(sentence) };
	struct msg_submit_done done = { .statuses = { .codes = codes, .n = p->items.n },
		                        .errors = { .items = &error },
		                        .bytes = 10,
		                        .ns = 1 };
	struct submit_item item;
	struct error err;

	for (uint32_t i = 0; i < p->items.n; i++) {
		cr_assert_eq(rpc_decode_item(&p->items, i, &item, &err), 0, "%u: %s", i, err.message);
		if (i == 0)
			messages[n_messages - 1].offset = offset_of(&item);
		codes[i] = 0;
		if ((int64_t)offset_of(&item) != bad)
			continue;
		codes[i] = STATUS_OUT_OF_RANGE;
		error.item = i;
		done.errors.n = !drops;
	}
	if (n_statuses)
		done.statuses.n = n_statuses;
	if (p->reply != COMPLETION_SIGNAL || done.errors.n)
		server_answer(s, request, &done);
}

static void script(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		switch (request.method->id) {
		case METHOD_region_register:
			server_answer_registered(s, &request, 7);
			break;
		case METHOD_plan_prepare:
			server_answer(s, &request, &(struct msg_plan_prepared){ .plan = 9 });
			break;
		case METHOD_submit:
			cr_assert_lt(n_messages, MOST);
			messages[n_messages].items = request.params.submit.items.n;
			messages[n_messages].waits = request.params.submit.has & F(submit, wait);
			messages[n_messages].signals = request.params.submit.has & F(submit, signal);
			messages[n_messages].reply = request.params.submit.reply;
			if (n_messages++ == refuses)
				server_refuse(s, request.msgid, STATUS_QUOTA, "no more of that");
			else
				answer(s, &request);
			break;
		default:
			server_answer_true(s, &request);
		}
	}
}

/* Starts the service and a client with a plan; run i of the plan reads from byte i on. */
static tma_client *start(struct server *s)
{
	int fd = memfd_create("region", MFD_CLOEXEC);
	tma_client *client;

	server_start(s, script);
	client = server_client(s, 5000);
	cr_assert_eq(ftruncate(fd, 4096), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 0, &region), 0);
	close(fd);
	cr_assert_eq(tma_plan_prepare(client, &transform, &plan), 0, "%s", tma_last_error(client));
	for (size_t i = 0; i < MOST; i++)
		items[i] = (struct tma_item){ .plan = plan,
			                      .dst = { .region = region, .offset = 4000 },
			                      .src = { .region = region, .offset = i },
			                      .status = 77 };
	return client;
}

static void stop(struct server *s, tma_client *client)
{
	tma_free(client);
	server_stop(s);
}

static void assert_statuses(size_t from, size_t to, int status)
{
	for (size_t i = from; i < to; i++)
		cr_assert_eq(items[i].status, status, "items[%zu]: %s", i, tma_status_name(items[i].status));
}

Test(items, all_go_well)
{
	struct server s = { 0 };
	tma_client *client = start(&s);

	tensor.region = region;
	items[1] = (struct tma_item){ .transform = &transform };
	cr_assert_eq(tma_run_items(client, items, 3, NULL), 0, "%s", tma_last_error(client));
	assert_statuses(0, 3, 0);
	cr_assert_eq(items[3].status, 77);
	cr_assert_eq(n_messages, 1);
	cr_assert_eq(messages[0].items, 3);
	cr_assert_eq(tma_last_result(client)->bytes, 10);
	cr_assert_eq(tma_last_result(client)->status, 0);
	stop(&s, client);
}

Test(items, more_than_a_message_holds)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_order order = { .wait.region = region, .signal.region = region };
	uint32_t n = 0;

	cr_assert_eq(tma_run_items(client, items, MOST, &order), 0, "%s", tma_last_error(client));
	assert_statuses(0, MOST, 0);
	cr_assert_eq(n_messages, 3);
	for (int i = 0; i < n_messages; i++) {
		cr_assert_eq(messages[i].offset, n, "in order");
		cr_assert_eq(messages[i].waits, i == 0);
		cr_assert_eq(messages[i].signals, i == n_messages - 1);
		n += messages[i].items;
	}
	cr_assert_eq(n, MOST);
	cr_assert_eq(tma_last_result(client)->bytes, 30);
	cr_assert_eq(tma_submit_items(client, items, MOST, NULL, &(tma_ticket){ 0 }), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "n: 1000 items, but only the first 369"), "%s",
	          tma_last_error(client));
	assert_statuses(0, MOST, TMA_INVALID_ARGUMENT);
	stop(&s, client);
}

/* Every field has the largest value that it can take. */
Test(items, no_message_is_too_large)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	int64_t many[TMA_MAX_RANK];
	int perm[TMA_MAX_RANK];
	struct tma_tensor big = { .region = region,
		                  .offset = UINT64_MAX,
		                  .dtype = TMA_FLOAT8_E4M3FN,
		                  .rank = TMA_MAX_RANK,
		                  .strides = many };
	struct tma_conversion conversion = { .cast = TMA_CAST_SATURATE,
		                             .scale_tensor = &big,
		                             .bias_tensor = &big };
	struct tma_operands operands = { .scale.region = region, .bias.region = region };
	struct tma_transform t = { .dst = &big,
		                   .src = &big,
		                   .perm = perm,
		                   .before = many,
		                   .after = many,
		                   .mode = TMA_PAD_SYMMETRIC,
		                   .value = { .kind = TMA_NUMBER_COMPLEX, .re = 1, .im = 2 },
		                   .conversion = &conversion };

	for (int d = 0; d < TMA_MAX_RANK; d++) {
		many[d] = big.shape[d] = INT64_MAX - d;
		perm[d] = INT32_MAX;
	}
	for (size_t i = 200; i < MOST; i++)
		items[i].operands = &operands;
	cr_assert_eq(tma_run_items(client, items + 200, MOST - 200, NULL), 0, "%s", tma_last_error(client));
	assert_statuses(200, MOST, 0);
	cr_assert_eq(n_messages, 4);
	for (size_t i = 0; i < 200; i++)
		items[i] = (struct tma_item){ .transform = &t };
	cr_assert_eq(tma_run_items(client, items, 200, NULL), 0, "%s", tma_last_error(client));
	assert_statuses(0, 200, 0);
	cr_assert_gt(n_messages, 9);
	for (int i = 4; i < n_messages - 1; i++)
		cr_assert_eq(messages[i].items, 9, "%d: %u", i, messages[i].items);
	stop(&s, client);
}

/* ---- Errors ----------------------------------------------------------------------------------------- */

Test(items, one_that_the_service_refuses)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_order order = { .signal.region = region };

	bad = 500; /* an item of the second message */
	sentence = "src.offset: too far";
	cr_assert_eq(tma_run_items(client, items, MOST, &order), TMA_OUT_OF_RANGE);
	cr_assert_str_eq(tma_last_error(client), "items[500]: src.offset: too far");
	sentence = "items[131].src: too far";
	cr_assert_eq(tma_run_items(client, items, MOST, NULL), TMA_OUT_OF_RANGE);
	cr_assert_str_eq(tma_last_error(client), "items[500].src: too far", "the number is the caller's");
	drops = true;
	cr_assert_eq(tma_run_items(client, items, MOST, NULL), TMA_OUT_OF_RANGE);
	cr_assert(strstr(tma_last_error(client), "items[500]: "), "%s", tma_last_error(client));
	assert_statuses(0, 500, 0);
	assert_statuses(500, 501, TMA_OUT_OF_RANGE);
	assert_statuses(501, MOST, 0);
	cr_assert_eq(n_messages, 9, "the others go on");
	cr_assert_not(messages[2].signals, "not all went well");
	cr_assert_eq(tma_last_result(client)->bytes, 30);
	stop(&s, client);
}

Test(items, one_that_is_not_sent)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_order order = { .signal.region = region };

	items[2].src.region = NULL;
	items[3].plan = NULL;
	cr_assert_eq(tma_run_items(client, items, 5, &order), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client),
	                 "items[2]: src.region is NULL; a place is a byte of a region");
	assert_statuses(0, 2, 0);
	assert_statuses(2, 4, TMA_INVALID_ARGUMENT);
	assert_statuses(4, 5, 0);
	cr_assert_eq(messages[0].items, 3);
	cr_assert_not(messages[0].signals);
	bad = 4;
	sentence = "too far";
	cr_assert_eq(tma_run_items(client, items, 5, NULL), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(client), "items[2]: "), "the first: %s", tma_last_error(client));
	bad = 1;
	cr_assert_eq(tma_run_items(client, items, 5, NULL), TMA_OUT_OF_RANGE);
	cr_assert_str_eq(tma_last_error(client), "items[1]: too far");
	bad = 4;
	cr_assert_eq(tma_run_items(client, items + 3, 2, NULL), TMA_INVALID_ARGUMENT);
	assert_statuses(4, 5, TMA_OUT_OF_RANGE);
	n_messages = 0;
	cr_assert_eq(tma_run_items(client, items + 2, 2, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(n_messages, 0, "nothing is left to send");
	stop(&s, client);
}

Test(items, what_stops_all_of_them)
{
	struct server s = { 0 };
	tma_client *client = start(&s);

	refuses = 1;
	items[0].src.region = NULL;
	cr_assert_eq(tma_run_items(client, items, MOST, NULL), TMA_INVALID_ARGUMENT, "the first item's");
	cr_assert_eq(n_messages, 2);
	assert_statuses(1, 1 + messages[0].items, 0);
	assert_statuses(1 + messages[0].items, MOST, TMA_QUOTA);
	stop(&s, client);
}

Test(items, statuses_that_are_not_as_many)
{
	struct server s = { 0 };
	tma_client *client = start(&s);

	n_statuses = 2;
	cr_assert_eq(tma_run_items(client, items, 3, NULL), TMA_PROTOCOL);
	cr_assert(strstr(tma_last_error(client), "2 statuses for 3 items"), "%s", tma_last_error(client));
	cr_assert_eq(items[2].status, TMA_PROTOCOL);
	stop(&s, client);
}

Test(items, what_is_refused_here)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_order order = { .completion = TMA_COMPLETION_QUEUED };
	tma_ticket ticket;

	cr_assert_eq(tma_run_items(NULL, items, 1, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(items[0].status, TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_run_items(client, NULL, 1, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "items is NULL");
	cr_assert_eq(tma_run_items(client, items, 0, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_submit_items(client, items, 0, NULL, &ticket), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "n: a request needs at least 1 item, got 0");
	cr_assert_eq(tma_run_items(client, items, 2, &order), TMA_INVALID_ARGUMENT);
	assert_statuses(0, 2, TMA_INVALID_ARGUMENT);
	transform.order = &order;
	items[0] = (struct tma_item){ .transform = &transform };
	items[1].transform = &transform;
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(tma_run_items(client, items + i, 1, NULL), TMA_INVALID_ARGUMENT);
		cr_assert(strstr(tma_last_error(client), i ? "both given" : "transform.order"), "%s",
		          tma_last_error(client));
	}
	cr_assert_eq(n_messages, 0);
	stop(&s, client);
}

/* ---- By ticket -------------------------------------------------------------------------------------- */

Test(items, by_ticket)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_result result;
	tma_ticket ticket;

	bad = 1;
	sentence = "too far";
	cr_assert_eq(tma_submit_items(client, items, 3, NULL, &ticket), 0, "%s", tma_last_error(client));
	assert_statuses(0, 3, TMA_PENDING);
	cr_assert_eq(tma_wait(client, ticket, &result), TMA_OUT_OF_RANGE);
	cr_assert_str_eq(tma_last_error(client), "items[1]: too far");
	cr_assert_eq(result.bytes, 10);
	assert_statuses(0, 1, 0);
	assert_statuses(2, 3, 0);
	refuses = 1;
	cr_assert_eq(tma_submit_items(client, items, 3, NULL, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_QUOTA);
	cr_assert_str_eq(tma_last_error(client), "no more of that");
	assert_statuses(0, 3, TMA_QUOTA);
	stop(&s, client);
}

Test(items, without_a_ticket)
{
	struct server s = { 0 };
	tma_client *client = start(&s);
	struct tma_order order = { .signal.region = region, .completion = TMA_COMPLETION_SIGNAL };

	cr_assert_eq(tma_submit_items(client, items, 3, &order, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_take_error(client), 0);
	assert_statuses(0, 3, TMA_PENDING);
	bad = 2;
	sentence = "too far";
	cr_assert_eq(tma_submit_items(client, items, 3, &order, NULL), 0);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_take_error(client), TMA_OUT_OF_RANGE);
	cr_assert_str_eq(tma_last_error(client), "items[2]: too far");
	items[1].plan = NULL;
	n_messages = 0;
	cr_assert_eq(tma_submit_items(client, items, 3, &order, NULL), TMA_INVALID_ARGUMENT);
	assert_statuses(0, 3, TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(n_messages, 0, "nobody would learn which was left out");
	stop(&s, client);
}
