/* SPDX-License-Identifier: Apache-2.0 */
/* The exporter serves metrics over HTTP (GET /metrics) to Prometheus and compatible scrapers, on a socket of
 * its own.
 *
 * libmicrohttpd implements HTTP. It runs on the loop's thread, and only when there is input, room for output
 * or a deadline. Peers may be hostile: the number of connections is limited, each request and each answer has
 * an absolute deadline, and after each run of libmicrohttpd the exporter rests for a multiple of the time
 * that the run took. If all places are taken, a new connection replaces the peer for which the exporter has
 * waited longest, either to send its request or to read the answer. So a scraper that sends its request at
 * once and reads the answer keeps its place, however many others are slow. If no peer is slow, new
 * connections wait in the queue of the socket.
 *
 * Only the loop's thread may use this.
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

#define ENDPOINT_NAME 160 /* size of a buffer for the name of an endpoint */

#define EXPORTER_PEERS 32 /* maximum number of connections at once */

/* A connection. Times are in ms by uv_now. */
struct exporter_peer {
	int fd;           /* owned by libmicrohttpd; -1: the place is free */
	bool is_answered; /* the head of a request has arrived, and its answer has not been sent completely */
	uint64_t until_ms; /* deadline of the request or the answer; UINT64_MAX: it has been shut down */
	/* Time for which the exporter has waited for the peer since it began to expect a request or to send
	 * an answer, without the time since waiting_since_ms. */
	uint64_t waited_ms;
	/* Start of the current wait for the peer to send or to read; UINT64_MAX: there is none. */
	uint64_t waiting_since_ms;
};

struct exporter {
	struct service *service;
	int fd;                   /* listening socket; -1: closed */
	bool owns;                /* this process created the socket, possibly before an execv (recovery.h) */
	struct endpoint endpoint; /* address to which the socket is bound */
	char name[ENDPOINT_NAME]; /* the address as text, for messages */
	struct MHD_Daemon *http;
	struct MHD_Response *about;     /* answer for / */
	struct MHD_Response *no_page;   /* answer for an unknown path */
	struct MHD_Response *no_method; /* answer to a method other than GET and HEAD */
	uv_poll_t listening;            /* polls fd for new connections */
	uv_poll_t polling;              /* polls the epoll descriptor of libmicrohttpd */
	uv_timer_t tick;                /* runs until a rest ends or a peer's deadline passes */
	uint64_t accept_at_ms; /* time to accept again after a lack of descriptors or places; 0: now */
	int n_peers;           /* number of places that are taken */
	struct exporter_peer peers[EXPORTER_PEERS];
};

/* Listens on the socket that a service manager passed for metrics. If there is none, listens on kept, a
 * socket from before a restart within the process (-1: none); if there is neither, at address. Does nothing
 * if address is NULL and there is no socket. Takes over kept: it is closed and its file removed if it is not
 * used, and on failure. service->loop must have been initialized. Returns 0 or an error. */
int exporter_open(struct exporter *exporter, struct service *service, int kept, const char *address,
                  struct error *err);

/* Ends all connections at once, even in the middle of an answer. Further calls have no effect. The exporter
 * may be freed once its handles have been closed by the loop. */
void exporter_close(struct exporter *exporter);

/* Closes a socket from before a restart within the process, and removes its file. kept may be -1. */
void exporter_drop(int kept);

#endif
