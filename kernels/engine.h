/* SPDX-License-Identifier: Apache-2.0 */
/* An engine maps memory, has streams, and runs jobs in a stream's order.
 *
 * An engine has threads of its own. It announces finished jobs in one way: from any of its threads it calls
 * the wake function given at open, and the owner then calls engine_reap on the owner's thread, which calls
 * each finished job's on_done there. Everything but engine_map, engine_make and engine_unmap is called from
 * the owner's thread; those three may block for long and may run on any.
 *
 * An owner may have several engines, one for each device. A memory belongs to the engine that mapped it; each
 * engine that is to use a client's memory has its own mapping of it.
 */
#ifndef KERNELS_ENGINE_H
#define KERNELS_ENGINE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "explanation.h"
#include "kernels/transform/aliases.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/layer_table.h"
#include "kernels/transform/transform.h"
#include "plan_key.h"
#include "proto/schema.h"
#include "proto/status.h"

struct backing;
struct engine;
struct engine_plan;
struct engine_stream;
struct plan_cache;

struct engine_options {
	/* CPU engine: number of threads; 0: one for each CPU that the process can keep busy */
	uint32_t threads;
	const char *device;   /* CUDA engine: an ordinal or a UUID; NULL: the first device that will do */
	uint64_t tensor_maps; /* CUDA engine: capacity of its cache of tensor maps */
	uint64_t plans;       /* capacity of the cache of plans; 0: none is kept */
	bool tunes;           /* The engine tries alternatives to plans that are used repeatedly. */
	/* Longest pause before a lost engine is started again, if it returns. */
	uint64_t restart_pause_ms;
	void (*wake)(void *arg); /* called from any thread; may coalesce */
	void *wake_arg;
	/* For an engine in a process of its own, this is an eventfd that the engine adds to when jobs have
	 * ended; the owner reads it and reaps. */
	int wake_fd;
	bool drives;   /* The owner promises to call engine_drive (see there). */
	bool is_guest; /* The process is another program's. The engine handles none of its signals, watches
	                  none of its files, starts no thread before a job needs one, and has engine->own;
	                  memory that fails under a job ends the process, as if the program had touched it
	                  itself. */
};

/* A part of a client's memory: an allocation, or memory that the engine has mapped. */
struct engine_part {
	int fd; /* descriptor of the allocation, or -1 if memory is given */
	/* The allocations are those of this memory, which stays mapped meanwhile; for a peer's handle it is
	 * memory of the other engine. NULL: fd is given. */
	struct engine_memory *memory;
	uint64_t offset; /* bytes from the start of what memory maps to the part's first allocation */
	uint64_t size;
};

/* Describes memory as a client gave it. The caller keeps fd. */
struct engine_handle {
	enum region_kind kind;
	int fd;          /* descriptor of a memfd, cuda_fd or cuda_pool; else -1 */
	uint64_t offset; /* bytes; need not be aligned */
	uint64_t size;
	bool writable;
	struct bytes handle; /* cuda_ipc: the handle; cuda_pool: an exported pointer */
	/* cuda_fd: bytes of the whole allocation, because a part cannot be mapped; 0 means that it ends with
	 * the region. cuda_pool: bytes from the exported pointer on. */
	uint64_t allocation;
	const struct engine_part
	    *parts;       /* cuda_fd: instead of fd, one after the other; offset is in all of them */
	uint32_t n_parts; /* number of parts; 0: fd is used */
	/* Once this is set, nobody waits for the memory any more, and slow steps give up and end as CANCELED.
	 * NULL: it is never set. */
	const atomic_bool *unwanted;
	/* Another engine has made or mapped the memory already, and the owner keeps it mapped there until it
	 * is unmapped here. It may be on another device, and is then reached as a peer's memory. If false,
	 * memory of another device is refused. */
	bool is_peer;
	/* The memory belongs to a user who could not harm the service in other ways: see may_stall of struct
	 * engine_memory. */
	bool is_untrusted;
	uint64_t user; /* if is_untrusted: any number that tells users apart */
};

/* Size of a CUDA IPC handle, and of a pointer exported from a pool, in bytes. */
#define ENGINE_HANDLE_BYTES 64

/* The client needs this to map memory that was made for it. */
struct engine_export {
	int fd;              /* memfd, cuda_fd: the caller closes it; else -1 */
	uint32_t handle_len; /* cuda_ipc: ENGINE_HANDLE_BYTES; else 0 */
	uint8_t handle[ENGINE_HANDLE_BYTES];
};

