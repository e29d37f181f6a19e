/* SPDX-License-Identifier: Apache-2.0 */
/* Tests orders: how they are encoded, the two other kinds of completion, and giving up on a request. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "server.h"

static struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static struct tma_order order;
static const struct tma_transform transform = { .dst = &tensor, .src = &tensor, .order = &order };
static const struct tma_transform plain = { .dst = &tensor, .src = &tensor };

static struct msg_transform asked;
static struct msg_transform_done moved = { .path = { "memcpy", 6 }, .bytes = 8, .ns = 9 };

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

static void wait_for_ping(tma_client *client)
{
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
}

/* ---- The wire --------------------------------------------------------------------------------------- */

static void script_keep(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		if (request.method->id == METHOD_region_register) {
			server_answer_registered(s, &request, 7);
			continue;
		}
		asked = request.params.transform;
		server_answer(s, &request, &moved);
	}
}

Test(order, travels)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_keep);
	client = server_client(&s, 5000);
	order.wait = (struct tma_point){ .region = region_of(client), .offset = 16, .value = 3 };
	order.signal = (struct tma_point){ .region = order.wait.region, .offset = 24, .value = UINT64_MAX };
	order.wait_ms = 250;
	cr_assert_eq(tma_transform(client, &transform), 0, "%s", tma_last_error(client));
	cr_assert_eq(asked.has & F(transform, reply), 0);
	cr_assert(asked.has & F(transform, wait) && asked.has & F(transform, signal));
	cr_assert(asked.wait.region == 7 && asked.wait.offset == 16 && asked.wait.value == 3 &&
	          asked.wait.deadline_ms == 250);
	cr_assert(asked.signal.region == 7 && asked.signal.offset == 24 && asked.signal.value == UINT64_MAX);
	order.wait_ms = 0;
	order.signal.region = NULL;
	cr_assert_eq(tma_transform(client, &transform), 0);
	cr_assert_eq(asked.wait.has & F(wait, deadline_ms), 0, "the service's own");
	cr_assert_eq(asked.has & F(transform, signal), 0);
	cr_assert_eq(tma_transform(client, &plain), 0);
	cr_assert_eq(asked.has & (F(transform, wait) | F(transform, signal) | F(transform, reply)), 0,
	             "it is of one request");
	tma_free(client);
	server_stop(&s);
}

