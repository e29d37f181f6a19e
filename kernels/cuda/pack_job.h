/* SPDX-License-Identifier: Apache-2.0 */
/* A list of blocks on its way through pinned buffers (packing.h): which chunks are where, and what is next.
 *
 * A chunk on the way in is packed by threads, and copied to the device; a stretch that has all of its
 * chunks on the way is moved by a launch behind them; then its chunks on the way out are copied to the host,
 * and unpacked. Owned by the engine's thread, which polls it and never waits.
 */
#ifndef KERNELS_CUDA_PACK_JOB_H
#define KERNELS_CUDA_PACK_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pack_slots.h"
#include "packing.h"

struct in_flight_job;
struct in_flight_pool;

enum pack_stretch_state {
	PACK_STRETCH_COMING,
	PACK_STRETCH_MOVING, /* on the device */
	PACK_STRETCH_GOING,
	PACK_STRETCH_DONE,
};

/* Chunks of a stretch. */
struct pack_count {
	uint64_t begun;
	uint64_t copied; /* put on the copy engine */
	uint64_t landed;
};

/* The clients' memory of a side on the host. */
struct pack_guard {
	const struct fault_range *ranges;
	uint32_t n;
};

/* A stretch under way. */
struct pack_stretch {
	struct packing_stretch part;
	enum pack_stretch_state state;
	struct pack_count in, out;
};

struct pack_job {
	bool is_active;
	struct packing packing;
	struct in_flight_pool *pool;
	struct in_flight_job *in_flight;
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
	uint32_t *lists;                     /* kept from job to job */
	size_t lists_bytes;
	struct fault_range *ranges; /* likewise, of sides by tables */
	uint32_t n_ranges;
};

/* Reads the list. true: the job is under way now. false: it is not to travel so after all, or it has failed,
 * with in_flight's status set. */
bool pack_job_begin(struct in_flight_pool *pool, struct in_flight_job *in_flight);

/* Whether anything has moved. A failure is in_flight's status. */
bool pack_job_poll(struct pack_job *job);

/* Whether all of it was moved. */
bool pack_job_is_moved(const struct pack_job *job);

/* Whether nothing of it is under way any more, because all was moved or it failed or was stopped. */
bool pack_job_is_over(const struct pack_job *job);

/* Gives back what it has. It is over, or the device is lost: then this waits for threads that are at it. */
void pack_job_end(struct pack_job *job);

/* Frees what is kept. */
void pack_job_deinit(struct pack_job *job);

#endif
