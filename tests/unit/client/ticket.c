/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests under way: their order, slots and errors, and a connection whose two directions are full. */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "server.h"

static const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static const struct tma_transform transform = { .dst = &tensor, .src = &tensor };

static void script_backwards(struct server *s)
{
	struct rpc_request request;
	uint32_t msgids[4];
	char path[16];

	for (int i = 0; i < 4; i++) {
		if (!server_request(s, &request))
			return;
		msgids[i] = request.msgid;
	}
	for (int i = 3; i >= 0; i--) {
		snprintf(path, sizeof path, "path%d", i);
		server_answer_transform(s, msgids[i], path, (uint64_t)i);
	}
	server_polite(s);
}

Test(ticket, replies_come_in_any_order)
{
	static const int order[] = { 2, 0, 3, 1 };
	struct server s = { 0 };
	struct tma_result result;
	tma_ticket tickets[4];
	tma_client *client;
	char path[16];

	server_start(&s, script_backwards);
	client = server_client(&s, 5000);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(tma_wait(client, tickets[order[i]], &result), 0);
		snprintf(path, sizeof path, "path%d", order[i]);
		cr_assert_str_eq(result.path, path);
		cr_assert_eq(result.bytes, (uint64_t)order[i]);
		cr_assert_str_eq(tma_last_result(client)->path, path);
	}
	cr_assert_eq(tma_wait(client, tickets[0], NULL), TMA_NOT_FOUND);
	cr_assert_not_null(strstr(tma_last_error(client), "is not outstanding"));
	cr_assert_eq(tma_poll(client, 0, NULL), TMA_NOT_FOUND);
	cr_assert_eq(tma_poll(client, UINT64_MAX, NULL), TMA_NOT_FOUND);
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
}

Test(ticket, a_blocking_call_ends_the_others_meanwhile)
{
	struct server s = { 0 };
	struct tma_result result;
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_poll(client, ticket, &result), 0);
	cr_assert_str_eq(result.path, "memcpy");
	tma_free(client);
	server_stop(&s);
}

Test(ticket, another_loop_dispatches)
{
	struct server s = { 0 };
	tma_ticket tickets[2];
	struct pollfd wait;
	tma_client *client;
	int ended = 0;
	int rc;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0);
	while (ended < 2) {
		wait = (struct pollfd){ .fd = tma_fd(client), .events = tma_events(client) };
		cr_assert_eq(poll(&wait, 1, 5000), 1);
		rc = tma_dispatch(client);
		cr_assert_geq(rc, 0);
		ended += rc;
	}
	cr_assert_eq(ended, 2);
	cr_assert_eq(tma_dispatch(client), 0);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tma_poll(client, tickets[i], NULL), 0);
	tma_free(client);
	server_stop(&s);
}

static void script_late(struct server *s)
{
	struct rpc_request transforms;
	struct rpc_request request;

	server_request(s, &transforms);
	server_request(s, &request);
	server_answer_true(s, &request);
	server_request(s, &request);
	server_answer_transform(s, transforms.msgid, "fill", 1);
	server_answer_true(s, &request);
	server_polite(s);
}

Test(ticket, poll_is_busy_while_it_is_under_way)
{
	struct server s = { 0 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_late);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_poll(client, ticket, NULL), TMA_PENDING);
	cr_assert_str_eq(tma_last_error(client), "");
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_poll(client, ticket, NULL), 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- Batches ---------------------------------------------------------------------------------------- */

Test(ticket, what_is_kept_goes_with_the_flush)
{
	struct server s = { 0 };
	struct tma_result result;
	tma_ticket tickets[3];
	tma_client *client;
	size_t kept;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_submit_ping(client, &tickets[0]), 0);
	cr_assert_eq(buffer_len(&client->out), 0, "sent at once");
	tma_set_batching(client, true);
	cr_assert_eq(tma_submit_ping(client, &tickets[1]), 0);
	kept = buffer_len(&client->out);
	cr_assert_gt(kept, 0);
	cr_assert_eq(tma_events(client), POLLIN | POLLOUT);
	cr_assert_eq(tma_submit(client, &transform, &tickets[2]), 0);
	cr_assert_gt(buffer_len(&client->out), kept);
	cr_assert_eq(tma_flush(client), 0);
	cr_assert_eq(buffer_len(&client->out), 0);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_wait(client, tickets[i], &result), 0, "ticket %d", i);
	cr_assert_str_eq(result.path, "memcpy");
	cr_assert_eq(tma_submit(client, NULL, &tickets[0]), TMA_INVALID_ARGUMENT);
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(tma_flush(NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_submit_ping(NULL, &tickets[0]), TMA_INVALID_ARGUMENT);
}

Test(ticket, who_waits_sends_what_is_kept)
{
	struct server s = { 0 };
	tma_ticket tickets[2];
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	tma_set_batching(client, true);
	cr_assert_eq(tma_submit(client, &transform, &tickets[0]), 0);
	cr_assert_eq(tma_wait(client, tickets[0], NULL), 0);
	cr_assert_eq(tma_submit(client, &transform, &tickets[1]), 0);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_poll(client, tickets[1], NULL), 0, "it went before the ping");
	tma_free(client);
	server_stop(&s);
}

Test(ticket, no_more_is_kept_than_a_send_takes)
{
	enum { N = 10000 };
	static tma_ticket tickets[N];
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	tma_set_batching(client, true);
	for (int i = 0; i < N; i++) {
		cr_assert_eq(tma_submit_ping(client, &tickets[i]), 0, "%d: %s", i, tma_last_error(client));
		cr_assert_leq(buffer_len(&client->out), 64 * 1024, "%d", i);
	}
	for (int i = 0; i < N; i++)
		cr_assert_eq(tma_wait(client, tickets[i], NULL), 0, "%d", i);
	tma_free(client);
	server_stop(&s);
}

