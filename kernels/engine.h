/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine is: memory, streams, and jobs that run in a stream's order.
 *
 * An engine has threads of its own. Finished jobs come back by one door: the engine calls the wake
 * function given at open, from any of its threads, and the owner then calls engine_reap on the owner's
 * thread, which calls each finished job's on_done there. Everything but engine_map, engine_make and
 * engine_unmap is called from the owner's thread; those three may block for long and may run on any.
 *
 * An owner may have several engines, of a device each. A memory belongs to the engine that mapped it; of a
 * client's memory each engine that is to use it has a mapping of its own.
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
	uint32_t threads;     /* of the cpu engine; 0: as many as CPUs that the process can keep busy */
	const char *device;   /* of the cuda engine: an ordinal or a UUID; NULL: the first that will do */
	uint64_t tensor_maps; /* of the cuda engine: how many it keeps, by layout */
	uint64_t plans;       /* plans that it keeps; 0: none */
	bool tunes;           /* it tries alternatives to plans that are used repeatedly */
	uint64_t restart_pause_ms; /* of one that returns: the longest pause before it does */
	void (*wake)(void *arg);   /* called from any thread; may coalesce */
	void *wake_arg;
	int wake_fd; /* of an engine in a process of its own: an eventfd that it adds to when jobs have ended;
	                the owner reads it and reaps */
	bool drives; /* the owner calls engine_drive, without exception */
	bool is_guest; /* The process is another program's. The engine handles none of its signals, watches
	                  none of its files, starts no thread before a job needs one, and has engine->own;
	                  memory that fails under a job ends the process, as if the program had touched it
	                  itself. */
};

/* A part of a client's memory: an allocation, or memory that the engine has mapped. */
struct engine_part {
	int fd;                       /* of the allocation; else -1 */
	struct engine_memory *memory; /* whose allocations it is, and which is not unmapped meanwhile; of a
	                                 peer's handle, memory of the other engine; else NULL */
	uint64_t offset;              /* in all that memory maps, where the first of them begins */
	uint64_t size;
};

/* A client's memory, as it came. fd stays the caller's. */
struct engine_handle {
	enum region_kind kind;
	int fd;          /* memfd, cuda_fd, cuda_pool; else -1 */
	uint64_t offset; /* multiple of nothing: the engine aligns */
	uint64_t size;
	bool writable;
	struct bytes handle; /* cuda_ipc; cuda_pool: a pointer of the pool's */
	uint64_t allocation; /* cuda_fd: bytes of all of it, because a part cannot be mapped; 0: it ends with
	                        the region. cuda_pool: bytes from that pointer on */
	const struct engine_part
	    *parts;       /* cuda_fd: instead of fd, one after the other; offset is in all of them */
	uint32_t n_parts; /* 0: there are none */
	const atomic_bool *unwanted; /* NULL: never. Set: nobody waits for the memory any more, and what takes
	                                long gives up and ends as CANCELED */
	/* The owner has the memory mapped by another engine already, which made it or was given it, and keeps
	 * it mapped there until it is unmapped here: it may be on another device, and is then reached as a
	 * peer's. false: memory of another device is refused. */
	bool is_peer;
	/* The memory is of a user who could not harm the service in other ways: see may_stall of struct
	 * engine_memory. */
	bool is_untrusted;
	uint64_t user; /* if it is: any number that tells users apart */
};

/* The bytes of a CUDA IPC handle, and of a pointer exported from a pool. */
#define ENGINE_HANDLE_BYTES 64

/* What the client needs to map memory that was made for it. */
struct engine_export {
	int fd;              /* memfd, cuda_fd: the caller's to close; else -1 */
	uint32_t handle_len; /* cuda_ipc: ENGINE_HANDLE_BYTES; else 0 */
	uint8_t handle[ENGINE_HANDLE_BYTES];
};

