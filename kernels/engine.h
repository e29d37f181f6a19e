/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between an engine and its owner. An engine maps memory, has streams, and runs the jobs of
 * each stream in order. A job carries out moves; a move executes one transform between two places, and a
 * place is the address of a tensor's element [0, ..., 0].
 *
 * An engine has threads of its own. It announces finished jobs in one way: from any of its threads it calls
 * the wake function given at open, and the owner then calls engine_reap on the owner's thread, which calls
 * each finished job's on_done there. Unless its comment says otherwise, a function is called on the owner's
 * thread. engine_map, engine_make, engine_settle and engine_unmap may block for long and may run on any
 * thread.
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
	/* CPU engine: number of threads; 0 means one for each CPU that the process can keep busy. */
	uint32_t threads;
	const char *device;   /* CUDA engine: an ordinal or a UUID; NULL: the first suitable device */
	uint64_t tensor_maps; /* CUDA engine: capacity of its cache of tensor maps */
	uint64_t plans;       /* capacity of the cache of plans; 0: none is kept */
	bool tunes;           /* The engine tries alternatives to plans that are used repeatedly. */
	/* Longest pause in ms before a lost engine is started again, if it restarts at all
	 * (engine.returns). */
	uint64_t restart_pause_ms;
	void (*wake)(void *arg); /* called from any thread; one call may stand for several jobs */
	void *wake_arg;
	/* An engine in a process of its own adds to this eventfd when jobs have ended; the owner reads it and
	 * calls engine_reap. */
	int wake_fd;
	/* The owner promises to call engine_drive whenever the comment of that function demands it. */
	bool drives;
	/* The process is another program's. The engine installs no signal handlers and watches no files in
	 * it, starts no thread before a job needs one, and sets engine->own. If memory fails while a job
	 * touches it, the process gets a SIGBUS, as if the program had touched the memory itself. */
	bool is_guest;
};

/* A part of a client's memory: an allocation, or memory that the engine has mapped. */
struct engine_part {
	int fd; /* descriptor of the allocation, or -1 if memory is given */
	/* This memory holds the allocations and stays mapped while the part is in use. For a peer's handle it
	 * is memory of the other engine. NULL: fd is given. */
	struct engine_memory *memory;
	uint64_t offset; /* bytes from the start of the memory's mapping to the part's first allocation */
	uint64_t size;
};

/* Memory as a client described it. The caller keeps ownership of fd. */
struct engine_handle {
	enum region_kind kind;
	int fd;          /* descriptor of a memfd, cuda_fd or cuda_pool; else -1 */
	uint64_t offset; /* bytes; need not be aligned */
	uint64_t size;
	bool writable;
	struct bytes handle; /* cuda_ipc: the handle; cuda_pool: an exported pointer */
	/* cuda_fd: bytes of the whole allocation, because a part of one cannot be mapped; 0 means that the
	 * allocation ends with the region. cuda_pool: bytes from the exported pointer on. */
	uint64_t allocation;
	/* cuda_fd: parts that are mapped one after the other instead of fd; offset counts from the start of
	 * the first. */
	const struct engine_part *parts;
	uint32_t n_parts; /* number of parts; 0: fd is used */
	/* Somebody sets this once nobody waits for the memory any more: slow steps then give up and return
	 * CANCELED. NULL: nobody ever does. */
	const atomic_bool *unwanted;
	/* Another engine has made or mapped the memory already, and the owner keeps it mapped there until it
	 * is unmapped here. It may lie on another device, whose memory is then accessed as a peer's. If
	 * false, memory of another device is refused. */
	bool is_peer;
	/* The memory belongs to a user whom the service does not trust. Such a user could make its memory
	 * stall: see may_stall of struct engine_memory. */
	bool is_untrusted;
	uint64_t user; /* any number that tells users apart; used only if is_untrusted */
};

/* Size of a CUDA IPC handle, and of a pointer exported from a pool, in bytes. */
#define ENGINE_HANDLE_BYTES 64

