/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the limits on what may be under way, the cheapest check first. */
#include "admission.h"

#include "changed.h"
#include "kernels/host/timeline.h"
#include "memory.h"
#include "proto/clock.h"

#define SCRATCH_RETRY_NS UINT64_C(1000000000)

static uint32_t half(uint32_t n)
{
	return n > 1 ? n / 2 : 1;
}

static bool is_by_bus(const struct engine_move *move)
{
	return cuda_memory(move->dst)->host || cuda_memory(move->src)->host;
}

static bool has_peers(const struct engine_blocks_side *side, struct engine_memory *the_move)
{
	if (!side || !side->table)
		return cuda_memory(the_move)->is_peer;
	for (uint32_t l = 0; l < side->table->n; l++)
		if (cuda_memory(side->table->memories[l])->is_peer)
			return true;
	return false;
}

bool job_has_peers(const struct engine_job *job)
{
	const struct engine_blocks *blocks = job->blocks;

	if (!job->moves)
		return has_peers(blocks ? &blocks->dst : NULL, job->move.dst) ||
		       has_peers(blocks ? &blocks->src : NULL, job->move.src);
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (has_peers(NULL, job->moves[i].dst) || has_peers(NULL, job->moves[i].src))
			return true;
	return false;
}

bool job_has_moves_by_bus(const struct engine_job *job)
{
	if (!job->moves)
		return is_by_bus(&job->move);
	for (uint32_t i = 0; i < job->n_moves; i++)
		if (is_by_bus(&job->moves[i]))
			return true;
	return false;
}

enum job_weight job_weight(const struct engine_job *job, const struct cuda_limits *limits)
{
	const uint64_t bytes = job_bytes(job);

	if (bytes > limits->short_host_bytes && job_has_moves_by_bus(job))
		return JOB_BESIDE;
	if (bytes <= limits->short_bytes && job->priority == JOB_PRIORITY_BACKGROUND)
		return JOB_BESIDE;
	if (bytes <= limits->short_bytes)
		return JOB_SHORT;
	return job->priority == JOB_PRIORITY_URGENT ? JOB_URGENT : JOB_LONG;
}

/* One owner's jobs leave room for others', and do not make them wait for long: long ones are passed by short
 * ones, and wait for each other on the device. */
static bool owner_may_start(const struct scheduler *scheduler, const struct engine_owner *owner,
                            const struct engine_job *job)
{
	const struct cuda_limits *limits = &scheduler->limits;

	if (owner->running == 0)
		return true;
	if (owner->running >= half(limits->jobs))
		return false;
	switch (job_weight(job, limits)) {
	case JOB_LONG:
		return owner->long_jobs < limits->long_jobs;
	case JOB_URGENT: /* one more than those that it passes */
		return owner->long_jobs + owner->urgent_jobs < limits->long_jobs + 1;
	default:
		return owner->running_bytes < limits->owner_bytes &&
		       job_bytes(job) <= limits->owner_bytes - owner->running_bytes;
	}
}

static enum staging_place place(struct engine_memory *memory)
{
	return cuda_memory(memory)->host ? STAGING_ON_HOST : STAGING_ON_DEVICE;
}

/* Whether scratch memory may be asked for now. */
static bool may_open_scratch(const struct scheduler *scheduler)
{
	return !scheduler->scratch.address && scheduler->limits.scratch_bytes > 0 &&
	       clock_ns() - scheduler->scratch_failed_ns > SCRATCH_RETRY_NS;
}

/* Whether threads find layers of a side as far apart as the device does. */
static bool is_as_for_device(const struct engine_blocks_side *side)
{
	for (uint32_t l = 0; side->table && l < side->table->n; l++) {
		const struct cuda_memory *memory = cuda_memory(side->table->memories[l]);

		if (memory->host && memory->address != (uint64_t)(uintptr_t)memory->data)
			return false;
	}
	return true;
}

static bool init_packing(const struct scheduler *scheduler, const struct engine_job *job,
                         uint64_t scratch_bytes, struct packing *ret)
{
	const struct packing_places places = {
		.dst_is_host = place(job->move.dst) == STAGING_ON_HOST,
		.src_is_host = place(job->move.src) == STAGING_ON_HOST,
		.list_is_host = job->blocks->index || place(job->blocks->index_memory) == STAGING_ON_HOST,
	};
	const struct packing_limits limits = {
		.least_bytes = scheduler->limits.pack_least_bytes,
		.run_bytes = scheduler->limits.pack_run_bytes,
		.piece_bytes = scheduler->limits.pack_piece_bytes,
		.slot_bytes = scheduler->limits.pack_slots > 0 ? scheduler->limits.pack_slot_bytes : 0,
		.stretch_bytes = scheduler->limits.pack_stretch_bytes,
		.scratch_bytes = scratch_bytes,
	};

	return (places.dst_is_host || places.src_is_host) && !job->move.transform->conversion.is &&
	       (scheduler->limits.pack_alone || sharing_is_seen(&scheduler->sharing, clock_ns())) &&
	       is_as_for_device(&job->blocks->dst) && is_as_for_device(&job->blocks->src) &&
	       packing_init(ret, job, &scheduler->pool.facts, &places, &limits);
}

