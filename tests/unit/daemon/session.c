/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the deadlines of sessions on the fake clock. Each deadline ends a session at its time and not before,
 * and time in which the service itself causes the delay does not count. */
#include <criterion/criterion.h>
#include <sys/socket.h>

#include "fake_clock.h"
#include "service.h"

#define FRAME_MS 5000
#define REPLY_MS 30000
#define IDLE_MS  8000
#define HOUR_MS  3600000

#define OWN_UID   1000
#define OTHER_UID 1001

static void set_limits(struct limits *limits)
{
	limits->frame_deadline_ms = FRAME_MS;
	limits->reply_deadline_ms = REPLY_MS;
	limits->jobs_per_uid = 1;
}

static void set_idle_limit(struct limits *limits)
{
	set_limits(limits);
	limits->idle_deadline_ms = IDLE_MS;
}

TestSuite(session_deadlines, .fini = service_stop);

/* Starts the server and connects a client that has been answered once. */
static struct client start(void (*set)(struct limits *limits))
{
	struct client client = client_connect(service_start(set), OWN_UID);

	client_send_pings(&client, 1);
	service_iterate(client.server);
	cr_assert_gt(client_read(&client), 0);
	return client;
}

/* Lets time pass and the service notice it. */
static void pass(const struct client *client, uint64_t ms)
{
	fake_clock_pass_ms(ms);
	service_iterate(client->server);
}

static bool is_open(const struct client *client)
{
	struct session *session = client_session(client);

	return session && session->state == SESSION_OPEN;
}

/* Charges all the transforms that the user may have under way, so that the client's requests stay unread
 * until the charge is released. */
static void fill_jobs(const struct client *client, struct charge *charge)
{
	struct session *session = client_session(client);
	struct error err;

	cr_assert_eq(
	    charge_take(charge, &client->server->service.accounts, session->account, CHARGE_JOBS, 1, &err),
	    0);
}

static void end_jobs(const struct client *client, struct charge *charge)
{
	charge_release(charge);
	session_on_job_ended(client_session(client));
	service_iterate(client->server);
}

/* ---- A message's arrival ------------------------------------------------------------------------------ */

Test(session_deadlines, a_message_that_does_not_arrive_completely_ends_the_session)
{
	struct client client = start(set_limits);

	client_send(&client, PING, 3);
	service_iterate(client.server);
	pass(&client, FRAME_MS - 1);
	cr_assert(is_open(&client));
	pass(&client, 1);
	cr_assert_not(is_open(&client));
}

Test(session_deadlines, bytes_that_arrive_do_not_prolong_a_message)
{
	struct client client = start(set_limits);

	client_send(&client, PING, 3);
	service_iterate(client.server);
	pass(&client, FRAME_MS - 1);
	client_send(&client, &PING[3], 2);
	service_iterate(client.server);
	cr_assert(is_open(&client));
	pass(&client, 1);
	cr_assert_not(is_open(&client));
}

Test(session_deadlines, each_message_has_all_the_time)
{
	struct client client = start(set_limits);

	for (int i = 0; i < 3; i++) {
		client_send(&client, PING, 3);
		service_iterate(client.server);
		pass(&client, FRAME_MS - 1);
		client_send(&client, &PING[3], PING_BYTES - 3);
		service_iterate(client.server);
		cr_assert_gt(client_read(&client), 0, "message %d is answered", i);
	}
	pass(&client, HOUR_MS);
	cr_assert(is_open(&client), "nothing has begun");
}

Test(session_deadlines, a_message_s_time_stands_still_while_its_rest_is_left_unread)
{
	struct client client = start(set_limits);
	struct charge jobs = { 0 };

	client_send(&client, PING, 3);
	service_iterate(client.server);
	pass(&client, FRAME_MS - 1000);

	fill_jobs(&client, &jobs);
	client_send(&client, &PING[3], 2);
	service_iterate(client.server);
	cr_assert_eq(client_session(&client)->waiting, WAIT_JOBS);
	pass(&client, HOUR_MS);
	cr_assert(is_open(&client), "the delay is not the peer's");

	end_jobs(&client, &jobs);
	cr_assert_eq(client_session(&client)->waiting, WAIT_NONE);
	pass(&client, 999);
	cr_assert(is_open(&client), "it goes on where it stood");
	pass(&client, 1);
	cr_assert_not(is_open(&client), "and does not start over");
}

