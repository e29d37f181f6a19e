/* SPDX-License-Identifier: Apache-2.0 */
/* Declares what can be told of a job on the device, and what all jobs on the device share.
 *
 * They share the sizes at which the engine changes its method, the guess whether other processes compute on
 * the device, streams, scratch memory, the launcher, the packers, and pinned buffers through which packed
 * bytes travel. One thread uses all of it, but for the bytes and the task of a slot that is being packed. */
#ifndef KERNELS_CUDA_STAGE_JOBS_H
#define KERNELS_CUDA_STAGE_JOBS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "kernels/cuda/cuda_plan.h"
#include "kernels/cuda/driver/driver.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/memory/memory.h"
#include "kernels/engine.h"
#include "kernels/host/threads.h"
#include "proto/status.h"

struct flight;

/* The fate of a job on the device says what has become of it so far. */
struct fate {
	int status;          /* the first failure, or DEVICE_LOST */
	struct error why;    /* with status */
	atomic_bool stopped; /* Any thread sets it, and then nothing more of the job is launched. */
};

/* Returns whether more of the job may be launched. */
static inline bool fate_is_open(const struct fate *fate)
{
	return fate->status == 0 && !atomic_load_explicit(&fate->stopped, memory_order_relaxed);
}

/* Records a failure. The first one counts, unless the device is lost. */
static inline void fate_fail(struct fate *fate, int status)
{
	if (fate->status == 0 || status == STATUS_DEVICE_LOST)
		fate->status = status;
}

/* Returns whether the job has more than one move. Such a job runs in one go, each side where it is. */
static inline bool job_is_many(const struct engine_job *job)
{
	return job->blocks || job->moves;
}

static inline uint32_t job_moves(const struct engine_job *job)
{
	return job->moves ? job->n_moves : 1;
}

static inline struct engine_move *job_move(struct engine_job *job, uint32_t i)
{
	return job->moves ? &job->moves[i] : &job->move;
}

/* Returns the bytes that the whole job reads and writes, at most 2^62. */
uint64_t job_bytes(const struct engine_job *job);

bool move_is_by_bus(const struct engine_move *move);
bool move_is_exact(const struct engine_move *move);

/* Returns whether any of its bytes lie in host memory. A batch may have no move at all. */
bool job_is_by_bus(const struct engine_job *job);

/* Returns whether any of its moves crosses a link to another device, which takes longer than its bytes
 * tell. */
bool job_has_peers(const struct engine_job *job);

/* Returns whether it is one move within the device's memory. */
bool job_is_on_device(const struct engine_job *job);

/* Returns whether any of its moves has an exact cast. */
bool job_is_exact(const struct engine_job *job);

/* Returns the status of the first of a batch's moves that has failed by now, or 0. */
int job_first_failure(const struct engine_job *job);

/* ---- Sizes and times ----------------------------------------------------------------------------------- */

/* The engine chooses these when it is opened. Tests force others, so that small cases take every path. */
struct cuda_limits {
	uint32_t jobs;        /* jobs under way at most; an owner may have half of them */
	uint32_t stream_jobs; /* jobs of one stream under way at most */
	/* Bytes read and written by one owner's jobs under way, except for long ones on the device, unless
	 * there is only one job. */
	uint64_t owner_bytes;
	uint64_t short_bytes;      /* bytes read and written up to which a job on the device is short */
	uint64_t short_host_bytes; /* the same where some of the job is in host memory */
	uint32_t long_jobs;        /* long jobs of one owner under way on the device */
	/* An owner's short jobs pass another's long ones unless it has had this much more of the device's
	 * time. */
	uint64_t ahead_ns;
	/* Moves of a list, in all layers, or of a batch that the owner's thread may launch. */
	uint32_t quick_moves;
	/* Jobs under way that use scratch memory or run in rounds; an owner may have half of them. */
	uint32_t staged_jobs;
	uint64_t direct_bytes;
	uint64_t round_bytes;
	uint64_t row_bytes;
	uint64_t shared_row_bytes; /* row_bytes where others are seen on the device */
	uint64_t tile_bytes;       /* for a transposed job between two places on the host */
	uint64_t tile_row_bytes;
	uint64_t scratch_bytes;    /* bytes of scratch memory at most */
	uint64_t scratch_idle_ns;  /* idle time after which scratch memory is given back */
	uint64_t sharing_slack_ns; /* excess time of a job that says that others compute */
	/* These concern lists of blocks on the host (packing.h). */
	uint32_t pack_threads;
	uint32_t pack_slots; /* slots of both directions together */
	uint64_t pack_slot_bytes;
	bool pack_alone; /* Threads pack blocks also where nobody else is seen on the device. */
	uint64_t pack_least_bytes;
	uint64_t pack_run_bytes;
	uint64_t pack_piece_bytes;
	uint64_t pack_stretch_bytes; /* bytes of the first stretch */
	/* Time since the last event after which the thread begins to sleep between passes. */
	uint64_t spin_ns;
	uint64_t most_sleep_ns;
};