/* Memory that the engine can reach. The engine embeds it in a struct of its own. */
struct engine_memory {
	enum region_kind kind;
	bool writable;
	uint64_t size;
	uint64_t base;      /* of the region in its memory, bytes */
	uint64_t address;   /* of the region's first byte, where the engine's moves find it: distances between
	                       memories that the host can reach, and between those that it cannot, have a
	                       meaning (layer_table.h) */
	void *host;         /* the region's first byte, where this process can reach it; else NULL */
	uint64_t memory[2]; /* identity of the memory: equal for two mappings of one, where that is known */
	struct backing *backing;      /* the engine's: the file behind it, where that can fail; else NULL */
	struct memory_chunks *chunks; /* what the memory consists of, where other memories may have some of it
	                                 too; else NULL */
	/* The host memory belongs to an untrusted user, who can keep a page of it missing for as long as he
	 * likes; then the kernel puts whoever touches the page to sleep, beyond the reach of signals. So only
	 * threads that belong to that user touch it. Once the file is sealed against writing and shrinking,
	 * no page of it can go, and it cannot stall any more: engine_memory_may_stall notices that. */
	atomic_bool may_stall;
	int seals;     /* If the memory may stall, this is a descriptor of its file, which belongs to the host
	                  memory behind it. */
	uint64_t user; /* If the memory may stall, this tells whose it is. */
	/* It may stall, and the engine's threads are everybody's: it is mapped and nothing more. Jobs may
	 * name it once it has been sealed (engine_memory_seal) and then settled (engine_settle), which makes
	 * this false for good. */
	atomic_bool is_loose;
	atomic_bool is_gone; /* of an engine that returns: the device was lost, and the memory could not
	                        be mapped again: jobs that name it end as DEVICE_LOST */
};

/* An owner has streams. Owners share the engine: however many streams one has and whatever their jobs cost,
 * each owner that has work gets as much time as any other. The caller embeds it, and touches no field but the
 * last two. It must outlive its streams. */
struct engine_owner {
	uint32_t streams;
	uint64_t ns;                                 /* of the engine's time */
	TAILQ_HEAD(fair_streams, fair_stream) ready; /* streams whose job can go on */
	TAILQ_ENTRY(engine_owner) entry;
	/* Of an engine that has several of one owner's jobs under way. */
	uint32_t running;
	uint32_t staging;
	uint64_t running_bytes;
	uint32_t long_jobs;
	struct stream_slot *long_slot; /* of the long jobs, while there are any */
	uint32_t urgent_jobs;          /* long ones that pass those */
	uint64_t slow_wakes_until_ns;  /* by the monotonic clock; atomic: its last wake-up took long */
	bool is_untrusted; /* Memory of its own may stall (engine_memory). The caller sets this before the
	                      first stream. */
	bool is_stuck;     /* A thread that belongs to it does not come back. engine_note_stuck sets this. */
};

/* scale or bias of a conversion. */
struct engine_operand {
	double number;
	struct engine_memory *memory; /* of a tensor; NULL: it is the number, or there is none */
	uint64_t offset;              /* bytes of element [0, ..., 0] in the region */
};

/* Where a conversion writes one number of each block (amax.h). */
struct engine_result {
	struct engine_memory *memory; /* NULL: nowhere */
	uint64_t offset;              /* bytes of element [0, ..., 0] in the region */
};

/* One transform between two places. */
struct engine_move {
	const struct transform *transform; /* the plan's */
	struct engine_plan *plan;          /* from engine_prepare, for these places */
	struct engine_memory *dst;
	struct engine_memory *src;
	uint64_t dst_offset; /* bytes of element [0, ..., 0] in the region */
	uint64_t src_offset;
	struct engine_operand scale, bias;
	struct engine_result amax_scale, amax_inverse;
	/* By the engine. */
	enum family family; /* of the interior, if the move has begun */
	uint64_t changed;   /* elements whose values an exact cast has changed */
	int status; /* of a batch's: 0, CANCELED, OUT_OF_RANGE (changed is not 0), DEVICE, DEVICE_LOST */
};

/* A point of a timeline: a 64-bit word in a region, little-endian, at a multiple of 8 bytes of its memory. It
 * has come when (int64_t)(word - value) >= 0, as CU_STREAM_WAIT_VALUE_GEQ has it. */
struct engine_point {
	struct engine_memory *memory; /* NULL: no point */
	uint64_t offset;
	uint64_t value;
};

/* A job is one move, a move over a list of blocks, or a batch of moves. It starts when the stream's jobs
 * before it have ended and the point that it waits for has come; everything it wrote is visible to whoever
 * sees its signal. A job that does not end with status 0 signals nothing;
 * but of a job in pinned memory, whose file shrank while the job was under way, that is found out after its
 * signal. */