/* Memory that the engine can reach. The engine embeds it in a struct of its own. */
struct engine_memory {
	enum region_kind kind;
	bool writable;
	uint64_t size;
	uint64_t base; /* bytes from the start of the memory to the region */
	/* Address of the region's first byte, as the engine's moves use it. Distances are meaningful between
	 * two memories that the host can reach, and between two that it cannot (layer_table.h). */
	uint64_t address;
	void *host;         /* address of the region's first byte in this process; NULL: not mapped here */
	uint64_t memory[2]; /* identity: equal for two mappings of the same memory, where that is known */
	struct backing *backing; /* the file behind it, which the engine owns; NULL: it cannot fail */
	/* Allocations that other memories may share; NULL: it shares none. */
	struct memory_chunks *chunks;
	/* The host memory belongs to an untrusted user, who can keep a page of it missing for as long as he
	 * likes; then the kernel puts whoever touches the page to sleep, beyond the reach of signals. So only
	 * threads that belong to that user touch it. Once the file is sealed against writing and shrinking,
	 * no page of it can go, and it cannot stall any more: engine_memory_may_stall notices that. */
	atomic_bool may_stall;
	int seals;     /* If the memory may stall, this is a descriptor of its file, which belongs to the host
	                  memory behind it. */
	uint64_t user; /* If the memory may stall, this tells whose it is. */
	/* The memory may stall, and the engine's threads serve all users, so it is mapped but not usable yet.
	 * Jobs may name it once it has been sealed (engine_memory_seal) and then settled (engine_settle),
	 * which makes this false for good. */
	atomic_bool is_loose;
	/* The device was lost, and the memory could not be mapped again after the engine returned. Jobs that
	 * name it end as DEVICE_LOST. */
	atomic_bool is_gone;
};

/* Owners share the engine: each owner that has work gets as much time as any other, however many streams it
 * has and whatever its jobs cost. The caller embeds the struct and touches no field but the last two. It must
 * outlive its streams. */
struct engine_owner {
	uint32_t streams;
	uint64_t ns;                                 /* engine time that the owner has been charged for */
	TAILQ_HEAD(fair_streams, fair_stream) ready; /* streams whose job can go on */
	TAILQ_ENTRY(engine_owner) entry;
	/* An engine that runs several jobs of one owner at once uses these. */
	uint32_t running;
	uint32_t staging;
	uint64_t running_bytes;
	uint32_t long_jobs;
	struct stream_slot *long_slot; /* slot that its long jobs share; valid while long_jobs > 0 */
	uint32_t urgent_jobs;          /* urgent long jobs, which pass the others */
	/* Until this time of the monotonic clock its wake-ups are taken to be slow, because the last one was.
	 * Accessed atomically. */
	uint64_t slow_wakes_until_ns;
	bool is_untrusted; /* Memory of its own may stall (engine_memory). The caller sets this before the
	                      first stream. */
	bool is_stuck;     /* A thread that belongs to it does not come back. engine_note_stuck sets this. */
};

/* The scale or the bias of a conversion. */
struct engine_operand {
	double number;
	/* Memory of the tensor; NULL: number is used, if there is an operand at all. */
	struct engine_memory *memory;
	uint64_t offset; /* bytes of element [0, ..., 0] in the region */
};

/* A conversion with amax writes one number for each block here (struct amax). */
struct engine_result {
	struct engine_memory *memory; /* NULL: the numbers are not written */
	uint64_t offset;              /* bytes of element [0, ..., 0] in the region */
};

/* One transform between two places. */
struct engine_move {
	const struct transform *transform; /* the plan's */
	struct engine_plan *plan;          /* made by engine_prepare for these places */
	struct engine_memory *dst;
	struct engine_memory *src;
	uint64_t dst_offset; /* bytes of element [0, ..., 0] in the region */
	uint64_t src_offset;
	struct engine_operand scale, bias;
	struct engine_result amax_scale, amax_inverse;
	/* By the engine. */
	enum family family; /* family of the interior; set once the move has begun */
	uint64_t changed;   /* elements whose values an exact cast has changed */
	/* Status in a batch: 0, CANCELED, OUT_OF_RANGE (changed is not 0), DEVICE, DEVICE_LOST. */
	int status;
};

/* A point of a timeline is a 64-bit little-endian word in a region, at a multiple of 8 bytes of its memory.
 * It has come when (int64_t)(word - value) >= 0, as CU_STREAM_WAIT_VALUE_GEQ has it. */
struct engine_point {
	struct engine_memory *memory; /* NULL: no point */
	uint64_t offset;
	uint64_t value;
};

/* A job has this share of the engine. */
struct engine_share {
	enum job_priority priority; /* relative to other jobs of its owner */
	/* On a device: multiprocessors that each launch occupies at most; 0: all. */
	uint32_t multiprocessors;
	uint32_t host_threads; /* threads of the engine that move its bytes at once, at most; 0: all */
	/* The job ends as TIMEOUT if it has not begun by then, by the monotonic clock; 0: no deadline. */
	uint64_t begin_until_ns;
};

