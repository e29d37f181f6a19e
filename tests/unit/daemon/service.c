/* SPDX-License-Identifier: Apache-2.0 */
/* The server has a listening socket because it cannot do without, but no client connects to it. */
#include "service.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fake_clock.h"

#define ITERATIONS 8
#define CLIENTS    16

static struct server *running;
static int sockets[CLIENTS];
static int n_sockets;

struct server *service_start(void (*set_limits)(struct limits *limits))
{
	static const struct engine_openers openers = { .cpu = engine_cpu_open };
	static struct options options = { .engine = ENGINE_CHOICE_CPU, .threads = 1 };
	struct server_setup setup = { .options = &options,
		                      .openers = &openers,
		                      .clock = &fake_clock,
		                      .recovery = { .listener = -1, .metrics = -1 } };
	char directory[] = "/tmp/tmad-unit-XXXXXX", path[sizeof directory + 2];
	struct server *server = calloc(1, sizeof *server);
	struct error err;

	cr_assert(server && mkdtemp(directory));
	snprintf(path, sizeof path, "%s/s", directory);
	options.socket = path;
	options.socket_group = UINT32_MAX;
	options.socket_mode = 0600;
	log_init(LOG_LEVEL_ERROR);
	limits_init(&options.limits);
	options.limits.connections = 16; /* saves memory */
	if (set_limits)
		set_limits(&options.limits);
	cr_assert_eq(server_init(server, &setup, &err), 0, "%s", err.message);
	unlink(path);
	rmdir(directory);
	running = server;
	return server;
}

void service_stop(void)
{
	if (!running)
		return;
	while (n_sockets > 0)
		close(sockets[--n_sockets]);
	service_iterate(running);
	server_drain(running);
	cr_assert_eq(server_run(running), SERVER_END_STOPPED);
	server_deinit(running);
	free(running);
	running = NULL;
}

void service_iterate_once(struct server *server)
{
	uv_run(&server->service.loop, UV_RUN_NOWAIT);
}

void service_iterate(struct server *server)
{
	for (int i = 0; i < ITERATIONS; i++)
		service_iterate_once(server);
}

/* Makes the connection's peer count as another user. Takes over the caller's reference to the account. */
static void belong_to(struct session *session, struct account *account)
{
	struct service *service = session->service;
	struct error err;

	engine_stream_free(device_engine(&service->devices, 0), session->streams[0]);
	charge_release(&connection_of(session)->charge);
	account_unref(session->account);
	session->account = account;
	cr_assert_eq(charge_take(&connection_of(session)->charge, &service->accounts, account,
	                         CHARGE_CONNECTIONS, 1, &err),
	             0);
	session->streams[0] = engine_stream_new(device_engine(&service->devices, 0), &account->owners[0]);
	cr_assert(session->streams[0]);
}

struct client client_connect(struct server *server, uid_t uid)
{
	struct account *account = account_ref(&server->service.accounts, uid);
	struct session *session;
	int fds[2];

	cr_assert(account && socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
	cr_assert_lt(n_sockets, CLIENTS);
	sockets[n_sockets++] = fds[1];
	connection_open(&server->connections, fds[0]);
	session = TAILQ_LAST(&server->service.sessions, session_queue);
	cr_assert(session && connection_of(session)->fd == fds[0]);
	belong_to(session, account);
	return (struct client){ .server = server, .fd = fds[1], .session = session->id };
}

void client_send(const struct client *client, const void *data, size_t len)
{
	cr_assert_eq(send(client->fd, data, len, MSG_NOSIGNAL), (ssize_t)len);
}

void client_send_pings(const struct client *client, int n)
{
	while (n-- > 0)
		client_send(client, PING, PING_BYTES);
}

size_t client_read(const struct client *client)
{
	char data[4096];
	size_t sum = 0;
	ssize_t n;

	while ((n = recv(client->fd, data, sizeof data, 0)) > 0)
		sum += (size_t)n;
	return sum;
}

struct session *client_session(const struct client *client)
{
	struct session *session;

	TAILQ_FOREACH(session, &client->server->service.sessions, entry)
		if (session->id == client->session)
			return session;
	return NULL;
}

uint64_t client_handled(const struct client *client)
{
	return client_session(client)->handled / PING_BYTES;
}
