/* SPDX-License-Identifier: Apache-2.0 */
/* Tests waits that the program's interrupt function ends: which of them end, with what status, and what is
 * left afterwards. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "proto/clock.h"
#include "proto/wire/socket.h"
#include "server.h"

static const struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 4 } };
static const struct tma_transform transform = { .dst = &tensor, .src = &tensor };

static int asked, enough; /* calls of the interrupt function, and the first that ends the wait */

static void on_alarm(int number)
{
	(void)number;
}

/* The handler is installed with SA_RESTART, so system calls that can be restarted go on after the signal. */
static void send_signals(long every_us)
{
	struct itimerval often = { { 0, every_us }, { 0, every_us } };
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

static int count(void *arg)
{
	cr_assert_eq(arg, &asked);
	return ++asked >= enough;
}

static void interrupt_at(tma_client *client, int call)
{
	asked = 0;
	enough = call;
	tma_set_interrupt(client, count, &asked);
}

/* The first connection reads requests and answers none; a later one answers. */
static void script_silent_first(struct server *s)
{
	struct rpc_request request;

	if (s->connection > 0)
		server_polite(s);
	while (server_request(s, &request))
		;
}

Test(interrupt, a_call_that_waits)
{
	struct server s = { .connections = 2 };
	tma_client *client;
	tma_ticket ticket;

	server_start(&s, script_silent_first);
	client = server_client(&s, -1);
	send_signals(5000);
	interrupt_at(client, 5);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	cr_assert_eq(asked, 5);
	cr_assert_str_eq(
	    tma_last_error(client),
	    "ping was interrupted by a signal; the connection is closed and the outcome is unknown");
	cr_assert_eq(tma_wait(client, ticket, NULL), TMA_NO_REPLY, "so has what was in flight");
	cr_assert_eq(tma_fd(client), -1);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED, "the program decides");
	interrupt_at(client, 1000000);
	cr_assert_eq(tma_connect(client, s.path), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* No system call ends with a signal that comes between the check and the wait, or to another thread. */
Test(interrupt, without_a_signal)
{
	struct server s = { .connections = 2 };
	tma_client *client;

	server_start(&s, script_silent_first);
	client = server_client(&s, -1);
	interrupt_at(client, 2);
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	cr_assert_eq(tma_connect(client, s.path), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

Test(interrupt, the_timeout_is_what_it_was)
{
	struct server s = { .connections = 2 };
	tma_client *client;
	int64_t start;

	server_start(&s, script_silent_first);
	client = server_client(&s, 350);
	send_signals(20000);
	interrupt_at(client, 1000000);
	start = clock_ms();
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	cr_assert_geq(clock_ms() - start, 350);
	cr_assert(strstr(tma_last_error(client), "not answered within 350 ms"), "%s", tma_last_error(client));
	cr_assert_gt(asked, 0);
	asked = 0;
	tma_set_interrupt(client, NULL, NULL);
	cr_assert_eq(tma_connect(client, s.path), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0);
	cr_assert_eq(asked, 0);
	tma_free(client);
	server_stop(&s);
}

static int is_asked; /* set when the script has read the request, s->cut */

static void script_hand_over(struct server *s)
{
	struct rpc_request request;

	if (server_request(s, &request))
		s->cut = request.msgid;
	__atomic_store_n(&is_asked, 1, __ATOMIC_RELEASE);
	server_request(s, &request);
}

/* The reply has arrived by the time that the interrupt function ends the wait. */
static int answered_meanwhile(void *arg)
{
	struct server *s = arg;
	struct buffer b = { 0 };

	if (!__atomic_load_n(&is_asked, __ATOMIC_ACQUIRE))
		return 0;
	rpc_encode_result(&b, (uint32_t)s->cut, &methods[METHOD_ping], NULL);
	server_send(s, &b);
	return 1;
}

Test(interrupt, a_reply_that_has_come_counts)
{
	struct server s = { 0 };
	tma_client *client;

	server_start(&s, script_hand_over);
	client = server_client(&s, -1);
	tma_set_interrupt(client, answered_meanwhile, &s);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* Reads the second request before it answers the first. */
static void script_second_first(struct server *s)
{
	struct rpc_request request;
	uint32_t msgid;

	if (!server_request(s, &request))
		return;
	msgid = request.msgid;
	if (!server_request(s, &request))
		return;
	server_answer_transform(s, msgid, "memcpy", 1);
	server_answer_true(s, &request);
	server_polite(s);
}

Test(interrupt, tma_next_loses_nothing)
{
	struct server s = { 0 };
	struct tma_completed completed = { 0 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_second_first);
	client = server_client(&s, -1);
	send_signals(5000);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	for (int i = 1; i < 4; i++) {
		interrupt_at(client, i);
		cr_assert_eq(tma_next(client, -1, &completed), TMA_PENDING);
		cr_assert_eq(asked, i);
	}
	interrupt_at(client, 1);
	cr_assert_eq(tma_next(client, 0, &completed), TMA_PENDING);
	cr_assert_eq(asked, 0, "it does not wait");
	interrupt_at(client, 1000000);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_next(client, -1, &completed), 0, "%s", tma_last_error(client));
	cr_assert_eq(completed.ticket, ticket);
	tma_free(client);
	server_stop(&s);
}

/* A signal also ends a poll() that does not wait, but there is no wait for it to interrupt. */
Test(interrupt, what_does_not_wait)
{
	struct server s = { 0 };
	struct tma_completed completed = { 0 };
	tma_ticket ticket;
	tma_client *client;

	server_start(&s, script_second_first);
	client = server_client(&s, -1);
	send_signals(50);
	cr_assert_eq(tma_submit(client, &transform, &ticket), 0);
	interrupt_at(client, 1);
	for (int i = 0; i < 100000; i++)
		cr_assert_eq(tma_next(client, 0, &completed), TMA_PENDING);
	cr_assert_eq(asked, 0);
	interrupt_at(client, 1000000);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_next(client, -1, &completed), 0, "%s", tma_last_error(client));
	tma_free(client);
	server_stop(&s);
}

/* ---- Connecting ------------------------------------------------------------------------------------- */

Test(interrupt, a_connection_that_is_not_accepted)
{
	char directory[] = "/tmp/tma-client-XXXXXX", path[64];
	tma_client *client = tma_new();
	int listener, queued[2];

	cr_assert_not_null(mkdtemp(directory));
	snprintf(path, sizeof path, "%s/sock", directory);
	listener = socket_listen(path, 0, 0600);
	for (int i = 0; i < 2; i++)
		queued[i] = socket_connect(path, 0);
	cr_assert_eq(queued[1], -EAGAIN);
	send_signals(20000);
	interrupt_at(client, 2);
	cr_assert_eq(tma_connect(client, path), TMA_NO_REPLY);
	cr_assert(strstr(tma_last_error(client), "a signal interrupted the call before tmad"), "%s",
	          tma_last_error(client));
	cr_assert_eq(asked, 2);
	tma_free(client);
	close(queued[0]);
	close(listener);
	unlink(path);
	rmdir(directory);
}

Test(interrupt, a_service_that_does_not_come_back)
{
	struct server s = { 0 };
	tma_client *client;
	int64_t start = clock_ms();

	server_start(&s, server_polite);
	client = server_client(&s, -1);
	tma_set_reconnect(client, 3600000);
	cr_assert_eq(tma_ping(client), 0);
	shutdown(s.sock, SHUT_RDWR);
	server_stop(&s);
	for (int i = 0; i < 2; i++) {
		interrupt_at(client, 3);
		cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
		cr_assert(strstr(tma_last_error(client), "no tmad at"), "%s", tma_last_error(client));
		cr_assert_eq(asked, 3, "the next call tries again for as long");
	}
	cr_assert_lt(clock_ms() - start, 600000);
	tma_free(client);
}

static int refusals; /* registrations that later connections still refuse */

static void script_refuses(struct server *s)
{
	struct rpc_request request;

	while (server_request(s, &request)) {
		if (request.method->id != METHOD_region_register) {
			server_answer_true(s, &request);
			if (s->connection == 0)
				return;
		} else if (s->connection > 0 && refusals-- > 0)
			server_refuse(s, request.msgid, STATUS_QUOTA, "no more of that");
		else
			server_answer_registered(s, &request, 7);
	}
}

Test(interrupt, a_region_that_is_refused_for_now)
{
	struct server s = { .connections = 2 };
	tma_region *region;
	tma_client *client;
	int fd = memfd_create("interrupt", MFD_CLOEXEC);

	cr_assert_eq(ftruncate(fd, 4096), 0);
	server_start(&s, script_refuses);
	client = server_client(&s, -1);
	tma_set_reconnect(client, 3600000);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, 4096, 0, &region), 0, "%s",
	             tma_last_error(client));
	refusals = 4;
	cr_assert_eq(tma_ping(client), 0);
	interrupt_at(client, 3);
	cr_assert_eq(tma_ping(client), TMA_QUOTA, "%s", tma_last_error(client));
	cr_assert_eq(asked, 3);
	cr_assert_geq(tma_fd(client), 0);
	interrupt_at(client, 1000000);
	cr_assert_eq(tma_ping(client), 0, "the next call asks again: %s", tma_last_error(client));
	cr_assert_eq(refusals, -1);
	cr_assert_eq(tma_reconnects(client), 1);
	close(fd);
	tma_free(client);
	server_stop(&s);
}
