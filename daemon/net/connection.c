/* SPDX-License-Identifier: Apache-2.0 */
/* A connection opens, waits for its time slices, finishes, ends, and is freed when nothing holds it any more.
 *
 * connection_open acquires every charge and every other resource before the session exists. connection_finish
 * stops reading and lets what has arrived be answered. connection_end cancels everything; after that
 * connection_settle frees the session once its last job, mapping, relay and handle are gone.
 */
#include "connection.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "daemon/api/dispatch.h"
#include "daemon/jobs/job.h"
#include "daemon/jobs/links.h"
#include "daemon/jobs/planning.h"
#include "daemon/jobs/submission.h"
#include "daemon/jobs/table.h"

#define GROUPS 256 /* groups that fit on the stack; for more, memory is allocated */

static void frame_timer_pause(struct connection *connection);
static void time_slices_remove(struct time_slices *time_slices, struct session *session);
static void time_slices_wake_waiting(struct time_slices *time_slices, struct account *account);
static void stop_waiting(struct connection *connection);
static void connection_free(struct connection *connection);
static void on_closed(uv_handle_t *handle);

static const struct peer_ops peer_ops = {
	.reply = connection_reply,
	.reply_queued = connection_reply_queued,
	.notify_done = connection_notify_done,
	.refuse = connection_refuse,
	.flush = connection_flush,
	.charge_fd = connection_charge_fd,
	.must_wait = connection_must_wait,
	.wait_for_memory = connection_wait_for_memory,
	.on_memory = connection_on_memory,
	.on_job_ended = connection_on_job_ended,
	.update_poll = connection_update_poll,
	.end = connection_end,
	.settle = connection_settle,
};

static void init_timer(struct connections *connections, uv_timer_t *timer)
{
	uv_timer_init(&connections->service->loop, timer);
	timer->data = connections;
}

void connections_start(struct connections *connections, struct service *service, void (*on_freed)(void *arg),
                       void *arg)
{
	connections->service = service;
	connections->on_freed = on_freed;
	connections->arg = arg;
	TAILQ_INIT(&connections->unsent);
	init_timer(connections, &connections->resend);
	init_timer(connections, &connections->receipts);
	init_timer(connections, &connections->idle);
	init_timer(connections, &connections->refusals.timer);
	init_timer(connections, &connections->trim.timer);
	time_slices_open(&connections->time_slices, &service->loop, service->clock, &service->accounts);
	inputs_open(&connections->inputs, &service->loop, service->limits.connections);
}

