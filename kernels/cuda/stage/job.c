/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "kernels/cuda/memory/memory.h"

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

/* ---- Questions ---------------------------------------------------------------------------------------- */

static bool any_move(const struct engine_job *job, bool (*is)(const struct engine_move *move))
{
	if (!job->moves)
		return is(&job->move);
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (is(&job->moves[i]))
			return true;
	return false;
}

bool move_is_by_bus(const struct engine_move *move)
{
	return cuda_memory(move->dst)->host || cuda_memory(move->src)->host;
}

bool move_is_exact(const struct engine_move *move)
{
	return move->transform->conversion.is && move->transform->conversion.cast == CAST_EXACT;
}

bool job_is_by_bus(const struct engine_job *job)
{
	return any_move(job, move_is_by_bus);
}

bool job_is_exact(const struct engine_job *job)
{
	return any_move(job, move_is_exact);
}

static bool has_peer(const struct engine_move *move)
{
	return cuda_memory(move->dst)->is_peer || cuda_memory(move->src)->is_peer;
}

static bool side_has_peer(const struct engine_blocks_side *side, struct engine_memory *without_table)
{
	if (!side->table)
		return cuda_memory(without_table)->is_peer;
	for (uint32_t l = 0; l < side->table->n; l++)
		if (cuda_memory(side->table->memories[l])->is_peer)
			return true;
	return false;
}

bool job_has_peers(const struct engine_job *job)
{
	if (job->blocks)
		return side_has_peer(&job->blocks->dst, job->move.dst) ||
		       side_has_peer(&job->blocks->src, job->move.src);
	return any_move(job, has_peer);
}

bool job_is_on_device(const struct engine_job *job)
{
	return !job_is_many(job) && !move_is_by_bus(&job->move) && !has_peer(&job->move);
}

/* ---- The end ------------------------------------------------------------------------------------------ */

int job_first_failure(const struct engine_job *job)
{
	for (uint32_t i = 0; job->moves && i < job->n_moves; i++)
		if (job->moves[i].status)
			return job->moves[i].status;
	return 0;
}
