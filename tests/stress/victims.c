/* SPDX-License-Identifier: Apache-2.0 */
/* Starts clients and kills them, one after the other and several at a time, at random points of their work.
 *
 *    victims SOCKET N SEED [UID]    kills N clients, which run as UID, and prints what they had done
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mixed.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "tests/support/oracle.h"

#define AT_ONCE 4
#define MOST_US 6000 /* most microseconds that a victim lives */

/* Shared by all victims, which add to it as they go. */
struct deeds {
	_Atomic uint64_t connections;
	_Atomic uint64_t calls;
	_Atomic uint64_t transforms;
	_Atomic uint64_t halves; /* messages sent partially */
	_Atomic uint64_t wrongs; /* answers that should not have come */
};

struct victim {
	pid_t pid;
	int64_t end_us; /* end of its life */
};

static struct deeds *deeds;
static const char *path;

static int64_t now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- What victims do --------------------------------------------------------------------------------- */

static void work(uint64_t seed)
{
	struct mixed mixed = { .client = tma_new(), .state = seed };
	uint64_t transforms = 0;

	if (tma_connect(mixed.client, path) < 0)
		_exit(1);
	deeds->connections++;
	while (mixed_step(&mixed)) {
		deeds->calls++;
		deeds->transforms += mixed.transforms - transforms;
		transforms = mixed.transforms;
	}
	deeds->wrongs++;
	fprintf(stderr, "%s\n", mixed.why);
	_exit(1);
}

/* Sends many requests at once, the last one incomplete, with or without descriptors, and never reads a
 * reply. */
static void flood(uint64_t state)
{
	struct msg_region_create create = { .has = F(region_create, size), .size = 4096 };
	int64_t n = oracle_between(&state, 1, 300);
	struct buffer b = { 0 };
	size_t whole = 0, cut;
	int fds[3], n_fds = (int)oracle_between(&state, 0, 3), sock = socket_connect(path, -1);

	if (sock < 0)
		_exit(1);
	deeds->connections++;
	for (int i = 0; i < 3; i++)
		fds[i] = memfd_create("victim", MFD_CLOEXEC);
	for (int64_t i = 0; i < n; i++) {
		bool is_create = oracle_between(&state, 0, 7) == 0;

		whole = buffer_len(&b);
		rpc_encode_request(&b, (uint32_t)i, &methods[is_create ? METHOD_region_create : METHOD_ping],
		                   is_create ? &create : NULL);
	}
	cut = whole + (size_t)oracle_between(&state, 1, (int64_t)(buffer_len(&b) - whole) - 1);
	socket_send(sock, b.data + b.start, cut, fds, (size_t)n_fds);
	deeds->halves++;
	for (;;)
		pause();
}

/* ---- Their lives -------------------------------------------------------------------------------------- */

static void victim_begin(struct victim *victim, uint64_t *state, uid_t uid)
{
	int64_t life = oracle_between(state, 0, 3) ? oracle_between(state, 0, MOST_US) : 0;
	uint64_t seed = oracle_random(state);
	pid_t parent = getpid();

	victim->pid = fork();
	if (victim->pid < 0) {
		perror("fork");
		exit(1);
	}
	if (victim->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || (uid != getuid() && (setgid(uid) < 0 || setuid(uid) < 0)))
			_exit(1);
		if (seed % 4 == 0)
			flood(seed);
		work(seed);
	}
	victim->end_us = now_us() + (life ? life : oracle_between(state, 0, 500));
}

static void victim_end(const struct victim *victim)
{
	int64_t left = victim->end_us - now_us();

	if (left > 0)
		nanosleep(&(struct timespec){ .tv_nsec = left * 1000 }, NULL);
	kill(victim->pid, SIGKILL);
	waitpid(victim->pid, NULL, 0);
}

int main(int argc, char **argv)
{
	struct victim victims[AT_ONCE];
	uint64_t state;
	long n;
	uid_t uid;

	if (argc < 4) {
		fprintf(stderr, "usage: victims SOCKET N SEED [UID]\n");
		return 2;
	}
	path = argv[1];
	n = atol(argv[2]);
	state = strtoull(argv[3], NULL, 10);
	uid = argc > 4 ? (uid_t)atol(argv[4]) : getuid();
	deeds = mmap(NULL, sizeof *deeds, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (deeds == MAP_FAILED)
		return 1;
	for (long i = 0; i < n + AT_ONCE; i++) {
		if (i >= AT_ONCE && i - AT_ONCE < n)
			victim_end(&victims[i % AT_ONCE]);
		if (i < n)
			victim_begin(&victims[i % AT_ONCE], &state, uid);
	}
	printf("%llu %llu %llu %llu %llu\n", (unsigned long long)deeds->connections,
	       (unsigned long long)deeds->calls, (unsigned long long)deeds->transforms,
	       (unsigned long long)deeds->halves, (unsigned long long)deeds->wrongs);
	return deeds->wrongs != 0;
}
