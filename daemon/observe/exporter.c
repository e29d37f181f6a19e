/* SPDX-License-Identifier: Apache-2.0 */
/* Implements the exporter: its listening socket, its pages, and its connections. exposition.c writes the
 * contents of /metrics. The exporter decides when libmicrohttpd may run. */
#include "exporter.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <microhttpd.h>
#include <systemd/sd-daemon.h>

#include "daemon/loop/log.h"
#include "daemon/loop/loop.h"
#include "daemon/loop/passed.h"
#include "daemon/memory/service.h"
#include "exposition.h"

#define SOCKET_MODE 0660 /* permissions of a Unix socket */

static void endpoint_name(const struct endpoint *endpoint, char name[ENDPOINT_NAME]);
static void exporter_on_request(struct exporter *exporter, struct MHD_Connection *connection);

/* ==== Listening ===================================================================================== */

static int listen_on_port(const struct endpoint *endpoint, int backlog)
{
	int fd = socket(endpoint->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

	if (fd < 0)
		return -errno;
	/* Connections from before a restart may still be closing. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
	if (bind(fd, (const struct sockaddr *)&endpoint->address, endpoint->len) == 0 &&
	    listen(fd, backlog) == 0)
		return fd;
	r = -errno;
	close(fd);
	return r;
}

/* Returns a new listening socket at the endpoint, non-blocking and close-on-exec, or ALREADY_EXISTS or
 * PERMISSION. The file of a Unix socket replaces a socket file on which nobody listens. */
static int endpoint_listen(const struct endpoint *endpoint, int backlog, struct error *err)
{
	const char *path = endpoint->path;
	int fd = *path ? socket_listen(path, backlog, SOCKET_MODE) : listen_on_port(endpoint, backlog);
	char name[ENDPOINT_NAME];

	if (fd >= 0)
		return fd;
	endpoint_name(endpoint, name);
	if (fd == -EADDRINUSE)
		return error_set(err, STATUS_ALREADY_EXISTS,
		                 "%s: another server listens there; stop it, or choose another --metrics",
		                 name);
	if (fd == -EEXIST)
		return error_set(err, STATUS_ALREADY_EXISTS, "%s: a file that is not a socket is in the way",
		                 name);
	return error_set(err, STATUS_PERMISSION, "%s: %s", name, strerror(-fd));
}

/* Sets *ret to the address to which the listening socket fd is bound; len is 0 if it is unknown. */
static void endpoint_of(struct endpoint *ret, int fd)
{
	*ret = (struct endpoint){ .len = sizeof ret->address };
	if (getsockname(fd, (struct sockaddr *)&ret->address, &ret->len) < 0)
		ret->len = 0;
	socket_path(fd, ret->path);
}

/* Writes the name of an endpoint, such as "unix:/run/x" or "http://127.0.0.1:9464". */
static void endpoint_name(const struct endpoint *endpoint, char name[ENDPOINT_NAME])
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)&endpoint->address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&endpoint->address;
	char host[INET6_ADDRSTRLEN] = "";

	if (*endpoint->path)
		snprintf(name, ENDPOINT_NAME, ENDPOINT_UNIX "%s", endpoint->path);
	else if (endpoint->len > 0 && endpoint->address.ss_family == AF_INET)
		snprintf(name, ENDPOINT_NAME, "http://%s:%d",
		         inet_ntop(AF_INET, &four->sin_addr, host, sizeof host), ntohs(four->sin_port));
	else if (endpoint->len > 0 && endpoint->address.ss_family == AF_INET6)
		snprintf(name, ENDPOINT_NAME, "http://[%s]:%d",
		         inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof host), ntohs(six->sin6_port));
	else
		snprintf(name, ENDPOINT_NAME, "a socket without an address");
}

/* ==== Pages ========================================================================================== */

/* A scrape takes a snapshot of all counters, and formats it block by block as its peer reads. */

#define BLOCK_BYTES 8192

