/* SPDX-License-Identifier: Apache-2.0 */
/* Tests time slices on the fake clock: how long a slice lasts, and that the loop's time is shared by users
 * and not by connections. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <sys/socket.h>

#include "daemon/memory/account.h"
#include "daemon/net/connection.h"
#include "fake_clock.h"
#include "service.h"

#define LONG_NS   500000
#define SHORT_NS  5000
#define SHARED_NS UINT64_C(1000000000) /* time for which slices stay short after users have taken turns */
#define READS     16                   /* acts between two readings of the clock in a long slice */

#define OWN_UID   1000
#define OTHER_UID 1001

/* ---- How long ----------------------------------------------------------------------------------------- */

static struct time_slices slices;
static struct limits limits;
static struct accounts accounts;
static struct account *own, *other;

static void start(void)
{
	time_slices_open(&slices, uv_default_loop(), &fake_clock, &accounts);
	slices.iteration = 1;
	limits_init(&limits);
	accounts_init(&accounts, &limits);
	own = account_ref(&accounts, OWN_UID);
	other = account_ref(&accounts, OTHER_UID);
}

/* Returns whether the slice is over, asking often enough for a long slice to read the clock. */
static bool is_over(struct account *account)
{
	bool over = false;

	for (int i = 0; i < READS; i++)
		over |= time_slice_is_over(&slices, account);
	return over;
}

struct row {
	char name[48];
	bool is_shared;    /* another user had a slice before */
	uint64_t since_ns; /* time since that slice */
	uint64_t lasts_ns; /* duration of the slice from its first act on */
};

