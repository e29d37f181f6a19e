/* SPDX-License-Identifier: Apache-2.0 */
/* Tests trials of plans: which plan each run takes, and which one wins. */
#include <criterion/criterion.h>
#include <string.h>

#include "kernels/cuda/cuda_plan.h"

/* Starts and ends a run of ns, which has to take this plan. */
static void expect_run(struct trials *trials, uint32_t plan, uint64_t ns)
{
	const uint32_t next = trials_next(trials);

	cr_assert_eq(next, plan, "plan %u, not %u", next, plan);
	trials_end(trials, next, ns);
}

static void run_times(struct trials *trials, uint32_t plan, const uint64_t ns[TRIAL_RUNS])
{
	for (int i = 0; i < TRIAL_RUNS; i++)
		expect_run(trials, plan, ns[i]);
}

#define TIMES(...) ((const uint64_t[TRIAL_RUNS]){ __VA_ARGS__ })

enum trial_state {
	TRIAL_WAITS,   /* measured fewer than TRIAL_RUNS times so far */
	TRIAL_ENDED,   /* measured TRIAL_RUNS times */
	TRIAL_DROPPED, /* given up: its first run was slow, or it failed */
};

static enum trial_state trials_state(const struct trials *trials, uint32_t plan)
{
	const struct trial *trial = &trials->of[plan];

	return trial->is_dropped ? TRIAL_DROPPED : trial->n < TRIAL_RUNS ? TRIAL_WAITS : TRIAL_ENDED;
}

static struct trials trials_of(uint32_t n)
{
	struct trials trials;

	trials_init(&trials, n);
	return trials;
}

Test(trials, one_plan_is_settled)
{
	struct trials trials = trials_of(1);

	cr_assert(trials_are_settled(&trials));
	expect_run(&trials, 0, 5);
	expect_run(&trials, 0, 0);
	cr_assert(trials_are_settled(&trials));
}

Test(trials, each_in_turn_and_then_the_least_median)
{
	struct trials trials = trials_of(4);

	run_times(&trials, 0, TIMES(100, 120, 90));
	run_times(&trials, 1, TIMES(101, 102, 103)); /* the median is not below 100 */
	run_times(&trials, 2, TIMES(99, 10, 1000));  /* the median is 99, the least so far */
	cr_assert(!trials_are_settled(&trials));
	run_times(&trials, 3, TIMES(99, 99, 99)); /* not below 99 */
	cr_assert(trials_are_settled(&trials));
	cr_assert_eq(trials.best, 2);
	for (uint32_t i = 0; i < 4; i++)
		cr_expect_eq(trials_state(&trials, i), TRIAL_ENDED);
	for (int i = 0; i < 5; i++)
		expect_run(&trials, 2, 5000);
	cr_assert_eq(trials.best, 2, "what is settled stays");
}

/* The first run of a plan decides whether the plan gets more. */
Test(trials, much_slower_ones_are_dropped_at_once)
{
	struct trials trials = trials_of(5);

	run_times(&trials, 0, TIMES(100, 100, 100));
	expect_run(&trials, 1, 131);
	cr_assert_eq(trials_state(&trials, 1), TRIAL_DROPPED);
	expect_run(&trials, 2, 130);
	cr_assert_eq(trials_state(&trials, 2), TRIAL_WAITS);
	expect_run(&trials, 2, 200);
	cr_assert_eq(trials_state(&trials, 2), TRIAL_WAITS, "by its first run alone");
	expect_run(&trials, 2, 60);
	cr_assert_eq(trials.best, 0);
	run_times(&trials, 3, TIMES(130, 50, 60));
	cr_assert_eq(trials.best, 3);
	expect_run(&trials, 4, 79); /* the best takes 60 now, so 79 is too slow */
	cr_assert(trials_are_settled(&trials));
	cr_assert_eq(trials_state(&trials, 4), TRIAL_DROPPED);
	cr_assert_eq(trials.best, 3);
}

