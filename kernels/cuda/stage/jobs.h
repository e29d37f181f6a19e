/* SPDX-License-Identifier: Apache-2.0 */
/* Declares helpers that describe a job on the device, and what all jobs on a device share: the engine's
 * limits, its guess whether other processes compute on the device, the streams, scratch memory, the launcher,
 * the packers (threads that copy blocks on the host), and the pinned buffers that packed bytes pass through.
 *
 * Only the engine's thread uses these, with one exception: while a buffer slot is being packed or unpacked,
 * the packer threads own its bytes and its task.
 */
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

/* Outcome of a job so far. The engine's thread writes status and why. */
struct fate {
	int status;          /* 0, or the first failure, which only DEVICE_LOST replaces */
	struct error why;    /* the message that belongs to status */
	atomic_bool stopped; /* Any thread may set it; nothing more of the job is launched from then on. */
};

/* Returns whether more of the job may be launched. */
static inline bool fate_is_open(const struct fate *fate)
{
	return fate->status == 0 && !atomic_load_explicit(&fate->stopped, memory_order_relaxed);
}

/* Records a failure. The first failure is kept unless a later one is DEVICE_LOST. */
static inline void fate_fail(struct fate *fate, int status)
{
	if (fate->status == 0 || status == STATUS_DEVICE_LOST)
		fate->status = status;
}

/* Returns whether the job is a list of blocks or a batch. Such a job is launched as a whole and is not staged
 * by rounds: each side is used where it lies. */
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

/* Returns whether any of the job's bytes lie in host memory; false for a batch without moves. */
bool job_is_by_bus(const struct engine_job *job);

/* Returns whether any of the job's moves reads or writes another device's memory. Such a move takes longer
 * than its number of bytes suggests. */
bool job_has_peers(const struct engine_job *job);

/* Returns whether the job is a single move within this device's memory. */
bool job_is_on_device(const struct engine_job *job);

/* Returns whether any of the job's moves has an exact cast, one that fails if it changes a value. */
bool job_is_exact(const struct engine_job *job);

/* Returns the status of the first move of a batch that has failed so far, or 0. */
int job_first_failure(const struct engine_job *job);

/* ---- Sizes and times ----------------------------------------------------------------------------------- */

/* The engine's sizes and times. They are chosen when the engine is opened; tests force smaller ones so that
 * small jobs take every path. */
struct cuda_limits {
	uint32_t jobs;        /* maximum number of jobs under way; one owner may have half of them */
	uint32_t stream_jobs; /* maximum number of jobs under way in one engine stream */
	/* Maximum number of bytes that one owner's jobs under way read and write. Long jobs on the device are
	 * not counted, and a single job may exceed the limit. */
	uint64_t owner_bytes;
	/* A job on the device that reads and writes at most this many bytes is short. */
	uint64_t short_bytes;
	uint64_t short_host_bytes; /* the same bound for a job with bytes in host memory */
	uint32_t long_jobs;        /* maximum number of one owner's long jobs under way on the device */
	/* Nanoseconds. An owner's short jobs pass other owners' long ones unless the owner has used this much
	 * more of the device's time than they have. */
	uint64_t ahead_ns;
	/* The owner's thread may launch a list of blocks with at most this many moves, counted over all
	 * layers, or a batch of at most this many moves. */
	uint32_t quick_moves;
	/* Maximum number of jobs under way that use scratch memory or run in rounds; one owner may have half
	 * of them. */
	uint32_t staged_jobs;
	/* The limits from here to tile_row_bytes are those of struct staging_limits. */
	uint64_t direct_bytes;
	uint64_t round_bytes;
	uint64_t row_bytes;
	uint64_t shared_row_bytes; /* row_bytes while other processes are seen on the device */
	uint64_t tile_bytes;       /* for a transposing job from host memory to host memory */
	uint64_t tile_row_bytes;
	uint64_t scratch_bytes;   /* maximum size of scratch memory */
	uint64_t scratch_idle_ns; /* idle time after which scratch memory is freed */
	/* If a job takes this much longer than its bytes account for, other processes are assumed to compute
	 * on the device. */
	uint64_t sharing_slack_ns;
	/* The limits from here to pack_stretch_bytes are for lists of blocks on the host (packing.h). */
	uint32_t pack_threads;
	uint32_t pack_slots; /* pinned slots, for both directions together */
	uint64_t pack_slot_bytes;
	bool pack_alone; /* If true, threads pack blocks even while no other process is seen on the device. */
	uint64_t pack_least_bytes;
	uint64_t pack_run_bytes;
	uint64_t pack_piece_bytes;
	uint64_t pack_stretch_bytes; /* approximate bytes of the first stretch of a list */
	/* Time since the last event after which the scheduler's thread begins to sleep between passes. */
	uint64_t spin_ns;
	uint64_t most_sleep_ns; /* longest sleep between two passes */
};

