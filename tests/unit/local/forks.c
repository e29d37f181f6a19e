/* SPDX-License-Identifier: Apache-2.0 */
/* Tests threads that have clients of their own, and children of fork(). */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"
#include "tests/emulated/emulated.h"
#include "tests/support/tsan.h"

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

/* Threads of a forked child that allocate at once may hang in the allocator of clang's AddressSanitizer (LLVM
 * 14), which a program of twenty lines shows without this library. */
static bool clang_asan_watches(void)
{
#if defined(__clang__) && defined(__has_feature)
#if __has_feature(address_sanitizer)
	return true;
#endif
#endif
	return false;
}

/* Returns shared memory in which a child tells its parent whether it was right. */
static bool *verdict_new(void)
{
	bool *is_right =
	    mmap(NULL, sizeof *is_right, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(is_right, MAP_FAILED);
	return is_right;
}

/* A child ends by a signal because valgrind would report what belongs to its parent's threads as leaks. */
static void await_child(pid_t child, const bool *is_right)
{
	int status;

	cr_assert(child > 0);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "%#x", status);
	cr_assert(*is_right);
}

/* A child has none of its parent's threads, which may hold any lock when it is made. */
Test(local_forks, children)
{
	tma_client *client = local_client();
	bool *is_right = verdict_new();
	int number = 0;
	pthread_t thread;

	if (emulated_by("qemu"))
		cr_skip("qemu fails in a forked child that starts threads");
	if (clang_asan_watches())
		cr_skip("clang's AddressSanitizer may hang in a forked child that starts threads");
	cr_assert(transposes(client, 600, 700));
	cr_assert_eq(pthread_create(&thread, NULL, move_much, &number), 0);
	for (int i = 0; i < CHILDREN; i++) {
		*is_right = false;
		const pid_t child = fork();
		if (child == 0) {
			*is_right = transposes(client, 10, 20) && transposes(client, 500, 600 + i);
			raise(SIGKILL);
		}
		await_child(child, is_right);
	}
	pthread_join(thread, NULL);
	cr_assert(transposes(client, 600, 700));
	munmap(is_right, sizeof *is_right);
	tma_free(client);
}

static bool copies(tma_client *client, tma_region *words, uint64_t *word)
{
	const uint32_t src[4] = { 1, 2, 3, 4 };
	uint32_t dst[4] = { 0 };
	const struct tma_tensor from = matrix(src, 2, 2), to = matrix(dst, 2, 2);
	const struct tma_order order = { .wait = { .region = words, .value = 2 } };
	tma_ticket ticket;

	if (tma_submit(client, &(struct tma_transform){ .dst = &to, .src = &from, .order = &order },
	               &ticket) < 0)
		return false;
	tma_point_signal(word, 2);
	return tma_wait(client, ticket, NULL) == 0 && memcmp(dst, src, sizeof dst) == 0;
}

/* The request that waits is the parent's. The child has none of the parent's threads and starts its own,
 * which ThreadSanitizer cannot follow. */
Test(local_forks, a_request_that_waits)
{
	tma_client *client = local_client();
	bool *is_right = verdict_new();
	uint32_t src[4] = { 5, 6, 7, 8 }, dst[4] = { 0 };
	const struct tma_tensor from = matrix(src, 2, 2), to = matrix(dst, 2, 2);
	uint64_t word = 0;
	struct tma_order order = { .wait = { .value = 1 } };
	const struct tma_transform t = { .dst = &to, .src = &from, .order = &order };
	tma_region *words;
	tma_ticket ticket;
	pid_t child;

	if (emulated_by("qemu"))
		cr_skip("qemu fails in a forked child that starts threads");
	cr_assert_eq(tma_region_from_host_ptr(client, &word, sizeof word, 0, &words), 0);
	order.wait.region = words;
	cr_assert_eq(tma_submit(client, &t, &ticket), 0, "%s", tma_last_error(client));
	child = fork();
	if (child == 0) {
		*is_right = tma_wait(client, ticket, NULL) == TMA_CANCELED && dst[0] == 0;
		if (!tsan_watches() && !clang_asan_watches()) {
			*is_right &= copies(client, words, &word) && copies(client, words, &word);
			tma_free(client);
		}
		raise(SIGKILL);
	}
	await_child(child, is_right);
	munmap(is_right, sizeof *is_right);
	cr_assert_eq(tma_poll(client, ticket, NULL), TMA_PENDING);
	tma_point_signal(&word, 1);
	cr_assert_eq(tma_wait(client, ticket, NULL), 0, "%s", tma_last_error(client));
	cr_assert_eq(memcmp(dst, src, sizeof dst), 0);
	tma_free(client);
}