/* Returns the limits of a device with that much memory, or those that are forced. */
struct cuda_limits cuda_limits_get(uint64_t memory_bytes);

/* Tests set with it what cuda_limits_get returns from now on; NULL ends that. No engine may be being opened.
 */
void cuda_limits_force(const struct cuda_limits *limits);

/* ---- Others on the device ------------------------------------------------------------------------------ */

/* The engine guesses whether other processes compute on the device.
 *
 * A kernel that reads or writes host memory occupies multiprocessors while it waits for the bus. Alone it is
 * the fastest way for blocks that are scattered on the host; beside a model that computes, both lose more
 * than half of their speed, and the threads and the copy engines carry the bytes instead
 * (tests/bench/EXPERIMENTS.md). Under MPS kernels run side by side and the engine sees nothing, so that
 * others are taken for granted. Without it the processes alternate by time slices of milliseconds, and jobs
 * take far longer than their bytes account for.
 */

/* Neighbours that were seen count for so long. Then a job tries again, at their expense. */
#define SHARING_HOLDS_NS UINT64_C(2000000000)

struct sharing {
	bool by_mps;
	uint64_t slack_ns; /* A job may take so much longer than its bytes account for. */
	uint64_t until_ns; /* Neighbours count until then, by the monotonic clock; 0: none were seen. */
};

/* Returns whether work that reads and writes so many bytes must have waited for others. by_bus says that some
 * of the bytes lie on the host. */
static inline bool sharing_is_late(uint64_t slack_ns, uint64_t took_ns, uint64_t bytes, bool by_bus)
{
	const uint64_t bytes_a_us = by_bus ? 90000 : 1000000;
	const uint64_t expected_ns = bytes / bytes_a_us * 1000;

	return took_ns > expected_ns + expected_ns / 2 + slack_ns;
}

/* Notes that work had to wait for others. */
static inline void sharing_see(struct sharing *sharing, uint64_t now_ns)
{
	sharing->until_ns = now_ns + SHARING_HOLDS_NS;
}

/* Notes how long a job took that had the engine to itself. */
static inline void sharing_note(struct sharing *sharing, uint64_t now_ns, uint64_t took_ns, uint64_t bytes,
                                bool by_bus)
{
	if (sharing_is_late(sharing->slack_ns, took_ns, bytes, by_bus))
		sharing_see(sharing, now_ns);
}

/* Returns whether work has waited for others of late. */
static inline bool sharing_is_felt(const struct sharing *sharing, uint64_t now_ns)
{
	return now_ns < sharing->until_ns;
}

static inline bool sharing_is_seen(const struct sharing *sharing, uint64_t now_ns)
{
	return sharing->by_mps || sharing_is_felt(sharing, now_ns);
}

/* ---- Streams of the device ----------------------------------------------------------------------------- */

/* Short jobs have streams of the highest priority, long ones of the lowest: a short job's blocks run as soon
 * as any block of a long one ends, in some ten microseconds, however long that job is
 * (tests/bench/EXPERIMENTS.md). An owner's long jobs on the device share a stream: each has the device to
 * itself, as far as this owner goes, and the next one is at hand when it ends. Urgent long jobs have streams
 * of a priority between the two. Other jobs of the lowest priority run beside each other: those that wait for
 * the bus, which has two directions, and short ones of an owner that has had more of the device than those
 * whose long jobs they would pass.
 */

#define STREAM_SLOTS_SHORT  32
#define STREAM_SLOTS_URGENT 4
#define STREAM_SLOTS_LONG   8
#define STREAM_SLOTS        (STREAM_SLOTS_SHORT + STREAM_SLOTS_URGENT + STREAM_SLOTS_LONG)

enum job_weight {
	JOB_SHORT,
	JOB_URGENT, /* It is long, and passes others. */
	JOB_LONG,
	JOB_BESIDE, /* It passes nobody, and waits for no turn. */
};