/* A plan can be the best only once it has been measured as often as the others. */
Test(trials, one_fast_run_is_not_enough)
{
	struct trials trials = trials_of(2);
	uint32_t trial;

	run_times(&trials, 0, TIMES(100, 100, 100));
	expect_run(&trials, 1, 20);
	trial = trials_next(&trials);
	cr_assert_eq(trial, 1);
	expect_run(&trials, 0, 100);
	trials_end(&trials, trial, 200);
	expect_run(&trials, 1, 200);
	cr_assert_eq(trials.best, 0);
}

/* A client submits many runs of a layout before the first has ended. */
Test(trials, one_at_a_time_is_under_way)
{
	struct trials trials = trials_of(3);

	for (int i = 0; i < 5; i++)
		cr_assert_eq(trials_next(&trials), 0, "nothing has been measured");
	for (int i = 0; i < 5; i++)
		trials_end(&trials, 0, 100);
	cr_assert_eq(trials_next(&trials), 1);
	for (int i = 0; i < 5; i++)
		cr_assert_eq(trials_next(&trials), 0, "a trial is under way");
	for (int i = 0; i < 5; i++)
		trials_end(&trials, 0, 90);
	cr_assert_eq(trials_next(&trials), 0, "it is still under way");
	trials_end(&trials, 1, 95);
	cr_assert_eq(trials.of[1].n, 1, "times are those of the plan that ran");
	cr_assert_eq(trials_median_ns(&trials, 1), 95);
	cr_assert_eq(trials_median_ns(&trials, 0), 90, "of the last runs");
	for (int i = 0; i < TRIAL_RUNS; i++)
		trials_end(&trials, 0, 60);
	cr_assert_eq(trials_state(&trials, 1), TRIAL_WAITS, "its own runs decide");
	cr_assert_eq(trials_next(&trials), 1);
}

Test(trials, a_busy_device_tells_nothing)
{
	struct trials trials = trials_of(2);

	expect_run(&trials, 0, 0);
	expect_run(&trials, 0, 0);
	cr_assert_eq(trials.of[0].n, 0);
	run_times(&trials, 0, TIMES(100, 100, 100));
	expect_run(&trials, 1, 0);
	cr_assert_eq(trials.of[1].n, 0);
	expect_run(&trials, 0, 0);
	expect_run(&trials, 0, 0);
	expect_run(&trials, 0, 100);
	run_times(&trials, 1, TIMES(50, 50, 50));
	cr_assert(trials_are_settled(&trials));
	cr_assert_eq(trials.best, 1);
}

Test(trials, a_plan_that_fails_is_dropped)
{
	struct trials trials = trials_of(4);

	trials_fail(&trials, trials_next(&trials));
	cr_assert_eq(trials_state(&trials, 0), TRIAL_WAITS, "there is no other yet");
	run_times(&trials, 0, TIMES(100, 100, 100));
	trials_fail(&trials, trials_next(&trials));
	cr_assert_eq(trials_state(&trials, 1), TRIAL_DROPPED);
	expect_run(&trials, 0, 100);
	run_times(&trials, 2, TIMES(50, 50, 50));
	trials_fail(&trials, 2);
	cr_assert_eq(trials_state(&trials, 3), TRIAL_WAITS, "another one failed");
	expect_run(&trials, 2, 50);
	run_times(&trials, 3, TIMES(60, 60, 60));
	cr_assert(trials_are_settled(&trials));
	trials_fail(&trials, trials_next(&trials));
	cr_assert_eq(trials.best, 2, "what is settled stays");
}

Test(trials, medians)
{
	struct trials trials = trials_of(2);

	cr_expect_eq(trials_median_ns(&trials, 0), 0);
	trials_end(&trials, 0, 70);
	cr_expect_eq(trials_median_ns(&trials, 0), 70);
	trials_end(&trials, 0, 30);
	cr_expect_eq(trials_median_ns(&trials, 0), 50);
	trials_end(&trials, 0, 40);
	cr_expect_eq(trials_median_ns(&trials, 0), 40);
	trials_end(&trials, 0, 10);
	cr_expect_eq(trials_median_ns(&trials, 0), 30, "of the last three");
}
