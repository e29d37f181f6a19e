/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel tells whether the threads are asleep: a futex requeue of them onto the same word returns their
 * number. */
#include "sleepers.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <criterion/criterion.h>

static pthread_t threads[SLEEPERS_MOST];
static int n_threads;

static void *sleeper_main(void *arg)
{
	uint64_t *word = arg;

	while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == 0)
		syscall(SYS_futex, word, FUTEX_WAIT, 0, NULL, NULL, 0);
	return NULL;
}

void sleepers_start(uint64_t *word, int n)
{
	cr_assert_leq(n, SLEEPERS_MOST);
	for (n_threads = 0; n_threads < n; n_threads++)
		cr_assert_eq(pthread_create(&threads[n_threads], NULL, sleeper_main, word), 0);
	while (syscall(SYS_futex, word, FUTEX_REQUEUE, 0, INT_MAX, word, 0) < n)
		sched_yield();
}

void sleepers_join(void)
{
	for (int i = 0; i < n_threads; i++)
		pthread_join(threads[i], NULL);
}
