/* SPDX-License-Identifier: Apache-2.0 */
/* Accepts connections while there are descriptors; when there are none, it pauses instead of spinning.
 * Answers the connections that a limit refuses. */
#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "daemon/config/options.h"
#include "daemon/loop/log.h"
#include "daemon/loop/passed.h"
#include "proto/program.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "connection.h"

#define BACKLOG         1024
#define RETRY_MS        100
#define ACCEPTS_AT_ONCE 64
#define DIRECTORY_MODE  0755

static void on_connection(uv_poll_t *poll, int status, int events);
static void on_retry(uv_timer_t *timer);
static void accept_some(struct listener *listener);
static void wait_for_fds(struct listener *listener, int error);

/* Refuses a setting of the socket's access if the service manager made the socket: its socket unit sets the
 * access, and silently ignoring our own setting could let in more users than intended. After a restart within
 * the process, the error is only logged, so that the service goes on with the socket that it has. */
static int refuse_access(const struct listener *listener, const struct options *options, int setting,
                         const char *key, struct error *err)
{
	const struct setting_origin *from = &options->origin[setting];
	char place[SETTING_PLACE_BYTES];

	if (!from->text)
		return 0;
	setting_place(setting, from, place, sizeof place);
	error_set(err, STATUS_INVALID_ARGUMENT,
	          "%s: the service manager made the socket; set %s= in its socket unit instead", place, key);
	if (listener->connections->service->recovery.count == 0)
		return err->status;
	log_line(LOG_LEVEL_WARNING, "%s", err->message);
	return 0;
}

/* Takes the socket that the service manager passed. Returns 1, 0 if there is none, or an error. */
static int take_passed(struct listener *listener, const struct options *options, struct error *err)
{
	int fd = passed_socket(NULL);

	if (fd < 0)
		return 0;
	if (refuse_access(listener, options, OPTION_SOCKET_GROUP, "SocketGroup", err) < 0 ||
	    refuse_access(listener, options, OPTION_SOCKET_MODE, "SocketMode", err) < 0)
		return err->status;
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0)
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "LISTEN_FDS: descriptor %d is not a listening Unix stream socket", fd);
	listener->fd = fd;
	listener->passed = true;
	socket_path(fd, listener->path);
	return 1;
}

/* Takes the socket from before a restart within the process. Returns 1, 0 if there is none, or an error. */
static int take_kept(struct listener *listener, int kept, struct error *err)
{
	if (kept < 0)
		return 0;
	if (sd_is_socket_unix(kept, SOCK_STREAM, 1, NULL, 0) <= 0)
		return error_set(err, STATUS_INTERNAL, "descriptor %d is not the socket that was kept open",
		                 kept);
	socket_path(kept, listener->path);
	listener->fd = kept;
	listener->owns_path = true;
	return 1;
}

void listener_drop(int kept)
{
	char path[SOCKET_PATH_BYTES];

	if (kept < 0)
		return;
	socket_unlink(socket_path(kept, path));
	close(kept);
}

/* Creates the last directory in the socket's path if it is missing, such as /run/tmad or
 * $XDG_RUNTIME_DIR/tmad. Called only for default paths. */
static void make_directory(const char *path)
{
	char directory[SOCKET_PATH_BYTES];
	char *slash;

	snprintf(directory, sizeof directory, "%s", path);
	slash = strrchr(directory, '/');
	if (!slash || slash == directory)
		return;
	*slash = '\0';
	mkdir(directory, DIRECTORY_MODE); /* if this fails, so does the bind, which is reported */
}

/* Refuses a setting of the socket's access if the socket is abstract: silently ignoring it could let in more
 * users than intended. */
static int refuse_abstract(const struct options *options, int setting, struct error *err)
{
	const struct setting_origin *from = &options->origin[setting];
	char place[SETTING_PLACE_BYTES];

	if (!from->text)
		return 0;
	setting_place(setting, from, place, sizeof place);
	return error_set(err, STATUS_INVALID_ARGUMENT,
	                 "%s: an abstract socket has neither group nor permissions; give --socket a path, or "
	                 "leave this setting out",
	                 place);
}

