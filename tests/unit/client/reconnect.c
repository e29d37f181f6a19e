/* SPDX-License-Identifier: Apache-2.0 */
/* Tests connections that are lost and made anew: what comes along, what is not repeated, and when the client
 * gives up. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "proto/clock.h"
#include "proto/wire/socket.h"
#include "server.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static const struct tma_transform transform = { .dst = &tensor, .src = &tensor };

static tma_client *mending_client(const struct server *s, int ms)
{
	tma_client *client = server_client(s, 5000);

	tma_set_reconnect(client, ms);
	return client;
}

/* ---- Requests --------------------------------------------------------------------------------------- */

static int seen[4]; /* requests that each connection has read */

/* Each connection answers one request and ends; the last one goes on. */
static void script_one_each(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		seen[s->connection]++;
		server_answer_true(s, &request);
		if (s->connection + 1 < s->connections)
			return;
	}
}

Test(reconnect, a_call_that_finds_the_connection_lost_is_made_on_a_new_one)
{
	struct server s = { .connections = 4 };
	tma_client *client;

	server_start(&s, script_one_each);
	client = mending_client(&s, 1000);
	for (uint32_t i = 0; i < 4; i++) {
		cr_assert_eq(tma_ping(client), 0, "%u: %s", i, tma_last_error(client));
		cr_assert_eq(tma_reconnects(client), i);
		if (i < 3)
			server_wait_hang_up(client);
	}
	tma_free(client);
	server_stop(&s);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(seen[i], 1, "%d", i);
}

Test(reconnect, a_ticket_is_submitted_on_the_new_one)
{
	struct server s = { .connections = 2 };
	struct tma_result result;
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, server_polite);
	client = mending_client(&s, 1000);
	cr_assert_eq(tma_ping(client), 0);
	shutdown(s.sock, SHUT_RDWR);
	server_wait_hang_up(client);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, &result), 0, "%s", tma_last_error(client));
	cr_assert_eq(result.reconnects, 1);
	tma_free(client);
	server_stop(&s);
}

/* The first connection ends when it has read a request. */
static void script_swallow(struct server *s)
{
	struct rpc_request request;

	if (s->connection > 0)
		script_one_each(s);
	else
		server_request(s, &request);
}

Test(reconnect, tickets_under_way_are_not_repeated)
{
	struct server s = { .connections = 2 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_swallow);
	client = mending_client(&s, 1000);
	cr_assert_eq(tma_submit_ping(client, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_DISCONNECTED);
	cr_assert_eq(tma_fd(client), -1);
	cr_assert_eq(tma_dispatch(client), TMA_DISCONNECTED, "it does not connect");
	cr_assert_eq(tma_reconnects(client), 0);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(seen[1], 1);
}

/* Ends the connection with a request that is not repeated. */
static void end_by_ticket(tma_client *client)
{
	tma_ticket ticket;

	cr_assert_eq(tma_submit_ping(client, &ticket), 0);
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_DISCONNECTED);
}

Test(reconnect, nobody_is_there)
{
	struct server s = { 0 };
	tma_client *client;
	int64_t start;

	server_start(&s, script_swallow);
	client = mending_client(&s, 1000);
	end_by_ticket(client);
	server_stop(&s);
	start = clock_ms();
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_geq(clock_ms() - start, 1000, "it tries for a while");
	cr_assert_not_null(strstr(tma_last_error(client), "the connection is closed: tmad at"), "%s",
	                   tma_last_error(client));
	cr_assert_not_null(strstr(tma_last_error(client), "; no tmad at"), "%s", tma_last_error(client));
	start = clock_ms();
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_lt(clock_ms() - start, 1000, "but not again and again");
	tma_free(client);
}

Test(reconnect, within_the_timeout)
{
	struct server s = { 0 };
	tma_client *client;
	int64_t start;

	server_start(&s, script_swallow);
	client = mending_client(&s, 60000);
	end_by_ticket(client);
	server_stop(&s);
	tma_set_timeout(client, 100);
	start = clock_ms();
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_lt(clock_ms() - start, 10000);
	tma_free(client);
}