/* A job is one move, a move over a list of blocks, or a batch of moves. It starts when the stream's jobs
 * before it have ended and the point that it waits for has come; everything it wrote is visible to whoever
 * sees its signal. A job that does not end with status 0 signals nothing, with one exception: if the file of
 * pinned memory shrinks while the job is under way, that is found out only after the signal. */
struct engine_job {
	/* The submitter sets these; all must live until on_done. */
	struct engine_move move;
	struct engine_blocks *blocks; /* list of blocks to repeat the move over; NULL: the job has none */
	struct engine_move
	    *moves; /* a batch, in no order: none touches what another one writes; NULL: move */
	uint32_t n_moves;
	struct engine_point wait;
	/* Deadline of `wait` by the monotonic clock; then the job ends as TIMEOUT. */
	uint64_t wait_until_ns;
	struct engine_point signal;
	struct engine_share share;
	void (*on_done)(struct engine_job *job); /* called on the owner's thread by engine_reap */

	/* By the engine. */
	/* 0, CANCELED, TIMEOUT (nothing was moved), DEVICE (the memory failed under the copy) or DEVICE_LOST.
	 * A batch has the status that failed all of it, or that of the first move that failed. */
	int status;
	uint64_t ns; /* time that the engine took, without the wait */
	bool begun;  /* The job was started, and may have moved something. */
	/* ns is the time of the one move by itself: no other stream's job ran beside it, and on a device none
	 * of its bytes came from or went to the host or a peer. */
	bool is_measured;
	struct engine_job *next;
	struct engine_stream *stream; /* stream that it was submitted to; set by engines that need it */
};

/* This is where memory of the program lies, for an engine in a CUDA context of the program. */
enum engine_home {
	ENGINE_HOME_HOST,   /* no device reaches it: ordinary memory of the host, or no memory */
	ENGINE_HOME_PINNED, /* memory of the host that the driver has pinned */
	ENGINE_HOME_DEVICE, /* memory of any device, and managed memory */
};

/* A transfer carries bytes between memory of the host, wherever they lie in it, and one stretch of a device's
 * memory. It is divided into chunks, which follow each other on the device. */
#define ENGINE_CHUNK_BYTES (UINT64_C(2) << 20)

struct engine_transfer {
	uint64_t address; /* where the stretch begins on the device */
	uint64_t n_chunks;
	/* Returns the bytes of chunk i, 1 to ENGINE_CHUNK_BYTES. */
	uint64_t (*chunk_bytes)(const struct engine_transfer *transfer, uint64_t i);
	/* Reads chunk i from the host's memory into `chunk`, or writes it from there. It is called once for
	 * each chunk, in their order, on the thread that transfers. Returns 0, or an error, which ends the
	 * transfer. */
	int (*pack)(struct engine_transfer *transfer, uint64_t i, void *chunk, struct error *err);
};

/* These count the uses of a cache of tensor maps or of plans. Every miss of the plans' cache is a plan that
 * was made. */
struct engine_cache_stats {
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
	uint64_t entries;
};

/* The device counts these for jobs that were launched into the program's own streams. They only grow. */
struct engine_counts {
	uint64_t passed;  /* entries of -1 in lists that the device reads */
	uint64_t beyond;  /* entries of such lists that name no block */
	uint64_t changed; /* elements whose values an exact cast has changed */
	uint64_t unused;
};

/* How an engine's device reaches another one's memory. */
enum engine_link_kind {
	ENGINE_LINK_NONE, /* The device does not reach it. */
	ENGINE_LINK_PCIE, /* over the bus, without atomics */
	ENGINE_LINK_NVLINK,
};

struct engine_link {
	enum engine_link_kind kind;
	uint32_t
	    rank; /* 0: of the fastest links that the machine has; 1: of those that are next, and so on */
};

