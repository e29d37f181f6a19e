/* SPDX-License-Identifier: Apache-2.0 */
/* Finds how many magnitudes a job needs at a time. */
#include "magnitudes.h"

#include "kernels/cuda/launch/convert.h"
#include "kernels/plan/tuning.h"

static_assert(AMAX_MAGNITUDES * sizeof(uint32_t) <= UPLOAD_BUFFER_BYTES / 2, "lists fit beside them");

static uint64_t count_magnitudes(const struct engine_job *job)
{
	uint64_t most = 0;

	if (job->blocks)
		return 0;
	if (!job->moves)
		return job->move.plan ? launch_magnitudes(job->move.plan) : 0;
	for (uint32_t i = 0; i < job->n_moves; i++) {
		const uint64_t n = launch_magnitudes(job->moves[i].plan);

		most = n > most ? n : most;
	}
	return most;
}

bool magnitudes_are_needed(const struct engine_job *job)
{
	return count_magnitudes(job) > 0;
}

int magnitudes_take(struct in_flight_job *in_flight, struct error *err)
{
	const uint64_t n = count_magnitudes(in_flight->job);

	in_flight->magnitudes = 0;
	if (n == 0)
		return 0;
	in_flight->magnitudes = upload_buffer_take_device(&in_flight->upload_buffer, n * sizeof(uint32_t));
	if (!in_flight->magnitudes)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the magnitudes of %llu blocks are larger than %u bytes",
		                 (unsigned long long)n, UPLOAD_BUFFER_BYTES);
	return 0;
}
