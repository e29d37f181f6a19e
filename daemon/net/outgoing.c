/* SPDX-License-Identifier: Apache-2.0 */
/* A session's unread_fds are the descriptors that it has sent, oldest first. An account lists its sessions
 * that have any, and the sockets that linger. */
#include "outgoing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <linux/sockios.h>

#include "daemon/server.h"
#include "session.h"

#define CHECK_MS 100 /* between two checks of the timer */

/* For a uid that has no more room: after a check that found nothing received, until the next one. */
#define PAUSE_MS 5

struct lingering {
	LIST_ENTRY(lingering) entry; /* in account->lingering */
	struct account *account;
	int fd;
	struct charge connection;
	struct charge fds;
};

static void on_check(uv_timer_t *timer);

void outgoing_open(struct outgoing *outgoing, struct server *server, uv_loop_t *loop)
{
	outgoing->server = server;
	uv_timer_init(loop, &outgoing->timer);
	outgoing->timer.data = outgoing;
}

void outgoing_close(struct outgoing *outgoing)
{
	uv_close((uv_handle_t *)&outgoing->timer, NULL);
}

/* ---- What has been received --------------------------------------------------------------------------- */

/* The memory that unread bytes take, at least one byte for each of them; 0 also if the kernel does not tell.
 */
static uint64_t unread_of(int fd)
{
	int unread;

	return ioctl(fd, SIOCOUTQ, &unread) < 0 || unread < 0 ? 0 : (uint64_t)unread;
}

/* Counts the descriptors that have been received. Where nothing is unread, all have; otherwise a descriptor
 * has been received if fewer bytes are unread than were sent from its byte on. */
static uint32_t count_received(const struct session *session)
{
	uint64_t unread = unread_of(session->fd);
	uint32_t n = 0;

	while (n < session->n_unread_fds &&
	       (unread == 0 || unread < session->sent - session->unread_fds[n].pos))
		n++;
	return n;
}

/* Forgets the descriptors that have been received since the last check; returns how many. */
static uint32_t forget_received(struct session *session)
{
	uint32_t n = count_received(session);

	if (n == 0)
		return 0;
	session->n_unread_fds -= n;
	memmove(session->unread_fds, session->unread_fds + n,
	        session->n_unread_fds * sizeof *session->unread_fds);
	charge_shrink(&session->out_fds_charge, n);
	if (session->n_unread_fds == 0)
		LIST_REMOVE(session, unread_entry);
	return n;
}

/* Closes the socket: its peer has received everything, or is gone. */
static void let_go(struct server *server, struct lingering *lingering)
{
	LIST_REMOVE(lingering, entry);
	async_close_socket(&server->chores, lingering->account, lingering->fd, &lingering->connection);
	charge_release(&lingering->fds);
	account_unref(lingering->account);
	free(lingering);
}

/* Checks all sockets of the account; returns whether anything has been received. The caller holds the
 * account. */
static bool check_account(struct server *server, struct account *account)
{
	struct session *session, *next_session;
	struct lingering *lingering, *next;
	bool found = false;

	for (session = LIST_FIRST(&account->unread); session; session = next_session) {
		next_session = LIST_NEXT(session, unread_entry);
		found |= forget_received(session) > 0;
	}
	for (lingering = LIST_FIRST(&account->lingering); lingering; lingering = next) {
		next = LIST_NEXT(lingering, entry);
		if (unread_of(lingering->fd) > 0)
			continue;
		let_go(server, lingering);
		found = true;
	}
	return found;
}

/* ---- Room --------------------------------------------------------------------------------------------- */

int outgoing_charge(struct server *server, struct account *account, struct charge *charge, struct error *err)
{
	uint64_t now = server_now_ms(server);

	if (!charge_fits(&server->accounts, account, CHARGE_OUTGOING_FDS, 1) &&
	    now - account->checked_ms >= PAUSE_MS && !check_account(server, account))
		account->checked_ms = now;
	return charge_take(charge, &server->accounts, account, CHARGE_OUTGOING_FDS, 1, err);
}

bool outgoing_may_send(struct session *session)
{
	if (session->n_unread_fds == SESSION_MAX_UNREAD_FDS)
		forget_received(session);
	return session->n_unread_fds < SESSION_MAX_UNREAD_FDS;
}