/* Nobody listens, or nobody accepts. A submit tries to connect once and does not use up the time of a later
 * call that waits. */
Test(reconnect, a_submit_does_not_wait)
{
	struct server s = { 0 };
	tma_client *client;
	tma_ticket ticket = 7;
	int64_t start;
	int listener, queued[2];

	server_start(&s, script_swallow);
	client = mending_client(&s, 2000);
	end_by_ticket(client);
	server_stop(&s);
	start = clock_ms();
	for (int i = 0; i < 10; i++)
		cr_assert_eq(tma_submit_ping(client, &ticket), TMA_DISCONNECTED);
	cr_assert_lt(clock_ms() - start, 1500, "%d ms", (int)(clock_ms() - start));
	cr_assert_eq(ticket, 7);
	start = clock_ms();
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_geq(clock_ms() - start, 2000, "%d ms", (int)(clock_ms() - start));

	cr_assert_eq(mkdir(s.directory, 0700), 0);
	listener = socket_listen(s.path, 0, 0600);
	for (int i = 0; i < 2; i++)
		queued[i] = socket_connect(s.path, 0);
	cr_assert_eq(queued[1], -EAGAIN);
	start = clock_ms();
	cr_assert_eq(tma_submit_ping(client, &ticket), TMA_DISCONNECTED);
	cr_assert_lt(clock_ms() - start, 5000);
	close(queued[0]);
	close(listener);
	unlink(s.path);
	rmdir(s.directory);
	tma_free(client);
}

Test(reconnect, not_when_it_was_told_so)
{
	struct server s = { .connections = 2 };
	tma_client *client;

	server_start(&s, script_swallow);
	client = mending_client(&s, -1);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_connect(client, s.path), 0);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_reconnects(client), 0);
	tma_free(client);
	server_stop(&s);
}

static void script_silent(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request))
		;
}

Test(reconnect, not_after_a_timeout)
{
	struct server s = { .connections = 2 };
	tma_client *client;

	server_start(&s, script_silent);
	client = mending_client(&s, 1000);
	tma_set_timeout(client, 50);
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_reconnects(client), 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- A lost device ---------------------------------------------------------------------------------- */

/* Says that the first of two transforms failed with a lost device, does not answer the second, and closes
 * nothing. */
static void script_device_lost(struct server *s)
{
	struct rpc_request first, second;

	if (s->connection > 0) {
		server_polite(s);
		return;
	}
	server_request(s, &first);
	server_request(s, &second);
	server_refuse(s, first.msgid, STATUS_DEVICE_LOST, "transform: the device is lost");
	server_request(s, &second); /* returns when the client hangs up */
}

Test(reconnect, after_the_device_was_lost)
{
	struct server s = { .connections = 2 };
	struct tma_result result;
	tma_ticket tickets[2];
	tma_client *client;

	server_start(&s, script_device_lost);
	client = mending_client(&s, 1000);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0);
	cr_assert_eq(tma_wait(client, tickets[0], &result), TMA_DEVICE_LOST);
	cr_assert_eq(result.reconnects, 0);
	cr_assert_eq(tma_copy(client, &tensor, &tensor), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_last_result(client)->reconnects, 1);
	cr_assert_eq(tma_wait(client, tickets[1], &result), TMA_DEVICE_LOST);
	cr_assert_eq(result.status, TMA_DEVICE_LOST);
	tma_free(client);
	server_stop(&s);
}

Test(reconnect, by_hand_after_the_device_was_lost)
{
	struct server s = { .connections = 2 };
	tma_ticket tickets[2];
	tma_client *client;

	server_start(&s, script_device_lost);
	client = mending_client(&s, -1);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0);
	cr_assert_eq(tma_wait(client, tickets[0], NULL), TMA_DEVICE_LOST);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_wait(client, tickets[1], NULL), TMA_DEVICE_LOST);
	cr_assert_eq(tma_connect(client, s.path), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
}

/* ---- Regions ---------------------------------------------------------------------------------------- */

static const char handle[64] = "a handle";
static int refused; /* registrations that later connections still refuse */
static int refusal = STATUS_QUOTA;