/* Returns the limits for a device with memory_bytes of memory, or the forced limits if there are any. */
struct cuda_limits cuda_limits_get(uint64_t memory_bytes);

/* For tests: cuda_limits_get returns *limits from now on; NULL restores the real limits. Must not be called
 * while another thread opens an engine. */
void cuda_limits_force(const struct cuda_limits *limits);

/* ---- Others on the device ------------------------------------------------------------------------------ */

/* The engine guesses whether other processes compute on the device.
 *
 * A kernel that reads or writes host memory occupies multiprocessors while it waits for the bus. On an
 * otherwise idle device it is the fastest way to move blocks that are scattered on the host. Beside a model
 * that computes, both lose more than half of their speed, so threads and copy engines carry the bytes instead
 * (tests/bench/EXPERIMENTS.md).
 *
 * Under MPS the kernels of all processes run side by side and the engine cannot tell, so it assumes that
 * there are others. Without MPS the processes take turns by time slices of milliseconds, and jobs take far
 * longer than their bytes account for.
 */

/* Nanoseconds for which other processes are assumed to use the device after they were last noticed. After
 * that, one job moves its bytes by a kernel again; if other processes are still there, it slows them down. */
#define SHARING_HOLDS_NS UINT64_C(2000000000)

struct sharing {
	bool by_mps;       /* Processes share the device through MPS, so others are always assumed. */
	uint64_t slack_ns; /* nanoseconds that a job may take beyond what its bytes account for */
	/* Others are assumed to be there until this time of the monotonic clock; 0: none were noticed. */
	uint64_t until_ns;
};

/* Returns whether work that reads and writes this many bytes took so long that it must have waited for
 * others. by_bus: some of the bytes lie on the host. */
static inline bool sharing_is_late(uint64_t slack_ns, uint64_t took_ns, uint64_t bytes, bool by_bus)
{
	const uint64_t bytes_a_us = by_bus ? 90000 : 1000000;
	const uint64_t expected_ns = bytes / bytes_a_us * 1000;

	return took_ns > expected_ns + expected_ns / 2 + slack_ns;
}

/* Notes that work had to wait for others on the device. */
static inline void sharing_see(struct sharing *sharing, uint64_t now_ns)
{
	sharing->until_ns = now_ns + SHARING_HOLDS_NS;
}

/* Notes how long a job took that had the engine to itself. If that was too long, others are assumed to have
 * used the device. The parameters are those of sharing_is_late. */
static inline void sharing_note(struct sharing *sharing, uint64_t now_ns, uint64_t took_ns, uint64_t bytes,
                                bool by_bus)
{
	if (sharing_is_late(sharing->slack_ns, took_ns, bytes, by_bus))
		sharing_see(sharing, now_ns);
}

/* Returns whether work has waited for others within the last SHARING_HOLDS_NS. */
static inline bool sharing_is_felt(const struct sharing *sharing, uint64_t now_ns)
{
	return now_ns < sharing->until_ns;
}

static inline bool sharing_is_seen(const struct sharing *sharing, uint64_t now_ns)
{
	return sharing->by_mps || sharing_is_felt(sharing, now_ns);
}

/* ---- Streams of the device ----------------------------------------------------------------------------- */

/* Short jobs run in streams of the highest priority, long ones in streams of the lowest: a short job's thread
 * blocks start as soon as any thread block of a long job ends, within some ten microseconds, however long
 * that job takes (tests/bench/EXPERIMENTS.md).
 *
 * An owner's long jobs on the device share one stream, so that they run one after the other; when one ends,
 * the next is already queued. Urgent long jobs have streams of a middle priority. Other jobs of the lowest
 * priority run side by side. Some of them wait for the bus, which carries data in both directions at once.
 * The others are short jobs of an owner that has used too much of the device's time for its jobs to pass
 * other owners' long ones.
 */

