/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that came with a session's bytes, until a request takes them or they are dropped.
 *
 * Each remembers the range of the stream's bytes that it came with, and so the messages that it may belong
 * to. They are in the order of arrival and charged as pending_fds_per_uid. Dropped descriptors are closed off
 * the loop (async_close.h).
 */
#include "session.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/server.h"

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
		async_close_fd(&session->server->async_close, session->account, fds[i], &none);
}

static void forget_first(struct session *session)
{
	session->n_fds--;
	memmove(session->fds, session->fds + 1, session->n_fds * sizeof *session->fds);
}

static void drop_first(struct session *session)
{
	struct charge charge = { 0 };

	charge_move(&session->fds_charge, &charge, 1);
	async_close_fd(&session->server->async_close, session->account, session->fds[0].fd, &charge);
	forget_first(session);
}

int session_first_fd(const struct session *session)
{
	bool ours = session->n_fds > 0 && session->fds[0].start < session->handled;

	return ours ? session->fds[0].fd : -1;
}

void session_take_fd(struct session *session)
{
	charge_shrink(&session->fds_charge, 1);
	forget_first(session);
}

void session_drop_fd(struct session *session)
{
	if (session_first_fd(session) >= 0)
		drop_first(session);
}

void session_drop_fds(struct session *session, uint64_t end)
{
	while (session->n_fds > 0 && session->fds[0].end <= end)
		drop_first(session);
}