struct engine_ops {
	void (*close)(struct engine *engine);
	int (*map)(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
	           struct error *err);
	int (*create)(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
	              struct engine_export *ret_export, struct error *err);
	int (*settle)(struct engine *engine, struct engine_memory *memory, const atomic_bool *unwanted,
	              struct error *err); /* NULL if map leaves no memory loose */
	/* One step of engine_unmap_step. */
	bool (*unmap)(struct engine *engine, struct engine_memory *memory);
	struct engine_stream *(*stream_new)(struct engine *engine, struct engine_owner *owner);
	void (*stream_free)(struct engine_stream *stream);
	void (*submit)(struct engine_stream *stream, struct engine_job *job);
	void (*stream_cancel)(struct engine_stream *stream);
	bool (*cancel)(struct engine_stream *stream, struct engine_job *job);
	void (*reap)(struct engine *engine);
	bool (*drive)(struct engine *engine, uint64_t ns); /* NULL: its threads need no help */
	int (*probe)(struct engine *engine, struct error *err);
	void (*note_stuck)(struct engine *engine); /* NULL: owners have no threads of their own */
	/* NULL: the engine has no tensor maps */
	void (*cache_stats)(struct engine *engine, struct engine_cache_stats *ret);
	/* Does what engine_explain says. */
	int (*explain)(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
	               struct error *err);
	/* Adds the counts of plans that are kept outside of engine->plans; NULL if there are none. */
	void (*add_plan_stats)(struct engine *engine, struct engine_cache_stats *ret);
	void (*keep_plans)(struct engine *engine, uint64_t n);
	void (*tune)(struct engine *engine, bool tunes); /* NULL: there are no alternatives to a plan */
	/* NULL: there are no links */
	void (*link)(struct engine *engine, const char *uuid, struct engine_link *ret);
	/* Only an engine in a CUDA context of the program has these. They do what engine_launch,
	 * engine_find_home, engine_check_place, engine_counts_*, engine_scratch_*, engine_bring_*,
	 * engine_copy and engine_word_* say. Such an engine has no stream_new, submit, map or create. */
	int (*launch)(struct engine *engine, struct engine_job *job, void *stream, uint64_t counts,
	              struct error *err);
	int (*find_home)(struct engine *engine, uint64_t address, enum engine_home *ret, struct error *err);
	int (*check_place)(struct engine *engine, uint64_t address, const char *name, struct error *err);
	int (*counts_new)(struct engine *engine, uint64_t *ret, struct engine_counts *ret_now,
	                  struct error *err);
	void (*counts_free)(struct engine *engine, uint64_t counts);
	int (*counts_read)(struct engine *engine, uint64_t counts, void *stream, struct engine_counts *ret,
	                   struct error *err);
	int (*scratch_new)(struct engine *engine, uint64_t bytes, void *stream, uint64_t *ret,
	                   struct error *err);
	void (*scratch_free)(struct engine *engine, uint64_t address, void *stream);
	int (*bring_in)(struct engine *engine, struct engine_transfer *transfer, void *stream,
	                struct error *err);
	int (*bring_out)(struct engine *engine, struct engine_transfer *transfer, void *stream,
	                 struct error *err);
	int (*copy)(struct engine *engine, uint64_t dst, uint64_t src, uint64_t bytes, void *stream,
	            struct error *err);
	int (*word_read)(struct engine *engine, uint64_t address, uint64_t *ret, struct error *err);
	int (*word_signal)(struct engine *engine, uint64_t address, uint64_t value, void *stream,
	                   struct error *err);
	int (*word_wait)(struct engine *engine, uint64_t address, uint64_t value, void *stream,
	                 struct error *err);
	int (*word_reach)(struct engine *engine, uint64_t address, uint64_t *ret, bool *ret_is_pinned,
	                  struct error *err);
	void (*word_leave)(struct engine *engine, uint64_t address);
};

struct engine {
	const struct engine_ops *ops;
	const char *name; /* "cpu", "cuda" */
	char device[128]; /* description, such as "avx512, 2 threads" */
	/* UUID of the device that cuda_ipc and cuda_fd memory must be on, as "GPU-..."; "" for the CPU
	 * engine. */
	char uuid[48];
	char device_name[80];  /* name of the device; cpu: "" */
	uint64_t memory_bytes; /* memory of the device; cpu: 0 */
	struct plan_cache *plans;
	bool plans_by_phase;      /* Plans depend on the places' phases, not only on their alignment. */
	uint32_t multiprocessors; /* number that the device has; cpu: 0 */
	enum region_kind kind;    /* kind that create makes unless another is asked for */
	/* Access to a hole in a client's memfd fails, and allocates no page at the service's expense. */
	bool watches_holes;
	/* This stands for all memory of the process, if the engine is a guest in it: byte `offset` of it lies
	 * at the address own->base + offset. Whoever submits a job vouches for its places. It is never
	 * unmapped. NULL: the engine is no guest. */
	struct engine_memory *own;

	/* engine_reap sets this when the device has failed so that nothing can succeed in this process any
	 * more. Every job, including those submitted later, ends as DEVICE_LOST. If the engine returns, this
	 * is temporary and the owner need not do anything: it is woken when `lost` is false again, and memory
	 * that was mapped has been mapped again. */
	bool lost;
	char lost_why[256]; /* one sentence about the last loss */
	bool returns;
	uint32_t losses;   /* how many times it has been lost; 0 unless it returns */
	uint32_t failures; /* how many attempts to return have failed */
	uint32_t dropped;  /* memories that could not be mapped again so far (is_gone) */

	atomic_uint memories; /* mapped and created, and not yet unmapped */
};

/* Opens the CPU engine, whose regions are memfds that are mapped shared. */
int engine_cpu_open(struct engine **ret, const struct engine_options *options, struct error *err);

/* Opens the CUDA engine, which takes regions of every kind. Returns UNSUPPORTED, with a sentence that names
 * what is missing, if the build has no CUDA engine, or there is no driver or no suitable device. */
int engine_cuda_open(struct engine **ret, const struct engine_options *options, struct error *err);