struct scrape {
	struct snapshot *snapshot;
	struct exposition exposition;
	size_t len;  /* bytes of text in block */
	size_t sent; /* bytes of them that libmicrohttpd has taken */
	char block[BLOCK_BYTES];
};

_Static_assert(BLOCK_BYTES >= EXPOSITION_ROOM, "a block holds a line");

static const char about[] = "tmad: see /metrics\n";
static const char no_page[] = "not found: try / or /metrics\n";
static const char no_method[] = "only GET and HEAD are allowed\n";

static struct MHD_Response *fixed(const char *text)
{
	struct MHD_Response *response =
	    MHD_create_response_from_buffer(strlen(text), (void *)text, MHD_RESPMEM_PERSISTENT);

	if (response)
		MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	return response;
}

/* Creates the fixed answers. Returns 0, or -1 if out of memory. In both cases the caller must call
 * pages_close. */
static int pages_open(struct exporter *exporter)
{
	exporter->about = fixed(about);
	exporter->no_page = fixed(no_page);
	exporter->no_method = fixed(no_method);
	if (!exporter->about || !exporter->no_page || !exporter->no_method)
		return -1;
	return MHD_add_response_header(exporter->no_method, MHD_HTTP_HEADER_ALLOW, "GET, HEAD") == MHD_YES
	           ? 0
	           : -1;
}

static void pages_close(struct exporter *exporter)
{
	struct MHD_Response **all[] = { &exporter->about, &exporter->no_page, &exporter->no_method };

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		if (*all[i])
			MHD_destroy_response(*all[i]);
		*all[i] = NULL;
	}
}

/* ---- /metrics ----------------------------------------------------------------------------------------- */

/* Writes the next bytes of a scrape to text[room], as an MHD_ContentReaderCallback; cls is the scrape. */
static ssize_t on_room(void *cls, uint64_t pos, char *text, size_t room)
{
	struct scrape *scrape = cls;
	size_t n;

	(void)pos;
	if (scrape->sent == scrape->len) {
		scrape->sent = 0;
		scrape->len = exposition_write(&scrape->exposition, scrape->block, sizeof scrape->block);
		if (scrape->len == 0)
			return MHD_CONTENT_READER_END_OF_STREAM;
	}
	n = scrape->len - scrape->sent < room ? scrape->len - scrape->sent : room;
	memcpy(text, scrape->block + scrape->sent, n);
	scrape->sent += n;
	return (ssize_t)n;
}

static void on_scraped(void *cls)
{
	struct scrape *scrape = cls;

	free(scrape->snapshot);
	free(scrape);
}

static struct MHD_Response *scrape_new(struct service *service, bool openmetrics)
{
	struct scrape *scrape = malloc(sizeof *scrape);
	struct snapshot *snapshot = snapshot_new(service);
	struct MHD_Response *response = NULL;

	if (scrape && snapshot) {
		scrape->snapshot = snapshot;
		scrape->exposition = (struct exposition){ .snapshot = snapshot, .openmetrics = openmetrics };
		scrape->len = scrape->sent = 0;
		response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_room, scrape,
		                                             on_scraped);
	}
	if (!response) {
		free(snapshot);
		free(scrape);
		return NULL;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, exposition_type(openmetrics));
	return response;
}

/* Returns whether the client accepts OpenMetrics. Quality values are ignored: a client that lists the format
 * can read it. */
static bool wants_openmetrics(struct MHD_Connection *connection)
{
	const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	return accept && strstr(accept, "application/openmetrics-text");
}

static enum MHD_Result answer_scrape(struct exporter *exporter, struct MHD_Connection *connection)
{
	struct MHD_Response *response = scrape_new(exporter->service, wants_openmetrics(connection));
	enum MHD_Result r;

	if (!response)
		return MHD_NO;
	r = MHD_queue_response(connection, MHD_HTTP_OK, response);
	MHD_destroy_response(response);
	return r;
}

/* ---- Requests ----------------------------------------------------------------------------------------- */