ParameterizedTestParameters(time_slice, lasts)
{
	static struct row rows[] = {
		{ .name = "alone", .lasts_ns = LONG_NS },
		{ .name = "beside another user", .is_shared = true, .lasts_ns = SHORT_NS },
		{ .name = "a while after", .is_shared = true, .since_ns = SHARED_NS, .lasts_ns = SHORT_NS },
	};

	return cr_make_param_array(struct row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct row *row, time_slice, lasts)
{
	start();
	if (row->is_shared) {
		time_slice_is_over(&slices, other);
		fake_clock_pass_ns(row->since_ns);
		slices.iteration++;
	}
	cr_assert_not(time_slice_is_over(&slices, own), "%s: its first act", row->name);
	fake_clock_pass_ns(row->lasts_ns - 1);
	cr_assert_not(is_over(own), "%s: before its end", row->name);
	fake_clock_pass_ns(1);
	cr_assert(is_over(own), "%s: at its end", row->name);
}

Test(time_slice, a_user_that_is_alone_again_has_long_slices_after_a_second)
{
	start();
	time_slice_is_over(&slices, other);
	slices.iteration++;
	time_slice_is_over(&slices, own);
	fake_clock_pass_ns(SHARED_NS - 1);
	slices.iteration++;
	cr_assert_not(time_slice_is_over(&slices, own));
	cr_assert_not(own->slice_is_long);
	fake_clock_pass_ns(1);
	slices.iteration++;
	cr_assert_not(time_slice_is_over(&slices, own));
	cr_assert(own->slice_is_long);
}

Test(time_slice, stays_over_until_the_next_iteration)
{
	start();
	time_slice_is_over(&slices, own);
	fake_clock_pass_ns(LONG_NS);
	cr_assert(is_over(own));
	fake_clock_pass_ns((3600 * SHARED_NS));
	cr_assert(is_over(own));
	slices.iteration++;
	cr_assert_not(time_slice_is_over(&slices, own));
}

Test(time_slice, each_user_has_its_own_in_an_iteration)
{
	start();
	time_slice_is_over(&slices, own);
	fake_clock_pass_ns(LONG_NS);
	cr_assert(is_over(own));
	cr_assert_not(time_slice_is_over(&slices, other));
	fake_clock_pass_ns(SHORT_NS);
	cr_assert(is_over(other), "it is short, for another user was there before");
}

Test(time_slice, a_long_one_reads_the_clock_seldom)
{
	uint64_t before;

	start();
	time_slice_is_over(&slices, own);
	before = fake_clock_readings();
	for (int i = 0; i < 4 * READS; i++)
		time_slice_is_over(&slices, own);
	cr_assert_eq(fake_clock_readings() - before, 4);
}

/* ---- Whose -------------------------------------------------------------------------------------------- */

#define SESSIONS 3
#define PINGS    200
#define TICK_NS  1000

/* The most requests that one slice handles, as each reads the clock at least once. */
#define MOST_A_SLICE (SHORT_NS / TICK_NS + 1)

TestSuite(time_slices, .fini = service_stop);

struct crowd {
	struct server *server;
	struct client own[SESSIONS];
	struct client other;
};

/* Connects two users with more requests than a slice has time for; the first has more connections. */
static struct crowd meet(int pings_of_other)
{
	struct crowd crowd = { .server = service_start(NULL) };

	for (int i = 0; i < SESSIONS; i++)
		crowd.own[i] = client_connect(crowd.server, OWN_UID);
	crowd.other = client_connect(crowd.server, OTHER_UID);
	fake_clock_tick(TICK_NS);
	for (int i = 0; i < SESSIONS; i++)
		client_send_pings(&crowd.own[i], PINGS);
	client_send_pings(&crowd.other, pings_of_other);
	/* This makes slices short, as after both have taken turns. */
	crowd.server->connections.time_slices.shared_until_ns = UINT64_MAX;
	return crowd;
}

static uint64_t handled(const struct crowd *crowd)
{
	uint64_t n = 0;

	for (int i = 0; i < SESSIONS; i++)
		n += client_handled(&crowd->own[i]);
	return n;
}

Test(time_slices, a_user_with_many_connections_gets_no_more_than_one_with_a_single)
{
	struct crowd crowd = meet(PINGS);

	for (int i = 0; i < 20; i++) {
		uint64_t before = handled(&crowd), before_other = client_handled(&crowd.other);

		service_iterate_once(crowd.server);
		cr_assert_leq(handled(&crowd) - before, MOST_A_SLICE, "iteration %d", i);
		cr_assert_leq(client_handled(&crowd.other) - before_other, MOST_A_SLICE, "iteration %d", i);
	}
	cr_assert_lt(handled(&crowd), SESSIONS * PINGS, "there is more to handle");
	cr_assert_geq(client_handled(&crowd.other) + MOST_A_SLICE, handled(&crowd));
	cr_assert_geq(handled(&crowd) + MOST_A_SLICE, client_handled(&crowd.other));
}

Test(time_slices, a_request_waits_for_one_slice_of_another_user_at_most)
{
	struct crowd crowd = meet(0);
	uint64_t before;

	for (int i = 0; i < 3; i++)
		service_iterate_once(crowd.server);
	before = handled(&crowd);
	client_send_pings(&crowd.other, 1);
	for (int i = 0; i < 2; i++)
		service_iterate_once(crowd.server);
	cr_assert_eq(client_handled(&crowd.other), 1);
	cr_assert_gt(client_read(&crowd.other), 0);
	cr_assert_leq(handled(&crowd) - before, 2 * MOST_A_SLICE);
}

Test(time_slices, a_user_s_connections_take_turns)
{
	struct crowd crowd = meet(0);
	uint64_t least = UINT64_MAX, most = 0;

	for (int i = 0; i < 10 * SESSIONS; i++)
		service_iterate_once(crowd.server);
	for (int i = 0; i < SESSIONS; i++) {
		uint64_t n = client_handled(&crowd.own[i]);

		least = n < least ? n : least;
		most = n > most ? n : most;
	}
	cr_assert_gt(least, 0);
	cr_assert_leq(most - least, 2 * MOST_A_SLICE);
}

Test(time_slices, everything_is_handled_in_the_end)
{
	struct crowd crowd = meet(PINGS);
	int i;

	for (i = 0; i < 10000 && handled(&crowd) + client_handled(&crowd.other) < (SESSIONS + 1) * PINGS; i++)
		service_iterate_once(crowd.server);
	cr_assert_eq(handled(&crowd), SESSIONS * PINGS);
	cr_assert_eq(client_handled(&crowd.other), PINGS);
	service_iterate(crowd.server);
	cr_assert_not(uv_is_active((uv_handle_t *)&crowd.server->connections.time_slices.busy),
	              "the loop may sleep");
}

Test(time_slices, a_session_that_ends_while_it_is_ready_is_ready_no_more)
{
	struct crowd crowd = meet(0);
	struct session *session;

	service_iterate_once(crowd.server);
	session = client_session(&crowd.own[0]);
	cr_assert_eq(session->waiting, WAIT_READY);
	session_end(session, LOG_LEVEL_DEBUG, "the test ends it");
	service_iterate(crowd.server);
	cr_assert_null(client_session(&crowd.own[0]));
	cr_assert_gt(client_handled(&crowd.own[1]), 0);
}

Test(time_slices, a_session_that_finishes_while_it_is_ready_ends)
{
	struct server *server = service_start(NULL);
	struct client busy = client_connect(server, OWN_UID), gone = client_connect(server, OWN_UID);
	struct session *session;

	/* The iteration polls both connections, so that later ones see them in the order of arrival. */
	service_iterate_once(server);
	fake_clock_tick(TICK_NS);
	server->connections.time_slices.shared_until_ns = UINT64_MAX;
	client_send_pings(&busy, PINGS);
	cr_assert_eq(shutdown(gone.fd, SHUT_RDWR), 0);
	service_iterate_once(server);
	session = client_session(&gone);
	cr_assert(session && session->waiting == WAIT_READY, "the slice was over before it was read");
	connection_finish(connection_of(session));
	service_iterate(server);
	cr_assert_null(client_session(&gone));
}
