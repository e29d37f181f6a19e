/* A queue of accounts, each with a queue of sessions. */
#include "time_slice.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/server.h"
#include "session.h"

/* Of one uid, when no other has asked lately, and when one has. */
#define LONG_TURN_NS  500000
#define SHORT_TURN_NS 5000
#define SHARED_NS     UINT64_C(1000000000)
#define CLOCK_ACTS    16 /* in a long turn, between two looks at the clock: it may stop while we do not run */

static void on_busy(uv_idle_t *idle)
{
	(void)idle;
}

void time_slices_open(struct time_slices *time_slices, uv_loop_t *loop, const struct clock *clock)
{
	*time_slices = (struct time_slices){ .clock = clock, .last_uid = (uid_t)-1 };
	TAILQ_INIT(&time_slices->ready);
	uv_idle_init(loop, &time_slices->busy);
}

void time_slices_close(struct time_slices *time_slices)
{
	uv_close((uv_handle_t *)&time_slices->busy, NULL);
}

/* What sched_setattr takes; not every libc has it. */
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

#define RESET_ON_FORK 0x01 /* threads that it starts are as others */

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

	if (account->turn == time_slices->n && account->time_slice_is_long &&
	    ++account->turn_acts % CLOCK_ACTS != 0)
		return false;
	now = time_slices->clock->now_ns();
	if (account->turn != time_slices->n) {
		if (time_slices->last_uid != account->uid && time_slices->last_uid != (uid_t)-1)
			time_slices->shared_until = now + SHARED_NS;
		time_slices->last_uid = account->uid;
		account->turn = time_slices->n;
		account->turn_acts = 0;
		account->time_slice_is_long = now >= time_slices->shared_until;
		account->time_slice_end = now + (account->time_slice_is_long ? LONG_TURN_NS : SHORT_TURN_NS);
	}
	return now >= account->time_slice_end;
}

/* ---- Who is ready ------------------------------------------------------------------------------------ */

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

/* What a session was woken for and did not do is passed on. */
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

/* ---- A turn of the loop ------------------------------------------------------------------------------ */

static void resume(struct server *server, struct session *session)
{
	take(&server->time_slices, session);
	session_resume(session);
	time_slices_wake_waiting(server, session->account); /* it may have had nothing to ask */
}

static void run_account(struct server *server, struct account *account)
{
	struct session *session;

	while (!time_slice_is_over(&server->time_slices, account) && (session = TAILQ_FIRST(&account->ready)))
		resume(server, session);
}

void time_slices_run(struct server *server)
{
	struct time_slices *time_slices = &server->time_slices;
	struct account *account;

	time_slices->n++;
	while ((account = TAILQ_FIRST(&time_slices->ready)) && account->turn != time_slices->n) {
		TAILQ_REMOVE(&time_slices->ready, account, ready_entry);
		TAILQ_INSERT_TAIL(&time_slices->ready, account, ready_entry);
		run_account(server, account);
	}
}
