/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of jobs in their order, linked by their `next`: those that wait in a stream, and those that have
 * ended and wait for the owner to reap them. A list allocates nothing, and stays where it is once it is
 * initialised.
 */
#ifndef KERNELS_QUEUE_JOB_LIST_H
#define KERNELS_QUEUE_JOB_LIST_H

#include <stdbool.h>

#include "kernels/engine.h"

struct job_list {
	struct engine_job *first;
	struct engine_job **end;
};

static inline void job_list_init(struct job_list *list)
{
	list->first = NULL;
	list->end = &list->first;
}

/* Adds a job at the end. Returns whether it is the only one: the owner reaps all jobs that have ended at
 * once, and so is woken for the first of them. */
static inline bool job_list_add(struct job_list *list, struct engine_job *job)
{
	const bool is_only = !list->first;

	job->next = NULL;
	*list->end = job;
	list->end = &job->next;
	return is_only;
}

/* Takes the first job; the list must have one. */
static inline struct engine_job *job_list_take(struct job_list *list)
{
	struct engine_job *job = list->first;

	list->first = job->next;
	if (!list->first)
		list->end = &list->first;
	return job;
}

/* Takes all jobs, linked by next. */
static inline struct engine_job *job_list_take_all(struct job_list *list)
{
	struct engine_job *first = list->first;

	job_list_init(list);
	return first;
}

bool job_list_has(const struct job_list *list, const struct engine_job *job);

/* Returns whether the list had the job. */
bool job_list_remove(struct job_list *list, struct engine_job *job);

/* The job ends so, and each of its moves. */
void job_end_all(struct engine_job *job, int status);

/* Those of the list that have no status yet end so, and stay in it. */
void job_list_end_all(struct job_list *list, int status);

/* Calls back for jobs that have been taken, each of which may be gone after that. */
void jobs_call_back(struct engine_job *first);

#endif
