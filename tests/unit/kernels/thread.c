/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a thread that was started apart, which is a process of its own, ends with the process that
 * started it, however early that is killed. */
#include <criterion/criterion.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/thread.h"
#include "proto/clock.h"
#include "tests/emulated/emulated.h"

#define ROUNDS      400
#define STEP_NS     500 /* step by which the time from the thread's start to the process's end grows */
#define DEADLINE_MS 20000
#define SLEEP_S     40

static void *sleep_on(void *arg)
{
	sleep(SLEEP_S);
	return arg;
}

static void start_and_die(uint64_t after_ns)
{
	const uint64_t start_ns = clock_ns();
	pthread_t thread;

	if (thread_start_apart(&thread, sleep_on, NULL))
		_exit(1);
	while (clock_ns() - start_ns < after_ns)
		continue;
	raise(SIGKILL);
}

/* All that live share the write end of the pipe, so the read end reports its end only when all of them are
 * gone. */
Test(thread, apart_ends_with_a_process_that_is_killed_early)
{
	if (emulated())
		cr_skip("an emulator starts no threads apart");
	for (uint64_t i = 0; i < ROUNDS; i++) {
		struct pollfd read_end = { .events = POLLIN };
		int ends[2], status;
		pid_t child;

		cr_assert_eq(pipe(ends), 0);
		child = fork();
		if (child == 0)
			start_and_die(i * STEP_NS);
		close(ends[1]);
		cr_assert_eq(waitpid(child, &status, 0), child);
		cr_assert(WIFSIGNALED(status), "round %lu: the thread was not started", (unsigned long)i);
		read_end.fd = ends[0];
		cr_assert_eq(poll(&read_end, 1, DEADLINE_MS), 1, "round %lu: a thread lives on",
		             (unsigned long)i);
		close(ends[0]);
	}
}
