/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that came with a session's bytes, until a request takes them or they are dropped.
 *
 * Each remembers the range of the stream's bytes that it came with, and so the messages that it may belong
 * to. They are in the order of arrival and charged as pending_fds_per_uid. Dropped descriptors are closed off
 * the loop (async_close.h).
 */
#include "session.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server.h"

/* Room for n more. */
static int reserve(struct session *session, size_t n, struct error *err)
{
	const size_t room = session->n_fds + n;
	struct pending_fd *grown;

	if (room <= session->fds_room)
		return 0;
	grown = realloc(session->fds, room * sizeof *grown);
	if (!grown)
		return error_set(err, STATUS_NO_MEMORY, "no memory for %zu descriptors", room);
	session->fds = grown;
	session->fds_room = (uint32_t)room;
	return 0;
}

int session_keep_fds(struct session *session, const int *fds, size_t n, uint64_t start, uint64_t end,
                     struct error *err)
{
	const struct limits *limits = &session->server->limits;
	int r = 0;

	if (n > limits->message_fds)
		r = error_set(err, STATUS_QUOTA,
		              "%zu descriptors in one message, at most %" PRIu64 " (message_fds)", n,
		              limits->message_fds);
	else if (n > SESSION_MAX_PENDING_FDS - session->n_fds)
		r = error_set(err, STATUS_QUOTA, "more than %d descriptors pending", SESSION_MAX_PENDING_FDS);
	else if (n > 0)
		r = reserve(session, n, err);
	if (r == 0 && n > 0)
		r = charge_take(&session->fds_charge, &session->server->accounts, session->account,
		                CHARGE_PENDING_FDS, n, err);
	if (r < 0) {
		session_close_fds(session, fds, n);
		return r;
	}

	for (size_t i = 0; i < n; i++)
		session->fds[session->n_fds++] = (struct pending_fd){ fds[i], start, end };
	return 0;
}

void session_close_fds(struct session *session, const int *fds, size_t n)
{
	struct charge none = { 0 };

	for (size_t i = 0; i < n; i++)
		async_close_fd(&session->server->chores, session->account, fds[i], &none);
}

static void forget_first(struct session *session, uint32_t n)
{
	session->n_fds -= n;
	if (session->n_fds > 0) {
		memmove(session->fds, session->fds + n, session->n_fds * sizeof *session->fds);
		return;
	}
	free(session->fds);
	session->fds = NULL;
	session->fds_room = 0;
}

static void drop_first(struct session *session, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct charge charge = { 0 };

		charge_move(&session->fds_charge, &charge, 1);
		async_close_fd(&session->server->chores, session->account, session->fds[i].fd, &charge);
	}
	forget_first(session, n);
}

/* How many, at most n, came with the message being handled. */
static uint32_t count_first(const struct session *session, uint32_t n)
{
	uint32_t i = 0;

	while (i < n && i < session->n_fds && session->fds[i].start < session->handled)
		i++;
	return i;
}

const struct pending_fd *session_first_fds(const struct session *session, uint32_t n)
{
	return count_first(session, n) == n ? session->fds : NULL;
}

uint32_t session_count_own_fds(const struct session *session)
{
	uint32_t n = 0;

	while (n < session->n_fds && session->fds[n].end <= session->handled)
		n++;
	return n;
}

void session_take_fds(struct session *session, uint32_t n, struct charge *ret_charge)
{
	charge_move(&session->fds_charge, ret_charge, n);
	forget_first(session, n);
}

void session_drop_fds(struct session *session, uint32_t n)
{
	drop_first(session, count_first(session, n));
}

void session_drop_fds_before(struct session *session, uint64_t end)
{
	uint32_t n = 0;

	while (n < session->n_fds && session->fds[n].end <= end)
		n++;
	drop_first(session, n);
}
