/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a signal interrupts, against a real tmad that is stopped meanwhile. */
#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#include "rig.h"

#define BYTES 4096

static struct process service;
static tma_client *client;
static tma_region *region;
static volatile sig_atomic_t signals;

static void on_alarm(int number)
{
	(void)number;
	signals = signals + 1;
}

/* Raises a signal every 20 ms; interrupted system calls are not restarted. */
static void setup(void)
{
	const struct itimerval often = { { 0, 20000 }, { 0, 20000 } };
	const struct sigaction action = { .sa_handler = on_alarm };

	client = rig_start(&service, NULL);
	region = rig_region(client, BYTES);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
}

static void teardown(void)
{
	setitimer(ITIMER_REAL, &(struct itimerval){ 0 }, NULL);
	rig_stop(&service, client);
}

TestSuite(library_interrupt, .init = setup, .fini = teardown, .timeout = 120);

/* Interrupts after as many calls of the handler as *arg says. */
static int count_down(void *arg)
{
	int *left = arg;

	return --*left <= 0;
}

/* Lets the service go on after as many calls as *arg says. */
static int resume(void *arg)
{
	int *left = arg;

	if (--*left == 0)
		kill(service.pid, SIGCONT);
	return 0;
}

Test(library_interrupt, a_service_that_is_stopped)
{
	int left = 10;

	tma_set_interrupt(client, count_down, &left);
	kill(service.pid, SIGSTOP);
	cr_assert_eq(tma_ping(client), TMA_NO_REPLY);
	cr_assert(strstr(tma_last_error(client), "ping was interrupted by a signal"), "%s",
	          tma_last_error(client));
	cr_assert_eq(left, 0);
	cr_assert_eq(tma_ping(client), TMA_DISCONNECTED);
	left = 1000000;
	kill(service.pid, SIGCONT);
	cr_assert_eq(tma_connect(client, service.socket), 0, "%s", tma_last_error(client));
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_gt(signals, 0);
}

Test(library_interrupt, a_function_that_returns_0)
{
	int left = 10;

	tma_set_interrupt(client, resume, &left);
	kill(service.pid, SIGSTOP);
	cr_assert_eq(tma_ping(client), 0, "%s", tma_last_error(client));
	cr_assert_leq(left, 0);
}

Test(library_interrupt, a_ring)
{
	struct tma_tensor tensor = { .dtype = TMA_UINT8, .rank = 1, .shape = { 64 } };
	struct tma_place dst = { .region = region }, src = { .region = region, .offset = 64 };
	struct tma_ring_end end;
	tma_plan *plan;
	tma_ring *ring;
	int left = 3;

	memset((char *)rig_data(region) + 64, 7, 64);
	cr_assert_eq(
	    tma_plan_prepare(client, &(struct tma_transform){ .dst = &tensor, .src = &tensor }, &plan), 0);
	cr_assert_eq(tma_ring_open(client, 8, 0, &ring), 0, "%s", tma_last_error(client));
	tma_set_interrupt(client, count_down, &left);
	kill(service.pid, SIGSTOP);
	cr_assert_eq(tma_ring_push(ring, plan, dst, src, 5), 0);
	cr_assert_eq(tma_ring_wait(ring, 0, &end), TMA_PENDING);
	cr_assert_eq(left, 0);
	left = 3;
	tma_set_interrupt(client, resume, &left);
	cr_assert_eq(tma_ring_wait(ring, 0, &end), 0, "%s", tma_last_error(client));
	cr_assert(end.tag == 5 && end.status == 0);
	cr_assert_eq(memcmp(rig_data(region), (char *)rig_data(region) + 64, 64), 0);
	cr_assert_eq(tma_ring_close(ring), 0, "%s", tma_last_error(client));
}
