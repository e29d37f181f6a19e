/* SPDX-License-Identifier: Apache-2.0 */
/* Runs many threads that sleep on one word until standard input ends.
 *
 *    stress_sleepers FD N
 *
 * FD is a shared file of at least 4096 bytes. At offset 0 is the word, which has 64 bits and increases. The
 * 32-bit number at 64 counts all wake-ups that threads have seen; that at 68 counts the threads that sleep or
 * are about to. Threads sleep without a timeout, so a thread that nobody wakes is missing in the count.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BYTES       4096
#define STACK_BYTES 65536

struct board {
	_Alignas(64) uint64_t word;
	_Alignas(64) uint32_t woken;
	uint32_t sleeping;
};

static void *sleeper_main(void *arg)
{
	struct board *board = arg;
	uint64_t seen = __atomic_load_n(&board->word, __ATOMIC_ACQUIRE);

	for (;;) {
		uint64_t now;

		__atomic_fetch_add(&board->sleeping, 1, __ATOMIC_SEQ_CST);
		while ((now = __atomic_load_n(&board->word, __ATOMIC_ACQUIRE)) == seen)
			syscall(SYS_futex, &board->word, FUTEX_WAIT, (uint32_t)seen, NULL, NULL, 0);
		seen = now;
		__atomic_fetch_sub(&board->sleeping, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&board->woken, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct board *board;
	pthread_attr_t attr;
	char byte;

	if (argc != 3)
		return 2;
	board = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
	if (board == MAP_FAILED) {
		perror("mmap");
		return 1;
	}
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	for (int i = 0; i < atoi(argv[2]); i++) {
		pthread_t thread;
		int r = pthread_create(&thread, &attr, sleeper_main, board);

		if (r) {
			fprintf(stderr, "thread %d: %s\n", i, strerror(r));
			return 1;
		}
	}
	while (read(STDIN_FILENO, &byte, 1) > 0 || errno == EINTR)
		continue;
	_exit(0);
}