/* Creates and registers regions; connection c numbers them from 100 * (c + 1) on. Each connection but the
 * last ends with a ping. */
static void script_regions(struct server *s)
{
	uint64_t id = 100 * (uint64_t)(s->connection + 1);
	struct rpc_request request;

	while (server_request(s, &request)) {
		seen[s->connection]++;
		switch (request.method->id) {
		case METHOD_region_create: {
			bool by_handle = request.params.region_create.kind == REGION_KIND_CUDA_IPC;
			int fd = by_handle ? -1 : memfd_create("region", MFD_CLOEXEC);

			if (fd >= 0)
				cr_assert_eq(ftruncate(fd, 4096), 0);
			server_answer_created_kind(s, &request, id++,
			                           by_handle ? REGION_KIND_CUDA_IPC : REGION_KIND_MEMFD, fd,
			                           by_handle ? 64 : 0);
			if (fd >= 0)
				close(fd);
			break;
		}
		case METHOD_region_register:
			if (s->connection > 0 && refused-- > 0)
				server_refuse(s, request.msgid, refusal, "no more of that");
			else
				server_answer_registered(s, &request, id++);
			break;
		case METHOD_region_release: {
			struct msg_region_released done = { .state = REGION_STATE_CLOSED };
			struct buffer b = { 0 };

			rpc_encode_result(&b, request.msgid, request.method, &done);
			server_send(s, &b);
			break;
		}
		case METHOD_transform:
			server_answer_transform(s, request.msgid, "memcpy",
			                        request.params.transform.dst.region);
			break;
		default:
			server_answer_true(s, &request);
			if (s->connection + 1 < s->connections)
				return;
		}
	}
}

static uint64_t id_of(tma_client *client, tma_region *region, int status)
{
	struct tma_tensor t = { .region = region, .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };

	cr_assert_eq(tma_transform(client, &(struct tma_transform){ .dst = &t, .src = &t }), status, "%s",
	             tma_last_error(client));
	return tma_last_result(client)->bytes;
}

static int registered_fd(tma_client *client, tma_region **ret)
{
	int fd = memfd_create("region", MFD_CLOEXEC);

	cr_assert_eq(ftruncate(fd, 4096), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 100, 200, TMA_REGION_READ_ONLY, ret), 0, "%s",
	             tma_last_error(client));
	return fd;
}

Test(reconnect, regions_come_along)
{
	struct server s = { .connections = 3 };
	tma_region *released, *made, *mine, *ipc, *gone;
	tma_client *client;
	char *data;

	server_start(&s, script_regions);
	client = mending_client(&s, 1000);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &released), 0);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &made), 0);
	close(registered_fd(client, &mine));
	cr_assert_eq(tma_region_register_cuda_ipc(client, handle, 0, 64, 0, &ipc), 0);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_CUDA_IPC, 4096, &gone), 0, "%s",
	             tma_last_error(client));
	cr_assert_eq(tma_region_release(released), 0, "%s", tma_last_error(client));
	cr_assert_eq(id_of(client, made, 0), 101);
	data = tma_region_data(made);
	strcpy(data, "kept");

	for (uint32_t i = 1; i < 3; i++) {
		cr_assert_eq(tma_ping(client), 0);
		server_wait_hang_up(client);
		if (i == 1) {
			id_of(client, made, TMA_NOT_FOUND);
			cr_assert_str_eq(
			    tma_last_error(client),
			    "connected, but a region of 4096 bytes could not be registered "
			    "again: the service had created its memory, which was lost with the service");
			cr_assert_eq(tma_restore(client), TMA_NOT_FOUND);
		}
		cr_assert_eq(id_of(client, made, 0) / 100, i + 1, "the id is the new connection's");
		cr_assert_eq(id_of(client, mine, 0) / 100, i + 1);
		cr_assert_eq(id_of(client, ipc, 0) / 100, i + 1);
		cr_assert_eq(tma_reconnects(client), i);
		cr_assert_eq(tma_region_data(made), data);
		cr_assert_str_eq(data, "kept");
		id_of(client, gone, TMA_NOT_FOUND);
		cr_assert_not_null(strstr(tma_last_error(client), "the service had created its memory"), "%s",
		                   tma_last_error(client));
	}
	tma_free(client);
	server_stop(&s);
}

