/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a session: it opens, finishes, ends, and is freed when nothing holds it any more.
 *
 * session_open takes every charge and every other resource before the session exists. session_finish stops
 * reading and lets what has arrived be answered. session_end cancels everything; after that session_settle
 * frees the session once the last job, mapping and handle are gone.
 */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/resource/planning.h"
#include "daemon/resource/prepared.h"
#include "daemon/resource/reach.h"
#include "daemon/resource/submission.h"
#include "daemon/resource/table.h"
#include "daemon/resource/bounce.h"
#include "daemon/server.h"
#include "deadline.h"
#include "peer_cgroup.h"

#define GROUPS 256 /* on the stack; more are allocated */

static void session_free(struct session *session);
static void on_closed(uv_handle_t *handle);

/* ---- Opening ------------------------------------------------------------------------------------------ */

/* Of a process with more groups than there is memory for, only the group that it runs as counts. */
void session_meet_groups(struct session *session)
{
	struct accounts *accounts = &session->server->accounts;
	gid_t few[GROUPS], *groups = few, *many = NULL;
	int n;

	if (!overrides_have(accounts->overrides, OVERRIDE_GID))
		return;
	account_meet(accounts, session->account, &session->peer.gid, 1);
	n = socket_peer_groups(session->fd, few, GROUPS);
	if (n > GROUPS) {
		groups = many = malloc((size_t)n * sizeof *many);
		n = many ? socket_peer_groups(session->fd, many, (size_t)n) : 0;
	}
	if (n > 0)
		account_meet(accounts, session->account, groups, (size_t)n);
	free(many);
}

int session_open_stream(struct session *session, uint32_t device, struct error *err)
{
	struct engine_stream **stream = &session->streams[device];

	if (!*stream)
		*stream = engine_stream_new(device_engine(&session->server->devices, device),
		                            &session->account->owners[device]);
	return *stream ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for a stream");
}

/* Returns the section of the peer's cgroup, NULL if it has none. Where the machine does not say which cgroup
 * it is, no section applies, and the log says so once. */
static int find_cgroup(struct session *session, const char **ret, struct error *err)
{
	struct server *server = session->server;
	const struct overrides *overrides = server->accounts.overrides;
	struct peer_cgroup cgroup;
	int r;

	*ret = NULL;
	if (!overrides_have(overrides, OVERRIDE_CGROUP))
		return 0;
	r = peer_cgroup_find(session->fd, session->peer.pid, &cgroup, err);
	if (r < 0)
		return r;
	if (!cgroup.unknown) {
		*ret = overrides_find_cgroup(overrides, cgroup.path);
	} else if (!server->misses_cgroups) {
		log_line(LOG_LEVEL_WARNING, "limits of cgroups do not apply to all connections: %s",
		         cgroup.unknown);
		server->misses_cgroups = true;
	}
	return 0;
}

static int find_account(struct session *session, struct error *err)
{
	struct accounts *accounts = &session->server->accounts;
	const char *cgroup;
	int r = find_cgroup(session, &cgroup, err);

	if (r < 0)
		return r;
	session->account =
	    cgroup ? account_ref_cgroup(accounts, cgroup) : account_of_peer(accounts, session->peer.uid);
	return session->account ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for an account");
}

static int session_init(struct session *session, struct server *server, int fd, struct error *err)
{
	int r = socket_peer(fd, &session->peer);

	/* Otherwise the kernel drops urgent bytes as we read past them, and closes their descriptors on this
	 * thread. */
	setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){ 1 }, sizeof(int));
	session->server = server;
	session->fd = fd;
	session->last = UINT64_MAX;
	if (r < 0)
		return error_set(err, STATUS_INTERNAL, "SO_PEERCRED: %s", strerror(-r));
	r = find_account(session, err);
	if (r < 0)
		return r;
	session_meet_groups(session);
	if (async_close_is_full(session->account))
		return error_set(err, STATUS_QUOTA,
		                 "too many of the descriptors that it sent are still being closed");
	r = charge_take(&session->connection, &server->accounts, session->account, CHARGE_CONNECTIONS, 1,
	                err);
	if (r < 0)
		return r;
	return session_open_stream(session, 0, err);
}

static void log_refusal(const struct session *session, const struct error *err)
{
	const struct account *account = session->account;
	const uid_t uid = session->peer.uid;
	char charged[32] = "";

	if (!log_allows(account ? account->user : uid, uv_now(&session->server->loop)))
		return;
	if (account && !*account->cgroup && account->uid != uid)
		snprintf(charged, sizeof charged, " (charged to uid %u)", account->uid);
	log_about(LOG_LEVEL_WARNING,
	          &(struct log_about){ .has_uid = true,
	                               .uid = uid,
	                               .cgroup = account ? account->cgroup : NULL,
	                               .pid = session->peer.pid,
	                               .status = status_name(err->status) },
	          "refused a connection: %s: %s%s", status_name(err->status), err->message, charged);
}

