/* What a job of any kind weighs, and its end as a whole. */
#ifndef KERNELS_CUDA_JOB_H
#define KERNELS_CUDA_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"

/* Read and written, by all of it; at most 2^62. */
uint64_t job_bytes(const struct engine_job *job);

/* Whether it has more than one move: it then runs in one go, each side where it is. */
static inline bool job_is_many(const struct engine_job *job)
{
	return job->blocks || job->moves;
}

/* Every move ends so, and the job. */
void job_end_all(struct engine_job *job, int status);

/* The first of a batch's moves that has failed by now, its status; else 0. */
int job_first_failure(const struct engine_job *job);

#endif