/* ---- Sent --------------------------------------------------------------------------------------------- */

static void watch(struct server *server)
{
	uv_timer_t *timer = &server->outgoing.timer;

	if (!uv_is_active((uv_handle_t *)timer))
		server->clock->timer_start(timer, on_check, CHECK_MS, CHECK_MS);
}

void outgoing_sent(struct session *session)
{
	struct server *server = session->server;

	session_close_fds(session, &session->out_fds[0].fd, 1);
	session->n_out_fds--;
	memmove(session->out_fds, session->out_fds + 1, session->n_out_fds * sizeof *session->out_fds);
	if (session->n_unread_fds == 0)
		LIST_INSERT_HEAD(&session->account->unread, session, unread_entry);
	session->unread_fds[session->n_unread_fds++] =
	    (struct unread_fd){ .pos = session->sent, .sent_ms = server_now_ms(server) };
	watch(server);
}

void outgoing_drop(struct session *session)
{
	for (uint32_t i = 0; i < session->n_out_fds; i++) {
		struct charge charge = { 0 };

		charge_move(&session->out_fds_charge, &charge, 1);
		async_close_fd(&session->server->chores, session->account, session->out_fds[i].fd, &charge);
	}
	session->n_out_fds = 0;
}

/* ---- Time --------------------------------------------------------------------------------------------- */

static void end_late(struct server *server, struct account *account)
{
	uint64_t now = server_now_ms(server);
	struct session *session, *next;

	for (session = LIST_FIRST(&account->unread); session; session = next) {
		next = LIST_NEXT(session, unread_entry);
		if (now - session->unread_fds[0].sent_ms >= server->limits.reply_deadline_ms)
			session_end(session, LOG_LEVEL_NOTICE,
			            "it did not receive a region's descriptor in time (reply_deadline_ms)");
	}
}

static void on_check(uv_timer_t *timer)
{
	struct outgoing *outgoing = timer->data;
	struct server *server = outgoing->server;
	struct account *account, *next;
	bool is_any = false;

	for (account = LIST_FIRST(&server->accounts.list); account; account = next) {
		account->refs++;
		check_account(server, account);
		end_late(server, account);
		is_any |= !LIST_EMPTY(&account->unread) || !LIST_EMPTY(&account->lingering);
		next = LIST_NEXT(account, entry);
		account_unref(account);
	}
	if (!is_any)
		server->clock->timer_stop(timer);
}

/* ---- The end of a session ----------------------------------------------------------------------------- */

/* If there is no memory for it, the socket is closed at once. */
static bool linger(struct session *session)
{
	struct lingering *lingering = malloc(sizeof *lingering);
	struct account *account = session->account;

	if (!lingering)
		return false;
	shutdown(session->fd, SHUT_RDWR);
	account->refs++;
	*lingering = (struct lingering){ .account = account,
		                         .fd = session->fd,
		                         .connection = session->connection,
		                         .fds = session->out_fds_charge };
	session->connection = session->out_fds_charge = (struct charge){ 0 };
	LIST_INSERT_HEAD(&account->lingering, lingering, entry);
	watch(session->server);
	return true;
}

/* A service that stops does not wait for peers to receive. */
void outgoing_close_socket(struct session *session)
{
	struct server *server = session->server;
	bool is_unread;

	if (session->n_unread_fds > 0)
		forget_received(session);
	is_unread = session->n_unread_fds > 0;
	if (is_unread) {
		LIST_REMOVE(session, unread_entry);
		session->n_unread_fds = 0;
	}
	if (is_unread && server->state == SERVER_RUNNING && linger(session))
		return;
	charge_release(&session->out_fds_charge);
	async_close_socket(&server->chores, session->account, session->fd, &session->connection);
}

void outgoing_end(struct server *server)
{
	struct account *account, *next;
	struct lingering *lingering;

	for (account = LIST_FIRST(&server->accounts.list); account; account = next) {
		account->refs++;
		while ((lingering = LIST_FIRST(&account->lingering)))
			let_go(server, lingering);
		next = LIST_NEXT(account, entry);
		account_unref(account);
	}
}
