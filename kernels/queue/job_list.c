/* SPDX-License-Identifier: Apache-2.0 */
#include "job_list.h"

bool job_list_has(const struct job_list *list, const struct engine_job *wanted)
{
	const struct engine_job *job = list->first;

	while (job && job != wanted)
		job = job->next;
	return job != NULL;
}

bool job_list_remove(struct job_list *list, struct engine_job *job)
{
	struct engine_job **at = &list->first;

	while (*at && *at != job)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = job->next;
	if (!*at)
		list->end = at;
	return true;
}

void job_end_all(struct engine_job *job, int status)
{
	job->status = status;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		job->moves[i].status = status;
}

void job_list_end_all(struct job_list *list, int status)
{
	for (struct engine_job *job = list->first; job; job = job->next)
		if (job->status == 0)
			job_end_all(job, status);
}

void jobs_call_back(struct engine_job *first)
{
	while (first) {
		struct engine_job *next = first->next;

		first->on_done(first);
		first = next;
	}
}