/* A slot is a stream of the device. Busy ones may be shared. */
struct stream_slot {
	CUstream stream;
	enum stream_priority priority;
	uint32_t jobs; /* jobs under way on it */
	/* The flight whose end is the last thing on the stream, as far as is known; NULL: nothing is there,
	 * or something else is last. flight.c sets it. */
	struct flight *last;
};

struct stream_slots {
	struct stream_slot slot[STREAM_SLOTS]; /* by priority, the highest first */
};

/* Returns the priority of the i-th slot. */
enum stream_priority stream_slot_priority(int i);

/* stream_slots_deinit must follow on failure, too. */
int stream_slots_init(struct stream_slots *slots, struct error *err);
void stream_slots_deinit(struct stream_slots *slots);

/* Returns a slot for a job that starts. last is the slot where the job before it of the same engine stream is
 * under way, or NULL. *ret_is_first says that nothing else is under way there. */
struct stream_slot *stream_slots_take(struct stream_slots *slots, struct engine_owner *owner,
                                      struct stream_slot *last, enum job_weight weight, bool *ret_is_first);

/* Gives the slot of a job that has ended back. Returns whether nothing is under way there any more. */
bool stream_slot_give(struct stream_slot *slot, struct engine_owner *owner, enum job_weight weight);

/* ---- Scratch memory ------------------------------------------------------------------------------------ */

/* Host memory is staged through one bounded stretch of the device's memory. It is allocated when it is first
 * needed, and given back once nobody has used it for a while. Its ranges are handed out first fit; the links
 * are in their users, so that handing out allocates nothing. */

struct scratch_range {
	uint64_t start; /* address */
	uint64_t size;  /* 0: not in use */
	TAILQ_ENTRY(scratch_range) entry;
};

struct scratch {
	uint64_t address; /* 0: there is none */
	uint64_t size;
	TAILQ_HEAD(scratch_ranges, scratch_range) ranges; /* by address */
};

void scratch_init(struct scratch *scratch);

/* Allocates `most` bytes, or half of that, and so on, if the device does not have so much. Returns 0,
 * NO_MEMORY if it has next to nothing, or DEVICE_LOST. */
int scratch_open(struct scratch *scratch, uint64_t most, struct error *err);

/* Frees the memory, if there is any. No range may be in use. */
int scratch_close(struct scratch *scratch, struct error *err);

/* Returns whether there is room now for a range of so many bytes, which are not 0. */
bool scratch_has(const struct scratch *scratch, uint64_t size);

/* Returns the bytes of the largest range that there is room for. */
uint64_t scratch_largest(const struct scratch *scratch);

/* Takes a range for which there is room. Its start is a multiple of SCRATCH_ALIGN. */
#define SCRATCH_ALIGN 256
void scratch_take(struct scratch *scratch, uint64_t size, struct scratch_range *ret);

/* Gives a range back. One that is not in use is allowed. */
void scratch_give(struct scratch *scratch, struct scratch_range *range);

/* ---- Equipment ----------------------------------------------------------------------------------------- */

enum pack_slot_state {
	PACK_SLOT_PACKING,
	PACK_SLOT_PACKED,    /* packed, but held back (pack_job.c) */
	PACK_SLOT_COMING_IN, /* the copy engine brings it to the device */
	PACK_SLOT_GOING_OUT, /* the copy engine brings it to the host */
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
	TAILQ_ENTRY(pack_slot) entry; /* in the job's list, in the order begun, or in the free list */
};

TAILQ_HEAD(pack_slot_list, pack_slot);

/* Pinned memory for the list of a packed job. */
struct pack_list {
	void *memory;
	size_t bytes;
	SLIST_ENTRY(pack_list) entry;
};

/* There are buffers enough to keep both directions busy at once, and few enough to stay in the last-level
 * cache, from where the device reads them. They are allocated when they are first needed, and given back once
 * nobody has used them for a while. */
struct pack_slots {
	uint32_t most;           /* the number that are made */
	uint64_t bytes;          /* bytes of each slot */
	struct pack_slot *slots; /* NULL: not open */
	char *memory;
	uint32_t events; /* events that have been made */
	uint32_t jobs;   /* jobs that share the slots */
	struct pack_slot_list free;
	/* Lists not in use; there are as many as there were jobs at once. */
	SLIST_HEAD(, pack_list) lists;
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