/* Answers a request, as an MHD_AccessHandlerCallback; cls is the exporter. libmicrohttpd calls it with the
 * head of a request (*context is NULL), with each part of a body (*upload_size > 0), and at the end of the
 * request. A request with a body gets no answer: its connection is closed. */
static enum MHD_Result page_answer(void *cls, struct MHD_Connection *connection, const char *url,
                                   const char *method, const char *version, const char *upload,
                                   size_t *upload_size, void **context)
{
	struct exporter *exporter = cls;

	(void)version;
	(void)upload;
	if (strcmp(method, MHD_HTTP_METHOD_GET) && strcmp(method, MHD_HTTP_METHOD_HEAD))
		return *context
		           ? MHD_NO
		           : MHD_queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, exporter->no_method);
	if (!*context) {
		*context = exporter; /* the head has arrived */
		exporter_on_request(exporter, connection);
		return MHD_YES;
	}
	if (*upload_size > 0)
		return MHD_NO;
	if (!strcmp(url, "/metrics"))
		return answer_scrape(exporter, connection);
	if (!strcmp(url, "/"))
		return MHD_queue_response(connection, MHD_HTTP_OK, exporter->about);
	return MHD_queue_response(connection, MHD_HTTP_NOT_FOUND, exporter->no_page);
}

/* ==== Connections ==================================================================================== */

#define BACKLOG         1024 /* maximum number of connections in the socket's queue */
#define ACCEPTS_AT_ONCE 8    /* maximum number of connections accepted between two runs of libmicrohttpd */
#define RETRY_MS        100  /* pause after a lack of descriptors or memory */

/* Deadlines in ms: for the first request to arrive, for an answer to be read, and for each later request to
 * arrive. */
#define FIRST_MS  5000
#define ANSWER_MS 10000
#define NEXT_MS   60000

/* If all places are taken, a peer for which the exporter has waited for this time in ms has to make room. */
#define PATIENCE_MS 200

/* Size of a connection's send buffer in bytes. It limits how much is written before the exporter notices that
 * the peer does not read. */
#define SEND_BYTES 65536

/* Memory of a connection for the head of a request and a part of the answer, in bytes. */
#define CONNECTION_BYTES 16384

/* After each run of libmicrohttpd the exporter rests for 1 ms plus this multiple of the run's duration. */
#define REST_TIMES 9

static void on_listening(uv_poll_t *poll, int status, int events);
static void on_polling(uv_poll_t *poll, int status, int events);
static void on_tick(uv_timer_t *timer);
static void serve(struct exporter *exporter);

/* ---- Peers -------------------------------------------------------------------------------------------- */

static uint64_t now_of(const struct exporter *exporter)
{
	return uv_now(&exporter->service->loop);
}

/* Notes that the peer's next request is expected within most_ms. */
static void wait_for_request(const struct exporter *exporter, struct exporter_peer *peer, uint64_t most_ms)
{
	peer->is_answered = false;
	peer->waited_ms = 0;
	peer->waiting_since_ms = now_of(exporter);
	peer->until_ms = peer->waiting_since_ms + most_ms;
}

/* Gives a new connection a place, and frees the place of a closed one, as an MHD_NotifyConnectionCallback;
 * cls is the exporter. */
static void on_peer(void *cls, struct MHD_Connection *connection, void **context,
                    enum MHD_ConnectionNotificationCode what)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct exporter *exporter = cls;
	struct exporter_peer *peer = *context;

	if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
		if (peer) {
			peer->fd = -1;
			exporter->n_peers--;
			exporter->accept_at_ms = 0;
		}
		return;
	}
	for (peer = exporter->peers; peer->fd >= 0; peer++)
		continue;
	peer->fd = info->connect_fd;
	wait_for_request(exporter, peer, FIRST_MS);
	exporter->n_peers++;
	*context = peer;
}

static struct exporter_peer *peer_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

