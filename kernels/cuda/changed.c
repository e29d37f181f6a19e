/* SPDX-License-Identifier: Apache-2.0 */
/* Lays counters out, and judges moves by them. */
#include "changed.h"

#include <string.h>

#include "kernels/plan/conversion.h"
#include "queue.h"

static bool is_exact(const struct engine_move *move)
{
	return move->transform->conversion.is && move->transform->conversion.cast == CAST_EXACT;
}

bool changed_is_counted(const struct engine_job *job)
{
	if (!job->moves)
		return is_exact(&job->move);
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (is_exact(&job->moves[i]))
			return true;
	return false;
}

static size_t counter_bytes(const struct engine_job *job)
{
	return (job->moves ? job->n_moves : 1) * sizeof(uint64_t);
}

int changed_take(struct in_flight_job *in_flight, struct error *err)
{
	const struct engine_job *job = in_flight->job;

	if (!changed_is_counted(job))
		return 0;
	in_flight->changed = upload_buffer_take(&in_flight->upload_buffer, counter_bytes(job));
	if (!in_flight->changed)
		return error_set(err, STATUS_NO_MEMORY,
		                 "the counters of exact casts are larger than %u bytes", UPLOAD_BUFFER_BYTES);
	memset(in_flight->changed, 0, counter_bytes(job));
	return 0;
}

uint64_t changed_place(const struct in_flight_job *in_flight, const struct engine_move *move, uint32_t i,
                       uint64_t base)
{
	return is_exact(move) ? upload_buffer_place(&in_flight->upload_buffer, base, in_flight->changed + i)
	                      : 0;
}

int changed_fetch(struct in_flight_job *in_flight, CUstream stream, struct error *err)
{
	const uint64_t device = upload_buffer_place(&in_flight->upload_buffer,
	                                            in_flight->upload_buffer.device, in_flight->changed);

	return driver_call(err, cuMemcpyDtoHAsync,
	                   (in_flight->changed, device, counter_bytes(in_flight->job), stream));
}

int changed_land(struct in_flight_job *in_flight)
{
	struct engine_job *job = in_flight->job;

	for (uint32_t i = 0; i < (job->moves ? job->n_moves : 1); i++) {
		struct engine_move *move = job->moves ? &job->moves[i] : &job->move;

		move->changed = is_exact(move) ? in_flight->changed[i] : 0;
		if (move->changed && (!job->moves || !move->status))
			move->status = STATUS_OUT_OF_RANGE;
	}
	return job->moves ? job_first_failure(job) : job->move.changed ? STATUS_OUT_OF_RANGE : 0;
}