/* Everything that a client needs to map memory that the service has made for it. */
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
	uint64_t base; /* bytes from the start of the underlying memory to the region */
	/* Address of the region's first byte, as the engine's moves use it. The difference of two addresses
	 * is meaningful if both memories are reachable by the host, or if neither is (layer_table.h). */
	uint64_t address;
	void *host; /* address of the region's first byte in this process; NULL: not mapped here */
	/* Identity of the underlying memory; equal for two mappings of it wherever that can be known. */
	uint64_t memory[2];
	/* The file behind the memory, owned by the engine; NULL: the memory cannot fail. */
	struct backing *backing;
	/* Allocations that this memory may share with other memories. NULL: it shares none. */
	struct memory_chunks *chunks;
	/* The host memory belongs to an untrusted user, who can keep a page of it missing for as long as he
	 * likes. The kernel then puts any thread that touches the page to sleep, beyond the reach of signals,
	 * so only threads that belong to that user may touch the memory. Once its file is sealed against
	 * writing and shrinking, no page can go missing and the memory cannot stall any more;
	 * engine_memory_may_stall notices that and clears this field. */
	atomic_bool may_stall;
	/* Descriptor of the memory's file, through which seals are added; valid if the memory may stall. The
	 * host memory behind this memory owns it. */
	int seals;
	uint64_t user; /* number of the user whose memory it is; valid if the memory may stall */
	/* The memory may stall, and this engine's threads serve all users, so the memory is mapped but not
	 * usable yet. Jobs may name it once it has been sealed (engine_memory_seal) and then settled
	 * (engine_settle), which makes this false for good. */
	atomic_bool is_loose;
	/* The device was lost, and the memory could not be mapped again after the engine returned. Jobs that
	 * name it end as DEVICE_LOST. */
	atomic_bool is_gone;
};

/* The engine's time is shared among owners: each owner that has work gets as much time as any other, however
 * many streams it has and whatever its jobs cost. The caller embeds the struct and touches
 * no field but the last two. It must outlive its streams. */
struct engine_owner {
	uint32_t streams;
	/* Engine time in ns that the owner has been charged for. */
	uint64_t ns;
	TAILQ_HEAD(fair_streams, fair_stream) ready; /* streams whose job can go on */
	TAILQ_ENTRY(engine_owner) entry;
	/* The next fields are used by an engine that runs several jobs of one owner at once. They count those
	 * jobs: `running` all of them, `staging` those that take more than a single launch or copy, and
	 * `running_bytes` the bytes of those that are neither long nor urgent. */
	uint32_t running;
	uint32_t staging;
	uint64_t running_bytes;
	uint32_t long_jobs;
	struct stream_slot *long_slot; /* stream slot that these long jobs share; valid while long_jobs > 0 */
	uint32_t urgent_jobs;          /* urgent jobs; they are long too, but pass other long jobs */
	/* Until this time of the monotonic clock, in ns, wake-ups for this owner are assumed to be slow,
	 * because the last one was. Accessed atomically. */
	uint64_t slow_wakes_until_ns;
	/* The owner's memory may stall (struct engine_memory). The caller sets this before it makes the first
	 * stream. */
	bool is_untrusted;
	/* A thread that serves only this owner hangs in an access to the owner's memory. Set by
	 * engine_note_stuck. */
	bool is_stuck;
};

/* The scale or the bias of a conversion (struct conversion), or one of the two results of a conversion with
 * amax (struct amax), which writes one number for each block there. */
struct engine_operand {
	double number; /* the scale or bias if memory is NULL; 0: there is none */
	/* Memory of the operand's tensor; NULL: the operand is `number`, or the result is not written. */
	struct engine_memory *memory;
	uint64_t offset; /* bytes from the region's start to element [0, ..., 0] */
};

/* A move: one transform between two places. */
struct engine_move {
	const struct transform *transform; /* the plan's transform */
	struct engine_plan *plan;          /* made by engine_prepare for these places */
	struct engine_memory *dst;
	struct engine_memory *src;
	uint64_t dst_offset; /* bytes from the region's start to element [0, ..., 0] */
	uint64_t src_offset;
	struct engine_operand operand[ROLE_COUNT];
	/* The engine sets the rest. */
	enum family family; /* how the interior moves; set once the move has begun */
	uint64_t changed;   /* elements whose values an exact cast has changed */
	/* Status of the move in a batch: 0, CANCELED, OUT_OF_RANGE (changed is not 0), DEVICE or
	 * DEVICE_LOST. */
	int status;
};

/* A point of a timeline: a 64-bit little-endian word in a region, at a multiple of 8 bytes of its memory, and
 * a value. The point has come when (int64_t)(word - value) >= 0, the same comparison as
 * CU_STREAM_WAIT_VALUE_GEQ. */
struct engine_point {
	struct engine_memory *memory; /* NULL: there is no point */
	uint64_t offset;
	uint64_t value;
};

/* Limits and rank that a job has beside other jobs. */
struct engine_share {
	enum job_priority priority; /* relative to other jobs of its owner */
	/* On a device: maximum number of multiprocessors that each launch occupies; 0: all. */
	uint32_t multiprocessors;
	uint32_t host_threads; /* maximum number of threads of the engine that move the job's bytes at once;
	                          0: all */
	/* If the job has not begun by this time of the monotonic clock, in ns, it ends as TIMEOUT; 0: no
	 * deadline. */
	uint64_t begin_until_ns;
};