/* Notes that the head of a request has arrived and its answer begins. */
static void exporter_on_request(struct exporter *exporter, struct MHD_Connection *connection)
{
	struct exporter_peer *peer = peer_of(connection);

	if (!peer || peer->until_ms == UINT64_MAX)
		return;
	peer->is_answered = true;
	peer->waited_ms = 0;
	peer->waiting_since_ms = UINT64_MAX;
	peer->until_ms = now_of(exporter) + ANSWER_MS;
}

static void on_request_done(void *cls, struct MHD_Connection *connection, void **context,
                            enum MHD_RequestTerminationCode how)
{
	struct exporter_peer *peer = peer_of(connection);
	struct exporter *exporter = cls;

	*context = NULL;
	if (peer && peer->until_ms < UINT64_MAX && how == MHD_REQUEST_TERMINATED_COMPLETED_OK)
		wait_for_request(exporter, peer, NEXT_MS);
}

/* Updates the waiting time of a peer that is being answered: the exporter waits for it while its socket has
 * no room. */
static void check_reader(struct exporter_peer *peer, bool has_room, uint64_t now)
{
	if (has_room == (peer->waiting_since_ms == UINT64_MAX))
		return;
	if (has_room)
		peer->waited_ms += now - peer->waiting_since_ms;
	peer->waiting_since_ms = has_room ? UINT64_MAX : now;
}

/* Shortens the deadline of a peer that has closed its sending side in the middle of a request, which
 * libmicrohttpd does not always notice. Before the new deadline, libmicrohttpd can still answer what it has
 * read. */
static void check_writer(struct exporter_peer *peer, bool sends_no_more, uint64_t now)
{
	int unread;

	if (sends_no_more && peer->until_ms > now + PATIENCE_MS && ioctl(peer->fd, FIONREAD, &unread) == 0 &&
	    unread == 0)
		peer->until_ms = now + PATIENCE_MS;
}

static void check_peers(struct exporter *exporter)
{
	struct pollfd polled[EXPORTER_PEERS];
	uint64_t now = now_of(exporter);

	for (int i = 0; i < EXPORTER_PEERS; i++) {
		const struct exporter_peer *peer = &exporter->peers[i];

		polled[i] = (struct pollfd){ .fd = peer->until_ms == UINT64_MAX ? -1 : peer->fd,
			                     .events = peer->is_answered ? POLLOUT : POLLRDHUP };
	}
	if (poll(polled, EXPORTER_PEERS, 0) < 0)
		return;
	for (int i = 0; i < EXPORTER_PEERS; i++) {
		if (polled[i].fd >= 0 && exporter->peers[i].is_answered)
			check_reader(&exporter->peers[i], polled[i].revents != 0, now);
		else if (polled[i].fd >= 0)
			check_writer(&exporter->peers[i], polled[i].revents != 0, now);
	}
}

/* Returns the time in ms for which the exporter has waited for the peer. */
static uint64_t waited_for(const struct exporter_peer *peer, uint64_t now)
{
	return peer->waited_ms + (peer->waiting_since_ms <= now ? now - peer->waiting_since_ms : 0);
}

/* Shuts the connection down; libmicrohttpd then closes it. */
static void shut_down(struct exporter_peer *peer)
{
	shutdown(peer->fd, SHUT_RDWR);
	peer->until_ms = UINT64_MAX;
}

static void shut_down_late(struct exporter *exporter, uint64_t now)
{
	for (int i = 0; i < EXPORTER_PEERS; i++)
		if (exporter->peers[i].fd >= 0 && exporter->peers[i].until_ms <= now)
			shut_down(&exporter->peers[i]);
}

/* Shuts down the peer for which the exporter has waited longest, unless a peer is being shut down already. If
 * the exporter has waited for no peer long enough (PATIENCE_MS), sets accept_at_ms to the earliest time at
 * which it will have. Must be called when all places are taken and a connection waits for one. */
