/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the parts of the stand-in driver share. The lock of call.h guards all of this state.
 *
 * Device memory is memfds mapped shared: a device address is a host address, and another process can open the
 * same memory. To the host all of it is accessible; which device may access it is checked at each access
 * (range.c).
 *
 * A device is a few threads, called units, which run the operations of its streams in an order that streams,
 * events and priorities allow; SOFTGPU_SEED chooses among such orders.
 */
#ifndef TESTS_SOFTGPU_SOFTGPU_H
#define TESTS_SOFTGPU_SOFTGPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define MOST_DEVICES      8
#define SHARED_BYTES      (227u * 1024) /* most shared memory of a block */
#define GRANULARITY_BYTES (2u << 20)    /* unit of sizes and addresses in cuMemCreate and cuMemMap */
#define WINDOW_BYTES      (8u << 20)    /* most bytes of an access policy window */

/* Does what softgpu_live does. Caller holds the lock. */
size_t live(char *ret, size_t size);

/* ---- Devices (device.c) ------------------------------------------------------------------------------ */

void devices_init(void);
int devices_count(void);
uint64_t device_memory_bytes(void); /* bytes of each device */
bool device_exists(int ordinal);

#define NO_DEVICE (-1)

/* A set of devices; bit i stands for device i. */
typedef uint8_t device_set;
#define ALL_DEVICES ((device_set)-1)

static inline device_set device_bit(int ordinal)
{
	return (device_set)(1u << ordinal);
}

/* Returns whether the device can be granted access to the other's memory, or to its own. */
bool device_can_access(int device, int other);

/* ---- Contexts (context.c) ---------------------------------------------------------------------------- */

/* A context is dead while refs is 0, and its memory is never freed. */
struct context {
	TAILQ_ENTRY(context) entry; /* in the list of contexts that cuCtxCreate made */
	int ordinal;
	bool is_primary;
	unsigned refs;
	uint64_t id;      /* unique among the contexts of the process */
	device_set peers; /* devices whose memory it may access besides its own */
	/* NULL before the context first lives, and once cuCtxDestroy has destroyed the stream */
	struct stream *legacy;
};

void contexts_init(void);
CUresult context_check(void);                   /* 0 if the calling thread has a live context */
struct context *context_current(void);          /* never NULL after context_check has succeeded */
struct context *context_find(CUcontext handle); /* NULL if the handle is no context */
int context_ordinal(CUcontext handle);          /* NO_DEVICE if the handle is no context */
/* The only device if no context is current; NO_DEVICE if there are several. */
int context_current_ordinal(void);
bool context_any(int device); /* whether a context of the device is alive */

/* Iterates over all contexts that were ever made: returns the first one for NULL, and NULL after the last. */
struct context *context_next(const struct context *context);

/* Returns 0, or why objects of the context cannot be used. */
CUresult context_fails(const struct context *context);

/* Destroy the objects of a context for cuCtxDestroy. None of them is in use any more. */
void streams_destroy(const struct context *context);
void events_destroy(const struct context *context);
void modules_destroy(const struct context *context);
void ranges_destroy(const struct context *context);

/* ---- Links (links.c) --------------------------------------------------------------------------------- */

enum { LINK_NONE, LINK_PCIE }; /* LINK_PCIE + n stands for n NVLinks; a greater value is a faster link */

bool links_init(void); /* returns false after printing what is wrong */
int link_between(int a, int b);
int link_rank(int a, int b); /* 0: as fast as the fastest link on the host */

/* ---- Memory (range.c) -------------------------------------------------------------------------------- */

