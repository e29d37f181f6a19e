/* Jobs of one move, of a move over a list of blocks, and of a batch. */
#include "job.h"

#define MOST_BYTES (UINT64_C(1) << 62)

static uint64_t times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) || product > MOST_BYTES ? MOST_BYTES : product;
}

uint64_t job_bytes(const struct engine_job *job)
{
	uint64_t sum = 0;

	if (!job->moves) {
		const uint64_t bytes = job->move.transform->bytes;

		return job->blocks ? times(times(bytes, job->blocks->n), job->blocks->layers) : bytes;
	}
	for (uint32_t i = 0; i < job->n_moves && sum < MOST_BYTES; i++)
		if (__builtin_add_overflow(sum, job->moves[i].transform->bytes, &sum))
			return MOST_BYTES;
	return sum < MOST_BYTES ? sum : MOST_BYTES;
}

void job_end_all(struct engine_job *job, int status)
{
	job->status = status;
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		job->moves[i].status = status;
}

int job_first_failure(const struct engine_job *job)
{
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		if (job->moves[i].status)
			return job->moves[i].status;
	return 0;
}