static void make_room(struct exporter *exporter, uint64_t now)
{
	struct exporter_peer *slowest = exporter->peers;
	uint64_t waited = 0;

	for (int i = 0; i < EXPORTER_PEERS; i++) {
		struct exporter_peer *peer = &exporter->peers[i];

		if (peer->until_ms == UINT64_MAX)
			return;
		if (waited_for(peer, now) > waited) {
			slowest = peer;
			waited = waited_for(peer, now);
		}
	}
	if (waited >= PATIENCE_MS)
		shut_down(slowest);
	else
		exporter->accept_at_ms = now + PATIENCE_MS - waited;
}

/* Returns the next time at which the exporter has to act without an event, or UINT64_MAX. */
static uint64_t next_end(const struct exporter *exporter)
{
	uint64_t first = exporter->accept_at_ms ? exporter->accept_at_ms : UINT64_MAX;

	for (int i = 0; i < EXPORTER_PEERS; i++)
		if (exporter->peers[i].fd >= 0 && exporter->peers[i].until_ms < first)
			first = exporter->peers[i].until_ms;
	return first;
}

/* ---- Serving ------------------------------------------------------------------------------------------ */

static void accept_some(struct exporter *exporter, uint64_t now)
{
	struct pollfd pending = { .fd = exporter->fd, .events = POLLIN };

	for (int i = 0; i < ACCEPTS_AT_ONCE && exporter->n_peers < EXPORTER_PEERS; i++) {
		struct sockaddr_storage address;
		socklen_t len = sizeof address;
		int fd =
		    accept4(exporter->fd, (struct sockaddr *)&address, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
				exporter->accept_at_ms = now + RETRY_MS;
			return;
		}
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &(int){ SEND_BYTES }, sizeof(int));
		MHD_add_connection(exporter->http, fd, (struct sockaddr *)&address,
		                   len); /* closes fd on failure */
	}
	if (exporter->n_peers == EXPORTER_PEERS && poll(&pending, 1, 0) > 0)
		make_room(exporter, now);
}

/* Returns whether libmicrohttpd has work that it can do at once. */
static bool is_busy(const struct exporter *exporter)
{
	MHD_UNSIGNED_LONG_LONG ms;

	return MHD_get_timeout(exporter->http, &ms) == MHD_YES && ms == 0;
}

/* Stops polling for ms milliseconds. */
static void rest(struct exporter *exporter, uint64_t ms)
{
	uv_poll_stop(&exporter->listening);
	uv_poll_stop(&exporter->polling);
	uv_timer_start(&exporter->tick, on_tick, ms, 0);
}

static void serve(struct exporter *exporter)
{
	uint64_t now = uv_now(&exporter->service->loop), start = uv_hrtime();

	if (exporter->accept_at_ms <= now) {
		exporter->accept_at_ms = 0;
		accept_some(exporter, now);
	}
	shut_down_late(exporter, now);
	MHD_run(exporter->http);
	check_peers(exporter);
	rest(exporter, 1 + (uv_hrtime() - start) * REST_TIMES / 1000000);
}

/* Waits for an event or the next deadline. */
static void watch(struct exporter *exporter)
{
	uint64_t now = uv_now(&exporter->service->loop), end = next_end(exporter);
	int r = watch_start(&exporter->polling, UV_READABLE, on_polling);

	if (r == 0 && !exporter->accept_at_ms)
		r = watch_start(&exporter->listening, UV_READABLE, on_listening);
	if (r < 0)
		rest(exporter, RETRY_MS);
	else if (end < UINT64_MAX)
		uv_timer_start(&exporter->tick, on_tick, end > now ? end - now : 0, 0);
}

static void on_tick(uv_timer_t *timer)
{
	struct exporter *exporter = timer->data;

	if (is_busy(exporter) || next_end(exporter) <= uv_now(timer->loop))
		serve(exporter);
	else
		watch(exporter);
}

static void on_listening(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	serve(poll->data);
}

static void on_polling(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	serve(poll->data);
}

/* ---- Opening and closing ------------------------------------------------------------------------------ */

/* Sets exporter->fd to the socket to listen on, as exporter_open describes. Returns 1, 0 if none is
 * configured, or an error. */
