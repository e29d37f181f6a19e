/* SPDX-License-Identifier: Apache-2.0 */
/* Tests taking tickets in the order in which their transforms ended: who takes which one, who waits, and what
 * is left when a connection is lost. */
#include <poll.h>
#include <string.h>

#include <criterion/criterion.h>

#include "proto/clock.h"
#include "server.h"

#define N 4

static const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static int users[N];
static const int answered[N] = { 2, 0, 3, 1 }; /* the order of the replies */

/* Reads N transforms and answers them in another order, one with an error; then it answers whatever comes. */
static void script_shuffled(struct server *s)
{
	struct rpc_request request;
	uint32_t msgids[N];

	for (int i = 0; i < N; i++) {
		if (!server_request(s, &request))
			return;
		msgids[i] = request.msgid;
	}
	for (int i = 0; i < N; i++) {
		if (answered[i] == 3)
			server_refuse(s, msgids[3], STATUS_BUSY, "not now");
		else
			server_answer_transform(s, msgids[answered[i]], "memcpy", (uint64_t)answered[i]);
	}
	server_polite(s);
}

static void submit_all(tma_client *client, tma_ticket *tickets)
{
	for (int i = 0; i < N; i++) {
		struct tma_order order = { .user = &users[i] };
		struct tma_transform t = { .dst = &tensor, .src = &tensor, .order = &order };

		cr_assert_eq(tma_submit(client, &t, &tickets[i]), 0, "%s", tma_last_error(client));
	}
}

static void assert_is(const tma_client *client, const struct tma_completed *completed,
                      const tma_ticket *tickets, int i)
{
	cr_assert_eq(completed->ticket, tickets[i]);
	cr_assert_eq(completed->user, &users[i]);
	cr_assert_eq(completed->result.status, i == 3 ? TMA_BUSY : 0);
	cr_assert_eq(completed->result.bytes, i == 3 ? 0 : (uint64_t)i);
	if (i == 3)
		cr_assert_str_eq(tma_last_error(client), "not now");
}

Test(next, tickets_come_in_the_order_in_which_they_ended)
{
	struct server s = { 0 };
	struct tma_completed completed;
	tma_ticket tickets[N];
	tma_client *client;

	server_start(&s, script_shuffled);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_next(client, -1, &completed), TMA_NOT_FOUND, "nothing was submitted");
	submit_all(client, tickets);
	for (int i = 0; i < N; i++) {
		cr_assert_eq(tma_next(client, -1, &completed), 0, "%s", tma_last_error(client));
		assert_is(client, &completed, tickets, answered[i]);
		cr_assert_eq(tma_wait(client, completed.ticket, NULL), TMA_NOT_FOUND, "it was taken");
	}
	cr_assert_eq(tma_next(client, 0, &completed), TMA_NOT_FOUND);
	cr_assert_eq(tma_next(client, 0, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_next(NULL, 0, &completed), TMA_INVALID_ARGUMENT);
	tma_free(client);
	server_stop(&s);
}

Test(next, in_another_loop)
{
	struct server s = { 0 };
	struct tma_completed completed;
	tma_ticket tickets[N];
	tma_client *client;
	int n = 0, rc;

	server_start(&s, script_shuffled);
	client = server_client(&s, 5000);
	submit_all(client, tickets);
	while (n < N) {
		struct pollfd wait = { .fd = tma_fd(client), .events = tma_events(client) };

		cr_assert_eq(poll(&wait, 1, 5000), 1);
		cr_assert_geq(tma_dispatch(client), 0);
		while ((rc = tma_next(client, 0, &completed)) == 0)
			assert_is(client, &completed, tickets, answered[n++]);
		cr_assert_eq(rc, n < N ? TMA_PENDING : TMA_NOT_FOUND);
	}
	tma_free(client);
	server_stop(&s);
}

/* Once any call has taken a ticket, no other one finds it, whether it was the first, a middle one or the
 * last. */