Test(session_deadlines, a_message_that_was_left_unread_is_answered_however_late)
{
	struct client client = start(set_limits);
	struct charge jobs = { 0 };

	fill_jobs(&client, &jobs);
	client_send_pings(&client, 1);
	service_iterate(client.server);
	pass(&client, HOUR_MS);
	cr_assert_eq(client_read(&client), 0);
	end_jobs(&client, &jobs);
	cr_assert_gt(client_read(&client), 0);
	cr_assert(is_open(&client));
}

/* ---- Replies ------------------------------------------------------------------------------------------ */

/* Makes the service hold replies that the client's socket has no room for. */
static void fill_replies(const struct client *client)
{
	struct session *session = client_session(client);

	setsockopt(connection_of(session)->fd, SOL_SOCKET, SO_SNDBUF, &(int){ 1 }, sizeof(int));
	for (int i = 0; i < 10000 && buffer_len(&connection_of(session)->out) == 0; i++) {
		client_send_pings(client, 1);
		service_iterate(client->server);
	}
	cr_assert_gt(buffer_len(&connection_of(session)->out), 0);
}

Test(session_deadlines, replies_that_are_not_read_end_the_session)
{
	struct client client = start(set_limits);

	fill_replies(&client);
	pass(&client, REPLY_MS - 1);
	cr_assert(is_open(&client));
	pass(&client, 1);
	cr_assert_not(is_open(&client));
}

Test(session_deadlines, more_requests_do_not_prolong_the_time_for_replies)
{
	struct client client = start(set_limits);

	fill_replies(&client);
	pass(&client, REPLY_MS - 1);
	client_send_pings(&client, 3);
	service_iterate(client.server);
	pass(&client, 1);
	cr_assert_not(is_open(&client));
}

Test(session_deadlines, replies_that_are_read_in_time_stop_the_deadline)
{
	struct client client = start(set_limits);

	fill_replies(&client);
	for (int i = 0; i < 2; i++) {
		pass(&client, REPLY_MS - 1);
		while (client_read(&client) > 0)
			service_iterate(client.server);
		cr_assert_eq(buffer_len(&connection_of(client_session(&client))->out), 0, "time %d", i);
		fill_replies(&client); /* the new replies have the full time again */
	}
	while (client_read(&client) > 0)
		service_iterate(client.server);
	pass(&client, HOUR_MS);
	cr_assert(is_open(&client));
}

/* ---- Idleness ----------------------------------------------------------------------------------------- */

Test(session_deadlines, without_an_idle_deadline_a_session_may_do_nothing)
{
	struct client client = start(set_limits);

	connections_watch_idle(&client.server->connections);
	pass(&client, 24 * (uint64_t)HOUR_MS);
	cr_assert(is_open(&client));
}

/* A session is checked four times within the deadline, so it ends a quarter of that late at most. */
Test(session_deadlines, a_session_that_does_nothing_ends)
{
	struct client client = start(set_idle_limit);

	connections_watch_idle(&client.server->connections);
	pass(&client, IDLE_MS - 1);
	cr_assert(is_open(&client));
	pass(&client, IDLE_MS / 4 + 2);
	cr_assert_not(is_open(&client));
}

Test(session_deadlines, a_session_that_is_used_is_not_idle)
{
	struct client client = start(set_idle_limit), other;

	other = client_connect(client.server, OTHER_UID);
	connections_watch_idle(&client.server->connections);
	for (int i = 0; i < 4; i++) {
		pass(&client, IDLE_MS - 1);
		client_send_pings(&client, 1);
		service_iterate(client.server);
		cr_assert(is_open(&client), "time %d", i);
	}
	cr_assert_not(is_open(&other));
}

Test(session_deadlines, a_session_with_a_request_that_waits_is_not_idle)
{
	struct client client = start(set_idle_limit);
	struct charge jobs = { 0 };

	connections_watch_idle(&client.server->connections);
	fill_jobs(&client, &jobs);
	client_send_pings(&client, 1);
	service_iterate(client.server);
	pass(&client, HOUR_MS);
	cr_assert(is_open(&client));
	end_jobs(&client, &jobs);
	pass(&client, 2 * IDLE_MS);
	cr_assert_not(is_open(&client));
}

Test(session_deadlines, the_idle_deadline_may_be_set_and_taken_away)
{
	struct client client = start(set_idle_limit);

	connections_watch_idle(&client.server->connections);
	client.server->service.limits.idle_deadline_ms = 0;
	connections_watch_idle(&client.server->connections);
	pass(&client, HOUR_MS);
	cr_assert(is_open(&client));
	client.server->service.limits.idle_deadline_ms = IDLE_MS;
	connections_watch_idle(&client.server->connections);
	pass(&client, IDLE_MS);
	cr_assert_not(is_open(&client), "it has done nothing for an hour");
}