enum range_kind {
	RANGE_MEMORY,   /* cuMemAlloc */
	RANGE_OPENED,   /* cuIpcOpenMemHandle */
	RANGE_HOST,     /* cuMemHostRegister */
	RANGE_RESERVED, /* cuMemAddressReserve */
	RANGE_MAPPED,   /* cuMemMap; lies within a RANGE_RESERVED */
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
	uint64_t id;             /* unique within the process */
	struct context *context; /* the context that allocated, opened, registered or reserved it */
	int home;                /* the device that holds the bytes; for host memory, the context's device */
	int fd;                  /* the memory's memfd, or -1 */
	bool writable;           /* RANGE_HOST: devices may write */
	bool is_allocated;       /* RANGE_HOST: comes from cuMemHostAlloc */
	device_set readers;      /* RANGE_MAPPED */
	device_set writers;
	unsigned refs;                 /* RANGE_OPENED */
	CUipcMemHandle handle;         /* RANGE_OPENED */
	struct allocation *allocation; /* RANGE_MAPPED */
	struct pool *pool;             /* RANGE_POOLED, RANGE_IMPORTED, RANGE_GRAPH; else NULL */
	/* A range with a pool: its free has been submitted to a stream, or is part of the graph. */
	bool is_freed;
	bool is_live;     /* RANGE_GRAPH: a replay has allocated it and not yet freed it */
	uint64_t capture; /* RANGE_GRAPH: id of the capture that allocates it */
};

TAILQ_HEAD(ranges, range);
extern struct ranges ranges;

/* Adds an entry to the table. Returns NULL if out of memory. */
struct range *range_add(enum range_kind kind, uint64_t start, uint64_t size);

/* Removes the range from the table, closes its fd and frees it; its mappings remain the caller's. range may
 * be NULL. */
void range_remove(struct range *range);

/* Returns the range that holds the address, preferring a mapping to its reservation; NULL if there is
 * none. */
struct range *range_find(uint64_t address);
struct range *range_find_kind(uint64_t address, enum range_kind kind);

enum access { ACCESS_READ, ACCESS_WRITE };

/* Returns whether a kernel or copy that runs in the context may access all of these bytes. */
bool range_reaches(const struct context *context, uint64_t address, uint64_t size, enum access access);

/* Returns the devices that may access some of the range, including the one that holds it. */
device_set range_users(const struct range *range);

/* Bytes of the device's memory that cuMemAlloc, cuMemCreate and cuMemAllocFromPoolAsync have not taken. */
uint64_t memory_free(int device);
void memory_charge(int device, uint64_t bytes);
void memory_discharge(int device, uint64_t bytes);

/* Returns a memfd of that name, filled with poison, or a negative value if out of memory. */
int memory_new_fd(const char *name, uint64_t size);

/* Returns whether fd is a memfd whose name begins with name. */
bool memory_is_fd(int fd, const char *name);

/* Reserves address space, with an inaccessible page on either side. alignment is a power of two. Returns 0 if
 * there is none. */
uint64_t space_new(uint64_t size, uint64_t alignment);
void space_free(uint64_t start, uint64_t size);

/* Maps all of the memfd at an address of its own. */
uint64_t space_map(int fd, uint64_t size);

/* ---- Memory without an address (allocation.c) -------------------------------------------------------- */

struct allocation {
	TAILQ_ENTRY(allocation) entry;
	int fd;
	uint64_t size;
	bool is_charged; /* counts against the device's memory; false for an import */
	unsigned handles;
	unsigned mappings;
	CUmemAllocationProp properties;
};

/* Returns NULL if the handle is no allocation. */
struct allocation *allocation_find(CUmemGenericAllocationHandle handle);

/* Frees the allocation if it has neither handles nor mappings. */
void allocation_free_unused(struct allocation *allocation);

/* ---- Memory pools (pool.c) ----------------------------------------------------------------------- */

/* Returns whether the device may access memory of the pool. */
bool pool_reaches(const struct pool *pool, int device, enum access access);

/* ---- Streams and operations (queue.c) ---------------------------------------------------------------- */

/* A point in a stream, for which an event stands. */
struct mark {
	unsigned refs;
	bool reached;
	uint64_t ns;           /* when it was reached, in ns of the monotonic clock */
	struct moment *moment; /* owned; for a record in a capture, whose mark is never reached; else NULL */
};

struct mark *mark_new(void); /* NULL if out of memory */
void mark_unref(struct mark *mark);

/* The threads of a device that run operations, each one at a time. */
enum unit {
	UNIT_NONE,    /* for operations without work */
	UNIT_KERNELS, /* runs kernels, and copies within device memory */
	UNIT_TO_DEVICE,
	UNIT_TO_HOST,
	UNITS
};

