/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of a packed job (packing.h): each in a slot, between the blocks on the host, where threads copy it,
 * and the device, where the copy engines do. */
#ifndef KERNELS_CUDA_PACK_CHUNK_H
#define KERNELS_CUDA_PACK_CHUNK_H

#include "in_flight.h"

static inline bool pack_job_is_wanted(const struct pack_job *job)
{
	return job->in_flight->status == 0 &&
	       !atomic_load_explicit(&job->in_flight->stopped, memory_order_relaxed);
}

/* The first failure counts, but for the device's. */
static inline void pack_job_fail(struct pack_job *job, int status)
{
	if (job->in_flight->status == 0 || status == STATUS_DEVICE_LOST)
		job->in_flight->status = status;
}

static inline struct pack_stretch *pack_stretch_at(struct pack_job *job, uint64_t i)
{
	return &job->stretch[i % job->packing.slots];
}

/* Begins as many chunks of stretch i as there are slots for, on a side of the host: *n of them have the job's
 * chunks of that direction. state: PACKING or GOING_OUT. Whether there were any. */
bool pack_chunks_begin(struct pack_job *job, uint64_t i, const struct packing_side *side, uint32_t *n,
                       enum pack_slot_state state);

/* Sees to those under way. Whether any has moved. */
bool pack_chunks_poll(struct pack_job *job);

/* Gives all slots back. Waits for threads that are at them; the device must not be, or is lost. */
void pack_chunks_drop(struct pack_job *job);

#endif
