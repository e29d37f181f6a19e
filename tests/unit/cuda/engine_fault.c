/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a session again and again with the Nth call of the driver failing, for every N. Nothing crashes, hangs
 * or leaks, and jobs that are reported as done are right. Below the usual TEST_SHARE, and in sessions of more
 * than MOST_CALLS calls, only a sample of the calls fails, from a random one on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include "tests/support/tap.h"

#define JOBS 7

struct outcome {
	int opened;
	int lost;
	int done;
	int wrong;
	int live;
};

static const char *build_directory(void)
{
	const char *directory = getenv("TEST_BUILDDIR");
	return directory ? directory : ".";
}

#define MOST_CALLS 1000 /* most calls that are tried at the usual share */

/* Runs a session whose call n fails with result; n 0: none fails. */
static void run_session(unsigned n, int result, const char *count, struct outcome *ret, const char *name)
{
	char command[800], said[2000];
	snprintf(command, sizeof command,
	         "env LD_LIBRARY_PATH='%s/tests/softgpu/lib' SOFTGPU_FAIL=%u SOFTGPU_FAIL_WITH=%d "
	         "SOFTGPU_COUNT=%s timeout 60 '%s/tests/unit/cuda/session' 2>&1",
	         build_directory(), n, result, count, build_directory());
	FILE *child = popen(command, "r");
	cr_assert(child);
	said[fread(said, 1, sizeof said - 1, child)] = '\0';
	int status = pclose(child);
	const char *last = strrchr(said, '\n');
	while (last && last > said && last[-1] != '\n')
		last--;
	cr_assert_eq(status, 0, "%s: call %u: the session crashed: %s", name, n, said);
	cr_assert_eq(sscanf(last ? last : said, "%d %d %d %d %d", &ret->opened, &ret->lost, &ret->done,
	                    &ret->wrong, &ret->live),
	             5, "%s: call %u: %s", name, n, said);
	cr_assert_eq(ret->wrong, 0, "%s: call %u: %d jobs with wrong bytes", name, n, ret->wrong);
}

static unsigned calls_of(const char *path)
{
	unsigned calls = 0;
	FILE *file = fopen(path, "r");
	cr_assert(file);
	cr_assert_eq(fscanf(file, "%u", &calls), 1);
	fclose(file);
	return calls;
}

struct fault_row {
	char name[24];
	int result;
	bool sticky;
};

ParameterizedTestParameters(engine_fault, the_nth_call)
{
	static struct fault_row rows[] = {
		{ "out of memory", 2, false },
		{ "invalid value", 1, false },
		{ "illegal address", 700, true },
	};
	return cr_make_param_array(struct fault_row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct fault_row *row, engine_fault, the_nth_call)
{
	char count[] = "/tmp/engine-fault-XXXXXX";
	int lost = 0, less = 0;
	struct outcome outcome;
	close(mkstemp(count));
	run_session(0, row->result, count, &outcome, row->name);
	cr_assert(outcome.opened && !outcome.lost && outcome.live == 0, "%s", row->name);
	cr_assert_eq(outcome.done, JOBS, "%s: %d", row->name, outcome.done);
	int calls = (int)calls_of(count);
	/* A session polls, so it makes more calls on a slow machine. */
	int tried = (int)tap_portion(10 * (calls < MOST_CALLS ? calls : MOST_CALLS));
	int step = tried < calls ? calls / tried : 1;
	cr_assert_gt(calls, 200, "%s: %d", row->name, calls);
	for (int n = 1 + getpid() % step; n <= calls; n += step) {
		run_session(n, row->result, count, &outcome, row->name);
		lost += outcome.lost;
		less += outcome.done < JOBS;
		/* An allocation that cannot be unmapped leaves three objects behind. */
		cr_assert(row->sticky || outcome.lost || outcome.live <= 3, "%s: call %d: %d things left",
		          row->name, n, outcome.live);
	}
	unlink(count);
	cr_assert_gt(less, 100 / step, "%s: %d", row->name, less);
	if (row->sticky)
		cr_assert_gt(lost, 50 / step, "%s: %d", row->name, lost);
}