/* Sets *ret to the engine of the CUDA context that is current in the calling thread. The stream, a CUstream,
 * must be of that context; if none is current, its own becomes current. An engine is opened at the first call
 * for its context, which loads the kernels, and is never closed: when the program destroys the context, the
 * engine stays allocated and is not used again. Returns 0, UNSUPPORTED if there is no driver or the device
 * will not do, INVALID_ARGUMENT for the stream, or another error of the driver's. Any thread may call this.
 */
int engine_cuda_of_stream(struct engine **ret, void *stream, struct error *err);

/* Returns whether the address is memory of a device, other than managed memory, as far as a CUDA driver that
 * the program has loaded and initialized tells the calling thread. */
bool engine_cuda_has(uint64_t address);

/* The first one returns the CUDA context that is current in the calling thread, or NULL if there is none or
 * no such driver. The second one makes a context current, for work that another thread has left to this one.
 * If the program has destroyed the context, the calls that follow fail. */
void *engine_cuda_context(void);
void engine_cuda_enter(void *context);

/* Adds what the caches of plans and of tensor maps have counted in all such engines. */
void engine_cuda_add_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* Returns how many devices there are, as ordinals that engine_cuda_open takes; some may not be suitable.
 * Returns an error if there is no driver. Any thread may call this or open an engine, and several engines may
 * be opened at once. */
int engine_cuda_count(struct error *err);

/* Every stream must have been freed, and every memory unmapped. NULL is allowed. */
static inline void engine_close(struct engine *engine)
{
	if (!engine)
		return;
	assert(atomic_load(&engine->memories) == 0);
	engine->ops->close(engine);
}

/* Counts a memory if map or create has returned r = 0. Returns r. */
static inline int engine_count_memory(struct engine *engine, int r)
{
	if (r == 0)
		atomic_fetch_add(&engine->memories, 1);
	return r;
}

/* Maps a client's memory. The fd of a memfd region must be a memfd or a file of tmpfs or hugetlbfs, at least
 * offset + size bytes long, writable unless handle->writable is false, and without holes in the range: the
 * client has to allocate its pages. Memory of an untrusted user may come back loose (struct engine_memory).
 * May block. */
static inline int engine_map(struct engine *engine, const struct engine_handle *handle,
                             struct engine_memory **ret, struct error *err)
{
	return engine_count_memory(engine, engine->ops->map(engine, handle, ret, err));
}

/* Makes new zeroed memory, and what to hand out for it. Only the kind, size and unwanted of the handle are
 * used. A memfd is sealed against shrinking and growing, and loses its pages when it is unmapped. Returns
 * UNSUPPORTED if the engine cannot make that kind. May block. */
static inline int engine_make(struct engine *engine, const struct engine_handle *wanted,
                              struct engine_memory **ret, struct engine_export *ret_export, struct error *err)
{
	return engine_count_memory(engine, engine->ops->create(engine, wanted, ret, ret_export, err));
}

/* Does the same for a caller that waits until it is done. */
static inline int engine_create(struct engine *engine, enum region_kind kind, uint64_t size,
                                struct engine_memory **ret, struct engine_export *ret_export,
                                struct error *err)
{
	const struct engine_handle wanted = { .kind = kind, .fd = -1, .size = size };

	return engine_make(engine, &wanted, ret, ret_export, err);
}

/* Makes loose memory, which has been sealed, memory that jobs may name. It returns 0, or an error as
 * engine_map does; the memory is then still loose. unwanted is as in struct engine_handle. The call may
 * block. */
static inline int engine_settle(struct engine *engine, struct engine_memory *memory,
                                const atomic_bool *unwanted, struct error *err)
{
	return atomic_load(&memory->is_loose) ? engine->ops->settle(engine, memory, unwanted, err) : 0;
}

/* Tells whether the engine makes host memory for a user. It makes none for untrusted ones if it could use the
 * memory only once it is sealed, because a sealed file keeps its pages for as long as somebody has its
 * descriptor. */
static inline bool engine_makes_host_memory(const struct engine *engine, bool is_untrusted)
{
	return !engine->ops->settle || !is_untrusted;
}

/* Does one step of unmapping, for callers that have other things to do in between. Returns whether it was the
 * last one; *memory is then gone. No job may use the memory from the first step on. Each step may be made by
 * another thread. Other threads of the process do not wait for a step, except where a device frees memory.
 * May block. */
static inline bool engine_unmap_step(struct engine *engine, struct engine_memory *memory)
{
	if (!engine->ops->unmap(engine, memory))
		return false;
	atomic_fetch_sub(&engine->memories, 1);
	return true;
}

/* Does all steps. NULL is allowed. */
static inline void engine_unmap(struct engine *engine, struct engine_memory *memory)
{
	while (memory && !engine_unmap_step(engine, memory))
		continue;
}