/* An operation of a stream. It is the first member of the structures that embed it. */
struct op {
	STAILQ_ENTRY(op) entry;
	enum unit unit;
	const char *name;           /* for the trace; NULL for operations without work */
	unsigned long long amount;  /* for the trace: bytes of a copy, blocks of a kernel */
	unsigned long long passing; /* for the trace: bytes that a kernel asks the L2 not to keep */
	uint64_t number;            /* submission number, counted over all streams */
	bool is_launch;             /* a kernel launch, which can fault */
	bool faults;                /* fails with an illegal address instead of running */
	bool allocates;             /* a graph's node that allocates memory */
	unsigned lane;              /* a graph's node: its lane (capture.h) */
	uint64_t least_ns;          /* least duration */
	struct context *context;    /* the stream's context */
	device_set touches;         /* devices whose memory the driver moves for it */
	/* owned; it starts only once this mark is reached; NULL: at once */
	struct mark *after;
	struct mark *reaches;              /* owned; the mark that is reached when it ends, or NULL */
	bool (*is_due)(const struct op *); /* it starts only once this returns true; NULL: at once */
	/* Called without the lock; an error sticks to the device; NULL: no work. */
	CUresult (*run)(struct op *);
	void (*drop)(struct op *); /* called before it is freed, whether or not it ran; or NULL */
};

/* A node of a graph runs many times, possibly in several instances at once, so run must not change the op. */
STAILQ_HEAD(ops, op);
void op_free(struct op *op);

struct stream {
	TAILQ_ENTRY(stream) entry;
	struct context *context;
	int priority;
	bool is_legacy; /* the legacy stream, which synchronizes with all blocking streams */
	bool is_blocking;
	bool is_destroyed; /* to be freed once it is empty */
	bool is_running;   /* its first operation is running */
	bool is_hidden;    /* belongs to a graph's instance and has no handle */
	struct ops ops;
	struct capture *capture; /* the capture that it takes part in, or NULL */
	unsigned lane;           /* its lane in the capture */
};

/* Start and stop the device's units. */
CUresult queue_start(int device);
void queue_stop(int device);

/* Wakes every unit to look for work. */
void queue_wake(void);

/* Returns whether the calling thread is a unit, rather than a caller of the driver. */
bool queue_is_unit(void);

extern TAILQ_HEAD(streams, stream) streams;

/* Wakes only the units that have something to do. */
void queue_wake_ready(void);

CUresult stream_new(struct stream **ret, struct context *context, bool blocking, int priority);
void stream_destroy(struct stream *stream);

/* Returns the stream of a handle; for NULL, the current context's legacy stream. Returns NULL if the handle
 * is no stream. */
struct stream *stream_find(CUstream handle);

/* Returns 0, or why nothing can be done with the stream. stream may be NULL. */
CUresult stream_fails(const struct stream *stream);

/* Takes over op, which came from malloc. It is run, or becomes a node of the graph that the stream is
 * captured into. */
void stream_push(struct stream *stream, struct op *op);

/* Makes the context's legacy stream unless it exists. */
CUresult stream_new_legacy(struct context *context);

/* Frees the stream if it is destroyed and empty. */
void stream_free_unused(struct stream *stream);

/* Waits until the stream, or every stream of the context, is empty. Returns the error that has stuck by then,
 * or 0. */
CUresult stream_drain(struct stream *stream);
CUresult stream_drain_all(const struct context *context);

/* Waits until the devices in the set have nothing under way and nothing else touches their memory. Returns
 * the error that has stuck to owner by then, or 0. */
CUresult queue_drain(device_set set, int owner);

/* ---- Launches (launch.c) ------------------------------------------------------------------------------- */

void launch_init(void);

/* ---- Counts for live ------------------------------------------------------------------------- */

size_t context_live(void);    /* number of references to contexts */
size_t module_live(void);     /* modules */
size_t stream_live(void);     /* streams */
size_t event_live(void);      /* events */
size_t allocation_live(void); /* cuMemCreate and imports, with a handle or mapped */
size_t pool_live(void);       /* memory pools and their imports */

#endif
