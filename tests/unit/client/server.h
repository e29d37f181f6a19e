/* SPDX-License-Identifier: Apache-2.0 */
/* A service that a test's script plays: one thread serves one connection at a time and sends whatever bytes
 * the test wants. Failures are Criterion's. */
#ifndef TESTS_UNIT_CLIENT_SERVER_H
#define TESTS_UNIT_CLIENT_SERVER_H

#include <pthread.h>
#include <stddef.h>

#include "client/client.h"

struct server {
	char directory[32];
	char path[64];
	int listener;
	int sock; /* of the connection while the script runs */
	struct buffer in;
	size_t given; /* bytes of `in` that the last request occupies and borrows */
	struct frame_scan scan;
	struct rpc_decoder *decoder;
	pthread_t thread;
	void (*script)(struct server *s);
	size_t cut;      /* free for the script's use */
	int connections; /* connections to serve one after the other; 0: one */
	int connection;  /* index of the connection that the script serves, from 0 */
};

/* Listens at s->path and runs the script once for each of s->connections connections; a connection ends when
 * the script returns. */
void server_start(struct server *s, void (*script)(struct server *s));
void server_stop(struct server *s);

/* Decodes the next request, which stays valid until the one after it is read. Returns false when the client
 * is gone. */
bool server_request(struct server *s, struct rpc_request *ret);

/* Sends all of b and frees what it holds. */
void server_send(struct server *s, struct buffer *b);
void server_send_with_fds(struct server *s, struct buffer *b, const int *fds, size_t n);

/* These answer a transform, ping or region_create as a service would. */
void server_answer_transform(struct server *s, uint32_t msgid, const char *path, uint64_t bytes);
void server_answer_true(struct server *s, const struct rpc_request *request);
void server_answer_created(struct server *s, const struct rpc_request *request, uint64_t region, int fd);

/* Answers with a region of any kind, an fd (-1: none) and a handle of handle_len bytes, each 0x5a. */
void server_answer_created_kind(struct server *s, const struct rpc_request *request, uint64_t region,
                                enum region_kind kind, int fd, size_t handle_len);
/* Answers an info request as a service on that engine. Fields that no test's client reads are left out. */
void server_answer_info(struct server *s, const struct rpc_request *request, const char *engine);
void server_answer_registered(struct server *s, const struct rpc_request *request, uint64_t region);
void server_refuse(struct server *s, uint32_t msgid, int status, const char *message);

/* Answers with a result of the request's method; NULL stands for true. */
void server_answer(struct server *s, const struct rpc_request *request, const void *result);

/* Ends a request that was answered as queued, with its result or, unless it is NULL, with error. */
void server_answer_queued(struct server *s, uint32_t msgid);
void server_notify_done(struct server *s, uint32_t msgid, const struct method *method, const void *result,
                        const struct error *error);

/* Returns a client that is connected to the server and does not reconnect by itself. */
tma_client *server_client(const struct server *s, int timeout_ms);

/* Waits until the server has closed the client's connection. */
void server_wait_hang_up(tma_client *client);

/* A script that answers every ping, transform and region_release. */
void server_polite(struct server *s);

#endif
