/* SPDX-License-Identifier: Apache-2.0 */
/* Tests calls that lose their connection: which are made again, which are not, and how often. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "server.h"

static const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static const struct tma_transform transform = { .dst = &tensor, .src = &tensor };

static int deaths;             /* connections that still end when they have read their requests */
static int swallow;            /* requests that such a connection reads first */
static int seen[METHOD_COUNT]; /* requests by method, on all connections */
static bool is_device_lost;    /* the first request of such a connection is answered with a lost device */

static void answer(struct server *s, const struct rpc_request *request)
{
	struct msg_region_created created = { .region = 7, .size = 4096, .kind = REGION_KIND_CUDA_FD };
	struct buffer b = { 0 };
	int fd;

	switch (request->method->id) {
	case METHOD_region_create:
		fd = memfd_create("region", MFD_CLOEXEC);
		cr_assert_eq(ftruncate(fd, 4096), 0);
		rpc_encode_result(&b, request->msgid, request->method, &created);
		server_send_with_fds(s, &b, &fd, 1);
		close(fd);
		break;
	case METHOD_region_register:
		server_answer_registered(s, request, 8);
		break;
	case METHOD_copy:
	case METHOD_transform:
		server_answer_transform(s, request->msgid, "memcpy", 8);
		break;
	case METHOD_region_release:
		server_answer(s, request, &(struct msg_region_released){ 0 });
		break;
	case METHOD_ring_open:
		server_answer(s, request, &(struct msg_ring_opened){ 0 });
		break;
	case METHOD_stats:
	case METHOD_region_list:
		rpc_encode_result(&b, request->msgid, &methods[METHOD_region_list],
		                  &(struct message_list){ 0 });
		server_send(s, &b);
		break;
	default:
		server_answer_true(s, request);
	}
}

static void script(struct server *s)
{
	struct rpc_request request;

	for (int n = 1; server_request(s, &request); n++) {
		seen[request.method->id]++;
		if (s->connection >= deaths) {
			answer(s, &request);
			continue;
		}
		if (is_device_lost && n == 1)
			server_refuse(s, request.msgid, STATUS_DEVICE_LOST, "the device is lost");
		if (n == swallow)
			return;
	}
}

static tma_client *start(struct server *s, int n_deaths, int n_swallowed)
{
	tma_client *client;

	deaths = n_deaths;
	swallow = n_swallowed;
	s->connections = deaths + 1;
	server_start(s, script);
	client = server_client(s, 5000);
	tma_set_reconnect(client, 1000);
	return client;
}

/* ---- What moves nothing ----------------------------------------------------------------------------- */

static int call_ping(tma_client *client)
{
	return tma_ping(client);
}

static int call_regions(tma_client *client)
{
	tma_document *document = NULL;
	int rc = tma_regions(client, &document);

	tma_document_free(document);
	return rc;
}

static int call_create(tma_client *client)
{
	tma_region *region;

	return tma_region_create_kind(client, TMA_REGION_CUDA_FD, 4096, &region);
}

static int call_register(tma_client *client)
{
	int fd = memfd_create("region", MFD_CLOEXEC), rc;
	tma_region *region;

	cr_assert_eq(ftruncate(fd, 4096), 0);
	rc = tma_region_register_memfd(client, fd, 0, 4096, 0, &region);
	close(fd);
	return rc;
}

static int call_copy(tma_client *client)
{
	return tma_copy(client, &tensor, &tensor);
}

static const struct {
	const char *name;
	enum method_id method;
	int (*call)(tma_client *client);
} calls[] = {
	{ "ping", METHOD_ping, call_ping },
	{ "regions", METHOD_region_list, call_regions },
	{ "region_create", METHOD_region_create, call_create },
	{ "region_register", METHOD_region_register, call_register },
	{ "copy", METHOD_copy, call_copy },
};

