/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how connections begin and end, and what the client says of it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "proto/wire/socket.h"
#include "server.h"

Test(connection, no_service)
{
	tma_client *client = tma_new();

	cr_assert_eq(tma_last_status(NULL), 0);
	cr_assert_eq(tma_last_status(client), 0);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_last_status(client), TMA_DISCONNECTED);
	cr_assert_str_eq(tma_last_error(client), "not connected: call tma_connect first");
	cr_assert_eq(tma_fd(client), -1);
	cr_assert_eq(tma_events(client), 0);
	cr_assert_eq(tma_dispatch(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_connect(client, "/tmp/no/such/sock"), TMA_DISCONNECTED);
	cr_assert_str_eq(tma_last_error(client), "no tmad at /tmp/no/such/sock (No such file or directory)");
	cr_assert_str_eq(tma_socket_path(client), "/tmp/no/such/sock");
	tma_free(client);
}

Test(connection, the_path_comes_from_the_environment)
{
	struct server s = { 0 };
	tma_client *client = tma_new();

	server_start(&s, server_polite);
	setenv("TMAD_SOCKET", s.path, 1);
	cr_assert_eq(tma_connect(client, NULL), 0, "%s", tma_last_error(client));
	cr_assert_str_eq(tma_socket_path(client), s.path);
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
}

Test(connection, a_path_too_long_is_refused)
{
	tma_client *client = tma_new();
	char path[300];

	memset(path, 'x', sizeof path - 1);
	path[sizeof path - 1] = '\0';
	cr_assert_eq(tma_connect(client, path), TMA_INVALID_ARGUMENT);
	cr_assert_not_null(strstr(tma_last_error(client), "too long"));
	cr_assert_eq(tma_last_status(client), TMA_INVALID_ARGUMENT);
	tma_free(client);
}

/* The client hangs up on a server that another user runs, before it has sent anything. */
Test(connection, a_server_of_another_user_gets_no_byte)
{
	char directory[] = "/tmp/tma-client-XXXXXX", path[64], byte;
	tma_client *client = tma_new();
	int ready[2], status = 0;
	pid_t server;

	if (geteuid() != 0)
		cr_skip_test("needs root, to be another user");
	cr_assert_not_null(mkdtemp(directory));
	cr_assert_eq(chmod(directory, 0777), 0);
	snprintf(path, sizeof path, "%s/sock", directory);
	cr_assert_eq(pipe(ready), 0);
	server = fork();
	if (server == 0) {
		int listener = setuid(65534) < 0 ? -1 : socket_listen(path, 4, 0666), sock, n = 0;

		fcntl(listener, F_SETFL, 0);
		if (write(ready[1], "", 1) != 1)
			_exit(9);
		for (int i = 0; i < 2; i++) {
			sock = accept(listener, NULL, NULL);
			n += read(sock, &byte, 1) > 0;
			close(sock);
		}
		_exit(n); /* number of connections on which a byte arrived */
	}
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	cr_assert_eq(tma_connect(client, path), TMA_PERMISSION);
	cr_assert(strstr(tma_last_error(client), "runs as uid 65534"), "%s", tma_last_error(client));
	cr_assert_eq(tma_fd(client), -1);
	tma_set_server_uid(client, 65534);
	cr_assert_eq(tma_connect(client, path), TMA_OK, "%s", tma_last_error(client));
	tma_set_reconnect(client, -1);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	tma_free(client);
	waitpid(server, &status, 0);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d connections brought something",
	          WEXITSTATUS(status));
	unlink(path);
	rmdir(directory);
}

Test(connection, a_client_has_one)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_connect(client, s.path), TMA_ALREADY_EXISTS);
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_not_null(strstr(tma_last_error(client), "the client is already connected to "), "%s",
	                   tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* Waits for all three requests, because the client refuses a request at once if the service is gone
 * already. */
static void script_vanish(struct server *s)
{
	struct rpc_request request;

	for (int i = 0; i < 3; i++)
		server_request(s, &request);
}

Test(connection, a_service_that_goes_ends_every_request)
{
	struct tma_tensor t = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
	struct tma_transform transform = { .dst = &t, .src = &t };
	struct server s = { 0 };
	tma_ticket tickets[3];
	struct tma_result result;
	tma_client *client;

	server_start(&s, script_vanish);
	client = server_client(&s, 5000);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(tma_submit(client, &transform, &tickets[i]), 0);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_not_null(strstr(tma_last_error(client), s.path), "%s", tma_last_error(client));
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(tma_wait(client, tickets[i], &result), TMA_DISCONNECTED, "%d", i);
		cr_assert_eq(result.status, TMA_DISCONNECTED, "%d", i);
		cr_assert_not_null(strstr(tma_last_error(client), s.path));
	}
	cr_assert_eq(tma_fd(client), -1);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_not_null(strstr(tma_last_error(client), "the connection is closed: "));
	cr_assert_eq(tma_submit(client, &transform, &tickets[0]), TMA_DISCONNECTED);
	tma_free(client);
	server_stop(&s);
}

