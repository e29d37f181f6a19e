/* SPDX-License-Identifier: Apache-2.0 */
/* Tests relays that wait for a page of a ring, which the test withholds by a userfaultfd. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/userfaultfd.h>

#include "daemon/memory/relay.h"
#include "proto/submission.h"
#include "service.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif

#define UID       1000
#define OTHER_UID 1001
#define ENTRIES   8
#define PAGE      4096

static struct client client;
static struct region region = { .jobs = 1 }; /* has a job, so that the relay does not close it */
static struct submission_ring *ring;
static struct relay *relay;
static int faults = -1;
static int n_news;

static void on_news(struct session *session)
{
	(void)session;
	n_news++;
}

static void setup(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register missing = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	faults = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (faults < 0 || ioctl(faults, UFFDIO_API, &api) < 0)
		return;
	ring = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(ring, MAP_FAILED);
	missing.range = (struct uffdio_range){ (uintptr_t)ring, PAGE };
	cr_assert_eq(ioctl(faults, UFFDIO_REGISTER, &missing), 0);
	client = client_connect(service_start(NULL), UID);
	relay = relay_new(client_session(&client), &region, ring, ENTRIES, on_news);
	cr_assert(relay);
}

static void end(void)
{
	if (relay) {
		relay_close(relay);
		while (client_session(&client)->relays > 0)
			service_iterate_once(client.server);
	}
	service_stop();
}

TestSuite(relay, .init = setup, .fini = end);

static const struct account *account(void)
{
	return client_session(&client)->account;
}

/* Makes the relay look for the ring's first entry, and returns once the relay waits for the page. */
static void begin_look(void)
{
	struct submission_entry entry;
	struct uffd_msg fault;

	if (!relay)
		cr_skip("there is no userfaultfd here");
	relay_ring(relay);
	cr_assert_eq(relay_entry(relay, 0, &entry), RELAY_NONE);
	cr_assert_eq(poll(&(struct pollfd){ .fd = faults, .events = POLLIN }, 1, -1), 1);
	cr_assert_eq(read(faults, &fault, sizeof fault), (ssize_t)sizeof fault);
}

/* Provides the page, with this number of entries. */
static void give_page(uint32_t entries)
{
	static _Alignas(PAGE) char page[PAGE];
	struct uffdio_copy copy = { .dst = (uintptr_t)ring, .src = (uintptr_t)page, .len = PAGE };

	((struct submission_ring *)page)->submitted = entries;
	cr_assert_eq(ioctl(faults, UFFDIO_COPY, &copy), 0);
	while (relays_are_busy(account(), 0))
		service_iterate_once(client.server);
	service_iterate(client.server);
}

Test(relay, a_page_that_does_not_come_is_nobody_elses_matter)
{
	struct client other;

	begin_look();
	other = client_connect(client.server, OTHER_UID);
	client_send_pings(&other, 3);
	service_iterate(client.server);
	cr_assert_eq(client_handled(&other), 3);
	cr_assert(relays_are_busy(account(), 0));
	cr_assert_not(relays_are_busy(account(), UINT64_C(3600) * 1000000000));
	cr_assert_not(relays_are_busy(client_session(&other)->account, 0));
	cr_assert(relay_is_rung(relay));
	cr_assert_eq(n_news, 0);
	give_page(0);
	cr_assert_not(relay_is_rung(relay));
	cr_assert_eq(n_news, 1);
}

Test(relay, one_that_is_rung_while_it_reads_keeps_what_it_has_read)
{
	struct submission_entry entry;

	begin_look();
	relay_ring(relay);
	cr_assert_eq(relay_entry(relay, 0, &entry), RELAY_NONE);
	give_page(2);
	cr_assert_eq(relay_count(relay, 0), 2);
	for (uint32_t i = 0; i < 2; i++)
		cr_assert_eq(relay_entry(relay, i, &entry), RELAY_ENTRY, "%u", i);
}
