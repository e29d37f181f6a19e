/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the stand-in driver know of each other. Everything is guarded by the lock of call.h.
 *
 * Device memory is memfds mapped shared: a device address is a host address, and another process can open the
 * same memory. The device is a few threads, its units: they take the operations of all streams, in an order
 * that streams, events and priorities allow, chosen by SOFTGPU_SEED.
 */
#ifndef TESTS_SOFTGPU_SOFTGPU_H
#define TESTS_SOFTGPU_SOFTGPU_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define SHARED_BYTES      (227u * 1024) /* that a block can be given at most */
#define GRANULARITY_BYTES (2u << 20)    /* of memory that is mapped by hand */
#define WINDOW_BYTES      (8u << 20)    /* of memory that a launch says how to keep, at most */

/* softgpu_live, with the lock held. */
size_t live(char *ret, size_t size);

/* ---- Devices and contexts (device.c) ---------------------------------------------------------------- */

void devices_init(void);
int devices_count(void);
uint64_t device_memory_bytes(void);
bool device_exists(int ordinal);

/* The primary context of a device; dead while refs is 0. */
struct context {
	int ordinal;
	unsigned refs;
};

CUresult context_check(void);          /* whether the calling thread has one that lives */
struct context *context_current(void); /* after context_check */

/* ---- Memory (range.c) -------------------------------------------------------------------------------- */

enum range_kind {
	RANGE_MEMORY,   /* cuMemAlloc */
	RANGE_OPENED,   /* cuIpcOpenMemHandle */
	RANGE_HOST,     /* cuMemHostRegister */
	RANGE_RESERVED, /* cuMemAddressReserve */
	RANGE_MAPPED,   /* cuMemMap; lies in a reserved one */
	RANGE_POOLED,   /* cuMemAllocFromPoolAsync */
	RANGE_IMPORTED, /* cuMemPoolImportPointer */
	RANGE_KINDS
};

struct range {
	TAILQ_ENTRY(range) entry;
	enum range_kind kind;
	uint64_t start;
	uint64_t size;
	uint64_t id; /* never used twice in a process */
	struct context *context;
	int fd;        /* its memfd, or -1 */
	bool readable; /* by the device */
	bool writable;
	unsigned refs;                 /* RANGE_OPENED */
	CUipcMemHandle handle;         /* RANGE_OPENED */
	struct allocation *allocation; /* RANGE_MAPPED */
	struct pool *pool;             /* RANGE_POOLED, RANGE_IMPORTED; else NULL */
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

/* Whether the device may reach all of those bytes. */
bool range_reaches(uint64_t address, uint64_t size, enum access access);

/* Bytes of device memory in use: by cuMemAlloc, cuMemCreate and cuMemAllocFromPoolAsync. */
uint64_t memory_used(void);
void memory_charge(uint64_t bytes);
void memory_discharge(uint64_t bytes);

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

int pool_ordinal(const struct pool *pool); /* of the device that its memory is on */

/* ---- Streams and operations (queue.c) ---------------------------------------------------------------- */

/* A point in a stream that events stand for. */
struct mark {
	unsigned refs;
	bool reached;
	uint64_t ns; /* when, by the monotonic clock */
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
	struct mark *after;                /* owned: not before this one is reached; or NULL */
	struct mark *reaches;              /* owned; or NULL */
	bool (*is_due)(const struct op *); /* not before it says so; or NULL */
	CUresult (*run)(struct op *);      /* without the lock; what it fails with sticks; or NULL */
};

struct stream {
	TAILQ_ENTRY(stream) entry;
	struct context *context;
	int priority;
	bool is_legacy; /* the default one, with which blocking ones take turns */
	bool is_blocking;
	bool is_destroyed; /* freed once it is empty */
	bool is_running;   /* its first operation */
	STAILQ_HEAD(, op) ops;
};

CUresult queue_start(void);
void queue_stop(void);

/* Has every unit look at what there is to do. */
void queue_wake(void);

CUresult stream_new(struct stream **ret, struct context *context, bool blocking, int priority);
void stream_destroy(struct stream *stream);

/* What a handle stands for; NULL when it stands for nothing. */
struct stream *stream_find(CUstream handle);

/* Takes the op, which came from malloc. */
void stream_push(struct stream *stream, struct op *op);

/* Waits until the stream is empty, or all of them. What stuck by then, or 0. */
CUresult stream_drain(struct stream *stream);
CUresult stream_drain_all(void);
CUresult queue_drain(void);

/* ---- Counts for live ------------------------------------------------------------------------- */

size_t context_live(void);    /* references to primary contexts */
size_t module_live(void);     /* modules */
size_t stream_live(void);     /* streams */
size_t event_live(void);      /* events */
size_t allocation_live(void); /* of cuMemCreate and its imports, with a handle or mapped */
size_t pool_live(void);       /* memory pools and their imports */

#endif