static int open_socket(struct exporter *exporter, int kept, const char *address, struct error *err)
{
	int passed = passed_socket(PASSED_METRICS);
	int r;

	if (passed < 0 && kept < 0) {
		if (!address)
			return 0;
		r = endpoint_parse(&exporter->endpoint, address, err);
		if (r == 0)
			r = kept = endpoint_listen(&exporter->endpoint, BACKLOG, err);
		if (r < 0)
			return r;
	} else if (passed < 0 && sd_is_socket(kept, AF_UNSPEC, SOCK_STREAM, 1) <= 0) {
		return error_set(err, STATUS_INTERNAL, "descriptor %d is not the socket that was kept open",
		                 kept);
	}
	exporter->owns = passed < 0;
	exporter->fd = passed < 0 ? kept : passed;
	endpoint_of(&exporter->endpoint, exporter->fd);
	endpoint_name(&exporter->endpoint, exporter->name);
	return 1;
}

static struct MHD_Daemon *start_http(struct exporter *exporter)
{
	return MHD_start_daemon(
	    MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL, page_answer, exporter,
	    MHD_OPTION_CONNECTION_LIMIT, (unsigned)EXPORTER_PEERS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
	    (size_t)CONNECTION_BYTES, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_peer,
	    exporter, MHD_OPTION_NOTIFY_COMPLETED, on_request_done, exporter, MHD_OPTION_END);
}

/* Closes the listening socket before the connections: a peer that sees its connection end must not be able to
 * connect again. */
static void stop_http(struct exporter *exporter)
{
	if (exporter->owns)
		socket_unlink(exporter->endpoint.path);
	if (exporter->owns)
		close(exporter->fd);
	exporter->fd = -1;
	if (exporter->http)
		MHD_stop_daemon(exporter->http);
	exporter->http = NULL;
	pages_close(exporter);
}

static int open_handles(struct exporter *exporter)
{
	uv_loop_t *loop = &exporter->service->loop;
	int r = uv_poll_init(loop, &exporter->listening, exporter->fd);

	if (r < 0)
		return r;
	r = uv_poll_init(loop, &exporter->polling,
	                 MHD_get_daemon_info(exporter->http, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd);
	if (r < 0) {
		uv_close((uv_handle_t *)&exporter->listening, NULL);
		return r;
	}
	uv_timer_init(loop, &exporter->tick);
	exporter->listening.data = exporter->polling.data = exporter->tick.data = exporter;
	return 0;
}

int exporter_open(struct exporter *exporter, struct service *service, int kept, const char *address,
                  struct error *err)
{
	int r;

	*exporter = (struct exporter){ .service = service, .fd = -1 };
	for (int i = 0; i < EXPORTER_PEERS; i++)
		exporter->peers[i].fd = -1;
	r = open_socket(exporter, kept, address, err);
	if (exporter->fd != kept)
		exporter_drop(kept);
	if (r <= 0)
		return r;
	exporter->http = start_http(exporter);
	if (!exporter->http || pages_open(exporter) < 0) {
		error_set(err, STATUS_NO_MEMORY, "%s: no memory or descriptors for metrics", exporter->name);
		goto err_http;
	}
	r = open_handles(exporter);
	if (r < 0) {
		error_set(err, STATUS_INTERNAL, "%s: %s", exporter->name, uv_strerror(r));
		goto err_http;
	}
	watch(exporter);
	log_line(LOG_LEVEL_INFO, "metrics on %s", exporter->name);
	return 0;

err_http:
	stop_http(exporter);
	return err->status;
}

void exporter_close(struct exporter *exporter)
{
	if (exporter->fd < 0)
		return;
	uv_close((uv_handle_t *)&exporter->listening, NULL);
	uv_close((uv_handle_t *)&exporter->polling, NULL);
	uv_close((uv_handle_t *)&exporter->tick, NULL);
	stop_http(exporter);
}

void exporter_drop(int kept)
{
	char path[SOCKET_PATH_BYTES];

	if (kept < 0)
		return;
	socket_unlink(socket_path(kept, path));
	close(kept);
}