static void script_silent(struct server *s)
{
	(void)s;
}

Test(ticket, what_is_kept_ends_with_the_connection)
{
	struct server s = { 0 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_silent);
	client = server_client(&s, 5000);
	tma_set_batching(client, true);
	cr_assert_eq(tma_submit_ping(client, &ticket), 0);
	server_stop(&s);
	cr_assert_eq(tma_flush(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_poll(client, ticket, NULL), TMA_DISCONNECTED);
	tma_free(client);
}

/* ---- Slots ------------------------------------------------------------------------------------------ */

Test(ticket, slots_are_used_again)
{
	struct server s = { 0 };
	tma_ticket tickets[10];
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	for (int round = 0; round < 500; round++) {
		for (int i = 0; i < 10; i++)
			cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0);
		cr_assert_eq(tma_ping(client), 0);
		for (int i = 9; i >= 0; i--)
			cr_assert_eq(tma_wait(client, tickets[i], NULL), 0);
	}
	cr_assert_eq(client->n_requests, 16);
	cr_assert_eq(tma_poll(client, tickets[0], NULL), TMA_NOT_FOUND);
	tma_free(client);
	server_stop(&s);
}

static void script_small_buffers(struct server *s)
{
	int bytes = 4096;

	setsockopt(s->sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	setsockopt(s->sock, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
	server_polite(s);
}

Test(ticket, full_sockets_hold_nobody_up, .timeout = 60)
{
	enum { N = 20000 };
	static tma_ticket tickets[N];
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_small_buffers);
	client = server_client(&s, 20000);
	for (int i = 0; i < N; i++)
		cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0, "%d: %s", i,
		             tma_last_error(client));
	for (int i = 0; i < N; i++)
		cr_assert_eq(tma_wait(client, tickets[i], NULL), 0, "%d: %s", i, tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

static void script_refuse(struct server *s)
{
	struct error error = {
		STATUS_QUOTA,
		"regions_per_uid: this uid's limit on regions is 64; 64 in use, 1 more requested"
	};
	struct rpc_request request;
	struct buffer b = { 0 };

	server_request(s, &request);
	rpc_encode_error(&b, request.msgid, &error);
	server_send(s, &b);
	server_polite(s);
}

Test(ticket, the_services_sentence_is_passed_on)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_refuse);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_transform(client, &transform), TMA_QUOTA);
	cr_assert_str_eq(tma_last_error(client),
	                 "regions_per_uid: this uid's limit on regions is 64; 64 in use, 1 more requested");
	cr_assert_eq(tma_last_result(client)->status, TMA_QUOTA);
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- What is not sent ------------------------------------------------------------------------------- */

struct unsafe_row {
	char name[32];
	struct tma_tensor dst;
	bool has_split;
	enum tma_pad_mode mode;
	struct tma_number value;
	char error[80];
};

ParameterizedTestParameters(ticket, unsafe)
{
	static struct unsafe_row rows[] = {
		{ .name = "rank 33", .dst = { .rank = 33 }, .error = "dst.rank: 33 is not in 0..32" },
		{ .name = "splits -1", .dst = { .n_split = -1 }, .error = "dst.n_split: -1 is not in 0..16" },
		{ .name = "17 splits", .dst = { .n_split = 17 }, .error = "dst.n_split: 17 is not in 0..16" },
		{ .name = "splits without a list",
		  .dst = { .n_split = 1 },
		  .error = "dst.split is NULL, but n_split is 1" },
		{ .name = "splits past 32 dimensions",
		  .dst = { .rank = 30, .n_split = 3 },
		  .has_split = true,
		  .error = "dst.n_split: 3 splits of rank 30 make 33 dimensions; at most 32 are allowed" },
		{ .name = "rank -1", .dst = { .rank = -1 }, .error = "dst.rank: -1 is not in 0..32" },
		{ .name = "dtype", .dst = { .dtype = (enum tma_dtype)17 }, .error = "dst.dtype: 17" },
		{ .name = "mode", .mode = (enum tma_pad_mode)5, .error = "mode: 5" },
		{ .name = "number", .value = { .kind = (enum tma_number_kind)4 }, .error = "value.kind: 4" },
	};

	return cr_make_param_array(struct unsafe_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct unsafe_row *row, ticket, unsafe)
{
	struct tma_transform t = { .dst = &row->dst, .src = &tensor, .mode = row->mode, .value = row->value };
	static const int64_t pairs[2 * TMA_MAX_SPLIT];
	struct server s = { 0 };
	tma_client *client;

	row->dst.split = row->has_split ? pairs : NULL;
	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_transform(client, &t), TMA_INVALID_ARGUMENT, "%s", row->name);
	cr_assert_eq(strncmp(tma_last_error(client), row->error, strlen(row->error)), 0, "%s: %s", row->name,
	             tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0, "%s", row->name);
	tma_free(client);
	server_stop(&s);
}

Test(ticket, a_transform_has_two_tensors)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_copy(client, NULL, &tensor), TMA_INVALID_ARGUMENT);
	cr_assert_eq(strncmp(tma_last_error(client), "dst is NULL", 11), 0);
	cr_assert_eq(tma_copy(client, &tensor, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(strncmp(tma_last_error(client), "src is NULL", 11), 0);
	cr_assert_eq(tma_transform(client, NULL), TMA_INVALID_ARGUMENT);
	tma_free(client);
	server_stop(&s);
}