Test(next, among_those_that_wait_and_poll)
{
	struct server s = { 0 };
	struct tma_completed completed;
	tma_ticket tickets[N], another;
	tma_client *client;

	server_start(&s, script_shuffled);
	client = server_client(&s, 5000);
	submit_all(client, tickets);
	cr_assert_eq(tma_wait(client, tickets[1], NULL), 0, "the last one: all have ended");
	cr_assert_eq(tma_poll(client, tickets[0], NULL), 0, "of the middle");
	cr_assert_eq(tma_submit_ping(client, &another), 0);
	cr_assert_eq(tma_ping(client), 0, "no ticket is of a call that waits");
	cr_assert_eq(tma_poll(client, tickets[2], NULL), 0, "of the front");
	cr_assert_eq(tma_next(client, 0, &completed), 0);
	assert_is(client, &completed, tickets, 3);
	cr_assert_eq(tma_next(client, 0, &completed), 0);
	cr_assert(completed.ticket == another && completed.user == NULL);
	cr_assert_eq(tma_next(client, 0, &completed), TMA_NOT_FOUND);
	tma_free(client);
	server_stop(&s);
}

/* Each of many tickets is taken once, though their slots are reused. */
Test(next, many)
{
	enum { MANY = 5000, DEEP = 100 };
	static bool seen[MANY];
	struct server s = { 0 };
	struct tma_completed completed;
	size_t submitted = 0, ended = 0;
	tma_client *client;
	tma_ticket ticket;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	tma_set_batching(client, true);
	while (ended < MANY) {
		while (submitted < MANY && submitted - ended < DEEP) {
			struct tma_order order = { .user = &seen[submitted++] };
			struct tma_transform t = { .dst = &tensor, .src = &tensor, .order = &order };

			cr_assert_eq(tma_submit(client, &t, &ticket), 0);
			if (submitted % 7 == 0) {
				cr_assert_eq(tma_wait(client, ticket, NULL), 0);
				*(bool *)order.user = true;
				ended++;
			}
		}
		if (ended == MANY)
			break;
		cr_assert_eq(tma_next(client, -1, &completed), 0);
		cr_assert_not(*(bool *)completed.user);
		*(bool *)completed.user = true;
		ended++;
	}
	for (size_t i = 0; i < MANY; i++)
		cr_assert(seen[i]);
	tma_free(client);
	server_stop(&s);
}

static void script_silent(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request))
		;
}

Test(next, waits_no_longer_than_asked)
{
	struct server s = { 0 };
	struct tma_completed completed;
	tma_ticket tickets[N];
	tma_client *client;
	int64_t start;

	server_start(&s, script_silent);
	client = server_client(&s, 1);
	submit_all(client, tickets);
	start = clock_ms();
	cr_assert_eq(tma_next(client, 0, &completed), TMA_PENDING);
	cr_assert_eq(tma_next(client, 100, &completed), TMA_PENDING);
	cr_assert_geq(clock_ms() - start, 99);
	cr_assert_geq(tma_fd(client), 0, "the client's timeout plays no part");
	tma_free(client);
	server_stop(&s);
}

static void script_swallow(struct server *s)
{
	struct rpc_request request;

	for (int i = 0; i < N; i++)
		server_request(s, &request);
}

Test(next, a_lost_connection_ends_all)
{
	struct server s = { 0 };
	struct tma_completed completed;
	bool seen[N] = { false };
	tma_ticket tickets[N];
	tma_client *client;

	server_start(&s, script_swallow);
	client = server_client(&s, 5000);
	submit_all(client, tickets);
	for (int i = 0; i < N; i++) {
		cr_assert_eq(tma_next(client, -1, &completed), 0);
		cr_assert_eq(completed.result.status, TMA_DISCONNECTED);
		cr_assert_not(seen[(int *)completed.user - users]);
		seen[(int *)completed.user - users] = true;
	}
	cr_assert_eq(tma_next(client, -1, &completed), TMA_NOT_FOUND);
	tma_free(client);
	server_stop(&s);
}
