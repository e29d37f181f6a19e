/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter serves metrics over HTTP (GET /metrics), for Prometheus and compatible scrapers, on a socket
 * of its own.
 *
 * libmicrohttpd speaks HTTP, on the loop's thread and without a thread of its own; nothing runs without
 * requests. Peers may be hostile: connections are few, each has an absolute deadline for its request and its
 * answer, and after each step of HTTP the loop is left to others for a multiple of the time that the step
 * took. When all places are taken, a new connection replaces the peer that has kept the exporter waiting for
 * longest: for its request, or to read its answer. A scraper that sends its request at once and reads its
 * answer keeps its place, however many others are slow; if nobody is slow, new connections wait in the
 * socket's queue.
 */
#ifndef DAEMON_OBSERVE_EXPORTER_H
#define DAEMON_OBSERVE_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "daemon/config/endpoint.h"
#include "proto/status.h"

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;
struct service;

#define ENDPOINT_NAME 160

#define EXPORTER_PEERS 32

struct exporter_peer {
	int fd;            /* -1: no peer */
	bool is_answered;  /* its request has arrived */
	uint64_t until_ms; /* its deadline; UINT64_MAX: it has been shut down */
	/* So long the exporter has waited for the peer since its last request or its answer began; the time
	 * since waiting_since_ms comes on top. */
	uint64_t waited_ms;
	/* The exporter waits since then for the peer to send or to read; UINT64_MAX: it does not wait. */
	uint64_t waiting_since_ms;
};

struct exporter {
	struct service *service;
	int fd;    /* the listening socket; -1: closed */
	bool owns; /* the socket was created by this process, in this life or an earlier one */
	struct endpoint endpoint;
	char name[ENDPOINT_NAME];
	struct MHD_Daemon *http;
	struct MHD_Response *about;
	struct MHD_Response *no_page;
	struct MHD_Response *no_method;
	uv_poll_t listening;
	uv_poll_t polling;     /* polls the descriptor that libmicrohttpd waits for */
	uv_timer_t tick;       /* runs until a rest ends or a peer's deadline passes */
	uint64_t accept_at_ms; /* when to accept again after a lack of descriptors or places */
	int n_peers;
	struct exporter_peer peers[EXPORTER_PEERS];
};

/* Listens on the socket that a service manager passed for metrics, otherwise on the one from before a restart
 * within the process (kept; -1: none), otherwise at address; does nothing if that is NULL. Needs
 * service->loop. On failure, kept is closed and its file removed. */
int exporter_open(struct exporter *exporter, struct service *service, int kept, const char *address,
                  struct error *err);

/* Ends all connections at once, even in the middle of an answer. The exporter may be freed once the loop has
 * ended. Idempotent. */
void exporter_close(struct exporter *exporter);

/* Closes a socket from before a restart within the process, and removes its file. -1 is allowed. */
void exporter_drop(int kept);

#endif
