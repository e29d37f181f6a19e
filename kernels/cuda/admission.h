/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which job may start now: within what the engine, its owner and its stream may have under way, and
 * with room in scratch memory. A job of more than one launch has its stream to itself. While a job waits for
 * scratch memory, no other job that needs scratch memory overtakes it.
 */
#ifndef KERNELS_CUDA_ADMISSION_H
#define KERNELS_CUDA_ADMISSION_H

#include <stdbool.h>

#include "scheduler.h"

/* For fair_queue_next_if, with a struct scheduler; under the lock, by its thread. Plans the stream's first
 * job when it is not planned yet; sets scratch_missing and scratch_full. */
bool admission_can_start(struct fair_stream *fair, void *scheduler);

/* Whether the owner's thread may start the stream's first job: it is launched in a few microseconds, without
 * anything being allocated, and its end wakes no sleepers. */
bool admission_is_quick(const struct fair_stream *fair, const struct scheduler *scheduler);

/* Whether any of its bytes lie in host memory. A batch may have no move at all. */
bool job_has_moves_by_bus(const struct engine_job *job);

/* Whether any of its moves goes across a link to another device: that takes longer than the bytes tell. */
bool job_has_peers(const struct engine_job *job);

/* Others should not have to wait for a long one. */
enum job_weight job_weight(const struct engine_job *job, const struct cuda_limits *limits);

#endif