/* A job is one move, a move repeated over a list of blocks, or a batch of moves. It starts when the stream's
 * earlier jobs have ended and the point that it waits for has come. Whoever sees its signal also sees
 * everything that the job wrote. A job that does not end with status 0 signals nothing, with one exception:
 * if the file of pinned memory shrinks while the job is under way, that is found out only after the
 * signal. */
struct engine_job {
	/* The submitter sets these fields. Everything that they point to must live until on_done. */
	struct engine_move move;
	struct engine_blocks *blocks; /* list of blocks over which `move` is repeated; NULL: there is none */
	/* Batch of moves, which may run in any order because none touches what another one writes. NULL: the
	 * job is `move`. */
	struct engine_move *moves;
	uint32_t n_moves;
	struct engine_point wait;
	/* If the point `wait` has not come by this time of the monotonic clock, in ns, the job ends as
	 * TIMEOUT. */
	uint64_t wait_until_ns;
	struct engine_point signal;
	struct engine_share share;
	void (*on_done)(struct engine_job *job); /* called on the owner's thread by engine_reap */

	/* The engine sets the rest. */
	/* 0, CANCELED, TIMEOUT (nothing was moved), DEVICE (the memory failed during the copy) or
	 * DEVICE_LOST. A batch has the status that failed all of it, or else that of the first move that
	 * failed. */
	int status;
	uint64_t ns; /* time in ns that the engine took, without the wait */
	bool begun;  /* the job was started and may have moved something */
	/* `ns` is the time of a single move that ran alone: no other stream's job ran at the same time, and
	 * on a device none of its bytes came from or went to the host or a peer. */
	bool is_measured;
	struct engine_job *next;
	/* Stream that the job was submitted to; set only by engines that need it. */
	struct engine_stream *stream;
};

/* The kind of memory at an address of the program, as seen by an engine in one of the program's CUDA
 * contexts. */
enum engine_home {
	ENGINE_HOME_HOST,   /* no device can reach it: pageable host memory, or no memory at all */
	ENGINE_HOME_PINNED, /* host memory that the driver has pinned */
	ENGINE_HOME_DEVICE, /* memory of any device, or managed memory */
};

/* A transfer carries bytes between host memory, where they may lie anywhere, and one contiguous range of
 * device memory. It is divided into chunks, which are consecutive in the device's range. */
#define ENGINE_CHUNK_BYTES (UINT64_C(2) << 20)

struct engine_transfer {
	uint64_t address; /* device address of the range's first byte */
	uint64_t n_chunks;
	/* Returns the bytes of chunk i, from 1 to ENGINE_CHUNK_BYTES. */
	uint64_t (*chunk_bytes)(const struct engine_transfer *transfer, uint64_t i);
	/* To the device: gathers chunk i from host memory into `chunk`. To the host: scatters `chunk` to host
	 * memory. Called once for each chunk, in ascending order, on the thread that transfers. Returns 0, or
	 * an error, which ends the transfer. */
	int (*pack)(struct engine_transfer *transfer, uint64_t i, void *chunk, struct error *err);
};

/* Counters of a cache, either of tensor maps or of plans. In the cache of plans, each miss is a plan that was
 * made. */
struct engine_cache_stats {
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
	uint64_t entries;
};

/* The device adds to these counters for jobs that were launched into the program's own streams. They only
 * grow. */
struct engine_counts {
	uint64_t passed;  /* list entries skipped because they are -1, in lists that the device reads */
	uint64_t beyond;  /* list entries skipped because they name no block */
	uint64_t changed; /* elements whose values an exact cast has changed */
	uint64_t unused;
};

/* The way in which an engine's device reaches another one's memory. */
enum engine_link_kind {
	ENGINE_LINK_NONE, /* the device cannot reach the other's memory */
	ENGINE_LINK_PCIE, /* over the bus, without atomics */
	ENGINE_LINK_NVLINK,
};

struct engine_link {
	enum engine_link_kind kind;
	/* Rank of the link's speed: 0 for the fastest links of the machine, 1 for the next slower ones, and
	 * so on. */
	uint32_t rank;
};