static inline void engine_owner_init(struct engine_owner *owner)
{
	*owner = (struct engine_owner){ 0 };
	TAILQ_INIT(&owner->ready);
}

static inline void engine_owner_deinit(struct engine_owner *owner)
{
	(void)owner;
	assert(owner->streams == 0);
}

/* Jobs of one stream run in the order submitted. Streams run side by side; those of one owner share the
 * owner's part of the engine. All streams of an owner belong to one engine. Returns NULL if out of memory. */
static inline struct engine_stream *engine_stream_new(struct engine *engine, struct engine_owner *owner)
{
	return engine->ops->stream_new(engine, owner);
}

/* The stream must have no jobs. NULL is allowed. */
static inline void engine_stream_free(struct engine *engine, struct engine_stream *stream)
{
	if (stream)
		engine->ops->stream_free(stream);
}

static inline void engine_submit(struct engine *engine, struct engine_stream *stream, struct engine_job *job)
{
	engine->ops->submit(stream, job);
}

/* Ends the stream's jobs that have not started as CANCELED (through engine_reap, like all). The one that runs
 * stops at its next piece and ends as CANCELED too. */
static inline void engine_stream_cancel(struct engine *engine, struct engine_stream *stream)
{
	engine->ops->stream_cancel(stream);
}

/* Cancels one job of the stream, which has been submitted and not reaped. If the job has not started, because
 * it waits for a point or for jobs before it, it ends as CANCELED without being started. Returns whether that
 * is so. */
static inline bool engine_cancel(struct engine *engine, struct engine_stream *stream, struct engine_job *job)
{
	return engine->ops->cancel(stream, job);
}

/* ---- Plans ------------------------------------------------------------------------------------------- */

/* Reduces the places to what this engine's plans depend on. */
static inline struct plan_places engine_places(const struct engine *engine, struct plan_places places)
{
	const uint8_t align = (uint8_t)(plan_places_align(places) % PLAN_ALIGN);

	return engine->plans_by_phase ? places : (struct plan_places){ .dst = align, .src = align };
}

/* Finds the plan of a layout for such places, or makes it. *ret holds a reference for the caller. A new plan
 * holds the checked transform; the engine makes its own part where and when it is first needed. Returns 0,
 * what transform_init does, or NO_MEMORY. May be called from any thread. */
int engine_prepare(struct engine *engine, const struct transform_spec *spec, struct plan_places places,
                   struct engine_plan **ret, struct error *err);

/* These are the halves of engine_prepare, for a caller that makes plans elsewhere. The key is made by
 * plan_key_init for engine_places. engine_find_plan returns NULL if there is no such plan; the key then has
 * its hash. engine_hash_key sets the key's hash if it has none. */
void engine_hash_key(const struct engine *engine, struct plan_key *key);
struct engine_plan *engine_find_plan(struct engine *engine, struct plan_key *key);
int engine_make_plan(struct engine *engine, struct plan_key *key, const struct transform_spec *spec,
                     struct plan_places places, struct engine_plan **ret, struct error *err);

/* These may be called from any thread, with NULL too. Every reference must have been dropped before the
 * engine is closed. */
void engine_plan_ref(struct engine_plan *plan);
void engine_plan_unref(struct engine_plan *plan);

const struct transform *engine_plan_transform(const struct engine_plan *plan);

/* Returns whether engine_prepare would find this plan for the same layout on that engine. */
bool engine_plan_suits(const struct engine_plan *plan, struct engine *engine, struct plan_places places);

/* Returns the bytes that the plan takes, which are the same for all places of a layout. */
uint64_t engine_plan_bytes(const struct engine_plan *plan);

/* Counts a run of the plan, which was alone in its job, and its time if that was measured. Must be called on
 * the owner's thread. */
void engine_plan_count(struct engine_plan *plan, uint64_t ns, bool is_measured);

struct engine_plan_runs engine_plan_runs(const struct engine_plan *plan);

/* Explains the plan. Returns 0, DEVICE_LOST if the engine is away, or NO_MEMORY. May be called from any
 * thread; it may block, and may take a millisecond. */
static inline int engine_explain(struct engine *engine, struct engine_plan *plan,
                                 struct engine_explanation *ret, struct error *err)
{
	return engine->ops->explain(engine, plan, ret, err);
}

void engine_plan_stats(struct engine *engine, struct engine_cache_stats *ret);

/* Sets how many plans the engine keeps, and evicts those beyond that number. */
void engine_keep_plans(struct engine *engine, uint64_t n);

/* Sets whether the engine tries alternatives to plans that are used repeatedly. What a move writes does not
 * depend on its plan. */
static inline void engine_tune(struct engine *engine, bool tunes)
{
	if (engine->ops->tune)
		engine->ops->tune(engine, tunes);
}

/* ---- Streams of the program's own ---------------------------------------------------------------------- */