#define STREAM_SLOTS_SHORT  32
#define STREAM_SLOTS_URGENT 4
#define STREAM_SLOTS_LONG   8
#define STREAM_SLOTS        (STREAM_SLOTS_SHORT + STREAM_SLOTS_URGENT + STREAM_SLOTS_LONG)

enum job_weight {
	JOB_SHORT,
	JOB_URGENT, /* long, but passes other long jobs */
	JOB_LONG,
	JOB_BESIDE, /* passes no other job and does not wait for one */
};

/* A slot is one CUDA stream of the device. Jobs share it when all slots of its priority are busy. */
struct stream_slot {
	CUstream stream;
	enum stream_priority priority;
	uint32_t jobs; /* jobs under way on the stream */
	/* The flight (job under way) whose end is known to be the last thing on the stream. NULL: the stream
	 * is empty, or something that is not the end of a flight comes last. Only flight.c sets this to a
	 * flight. */
	struct flight *last;
};

struct stream_slots {
	struct stream_slot slot[STREAM_SLOTS]; /* in order of priority, highest first */
};

/* Returns the priority of slot i. */
enum stream_priority stream_slot_priority(int i);

/* Creates the streams. Returns 0 or the driver's error. stream_slots_deinit must follow even after an
 * error. */
int stream_slots_init(struct stream_slots *slots, struct error *err);
void stream_slots_deinit(struct stream_slots *slots);

/* Chooses a slot for a job of the given owner and weight that is about to start, and counts the job there.
 * last is the slot of the previous job in the same engine stream if that job is still under way, otherwise
 * NULL. Sets *ret_is_first to whether no other job is under way in the slot. */
struct stream_slot *stream_slots_take(struct stream_slots *slots, struct engine_owner *owner,
                                      struct stream_slot *last, enum job_weight weight, bool *ret_is_first);

/* Gives back the slot of a job that has ended. Returns whether the slot has no jobs under way any more. */
bool stream_slot_give(struct stream_slot *slot, struct engine_owner *owner, enum job_weight weight);

/* ---- Scratch memory ------------------------------------------------------------------------------------ */

/* Jobs stage host memory through one bounded allocation of device memory. It is allocated when it is first
 * needed and freed once it has been idle for scratch_idle_ns. A request gets the first gap that is large
 * enough. The ranges in use are linked through the users' own struct scratch_range, so that handing one out
 * allocates no host memory. */

struct scratch_range {
	uint64_t start; /* device address */
	uint64_t size;  /* bytes; 0: the range is not in use */
	TAILQ_ENTRY(scratch_range) entry;
};

struct scratch {
	uint64_t address; /* device address; 0: nothing is allocated */
	uint64_t size;
	TAILQ_HEAD(scratch_ranges, scratch_range) ranges; /* the ranges in use, by ascending address */
};

void scratch_init(struct scratch *scratch);

/* Allocates `most` bytes or, if the device does not have that much, half of it, a quarter and so on. Returns
 * 0, NO_MEMORY if not even a few KiB are free, or another error of the driver's. */
int scratch_open(struct scratch *scratch, uint64_t most, struct error *err);

/* Frees the allocation, if there is one. No range may be in use. Returns 0 or the driver's error. */
int scratch_close(struct scratch *scratch, struct error *err);

/* Returns whether a range of `size` bytes can be taken now. size must not be 0. */
bool scratch_has(const struct scratch *scratch, uint64_t size);

/* Returns the size in bytes of the largest range that can be taken now. */
uint64_t scratch_largest(const struct scratch *scratch);

/* Takes a range, for which scratch_has must have returned true. It starts at a multiple of SCRATCH_ALIGN. */
#define SCRATCH_ALIGN 256
void scratch_take(struct scratch *scratch, uint64_t size, struct scratch_range *ret);

/* Gives a range back; does nothing if it is not in use. */
void scratch_give(struct scratch *scratch, struct scratch_range *range);