static int lists; /* session_list requests of the second connection */

/* The first connection asks the client to seal a region. The second one is asked whether the first has ended,
 * and says twice that it still has transforms. After that it lists no such connection, or, if is_younger, a
 * new one that has been given the same number. */
static void serve_seals(struct server *s, bool is_younger)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		struct msg_region_registered done = { .has = F(region_registered, seal) |
			                                     F(region_registered, session),
			                              .region = 1,
			                              .size = 4096,
			                              .seal = true,
			                              .session = 7 };
		struct msg_session_entry entry = { .session = 7, .jobs = 1, .age_ms = INT64_MAX };
		struct message_list list = { .items = &entry, .n = lists < 2 || is_younger };

		switch (request.method->id) {
		case METHOD_region_register:
			cr_assert_eq(lists, s->connection == 0 ? 0 : 3);
			server_answer(s, &request, &done);
			break;
		case METHOD_session_list:
			cr_assert_eq(request.params.session_list.after, 6);
			if (lists++ == 2)
				entry.age_ms = 0;
			server_answer(s, &request, &list);
			break;
		case METHOD_transform:
			server_answer_transform(s, request.msgid, "memcpy", 1);
			break;
		default:
			server_answer_true(s, &request);
			if (s->connection == 0)
				return;
		}
	}
}

static void script_ended(struct server *s)
{
	serve_seals(s, false);
}

static void script_younger(struct server *s)
{
	serve_seals(s, true);
}

Test(reconnect, sealed_memory_moves_once_the_connection_before_has_no_transforms)
{
	for (int is_younger = 0; is_younger < 2; is_younger++) {
		struct server s = { .connections = 2 };
		tma_region *region;
		tma_client *client;
		char *data;

		lists = 0;
		server_start(&s, is_younger ? script_younger : script_ended);
		client = mending_client(&s, 5000);
		cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &region), 0);
		id_of(client, region, 0);
		if (!region_is_sealed(region))
			cr_skip("this kernel cannot hold up writers to files in memory");
		region->asked_ms -= 60000; /* makes it long since the service asked */
		data = tma_region_data(region);
		strcpy(data, "kept");
		cr_assert_eq(tma_ping(client), 0);
		server_wait_hang_up(client);
		cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
		cr_assert_eq(lists, 3);
		cr_assert_eq(tma_region_data(region), data);
		cr_assert_str_eq(data, "kept");
		tma_free(client);
		server_stop(&s);
	}
}

/* Acts as a service that adds the seals itself. */
static void script_must_seal(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		struct msg_region_registered done = { .has = F(region_registered, must_seal) |
			                                     F(region_registered, session),
			                              .region = 1,
			                              .size = 4096,
			                              .must_seal = true,
			                              .session = 7 };

		switch (request.method->id) {
		case METHOD_region_register:
			server_answer(s, &request, &done);
			break;
		case METHOD_session_list:
			cr_assert_eq(s->connection, 1);
			server_answer(s, &request, &(struct message_list){ 0 });
			break;
		default:
			server_answer_true(s, &request);
			if (s->connection == 0)
				return;
		}
	}
}

enum given { GIVEN_NOT, GIVEN_FD, GIVEN_ADDRESS };

static void give(tma_region *region, enum given how)
{
	struct tma_mapping mapping;

	if (how == GIVEN_FD)
		cr_assert_geq(tma_region_fd(region), 0);
	if (how == GIVEN_ADDRESS)
		cr_assert_eq(tma_region_map(region, &mapping), 0);
}

