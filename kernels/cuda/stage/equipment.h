/* SPDX-License-Identifier: Apache-2.0 */
/* All jobs on the device share the launcher, the streams of copies, the packers, and pinned buffers through
 * which packed bytes travel.
 *
 * There are buffers enough to keep both directions busy at once, and few enough to stay in the last-level
 * cache, from where the device reads them. They are allocated when they are first needed, and given back once
 * nobody has used them for a while. One thread uses all of it, but for the bytes and the task of a slot that
 * is being packed.
 */
#ifndef KERNELS_CUDA_STAGE_EQUIPMENT_H
#define KERNELS_CUDA_STAGE_EQUIPMENT_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/cuda/sched/limits.h"
#include "kernels/host/packers.h"
#include "proto/status.h"

enum pack_slot_state {
	PACK_SLOT_PACKING,
	PACK_SLOT_PACKED,    /* held back (pack_chunk.c) */
	PACK_SLOT_COMING_IN, /* on the copy engine */
	PACK_SLOT_GOING_OUT, /* likewise */
	PACK_SLOT_UNPACKING,
};

/* A slot holds a chunk of a job (packing.h) on its way. */
struct pack_slot {
	char *bytes;
	CUevent copied;
	enum pack_slot_state state;
	struct pack_task task;
	struct pack_job *pack;
	uint64_t stretch;
	uint64_t from, to;
	TAILQ_ENTRY(pack_slot) entry; /* of the job, in the order begun; or free */
};

TAILQ_HEAD(pack_slot_list, pack_slot);

/* Pinned memory for the list of a packed job. */
struct pack_list {
	void *memory;
	size_t bytes;
	SLIST_ENTRY(pack_list) entry;
};

struct pack_slots {
	uint32_t most;           /* the number that are made */
	uint64_t bytes;          /* of each */
	struct pack_slot *slots; /* NULL: not open */
	char *memory;
	uint32_t events; /* made */
	uint32_t jobs;   /* that share them */
	struct pack_slot_list free;
	SLIST_HEAD(, pack_list) lists; /* not in use; as many as there were jobs at once */
};

struct equipment {
	struct launcher launcher;
	struct map_cache maps; /* The launcher uses these. */
	struct cuda_plans *plans;
	CUstream copy_in; /* for jobs that run in rounds, whose kernels are on a stream of their own */
	CUstream copy_out;
	struct pack_slots pack_slots;
	struct packers packers;
	CUevent passed; /* It is recorded on one stream, and the next one waits for it at once. */
};

/* Keeps up to map_entries tensor maps. equipment_deinit must follow on failure, too. */
int equipment_init(struct equipment *equipment, const struct device *device, struct cuda_plans *plans,
                   const struct cuda_limits *limits, uint64_t map_entries, struct error *err);

/* Frees all of it; zeroed equipment is allowed. The driver is not asked on a device that is lost, and pinned
 * memory stays. */
void equipment_deinit(struct equipment *equipment, enum cuda_health health);

/* Has what follows on `to` wait for all that is on `from`. */
int equipment_pass(struct equipment *equipment, CUstream from, CUstream to, struct error *err);

/* ---- Pinned buffers ------------------------------------------------------------------------------------ */

/* Opens the slots unless they are open. Returns 0, or the status of the driver's refusal. */
int pack_slots_open(struct pack_slots *slots, struct error *err);

/* Frees the slots and the lists, none of which may be in use. */
void pack_slots_close(struct pack_slots *slots);

/* Returns how many slots a job may have in one direction. */
uint32_t pack_slots_share(const struct pack_slots *slots);

/* Returns NULL if no slot is free. */
struct pack_slot *pack_slots_take(struct pack_slots *slots);
void pack_slots_give(struct pack_slots *slots, struct pack_slot *slot);

/* Returns memory of at least so many bytes, whatever is in it, or NULL if there is none. The slots must be
 * open. */
struct pack_list *pack_slots_take_list(struct pack_slots *slots, size_t bytes, struct error *err);
void pack_slots_give_list(struct pack_slots *slots, struct pack_list *list);

#endif
