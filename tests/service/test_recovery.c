/* SPDX-License-Identifier: Apache-2.0 */
/* The library with a service that dies and is restarted, and with a device that is lost: the program has to
 * do nothing about either. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/tmaclient.h"
#include "tests/support/process.h"

#define SIZE  100000
#define FATAL 6666 /* A copy of this many bytes loses the device of tests/support/faulty.c. */

static struct process service;
static tma_client *client;

static void connect_client(void)
{
	client = tma_new();
	cr_assert(client);
	cr_assert_eq(tma_connect(client, service.socket), TMA_OK, "%s", tma_last_error(client));
}

static void setup(void)
{
	process_start(&service, NULL);
	connect_client();
}

static void setup_faulty(void)
{
	static char program[4096];
	const char *build = getenv("TEST_BUILDDIR");

	cr_assert(build, "TEST_BUILDDIR does not name where faulty_tmad is");
	snprintf(program, sizeof program, "%s/faulty_tmad", build);
	service.program = program;
	service.engine = "cuda";
	setup();
}

static void teardown(void)
{
	tma_free(client);
	process_stop(&service, SIGTERM);
}

TestSuite(restart, .init = setup, .fini = teardown, .timeout = 60);
TestSuite(lost, .init = setup_faulty, .fini = teardown, .timeout = 60);

/* ---- Regions and copies between them ---------------------------------------------------------------- */

static uint8_t byte_at(size_t i, unsigned seed)
{
	return (uint8_t)((i * 2654435761u + seed) >> 7);
}

static tma_region *made(enum tma_region_kind kind)
{
	tma_region *region;

	cr_assert_eq(tma_region_create_kind(client, kind, SIZE, &region), TMA_OK, "%s",
	             tma_last_error(client));
	return region;
}

/* Returns a region over a memfd that the test maps itself, and the mapping. */
static tma_region *mine(unsigned flags, uint8_t **ret)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	tma_region *region;

	cr_assert_eq(ftruncate(fd, SIZE), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	cr_assert_eq(tma_region_register_memfd(client, fd, 0, SIZE, flags, &region), TMA_OK, "%s",
	             tma_last_error(client));
	*ret = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	cr_assert_neq(*ret, MAP_FAILED);
	close(fd);
	return region;
}

static void fill(uint8_t *data, unsigned seed)
{
	for (size_t i = 0; i < SIZE; i++)
		data[i] = byte_at(i, seed);
}

static void assert_filled(const uint8_t *data, unsigned seed, const char *when)
{
	for (size_t i = 0; i < SIZE; i++)
		cr_assert_eq(data[i], byte_at(i, seed), "%s: byte %zu", when, i);
}

static struct tma_tensor bytes_of(tma_region *region, int64_t n)
{
	return (struct tma_tensor){ .region = region, .dtype = TMA_UINT8, .rank = 1, .shape = { n } };
}

static int copy(tma_region *dst, tma_region *src, int64_t n)
{
	struct tma_tensor d = bytes_of(dst, n), s = bytes_of(src, n);

	return tma_copy(client, &d, &s);
}

static void assert_copies(tma_region *dst, tma_region *src, const char *when)
{
	int status = copy(dst, src, SIZE);

	cr_assert_eq(status, TMA_OK, "%s: %s: %s", when, tma_status_name(status), tma_last_error(client));
}

/* ---- A service that dies ---------------------------------------------------------------------------- */

Test(restart, the_next_copy_works)
{
	tma_region *src, *dst, *both = made(TMA_REGION_ANY);
	uint8_t *from, *to;

	src = mine(TMA_REGION_READ_ONLY, &from);
	dst = mine(0, &to);
	fill(tma_region_data(both), 1);
	for (unsigned i = 1; i < 4; i++) {
		process_kill(&service);
		process_start_again(&service, NULL);
		assert_filled(tma_region_data(both), i, "memory of the dead service");
		assert_copies(dst, both, "out of memory that a dead service made");
		assert_filled(to, i, "copied out of memory that a dead service made");
		cr_assert_eq(tma_last_result(client)->reconnects, i);
		fill(from, i + 1);
		assert_copies(both, src, "into it");
		assert_filled(tma_region_data(both), i + 1, "copied into it");
		cr_assert_eq(copy(src, both, SIZE), TMA_PERMISSION, "it is still read-only");
	}
	cr_assert_eq(tma_reconnects(client), 3);
}