/* Adds the seals that the service adds before the first request. */
static void seal(const tma_region *region)
{
	cr_assert_eq(fcntl(region->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0,
	             "it takes seals");
}

static ino_t file_of(const tma_region *region)
{
	struct stat st;

	cr_assert_eq(fstat(region->fd, &st), 0);
	return st.st_ino;
}

Test(reconnect, memory_that_the_service_has_sealed_moves_unless_it_was_given_away)
{
	const struct {
		const char *name;
		enum given given;
		bool is_used, is_given_late, has_userfaultfd, moves, is_lost;
	} rows[] = {
		{ "used", .is_used = true, .has_userfaultfd = true, .moves = true },
		{ "used, without userfaultfd", .is_used = true, .moves = true },
		{ "not used", .has_userfaultfd = true },
		{ "given by its descriptor", GIVEN_FD, .is_used = true, .is_lost = true },
		{ "given by its descriptor, later", GIVEN_FD, .is_used = true, .is_given_late = true,
		  .is_lost = true },
		{ "given by its address", GIVEN_ADDRESS, .is_used = true, .is_lost = true },
		{ "given by its descriptor, not used", GIVEN_FD },
		{ "given by its address, not used", GIVEN_ADDRESS },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct server s = { .connections = 2 };
		tma_region *region;
		tma_client *client;
		ino_t file;
		char *data;

		server_start(&s, script_must_seal);
		client = mending_client(&s, 5000);
		if (!rows[i].has_userfaultfd)
			client->can_move = ANSWER_NO;
		cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &region), 0);
		data = tma_region_data(region);
		strcpy(data, "kept");
		file = file_of(region);
		if (!rows[i].is_given_late)
			give(region, rows[i].given);
		if (rows[i].is_used)
			seal(region);
		if (rows[i].is_given_late)
			give(region, rows[i].given);
		cr_assert_eq(tma_ping(client), 0);
		server_wait_hang_up(client);
		cr_assert_eq(tma_ping(client), rows[i].is_lost ? TMA_NOT_FOUND : 0, "%s: %s", rows[i].name,
		             tma_last_error(client));
		if (rows[i].is_lost)
			cr_assert(strstr(tma_last_error(client), "make another region"), "%s: %s",
			          rows[i].name, tma_last_error(client));
		cr_assert_eq(file_of(region) != file, rows[i].moves, "%s", rows[i].name);
		cr_assert_eq(tma_region_data(region), data, "%s", rows[i].name);
		cr_assert_str_eq(data, "kept", "%s", rows[i].name);
		if (rows[i].moves)
			seal(region);
		tma_free(client);
		server_stop(&s);
	}
}

/* If nothing holds up writers, what a thread writes meanwhile goes to the old file, as a write through
 * another mapping does. */
Test(reconnect, a_write_that_nothing_held_up_loses_the_region)
{
	struct server s = { .connections = 2 };
	tma_region *region;
	tma_client *client;
	char *other;

	server_start(&s, script_must_seal);
	client = mending_client(&s, 0);
	client->can_move = ANSWER_NO;
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &region), 0);
	other = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, region->fd, 0);
	cr_assert_neq(other, MAP_FAILED);
	seal(region);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(tma_ping(client), TMA_BUSY, "%s", tma_last_error(client));
	*other = 1;
	cr_assert_eq(munmap(other, 4096), 0);
	cr_assert_eq(tma_restore(client), TMA_NOT_FOUND);
	cr_assert(strstr(tma_last_error(client), "no userfaultfd"), "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* The owner of a replaceable region makes another one in its place. */
Test(reconnect, a_replaceable_region_is_lost_without_a_word)
{
	struct server s = { .connections = 2 };
	tma_region *region;
	tma_client *client;

	server_start(&s, script_must_seal);
	client = mending_client(&s, 5000);
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, 4096, &region), 0);
	region->is_replaceable = true;
	give(region, GIVEN_ADDRESS);
	seal(region);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_restore(client), 0, "%s", tma_last_error(client));
	id_of(client, region, TMA_NOT_FOUND);
	tma_free(client);
	server_stop(&s);
}

static const int for_now[] = { TMA_QUOTA, TMA_BUSY, TMA_NO_MEMORY };