void connections_each(struct connections *connections, void (*act)(struct connection *connection))
{
	struct session *session, *next;

	for (session = TAILQ_FIRST(&connections->service->sessions); session; session = next) {
		next = TAILQ_NEXT(session, entry);
		act(connection_of(session));
	}
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

/* If there is no memory for the list of the process's groups, only the group that the process runs as
 * counts. */
void connection_meet_groups(struct connection *connection)
{
	struct accounts *accounts = &connection->session.service->accounts;
	gid_t few[GROUPS], *groups = few, *many = NULL;
	int n;

	if (!overrides_have(accounts->overrides, OVERRIDE_GID))
		return;
	account_meet(accounts, connection->session.account, &connection->session.peer.gid, 1);
	n = socket_peer_groups(connection->fd, few, GROUPS);
	if (n > GROUPS) {
		groups = many = malloc((size_t)n * sizeof *many);
		n = many ? socket_peer_groups(connection->fd, many, (size_t)n) : 0;
	}
	if (n > 0)
		account_meet(accounts, connection->session.account, groups, (size_t)n);
	free(many);
}

/* Sets *ret to the name of the settings' section for the peer's cgroup, or to NULL if it has none. If the
 * machine does not reveal the peer's cgroup, no section applies, and the log says so once. Returns 0, or the
 * error of peer_cgroup_find. */
static int find_cgroup(struct connection *connection, const char **ret, struct error *err)
{
	struct connections *connections = connection->connections;
	const struct overrides *overrides = connections->service->accounts.overrides;
	struct peer_cgroup cgroup;
	int r;

	*ret = NULL;
	if (!overrides_have(overrides, OVERRIDE_CGROUP))
		return 0;
	r = peer_cgroup_find(connection->fd, connection->session.peer.pid, &cgroup, err);
	if (r < 0)
		return r;
	if (!cgroup.unknown) {
		*ret = overrides_find_cgroup(overrides, cgroup.path);
	} else if (!connections->misses_cgroups) {
		log_line(LOG_LEVEL_WARNING, "limits of cgroups do not apply to all connections: %s",
		         cgroup.unknown);
		connections->misses_cgroups = true;
	}
	return 0;
}

static int find_account(struct connection *connection, struct error *err)
{
	struct accounts *accounts = &connection->session.service->accounts;
	const char *cgroup;
	int r = find_cgroup(connection, &cgroup, err);

	if (r < 0)
		return r;
	connection->session.account = cgroup ? account_ref_cgroup(accounts, cgroup)
	                                     : account_of_peer(accounts, connection->session.peer.uid);
	return connection->session.account ? 0 : error_set(err, STATUS_NO_MEMORY, "no memory for an account");
}

static int init(struct connection *connection, struct connections *connections, int fd, struct error *err)
{
	struct session *session = &connection->session;
	int r = socket_peer(fd, &session->peer);

	/* Without this option, the kernel drops urgent bytes as we read past them, and closes their
	 * descriptors on this thread. */
	setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &(int){ 1 }, sizeof(int));
	session->service = connections->service;
	session->ops = &peer_ops;
	session->streams = connection->streams;
	connection->connections = connections;
	connection->fd = fd;
	connection->last = UINT64_MAX;
	if (r < 0)
		return error_set(err, STATUS_INTERNAL, "SO_PEERCRED: %s", strerror(-r));
	r = find_account(connection, err);
	if (r < 0)
		return r;
	connection_meet_groups(connection);
	if (async_close_is_full(session->account))
		return error_set(err, STATUS_QUOTA,
		                 "too many of the descriptors that it sent are still being closed");
	r = charge_take(&connection->charge, &session->service->accounts, session->account,
	                CHARGE_CONNECTIONS, 1, err);
	if (r < 0)
		return r;
	return session_open_stream(session, 0, err);
}

static void log_refusal(const struct connection *connection, const struct error *err)
{
	const struct account *account = connection->session.account;
	const uid_t uid = connection->session.peer.uid;
	char charged[32] = "";

	if (!log_allows(account ? account->user : uid, uv_now(&connection->session.service->loop)))
		return;
	if (account && !*account->cgroup && account->uid != uid)
		snprintf(charged, sizeof charged, " (charged to uid %u)", account->uid);
	log_about(LOG_LEVEL_WARNING,
	          &(struct log_about){ .has_uid = true,
	                               .uid = uid,
	                               .cgroup = account ? account->cgroup : NULL,
	                               .pid = connection->session.peer.pid,
	                               .status = status_name(err->status) },
	          "refused a connection: %s: %s%s", status_name(err->status), err->message, charged);
}

/* Adds the session to service->sessions. The connection must have all of its resources by now. */
static void session_begin(struct session *session, uint64_t id)
{
	struct service *service = session->service;

	session->id = id;
	session->start_ms = session->used_ms = service_now_ms(service);
	region_table_init(&session->regions, session);
	TAILQ_INIT(&session->jobs_under_way);
	TAILQ_INSERT_TAIL(&service->sessions, session, entry);
	service->metrics.connections_accepted++;
	session_log(session, LOG_LEVEL_DEBUG, -1, "connected");
}