struct engine_job {
	/* By the submitter; all must live until on_done. */
	struct engine_move move;
	struct engine_blocks *blocks; /* NULL: the move once */
	struct engine_move
	    *moves; /* a batch, in no order: none touches what another one writes; NULL: move */
	uint32_t n_moves;
	struct engine_point wait;
	uint64_t wait_until_ns; /* by the monotonic clock: TIMEOUT then; of a job with a wait */
	struct engine_point signal;
	enum job_priority priority; /* among the jobs of its owner */
	uint32_t multiprocessors;   /* that each of its launches occupies at most; 0: all. Of a device */
	uint32_t host_threads;      /* of the engine that move its bytes at once at most; 0: all */
	void (*on_done)(struct engine_job *job); /* on the owner's thread, from engine_reap */

	/* By the engine. */
	int status;  /* 0, CANCELED, TIMEOUT (nothing was moved), DEVICE (the memory failed under the copy),
	                DEVICE_LOST; of a batch: what failed all of it, or the first move's that failed */
	uint64_t ns; /* the engine's own time, without the wait */
	bool begun;  /* it was started: something of it may have been moved */
	bool is_measured; /* ns is what the one move takes by itself: no other stream's job ran beside it, and
	                     on a device none of its bytes came from or went to the host or a peer */
	struct engine_job *next;
	struct engine_stream *stream; /* that it was submitted to, where the engine wants to know it again */
};

/* Where memory of the program's lies, to an engine in a CUDA context of the program's. */
enum engine_home {
	ENGINE_HOME_HOST,   /* ordinary memory of the host, or none: no device reaches it */
	ENGINE_HOME_PINNED, /* memory of the host that the driver has pinned */
	ENGINE_HOME_DEVICE, /* memory of any device, and managed memory */
};

/* Bytes that travel between memory of the host, wherever they lie in it, and one stretch of a device's
 * memory: in chunks, which follow each other there. */
#define ENGINE_CHUNK_BYTES (UINT64_C(2) << 20)

struct engine_transfer {
	uint64_t address; /* of the stretch */
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
	uint64_t passed;  /* entries of -1, in lists that the device reads */
	uint64_t beyond;  /* entries of such lists that name no block */
	uint64_t changed; /* elements whose values an exact cast has changed */
	uint64_t unused;
};

/* How an engine's device reaches another one's memory. */
enum engine_link_kind {
	ENGINE_LINK_NONE, /* not at all */
	ENGINE_LINK_PCIE, /* across a bus, without atomics */
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
	bool (*unmap)(struct engine *engine, struct engine_memory *memory); /* a step */
	struct engine_stream *(*stream_new)(struct engine *engine, struct engine_owner *owner);
	void (*stream_free)(struct engine_stream *stream);
	void (*submit)(struct engine_stream *stream, struct engine_job *job);
	void (*stream_cancel)(struct engine_stream *stream);
	bool (*cancel)(struct engine_stream *stream, struct engine_job *job);
	void (*reap)(struct engine *engine);
	bool (*drive)(struct engine *engine, uint64_t ns); /* NULL: its threads need no help */
	int (*probe)(struct engine *engine, struct error *err);
	void (*note_stuck)(struct engine *engine); /* NULL: owners have no threads of their own */
	void (*cache_stats)(struct engine *engine, struct engine_cache_stats *ret); /* NULL: has no cache */
	/* Does what engine_explain says. */
	int (*explain)(struct engine *engine, struct engine_plan *plan, struct engine_explanation *ret,
	               struct error *err);
	/* Adds the counts of plans that are kept outside of engine->plans; NULL if there are none. */
	void (*add_plan_stats)(struct engine *engine, struct engine_cache_stats *ret);
	void (*keep_plans)(struct engine *engine, uint64_t n);
	void (*tune)(struct engine *engine, bool tunes); /* NULL: it has no alternatives */
	void (*link)(struct engine *engine, const char *uuid, struct engine_link *ret); /* NULL: has none */
	/* These are of an engine in a CUDA context of the program's, and do what engine_launch,
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
};

struct engine {
	const struct engine_ops *ops;
	const char *name; /* "cpu", "cuda" */
	char device[128]; /* in words: "avx512, 2 threads" */
	char uuid[48]; /* of the device that cuda_ipc and cuda_fd memory has to be on, "GPU-..."; cpu: "" */
	char device_name[80];  /* the device's alone; cpu: "" */
	uint64_t memory_bytes; /* that the device has; cpu: 0 */
	struct plan_cache *plans;
	bool plans_by_phase;      /* plans depend on the places' phases, and not on their alignment alone */
	uint32_t multiprocessors; /* of the device; cpu: 0 */
	enum region_kind kind;    /* of the memory that create makes when nobody asks for another */
	bool watches_holes; /* access to a hole in a client's memfd fails, and takes no memory of ours */
	struct engine_memory *own; /* All memory of this process, if the engine is a guest in it, else NULL:
	                              byte `offset` of it lies at the address own->base + offset. Whoever
	                              submits a job vouches for its places. It is not unmapped. */