Test(reconnect, a_region_that_is_refused_for_now_is_asked_for_again)
{
	for (size_t i = 0; i < 3; i++) {
		struct server s = { .connections = 2 };
		tma_region *first, *second;
		tma_client *client;

		server_start(&s, script_regions);
		client = mending_client(&s, 5000);
		close(registered_fd(client, &first));
		close(registered_fd(client, &second));
		refused = 5;
		refusal = for_now[i];
		cr_assert_eq(tma_ping(client), 0);
		server_wait_hang_up(client);
		id_of(client, first, 0);
		id_of(client, second, 0);
		cr_assert_lt(refused, 0);
		tma_free(client);
		server_stop(&s);
	}
}

/* Returns a client that loses its connection and has two regions, of which only the first can be registered
 * again. */
static tma_client *losing_client(struct server *s, int status, tma_region **first, tma_region **second)
{
	tma_client *client;

	server_start(s, script_regions);
	client = mending_client(s, 1000);
	close(registered_fd(client, first));
	close(registered_fd(client, second));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	refused = 1;
	refusal = status;
	return client;
}

Test(reconnect, a_region_that_is_refused_is_reported_at_once)
{
	struct server s = { .connections = 2 };
	tma_region *first, *second;
	tma_client *client = losing_client(&s, STATUS_PERMISSION, &first, &second);

	cr_assert_eq(tma_ping(client), TMA_PERMISSION);
	cr_assert_str_eq(tma_last_error(client), "connected, but a region of 200 bytes could not be "
	                                         "registered again: no more of that");
	cr_assert_eq(tma_reconnects(client), 1);
	cr_assert_eq(id_of(client, first, 0), 200);
	id_of(client, second, TMA_PERMISSION);
	cr_assert_str_eq(tma_last_error(client),
	                 "dst.region: it could not be registered again: no more of that");
	cr_assert_eq(tma_region_release(second), 0);
	cr_assert_eq(tma_restore(client), 0, "nothing is missing any more");
	cr_assert_eq(id_of(client, first, 0), 200);
	tma_free(client);
	server_stop(&s);
}