struct engine_ops {
	void (*close)(struct engine *engine);
	int (*map)(struct engine *engine, const struct engine_handle *handle, struct engine_memory **ret,
	           struct error *err);
	int (*create)(struct engine *engine, const struct engine_handle *wanted, struct engine_memory **ret,
	              struct engine_export *ret_export, struct error *err);
	int (*settle)(struct engine *engine, struct engine_memory *memory, const atomic_bool *unwanted,
	              struct error *err); /* NULL if map leaves no memory loose */
	/* Does one step of unmapping, as engine_unmap_step describes. */
	bool (*unmap)(struct engine *engine, struct engine_memory *memory);
	struct engine_stream *(*stream_new)(struct engine *engine, struct engine_owner *owner);
	void (*stream_free)(struct engine_stream *stream);
	void (*submit)(struct engine_stream *stream, struct engine_job *job);
	void (*stream_cancel)(struct engine_stream *stream);
	bool (*cancel)(struct engine_stream *stream, struct engine_job *job);
	void (*reap)(struct engine *engine);
	bool (*drive)(struct engine *engine, uint64_t ns); /* NULL if the engine's threads need no help */
	int (*probe)(struct engine *engine, struct error *err);
	void (*note_stuck)(struct engine *engine); /* NULL if owners have no threads of their own */
	/* NULL if the engine has no tensor maps. */
	void (*cache_stats)(struct engine *engine, struct engine_cache_stats *ret);
	/* See engine_explain. */
	int (*explain)(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
	               struct error *err);
	/* Adds the counters of plans that are kept outside of engine->plans. NULL if there are none. */
	void (*add_plan_stats)(struct engine *engine, struct engine_cache_stats *ret);
	void (*keep_plans)(struct engine *engine, uint64_t n);
	void (*tune)(struct engine *engine, bool tunes); /* NULL if there are no alternatives to a plan */
	/* NULL if the device has no links to other devices. */
	void (*link)(struct engine *engine, const char *uuid, struct engine_link *ret);
	/* Only an engine in a CUDA context of the program has the following functions. Each does what the
	 * inline function of its name describes (engine_launch, engine_find_home and so on). Such an engine
	 * has no stream_new, submit, map or create. */
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
	const char *name; /* "cpu" or "cuda" */
	char device[128]; /* description, such as "avx512, 2 threads" */
	/* UUID of the device that cuda_ipc and cuda_fd memory must be on, as "GPU-..."; "" for the CPU
	 * engine. */
	char uuid[48];
	char device_name[80];  /* name of the device; "" for the CPU engine */
	uint64_t memory_bytes; /* bytes of the device's memory; 0 for the CPU engine */
	struct plan_cache *plans;
	/* Plans depend on both addresses modulo PLAN_PHASE, not only on their common alignment. */
	bool plans_by_phase;
	uint32_t multiprocessors; /* number of multiprocessors of the device; 0 for the CPU engine */
	enum region_kind kind;    /* kind of memory that create makes unless another is asked for */
	/* Access to a hole in a client's memfd fails; it does not allocate a page at the service's
	 * expense. */
	bool watches_holes;
	/* Stands for all memory of the process if the engine is a guest in it: the byte at `offset` of this
	 * memory has the address own->base + offset. Whoever submits a job guarantees that its places are
	 * valid. Never unmapped. NULL: the engine is no guest. */
	struct engine_memory *own;

	/* engine_reap sets this when the device has failed in such a way that nothing can succeed in this
	 * process any more. Every job, including those submitted later, ends as DEVICE_LOST. If `returns` is
	 * true, the loss is temporary and the owner need not do anything: it is woken when `lost` is false
	 * again, and by then the engine has mapped its memories again. */
	bool lost;
	char lost_why[256]; /* one sentence that explains the last loss */
	bool returns;
	uint32_t losses;   /* number of times that the engine has been lost; 0 unless it returns */
	uint32_t failures; /* number of failed attempts to return */
	uint32_t dropped;  /* number of memories that could not be mapped again so far (is_gone) */

	atomic_uint memories; /* number of memories that have been mapped or created and not yet unmapped */
};

/* Opens the CPU engine, whose regions are memfds that are mapped shared. */
int engine_cpu_open(struct engine **ret, const struct engine_options *options, struct error *err);

/* Opens the CUDA engine, which takes regions of every kind. Returns UNSUPPORTED, with a sentence that names
 * what is missing, if the build has no CUDA engine, or there is no driver or no suitable device. */
int engine_cuda_open(struct engine **ret, const struct engine_options *options, struct error *err);

/* Sets *ret to the engine of the CUDA context that is current in the calling thread. The stream, a CUstream,
 * must belong to that context; if no context is current, that of the stream becomes current. An engine is
 * opened at the first call for its context, which loads the kernels, and is never closed: when the program
 * destroys the context, the engine stays allocated and is not used again. Returns 0, UNSUPPORTED if there is
 * no driver or the device is not suitable, INVALID_ARGUMENT if the stream is wrong, or another error of the
 * driver. Any thread may call this. */
int engine_cuda_of_stream(struct engine **ret, void *stream, struct error *err);

