/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stand-in driver know of each other. Everything is guarded by the lock of call.h.
 *
 * Device memory is memfds mapped shared: a device address is a host address, and another process can open the
 * same memory. Which device may touch it is asked at each access (range.c): to the host it is all one.
 * A device is a few threads, its units: they take the operations of its streams, in an order that streams,
 * events and priorities allow, chosen by SOFTGPU_SEED.
 */
#ifndef TESTS_SOFTGPU_SOFTGPU_H
#define TESTS_SOFTGPU_SOFTGPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define MOST_DEVICES      8
#define SHARED_BYTES      (227u * 1024) /* that a block can be given at most */
#define GRANULARITY_BYTES (2u << 20)    /* of memory that is mapped by hand */
#define WINDOW_BYTES      (8u << 20)    /* of memory that a launch says how to keep, at most */

/* softgpu_live, with the lock held. */
size_t live(char *ret, size_t size);

/* ---- Devices (device.c) ------------------------------------------------------------------------------ */

void devices_init(void);
int devices_count(void);
uint64_t device_memory_bytes(void); /* of each */
bool device_exists(int ordinal);

#define NO_DEVICE (-1)

/* A set of devices: a bit for each. */
typedef uint8_t device_set;
#define ALL_DEVICES ((device_set)-1)

static inline device_set device_bit(int ordinal)
{
	return (device_set)(1u << ordinal);
}

/* Whether the device can be allowed to touch the other's memory, or its own. */
bool device_can_access(int device, int other);

/* ---- Contexts (context.c) ---------------------------------------------------------------------------- */

/* A context is dead while refs is 0, and its memory is never freed. */
struct context {
	TAILQ_ENTRY(context) entry; /* of those that cuCtxCreate made */
	int ordinal;
	bool is_primary;
	unsigned refs;
	uint64_t id;           /* no other context of the process ever has it */
	device_set peers;      /* whose memory it may touch besides its own */
	struct stream *legacy; /* NULL before it first lives, and once cuCtxDestroy has destroyed it */
};

void contexts_init(void);
CUresult context_check(void);                   /* whether the calling thread has one that lives */
struct context *context_current(void);          /* after context_check */
struct context *context_find(CUcontext handle); /* NULL: it is no context */
int context_ordinal(CUcontext handle);          /* likewise NO_DEVICE */
int context_current_ordinal(void);              /* of the only device if none is current; else NO_DEVICE */
bool context_any(int device);                   /* whether one of the device lives */

/* All that there have been, one after the other, from NULL to NULL. */
struct context *context_next(const struct context *context);

/* 0, or why nothing can be done with what belongs to it. */
CUresult context_fails(const struct context *context);

/* What cuCtxDestroy destroys with a context, nothing of which is in use any more. */
void streams_destroy(const struct context *context);
void events_destroy(const struct context *context);
void modules_destroy(const struct context *context);
void ranges_destroy(const struct context *context);

/* ---- Links (links.c) --------------------------------------------------------------------------------- */

enum { LINK_NONE, LINK_PCIE }; /* more is faster */

bool links_init(void); /* false: what was wrong has been said */
int link_between(int a, int b);
int link_rank(int a, int b); /* 0: the fastest that there is */

/* ---- Memory (range.c) -------------------------------------------------------------------------------- */

enum range_kind {
	RANGE_MEMORY,   /* cuMemAlloc */
	RANGE_OPENED,   /* cuIpcOpenMemHandle */
	RANGE_HOST,     /* cuMemHostRegister */
	RANGE_RESERVED, /* cuMemAddressReserve */
	RANGE_MAPPED,   /* cuMemMap; lies in a reserved one */
	RANGE_POOLED,   /* cuMemAllocFromPoolAsync */
	RANGE_IMPORTED, /* cuMemPoolImportPointer */
	RANGE_GRAPH,    /* cuMemAllocFromPoolAsync in a capture */
	RANGE_KINDS
};

