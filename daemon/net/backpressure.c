/* SPDX-License-Identifier: Apache-2.0 */
/* Backpressure: when a session's next request has to wait, and when it may go on.
 *
 * A session that must not handle a request yet leaves its input unread, so that its peer's socket fills up.
 * It is in at most one queue: account->waiting (for the uid's jobs) or account->ready (for a time slice).
 */
#include "session.h"

#include "daemon/resource/planning.h"
#include "daemon/server.h"
#include "deadline.h"

/* Whether one more transform may queue behind a job that waits for a timeline. */
static bool fits_behind(const struct session *session)
{
	return session->transforms < session->server->limits.jobs_behind_wait &&
	       charge_fits(&session->server->accounts, session->account, CHARGE_BEHIND_WAITS, 1);
}

/* The time during which a request is left unread is not counted against the peer. A session that waits
 * already stays in its queue: an entry of its ring may have put it there, with messages behind the one that
 * rang. */
bool session_must_wait(struct session *session)
{
	if (session->waiting != WAIT_NONE)
		return true;
	if (session->server->state == SERVER_LOST)
		return false;
	if (!session_has_room(session)) {
		session->waiting = WAIT_REPLIES;
	} else if (!charge_fits(&session->server->accounts, session->account, CHARGE_JOBS, 1)) {
		session->waiting = WAIT_JOBS;
		TAILQ_INSERT_TAIL(&session->account->waiting, session, waiting_entry);
	} else if (session->waiting_jobs > 0 && !fits_behind(session)) {
		session->waiting = WAIT_BEHIND;
	} else if (time_slice_is_over(&session->server->time_slices, session->account)) {
		time_slices_add(session->server, session);
	} else {
		return false;
	}
	frame_timer_pause(session);
	return true;
}

void session_on_job_ended(struct session *session)
{
	if (session->waiting == WAIT_BEHIND)
		time_slices_add(session->server, session);
}

void session_on_memory(struct session *session)
{
	const bool has_all = LIST_EMPTY(&session->reaching) && !planning_is_under_way(session);

	if (session->waiting == WAIT_MEMORY ? has_all
	                                    : session->waiting == WAIT_REPLIES && session_has_room(session))
		time_slices_add(session->server, session);
}

void session_wait_for_memory(struct session *session)
{
	session->waiting = WAIT_MEMORY;
	planning_start(session);
	frame_timer_pause(session);
}

void session_stop_waiting(struct session *session)
{
	if (session->waiting == WAIT_JOBS)
		TAILQ_REMOVE(&session->account->waiting, session, waiting_entry);
	else if (session->waiting == WAIT_READY)
		time_slices_remove(session->server, session);
	session->waiting = WAIT_NONE;
}
