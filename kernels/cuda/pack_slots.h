/* SPDX-License-Identifier: Apache-2.0 */
/* Pinned buffers through which packed bytes travel: some for each direction, so that both are busy at once.
 *
 * Few enough that they stay in the last-level cache, from where the device reads them. Allocated when they
 * are first needed, and given back once nobody has used them for a while. Used by one thread, but for the
 * bytes and the task of a slot that is being packed.
 */
#ifndef KERNELS_CUDA_PACK_SLOTS_H
#define KERNELS_CUDA_PACK_SLOTS_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/host/packers.h"
#include "proto/status.h"

enum pack_slot_state {
	PACK_SLOT_PACKING,
	PACK_SLOT_PACKED,    /* held back (pack_chunk.c) */
	PACK_SLOT_COMING_IN, /* on the copy engine */
	PACK_SLOT_GOING_OUT, /* likewise */
	PACK_SLOT_UNPACKING,
};

/* A chunk of a job (packing.h) on its way. */
struct pack_slot {
	char *bytes;
	CUevent copied;
	enum pack_slot_state state;
	struct pack_task task;
	struct pack_job *job;
	uint64_t stretch;
	uint64_t from, to;
	TAILQ_ENTRY(pack_slot) entry; /* of the job, in the order begun; or free */
};

TAILQ_HEAD(pack_slot_list, pack_slot);

struct pack_slots {
	uint32_t most;           /* as many as are made */
	uint64_t bytes;          /* of each */
	struct pack_slot *slots; /* NULL: not open */
	char *memory;
	uint32_t events; /* made */
	uint32_t jobs;   /* that share them */
	struct pack_slot_list free;
};

/* most and bytes: 0 for none. */
void pack_slots_init(struct pack_slots *slots, uint32_t most, uint64_t bytes);

/* Does nothing when they are open. NO_MEMORY and the like: there are none. */
int pack_slots_open(struct pack_slots *slots, struct error *err);

/* None may be in use. On a device that is lost the driver is not asked, and the memory stays. */
void pack_slots_close(struct pack_slots *slots);
void pack_slots_leave(struct pack_slots *slots);

/* How many of them a job may have in one direction. */
uint32_t pack_slots_share(const struct pack_slots *slots);

/* NULL: there is none. */
struct pack_slot *pack_slots_take(struct pack_slots *slots);
void pack_slots_give(struct pack_slots *slots, struct pack_slot *slot);

#endif
