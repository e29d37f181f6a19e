/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks of a packed job (packing.h) are in slots, between the blocks on the host, where threads copy
 * them, and the device, where the copy engines do. */
#ifndef KERNELS_CUDA_STAGE_PACK_CHUNK_H
#define KERNELS_CUDA_STAGE_PACK_CHUNK_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "equipment.h"
#include "job.h"
#include "kernels/cuda/sched/stream_slots.h"
#include "packing.h"

enum pack_stretch_state {
	PACK_STRETCH_COMING,
	PACK_STRETCH_MOVING, /* on the device */
	PACK_STRETCH_GOING,
	PACK_STRETCH_DONE,
};

/* Numbers of chunks of a stretch. */
struct pack_count {
	uint64_t begun;
	uint64_t copied; /* put on the copy engine */
	uint64_t landed;
};

/* A side on the host lies in this memory of clients. */
struct pack_guard {
	const struct fault_range *ranges;
	uint32_t n;
};

/* A room is memory that is kept from job to job. */
struct pack_room {
	void *memory;
	size_t bytes;
};

enum pack_stage {
	PACK_FETCHING, /* The list is on its way from the device. */
	PACK_REFUSED,  /* It turned out that the job is not to travel so, and nothing of it was moved. */
	PACK_MOVING,
};

/* A stretch under way. */
struct pack_stretch {
	struct packing_stretch part;
	enum pack_stretch_state state;
	struct pack_count in, out;
	uint64_t ready_ns; /* when its launch had nothing but others to wait for, by the monotonic clock */
};

struct pack_job {
	/* These are the flight's, for good. */
	struct equipment *equipment;
	struct fate *fate;
	const CUevent *moved; /* The launch for stretch i records moved[i % slots]. */
	uint64_t slack_ns;    /* A launch may take so much longer than its bytes account for. */

	/* The fields from here on are of one job. */
	struct engine_job *job;
	struct stream_slot *slot;
	uint64_t scratch; /* address */
	struct packing packing;
	struct pack_list *list; /* arrays of uint32_t, and then the device's entries */
	enum pack_stage stage;
	bool is_sent;               /* The list is on its way to the device, for launches. */
	bool is_late;               /* A launch has waited for others. */
	uint64_t moved_ns;          /* when a launch was last seen to have ended */
	struct packing_cursor next; /* stretch to begin */
	struct pack_group in_group; /* the threads that pack, and those that unpack */
	struct pack_group out_group;
	struct pack_slot_list slots;
	uint32_t coming, going;                          /* of them */
	uint64_t begun, ended;                           /* stretches */
	struct pack_stretch stretch[PACKING_MOST_SLOTS]; /* number i in i % slots */
	char *host_dst; /* elements [0, ..., 0] of block 0 of layer 0, where on the host */
	const char *host_src;
	uint64_t dst, src;                   /* the same for the device */
	struct pack_guard host_in, host_out; /* what threads read, and what they write */
	struct fault_range own[2];           /* of sides in one memory */
	struct pack_room ranges;             /* of struct fault_range, of sides by tables */
};

static inline struct pack_stretch *pack_stretch_at(struct pack_job *pack, uint64_t i)
{
	return &pack->stretch[i % pack->packing.slots];
}

/* Begins as many chunks of stretch i as there are slots for, on a side of the host. *n counts the slots that
 * the job has in that direction, and state is PACKING or GOING_OUT. Returns whether there were any. */
bool pack_chunks_begin(struct pack_job *pack, uint64_t i, const struct packing_side *side, uint32_t *n,
                       enum pack_slot_state state);

/* Sees to the chunks under way. Returns whether any has moved. */
bool pack_chunks_poll(struct pack_job *pack);

/* Gives all slots back, and waits for threads that are at them. The device must not be at them, or be lost.
 */
void pack_chunks_drop(struct pack_job *pack);

#endif