Test(order, what_is_refused_here)
{
	struct server s = { 0 };
	tma_ticket ticket = 99;
	tma_client *client, *other;

	server_start(&s, script_keep);
	client = server_client(&s, 5000);
	for (int completion = 0; completion < 3; completion++) {
		order.completion = (enum tma_completion)completion;
		cr_assert_eq(tma_submit(client, &transform, completion == 2 ? &ticket : NULL),
		             TMA_INVALID_ARGUMENT);
		cr_assert(strstr(tma_last_error(client), "ret"), "%s", tma_last_error(client));
		cr_assert_eq(tma_transform(client, &transform), completion ? TMA_INVALID_ARGUMENT : 0);
	}
	cr_assert(strstr(tma_last_error(client), "order.completion: signal"), "%s", tma_last_error(client));
	order.completion = (enum tma_completion)3;
	cr_assert_eq(tma_submit(client, &transform, &ticket), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "order.completion: 3 is not an enum tma_completion");
	cr_assert_eq(tma_transform(client, &transform), TMA_INVALID_ARGUMENT);
	order = (struct tma_order){ .priority = (enum tma_priority)3 };
	cr_assert_eq(tma_transform(client, &transform), TMA_INVALID_ARGUMENT);
	cr_assert_str_eq(tma_last_error(client), "order.priority: 3 is not an enum tma_priority");
	cr_assert_eq(tma_submit_ping(client, NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(ticket, 99);
	cr_assert_eq(tma_take_error(client), 0);
	cr_assert_eq(tma_take_error(NULL), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_is_queued(NULL, 1), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_is_queued(client, 99), TMA_NOT_FOUND);
	cr_assert_eq(tma_cancel(NULL, 1), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_cancel(client, 99), TMA_NOT_FOUND);

	other = server_client(&s, 5000);
	order = (struct tma_order){ .wait.region = region_of(client) };
	cr_assert_eq(tma_transform(other, &transform), TMA_INVALID_ARGUMENT);
	cr_assert(strstr(tma_last_error(other), "order.wait.region: it belongs to another client"), "%s",
	          tma_last_error(other));
	tma_free(other);
	tma_free(client);
	server_stop(&s);
}

/* ---- What it passes and takes ------------------------------------------------------------------------ */

/* Expects a first transform that sets none of the fields, and a second one that sets all of them. */
static void script_share(struct server *s)
{
	const uint32_t bits =
	    F(transform, priority) | F(transform, multiprocessors) | F(transform, host_threads);
	struct rpc_request request;

	server_request(s, &request);
	cr_assert_eq(request.params.transform.has & bits, 0);
	cr_assert_eq(request.params.transform.priority, JOB_PRIORITY_NORMAL);
	server_answer_transform(s, request.msgid, "memcpy", 8);
	server_request(s, &request);
	cr_assert_eq(request.params.transform.has & bits, bits);
	cr_assert_eq(request.params.transform.priority, JOB_PRIORITY_URGENT);
	cr_assert_eq(request.params.transform.multiprocessors, 4);
	cr_assert_eq(request.params.transform.host_threads, 2);
	server_answer_transform(s, request.msgid, "memcpy", 8);
}

Test(order, priority_and_shares_travel)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_share);
	client = server_client(&s, 5000);
	order = (struct tma_order){ 0 };
	cr_assert_eq(tma_transform(client, &transform), 0);
	order =
	    (struct tma_order){ .priority = TMA_PRIORITY_URGENT, .multiprocessors = 4, .host_threads = 2 };
	cr_assert_eq(tma_transform(client, &transform), 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- Queued ----------------------------------------------------------------------------------------- */

static struct error failure; /* error that the transform ends with; status 0: none */
static int lie;

/* Answers a transform as queued when it comes, and as done when a ping has come. */
static void script_queued(struct server *s)
{
	struct rpc_request transforms, request;

	server_request(s, &transforms);
	cr_assert_eq(transforms.params.transform.reply, COMPLETION_QUEUED);
	if (lie != 1)
		server_answer_queued(s, transforms.msgid);
	if (lie == 2)
		server_answer_queued(s, transforms.msgid);
	server_request(s, &request);
	server_answer_true(s, &request);
	if (lie == 3)
		server_answer(s, &transforms, &moved);
	server_request(s, &request);
	server_notify_done(s, transforms.msgid, &methods[METHOD_transform], &moved,
	                   failure.status ? &failure : NULL);
	server_answer_true(s, &request);
	server_polite(s);
}

static tma_client *start_queued(struct server *s, tma_ticket *ticket)
{
	tma_client *client;

	server_start(s, script_queued);
	client = server_client(s, 5000);
	order.completion = TMA_COMPLETION_QUEUED;
	cr_assert_eq(tma_submit(client, &transform, ticket), 0, "%s", tma_last_error(client));
	return client;
}

Test(order, queued_and_done)
{
	struct server s = { 0 };
	struct tma_result result;
	tma_ticket ticket;
	tma_client *client = start_queued(&s, &ticket);

	cr_assert_eq(tma_is_queued(client, ticket), 0, "nothing was read");
	wait_for_ping(client);
	cr_assert_eq(tma_is_queued(client, ticket), 1);
	cr_assert_eq(tma_poll(client, ticket, NULL), TMA_PENDING);
	wait_for_ping(client);
	cr_assert_eq(tma_is_queued(client, ticket), 1);
	cr_assert_eq(tma_poll(client, ticket, &result), 0);
	cr_assert_eq(result.bytes, 8);
	cr_assert_str_eq(result.path, "memcpy");
	cr_assert_eq(tma_is_queued(client, ticket), TMA_NOT_FOUND);
	wait_for_ping(client);
	tma_free(client);
	server_stop(&s);
}

Test(order, queued_and_failed)
{
	struct server s = { 0 };
	tma_ticket ticket;
	tma_client *client;

	error_set(&failure, STATUS_TIMEOUT, "the point has not come");
	client = start_queued(&s, &ticket);
	wait_for_ping(client);
	wait_for_ping(client);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_TIMEOUT);
	cr_assert_str_eq(tma_last_error(client), "the point has not come");
	cr_assert_geq(tma_fd(client), 0, "the connection goes on");
	tma_free(client);
	server_stop(&s);
}

/* The service says that a transform is done before it was queued, queues it twice, or answers it a second
 * time. */
Test(order, lies_about_what_is_queued)
{
	for (lie = 1; lie <= 3; lie++) {
		struct server s = { 0 };
		tma_ticket ticket;
		tma_client *client = start_queued(&s, &ticket);

		while (tma_ping(client) == 0)
			;
		cr_assert_eq(tma_wait(client, ticket, NULL), TMA_PROTOCOL, "%d: %s", lie,
		             tma_last_error(client));
		tma_free(client);
		server_stop(&s);
	}
}

static void script_refuse(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	server_refuse(s, request.msgid, STATUS_OUT_OF_RANGE, "too far");
	server_polite(s);
}

Test(order, refused_before_it_was_queued)
{
	struct server s = { 0 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_refuse);
	client = server_client(&s, 5000);
	order.completion = TMA_COMPLETION_QUEUED;
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	wait_for_ping(client);
	cr_assert_eq(tma_is_queued(client, ticket), 1, "it has ended");
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_OUT_OF_RANGE);
	tma_free(client);
	server_stop(&s);
}