	/* Set by engine_reap: the device failed so that nothing can succeed in this process any more. Every
	 * job, also one submitted later, ends as DEVICE_LOST. Of an engine that returns that is so for now,
	 * and the owner need not do anything: it is woken when `lost` is false again, and memory that was
	 * mapped is mapped again. */
	bool lost;
	char lost_why[256]; /* one sentence: of the last time */
	bool returns;
	uint32_t losses;   /* of one that returns: how many times it has been lost */
	uint32_t failures; /* how many times it could not return */
	uint32_t dropped;  /* and how many memories could not be mapped again in all (is_gone) */

	atomic_uint memories; /* mapped and created, and not yet unmapped */
};

/* The CPU engine: regions are memfds, mapped shared. */
int engine_cpu_open(struct engine **ret, const struct engine_options *options, struct error *err);

/* The CUDA engine, in a build that has it: regions of every kind. UNSUPPORTED, with a sentence that names
 * what is missing, where there is no driver or no device that will do. */
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

/* Adds what the caches of plans and of tensor maps have counted in all such engines. */
void engine_cuda_add_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* How many devices it may be opened for, by ordinal; some may not do. An error where there is no driver. From
 * any thread, as opening is: several engines may be opened at once. */
int engine_cuda_count(struct error *err);

/* Every stream must be freed and every memory unmapped before. NULL is allowed. */
static inline void engine_close(struct engine *engine)
{
	if (!engine)
		return;
	assert(atomic_load(&engine->memories) == 0);
	engine->ops->close(engine);
}

/* What map and create gave back. */
static inline int engine_count_memory(struct engine *engine, int r)
{
	if (r == 0)
		atomic_fetch_add(&engine->memories, 1);
	return r;
}

/* Maps a client's memory. memfd: the fd must be a memfd or a file of tmpfs or hugetlbfs, at least offset +
 * size bytes long, and writable unless handle->writable is false, and without holes in the range: pages are
 * the client's to make. Of an untrusted user it may come back loose (struct engine_memory). May block. */
static inline int engine_map(struct engine *engine, const struct engine_handle *handle,
                             struct engine_memory **ret, struct error *err)
{
	return engine_count_memory(engine, engine->ops->map(engine, handle, ret, err));
}

/* New zeroed memory, of which kind, size and unwanted are given, and what to hand out: a memfd is sealed
 * against shrinking and growing, and loses its pages when it is unmapped. A kind that the engine cannot make
 * is UNSUPPORTED. May block. */
static inline int engine_make(struct engine *engine, const struct engine_handle *wanted,
                              struct engine_memory **ret, struct engine_export *ret_export, struct error *err)
{
	return engine_count_memory(engine, engine->ops->create(engine, wanted, ret, ret_export, err));
}

/* The same for a caller that waits. */
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

/* A step of unmapping, for callers that have other things to do in between: whether it was the last, and
 * *memory is gone. No job may use the memory from the first step on. Other threads of the process do not wait
 * for a step, but where a device lets memory go; each may be of another thread. May block. */
static inline bool engine_unmap_step(struct engine *engine, struct engine_memory *memory)
{
	if (!engine->ops->unmap(engine, memory))
		return false;
	atomic_fetch_sub(&engine->memories, 1);
	return true;
}

/* All steps. NULL is allowed. */
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

/* Jobs of one stream run in the order submitted; streams run side by side, those of one owner sharing what
 * is its. An owner's streams are all of one engine. NULL: out of memory. */
static inline struct engine_stream *engine_stream_new(struct engine *engine, struct engine_owner *owner)
{
	return engine->ops->stream_new(engine, owner);
}

/* The stream must have no job. NULL is allowed. */
static inline void engine_stream_free(struct engine *engine, struct engine_stream *stream)
{
	if (stream)
		engine->ops->stream_free(stream);
}

static inline void engine_submit(struct engine *engine, struct engine_stream *stream, struct engine_job *job)
{
	engine->ops->submit(stream, job);
}

/* Jobs of the stream that have not started end as CANCELED (through engine_reap, like all); the one that
 * runs stops at its next piece and ends as CANCELED too. */