bool session_open(struct server *server, int fd)
{
	struct session *session = calloc(1, sizeof *session + server->devices.n * sizeof session->streams[0]);
	struct account *account = NULL;
	struct error err, *why = NULL;
	int r;

	if (!session) {
		if (log_allows(LOG_NOBODY, uv_now(&server->loop)))
			log_line(LOG_LEVEL_ERROR, "refused a connection: no memory");
		goto err_refuse;
	}
	if (session_init(session, server, fd, &err) < 0) {
		log_refusal(session, &err);
		why = &err;
		goto err_free;
	}
	r = uv_poll_init(&server->loop, &session->poll, fd);
	if (r < 0) {
		if (log_allows(session->account->user, uv_now(&server->loop)))
			log_line(LOG_LEVEL_ERROR, "refused a connection: %s", uv_strerror(r));
		goto err_free;
	}
	uv_timer_init(&server->loop, &session->frame_timer);
	uv_timer_init(&server->loop, &session->reply_timer);
	session->poll.data = session->frame_timer.data = session->reply_timer.data = session;
	session->handles = 3;
	session->id = ++server->last_session;
	frame_timer_reset(session);
	session->start_ms = session->used_ms = server_now_ms(server);
	region_table_init(&session->regions, session);
	TAILQ_INIT(&session->jobs_under_way);
	TAILQ_INSERT_TAIL(&server->sessions, session, entry);
	server->metrics.connections_accepted++;
	session_log(session, LOG_LEVEL_DEBUG, -1, "connected");
	session_update_poll(session);
	return time_slice_is_over(&server->time_slices, session->account);

err_free:
	account = session->account;
	if (account)
		account->refs++;
	session_free(session);
err_refuse:
	refuse_socket(server, fd, account, why);
	return true;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

void session_finish(struct session *session)
{
	int unread;

	if (session->state != SESSION_OPEN)
		return;
	session->state = SESSION_FINISHING;
	submission_stop(session->submission);
	if (session->last == UINT64_MAX)
		session->last =
		    session->received + (ioctl(session->fd, SIOCINQ, &unread) < 0 ? 0 : (uint64_t)unread);
	frame_timer_reset(session);
	session_update_poll(session);
	session_settle(session);
}

void session_end(struct session *session, enum log_level level, const char *reason)
{
	if (session->state == SESSION_ENDED)
		return;
	session->state = SESSION_ENDED;
	session_log(session, level, -1, "ended: %s", reason);
	if (level < LOG_LEVEL_DEBUG)
		session->server->metrics.sessions_ended++;

	session_stop_waiting(session);
	submission_stop(session->submission);
	if (session->unsent)
		TAILQ_REMOVE(&session->server->unsent, session, unsent_entry);
	session->unsent = false;
	session_drop_fds_before(session, UINT64_MAX);
	outgoing_drop(session);

	sequence_cancel_all(session);
	session_give_up_mappings(session);
	session_give_up_reaching(session);
	planning_give_up(session);
	tables_release_all(session);
	region_table_release_all(&session->regions);
	prepared_release_all(session);
	uv_poll_stop(&session->poll);
	frame_timer_reset(session);
	reply_timer_reset(session);
	session_settle(session);
}

static void close_handles(struct session *session)
{
	if (uv_is_closing((uv_handle_t *)&session->poll))
		return;
	uv_close((uv_handle_t *)&session->poll, on_closed);
	uv_close((uv_handle_t *)&session->frame_timer, on_closed);
	uv_close((uv_handle_t *)&session->reply_timer, on_closed);
}

static void on_closed(uv_handle_t *handle)
{
	struct session *session = handle->data;

	if (handle->type == UV_POLL)
		outgoing_close_socket(session);
	session->handles--;
	session_settle(session);
}

static bool is_all_answered(const struct session *session)
{
	return !session_reads(session) && session->waiting == WAIT_NONE && buffer_len(&session->out) == 0;
}

void session_settle(struct session *session)
{
	struct server *server = session->server;

	if (session->state == SESSION_ENDED && session->jobs == 0) {
		submission_close(session->submission);
		close_handles(session);
	}
	if (session->jobs > 0 || session->mappings > 0)
		return;
	if (session->state == SESSION_FINISHING && is_all_answered(session))
		session_end(session, LOG_LEVEL_DEBUG, "finished");
	if (session->state != SESSION_ENDED || session->handles > 0 || session->relays > 0)
		return;

	TAILQ_REMOVE(&server->sessions, session, entry);
	session_free(session);
	server_on_session_freed(server);
}

static void session_free(struct session *session)
{
	const struct devices *devices = &session->server->devices;

	bounce_free(session);
	region_table_deinit(&session->regions);
	id_table_deinit(&session->plans);
	id_table_deinit(&session->tables);
	for (uint32_t i = 0; i < devices->n; i++)
		engine_stream_free(device_engine(devices, i), session->streams[i]);
	input_drop(&session->server->inputs, &session->in, buffer_len(&session->in));
	buffer_deinit(&session->out);
	charge_release(&session->in_charge);
	charge_release(&session->fds_charge);
	charge_release(&session->out_charge);
	charge_release(&session->out_fds_charge);
	charge_release(&session->connection);
	account_unref(session->account);
	free(session);
}
