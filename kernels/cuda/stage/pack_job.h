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

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobs.h"
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
	struct packing_cursor next; /* where the stretch to begin next is */
	struct pack_group in_group; /* the threads that pack, and those that unpack */
	struct pack_group out_group;
	struct pack_slot_list slots;
	uint32_t coming, going;                          /* slots that come in, and slots that go out */
	uint64_t begun, ended;                           /* numbers of stretches */
	struct pack_stretch stretch[PACKING_MOST_SLOTS]; /* stretch number i is in i % slots */
	/* Elements [0, ..., 0] of block 0 of layer 0 lie here, on sides that are on the host. */
	char *host_dst;
	const char *host_src;
	uint64_t dst, src;                   /* the same for the device */
	struct pack_guard host_in, host_out; /* memory that threads read, and memory that they write */
	struct fault_range own[2];           /* ranges of sides that lie in one memory */
	struct pack_room ranges;             /* array of struct fault_range, for sides by tables */
};

/* Reads the list, or has it fetched. Returns true if the job is under way now, and has to be ended, or false
 * if it is not to travel so after all, or has failed. scratch is the address of the scratch memory that the
 * packing needs. */
bool pack_job_begin(struct pack_job *pack, struct engine_job *job, const struct packing *packing,
                    struct stream_slot *slot, uint64_t scratch);

/* Returns whether anything has moved. */
bool pack_job_poll(struct pack_job *pack);

/* Returns whether all of it was moved. */
bool pack_job_is_moved(const struct pack_job *pack);

/* Returns whether nothing of it is under way any more, because all was moved or it failed or was stopped. */
bool pack_job_is_over(const struct pack_job *pack);

/* Gives back what it has. It must be over, or the device lost; then this waits for threads that are at it. */
void pack_job_end(struct pack_job *pack);

/* Frees what is kept from job to job. */
void pack_job_deinit(struct pack_job *pack);

#endif