bool connection_open(struct connections *connections, int fd)
{
	struct service *service = connections->service;
	struct connection *connection =
	    calloc(1, sizeof *connection + service->devices.n * sizeof connection->streams[0]);
	struct account *account = NULL;
	struct error err, *why = NULL;
	int r;

	if (!connection) {
		if (log_allows(LOG_NOBODY, uv_now(&service->loop)))
			log_line(LOG_LEVEL_ERROR, "refused a connection: no memory");
		goto err_refuse;
	}
	if (init(connection, connections, fd, &err) < 0) {
		log_refusal(connection, &err);
		why = &err;
		goto err_free;
	}
	r = uv_poll_init(&service->loop, &connection->poll, fd);
	if (r < 0) {
		if (log_allows(connection->session.account->user, uv_now(&service->loop)))
			log_line(LOG_LEVEL_ERROR, "refused a connection: %s", uv_strerror(r));
		goto err_free;
	}
	uv_timer_init(&service->loop, &connection->frame_timer);
	uv_timer_init(&service->loop, &connection->reply_timer);
	connection->poll.data = connection->frame_timer.data = connection->reply_timer.data = connection;
	connection->handles = 3;
	frame_timer_reset(connection);
	session_begin(&connection->session, ++connections->last_id);
	connection_update_poll(&connection->session);
	return time_slice_is_over(&connections->time_slices, connection->session.account);

err_free:
	account = connection->session.account;
	if (account)
		account->refs++;
	connection_free(connection);
err_refuse:
	refuse_socket(connections, fd, account, why);
	return true;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

void connection_finish(struct connection *connection)
{
	int unread;

	if (connection->session.state != SESSION_OPEN)
		return;
	connection->session.state = SESSION_FINISHING;
	submission_stop(connection->session.submission);
	if (connection->last == UINT64_MAX)
		connection->last = connection->received +
		                   (ioctl(connection->fd, SIOCINQ, &unread) < 0 ? 0 : (uint64_t)unread);
	frame_timer_reset(connection);
	session_update_poll(&connection->session);
	session_settle(&connection->session);
}

void connection_end(struct session *session, enum log_level level, const char *reason)
{
	struct connection *connection = connection_of(session);

	if (session->state == SESSION_ENDED)
		return;
	session->state = SESSION_ENDED;
	session_log(session, level, -1, "ended: %s", reason);
	if (level < LOG_LEVEL_DEBUG)
		session->service->metrics.sessions_ended++;

	stop_waiting(connection);
	submission_stop(session->submission);
	if (connection->unsent)
		TAILQ_REMOVE(&connection->connections->unsent, connection, unsent_entry);
	connection->unsent = false;
	session_drop_fds_before(session, UINT64_MAX);
	outgoing_drop(connection);

	sequence_cancel_all(session);
	session_give_up_mappings(session);
	session_give_up_reaching(session);
	planning_give_up(session);
	tables_release_all(session);
	region_table_release_all(&session->regions);
	prepared_release_all(session);
	uv_poll_stop(&connection->poll);
	frame_timer_reset(connection);
	reply_timer_reset(connection);
	connection_settle(session);
}

static void close_handles(struct connection *connection)
{
	if (uv_is_closing((uv_handle_t *)&connection->poll))
		return;
	uv_close((uv_handle_t *)&connection->poll, on_closed);
	uv_close((uv_handle_t *)&connection->frame_timer, on_closed);
	uv_close((uv_handle_t *)&connection->reply_timer, on_closed);
}

static void on_closed(uv_handle_t *handle)
{
	struct connection *connection = handle->data;

	if (handle->type == UV_POLL)
		outgoing_close_socket(connection);
	connection->handles--;
	session_settle(&connection->session);
}

static bool is_all_answered(const struct connection *connection)
{
	return !connection_reads(connection) && connection->session.waiting == WAIT_NONE &&
	       buffer_len(&connection->out) == 0;
}

void connection_settle(struct session *session)
{
	struct connection *connection = connection_of(session);
	struct connections *connections = connection->connections;

	if (session->state == SESSION_ENDED && session->jobs == 0) {
		submission_close(session->submission);
		close_handles(connection);
	}
	if (session->jobs > 0 || session->mappings > 0)
		return;
	if (session->state == SESSION_FINISHING && is_all_answered(connection))
		session_end(session, LOG_LEVEL_DEBUG, "finished");
	if (session->state != SESSION_ENDED || connection->handles > 0 || session->relays > 0)
		return;

	TAILQ_REMOVE(&session->service->sessions, session, entry);
	connection_free(connection);
	connections->on_freed(connections->arg);
}

static void connection_free(struct connection *connection)
{
	struct session *session = &connection->session;
	const struct devices *devices = &session->service->devices;

	bounce_free(session);
	region_table_deinit(&session->regions);
	id_table_deinit(&session->plans);
	id_table_deinit(&session->tables);
	for (uint32_t i = 0; i < devices->n; i++)
		engine_stream_free(device_engine(devices, i), session->streams[i]);
	input_drop(&connection->connections->inputs, &connection->in, buffer_len(&connection->in));
	buffer_deinit(&connection->out);
	charge_release(&connection->in_charge);
	charge_release(&session->fds_charge);
	charge_release(&session->out_charge);
	charge_release(&session->out_fds_charge);
	charge_release(&connection->charge);
	account_unref(session->account);
	free(connection);
}

/* ==== Waiting ======================================================================================== */

/* These functions decide when a session's next request has to wait, and when it may go on (backpressure).
 *
 * A session that must not handle a request yet leaves its input unread, so that its peer's socket fills up.
 * It is in at most one queue: account->waiting (for a job of the user to end) or account->ready (for a time
 * slice).
 */

/* Returns whether one more transform may queue behind a job that waits for a timeline. */
static bool fits_behind(const struct session *session)
{
	return session->transforms < session->service->limits.jobs_behind_wait &&
	       charge_fits(&session->service->accounts, session->account, CHARGE_BEHIND_WAITS, 1);
}

/* The time for which a request is left unread is not counted against the peer (frame_timer_pause). A session
 * that already waits stays in its queue. An entry of its ring may have put it there while messages were still
 * to be handled after the message that rang (submission_ring). */
bool connection_must_wait(struct session *session)
{
	struct connection *connection = connection_of(session);
	struct time_slices *time_slices = &connection->connections->time_slices;

	if (session->waiting != WAIT_NONE)
		return true;
	if (session->service->state == SERVICE_LOST)
		return false;
	if (!connection_has_room(connection)) {
		session->waiting = WAIT_REPLIES;
	} else if (!charge_fits(&session->service->accounts, session->account, CHARGE_JOBS, 1)) {
		session->waiting = WAIT_JOBS;
		TAILQ_INSERT_TAIL(&session->account->waiting, session, waiting_entry);
	} else if (session->waiting_jobs > 0 && !fits_behind(session)) {
		session->waiting = WAIT_BEHIND;
	} else if (time_slice_is_over(time_slices, session->account)) {
		time_slices_add(time_slices, session);
	} else {
		return false;
	}
	frame_timer_pause(connection);
	return true;
}

void connection_on_job_ended(struct session *session)
{
	struct time_slices *time_slices = &connection_of(session)->connections->time_slices;

	time_slices_wake_waiting(time_slices, session->account);
	if (session->waiting == WAIT_BEHIND)
		time_slices_add(time_slices, session);
}

void connection_on_memory(struct session *session)
{
	struct connection *connection = connection_of(session);
	const bool has_all = LIST_EMPTY(&session->reaching) && !planning_is_under_way(session);

	if (session->waiting == WAIT_MEMORY
	        ? has_all
	        : session->waiting == WAIT_REPLIES && connection_has_room(connection))
		time_slices_add(&connection->connections->time_slices, session);
}

void connection_wait_for_memory(struct session *session)
{
	session->waiting = WAIT_MEMORY;
	planning_start(session);
	frame_timer_pause(connection_of(session));
}

void connection_try_again(struct connection *connection)
{
	struct time_slices *time_slices = &connection->connections->time_slices;
	struct session *session = &connection->session;

	if (session->waiting == WAIT_JOBS)
		time_slices_wake_waiting(time_slices, session->account);
	else if (session->waiting == WAIT_BEHIND ||
	         (session->waiting == WAIT_REPLIES && connection_has_room(connection)))
		time_slices_add(time_slices, session);
}

/* Removes the session from the queue that it waits in. */
static void stop_waiting(struct connection *connection)
{
	struct session *session = &connection->session;

	if (session->waiting == WAIT_JOBS)
		TAILQ_REMOVE(&session->account->waiting, session, waiting_entry);
	else if (session->waiting == WAIT_READY)
		time_slices_remove(&connection->connections->time_slices, session);
	session->waiting = WAIT_NONE;
}

/* ==== Time slices ==================================================================================== */

/* Length of a slice: LONG_SLICE_NS if no other user has had a slice for SHARED_NS, otherwise
 * SHORT_SLICE_NS. */
#define LONG_SLICE_NS  500000
#define SHORT_SLICE_NS 5000
#define SHARED_NS      UINT64_C(1000000000)
#define CLOCK_ACTS     16 /* in a long slice, one act in this many reads the clock */

static void on_busy(uv_idle_t *idle)
{
	(void)idle;
}

void time_slices_open(struct time_slices *time_slices, uv_loop_t *loop, const struct clock *clock,
                      const struct accounts *accounts)
{
	*time_slices = (struct time_slices){ .clock = clock, .accounts = accounts, .last_user = LOG_NOBODY };
	TAILQ_INIT(&time_slices->ready);
	uv_idle_init(loop, &time_slices->busy);
}

/* The struct that sched_setattr takes; not every libc declares it. */
struct scheduling {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime; /* length of a slice, ns */
	uint64_t deadline;
	uint64_t period;
};

#define RESET_ON_FORK 0x01 /* threads that this thread starts get slices of the usual length */

void time_slices_ask_for_cpu(void)
{
	struct scheduling scheduling = {
		.size = sizeof scheduling, .policy = SCHED_OTHER, .flags = RESET_ON_FORK, .runtime = 100000
	};

	if (sched_getscheduler(0) != SCHED_OTHER)
		return;
	scheduling.nice = getpriority(PRIO_PROCESS, 0);
	syscall(SYS_sched_setattr, 0, &scheduling, 0);
}

/* ---- How long ---------------------------------------------------------------------------------------- */

bool time_slice_is_over(struct time_slices *time_slices, struct account *account)
{
	uint64_t now;

	if (account->slice_iteration == time_slices->iteration && account->slice_is_long &&
	    ++account->slice_acts % CLOCK_ACTS != 0)
		return false;
	now = time_slices->clock->now_ns();
	if (account->slice_iteration != time_slices->iteration) {
		if (time_slices->last_user != account->user && time_slices->last_user != LOG_NOBODY)
			time_slices->shared_until_ns = now + SHARED_NS;
		time_slices->last_user = account->user;
		account->slice_iteration = time_slices->iteration;
		account->slice_acts = 0;
		account->slice_is_long = now >= time_slices->shared_until_ns;
		account->slice_end_ns = now + (account->slice_is_long ? LONG_SLICE_NS : SHORT_SLICE_NS);
	}
	return now >= account->slice_end_ns;
}

/* ---- Ready sessions ---------------------------------------------------------------------------------- */

void time_slices_add(struct time_slices *time_slices, struct session *session)
{
	struct account *account = session->account;

	if (TAILQ_EMPTY(&account->ready))
		TAILQ_INSERT_TAIL(&time_slices->ready, account, ready_entry);
	session->waiting = WAIT_READY;
	TAILQ_INSERT_TAIL(&account->ready, session, waiting_entry);
	uv_idle_start(&time_slices->busy, on_busy);
}

static void take_ready(struct time_slices *time_slices, struct session *session)
{
	struct account *account = session->account;

	session->waiting = WAIT_NONE;
	TAILQ_REMOVE(&account->ready, session, waiting_entry);
	if (TAILQ_EMPTY(&account->ready))
		TAILQ_REMOVE(&time_slices->ready, account, ready_entry);
	if (TAILQ_EMPTY(&time_slices->ready))
		uv_idle_stop(&time_slices->busy);
}

/* Removes a ready session from its queue. If it was woken because the account may queue another job, another
 * session of the account may queue that job instead. */
static void time_slices_remove(struct time_slices *time_slices, struct session *session)
{
	take_ready(time_slices, session);
	time_slices_wake_waiting(time_slices, session->account);
}

/* If the account may queue another job, makes its longest-waiting session ready. */
static void time_slices_wake_waiting(struct time_slices *time_slices, struct account *account)
{
	struct session *session = TAILQ_FIRST(&account->waiting);

	if (!session || !charge_fits(time_slices->accounts, account, CHARGE_JOBS, 1))
		return;
	TAILQ_REMOVE(&account->waiting, session, waiting_entry);
	time_slices_add(time_slices, session);
}

/* ---- Going on -------------------------------------------------------------------------------------- */

static void resume(struct time_slices *time_slices, struct session *session)
{
	take_ready(time_slices, session);
	connection_resume(connection_of(session));
	/* If the session was woken to queue a job but has queued none, another session may. */
	time_slices_wake_waiting(time_slices, session->account);
}

static void resume_account(struct time_slices *time_slices, struct account *account)
{
	struct session *session;

	while (!time_slice_is_over(time_slices, account) && (session = TAILQ_FIRST(&account->ready)))
		resume(time_slices, session);
}

void time_slices_resume_ready(struct time_slices *time_slices)
{
	struct account *account;

	time_slices->iteration++;
	while ((account = TAILQ_FIRST(&time_slices->ready)) &&
	       account->slice_iteration != time_slices->iteration) {
		TAILQ_REMOVE(&time_slices->ready, account, ready_entry);
		TAILQ_INSERT_TAIL(&time_slices->ready, account, ready_entry);
		resume_account(time_slices, account);
	}
}

/* ==== Deadlines ====================================================================================== */

/* Each connection has two timers; one more timer checks all sessions for idleness. */

#define NS_PER_MS UINT64_C(1000000)

#define IDLE_CHECKS 4 /* number of checks within an idle deadline */

static void on_frame_deadline(uv_timer_t *timer);
static void on_reply_deadline(uv_timer_t *timer);

static const struct clock *clock_of(const struct connection *connection)
{
	return connection->session.service->clock;
}

/* ---- A message's arrival ------------------------------------------------------------------------------ */

void frame_timer_run(struct connection *connection)
{
	if (connection->frame_left_ns == 0) {
		on_frame_deadline(&connection->frame_timer);
	} else if (!uv_is_active((uv_handle_t *)&connection->frame_timer)) {
		connection->frame_start_ns = clock_of(connection)->now_ns();
		clock_of(connection)
		    ->timer_start(&connection->frame_timer, on_frame_deadline,
		                  (connection->frame_left_ns + NS_PER_MS - 1) / NS_PER_MS, 0);
	}
}

static void frame_timer_pause(struct connection *connection)
{
	uint64_t ran;

	if (!uv_is_active((uv_handle_t *)&connection->frame_timer))
		return;
	clock_of(connection)->timer_stop(&connection->frame_timer);
	ran = clock_of(connection)->now_ns() - connection->frame_start_ns;
	connection->frame_left_ns -= ran < connection->frame_left_ns ? ran : connection->frame_left_ns;
}

void frame_timer_reset(struct connection *connection)
{
	clock_of(connection)->timer_stop(&connection->frame_timer);
	connection->frame_left_ns = limit_ns(connection->session.service->limits.frame_deadline_ms);
}

static void on_frame_deadline(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	session_end(&connection->session, LOG_LEVEL_NOTICE,
	            "a message did not arrive completely in time (frame_deadline_ms)");
}

/* ---- Replies ------------------------------------------------------------------------------------------ */

void reply_timer_run(struct connection *connection)
{
	if (!uv_is_active((uv_handle_t *)&connection->reply_timer))
		clock_of(connection)
		    ->timer_start(&connection->reply_timer, on_reply_deadline,
		                  connection->session.service->limits.reply_deadline_ms, 0);
}

void reply_timer_reset(struct connection *connection)
{
	clock_of(connection)->timer_stop(&connection->reply_timer);
}

static void on_reply_deadline(uv_timer_t *timer)
{
	struct connection *connection = timer->data;

	session_end(&connection->session, LOG_LEVEL_NOTICE,
	            "it did not read its replies in time (reply_deadline_ms)");
}

/* ---- Idleness ----------------------------------------------------------------------------------------- */

static void end_idle(struct connection *connection)
{
	struct session *session = &connection->session;
	const struct service *service = session->service;
	bool busy = session->jobs > 0 || session->mappings > 0 || buffer_len(&connection->in) > 0 ||
	            buffer_len(&connection->out) > 0;

	if (session->state == SESSION_OPEN && !busy &&
	    service_now_ms(service) - session->used_ms >= service->limits.idle_deadline_ms)
		session_end(session, LOG_LEVEL_INFO, "it was idle for too long (idle_deadline_ms)");
}

static void on_idle_check(uv_timer_t *timer)
{
	connections_each(timer->data, end_idle);
}

void connections_watch_idle(struct connections *connections)
{
	const struct service *service = connections->service;
	uint64_t every_ms = service->limits.idle_deadline_ms / IDLE_CHECKS + 1;

	if (service->limits.idle_deadline_ms == 0)
		service->clock->timer_stop(&connections->idle);
	else
		service->clock->timer_start(&connections->idle, on_idle_check, every_ms, every_ms);
}