Test(restart, tickets_of_the_dead_one_end)
{
	enum { N = 50 };
	tma_region *a = made(TMA_REGION_MEMFD), *b = made(TMA_REGION_MEMFD);
	struct tma_tensor d = bytes_of(a, SIZE), s = bytes_of(b, SIZE);
	struct tma_transform t = { .dst = &d, .src = &s };
	tma_ticket tickets[N];
	bool lost = false;

	for (int i = 0; i < N; i++)
		cr_assert_eq(tma_submit(client, &t, &tickets[i]), TMA_OK);
	process_kill(&service);
	process_start_again(&service, NULL);
	for (int i = 0; i < N; i++) {
		int status = tma_wait(client, tickets[i], NULL);

		cr_assert(status == TMA_DISCONNECTED || (status == TMA_OK && !lost), "%d: %s", i,
		          tma_status_name(status));
		lost = status == TMA_DISCONNECTED;
	}
	cr_assert_eq(tma_reconnects(client), 0, "waiting does not connect");
	assert_copies(a, b, "after them");
	cr_assert_eq(tma_reconnects(client), 1);
}

/* The socket path refuses connections for a while. */
Test(restart, one_that_is_slow_to_come)
{
	tma_region *a = made(TMA_REGION_MEMFD), *b = made(TMA_REGION_MEMFD);
	pid_t starter;

	fill(tma_region_data(b), 7);
	process_kill(&service);
	starter = fork();
	if (starter == 0) {
		nanosleep(&(struct timespec){ .tv_nsec = 500000000 }, NULL);
		execl(getenv("TEST_TMAD"), "tmad", "--engine=cpu", "--log-level=warning", "--socket",
		      service.socket, NULL);
		_exit(127);
	}
	service.pid = starter;
	assert_copies(a, b, "when it has come");
	assert_filled(tma_region_data(a), 7, "copied when it has come");
}

Test(restart, released_regions_stay_behind)
{
	tma_region *a = made(TMA_REGION_MEMFD), *b = made(TMA_REGION_MEMFD), *c = made(TMA_REGION_MEMFD);
	tma_document *regions;

	process_kill(&service);
	process_start_again(&service, NULL);
	cr_assert_eq(tma_region_release(c), TMA_OK);
	assert_copies(a, b, "without it");
	cr_assert_eq(tma_regions(client, &regions), TMA_OK);
	cr_assert_eq(tma_document_count(regions), 2);
	tma_document_free(regions);
}

/* ---- A service that still unmaps -------------------------------------------------------------------- */

#define LARGE (UINT64_C(48) << 20)

static void setup_narrow(void)
{
	process_start(&service, "--mapped-bytes-per-uid=67108864");
	connect_client();
}

TestSuite(narrow, .init = setup_narrow, .fini = teardown, .timeout = 300);

/* The quota allows the region once, not twice. After a call without a reply the client reconnects while the
 * service is still ending the previous connection, whose region may still be mapped. */
Test(narrow, a_hundred_reconnects_lose_no_region)
{
	tma_region *large, *words;
	struct tma_tensor t;
	struct tma_order order;
	struct tma_transform never;
	uint8_t *data;

	words = made(TMA_REGION_MEMFD); /* the large one is registered first because it was made last */
	cr_assert_eq(tma_region_create_kind(client, TMA_REGION_MEMFD, LARGE, &large), TMA_OK, "%s",
	             tma_last_error(client));
	data = tma_region_data(large);
	memset(data, 7, LARGE);
	t = bytes_of(words, 8);
	order = (struct tma_order){ .wait = { .region = words, .offset = 64, .value = 1 } };
	never = (struct tma_transform){ .dst = &t,
		                        .src = &(struct tma_tensor){ .region = words,
		                                                     .offset = 16,
		                                                     .dtype = TMA_UINT8,
		                                                     .rank = 1,
		                                                     .shape = { 8 } },
		                        .order = &order };
	for (int i = 0; i < 100; i++) {
		struct tma_tensor d = bytes_of(large, 4096), s = d;
		int status;

		tma_set_timeout(client, 5);
		status = tma_transform(client, &never);
		cr_assert_eq(status, TMA_NO_REPLY, "%d: %s", i, tma_last_error(client));
		tma_set_timeout(client, 60000);
		tma_set_reconnect(client, 60000);
		cr_assert_eq(tma_connect(client, service.socket), TMA_OK, "%d: %s", i,
		             tma_last_error(client));
		s.offset = LARGE - 4096;
		data[0] = (uint8_t)i;
		data[LARGE - 4096] = (uint8_t)(i + 1);
		cr_assert_eq(tma_copy(client, &d, &s), TMA_OK, "%d: %s", i, tma_last_error(client));
		cr_assert_eq(data[0], (uint8_t)(i + 1));
	}
}

/* ---- A device that is lost -------------------------------------------------------------------------- */

