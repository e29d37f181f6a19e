/* SPDX-License-Identifier: Apache-2.0 */
/* A packed job is a list of blocks on its way through scratch memory and pinned buffers (packing.h).
 *
 * A list that lies on the device is fetched first. A chunk on the way in is packed by threads, and copied to
 * the device; a stretch that has all of its chunks on the way is moved by a launch behind them; then its
 * chunks on the way out are copied to the host, and unpacked. Several stretches may be at each of these
 * steps, and their launches read one list, which is sent to the device once. The engine's thread owns the
 * job, polls it and never waits.
 */
#ifndef KERNELS_CUDA_STAGE_PACK_JOB_H
#define KERNELS_CUDA_STAGE_PACK_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "pack_chunk.h"

/* Reads the list, or has it fetched. Returns true if the job is under way now, and has to be ended, or false
 * if it is not to travel so after all, or has failed. scratch is the address of the scratch memory that the
 * packing needs. */
bool pack_job_begin(struct pack_job *pack, struct engine_job *job, const struct packing *packing,
                    struct stream_slot *slot, uint64_t scratch);

/* Returns whether anything has moved. */
bool pack_job_poll(struct pack_job *pack);

/* Returns whether it turned out, once the list was fetched, that the job is not to travel so. */
bool pack_job_is_refused(const struct pack_job *pack);

/* Returns whether launches of the job, which may have ended, had to wait for others on the device. */
bool pack_job_is_late(const struct pack_job *pack);

/* Returns whether all of it was moved. */
bool pack_job_is_moved(const struct pack_job *pack);

/* Returns whether nothing of it is under way any more, because all was moved or it failed or was stopped. */
bool pack_job_is_over(const struct pack_job *pack);

/* Gives back what it has. It must be over, or the device lost; then this waits for threads that are at it. */
void pack_job_end(struct pack_job *pack);

/* Frees what is kept from job to job. */
void pack_job_deinit(struct pack_job *pack);

#endif