static inline void engine_stream_cancel(struct engine *engine, struct engine_stream *stream)
{
	engine->ops->stream_cancel(stream);
}

/* One job of the stream's, submitted and not reaped: when it has not started (it waits for a point, or for
 * jobs before it) it ends as CANCELED and is never started, and this gives true. */
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

/* Has the stream write the value to such a word, behind all that is on it (struct engine_point). Returns 0,
 * or the driver's error.
 */
static inline int engine_word_signal(struct engine *engine, uint64_t address, uint64_t value, void *stream,
                                     struct error *err)
{
	return engine->ops->word_signal(engine, address, value, stream, err);
}

/* ---- Progress ---------------------------------------------------------------------------------------- */

/* What an owner that has said so (drives) calls after it has submitted and before it sleeps: only then do
 * threads of the engine that sleep learn of what was submitted. Where waking one would take longer than the
 * work, this call does the work itself, for ns at most, 0: none. Whether a job waits to be reaped. */
static inline bool engine_drive(struct engine *engine, uint64_t ns)
{
	return engine->ops->drive && engine->ops->drive(engine, ns);
}

/* Calls on_done for every job finished since the last call. */
static inline void engine_reap(struct engine *engine)
{
	engine->ops->reap(engine);
}

/* Asks for a sign of life each thread of the engine's own, and the device that it drives, and says whether
 * all of what the last call asked has given one; the first call finds nothing wrong. Work under way, however
 * much, is no silence: a thread answers between two pieces of it. TIMEOUT, with a sentence that names who is
 * silent: then nothing new is asked of that one until it has answered. To be called every few seconds, which
 * is the time that they have; it does not wait. */
static inline int engine_probe(struct engine *engine, struct error *err)
{
	return engine->ops->probe(engine, err);
}

/* Notes in each untrusted owner whether threads that belong to it have given no sign of life since the last
 * call, because they do not return from its memory. To be called every few seconds; it does not wait. */
static inline void engine_note_stuck(struct engine *engine)
{
	if (engine->ops->note_stuck)
		engine->ops->note_stuck(engine);
}

/* What has become of a client's memory, to explain that a job in it ended with DEVICE. SHRUNK: its file has
 * *ret_bytes, fewer than the region needs; PINS: the device has pages that the file had before it shrank, or
 * before one of its pages was taken away. GONE: is_gone. NONE: nothing that is known. Does not
 * block. */
enum engine_loss { ENGINE_LOSS_NONE, ENGINE_LOSS_SHRUNK, ENGINE_LOSS_PINS, ENGINE_LOSS_GONE };
enum engine_loss engine_memory_loss(const struct engine_memory *memory, uint64_t *ret_bytes);

/* Whether whoever touches the memory may be put to sleep by its owner (may_stall of struct engine_memory).
 * Once it is false it stays so; of memory of a device it is. From any thread; does not block. */
bool engine_memory_may_stall(struct engine_memory *memory);

/* Seals the file of loose memory against writing and shrinking, so that it cannot stall any more; nobody can
 * map the file for writing from then on. It returns 0; UNSUPPORTED if the kernel does not
 * seal the file, INVALID_ARGUMENT if the file has a hole, and BUSY if its owner keeps it busy. It may be
 * called from any thread, and waits for 2 s at most. */
int engine_memory_seal(struct engine_memory *memory, const atomic_bool *unwanted, struct error *err);

/* A client can make its memory fail under whoever touches it, so an owner touches it, through `host`, in a
 * guard. engine_guard runs work(arg), which touches no memory of a client's but the size bytes at start.
 * false: the memory failed, and work was left where it stood: it must own nothing that has to be given back.
 * Guards do not nest. On any thread, between engine_guard_init and engine_guard_deinit, which are counted. */
int engine_guard_init(void); /* 0 or negative errno */
void engine_guard_deinit(void);
bool engine_guard(const void *start, size_t size, void (*work)(void *arg), void *arg);

/* To the device with that UUID. */
static inline void engine_link(struct engine *engine, const char *uuid, struct engine_link *ret)
{
	*ret = (struct engine_link){ .kind = ENGINE_LINK_NONE };
	if (engine->ops->link)
		engine->ops->link(engine, uuid, ret);
}

/* Zeros for an engine without tensor maps. */
static inline void engine_cache_stats(struct engine *engine, struct engine_cache_stats *ret)
{
	*ret = (struct engine_cache_stats){ 0 };
	if (engine->ops->cache_stats)
		engine->ops->cache_stats(engine, ret);
}

#endif