/* An engine in a CUDA context of the program's launches jobs into streams of that context, in the order of
 * the calls, and does not wait for them. Any thread may call these functions; the context is current in it.
 */

/* Launches the job into the stream, which is a CUstream. Its memories are engine->own, and its places have
 * passed engine_check_place. Nothing of the job is needed once the call has returned, and on_done is not
 * called. The stream may be captured: then the job runs whenever the graph does. What the device counts of
 * the job is added to counts. Returns 0 with the families of its moves set, or an error; some of its moves
 * may then have been launched. */
static inline int engine_launch(struct engine *engine, struct engine_job *job, void *stream, uint64_t counts,
                                struct error *err)
{
	return engine->ops->launch(engine, job, stream, counts, err);
}

/* Sets *ret to where the memory at the address lies. Returns 0, or the driver's error. */
static inline int engine_find_home(struct engine *engine, uint64_t address, enum engine_home *ret,
                                   struct error *err)
{
	return engine->ops->find_home(engine, address, ret, err);
}

/* Checks that kernels of the context can reach memory at the address; errors call it name. Returns 0,
 * INVALID_ARGUMENT if the memory is of another context or is not known to the driver, or UNSUPPORTED if the
 * device does not reach the one that has it. */
static inline int engine_check_place(struct engine *engine, uint64_t address, const char *name,
                                     struct error *err)
{
	return engine->ops->check_place(engine, address, name, err);
}

/* Sets *ret to the address of counts on the device, and *ret_now to what they are. Returns 0, NO_MEMORY if
 * the engine has no more, or the driver's error. */
static inline int engine_counts_new(struct engine *engine, uint64_t *ret, struct engine_counts *ret_now,
                                    struct error *err)
{
	return engine->ops->counts_new(engine, ret, ret_now, err);
}

/* Gives counts back. Launches and graphs that use them go on adding, to whoever has them next. */
static inline void engine_counts_free(struct engine *engine, uint64_t counts)
{
	engine->ops->counts_free(engine, counts);
}

/* Waits for what is on the stream, which must not be captured, and reads the counts. Returns 0, or the
 * driver's error. */
static inline int engine_counts_read(struct engine *engine, uint64_t counts, void *stream,
                                     struct engine_counts *ret, struct error *err)
{
	return engine->ops->counts_read(engine, counts, stream, ret, err);
}

/* Sets *ret to so many bytes of the device, at a multiple of 256, for what follows on the stream until they
 * are freed there. bytes > 0. Returns 0, NO_MEMORY or the driver's error. */
static inline int engine_scratch_new(struct engine *engine, uint64_t bytes, void *stream, uint64_t *ret,
                                     struct error *err)
{
	return engine->ops->scratch_new(engine, bytes, stream, ret, err);
}

static inline void engine_scratch_free(struct engine *engine, uint64_t address, void *stream)
{
	engine->ops->scratch_free(engine, address, stream);
}

/* Brings a transfer's bytes to the device, after what is on the stream and before what follows on it: the
 * host's memory has been read when the call returns. Copies overlap with the packing of later chunks. May
 * wait for other threads' transfers. Returns 0, an error of pack, or the driver's. */
static inline int engine_bring_in(struct engine *engine, struct engine_transfer *transfer, void *stream,
                                  struct error *err)
{
	return engine->ops->bring_in(engine, transfer, stream, err);
}

/* Brings them to the host, after what is on the stream: they are there when the call returns. */
static inline int engine_bring_out(struct engine *engine, struct engine_transfer *transfer, void *stream,
                                   struct error *err)
{
	return engine->ops->bring_out(engine, transfer, stream, err);
}

/* Copies bytes between any two places, in the order of the stream, and waits for them. Only few should be
 * copied from or to ordinary memory of the host. */
static inline int engine_copy(struct engine *engine, uint64_t dst, uint64_t src, uint64_t bytes, void *stream,
                              struct error *err)
{
	return engine->ops->copy(engine, dst, src, bytes, stream, err);
}

/* Reads the word of a timeline that lies in memory of a device, whatever is on the program's streams. Returns
 * 0, or the driver's error. */
static inline int engine_word_read(struct engine *engine, uint64_t address, uint64_t *ret, struct error *err)
{
	return engine->ops->word_read(engine, address, ret, err);
}

/* Has the stream write the value to such a word, or to one of engine_word_reach, behind all that is on it
 * (struct engine_point). Returns as engine_word_wait does. */
static inline int engine_word_signal(struct engine *engine, uint64_t address, uint64_t value, void *stream,
                                     struct error *err)
{
	return engine->ops->word_signal(engine, address, value, stream, err);
}

/* Has what follows on the stream wait until such a word has come to the value. Returns 0; UNSUPPORTED if the
 * stream is captured and the driver takes no words into a graph; or the driver's error. */