/* Returns whether the address is device memory other than managed memory, as far as the calling thread can
 * learn that from a CUDA driver that the program has loaded and initialized. */
bool engine_cuda_has(uint64_t address);

/* engine_cuda_context returns the CUDA context that is current in the calling thread, or NULL if there is
 * none or the program has initialized no driver. engine_cuda_enter makes a context current in the calling
 * thread, which is to do work on behalf of the thread that called engine_cuda_context. If the program has
 * destroyed the context, the calls that follow fail. */
void *engine_cuda_context(void);
void engine_cuda_enter(void *context);

/* Adds the counters of the plan caches and of the tensor map caches of all engines that engine_cuda_of_stream
 * has opened. */
void engine_cuda_add_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* Returns how many devices there are, as ordinals that engine_cuda_open takes; some may not be suitable.
 * Returns an error if there is no driver. Any thread may call this or open an engine, and several engines may
 * be opened at once. */
int engine_cuda_count(struct error *err);

/* Closes the engine. Every stream must have been freed and every memory unmapped. engine may be NULL. */
static inline void engine_close(struct engine *engine)
{
	if (!engine)
		return;
	assert(atomic_load(&engine->memories) == 0);
	engine->ops->close(engine);
}

/* Counts one more memory if r, the result of map or create, is 0. Returns r. */
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

/* Makes new zeroed memory, and sets *ret_export to what is handed out for it. Only the kind, size and
 * unwanted of the handle are used. A memfd is sealed against shrinking and growing, and loses its pages when
 * it is unmapped. Returns UNSUPPORTED if the engine cannot make that kind. May block. */
static inline int engine_make(struct engine *engine, const struct engine_handle *wanted,
                              struct engine_memory **ret, struct engine_export *ret_export, struct error *err)
{
	return engine_count_memory(engine, engine->ops->create(engine, wanted, ret, ret_export, err));
}

/* Does what engine_make does, for a caller that never gives up early. */
static inline int engine_create(struct engine *engine, enum region_kind kind, uint64_t size,
                                struct engine_memory **ret, struct engine_export *ret_export,
                                struct error *err)
{
	const struct engine_handle wanted = { .kind = kind, .fd = -1, .size = size };

	return engine_make(engine, &wanted, ret, ret_export, err);
}

/* Makes a loose memory that has been sealed usable for jobs. Returns 0, or an error as engine_map does; the
 * memory is then still loose. unwanted is as in struct engine_handle. May block. */
static inline int engine_settle(struct engine *engine, struct engine_memory *memory,
                                const atomic_bool *unwanted, struct error *err)
{
	return atomic_load(&memory->is_loose) ? engine->ops->settle(engine, memory, unwanted, err) : 0;
}

/* Returns whether the engine makes host memory for a user. Some engines can use an untrusted user's memory
 * only once it is sealed. They make none for such users, because a sealed file keeps its pages for as long as
 * somebody holds a descriptor of it. */
static inline bool engine_makes_host_memory(const struct engine *engine, bool is_untrusted)
{
	return !engine->ops->settle || !is_untrusted;
}

/* Does one step of unmapping, for callers that have other things to do in between. Returns whether this was
 * the last step; *memory has then been freed. No job may use the memory from the first step on. Different
 * threads may do the steps. No other thread of the process has to wait for a step to end, except where a
 * device frees memory. May block. */
static inline bool engine_unmap_step(struct engine *engine, struct engine_memory *memory)
{
	if (!engine->ops->unmap(engine, memory))
		return false;
	atomic_fetch_sub(&engine->memories, 1);
	return true;
}

/* Calls engine_unmap_step until the last step is done. memory may be NULL. */
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

/* Jobs of one stream run in the order submitted. Streams run concurrently; those of one owner share the
 * owner's part of the engine's time. All streams of an owner belong to one engine. Returns NULL if out of
 * memory. */
static inline struct engine_stream *engine_stream_new(struct engine *engine, struct engine_owner *owner)
{
	return engine->ops->stream_new(engine, owner);
}

/* The stream must have no jobs. stream may be NULL. */
static inline void engine_stream_free(struct engine *engine, struct engine_stream *stream)
{
	if (stream)
		engine->ops->stream_free(stream);
}

static inline void engine_submit(struct engine *engine, struct engine_stream *stream, struct engine_job *job)
{
	engine->ops->submit(stream, job);
}

/* Ends those jobs of the stream that have not started as CANCELED; as for all jobs, engine_reap reports their
 * end. The running job stops before its next piece and ends as CANCELED too. */
static inline void engine_stream_cancel(struct engine *engine, struct engine_stream *stream)
{
	engine->ops->stream_cancel(stream);
}

