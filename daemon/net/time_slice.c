/* SPDX-License-Identifier: Apache-2.0 */
/* The lengths of slices, and the queue of accounts with ready sessions. */
#include "time_slice.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/server.h"
#include "session.h"

/* A uid's slice when no other uid has asked for SHARED_NS, and when one has. */
#define LONG_SLICE_NS  500000
#define SHORT_SLICE_NS 5000
#define SHARED_NS      UINT64_C(1000000000)
#define CLOCK_ACTS     16 /* of a long slice between two readings of the clock */

static void on_busy(uv_idle_t *idle)
{
	(void)idle;
}

void time_slices_open(struct time_slices *time_slices, uv_loop_t *loop, const struct clock *clock)
{
	*time_slices = (struct time_slices){ .clock = clock, .last_user = LOG_NOBODY };
	TAILQ_INIT(&time_slices->ready);
	uv_idle_init(loop, &time_slices->busy);
}

void time_slices_close(struct time_slices *time_slices)
{
	uv_close((uv_handle_t *)&time_slices->busy, NULL);
}

/* The argument of sched_setattr; not every libc declares it. */
struct scheduling {
	uint32_t size;
	uint32_t policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime; /* of a slice, ns */
	uint64_t deadline;
	uint64_t period;
};

#define RESET_ON_FORK 0x01 /* threads that this thread starts have the usual slices */

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

void time_slices_add(struct server *server, struct session *session)
{
	struct time_slices *time_slices = &server->time_slices;
	struct account *account = session->account;

	if (TAILQ_EMPTY(&account->ready))
		TAILQ_INSERT_TAIL(&time_slices->ready, account, ready_entry);
	session->waiting = WAIT_READY;
	TAILQ_INSERT_TAIL(&account->ready, session, waiting_entry);
	uv_idle_start(&time_slices->busy, on_busy);
}

static void take(struct time_slices *time_slices, struct session *session)
{
	struct account *account = session->account;

	session->waiting = WAIT_NONE;
	TAILQ_REMOVE(&account->ready, session, waiting_entry);
	if (TAILQ_EMPTY(&account->ready))
		TAILQ_REMOVE(&time_slices->ready, account, ready_entry);
	if (TAILQ_EMPTY(&time_slices->ready))
		uv_idle_stop(&time_slices->busy);
}

/* If the session was woken because a job ended, another session of the account may use that. */
void time_slices_remove(struct server *server, struct session *session)
{
	take(&server->time_slices, session);
	time_slices_wake_waiting(server, session->account);
}

void time_slices_wake_waiting(struct server *server, struct account *account)
{
	struct session *session = TAILQ_FIRST(&account->waiting);

	if (!session || !charge_fits(&server->accounts, account, CHARGE_JOBS, 1))
		return;
	TAILQ_REMOVE(&account->waiting, session, waiting_entry);
	time_slices_add(server, session);
}

/* ---- Going on -------------------------------------------------------------------------------------- */

static void resume(struct server *server, struct session *session)
{
	take(&server->time_slices, session);
	session_resume(session);
	time_slices_wake_waiting(server, session->account); /* it may have left room for a job unused */
}

static void resume_account(struct server *server, struct account *account)
{
	struct session *session;

	while (!time_slice_is_over(&server->time_slices, account) && (session = TAILQ_FIRST(&account->ready)))
		resume(server, session);
}

void time_slices_resume_ready(struct server *server)
{
	struct time_slices *time_slices = &server->time_slices;
	struct account *account;

	time_slices->iteration++;
	while ((account = TAILQ_FIRST(&time_slices->ready)) &&
	       account->slice_iteration != time_slices->iteration) {
		TAILQ_REMOVE(&time_slices->ready, account, ready_entry);
		TAILQ_INSERT_TAIL(&time_slices->ready, account, ready_entry);
		resume_account(server, account);
	}
}