static inline int engine_word_wait(struct engine *engine, uint64_t address, uint64_t value, void *stream,
                                   struct error *err)
{
	return engine->ops->word_wait(engine, address, value, stream, err);
}

/* Sets *ret to the address by which streams of the context know the word at an address of this process. A
 * word in ordinary memory of the host is pinned: then *ret_is_pinned is true, and engine_word_leave is called
 * once. Returns 0, UNSUPPORTED if no stream takes a word in such memory, or the driver's error. */
static inline int engine_word_reach(struct engine *engine, uint64_t address, uint64_t *ret,
                                    bool *ret_is_pinned, struct error *err)
{
	return engine->ops->word_reach(engine, address, ret, ret_is_pinned, err);
}

/* Gives such a word back. The last such call for a word waits for what is on the devices. */
static inline void engine_word_leave(struct engine *engine, uint64_t address)
{
	engine->ops->word_leave(engine, address);
}

/* ---- Progress ---------------------------------------------------------------------------------------- */

/* An owner whose options say `drives` calls this after it has submitted jobs and before it sleeps: only then
 * do sleeping threads of the engine learn of the jobs. Where waking a thread would take longer than the work,
 * the call does the work itself, for at most ns (0: not at all). Returns whether a job waits to be reaped. */
static inline bool engine_drive(struct engine *engine, uint64_t ns)
{
	return engine->ops->drive && engine->ops->drive(engine, ns);
}

/* Calls on_done for every job finished since the last call. */
static inline void engine_reap(struct engine *engine)
{
	engine->ops->reap(engine);
}

/* Asks each thread of the engine, and its device, for a sign of life, and checks that all those asked by the
 * last call have given one; the first call finds nothing wrong. A busy engine is not silent: a thread answers
 * between two pieces of its work. Returns TIMEOUT, with a sentence that names who is silent; that one is
 * asked nothing new until it has answered. The call does not wait. It is to be made every few seconds, which
 * is the time that they have. */
static inline int engine_probe(struct engine *engine, struct error *err)
{
	return engine->ops->probe(engine, err);
}

/* Notes in each untrusted owner whether threads that belong to it have given no sign of life since the last
 * call, because they do not return from its memory. The call does not wait. It is to be made every few
 * seconds. */
static inline void engine_note_stuck(struct engine *engine)
{
	if (engine->ops->note_stuck)
		engine->ops->note_stuck(engine);
}

/* Returns what has become of a client's memory, to explain why a job ended with DEVICE. SHRUNK: its file has
 * *ret_bytes, fewer than the region needs. PINS: the device has pages that the file had before it shrank, or
 * before one of its pages was taken away. GONE: is_gone is set. NONE: nothing is known. Does not block. */
enum engine_loss { ENGINE_LOSS_NONE, ENGINE_LOSS_SHRUNK, ENGINE_LOSS_PINS, ENGINE_LOSS_GONE };
enum engine_loss engine_memory_loss(const struct engine_memory *memory, uint64_t *ret_bytes);

/* Returns whether a thread that touches the memory may be put to sleep by the memory's owner (may_stall of
 * struct engine_memory). Once it is false it stays false; memory of a device never stalls. Any thread may
 * call this; it does not block. */
bool engine_memory_may_stall(struct engine_memory *memory);

/* Seals the file of loose memory against writing and shrinking, so that it cannot stall any more; nobody can
 * map the file for writing from then on. It returns 0; UNSUPPORTED if the kernel does not
 * seal the file, INVALID_ARGUMENT if the file has a hole, and BUSY if its owner keeps it busy. It may be
 * called from any thread, and waits for 2 s at most. */
int engine_memory_seal(struct engine_memory *memory, const atomic_bool *unwanted, struct error *err);

/* A client can make its memory fail under whoever touches it, so an owner touches it, through `host`, only in
 * a guard. engine_guard runs work(arg), which touches no client's memory but the size bytes at start. It
 * returns false if the memory failed; work was then abandoned where it stood, so it must own nothing that has
 * to be released. Guards do not nest. Any thread may use them between engine_guard_init and
 * engine_guard_deinit, which are counted. */
int engine_guard_init(void); /* 0 or negative errno */
void engine_guard_deinit(void);
bool engine_guard(const void *start, size_t size, void (*work)(void *arg), void *arg);

/* Sets *ret to the link between the engine's device and the one with that UUID. */
static inline void engine_link(struct engine *engine, const char *uuid, struct engine_link *ret)
{
	*ret = (struct engine_link){ .kind = ENGINE_LINK_NONE };
	if (engine->ops->link)
		engine->ops->link(engine, uuid, ret);
}

/* Returns the counts of the cache of tensor maps, which are zeros for an engine without one. */
static inline void engine_cache_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	*ret = (struct engine_cache_stats){ 0 };
	if (engine->ops->cache_stats)
		engine->ops->cache_stats(engine, ret);
}

#endif
