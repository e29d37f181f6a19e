/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which of the idle threads are called, and by whom, and that each thread that is called comes. */
#include "kernels/cpu/run/stream.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#define MOST_THREADS   6
#define SLEEPS_AT_ONCE 0
#define NEVER_SLEEPS   UINT64_C(3600000000000)

TestSuite(idle, .timeout = 60);

struct waiting {
	struct idle_thread idle;
	pthread_t thread;
	uint64_t awake_ns;
	int rounds; /* times that the thread still waits */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct idle idle;
static int come; /* threads that have been called and come; under the lock */

static void *wait_main(void *arg)
{
	struct waiting *waiting = arg;
	pthread_mutex_lock(&lock);
	for (; waiting->rounds > 0; waiting->rounds--) {
		idle_add(&idle, &waiting->idle);
		pthread_mutex_unlock(&lock);
		idle_wait(&waiting->idle, waiting->awake_ns);
		pthread_mutex_lock(&lock);
		come++;
	}
	pthread_mutex_unlock(&lock);
	return NULL;
}

/* Starts threads that wait, each once the one before it is in its state. */
static void start(struct waiting *waiting, const char *states)
{
	for (int i = 0; states[i]; i++) {
		bool sleeps = states[i] == 's';
		waiting[i] =
		    (struct waiting){ .awake_ns = sleeps ? SLEEPS_AT_ONCE : NEVER_SLEEPS, .rounds = 1 };
		cr_assert_eq(pthread_create(&waiting[i].thread, NULL, wait_main, &waiting[i]), 0);
		while (atomic_load(&waiting[i].idle.state) != (sleeps ? IDLE_ASLEEP : IDLE_LOOKING))
			sched_yield();
	}
}

struct calls_row {
	char name[32];
	/* State of each waiting thread, in the order in which they began to wait: s sleeps, l polls. */
	char states[MOST_THREADS + 1];
	unsigned n, most_asleep;
	unsigned called;
	unsigned asleep; /* called threads that sleep and therefore have to be woken */
};

ParameterizedTestParameters(idle, calls)
{
	static struct calls_row rows[] = {
		{ "nobody", "", 3, 3, 0, 0 },
		{ "none wanted", "sl", 0, 3, 0, 0 },
		{ "one of three that look", "lll", 1, 0, 1, 0 },
		{ "more than there are", "ll", 5, 5, 2, 0 },
		{ "who looks first", "ssl", 2, 2, 2, 1 },
		{ "who looks alone", "ssl", 3, 0, 1, 0 },
		{ "two that sleep at most", "sssl", 4, 2, 3, 2 },
		{ "all", "ssllsl", 6, 6, 6, 3 },
		{ "who came last sleeps", "ls", 2, 0, 0, 0 },
	};
	return cr_make_param_array(struct calls_row, rows, sizeof rows / sizeof rows[0]);
}

/* The threads that began to wait last are called, and no others. */
ParameterizedTest(struct calls_row *row, idle, calls)
{
	static struct waiting waiting[MOST_THREADS];
	struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
	const unsigned n = (unsigned)strlen(row->states);
	start(waiting, row->states);
	pthread_mutex_lock(&lock);
	cr_assert_eq(idle.n, n, "%s", row->name);
	unsigned called = idle_call(&idle, row->n, row->most_asleep, &asleep);
	cr_assert_eq(idle.n, n - called, "%s", row->name);
	pthread_mutex_unlock(&lock);
	cr_assert_eq(called, row->called, "%s: %u", row->name, called);
	for (unsigned i = n - called; i < n; i++) {
		bool sleeps = row->states[i] == 's';
		cr_assert_eq(atomic_load(&waiting[i].idle.state), sleeps ? IDLE_ASLEEP : IDLE_CALLED,
		             "%s: thread %u", row->name, i);
		row->asleep -= sleeps;
	}
	cr_assert_eq(row->asleep, 0, "%s", row->name);
	idle_wake(&asleep);
	for (unsigned i = n - called; i < n; i++)
		cr_assert_eq(pthread_join(waiting[i].thread, NULL), 0);
	pthread_mutex_lock(&lock);
	cr_assert_eq((unsigned)come, called, "%s: %d came", row->name, come);
	idle_call(&idle, n, n, &asleep);
	pthread_mutex_unlock(&lock);
	idle_wake(&asleep);
	for (unsigned i = 0; i < n - called; i++)
		cr_assert_eq(pthread_join(waiting[i].thread, NULL), 0);
}

/* While there is work, whoever submits it calls two sleeping threads, and each of those calls two more. */
Test(idle, calls_more_in_turn)
{
	enum { THREADS = 5, WANTED = 7 };
	static const unsigned calls[] = { 2, 2, 1, 0 };
	static struct idle_thread threads[THREADS];
	struct streams streams = { .tuning = { .more_wakes = 1 }, .uncalled = WANTED };
	struct engine_owner owner;
	struct engine_stream stream = { .fair = { .owner = &owner } };
	engine_owner_init(&owner);
	fair_queue_init(&streams.fair_queue);
	fair_queue_add(&streams.fair_queue, &stream.fair);
	for (int i = 0; i < THREADS; i++) {
		idle_add(&streams.idle, &threads[i]);
		atomic_store(&threads[i].state, IDLE_ASLEEP);
	}
	for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
		struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
		const unsigned before = streams.idle.n;
		streams_call(&streams, &asleep);
		cr_assert_eq(before - streams.idle.n, calls[i], "call %zu: %u", i, before - streams.idle.n);
	}
	cr_assert_eq(streams.uncalled, 0);
	fair_queue_remove(&streams.fair_queue, &stream.fair);
}

/* No thread is called for work that others have taken meanwhile. */
Test(idle, calls_nobody_for_nothing)
{
	static struct idle_thread thread;
	struct streams streams = { .tuning = { .more_wakes = 3 }, .uncalled = 2 };
	struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
	fair_queue_init(&streams.fair_queue);
	idle_add(&streams.idle, &thread);
	streams_call(&streams, &asleep);
	cr_assert_eq(streams.idle.n, 1);
	cr_assert_eq(streams.uncalled, 0);
}

/* Threads fall asleep while they are being called. Each call brings one thread, and none is lost. */
Test(idle, calls_as_they_fall_asleep)
{
	enum { ROUNDS = 2000 };
	static struct waiting waiting[MOST_THREADS];
	int called = 0;
	for (int i = 0; i < MOST_THREADS; i++) {
		waiting[i] = (struct waiting){ .awake_ns = (uint64_t)i * 1000, .rounds = ROUNDS };
		cr_assert_eq(pthread_create(&waiting[i].thread, NULL, wait_main, &waiting[i]), 0);
	}
	while (called < ROUNDS * MOST_THREADS) {
		struct idle_threads asleep = SLIST_HEAD_INITIALIZER(asleep);
		pthread_mutex_lock(&lock);
		called += (int)idle_call(&idle, 1 + (unsigned)called % MOST_THREADS, 2, &asleep);
		pthread_mutex_unlock(&lock);
		idle_wake(&asleep);
		sched_yield();
	}
	for (int i = 0; i < MOST_THREADS; i++)
		cr_assert_eq(pthread_join(waiting[i].thread, NULL), 0);
	cr_assert_eq(come, called);
	cr_assert_eq(idle.n, 0);
}