struct range {
	TAILQ_ENTRY(range) entry;
	enum range_kind kind;
	uint64_t start;
	uint64_t size;
	uint64_t id;             /* never used twice in a process */
	struct context *context; /* that made it known */
	int home;                /* the device that its bytes are on; of host memory: the context's */
	int fd;                  /* its memfd, or -1 */
	bool writable;           /* RANGE_HOST: by devices */
	bool is_allocated;       /* RANGE_HOST: cuMemHostAlloc */
	device_set readers;      /* RANGE_MAPPED */
	device_set writers;
	unsigned refs;                 /* RANGE_OPENED */
	CUipcMemHandle handle;         /* RANGE_OPENED */
	struct allocation *allocation; /* RANGE_MAPPED */
	struct pool *pool;             /* RANGE_POOLED, RANGE_IMPORTED, RANGE_GRAPH; else NULL */
	bool is_freed;                 /* likewise: its stream, or the replay, is on the way there */
	bool is_live;                  /* RANGE_GRAPH: a replay has allocated it and not yet freed it */
	uint64_t capture;              /* RANGE_GRAPH: the id of the one that it belongs to */
};

TAILQ_HEAD(ranges, range);
extern struct ranges ranges;

/* A new entry of the table; NULL when out of memory. */
struct range *range_add(enum range_kind kind, uint64_t start, uint64_t size);

/* Takes it out of the table, closes its fd and frees it; mappings are the caller's. NULL is allowed. */
void range_remove(struct range *range);

/* The one that holds the address, a mapping rather than its reservation; NULL when there is none. */
struct range *range_find(uint64_t address);
struct range *range_find_kind(uint64_t address, enum range_kind kind);

enum access { ACCESS_READ, ACCESS_WRITE };

/* Whether what runs in the context may reach all of those bytes. */
bool range_reaches(const struct context *context, uint64_t address, uint64_t size, enum access access);

/* The devices that may reach some of it, and the one that it is on. */
device_set range_users(const struct range *range);

/* Bytes of the device's memory that cuMemAlloc, cuMemCreate and cuMemAllocFromPoolAsync have not taken. */
uint64_t memory_free(int device);
void memory_charge(int device, uint64_t bytes);
void memory_discharge(int device, uint64_t bytes);

/* A memfd of that name, filled with what memory of no owner may hold; negative when out of memory. */
int memory_new_fd(const char *name, uint64_t size);

/* Whether the fd is a memfd whose name begins so. */
bool memory_is_fd(int fd, const char *name);

/* Address space with a page on both sides that nothing may touch; a multiple of alignment, a power of two. 0
 * when there is none. */
uint64_t space_new(uint64_t size, uint64_t alignment);
void space_free(uint64_t start, uint64_t size);

/* All of the memfd into space of its own. */
uint64_t space_map(int fd, uint64_t size);

/* ---- Memory without an address (allocation.c) -------------------------------------------------------- */

struct allocation {
	TAILQ_ENTRY(allocation) entry;
	int fd;
	uint64_t size;
	bool is_charged; /* against the device's memory: not an import */
	unsigned handles;
	unsigned mappings;
	CUmemAllocationProp properties;
};

/* NULL when it is no handle. */
struct allocation *allocation_find(CUmemGenericAllocationHandle handle);

/* Frees it if it has neither handle nor mapping. */
void allocation_free_unused(struct allocation *allocation);

/* ---- Memory pools (pool.c) ----------------------------------------------------------------------- */

/* Whether the device may touch the memory that comes from it. */
bool pool_reaches(const struct pool *pool, int device, enum access access);

/* ---- Streams and operations (queue.c) ---------------------------------------------------------------- */

/* A point in a stream that events stand for. */
struct mark {
	unsigned refs;
	bool reached;
	uint64_t ns;           /* when, by the monotonic clock */
	struct moment *moment; /* owned; in a capture, which never reaches the mark; else NULL */
};

struct mark *mark_new(void); /* NULL when out of memory */
void mark_unref(struct mark *mark);