/* Cancels one job of the stream, which has been submitted and not reaped. A job that has not started, because
 * it waits for a point or for jobs before it, ends as CANCELED without being started. Returns whether the job
 * had not started. */
static inline bool engine_cancel(struct engine *engine, struct engine_stream *stream, struct engine_job *job)
{
	return engine->ops->cancel(stream, job);
}

/* ---- Plans ------------------------------------------------------------------------------------------- */

/* Returns the places, reduced to what this engine's plans depend on: both phases, or only the common
 * alignment. */
static inline struct plan_places engine_places(const struct engine *engine, struct plan_places places)
{
	const uint8_t align = (uint8_t)(plan_places_align(places) % PLAN_ALIGN);

	return engine->plans_by_phase ? places : (struct plan_places){ .dst = align, .src = align };
}

/* Finds the plan of the spec for such places, or makes it. *ret holds a reference for the caller. A new plan
 * holds the checked transform; the engine makes its own part of the plan when that is first needed. Returns
 * 0, an error of transform_init, or NO_MEMORY. May be called from any thread. */
int engine_prepare(struct engine *engine, const struct transform_spec *spec, struct plan_places places,
                   struct engine_plan **ret, struct error *err);

/* The two halves of engine_prepare, for a caller that makes the plan later or on another thread if it is not
 * found. The key must have been made by plan_key_init from places that engine_places has reduced.
 * engine_hash_key sets the key's hash if it has none. engine_find_plan returns NULL if there is no such plan;
 * the key's hash is then set too. */
void engine_hash_key(const struct engine *engine, struct plan_key *key);
struct engine_plan *engine_find_plan(struct engine *engine, struct plan_key *key);
int engine_make_plan(struct engine *engine, struct plan_key *key, const struct transform_spec *spec,
                     struct plan_places places, struct engine_plan **ret, struct error *err);

/* Take and drop a reference. May be called from any thread; engine_plan_unref allows NULL. Every reference
 * must have been dropped before the engine is closed. */
void engine_plan_ref(struct engine_plan *plan);
void engine_plan_unref(struct engine_plan *plan);

const struct transform *engine_plan_transform(const struct engine_plan *plan);

/* Returns whether engine_prepare would find this plan for the same layout on that engine. */
bool engine_plan_suits(const struct engine_plan *plan, struct engine *engine, struct plan_places places);

/* Returns the bytes of memory that the plan occupies, which do not depend on its places. */
uint64_t engine_plan_bytes(const struct engine_plan *plan);

/* Counts a run of the plan by a job that consisted of it alone. If is_measured, ns is the run's time and is
 * recorded too. Must be called on the owner's thread. */
void engine_plan_count(struct engine_plan *plan, uint64_t ns, bool is_measured);

struct engine_plan_runs engine_plan_runs(const struct engine_plan *plan);

/* Explains the plan. Returns 0, DEVICE_LOST if the engine is lost and has not returned yet, or NO_MEMORY. May
 * be called from any thread; it may block, and may take a millisecond. */
static inline int engine_explain(struct engine *engine, struct engine_plan *plan,
                                 struct engine_explanation *ret, struct error *err)
{
	return engine->ops->explain(engine, plan, ret, err);
}

void engine_plan_stats(struct engine *engine, struct engine_cache_stats *ret);

/* Sets the number of plans that the engine keeps, and evicts plans beyond it. */
void engine_keep_plans(struct engine *engine, uint64_t n);

/* Sets whether the engine tries alternatives to plans that are used repeatedly. What a move writes does not
 * depend on its plan. */
static inline void engine_tune(struct engine *engine, bool tunes)
{
	if (engine->ops->tune)
		engine->ops->tune(engine, tunes);
}

/* ---- Streams of the program's own ---------------------------------------------------------------------- */

/* An engine in a CUDA context of the program launches jobs into streams of that context, in the order of the
 * calls, and does not wait for them. Any thread may call the functions of this section; the engine's context
 * must be current in it. */

/* Launches the job into the stream, which is a CUstream. All memories of the job must be engine->own, and
 * engine_check_place must have accepted its places. The caller may free the job once the call has returned;
 * on_done is not called. The stream may be in capture mode: the job then runs whenever the graph does. The
 * device adds the job's counters to counts, an address that engine_counts_new has returned. Returns 0 with
 * the families of the job's moves set, or an error; some of the moves may then have been launched. */
static inline int engine_launch(struct engine *engine, struct engine_job *job, void *stream, uint64_t counts,
                                struct error *err)
{
	return engine->ops->launch(engine, job, stream, counts, err);
}