static int check_abstract(const struct listener *listener, const struct options *options, struct error *err)
{
	int r = refuse_abstract(options, OPTION_SOCKET_GROUP, err);

	if (r == 0)
		r = refuse_abstract(options, OPTION_SOCKET_MODE, err);
	if (r == 0)
		log_line(
		    LOG_LEVEL_NOTICE,
		    "%s: an abstract socket has no permissions: every user in this network namespace may "
		    "connect",
		    listener->path);
	return r;
}

/* Sets *err to the reason why the socket cannot be created. If the default path is one that only root can
 * use, the message suggests another. */
static int refuse_path(const struct listener *listener, const struct options *options, int number,
                       struct error *err)
{
	char own[OWN_SOCKET_BYTES];

	if (options->socket || own_socket_is_possible(listener->path))
		return error_set(err, STATUS_PERMISSION, "%s: %s", listener->path, strerror(number));
	return error_set(err, STATUS_PERMISSION,
	                 "%s: %s; choose a path that this user can create: --socket=%s", listener->path,
	                 strerror(number), own_socket_path(own));
}

static int bind_own(struct listener *listener, const struct options *options, struct error *err)
{
	const char *path = options->socket;
	char place[SETTING_PLACE_BYTES];

	if (path ? strlen(path) >= sizeof listener->path
	         : !socket_default_path(NULL, listener->path, sizeof listener->path))
		return error_set(err, STATUS_INVALID_ARGUMENT,
		                 "--socket: a socket's path has at most %zu bytes",
		                 sizeof listener->path - 1);
	if (path)
		snprintf(listener->path, sizeof listener->path, "%s", path);
	if (socket_is_abstract(listener->path)) {
		if (check_abstract(listener, options, err) < 0)
			return err->status;
	} else if (!path) {
		make_directory(listener->path);
	}

	listener->fd =
	    socket_listen_group(listener->path, BACKLOG, options->socket_mode, options->socket_group);
	switch (listener->fd) {
	case -EPERM:
		if (options->socket_group == SOCKET_ANY_GROUP)
			return error_set(err, STATUS_PERMISSION, "%s: %s", listener->path, strerror(EPERM));
		setting_place(OPTION_SOCKET_GROUP, &options->origin[OPTION_SOCKET_GROUP], place,
		              sizeof place);
		return error_set(err, STATUS_PERMISSION,
		                 "%s: only root may give %s to a group that tmad is not a member of", place,
		                 listener->path);
	case -EADDRINUSE:
		return error_set(err, STATUS_ALREADY_EXISTS,
		                 "%s: another server listens there; stop it, or choose another --socket",
		                 listener->path);
	case -EEXIST:
		return error_set(err, STATUS_ALREADY_EXISTS, "%s: a file that is not a socket is in the way",
		                 listener->path);
	default:
		if (listener->fd < 0)
			return refuse_path(listener, options, -listener->fd, err);
	}
	listener->owns_path = true;
	return 0;
}

int listener_open(struct listener *listener, struct connections *connections, int kept,
                  const struct options *options, struct error *err)
{
	int r;

	*listener = (struct listener){ .connections = connections, .fd = -1, .spare_fd = -1 };
	r = take_passed(listener, options, err);
	if (r == 0)
		r = take_kept(listener, kept, err);
	if (r == 0)
		r = bind_own(listener, options, err);
	if (r < 0) {
		listener_drop(kept);
		return r;
	}

	r = uv_poll_init(&connections->service->loop, &listener->poll, listener->fd);
	if (r < 0) {
		error_set(err, STATUS_INTERNAL, "%s: %s", listener->path, uv_strerror(r));
		if (listener->owns_path)
			socket_unlink(listener->path);
		close(listener->fd);
		listener->fd = -1;
		return err->status;
	}
	uv_timer_init(&connections->service->loop, &listener->retry);
	r = watch_start(&listener->poll, UV_READABLE, on_connection);
	if (r == 0) {
		listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
		r = listener->spare_fd < 0 ? -errno : 0;
	}
	if (r < 0) {
		listener_close(listener);
		return error_set(err, STATUS_NO_MEMORY, "%s: cannot be watched: %s", listener->path,
		                 strerror(-r));
	}
	return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct listener *listener = ((uv_poll_t *)handle)->data;

	close(listener->fd);
	listener->fd = -1;
}