/* ---- Without a ticket ------------------------------------------------------------------------------- */

static uint32_t msgids[3];

/* Reads three transforms. It never answers the first, and refuses the others when a ping comes. */
static void script_silent(struct server *s)
{
	struct rpc_request request;

	for (int i = 0; i < 3; i++) {
		server_request(s, &request);
		cr_assert_eq(request.params.transform.reply, COMPLETION_SIGNAL);
		msgids[i] = request.msgid;
	}
	server_request(s, &request);
	server_refuse(s, msgids[1], STATUS_OUT_OF_RANGE, "the second");
	server_refuse(s, msgids[2], STATUS_OVERLAP, "the third");
	server_answer_true(s, &request);
	server_polite(s);
}

Test(order, without_a_ticket)
{
	struct server s = { 0 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_silent);
	client = server_client(&s, 5000);
	order.completion = TMA_COMPLETION_SIGNAL;
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_submit(client, &transform, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_take_error(client), 0);
	wait_for_ping(client);
	cr_assert(msgids[0] != msgids[1] && msgids[1] != msgids[2]);
	cr_assert_eq(tma_take_error(client), TMA_OUT_OF_RANGE, "the first that came");
	cr_assert_str_eq(tma_last_error(client), "the second");
	cr_assert_eq(tma_take_error(client), 0, "once");
	cr_assert_eq(tma_submit(client, &plain, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(client->n_requests, 16, "they hold no slot");
	tma_free(client);
	server_stop(&s);
}

Test(order, holds_no_slot)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	tma_set_batching(client, true);
	order.completion = TMA_COMPLETION_SIGNAL;
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_submit(client, &transform, NULL), 0);
	cr_assert_eq(client->first_free, 0);
	tma_free(client);
	server_stop(&s);
}

/* Answers a transform that is to be answered only if it fails, or refuses a request that was never made. */
static void script_liar(struct server *s)
{
	struct rpc_request request;

	server_request(s, &request);
	if (lie == 0)
		server_answer(s, &request, &moved);
	else
		server_refuse(s, request.msgid + 0x10000, STATUS_OVERLAP, "never asked");
	server_polite(s);
}

Test(order, lies_about_what_has_no_ticket)
{
	for (lie = 0; lie < 2; lie++) {
		struct server s = { 0 };
		tma_client *client;

		server_start(&s, script_liar);
		client = server_client(&s, 5000);
		order.completion = TMA_COMPLETION_SIGNAL;
		cr_assert_eq(tma_submit(client, &transform, NULL), 0);
		cr_assert_eq(tma_ping(client), TMA_PROTOCOL, "%d", lie);
		cr_assert(strstr(tma_last_error(client), "is not under way"), "%s", tma_last_error(client));
		cr_assert_eq(tma_take_error(client), TMA_PROTOCOL, "it is lost with its connection");
		tma_free(client);
		server_stop(&s);
	}
}

/* ---- Cancel ----------------------------------------------------------------------------------------- */

static bool gives_up;

static void script_cancel(struct server *s)
{
	struct error canceled = { STATUS_CANCELED, "it was given up" };
	struct rpc_request transforms, request;
	struct buffer b = { 0 };

	server_request(s, &transforms);
	server_request(s, &request);
	cr_assert_eq(request.method->id, METHOD_cancel);
	cr_assert_eq(request.params.cancel.request, transforms.msgid);
	if (gives_up)
		rpc_encode_error(&b, transforms.msgid, &canceled);
	server_send(s, &b);
	server_answer(s, &request, &(struct msg_canceled){ .canceled = gives_up });
	server_request(s, &request);
	if (!gives_up)
		server_answer(s, &transforms, &moved);
	server_answer_true(s, &request);
	server_polite(s);
}

Test(order, cancel)
{
	for (int i = 0; i < 2; i++) {
		struct server s = { 0 };
		tma_ticket ticket;
		tma_client *client;

		gives_up = i;
		server_start(&s, script_cancel);
		client = server_client(&s, 5000);
		cr_assert_eq(tma_submit(client, &plain, &ticket), 0);
		cr_assert_eq(tma_cancel(client, ticket), i, "%s", tma_last_error(client));
		wait_for_ping(client);
		cr_assert_eq(tma_cancel(client, ticket), 0, "it has ended");
		cr_assert_eq(tma_wait(client, ticket, NULL), i ? TMA_CANCELED : 0);
		tma_free(client);
		server_stop(&s);
	}
}