static void script_close(struct server *s)
{
	(void)s;
}

Test(connection, writing_to_a_service_that_is_gone_is_an_error_not_a_signal)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_close);
	client = server_client(&s, 5000);
	server_stop(&s);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_neq(*tma_last_error(client), '\0');
	tma_free(client);
}

Test(connection, may_begin_anew)
{
	struct server s = { 0 };
	struct server other = { 0 };
	tma_client *client;

	server_start(&s, script_close);
	server_start(&other, server_polite);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	cr_assert_eq(tma_connect(client, other.path), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0);
	tma_free(client);
	server_stop(&s);
	server_stop(&other);
}

static void script_silent(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request))
		;
}

Test(connection, a_timeout_closes_it)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_silent);
	client = server_client(&s, 50);
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	cr_assert_not_null(strstr(tma_last_error(client), "ping was not answered within 50 ms"), "%s",
	                   tma_last_error(client));
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	tma_free(client);
	server_stop(&s);
}

/* ---- Bytes that are no reply ------------------------------------------------------------------------ */

struct bytes_row {
	char name[32];
	char data[32];
	size_t len;
	char error[48];
};

static struct bytes_row sent;

#define DATA(text) .data = text, .len = sizeof text - 1

ParameterizedTestParameters(connection, garbage)
{
	/* The msgid of a first request is 0x10000. */
	static struct bytes_row rows[] = {
		{ .name = "a number", DATA("\x01"), .error = "not a reply" },
		{ .name = "text", DATA("HTTP/1.0 400 Bad Request"), .error = "not a reply" },
		{ .name = "reserved byte", DATA("\xc1"), .error = "not a reply" },
		{ .name = "ext", DATA("\x94\x01\xd4\x00\x00"), .error = "not a reply" },
		{ .name = "a huge array", DATA("\xdd\xff\xff\xff\xff"), .error = "not a reply" },
		{ .name = "three elements", DATA("\x93\x01\x00\xc0"), .error = "not a reply" },
		{ .name = "a request", DATA("\x94\x00\x00\xa4ping\x90"), .error = "not a reply" },
		{ .name = "unknown msgid", DATA("\x94\x01\x07\xc0\xc3"), .error = "request 7, which is not" },
	};

	return cr_make_param_array(struct bytes_row, rows, sizeof rows / sizeof rows[0]);
}

static void script_bytes(struct server *s)
{
	struct rpc_request request;
	struct buffer b = { 0 };

	server_request(s, &request);
	buffer_append(&b, sent.data, sent.len);
	server_send(s, &b);
	server_request(s, &request); /* returns when the client hangs up */
}

ParameterizedTest(struct bytes_row *row, connection, garbage)
{
	struct server s = { 0 };
	tma_client *client;

	sent = *row;
	server_start(&s, script_bytes);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_ping(client), TMA_PROTOCOL, "%s: %s", row->name, tma_last_error(client));
	cr_assert_not_null(strstr(tma_last_error(client), row->error), "%s: %s", row->name,
	                   tma_last_error(client));
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED, "%s", row->name);
	tma_free(client);
	server_stop(&s);
}

static void script_notify(struct server *s)
{
	static const char notification[] = "\x93\x02\xa4news\x90";
	struct rpc_request request;
	struct buffer b = { 0 };

	server_request(s, &request);
	buffer_append(&b, notification, sizeof notification - 1);
	server_send(s, &b);
	server_answer_true(s, &request);
}

Test(connection, notifications_are_dropped)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_notify);
	client = server_client(&s, 5000);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* ---- Split replies ---------------------------------------------------------------------------------- */

static void script_split(struct server *s)
{
	struct msg_transform_done done = { .has = 7, .path = { "strided", 7 }, .bytes = 123456, .ns = 789 };
	struct rpc_request request;
	struct buffer b = { 0 };
	size_t cut = 1;

	while (server_request(s, &request)) {
		rpc_encode_result(&b, request.msgid, request.method, &done);
		s->cut = buffer_len(&b);
		for (size_t at = 0; at < s->cut; at += cut) {
			size_t len = cut < s->cut - at ? cut : s->cut - at;

			cr_assert_eq(send(s->sock, b.data + b.start + at, len, MSG_NOSIGNAL), (ssize_t)len);
			usleep(50);
		}
		buffer_consume(&b, s->cut, 4096);
		cut++;
	}
	buffer_deinit(&b);
}

Test(connection, a_reply_may_come_in_any_pieces)
{
	struct tma_tensor t = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
	struct server s = { .cut = 2 };
	tma_client *client;

	server_start(&s, script_split);
	client = server_client(&s, 5000);
	for (size_t i = 1; i < 60; i++) {
		cr_assert_eq(tma_copy(client, &t, &t), 0, "%zu: %s", i, tma_last_error(client));
		cr_assert_str_eq(tma_last_result(client)->path, "strided");
		cr_assert_eq(tma_last_result(client)->bytes, 123456);
		cr_assert_eq(tma_last_result(client)->ns, 789);
	}
	tma_free(client);
	server_stop(&s);
}
