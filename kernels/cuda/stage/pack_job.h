/* SPDX-License-Identifier: Apache-2.0 */
/* A packed job is a list of blocks on its way through scratch memory and pinned buffers (packing.h).
 *
 * A list that lies on the device is first copied to the host. On the way in, threads pack a chunk into a
 * pinned buffer and the copy engine copies it to the device; once all copies of a stretch have been issued, a
 * launch behind them moves its blocks. On the way out, the chunks of a stretch that has been moved are copied
 * to the host and unpacked there. Several stretches may be in each of these states at once. Their launches
 * read one list, which is sent to the device once.
 *
 * The engine's thread owns the job and polls it; it never waits for it.
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
	PACK_STRETCH_MOVING, /* A launch moves it on the device. */
	PACK_STRETCH_GOING,
	PACK_STRETCH_DONE,
};

/* Counts of the chunks of a stretch that have reached each state. */
struct pack_count {
	uint64_t begun;
	uint64_t copied; /* chunks whose copy was issued */
	uint64_t landed;
};

/* Memory of clients that the threads of one direction touch: the ranges for their guard
 * (kernels/host/fault.h). */
struct pack_guard {
	const struct fault_range *ranges;
	uint32_t n;
};

/* An allocation that grows when a job needs more, and is kept from job to job. */
struct pack_room {
	void *memory;
	size_t bytes;
};

enum pack_stage {
	PACK_FETCHING, /* The list is being copied from the device. */
	/* Nothing was moved: the list turned out to be unfit for packing, or could not be read. */
	PACK_REFUSED,
	PACK_MOVING,
};

/* A stretch under way. */
struct pack_stretch {
	struct packing_stretch part;
	enum pack_stretch_state state;
	struct pack_count in, out;
	/* Monotonic time from which on its launch can only have waited for others on the device. */
	uint64_t ready_ns;
};

struct pack_job {
	/* The owning flight (job under way in the engine) sets these once. */
	struct equipment *equipment;
	struct fate *fate;
	const CUevent *moved; /* array of events; the launch of stretch i records moved[i % slots] */
	uint64_t slack_ns;    /* nanoseconds that a launch may take beyond what its bytes account for */

	/* The fields from here on belong to the current job. */
	struct engine_job *job;
	struct stream_slot *slot;
	uint64_t scratch; /* device address of the job's scratch memory */
	struct packing packing;
	/* Arrays of packing_read, followed by the list if it was copied from the device. */
	struct pack_list *list;
	enum pack_stage stage;
	bool is_sent;               /* The list for launches has been sent to the device. */
	bool is_late;               /* A launch of this job has waited for others. */
	uint64_t moved_ns;          /* monotonic time at which a launch was last seen to have ended */
	struct packing_cursor next; /* start of the next stretch to begin */
	/* Groups of the threads that pack and that unpack for this job; each bounds how many work at once. */
	struct pack_group in_group;
	struct pack_group out_group;
	struct pack_slot_list slots; /* slots that hold chunks of the job, in the order begun */
	/* Slots that hold chunks on the way in, and on the way out. */
	uint32_t coming, going;
	/* Number of stretches begun, and of those that have ended. */
	uint64_t begun, ended;
	struct pack_stretch stretch[PACKING_MOST_SLOTS]; /* stretch number i is at i % slots */
	/* Host addresses of element [0, ..., 0] of block 0 of layer 0; NULL for a side on the device. */
	char *host_dst;
	const char *host_src;
	uint64_t dst, src;                   /* device addresses of the same elements */
	struct pack_guard host_in, host_out; /* memory that threads read, and memory that they write */
	struct fault_range own[2];           /* the range of each side that lies in a single region */
	/* Array of struct fault_range, for sides whose layers are in a table of regions. */
	struct pack_room ranges;
};

/* Begins the job: reads its list, or starts to copy it from the device. Returns true if the job is under way,
 * and pack_job_end must follow. Returns false if it has failed, as its fate tells, or is not to travel packed
 * after all. Launches run on the slot's stream. scratch is the device address of the scratch memory that
 * `packing` asks for. */
bool pack_job_begin(struct pack_job *pack, struct engine_job *job, const struct packing *packing,
                    struct stream_slot *slot, uint64_t scratch);

/* Advances the job as far as possible without waiting. Returns whether anything has changed. */
bool pack_job_poll(struct pack_job *pack);

/* Returns whether every block has been moved. */
bool pack_job_is_moved(const struct pack_job *pack);

/* Returns whether nothing of the job is under way any more, because all was moved, or it failed or was
 * stopped. */
bool pack_job_is_over(const struct pack_job *pack);

/* Gives back the job's slots and list. The job must be over, or the device lost. If the device is lost, the
 * call waits for threads that still use the job's slots. */
void pack_job_end(struct pack_job *pack);

/* Frees what is kept from job to job. */
void pack_job_deinit(struct pack_job *pack);

#endif