Test(reconnect, a_region_that_was_lost_can_be_restored)
{
	struct server s = { .connections = 2 };
	tma_region *first, *second;
	tma_client *client = losing_client(&s, STATUS_QUOTA, &first, &second);

	tma_set_reconnect(client, 0);
	cr_assert_eq(tma_ping(client), TMA_QUOTA);
	id_of(client, second, TMA_QUOTA);
	refused = 1;
	cr_assert_eq(tma_restore(client), TMA_QUOTA);
	cr_assert_eq(tma_restore(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(id_of(client, second, 0), 201);
	cr_assert_eq(id_of(client, first, 0), 200);
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
}

Test(reconnect, connect_reports_a_region_that_is_lost)
{
	struct server s = { .connections = 2 };
	tma_region *first, *second;
	tma_client *client = losing_client(&s, STATUS_QUOTA, &first, &second);

	tma_set_reconnect(client, -1);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	tma_set_timeout(client, 1000);
	refused = INT32_MAX;
	cr_assert_eq(tma_connect(client, s.path), TMA_QUOTA);
	cr_assert_geq(tma_fd(client), 0, "it is connected");
	cr_assert_eq(tma_connect(client, s.path), TMA_ALREADY_EXISTS);
	refused = 0;
	tma_set_timeout(client, 5000);
	cr_assert_eq(tma_restore(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(id_of(client, first, 0) / 100, 2);
	tma_free(client);
	server_stop(&s);
}

Test(reconnect, a_lost_region_comes_back_with_the_next_connection)
{
	struct server s = { .connections = 3 };
	tma_region *first, *second;
	tma_client *client = losing_client(&s, STATUS_PERMISSION, &first, &second);

	cr_assert_eq(tma_ping(client), TMA_PERMISSION);
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(id_of(client, second, 0) / 100, 3);
	tma_free(client);
	server_stop(&s);
}

/* A submit does not wait for a registration that may succeed later: the next call tries again. */
Test(reconnect, a_submit_leaves_a_region_to_the_next_call)
{
	struct server s = { .connections = 2 };
	tma_region *first, *second;
	tma_client *client = losing_client(&s, STATUS_BUSY, &first, &second);
	tma_ticket ticket = 7;

	refused = 2;
	cr_assert_eq(tma_submit_ping(client, &ticket), TMA_BUSY);
	cr_assert_str_eq(tma_last_error(client), "connected, but a region of 200 bytes could not be "
	                                         "registered again: no more of that");
	cr_assert_eq(tma_submit_ping(client, &ticket), TMA_BUSY);
	cr_assert_eq(ticket, 7);
	cr_assert_eq(tma_submit_ping(client, &ticket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_wait(client, ticket, NULL), 0);
	id_of(client, first, 0);
	id_of(client, second, 0);
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
}

/* The second connection is refused as a whole. */
static void script_refused(struct server *s)
{
	struct error error = { STATUS_QUOTA, "connections_per_uid: no more" };
	struct rpc_request request;
	struct buffer reply = { 0 };

	if (s->connection != 1) {
		script_regions(s);
	} else if (server_request(s, &request)) {
		rpc_encode_last_error(&reply, request.msgid, &error);
		server_send(s, &reply);
	}
}

Test(reconnect, a_connection_that_is_refused_costs_no_region)
{
	struct server s = { .connections = 3 };
	tma_client *client;
	tma_region *region;
	int rc;

	server_start(&s, script_refused);
	client = mending_client(&s, 1000);
	close(registered_fd(client, &region));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	rc = tma_ping(client);
	cr_assert_eq(rc, TMA_QUOTA, "%d: %s", rc, tma_last_error(client));
	cr_assert_str_eq(tma_last_error(client), "connections_per_uid: no more");
	cr_assert_eq(tma_fd(client), -1, "the connection is gone at once");
	cr_assert_eq(id_of(client, region, 0), 300);
	tma_free(client);
	server_stop(&s);
}

static int lost; /* later connections that still end while regions are registered */

static void script_lost_again(struct server *s)
{
	struct rpc_request request;

	if (s->connection == 0 || s->connection > lost)
		script_regions(s);
	else
		server_request(s, &request);
}

/* The client tries one more connection. */
Test(reconnect, lost_while_regions_are_registered)
{
	struct server s = { .connections = 3 };
	tma_region *region;
	tma_client *client;

	lost = 1;
	server_start(&s, script_lost_again);
	client = mending_client(&s, 1000);
	close(registered_fd(client, &region));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(id_of(client, region, 0), 300);
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
}

Test(reconnect, lost_again_and_again_while_regions_are_registered)
{
	struct server s = { .connections = 4 };
	tma_region *first, *second;
	tma_client *client;

	lost = 2;
	server_start(&s, script_lost_again);
	client = mending_client(&s, 1000);
	close(registered_fd(client, &first));
	close(registered_fd(client, &second));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_reconnects(client), 0);
	cr_assert_eq(id_of(client, first, 0) / 100, 4);
	cr_assert_eq(id_of(client, second, 0) / 100, 4);
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
}

/* Acts as a service that is slow to come back: the second connection is accepted, but not served in time. */
static void script_slow_again(struct server *s)
{
	if (s->connection != 1)
		script_regions(s);
	else
		script_silent(s);
}

Test(reconnect, a_timeout_while_regions_are_registered_is_no_end)
{
	struct server s = { .connections = 3 };
	tma_region *region;
	tma_client *client;

	server_start(&s, script_slow_again);
	client = mending_client(&s, 1000);
	close(registered_fd(client, &region));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	tma_set_timeout(client, 50);
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	tma_set_timeout(client, 5000);
	cr_assert_eq(id_of(client, region, 0), 300);
	tma_free(client);
	server_stop(&s);
}

Test(reconnect, releasing_does_not_connect)
{
	struct server s = { .connections = 2 };
	tma_region *region;
	tma_client *client;

	server_start(&s, script_regions);
	client = mending_client(&s, 1000);
	close(registered_fd(client, &region));
	cr_assert_eq(tma_ping(client), 0);
	server_wait_hang_up(client);
	tma_region_release(region);
	cr_assert_eq(tma_reconnects(client), 0);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(client);
	server_stop(&s);
	cr_assert_eq(seen[1], 1, "nothing was registered again");
}
