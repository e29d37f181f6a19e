/* SPDX-License-Identifier: Apache-2.0 */
/* Threads with clients of their own, and children of fork. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "tests/emulated/emulated.h"

#define THREADS  4
#define ROUNDS   30
#define CHILDREN 20

static void *move_much(void *arg)
{
	tma_client *client = local_client();
	const int64_t n = 8 + *(const int *)arg;

	for (int i = 0; i < ROUNDS; i++) {
		cr_assert(transposes(client, n, n + i));
		cr_assert(transposes(client, 300 + n, 400 + i));
	}
	tma_free(client);
	return NULL;
}

Test(local_forks, threads)
{
	pthread_t threads[THREADS];
	int numbers_of[THREADS];

	for (int i = 0; i < THREADS; i++) {
		numbers_of[i] = i;
		cr_assert_eq(pthread_create(&threads[i], NULL, move_much, &numbers_of[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static unsigned count_threads(void)
{
	DIR *tasks = opendir("/proc/self/task");
	unsigned n = 0;

	cr_assert_not_null(tasks);
	while (readdir(tasks))
		n++;
	closedir(tasks);
	return n;
}

/* A program that moves little has no threads that it did not start. */
Test(local_forks, threads_of_the_first_large_move)
{
	tma_client *client = local_client();
	const unsigned before = count_threads();

	if (emulated_by("qemu"))
		cr_skip("qemu has threads of its own");
	for (int i = 1; i < 20; i++)
		cr_assert(transposes(client, i, 20 + i));
	cr_assert_eq(count_threads(), before);
	cr_assert(transposes(client, 2000, 2100));
	cr_assert_gt(count_threads(), before);
	cr_assert(transposes(client, 3, 4));
	tma_free(client);
}

/* A child has none of its parent's threads, which may hold any lock when it is made. It ends by a signal
 * because valgrind takes for leaks what belongs to those threads. */
Test(local_forks, children)
{
	tma_client *client = local_client();
	bool *is_right =
	    mmap(NULL, sizeof *is_right, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int number = 0, status;
	pthread_t thread;

	if (emulated_by("qemu"))
		cr_skip("qemu fails in a forked child that starts threads");
	cr_assert_neq(is_right, MAP_FAILED);
	cr_assert(transposes(client, 600, 700));
	cr_assert_eq(pthread_create(&thread, NULL, move_much, &number), 0);
	for (int i = 0; i < CHILDREN; i++) {
		*is_right = false;
		const pid_t child = fork();
		if (child == 0) {
			*is_right = transposes(client, 10, 20) && transposes(client, 500, 600 + i);
			raise(SIGKILL);
		}
		cr_assert(child > 0);
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "child %d: %#x", i, status);
		cr_assert(*is_right, "child %d", i);
	}
	pthread_join(thread, NULL);
	cr_assert(transposes(client, 600, 700));
	munmap(is_right, sizeof *is_right);
	tma_free(client);
}