/* What runs an operation. Each runs one at a time. */
enum unit {
	UNIT_NONE,    /* it stands for no work */
	UNIT_KERNELS, /* and what moves memory of the device alone */
	UNIT_TO_DEVICE,
	UNIT_TO_HOST,
	UNITS
};

/* One operation. Whatever embeds it comes first in it. */
struct op {
	STAILQ_ENTRY(op) entry;
	enum unit unit;
	const char *name;                  /* of a trace, unless it stands for no work */
	unsigned long long amount;         /* likewise: bytes; of a kernel its blocks */
	unsigned long long passing;        /* likewise: bytes that it does not want to be kept */
	uint64_t number;                   /* in the order submitted, over all streams */
	bool is_launch;                    /* of a kernel, which can fault */
	bool faults;                       /* an illegal address, instead of what it does */
	bool allocates;                    /* a node of a graph: memory */
	unsigned lane;                     /* likewise (capture.h) */
	uint64_t least_ns;                 /* that it takes */
	struct context *context;           /* its stream's */
	device_set touches;                /* devices whose memory the driver moves for it */
	struct mark *after;                /* owned: not before this one is reached; or NULL */
	struct mark *reaches;              /* owned; or NULL */
	bool (*is_due)(const struct op *); /* not before it says so; or NULL */
	CUresult (*run)(struct op *);      /* without the lock; what it fails with sticks; or NULL */
	void (*drop)(struct op *);         /* before it is freed, whether it was run or not; or NULL */
};

/* A node of a graph runs many times, at the same time in several instances: run changes nothing of the op. */
STAILQ_HEAD(ops, op);
void op_free(struct op *op);

struct stream {
	TAILQ_ENTRY(stream) entry;
	struct context *context;
	int priority;
	bool is_legacy; /* the default one, with which blocking ones take turns */
	bool is_blocking;
	bool is_destroyed; /* freed once it is empty */
	bool is_running;   /* its first operation */
	bool is_hidden;    /* a graph's: it has no handle */
	struct ops ops;
	struct capture *capture; /* that it is in, or NULL */
	unsigned lane;           /* of the capture */
};

/* The device's units. */
CUresult queue_start(int device);
void queue_stop(int device);

/* Has every unit look at what there is to do. */
void queue_wake(void);

/* Whether the calling thread is a unit, which runs operations, or one that calls the driver. */
bool queue_is_unit(void);

extern TAILQ_HEAD(streams, stream) streams;

/* Wakes the units that have something to do. */
void queue_wake_ready(void);

CUresult stream_new(struct stream **ret, struct context *context, bool blocking, int priority);
void stream_destroy(struct stream *stream);

/* What a handle stands for, NULL for the default one of the current context; NULL when for nothing. */
struct stream *stream_find(CUstream handle);

/* 0, or why nothing can be done with the stream, which may be NULL. */
CUresult stream_fails(const struct stream *stream);

/* Takes the op, which came from malloc: it is run, or becomes a node of the graph that the stream is captured
 * into. */
void stream_push(struct stream *stream, struct op *op);

/* Makes the context's legacy stream, once. */
CUresult stream_new_legacy(struct context *context);

/* Frees it if it is destroyed and empty. */
void stream_free_unused(struct stream *stream);

/* Waits until the stream is empty, or all of the context. What stuck by then, or 0. */
CUresult stream_drain(struct stream *stream);
CUresult stream_drain_all(const struct context *context);

/* Waits until nothing of the devices in the set is under way, and nothing that touches their memory. What
 * stuck to owner by then, or 0. */
CUresult queue_drain(device_set set, int owner);

/* ---- Launches (launch.c) ------------------------------------------------------------------------------- */

void launch_init(void);

/* ---- Counts for live ------------------------------------------------------------------------- */

size_t context_live(void);    /* references to contexts */
size_t module_live(void);     /* modules */
size_t stream_live(void);     /* streams */
size_t event_live(void);      /* events */
size_t allocation_live(void); /* of cuMemCreate and its imports, with a handle or mapped */
size_t pool_live(void);       /* memory pools and their imports */

#endif