/* ---- Equipment ----------------------------------------------------------------------------------------- */

enum pack_slot_state {
	PACK_SLOT_PACKING,
	PACK_SLOT_PACKED,    /* Its copy is held back for a moment (pack_job.c). */
	PACK_SLOT_COMING_IN, /* being copied to the device */
	PACK_SLOT_GOING_OUT, /* being copied to the host */
	PACK_SLOT_UNPACKING,
};

/* A pinned buffer, and the chunk of a job (packing.h) that passes through it. */
struct pack_slot {
	char *bytes;
	CUevent copied; /* recorded behind the chunk's copy */
	enum pack_slot_state state;
	struct pack_task task;
	struct pack_job *pack;
	uint64_t stretch;  /* number of the stretch that the chunk belongs to */
	uint64_t from, to; /* range of packed bytes that the chunk covers */
	/* In the list of the job, in the order in which chunks were begun, or in the free list. */
	TAILQ_ENTRY(pack_slot) entry;
};

TAILQ_HEAD(pack_slot_list, pack_slot);

/* Pinned memory for the list of blocks of a packed job. */
struct pack_list {
	void *memory;
	size_t bytes;
	SLIST_ENTRY(pack_list) entry;
};

/* The pinned buffers of the engine: enough to keep both directions of the bus busy, and few enough to stay in
 * the last-level cache, from which the device reads them. They are allocated when they are first needed and
 * freed once they have been idle for a while. */
struct pack_slots {
	uint32_t most;           /* number of slots to make */
	uint64_t bytes;          /* bytes of one slot */
	struct pack_slot *slots; /* array of `most` slots; NULL: not open */
	char *memory;
	uint32_t events; /* slots whose event has been created */
	uint32_t jobs;   /* jobs that share the slots now */
	struct pack_slot_list free;
	/* The lists that no job uses. There are never more lists than the largest number of packed jobs that
	 * were under way at the same time. */
	SLIST_HEAD(, pack_list) lists;
};

struct equipment {
	struct launcher launcher;
	struct map_cache maps; /* cache of tensor maps, which the launcher uses */
	struct cuda_plans *plans;
	/* Copies run on these two streams for packed jobs and for jobs that run in rounds. */
	CUstream copy_in;
	CUstream copy_out;
	struct pack_slots pack_slots;
	struct packers packers;
	/* Recorded on one stream just before another is made to wait for it (equipment_pass). */
	CUevent passed;
};

/* Opens everything except what is opened when it is first needed. The cache holds up to map_entries tensor
 * maps. equipment_deinit must follow even if this fails. Returns 0, NO_MEMORY or the driver's error. */
int equipment_init(struct equipment *equipment, const struct device *device, struct cuda_plans *plans,
                   const struct cuda_limits *limits, uint64_t map_entries, struct error *err);

/* Frees everything; zeroed equipment is allowed. If health is CUDA_LOST, no driver call is made, and pinned
 * memory stays allocated. */
void equipment_deinit(struct equipment *equipment, enum cuda_health health);

/* Makes later work on `to` wait for all earlier work on `from`. Returns 0 or the driver's error. */
int equipment_pass(struct equipment *equipment, CUstream from, CUstream to, struct error *err);

/* ---- Pinned buffers ------------------------------------------------------------------------------------ */

/* Opens the slots unless they are open. Returns 0, NO_MEMORY or the driver's error. */
int pack_slots_open(struct pack_slots *slots, struct error *err);

/* Frees the slots and the lists. None may be in use. */
void pack_slots_close(struct pack_slots *slots);

/* Returns how many slots one job may use in each direction. */
uint32_t pack_slots_share(const struct pack_slots *slots);

/* Returns a slot, or NULL if none is free. */
struct pack_slot *pack_slots_take(struct pack_slots *slots);
void pack_slots_give(struct pack_slots *slots, struct pack_slot *slot);

/* Returns a list with at least `bytes` bytes of uninitialized pinned memory, or NULL if there is no memory.
 * The slots must be open. */
struct pack_list *pack_slots_take_list(struct pack_slots *slots, size_t bytes, struct error *err);
void pack_slots_give_list(struct pack_slots *slots, struct pack_list *list);

#endif