/* Sets *ret to the kind of memory at the address. Returns 0, or the driver's error. */
static inline int engine_find_home(struct engine *engine, uint64_t address, enum engine_home *ret,
                                   struct error *err)
{
	return engine->ops->find_home(engine, address, ret, err);
}

/* Checks that kernels of the context can reach memory at the address, which errors call `name`. Returns 0,
 * INVALID_ARGUMENT if the memory belongs to another context or is not known to the driver, or UNSUPPORTED if
 * the device cannot reach the device that has it. */
static inline int engine_check_place(struct engine *engine, uint64_t address, const char *name,
                                     struct error *err)
{
	return engine->ops->check_place(engine, address, name, err);
}

/* Allocates counters on the device. Sets *ret to their address there, and *ret_now to their present values,
 * from which the caller counts. Returns 0, NO_MEMORY if the engine has no more, or the driver's error. */
static inline int engine_counts_new(struct engine *engine, uint64_t *ret, struct engine_counts *ret_now,
                                    struct error *err)
{
	return engine->ops->counts_new(engine, ret, ret_now, err);
}

/* Gives counters back. Launches and graphs that use them go on adding, even if the counters belong to
 * somebody else by then. */
static inline void engine_counts_free(struct engine *engine, uint64_t counts)
{
	engine->ops->counts_free(engine, counts);
}

/* Waits for the work on the stream, which must not be captured, and reads the counters. Returns 0, or the
 * driver's error. */
static inline int engine_counts_read(struct engine *engine, uint64_t counts, void *stream,
                                     struct engine_counts *ret, struct error *err)
{
	return engine->ops->counts_read(engine, counts, stream, ret, err);
}

/* Allocates bytes > 0 of device memory at a multiple of 256 and sets *ret to its address. Work enqueued on
 * the stream may use it until engine_scratch_free is called for the same stream. Returns 0, NO_MEMORY or the
 * driver's error. */
static inline int engine_scratch_new(struct engine *engine, uint64_t bytes, void *stream, uint64_t *ret,
                                     struct error *err)
{
	return engine->ops->scratch_new(engine, bytes, stream, ret, err);
}

static inline void engine_scratch_free(struct engine *engine, uint64_t address, void *stream)
{
	engine->ops->scratch_free(engine, address, stream);
}

/* Copies a transfer's bytes to the device, in the order of the stream. The host memory has been read when the
 * call returns. Copies overlap with the packing of later chunks. May wait for other threads' transfers.
 * Returns 0, an error of pack, or the driver's error. */
static inline int engine_bring_in(struct engine *engine, struct engine_transfer *transfer, void *stream,
                                  struct error *err)
{
	return engine->ops->bring_in(engine, transfer, stream, err);
}

/* Copies a transfer's bytes to the host, in the order of the stream. They have arrived when the call returns.
 * Returns as engine_bring_in does. */
static inline int engine_bring_out(struct engine *engine, struct engine_transfer *transfer, void *stream,
                                   struct error *err)
{
	return engine->ops->bring_out(engine, transfer, stream, err);
}

/* Copies bytes between any two places, in the order of the stream, and waits until they have arrived. Meant
 * for small copies with pageable host memory on one side. */
static inline int engine_copy(struct engine *engine, uint64_t dst, uint64_t src, uint64_t bytes, void *stream,
                              struct error *err)
{
	return engine->ops->copy(engine, dst, src, bytes, stream, err);
}

/* Reads the word of a timeline in device memory, without regard to what is enqueued on the program's streams.
 * Returns 0, or the driver's error. */
static inline int engine_word_read(struct engine *engine, uint64_t address, uint64_t *ret, struct error *err)
{
	return engine->ops->word_read(engine, address, ret, err);
}

/* Enqueues on the stream a write of the value to the word of a timeline (struct engine_point). The word must
 * lie in device memory, or its address must come from engine_word_reach. Returns as engine_word_wait does. */
static inline int engine_word_signal(struct engine *engine, uint64_t address, uint64_t value, void *stream,
                                     struct error *err)
{
	return engine->ops->word_signal(engine, address, value, stream, err);
}

/* Makes later work on the stream wait until a word, as in engine_word_signal, has reached the value. Returns
 * 0, UNSUPPORTED if the stream is captured and the driver takes no words into a graph, or the driver's
 * error. */
static inline int engine_word_wait(struct engine *engine, uint64_t address, uint64_t value, void *stream,
                                   struct error *err)
{
	return engine->ops->word_wait(engine, address, value, stream, err);
}

/* Sets *ret to the address at which streams of the context can access the word at an address of this process.
 * A word in pageable host memory is pinned: *ret_is_pinned is then true, and engine_word_leave must be called
 * once. Returns 0, UNSUPPORTED if no stream can use a word in such memory, or the driver's error. */