Test(lost, the_next_copy_works)
{
	tma_region *device = made(TMA_REGION_ANY), *gone = made(TMA_REGION_CUDA_IPC);
	tma_region *a = made(TMA_REGION_MEMFD), *b = made(TMA_REGION_MEMFD), *imported;
	pid_t pid = service.pid;

	cr_assert_eq(tma_region_kind(device), TMA_REGION_CUDA_FD);
	cr_assert_null(tma_region_data(device));
	cr_assert_geq(tma_region_fd(device), 0);
	cr_assert_eq(tma_region_register_cuda_fd(client, tma_region_fd(device), 0, 0, SIZE, 0, &imported),
	             TMA_OK, "%s", tma_last_error(client));
	fill(tma_region_data(b), 1);
	assert_copies(imported, b, "to the device");
	/* A user who loses the device a third time is refused for a while. */
	for (uint32_t i = 1; i < 3; i++) {
		cr_assert_eq(copy(a, b, FATAL), TMA_DEVICE_LOST);
		cr_assert_eq(tma_last_result(client)->status, TMA_DEVICE_LOST);
		memset(tma_region_data(a), 0, SIZE);
		if (i == 1) {
			cr_assert_eq(copy(a, device, SIZE), TMA_NOT_FOUND, "the first call reports it");
			cr_assert(strstr(tma_last_error(client), "connected, but a region of"), "%s",
			          tma_last_error(client));
		}
		assert_copies(a, device, "from the device that came back");
		assert_filled(tma_region_data(a), 1, "its memory");
		cr_assert_eq(tma_last_result(client)->reconnects, i);
		cr_assert_eq(copy(a, gone, SIZE), TMA_NOT_FOUND);
		cr_assert(strstr(tma_last_error(client), "src.region: it could not be registered again"),
		          "%s", tma_last_error(client));
		cr_assert_eq(waitpid(pid, NULL, WNOHANG), 0, "it is the same process");
	}
}

Test(lost, tickets_end_so)
{
	enum { N = 20 };
	tma_region *a = made(TMA_REGION_MEMFD), *b = made(TMA_REGION_MEMFD);
	struct tma_tensor d = bytes_of(a, FATAL), s = bytes_of(b, FATAL);
	struct tma_transform fatal = { .dst = &d, .src = &s };
	tma_ticket tickets[N];

	tma_set_batching(client, true); /* all requests use one connection */
	for (int i = 0; i < N; i++)
		cr_assert_eq(tma_submit(client, &fatal, &tickets[i]), TMA_OK);
	tma_set_batching(client, false);
	for (int i = 0; i < N; i++) {
		int status = tma_wait(client, tickets[i], NULL);

		cr_assert(status == TMA_DEVICE_LOST || (i > 0 && status == TMA_DISCONNECTED), "%d: %s", i,
		          tma_status_name(status));
	}
	assert_copies(a, b, "after them");
	cr_assert_eq(tma_reconnects(client), 1);
}

/* Another client loses the device: this client notices only the count of resets. */
Test(lost, by_another_client)
{
	tma_client *own = client, *other;
	tma_region *a = made(TMA_REGION_MEMFD), *b = made(TMA_REGION_MEMFD), *c, *d;
	struct pollfd wait;

	fill(tma_region_data(b), 3);
	connect_client();
	other = client;
	c = made(TMA_REGION_MEMFD);
	d = made(TMA_REGION_MEMFD);
	cr_assert_eq(copy(c, d, FATAL), TMA_DEVICE_LOST);
	client = own;
	wait = (struct pollfd){ .fd = tma_fd(client) };
	cr_assert_eq(poll(&wait, 1, 10000), 1);
	assert_copies(a, b, "after another's loss");
	assert_filled(tma_region_data(a), 3, "copied after another's loss");
	cr_assert_eq(tma_reconnects(client), 1);
	tma_free(other);
}

Test(lost, many_clients)
{
	enum { N = 40 };
	tma_client *clients[N], *first = client;
	tma_region *a[N], *b[N];
	struct pollfd wait;

	for (int i = 0; i < N; i++) {
		if (i > 0)
			connect_client();
		clients[i] = client;
		a[i] = made(TMA_REGION_MEMFD);
		b[i] = made(TMA_REGION_MEMFD);
		fill(tma_region_data(b[i]), (unsigned)i);
	}
	client = first;
	cr_assert_eq(copy(a[0], b[0], FATAL), TMA_DEVICE_LOST);
	for (int i = 1; i < N; i++) {
		wait = (struct pollfd){ .fd = tma_fd(clients[i]) };
		cr_assert_eq(poll(&wait, 1, 10000), 1);
	}
	for (int i = 0; i < N; i++) {
		client = clients[i];
		assert_copies(a[i], b[i], "of one of many");
		assert_filled(tma_region_data(a[i]), (unsigned)i, "of one of many");
		cr_assert_eq(tma_reconnects(client), 1);
		if (i > 0)
			tma_free(client);
	}
	client = first;
}