void listener_close(struct listener *listener)
{
	if (listener->fd < 0 || uv_is_closing((uv_handle_t *)&listener->poll))
		return;

	if (listener->owns_path)
		socket_unlink(listener->path);
	listener->poll.data = listener;
	uv_close((uv_handle_t *)&listener->retry, NULL);
	uv_close((uv_handle_t *)&listener->poll, on_poll_closed);
	if (listener->spare_fd >= 0)
		close(listener->spare_fd);
	listener->spare_fd = -1;
}

void listener_pause(struct listener *listener)
{
	uv_poll_stop(&listener->poll);
	uv_timer_stop(&listener->retry);
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	accept_some((struct listener *)((char *)poll - offsetof(struct listener, poll)));
}

static void on_retry(uv_timer_t *timer)
{
	struct listener *listener = (struct listener *)((char *)timer - offsetof(struct listener, retry));

	if (listener->spare_fd < 0)
		listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (watch_start(&listener->poll, UV_READABLE, on_connection) < 0)
		uv_timer_start(&listener->retry, on_retry, RETRY_MS, 0);
}

static void accept_some(struct listener *listener)
{
	bool is_over = false;

	for (int i = 0; i < ACCEPTS_AT_ONCE && !is_over; i++) {
		int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			is_over = connection_open(listener->connections, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			wait_for_fds(listener, errno);
		else if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED &&
		         log_allows(LOG_NOBODY, uv_now(&listener->connections->service->loop)))
			log_line(LOG_LEVEL_WARNING, "accept on %s: %s", listener->path, strerror(errno));
		return;
	}
}

/* Called when accept has failed for lack of descriptors or memory: stops accepting for RETRY_MS. Uses the
 * spare descriptor to refuse the connection at the head of the queue, so that its client learns of it. */
static void wait_for_fds(struct listener *listener, int error)
{
	int fd;

	if (log_allows(LOG_NOBODY, uv_now(&listener->connections->service->loop)))
		log_line(LOG_LEVEL_WARNING, "accept on %s: %s; trying again in %d ms", listener->path,
		         strerror(error), RETRY_MS);
	if (listener->spare_fd >= 0) {
		close(listener->spare_fd);
		fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (fd >= 0)
			refuse_socket(listener->connections, fd, NULL, NULL);
		listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	}
	uv_poll_stop(&listener->poll);
	uv_timer_start(&listener->retry, on_retry, RETRY_MS, 0);
}

/* ==== Refused connections ============================================================================ */

/* Refused connections have no poll handles: they are few, and one timer checks all of them. */

#define CHECK_MS 10
#define WAIT_MS  1000

static void on_check(uv_timer_t *timer);

/* ---- One ---------------------------------------------------------------------------------------------- */

/* Finds the msgid of the first request, and leaves the request and its descriptors in the socket. */
static enum rpc_head peek_msgid(int fd, uint32_t *ret_msgid)
{
	uint8_t head[RPC_HEAD_BYTES];
	ssize_t n = recv(fd, head, sizeof head, MSG_PEEK | MSG_DONTWAIT);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? RPC_HEAD_SHORT : RPC_HEAD_OTHER;
	return n == 0 ? RPC_HEAD_OTHER : rpc_find_msgid(head, (size_t)n, ret_msgid);
}