static inline int engine_word_reach(struct engine *engine, uint64_t address, uint64_t *ret,
                                    bool *ret_is_pinned, struct error *err)
{
	return engine->ops->word_reach(engine, address, ret, ret_is_pinned, err);
}

/* Gives back a word that engine_word_reach has pinned. If it was pinned several times, the last of these
 * calls waits for all work on the devices. */
static inline void engine_word_leave(struct engine *engine, uint64_t address)
{
	engine->ops->word_leave(engine, address);
}

/* ---- Progress ---------------------------------------------------------------------------------------- */

/* If the options say `drives`, the owner calls this after it has submitted jobs and before it sleeps:
 * sleeping threads of the engine learn of the jobs only here. Where waking a thread would take longer than
 * the work, the call does the work itself, for at most ns nanoseconds (0: not at all). Returns whether a job
 * waits to be reaped. */
static inline bool engine_drive(struct engine *engine, uint64_t ns)
{
	return engine->ops->drive && engine->ops->drive(engine, ns);
}

/* Calls on_done for every job finished since the last call. */
static inline void engine_reap(struct engine *engine)
{
	engine->ops->reap(engine);
}

/* Asks each thread of the engine, and its device, for a sign of life, and checks that all those which the
 * previous call asked have given one; the first call finds nothing wrong. A busy thread still answers,
 * between two pieces of its work. Returns 0, or TIMEOUT with a sentence that names the thread or device that
 * is silent, which is not asked again until it has answered. Does not wait. The owner calls this every few
 * seconds, which is the time that threads have to answer. */
static inline int engine_probe(struct engine *engine, struct error *err)
{
	return engine->ops->probe(engine, err);
}

/* Notes in each untrusted owner (is_stuck) whether threads that serve only that owner have given no sign of
 * life since the last call, because they hang in an access to its memory. Does not wait. The owner of the
 * engine calls this every few seconds. */
static inline void engine_note_stuck(struct engine *engine)
{
	if (engine->ops->note_stuck)
		engine->ops->note_stuck(engine);
}

/* Returns what has become of a client's memory, to explain why a job ended with DEVICE. Does not block.
 * SHRUNK: the memory's file has only *ret_bytes bytes, fewer than the region needs. PINS: the device still
 * uses pages that the file had before it shrank, or before one of its pages was taken away. GONE: is_gone is
 * set. NONE: nothing is known. */
enum engine_loss { ENGINE_LOSS_NONE, ENGINE_LOSS_SHRUNK, ENGINE_LOSS_PINS, ENGINE_LOSS_GONE };
enum engine_loss engine_memory_loss(const struct engine_memory *memory, uint64_t *ret_bytes);

/* Returns whether a thread that touches the memory may be put to sleep by the user to whom the memory belongs
 * (may_stall of struct engine_memory). Once false, it stays false; memory of a device never stalls. Any
 * thread may call this; it does not block. */
bool engine_memory_may_stall(struct engine_memory *memory);

/* Seals the file of loose memory against writing and shrinking, so that it cannot stall any more; nobody can
 * map the file for writing from then on. Returns 0, UNSUPPORTED if the kernel does not seal the file,
 * INVALID_ARGUMENT if the file has a hole, or BUSY if its user keeps it busy. May be called from any thread,
 * and waits for 2 s at most. */
int engine_memory_seal(struct engine_memory *memory, const atomic_bool *unwanted, struct error *err);

/* A client can make accesses to its memory fail, so the owner accesses it (through `host`) only under a
 * guard. engine_guard runs work(arg), which must touch no client memory but the size bytes at start. It
 * returns false if the memory failed; work was then abandoned where it stood, so it must own nothing that has
 * to be released. Guards do not nest. Any thread may use them between engine_guard_init and
 * engine_guard_deinit; these calls are counted, so that several users can pair them. engine_guard_init
 * returns 0 or a negative errno. */
int engine_guard_init(void);
void engine_guard_deinit(void);
bool engine_guard(const void *start, size_t size, void (*work)(void *arg), void *arg);

/* Sets *ret to the link between the engine's device and the one with that UUID. */
static inline void engine_link(struct engine *engine, const char *uuid, struct engine_link *ret)
{
	*ret = (struct engine_link){ .kind = ENGINE_LINK_NONE };
	if (engine->ops->link)
		engine->ops->link(engine, uuid, ret);
}

/* Sets *ret to the counters of the cache of tensor maps, all zeros if the engine has none. */
static inline void engine_cache_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	*ret = (struct engine_cache_stats){ 0 };
	if (engine->ops->cache_stats)
		engine->ops->cache_stats(engine, ret);
}

#endif
