/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that neighbours copy until all of them are ended, and that none is left then. */
#include "tests/bench/neighbours.h"

#include <errno.h>
#include <sched.h>
#include <sys/wait.h>

#include <criterion/criterion.h>

#define N     3
#define BYTES (64 << 10)

TestSuite(neighbours, .timeout = 60);

Test(neighbours, copy_until_they_are_ended)
{
	struct neighbours *neighbours;
	struct error err;

	cr_assert_eq(neighbours_new(&neighbours, N, BYTES, &err), 0, "%s", err.message);
	for (unsigned i = 0; i < N; i++) {
		const uint64_t copies = neighbours_copies(neighbours, i);

		cr_assert_gt(copies, 0, "%u", i);
		while (neighbours_copies(neighbours, i) == copies)
			sched_yield();
	}
	neighbours_free(neighbours);
	cr_assert_lt(waitpid(-1, NULL, WNOHANG), 0);
	cr_assert_eq(errno, ECHILD);
	neighbours_free(NULL);
}

Test(neighbours, without_memory)
{
	struct neighbours *neighbours;
	struct error err;

	cr_assert_eq(neighbours_new(&neighbours, N, SIZE_MAX / 4, &err), STATUS_NO_MEMORY);
	cr_assert_str_eq(err.message, "a process beside this one has ended");
	cr_assert_lt(waitpid(-1, NULL, WNOHANG), 0);
}