static void answer_refused(int fd, uint32_t msgid, const struct error *err)
{
	struct buffer reply = { 0 };

	if (rpc_encode_last_error(&reply, msgid, err) == 0)
		send(fd, reply.data + reply.start, buffer_len(&reply), MSG_DONTWAIT | MSG_NOSIGNAL);
	buffer_deinit(&reply);
}

/* Answers the first request if it has arrived. Returns false if the connection has to wait, because too
 * little of the request has arrived. */
static bool try_to_answer(int fd, const struct error *err)
{
	uint32_t msgid = 0;
	enum rpc_head head = peek_msgid(fd, &msgid);

	if (head == RPC_HEAD_REQUEST)
		answer_refused(fd, msgid, err);
	return head != RPC_HEAD_SHORT;
}

static void close_one(struct connections *connections, struct account *account, int fd)
{
	struct charge none = { 0 };

	async_close_socket(&connections->service->chores, account, fd, &none);
	account_unref(account);
}

/* ---- Those that wait ---------------------------------------------------------------------------------- */

static void drop_refusal(struct connections *connections, uint32_t i)
{
	struct refusals *refusals = &connections->refusals;
	struct refusal *refusal = &refusals->of[i];

	close_one(connections, refusal->account, refusal->fd);
	refusals->n--;
	memmove(refusal, refusal + 1, (refusals->n - i) * sizeof *refusal);
}

/* Makes room for one more refusal of the account. If the account has too many, its oldest one is dropped,
 * otherwise the oldest of all if there is no room. */
static void make_room(struct connections *connections, const struct account *account)
{
	const struct refusals *refusals = &connections->refusals;
	uint32_t of_uid = 0, oldest = 0;

	for (uint32_t i = refusals->n; i-- > 0;)
		if (refusals->of[i].account == account) {
			of_uid++;
			oldest = i;
		}
	if (of_uid == REFUSALS_MOST_OF_UID)
		drop_refusal(connections, oldest);
	else if (refusals->n == REFUSALS_MOST)
		drop_refusal(connections, 0);
}

static void add_refusal(struct connections *connections, struct account *account, int fd,
                        const struct error *err)
{
	struct refusals *refusals = &connections->refusals;

	make_room(connections, account);
	refusals->of[refusals->n++] = (struct refusal){
		.account = account, .fd = fd, .since_ms = uv_now(&connections->service->loop), .error = *err
	};
	if (!uv_is_active((uv_handle_t *)&refusals->timer))
		uv_timer_start(&refusals->timer, on_check, CHECK_MS, CHECK_MS);
}

void refuse_socket(struct connections *connections, int fd, struct account *account, const struct error *err)
{
	struct socket_peer peer;

	if (!account && socket_peer(fd, &peer) == 0)
		account = account_of_peer(&connections->service->accounts, peer.uid);
	connections->service->metrics.connections_refused++;
	if (!account)
		close(fd);
	else if (!err || connections->service->state != SERVICE_RUNNING || try_to_answer(fd, err))
		close_one(connections, account, fd);
	else
		add_refusal(connections, account, fd, err);
}

static void on_check(uv_timer_t *timer)
{
	struct connections *connections = timer->data;
	struct refusals *refusals = &connections->refusals;
	uint64_t now = uv_now(timer->loop);

	for (uint32_t i = 0; i < refusals->n;) {
		struct refusal *refusal = &refusals->of[i];

		if (try_to_answer(refusal->fd, &refusal->error) || now - refusal->since_ms >= WAIT_MS)
			drop_refusal(connections, i);
		else
			i++;
	}
	if (refusals->n == 0)
		uv_timer_stop(timer);
}

void refusals_end(struct connections *connections)
{
	struct refusals *refusals = &connections->refusals;

	while (refusals->n > 0)
		drop_refusal(connections, refusals->n - 1);
	uv_timer_stop(&refusals->timer);
}
