/* SPDX-License-Identifier: Apache-2.0 */
/* Implements a service that a test's script plays. */
#include "server.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "proto/wire/socket.h"

static void *server_main(void *arg)
{
	struct server *s = arg;

	do {
		s->sock = accept(s->listener, NULL, NULL);
		if (s->sock < 0)
			break;
		buffer_truncate(&s->in, 0);
		s->given = 0;
		memset(&s->scan, 0, sizeof s->scan);
		s->script(s);
		close(s->sock);
	} while (++s->connection < s->connections);
	return NULL;
}

void server_start(struct server *s, void (*script)(struct server *s))
{
	strcpy(s->directory, "/tmp/tma-client-XXXXXX");
	cr_assert_not_null(mkdtemp(s->directory));
	snprintf(s->path, sizeof s->path, "%s/sock", s->directory);
	s->listener = socket_listen(s->path, 4, 0600);
	cr_assert_geq(s->listener, 0);
	fcntl(s->listener, F_SETFL, 0); /* makes accept() block */
	s->decoder = rpc_decoder_new();
	s->script = script;
	cr_assert_eq(pthread_create(&s->thread, NULL, server_main, s), 0);
}

void server_stop(struct server *s)
{
	shutdown(s->listener, SHUT_RDWR);
	pthread_join(s->thread, NULL);
	close(s->listener);
	unlink(s->path);
	rmdir(s->directory);
	rpc_decoder_free(s->decoder);
	buffer_deinit(&s->in);
}

bool server_request(struct server *s, struct rpc_request *ret)
{
	struct error err;
	size_t len = 0;
	ssize_t n;

	buffer_consume(&s->in, s->given, 4096);
	s->given = 0;
	for (;;) {
		if (buffer_len(&s->in) && frame_scan(&s->scan, s->in.data + s->in.start, buffer_len(&s->in),
		                                     &frame_request_limits, &len, &err) == FRAME_COMPLETE)
			break;
		n = read(s->sock, buffer_reserve(&s->in, 4096), 4096);
		if (n <= 0)
			return false;
		buffer_commit(&s->in, (size_t)n);
	}
	if (rpc_decode_request(s->decoder, s->in.data + s->in.start, len, ret, &err) != RPC_DISPATCH)
		return false;
	s->given = len;
	return true;
}

void server_send(struct server *s, struct buffer *b)
{
	server_send_with_fds(s, b, NULL, 0);
}

void server_send_with_fds(struct server *s, struct buffer *b, const int *fds, size_t n)
{
	ssize_t sent;

	while (buffer_len(b)) {
		sent = socket_send(s->sock, b->data + b->start, buffer_len(b), fds, n);
		if (sent < 0)
			break;
		buffer_consume(b, (size_t)sent, 0);
		n = 0;
	}
	buffer_deinit(b);
}

void server_answer_transform(struct server *s, uint32_t msgid, const char *path, uint64_t bytes)
{
	struct msg_transform_done done = {
		.has = 7, .path = { path, strlen(path) }, .bytes = bytes, .ns = bytes + 1
	};
	struct buffer b = { 0 };

	rpc_encode_result(&b, msgid, &methods[METHOD_transform], &done);
	server_send(s, &b);
}

void server_answer_true(struct server *s, const struct rpc_request *request)
{
	struct buffer b = { 0 };

	rpc_encode_result(&b, request->msgid, &methods[METHOD_ping], NULL);
	server_send(s, &b);
}

void server_answer_created(struct server *s, const struct rpc_request *request, uint64_t region, int fd)
{
	server_answer_created_kind(s, request, region, REGION_KIND_MEMFD, fd, 0);
}

void server_answer_created_kind(struct server *s, const struct rpc_request *request, uint64_t region,
                                enum region_kind kind, int fd, size_t handle_len)
{
	char handle[128];
	struct msg_region_created done = { .has = handle_len ? F(region_created, handle) : 0,
		                           .region = region,
		                           .size = request->params.region_create.size,
		                           .kind = kind,
		                           .handle = { handle, handle_len } };
	struct buffer b = { 0 };

	memset(handle, 0x5a, sizeof handle);
	rpc_encode_result(&b, request->msgid, request->method, &done);
	server_send_with_fds(s, &b, &fd, fd >= 0);
}

void server_answer_info(struct server *s, const struct rpc_request *request, const char *engine)
{
	struct msg_info info = { .engine = { engine, strlen(engine) } };
	struct buffer b = { 0 };

	cr_assert_eq(request->method->id, METHOD_info);
	rpc_encode_result(&b, request->msgid, request->method, &info);
	server_send(s, &b);
}

void server_answer_registered(struct server *s, const struct rpc_request *request, uint64_t region)
{
	struct msg_region_registered done = { .region = region,
		                              .size = request->params.region_register.size };
	struct buffer b = { 0 };

	rpc_encode_result(&b, request->msgid, request->method, &done);
	server_send(s, &b);
}

void server_refuse(struct server *s, uint32_t msgid, int status, const char *message)
{
	struct error error;
	struct buffer b = { 0 };

	error_set(&error, status, "%s", message);
	rpc_encode_error(&b, msgid, &error);
	server_send(s, &b);
}

void server_answer(struct server *s, const struct rpc_request *request, const void *result)
{
	struct buffer b = { 0 };

	rpc_encode_result(&b, request->msgid, request->method, result);
	server_send(s, &b);
}

void server_answer_queued(struct server *s, uint32_t msgid)
{
	struct buffer b = { 0 };

	rpc_encode_queued(&b, msgid);
	server_send(s, &b);
}

void server_notify_done(struct server *s, uint32_t msgid, const struct method *method, const void *result,
                        const struct error *error)
{
	struct buffer b = { 0 };

	rpc_encode_done(&b, msgid, method, result, error);
	server_send(s, &b);
}

tma_client *server_client(const struct server *s, int timeout_ms)
{
	tma_client *client = tma_new();

	cr_assert_not_null(client);
	tma_set_timeout(client, timeout_ms);
	tma_set_reconnect(client, -1);
	cr_assert_eq(tma_connect(client, s->path), 0, "%s", tma_last_error(client));
	return client;
}

void server_wait_hang_up(tma_client *client)
{
	struct pollfd wait = { .fd = tma_fd(client) };

	cr_assert_eq(poll(&wait, 1, 5000), 1);
	cr_assert(wait.revents & POLLHUP);
}

void server_polite(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		switch (request.method->id) {
		case METHOD_ping:
			server_answer_true(s, &request);
			break;
		case METHOD_region_release: {
			struct msg_region_released done = { .has = 1, .state = REGION_STATE_CLOSED };
			struct buffer b = { 0 };

			rpc_encode_result(&b, request.msgid, request.method, &done);
			server_send(s, &b);
			break;
		}
		default:
			server_answer_transform(s, request.msgid, "memcpy", 64);
			break;
		}
	}
}
