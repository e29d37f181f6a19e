/* Metrics over HTTP: GET /metrics, for Prometheus and its kin, on a socket of their own.
 *
 * libmicrohttpd speaks HTTP, on the loop's thread and without one of its own; nothing runs while nobody asks.
 * Whoever can connect may be hostile: connections are few, each has an absolute time for its request and its
 * answer, and after each step of HTTP the loop is left to others for a multiple of the time that the step
 * took. When all places are taken, a new connection gets the place of the peer that the exporter has waited
 * for longest: for a request that does not come, or to read what there is for it. A scraper that sends its
 * request at once and reads its answer keeps its place, however many others are slow; where nobody is slow,
 * new connections wait in the socket's queue.
 */
#ifndef DAEMON_OBSERVE_EXPORTER_H
#define DAEMON_OBSERVE_EXPORTER_H

#include <stdbool.h>
#include <stdint.h>

#include <uv.h>

#include "endpoint.h"
#include "proto/status.h"

struct MHD_Connection;
struct MHD_Daemon;
struct MHD_Response;
struct server;

#define EXPORTER_PEERS 32

struct exporter_peer {
	int fd;             /* -1: nobody */
	bool is_answered;   /* its request has come */
	uint64_t until_ms;  /* it may stay; UINT64_MAX: it has been shut down */
	uint64_t waited_ms; /* for it, since its last request or its answer began; before waiting_since_ms */
	uint64_t waiting_since_ms; /* for it to send or to read; UINT64_MAX: it is not waited for */
};

struct exporter {
	struct server *server;
	int fd;    /* listens; -1: nothing is open */
	bool owns; /* made by this process, this life or an earlier one */
	struct endpoint endpoint;
	char name[ENDPOINT_NAME];
	struct MHD_Daemon *http;
	struct MHD_Response *about;
	struct MHD_Response *no_page;
	struct MHD_Response *no_method;
	uv_poll_t listening;
	uv_poll_t polling;     /* what libmicrohttpd waits for */
	uv_timer_t tick;       /* ends a rest, or a peer's time */
	uint64_t accept_at_ms; /* again, after there were no descriptors or places */
	int n_peers;
	struct exporter_peer peers[EXPORTER_PEERS];
};

/* Listens on the socket that a service manager passed for metrics, else on the one that was ours already
 * (kept; -1: none), else at address (NULL: nowhere, and nothing is opened). Needs server->loop. On
 * failure kept is closed and its file removed. */
int exporter_open(struct exporter *exporter, struct server *server, int kept, const char *address,
                  struct error *err);

/* Ends everything at once, also what is half sent. It may be freed once the loop has ended. Idempotent. */
void exporter_close(struct exporter *exporter);

/* The head of a request has come whole: its answer begins. */
void exporter_on_request(struct exporter *exporter, struct MHD_Connection *connection);

/* Closes a socket that was ours already, and removes its file. -1 is allowed. */
void exporter_drop(int kept);

#endif