ParameterizedTestParameters(repeat, once)
{
	static int rows[] = { 0, 1, 2, 3, 4 };

	return cr_make_param_array(int, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(int *row, repeat, once)
{
	const char *name = calls[*row].name;
	enum method_id method = calls[*row].method;
	struct server s = { 0 };
	tma_client *client = start(&s, 1, 1);

	cr_assert_eq(calls[*row].call(client), 0, "%s: %s", name, tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 1, "%s", name);
	cr_assert_eq(seen[method], 2, "%s: asked %d times", name, seen[method]);
	if (method == METHOD_copy)
		cr_assert_eq(tma_last_result(client)->repeats, 1);
	cr_assert_eq(calls[*row].call(client), 0, "%s", name);
	if (method == METHOD_copy)
		cr_assert_eq(tma_last_result(client)->repeats, 0);
	tma_free(client);
	server_stop(&s);
}

Test(repeat, what_ends_every_service_is_not_asked_for_ever)
{
	struct server s = { 0 };
	tma_client *client = start(&s, 3, 1);

	cr_assert_eq(tma_copy(client, &tensor, &tensor), TMA_DISCONNECTED);
	cr_assert_eq(seen[METHOD_copy], 2);
	cr_assert_eq(tma_last_result(client)->repeats, 1);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* The copy is not repeated, because it may read what the ticket's transform was to write. */
Test(repeat, not_a_transform_that_a_ticket_was_under_way_with)
{
	struct server s = { 0 };
	tma_client *client = start(&s, 1, 2);
	tma_ticket ticket;

	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), TMA_DISCONNECTED);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_DISCONNECTED);
	cr_assert_eq(tma_reconnects(client), 0);
	cr_assert_eq(seen[METHOD_copy], 1);
	tma_free(client);
	server_stop(&s);
}

/* Ends the first connection when it has read a copy. */
static void until_a_copy(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		seen[request.method->id]++;
		if (s->connection == 0 && request.method->id == METHOD_copy)
			return;
		answer(s, &request);
	}
}

/* A ring's runs count as tickets that nobody has taken; a closed ring has none. */
Test(repeat, not_a_transform_while_a_ring_is_open)
{
	static const struct {
		const char *name;
		bool is_closed;
		int status, copies;
	} rows[] = { { "open", false, TMA_DISCONNECTED, 1 }, { "closed", true, 0, 2 } };

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct server s = { .connections = 2 };
		tma_ring *ring = NULL;
		tma_client *client;

		server_start(&s, until_a_copy);
		client = server_client(&s, 5000);
		tma_set_reconnect(client, 1000);
		seen[METHOD_copy] = 0;
		cr_assert_eq(tma_ring_open(client, 4, 0, &ring), 0, "%s: %s", rows[i].name,
		             tma_last_error(client));
		if (rows[i].is_closed)
			cr_assert_eq(tma_ring_close(ring), 0, "%s: %s", rows[i].name, tma_last_error(client));
		cr_assert_eq(tma_copy(client, &tensor, &tensor), rows[i].status, "%s: %s", rows[i].name,
		             tma_last_error(client));
		cr_assert_eq(seen[METHOD_copy], rows[i].copies, "%s", rows[i].name);
		cr_assert_eq(tma_take_error(client), rows[i].status, "%s", rows[i].name);
		if (!rows[i].is_closed)
			cr_assert_eq(tma_ring_close(ring), 0, "%s: %s", rows[i].name, tma_last_error(client));
		tma_free(client);
		server_stop(&s);
	}
}

Test(repeat, a_ping_even_so)
{
	struct server s = { 0 };
	tma_client *client = start(&s, 1, 2);
	tma_ticket ticket;

	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_DISCONNECTED);
	cr_assert_eq(seen[METHOD_transform], 1);
	tma_free(client);
	server_stop(&s);
}

Test(repeat, not_what_a_device_was_lost_under)
{
	struct server s = { 0 };
	tma_client *client;

	is_device_lost = true;
	client = start(&s, 1, 1);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), TMA_DEVICE_LOST);
	cr_assert_eq(seen[METHOD_copy], 1);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->repeats, 0);
	tma_free(client);
	server_stop(&s);
}

Test(repeat, nor_what_was_sent_after_it)
{
	struct server s = { 0 };
	tma_client *client;
	tma_ticket ticket;

	is_device_lost = true;
	client = start(&s, 1, 2);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), TMA_DISCONNECTED);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_DEVICE_LOST);
	cr_assert_eq(seen[METHOD_copy], 1);
	tma_free(client);
	server_stop(&s);
}

Test(repeat, not_by_a_client_that_does_not_connect_again)
{
	struct server s = { 0 };
	tma_client *client = start(&s, 1, 1);

	tma_set_reconnect(client, -1);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), TMA_DISCONNECTED);
	cr_assert_eq(seen[METHOD_copy], 1);
	tma_free(client);
	server_stop(&s);
}
