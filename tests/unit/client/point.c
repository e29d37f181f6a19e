/* SPDX-License-Identifier: Apache-2.0 */
/* Tests points of timelines in memory that this process has mapped. */
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "client/tmaclient.h"

struct come_row {
	uint64_t word, value;
	int status;
};

ParameterizedTestParameters(point, has_come)
{
	static struct come_row rows[] = {
		{ 0, 0, 0 },
		{ 1, 0, 0 },
		{ 0, 1, TMA_PENDING },
		{ UINT64_MAX, 1, TMA_PENDING },
		{ 1, UINT64_MAX, 0 }, /* the distance wraps around 64 bits */
		{ UINT64_C(1) << 32, 1, 0 },
		{ 1, UINT64_C(1) << 32, TMA_PENDING },
		{ 0, UINT64_C(1) << 63, TMA_PENDING },
		{ UINT64_C(1) << 63, 1, 0 },
	};

	return cr_make_param_array(struct come_row, rows, sizeof rows / sizeof rows[0]);
}

ParameterizedTest(struct come_row *row, point, has_come)
{
	uint64_t word = row->word;

	cr_assert_eq(tma_point_wait(&word, row->value, 2), row->status, "%llx, %llx",
	             (unsigned long long)row->word, (unsigned long long)row->value);
	cr_assert_eq(word, row->word);
}

Test(point, what_is_no_word)
{
	uint64_t words[2] = { 0 };

	cr_assert_eq(tma_point_signal(NULL, 1), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_point_wait(NULL, 0, 0), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_point_signal((char *)words + 4, 1), TMA_INVALID_ARGUMENT);
	cr_assert_eq(tma_point_wait((char *)words + 1, 0, 0), TMA_INVALID_ARGUMENT);
	cr_assert(words[0] == 0 && words[1] == 0);
}

enum { STORES = 500 };

/* Answers each signal with a plain store that wakes nobody, as a device does. */
static void *store_only(void *arg)
{
	uint64_t *words = arg;

	for (uint64_t i = 1; i <= STORES; i++) {
		if (tma_point_wait(&words[1], i, -1))
			return NULL;
		__atomic_store_n(&words[0], i, __ATOMIC_RELEASE);
	}
	return NULL;
}

Test(point, a_word_that_changes_without_a_wake, .timeout = 30)
{
	uint64_t words[2] = { 0 };
	pthread_t thread;

	cr_assert_eq(pthread_create(&thread, NULL, store_only, words), 0);
	for (uint64_t i = 1; i <= STORES; i++) {
		cr_assert_eq(tma_point_signal(&words[1], i), 0);
		cr_assert_eq(tma_point_wait(&words[0], i, -1), 0);
	}
	pthread_join(thread, NULL);
}

/* What one process wrote before its signal is visible to the other one after its wait. */
Test(point, back_and_forth, .timeout = 60)
{
	enum { ROUNDS = 20000 };
	uint64_t *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t *payload = words + 64;
	int status = -1;
	pid_t other;

	cr_assert_neq(words, MAP_FAILED);
	other = fork();
	if (other == 0) {
		for (uint64_t i = 1; i <= ROUNDS; i++) {
			if (tma_point_wait(&words[0], i, -1) || *payload != i)
				_exit(1);
			*payload = ~i;
			tma_point_signal(&words[1], i);
		}
		_exit(0);
	}
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		*payload = i;
		cr_assert_eq(tma_point_signal(&words[0], i), 0);
		cr_assert_eq(tma_point_wait(&words[1], i, 20000), 0);
		cr_assert_eq(*payload, ~i);
	}
	waitpid(other, &status, 0);
	cr_assert_eq(status, 0);
	munmap(words, 4096);
}