/* Between what an exact cast moves and its signal. */
static void add_judgement(struct staging *staging, const struct engine_job *job)
{
	if (staging->rounds > 0 && job->signal.memory && changed_is_counted(job))
		staging->rounds++;
}

/* As plan_first, of a list of blocks. */
static bool plan_list(struct scheduler *scheduler, struct engine_stream *stream)
{
	const bool may_open = may_open_scratch(scheduler);
	const uint64_t bytes = may_open ? scheduler->limits.scratch_bytes : scheduler->scratch.size;
	struct packing packing;

	if (!init_packing(scheduler, stream->first, bytes, &packing)) {
		staging_init_direct(&stream->staging, job_bytes(stream->first) > 0);
		add_judgement(&stream->staging, stream->first);
	} else if (may_open && packing.scratch_bytes > 0) {
		scheduler->scratch_missing = true;
		return false;
	} else {
		staging_init_packed(&stream->staging, &packing);
	}
	return true;
}

/* How the stream's first job is to travel; false when scratch memory has to be opened before that can be
 * said. */
static bool plan_first(struct scheduler *scheduler, struct engine_stream *stream)
{
	const struct engine_job *job = stream->first;
	const struct scratch *scratch = &scheduler->scratch;
	enum staging_place dst, src;
	struct staging_limits limits = {
		.direct_bytes = scheduler->limits.direct_bytes,
		.round_bytes = scheduler->limits.round_bytes,
		.row_bytes = sharing_is_seen(&scheduler->sharing, clock_ns())
		                 ? scheduler->limits.shared_row_bytes
		                 : scheduler->limits.row_bytes,
		.tile_bytes = scheduler->limits.tile_bytes,
		.tile_row_bytes = scheduler->limits.tile_row_bytes,
		.scratch_bytes = scratch->size,
	};

	if (stream->planned)
		return true;
	if (job->blocks)
		return stream->planned = plan_list(scheduler, stream);
	if (job->moves || job->move.transform->conversion.is) {
		staging_init_direct(&stream->staging, job_bytes(job) > 0);
		add_judgement(&stream->staging, job);
		return stream->planned = true;
	}
	dst = place(job->move.dst);
	src = place(job->move.src);
	if ((dst == STAGING_ON_HOST || src == STAGING_ON_HOST) &&
	    job->move.transform->bytes > limits.direct_bytes && may_open_scratch(scheduler)) {
		scheduler->scratch_missing = true;
		return false;
	}
	staging_init(&stream->staging, job->move.transform, job->move.plan, dst, src, &limits);
	stream->planned = true;
	return true;
}

static bool staged_may_start(struct scheduler *scheduler, const struct engine_stream *stream)
{
	uint64_t bytes = stream->staging.scratch_bytes;
	uint32_t most = scheduler->limits.staged_jobs;

	if (stream->n_in_flight > 0 || scheduler->staged >= most ||
	    stream->fair.owner->staging >= half(most) || (bytes > 0 && scheduler->scratch_full))
		return false;
	if (bytes == 0 || scratch_has(&scheduler->scratch, bytes))
		return true;
	scheduler->scratch_full = true;
	return false;
}

bool admission_can_start(struct fair_stream *fair, void *arg)
{
	struct engine_stream *stream = (struct engine_stream *)fair;
	struct scheduler *scheduler = arg;
	struct in_flight_job *last = TAILQ_LAST(&stream->in_flight, in_flight_list);

	if (TAILQ_EMPTY(&scheduler->free) || stream->n_in_flight >= scheduler->limits.stream_jobs ||
	    (last && staging_is_needed(&last->staging)) ||
	    !owner_may_start(scheduler, fair->owner, stream->first) || !plan_first(scheduler, stream))
		return false;
	return !staging_is_needed(&stream->staging) || staged_may_start(scheduler, stream);
}

/* Lists and batches lie in an upload buffer, which is opened with the first of them. */
bool admission_is_quick(const struct fair_stream *fair, const struct scheduler *scheduler)
{
	const struct engine_stream *stream = (const struct engine_stream *)fair;
	const struct engine_job *job = stream->first;
	const struct in_flight_job *next = TAILQ_FIRST(&scheduler->free);
	const struct engine_blocks *blocks = job->blocks;
	const uint64_t moves = blocks ? blocks->n * blocks->layers : job->moves ? job->n_moves : 0;

	if (job->next || changed_is_counted(job) ||
	    (job->wait.memory && !cuda_memory(job->wait.memory)->host) ||
	    (job->signal.memory && timeline_wakes_are_slow(fair->owner, clock_ns())))
		return false;
	if (!job_is_many(job) && is_by_bus(&job->move))
		return job->move.transform->bytes <= scheduler->limits.direct_bytes;
	if (job->blocks && is_by_bus(&job->move) && job_bytes(job) >= scheduler->limits.pack_least_bytes)
		return false;
	return moves == 0 || (moves <= scheduler->limits.quick_moves && next && next->upload_buffer.host);
}
