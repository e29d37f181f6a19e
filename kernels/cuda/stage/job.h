/* SPDX-License-Identifier: Apache-2.0 */
/* These functions tell about a job of any kind: one move, a move over a list of blocks, or a batch. */
#ifndef KERNELS_CUDA_STAGE_JOB_H
#define KERNELS_CUDA_STAGE_JOB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernels/engine.h"

/* The fate of a job on the device says what has become of it so far. */
struct fate {
	int status;          /* the first failure, or DEVICE_LOST */
	struct error why;    /* with status */
	atomic_bool stopped; /* Any thread sets it, and then nothing more of the job is launched. */
};

/* Returns whether more of the job may be launched. */
static inline bool fate_is_open(const struct fate *fate)
{
	return fate->status == 0 && !atomic_load_explicit(&fate->stopped, memory_order_relaxed);
}

/* Records a failure. The first one counts, unless the device is lost. */
static inline void fate_fail(struct fate *fate, int status)
{
	if (fate->status == 0 || status == STATUS_DEVICE_LOST)
		fate->status = status;
}

/* Returns whether the job has more than one move. Such a job runs in one go, each side where it is. */
static inline bool job_is_many(const struct engine_job *job)
{
	return job->blocks || job->moves;
}

static inline uint32_t job_moves(const struct engine_job *job)
{
	return job->moves ? job->n_moves : 1;
}

static inline struct engine_move *job_move(struct engine_job *job, uint32_t i)
{
	return job->moves ? &job->moves[i] : &job->move;
}

/* Returns the bytes that the whole job reads and writes, at most 2^62. */
uint64_t job_bytes(const struct engine_job *job);

bool move_is_by_bus(const struct engine_move *move);
bool move_is_exact(const struct engine_move *move);

/* Returns whether any of its bytes lie in host memory. A batch may have no move at all. */
bool job_is_by_bus(const struct engine_job *job);

/* Returns whether any of its moves crosses a link to another device, which takes longer than its bytes
 * tell. */
bool job_has_peers(const struct engine_job *job);

/* Returns whether it is one move within the device's memory. */
bool job_is_on_device(const struct engine_job *job);

/* Returns whether any of its moves has an exact cast. */
bool job_is_exact(const struct engine_job *job);

/* Returns the status of the first of a batch's moves that has failed by now, or 0. */
int job_first_failure(const struct engine_job *job);

#endif
