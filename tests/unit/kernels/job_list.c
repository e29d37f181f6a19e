/* SPDX-License-Identifier: Apache-2.0 */
/* Tests lists of jobs: their order, taking jobs out of them, and how jobs in them end. */
#include "kernels/queue/fair_queue.h"

#include <criterion/criterion.h>

enum { N = 4 };

static struct engine_job jobs[N];
static struct job_list list;
static int called;

/* Jobs end in the order of jobs[]. The links of a job that has ended are cleared. */
static void on_done(struct engine_job *job)
{
	cr_expect_eq(job, &jobs[called++]);
	job->next = job;
}

static void fill(void)
{
	job_list_init(&list);
	for (int i = 0; i < N; i++) {
		jobs[i] = (struct engine_job){ .on_done = on_done };
		cr_expect_eq(job_list_add(&list, &jobs[i]), i == 0, "%d", i);
	}
}

Test(job_list, takes_one_or_all)
{
	struct engine_job last = { .status = 0 };

	fill();
	cr_expect_eq(job_list_take(&list), &jobs[called++]);
	jobs_call_back(job_list_take_all(&list));
	cr_expect_eq(called, N);
	cr_expect(job_list_add(&list, &last), "the list is empty again");
	cr_expect_eq(job_list_take(&list), &last);
	cr_expect(job_list_add(&list, &last));
}

Test(job_list, removes_any)
{
	for (int i = 0; i < N; i++) {
		fill();
		cr_expect(job_list_has(&list, &jobs[i]), "%d", i);
		cr_expect(job_list_remove(&list, &jobs[i]), "%d", i);
		cr_expect_not(job_list_has(&list, &jobs[i]), "%d", i);
		cr_expect_not(job_list_remove(&list, &jobs[i]), "%d", i);
		cr_expect_not(job_list_add(&list, &jobs[i]), "%d", i);
		for (int j = 0; j < N; j++)
			cr_expect_eq(job_list_take(&list),
			             &jobs[j == N - 1 ? i
			                   : j < i    ? j
			                              : j + 1],
			             "%d of %d", j, i);
	}
}

Test(job_list, ends_those_that_have_no_status)
{
	static struct engine_move moves[2];

	fill();
	jobs[0].status = STATUS_TIMEOUT;
	jobs[2].moves = moves;
	jobs[2].n_moves = 2;
	job_list_end_all(&list, STATUS_CANCELED);
	for (int i = 0; i < N; i++)
		cr_expect_eq(jobs[i].status, i == 0 ? STATUS_TIMEOUT : STATUS_CANCELED, "%d", i);
	cr_expect_eq(moves[0].status, STATUS_CANCELED);
	cr_expect_eq(moves[1].status, STATUS_CANCELED);
	cr_expect_eq(list.first, &jobs[0]);
}
