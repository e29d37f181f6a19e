/* SPDX-License-Identifier: Apache-2.0 */
/* Cases in which clients are killed in the middle of their copies, while another client's copies have to stay
 * correct. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients.h"
#include "clients_move.h"
#include "clients_store.h"
#include "tests/support/tap.h"

#define QUEUED 48 /* transforms submitted by a client that is killed */

static int told[2]; /* pipe to which the bystander writes a byte when it is ready */
static int stop[2]; /* pipe whose end tells the bystander to stop */

/* ---- The clients
 * ------------------------------------------------------------------------------------------ */

/* The bystander, whose requests must not be affected. */
static void stand_by(const struct service *service, uint64_t seed)
{
	tma_client *client = client_connect(service);
	struct pollfd end = { .fd = stop[0], .events = POLLIN };
	uint64_t state = seed;
	struct store dst, src;
	int rounds = 0;

	close(stop[1]);
	store_open_device();
	store_allocate(&dst, 1 << 20);
	store_create(&src, 1 << 20);
	store_share(&dst, client, STORE_BY_POINTER, 64, (1 << 20) - 128);
	store_share(&src, client, STORE_BY_POINTER, 64, (1 << 20) - 128);
	require(write(told[1], "", 1) == 1, "nobody waits for the bystander");
	for (; poll(&end, 1, 0) == 0; rounds++)
		move_check(client, &dst, &src, &moves[rounds % (int)n_moves], &state);
	require(tma_reconnects(client) == 0, "the bystander lost its connection");
	printf("# %d copies beside it were right\n", rounds);
	store_free(&dst);
	store_free(&src);
	tma_free(client);
}

/* Copies until it is killed. */
static void copy_for_ever(const struct service *service, void (*make)(struct store *ret, size_t size),
                          int64_t scale)
{
	struct move move = { "", TMA_FLOAT16, { 64, 96 }, 0, 2, { 1, 0 }, { 0, 0 }, { 0, 0 } };
	tma_client *client = client_connect(service);
	struct move_request request;
	struct store dst, src;

	move = move_scaled(&move, service->is_stand_in ? 4 : scale);
	store_open_device();
	make(&dst, move_room(&move));
	make(&src, move_room(&move));
	store_share(&dst, client, STORE_BY_POINTER, 0, move_room(&move));
	store_share(&src, client, STORE_BY_POINTER, 0, move_room(&move));
	move_request(&request, &dst, &src, &move);
	for (;;) {
		tma_ticket tickets[QUEUED];

		for (int i = 0; i < QUEUED; i++)
			must(client, tma_submit(client, &request.transform, &tickets[i]));
		for (int i = 0; i < QUEUED; i++)
			must(client, tma_wait(client, tickets[i], NULL));
	}
}

static void copy_allocated(const struct service *service, uint64_t seed)
{
	(void)seed;
	copy_for_ever(service, store_allocate, 192);
}

static void copy_created(const struct service *service, uint64_t seed)
{
	(void)seed;
	copy_for_ever(service, store_create, 192);
}

static void copy_host(const struct service *service, uint64_t seed)
{
	(void)seed;
	copy_for_ever(service, store_host, 64);
}

/* ---- Killing -------------------------------------------------------------------------------------- */

/* Resources that must be released after a kill. */
struct levels {
	int64_t regions;
	int64_t mapped_bytes;
	int64_t connections;
};

static struct levels levels_get(tma_client *client)
{
	return (struct levels){ client_stat(client, "regions"), client_stat(client, "mapped_bytes"),
		                client_stat(client, "connections") };
}

static bool levels_equal(const struct levels *a, const struct levels *b)
{
	return a->regions == b->regions && a->mapped_bytes == b->mapped_bytes &&
	       a->connections == b->connections;
}

/* Returns whether a client was found in the middle of its copies and was killed then. */
static bool kill_in_mid_copy(tma_client *client, pid_t pid)
{
	uint64_t end = client_now_ns() + UINT64_C(30000000000);
	bool busy = false;

	while (!busy && client_now_ns() < end && client_lives(pid)) {
		busy = client_stat(client, "jobs") > QUEUED / 4;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (!busy)
		tap_note("it never had %d transforms under way", QUEUED / 4);
	return busy;
}

/* Checks that everything is released within a second, or longer on a software device. */
static bool check_kill(const struct service *service, tma_client *client, client_run *run, uint64_t i)
{
	struct levels before = levels_get(client), now;
	pid_t pid = client_start(run, service, i);
	uint64_t killed, limit = service->is_stand_in ? 10 : 1;

	if (!kill_in_mid_copy(client, pid))
		return false;
	killed = client_now_ns();
	do {
		now = levels_get(client);
		if (levels_equal(&now, &before))
			return true;
		client_sleep_ms(1);
	} while (client_now_ns() - killed < limit * 1000000000);
	tap_note("%d s after it: %d regions, not %d; %lld bytes mapped, not %lld", (int)limit,
	         (int)now.regions, (int)before.regions, (long long)now.mapped_bytes,
	         (long long)before.mapped_bytes);
	return false;
}

void kill_cases(const struct service *service)
{
	static const struct {
		const char *name;
		client_run *run;
	} rows[] = {
		{ "cuda_ipc memory", copy_allocated },
		{ "memory of cuMemCreate", copy_created },
		{ "host memory", copy_host },
	};
	uint64_t kills = service->is_stand_in ? 2 : 6;
	tma_client *client = client_connect(service);
	pid_t bystander;
	char byte;

	if (pipe(told) < 0 || pipe(stop) < 0)
		tap_bail_out("no pipe");
	bystander = client_start(stand_by, service, 77);
	close(told[1]);
	close(stop[0]);
	if (read(told[0], &byte, 1) == 1) {
		for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
			bool good = true;

			for (uint64_t n = 0; n < kills && good; n++)
				good = check_kill(service, client, rows[i].run, n);
			tap_case(good && service_lives(service), "a client with %s is killed in mid-copy",
			         rows[i].name);
		}
	}
	close(stop[1]);
	close(told[0]);
	tap_case(client_wait(bystander), "all the while another client's copies are right");
	tma_free(client);
}
