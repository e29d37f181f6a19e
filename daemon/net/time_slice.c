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

void turns_open(struct turns *turns, uv_loop_t *loop)
{
	*turns = (struct turns){ .last_uid = (uid_t)-1 };
	TAILQ_INIT(&turns->ready);
	uv_idle_init(loop, &turns->busy);
}

void turns_close(struct turns *turns)
{
	uv_close((uv_handle_t *)&turns->busy, NULL);
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

void turns_ask_for_cpu(void)
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

bool turn_is_over(struct turns *turns, struct account *account)
{
	uint64_t now;

	if (account->turn == turns->n && account->turn_is_long && ++account->turn_acts % CLOCK_ACTS != 0)
		return false;
	now = uv_hrtime();
	if (account->turn != turns->n) {
		if (turns->last_uid != account->uid && turns->last_uid != (uid_t)-1)
			turns->shared_until = now + SHARED_NS;
		turns->last_uid = account->uid;
		account->turn = turns->n;
		account->turn_acts = 0;
		account->turn_is_long = now >= turns->shared_until;
		account->turn_end = now + (account->turn_is_long ? LONG_TURN_NS : SHORT_TURN_NS);
	}
	return now >= account->turn_end;
}

/* ---- Who is ready ------------------------------------------------------------------------------------ */

void turns_add(struct server *server, struct session *session)
{
	struct turns *turns = &server->turns;
	struct account *account = session->account;

	if (TAILQ_EMPTY(&account->ready))
		TAILQ_INSERT_TAIL(&turns->ready, account, ready_entry);
	session->waiting = WAIT_READY;
	TAILQ_INSERT_TAIL(&account->ready, session, waiting_entry);
	uv_idle_start(&turns->busy, on_busy);
}

static void take(struct turns *turns, struct session *session)
{
	struct account *account = session->account;

	session->waiting = WAIT_NONE;
	TAILQ_REMOVE(&account->ready, session, waiting_entry);
	if (TAILQ_EMPTY(&account->ready))
		TAILQ_REMOVE(&turns->ready, account, ready_entry);
	if (TAILQ_EMPTY(&turns->ready))
		uv_idle_stop(&turns->busy);
}

/* What a session was woken for and did not do is passed on. */
void turns_remove(struct server *server, struct session *session)
{
	take(&server->turns, session);
	turns_wake_waiting(server, session->account);
}

void turns_wake_waiting(struct server *server, struct account *account)
{
	struct session *session = TAILQ_FIRST(&account->waiting);

	if (!session || !charge_fits(&server->accounts, account, CHARGE_JOBS, 1))
		return;
	TAILQ_REMOVE(&account->waiting, session, waiting_entry);
	turns_add(server, session);
}

/* ---- A turn of the loop ------------------------------------------------------------------------------ */

static void resume(struct server *server, struct session *session)
{
	take(&server->turns, session);
	session_resume(session);
	turns_wake_waiting(server, session->account); /* it may have had nothing to ask */
}

static void run_account(struct server *server, struct account *account)
{
	struct session *session;

	while (!turn_is_over(&server->turns, account) && (session = TAILQ_FIRST(&account->ready)))
		resume(server, session);
}

void turns_run(struct server *server)
{
	struct turns *turns = &server->turns;
	struct account *account;

	turns->n++;
	while ((account = TAILQ_FIRST(&turns->ready)) && account->turn != turns->n) {
		TAILQ_REMOVE(&turns->ready, account, ready_entry);
		TAILQ_INSERT_TAIL(&turns->ready, account, ready_entry);
		run_account(server, account);
	}
}
