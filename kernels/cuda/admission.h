/* Which job may start now: within what the engine, its owner and its stream may have under way, and with room
 * in the scratch memory. A job that is more than one launch has its stream to itself. Nobody passes one that
 * waits for scratch memory to another's.
 */
#ifndef KERNELS_CUDA_ADMISSION_H
#define KERNELS_CUDA_ADMISSION_H

#include <stdbool.h>

#include "scheduler.h"

/* For fair_queue_next_if, with a struct scheduler; under the lock, by its thread. Plans the stream's first
 * job when it is not planned yet; sets scratch_missing and scratch_full. */
bool admission_can_start(struct fair_stream *turn, void *scheduler);

#endif
