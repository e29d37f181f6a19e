/* SPDX-License-Identifier: Apache-2.0 */
/* A service made of a script: one thread, one connection, whatever bytes the test wants. */
#ifndef TESTS_UNIT_CLIENT_SERVER_H
#define TESTS_UNIT_CLIENT_SERVER_H

#include <pthread.h>
#include <stddef.h>

#include "client/client.h"

struct server {
	char directory[32];
	char path[64];
	int listener;
	int sock; /* of the connection, during the script */
	struct buffer in;
	size_t given; /* bytes of it: the last request, which is borrowed from them */
	struct frame_scan scan;
	struct rpc_decoder *decoder;
	pthread_t thread;
	void (*script)(struct server *s);
	size_t cut;      /* for the script */
	int connections; /* to serve one after the other; 0: one */
	int connection;  /* that the script runs for, from 0 */
};

/* Listens at s->path and runs the script for the first connection, or more of them; each ends with it. */
void server_start(struct server *s, void (*script)(struct server *s));
void server_stop(struct server *s);

/* The next request, decoded, valid until the one after it; false when the client is gone. */
bool server_request(struct server *s, struct rpc_request *ret);

/* Sends all; frees what the buffer holds. */
void server_send(struct server *s, struct buffer *b);
void server_send_with_fds(struct server *s, struct buffer *b, const int *fds, size_t n);

/* Answers a request of transform, ping or region_create as a service would. */
void server_answer_transform(struct server *s, uint32_t msgid, const char *path, uint64_t bytes);
void server_answer_true(struct server *s, const struct rpc_request *request);
void server_answer_created(struct server *s, const struct rpc_request *request, uint64_t region, int fd);

/* A region of any kind, with an fd (-1: none) and a handle of so many bytes 0x5a. */
void server_answer_created_kind(struct server *s, const struct rpc_request *request, uint64_t region,
                                enum region_kind kind, int fd, size_t handle_len);
/* info of a service on that engine; what a client of the test's has no use for is left out. */
void server_answer_info(struct server *s, const struct rpc_request *request, const char *engine);
void server_answer_registered(struct server *s, const struct rpc_request *request, uint64_t region);
void server_refuse(struct server *s, uint32_t msgid, int status, const char *message);

/* A result of the request's method; NULL: true. */
void server_answer(struct server *s, const struct rpc_request *request, const void *result);

/* The end of a request that was answered as queued: its result, or error unless that is NULL. */
void server_answer_queued(struct server *s, uint32_t msgid);
void server_notify_done(struct server *s, uint32_t msgid, const struct method *method, const void *result,
                        const struct error *error);

/* A client connected to the server, which does not connect again by itself. */
tma_client *server_client(const struct server *s, int timeout_ms);

/* Until the server has closed the client's connection. */
void server_wait_hang_up(tma_client *client);

/* A script that answers every ping, transform and region_release. */
void server_polite(struct server *s);

#endif
