/* SPDX-License-Identifier: Apache-2.0 */
/* tmaclient.h - the client library of tmad, a service that copies, transposes and pads tensors.
 *
 *     cc app.c $(pkg-config --cflags --libs tmaclient)
 *
 * A client is one connection to the service. Memory is shared once, as a region; a tensor is a view of a
 * region; a transform moves one tensor into another:
 *
 *     dst[...] = pad(permute(src, perm), before, after, mode, value)
 *
 * permute and pad mean what np.transpose and np.pad mean in NumPy. Moving an element never changes its bits.
 * Destination arguments precede source arguments, as in memcpy. Many small moves can be combined: a plan is a
 * transform that was checked once, items are many transforms in one request, and a gather or scatter moves
 * the blocks that a list selects. An order tells a request what to wait for and what to signal in shared
 * memory.
 *
 * Functions that can fail return 0 or a negative TMA_* status; tma_last_error() then returns a message that
 * says what to change. Functions that poll or wait return 0 if what they wait for has happened, TMA_PENDING,
 * which is positive, if it has not happened yet, and a negative status on error. A function that fails or
 * returns TMA_PENDING leaves *ret unchanged, with one exception: when tma_wait or tma_poll takes a ticket,
 * *ret is the result of its request, even if that request failed.
 *
 * Zero-initialize every struct and set its members by name. Each struct ends with `reserved` members, which
 * leave room for the members of later versions: they must be zero in structs that the library reads, and are
 * zero in structs that it writes. Any other value is INVALID_ARGUMENT, so that an older library refuses what
 * it does not know instead of ignoring it.
 *
 * Only one thread at a time may use a client and its regions, plans, tickets and rings; different threads may
 * use different clients at the same time. After fork(), the child must not use its parent's clients. Any
 * thread may call the following at any time: the functions of the Vocabulary group, tma_number_encode,
 * tma_point_signal and tma_point_wait; tma_region_data, tma_region_size, tma_region_kind, tma_region_fd and
 * tma_region_handle until the region is released; and the functions that read a document until it is freed. A
 * signal handler may call only the functions of the Vocabulary group and tma_point_signal. The library starts
 * no threads, installs no signal handlers and keeps no global state.
 */
#ifndef TMACLIENT_H
#define TMACLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TMA_API __attribute__((visibility("default")))
#else
#define TMA_API
#endif

/* ---- Vocabulary ------------------------------------------------------------------------------------ */

/* The version of this header. TMA_VERSION is a number to compare: #if TMA_VERSION >= 200 tests for 0.2.0 or
 * later. */
#define TMA_VERSION_MAJOR 0
#define TMA_VERSION_MINOR 2
#define TMA_VERSION_PATCH 0
#define TMA_VERSION       (TMA_VERSION_MAJOR * 10000 + TMA_VERSION_MINOR * 100 + TMA_VERSION_PATCH)

#define TMA_MAX_RANK 32

enum tma_status {
	TMA_PENDING = 1, /* not yet: from functions that poll or wait, and of items in progress; no error */
	TMA_OK = 0,
	TMA_INVALID_ARGUMENT = -1, /* an argument breaks a rule; repeating the call fails in the same way */
	TMA_OUT_OF_RANGE = -2,     /* a tensor or the word of a timeline is not inside its region */
	TMA_OVERLAP = -3,          /* the destination overlaps itself or its source */
	TMA_NOT_FOUND = -4, /* the region, plan, ticket or connection does not exist, or no longer exists */
	TMA_ALREADY_EXISTS = -5, /* the client is already connected, or its connection already has a ring */
	TMA_UNSUPPORTED = -6,    /* this service, its engine or this machine's CUDA driver cannot do it */
	TMA_PERMISSION = -7,     /* the socket's mode, the service's user or a region's flags forbid it */
	TMA_QUOTA = -8,          /* a limit of the service would be exceeded; the error message names it */
	TMA_BUSY = -9,     /* in use, full or refused for now: let something finish, or take it, then retry */
	TMA_TIMEOUT = -10, /* a point was not reached before the request's deadline; nothing was moved */
	TMA_CANCELED = -11,     /* canceled before it started, by tma_cancel or as a connection ended */
	TMA_DEVICE_LOST = -12,  /* the device failed and is being reopened; the next call reconnects */
	TMA_DEVICE = -13,       /* the device, or memory that was shared with it, failed */
	TMA_DISCONNECTED = -14, /* no service at the socket, or it went away; the next call reconnects */
	TMA_PROTOCOL = -15,     /* the peer sent something that tmad never sends; the connection is closed */
	TMA_NO_MEMORY = -16,    /* this process, the service or its device is out of memory */
	TMA_INTERNAL = -17,     /* a bug in the service, or a system call that failed unexpectedly */
	TMA_NO_REPLY = -18, /* no reply within tma_set_timeout: the connection is closed and the outcome is
	                       unknown. Reported by the library only, never by the service */
};

enum tma_dtype {
	TMA_BOOL,
	TMA_UINT8,
	TMA_INT8,
	TMA_UINT16,
	TMA_INT16,
	TMA_UINT32,
	TMA_INT32,
	TMA_UINT64,
	TMA_INT64,
	TMA_FLOAT8_E4M3FN,
	TMA_FLOAT8_E5M2,
	TMA_FLOAT16,
	TMA_BFLOAT16,
	TMA_FLOAT32,
	TMA_FLOAT64,
	TMA_COMPLEX64,
	TMA_COMPLEX128,
};

enum tma_pad_mode {
	TMA_PAD_CONSTANT,
	TMA_PAD_EDGE,
	TMA_PAD_REFLECT,
	TMA_PAD_SYMMETRIC,
	TMA_PAD_WRAP,
};

enum tma_cast {
	TMA_CAST_SATURATE,
	TMA_CAST_EXACT,
};

TMA_API const char *tma_status_name(int status);            /* such as "QUOTA"; otherwise "UNKNOWN" */
TMA_API const char *tma_dtype_name(enum tma_dtype dtype);   /* such as "float32"; otherwise NULL */
TMA_API size_t tma_dtype_size(enum tma_dtype dtype);        /* bytes; 0 if there is no such type */
TMA_API int tma_dtype_parse(const char *name);              /* an enum tma_dtype, or TMA_NOT_FOUND */
TMA_API const char *tma_pad_mode_name(enum tma_pad_mode m); /* such as "edge"; otherwise NULL */
TMA_API int tma_pad_mode_parse(const char *name);           /* an enum tma_pad_mode, or TMA_NOT_FOUND */
TMA_API const char *tma_version(void);                      /* the library's version, such as "0.2.0" */

/* ---- Connection ------------------------------------------------------------------------------------ */

typedef struct tma_client tma_client;

/* Returns a client that is not connected yet, or NULL if memory is exhausted. Free it with tma_free. */
TMA_API tma_client *tma_new(void);

/* If the connection is lost because the service went away (DISCONNECTED) or because its device failed
 * (DEVICE_LOST), the next call reconnects to the same path. Every region that was not released is registered
 * again, every plan is prepared again, and both keep their handles. Memory that the library or the service
 * created keeps its contents, except for CUDA IPC memory that the service created, which is lost.
 * tma_reconnects() counts reconnections. Each region keeps a file descriptor open for this purpose.
 *
 * A blocking call that is interrupted because the service went away is repeated once on the new connection if
 * repeating it is harmless. This is the case for calls that move nothing. It is also the case for a call that
 * moves something if that call signals nothing, no ticket was in flight with it, and its connection had
 * accepted no request without a ticket and opened no ring. As destination and source do not overlap, the
 * repetition leaves the same bytes, provided that nobody writes to the source or to a list of indices before
 * the call returns. tma_result.repeats reports a repetition. Tickets are not repeated, nor is anything that
 * was in flight when a device failed: these requests end with DISCONNECTED or DEVICE_LOST, and how much they
 * have moved is unknown. A request of which no byte had been sent is sent on the new connection.
 *
 * While the service is still releasing what an earlier connection of the client held, it may refuse a region
 * or plan with QUOTA, BUSY or NO_MEMORY. The call that reconnects then retries until the time set by
 * tma_set_reconnect or the call's timeout has passed. If a region or plan is lost in the end, that call
 * returns the status with which it was refused, and the error message says which one it is. The client is
 * connected in this case: whatever was not lost works, and any use of what was lost fails with the same
 * status. tma_restore() tries again, as does the next connection; tma_region_release() and tma_plan_release()
 * give it up.
 *
 * After NO_REPLY or PROTOCOL a client stays closed, and its calls return DISCONNECTED, until the program
 * calls tma_connect: the service exists but is slow or misbehaves, and the program decides what to do.
 */

/* Connects to the service, then registers and prepares again the regions and plans of the client's earlier
 * connections. path is the path of the socket; NULL selects $TMAD_SOCKET if it is set, otherwise
 * /run/tmad/tmad.sock if it can be reached, otherwise $XDG_RUNTIME_DIR/tmad/tmad.sock. The server must run as
 * root, as this process's user or as the user named by tma_set_server_uid; if it does not, the call returns
 * PERMISSION. ALREADY_EXISTS: the client is already connected. After any other error the client is not
 * connected, unless the error is about a region or a plan as described above. */
TMA_API int tma_connect(tma_client *client, const char *path);

/* Tries again to register the regions and prepare the plans that were lost in a reconnection, as described
 * above. Returns 0 if none is missing afterwards. */
TMA_API int tma_restore(tma_client *client);

/* Closes the connection and frees the client with all of its regions, plans, tickets, rings and results.
 * Unmaps the memory created by tma_region_create. NULL is allowed. */
TMA_API void tma_free(tma_client *client);

/* tma_set_timeout limits, in milliseconds, every later call that waits for a reply, including tma_connect and
 * including the time to reconnect and repeat. The default, -1, means no limit. A call that exceeds the limit
 * returns NO_REPLY. tma_set_server_uid names one more user, besides root and this process's user, that the
 * server may run as; the library checks this whenever it connects. */
TMA_API void tma_set_timeout(tma_client *client, int timeout_ms);
TMA_API void tma_set_server_uid(tma_client *client, unsigned uid);

/* Sets for how long, in milliseconds and within the timeout, a blocking call that finds the connection lost
 * tries to reach the service again. The default is 5000. 0 makes a single attempt; -1 never reconnects and
 * never repeats. After a call has failed to reconnect, each later call makes a single attempt. */
TMA_API void tma_set_reconnect(tma_client *client, int ms);

/* Returns the number of times that the library has reconnected by itself since tma_connect. */
TMA_API uint32_t tma_reconnects(const tma_client *client);

/* Returns the error message of the last call that failed on this client, or "" if none has failed. The string
 * belongs to the client and is valid until the next call. */
TMA_API const char *tma_last_error(const tma_client *client);

/* Returns the socket path that tma_connect selected, or "" before that. The string belongs to the client. */
TMA_API const char *tma_socket_path(const tma_client *client);

/* Returns 0 if the service answers. */
TMA_API int tma_ping(tma_client *client);

/* ---- Regions --------------------------------------------------------------------------------------- */

typedef struct tma_region tma_region;

enum tma_region_kind {
	TMA_REGION_ANY,      /* when creating: what suits the service's engine; a memfd on the CPU */
	TMA_REGION_MEMFD,    /* host memory that both sides map */
	TMA_REGION_CUDA_IPC, /* device memory shared by a CUDA IPC handle (cuIpcOpenMemHandle) */
	TMA_REGION_CUDA_FD,  /* device memory shared by a descriptor (cuMemImportFromShareableHandle) */
};

/* Creates a region of size bytes of zeroed memory, shared with the service. If the service has a device, this
 * is device memory: tma_region_data returns NULL, and tma_region_fd or tma_region_handle gives access to it.
 * Otherwise it is host memory. Host memory is allocated in this process and charged to its cgroup; NO_MEMORY:
 * there is not enough. The region belongs to the client until tma_region_release or tma_free. */
TMA_API int tma_region_create(tma_client *client, size_t size, tma_region **ret);

/* Creates a region of the given kind. TMA_REGION_MEMFD is memory that both sides map, whatever the engine. */
TMA_API int tma_region_create_kind(tma_client *client, enum tma_region_kind kind, size_t size,
                                   tma_region **ret);

/* The same on a device of a service that has several: device is its UUID, or its number in the list "devices"
 * of tma_info, in decimal; NULL: the first. Host memory (TMA_REGION_MEMFD) can be used with any device; the
 * one named is that for which the service maps it first. The region of one device can be the source, and,
 * where devices have peer access to each other, the destination of a transform whose other side is on another
 * device. NOT_FOUND: the service does not have that device. */
TMA_API int tma_region_create_on(tma_client *client, const char *device, enum tma_region_kind kind,
                                 size_t size, tma_region **ret);

enum tma_region_flags {
	TMA_REGION_READ_ONLY = 1, /* transforms may only read the region; its memfd may be open read-only */
};

/* Registers bytes [offset, offset + size) of a memfd, which the service maps. The memfd must be sealed
 * against shrinking (fcntl F_ADD_SEALS F_SEAL_SHRINK). The call first allocates any holes in the range, in
 * this process (NO_MEMORY if that fails): the service accepts no memory with holes, and a transform that
 * meets a hole punched later ends with DEVICE. A service with a GPU accepts an fd that is open read-only only
 * if the memfd is also sealed with F_SEAL_FUTURE_WRITE or F_SEAL_WRITE. The caller keeps the fd and may close
 * it when the call returns; the library keeps no mapping of it. */
TMA_API int tma_region_register_memfd(tma_client *client, int fd, uint64_t offset, size_t size,
                                      unsigned flags, tma_region **ret);

/* Registers device memory: an allocation made by cuMemCreate and exported as a POSIX file descriptor, or the
 * 64 bytes of a CUipcMemHandle (cudaIpcMemHandle_t). Memory shared by a handle must not be freed before its
 * region is released. allocation is the number of bytes that cuMemCreate was asked for, because an allocation
 * is always mapped as a whole; 0 stands for offset + size, rounded up to the device's granularity. The driver
 * does not tell whether two descriptors refer to the same allocation. An overlap of destination and source in
 * two regions of one allocation is therefore not detected; an overlap within one region is OVERLAP. */
TMA_API int tma_region_register_cuda_fd(tma_client *client, int fd, uint64_t allocation, uint64_t offset,
                                        size_t size, unsigned flags, tma_region **ret);
TMA_API int tma_region_register_cuda_ipc(tma_client *client, const void *handle, uint64_t offset, size_t size,
                                         unsigned flags, tma_region **ret);

/* Registers size bytes of device memory at device_ptr. Finds the allocation and exports it, as a descriptor
 * if cuMemCreate made it, or as an IPC handle if cudaMalloc did. The memory must not be freed before the
 * region is released. UNSUPPORTED: there is no CUDA driver, or the memory cannot be exported because it is
 * managed memory, comes from a pool (cudaMallocAsync), or was made by cuMemCreate without POSIX file
 * descriptors. */
TMA_API int tma_region_from_device_ptr(tma_client *client, const void *device_ptr, size_t size,
                                       unsigned flags, tma_region **ret);

/* Returns the address at which memory created by tma_region_create is mapped in this process, or NULL for
 * registered memory and for device memory. */
TMA_API void *tma_region_data(const tma_region *region);

TMA_API size_t tma_region_size(const tma_region *region);               /* bytes */
TMA_API enum tma_region_kind tma_region_kind(const tma_region *region); /* ANY only for NULL */

/* Return what the memory is shared by: tma_region_fd the memfd or the descriptor of a device allocation (-1
 * for CUDA IPC), tma_region_handle the 64 bytes of a CUDA IPC handle (NULL for other kinds). Both belong to
 * the region. */
TMA_API int tma_region_fd(const tma_region *region);
TMA_API const void *tma_region_handle(const tma_region *region);

/* Returns the UUID of the device that the memory is on, or for which the service has mapped host memory
 * first; "" if the service has no device. It is valid until the region's last release. */
TMA_API const char *tma_region_device(const tma_region *region);

/* Releases the region; the service keeps it until the requests in flight that use it have finished. Unmaps
 * what tma_region_create mapped. The handle is invalid afterwards, whatever the call returns. NULL is allowed
 * and returns 0. */
TMA_API int tma_region_release(tma_region *region);

/* ---- Tensors and transforms ------------------------------------------------------------------------ */

/* A view of a region. Zero-initialize it and set the members that you need:
 *     struct tma_tensor t = { .region = r, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 64, 100 } }; */
struct tma_tensor {
	tma_region *region;
	uint64_t offset; /* bytes from the region's start to element [0, ..., 0] */
	enum tma_dtype dtype;
	int rank;                    /* 0 to TMA_MAX_RANK */
	int64_t shape[TMA_MAX_RANK]; /* outermost first */
	const int64_t *strides;      /* rank strides, in elements; they may be negative, and zero in a source.
	                                NULL: C order */
	const int64_t *split;        /* n_split pairs d, n: dimension d becomes two, as described below */
	int n_split;                 /* 0 to TMA_MAX_SPLIT */
	uint64_t reserved[2];
};

enum tma_number_kind {
	TMA_NUMBER_INT,     /* i; a zero-initialized number is the integer 0 */
	TMA_NUMBER_UINT,    /* u */
	TMA_NUMBER_REAL,    /* re */
	TMA_NUMBER_COMPLEX, /* re, im */
};

struct tma_number {
	enum tma_number_kind kind;
	int64_t i;
	uint64_t u;
	double re, im;
	uint64_t reserved[2];
};

/* Encodes a number as padding would: tma_dtype_size(dtype) bytes, little-endian. INVALID_ARGUMENT: the dtype
 * cannot represent it. There is no error message, because there is no client. */
TMA_API int tma_number_encode(enum tma_dtype dtype, const struct tma_number *number, uint8_t ret[16]);

struct tma_order;

struct tma_amax {
	const int64_t *block;
	const struct tma_tensor *scale;   /* NULL: it is not written */
	const struct tma_tensor *inverse; /* likewise */
	int power_of_two;                 /* scales are rounded up to powers of two */
	double least; /* 0 or more: the largest magnitude of a block is taken to be at least that */
	uint64_t reserved[8];
};

struct tma_conversion {
	enum tma_cast cast;
	const struct tma_number *scale;        /* a real number; NULL: none */
	const struct tma_tensor *scale_tensor; /* instead of scale */
	const struct tma_number *bias;         /* likewise */
	const struct tma_tensor *bias_tensor;
	const struct tma_amax *amax; /* NULL: none */
	uint64_t reserved[7];
};

/* One transform. A NULL pointer leaves out its part: no permutation, no padding. */
struct tma_transform {
	const struct tma_tensor *dst;
	const struct tma_tensor *src;
	const int *perm;       /* src->rank entries: dimension d of the result is dimension perm[d] of src */
	const int64_t *before; /* dst->rank entries: elements added before each dimension; negative crops */
	const int64_t *after;  /* likewise, after each dimension */
	enum tma_pad_mode mode;
	struct tma_number value;                 /* with TMA_PAD_CONSTANT */
	const struct tma_order *order;           /* for a transform that is a request by itself; NULL: none */
	const struct tma_conversion *conversion; /* NULL: dst and src have one type */
	const struct tma_tensor
	    *further_dst; /* n_further_dst of them; only for tma_transform and tma_submit */
	size_t n_further_dst;
	uint64_t reserved[5];
};

struct tma_result {
	int status;          /* 0 or a negative TMA_* status */
	char path[24];       /* the kernel family used, such as "memcpy" or "tile_copy"; "" for items */
	uint64_t bytes;      /* bytes read plus bytes written */
	uint64_t ns;         /* the engine's own time, nanoseconds */
	uint32_t reconnects; /* tma_reconnects() when the request ended */
	uint32_t repeats;    /* 1: it was repeated, because its first connection was lost; otherwise 0 */
	uint64_t moved;      /* gather and scatter: entries whose blocks were moved */
	uint64_t passed;     /* likewise: entries that were -1 */
	uint64_t beyond;     /* likewise: entries out of range that were skipped; list in a region only */
	uint64_t pieces;     /* reshard: copies from a source to a destination that it took */
	uint64_t reserved[7];
};

/* Each of these calls waits for its reply; tma_last_result() then has the details. */
TMA_API int tma_copy(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src);
TMA_API int tma_transpose(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                          const int *perm);
TMA_API int tma_pad(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                    const int64_t *before, const int64_t *after, enum tma_pad_mode mode,
                    struct tma_number value);
TMA_API int tma_transform(tma_client *client, const struct tma_transform *transform);

/* Returns the result of the last request that was waited for, polled to its end, taken by tma_next, or could
 * not be sent. The result belongs to the client and is valid until the next call. */
TMA_API const struct tma_result *tma_last_result(const tma_client *client);

/* ---- Order ------------------------------------------------------------------------------------------ */

/* A timeline is a 64-bit word in a writable region, aligned to 8 bytes in memory, whose value only increases.
 * A point of the timeline has been reached when word - value, as a signed number, is not negative. Threads,
 * CUDA streams, processes and the service use timelines in memory that they share to order their work without
 * messages. */
struct tma_point {
	tma_region *region; /* NULL: no point */
	uint64_t offset;    /* bytes from the region's start to the word */
	uint64_t value;
	uint64_t reserved[2];
};

enum tma_completion {
	TMA_COMPLETION_DONE,   /* a reply when the request has ended */
	TMA_COMPLETION_QUEUED, /* also one as soon as it is checked and queued: see tma_is_queued */
	TMA_COMPLETION_SIGNAL, /* a reply only if it is refused or fails; its signal reports success. There
	                          is no ticket; see tma_take_error */
};

/* What passes what among the requests of one user, on a device that has work of several of its connections.
 * Users share the device's time equally whatever they ask for. Requests of one connection run in order. */
enum tma_priority {
	TMA_PRIORITY_NORMAL,
	TMA_PRIORITY_BACKGROUND, /* starts when the user's other connections have nothing to start */
	TMA_PRIORITY_URGENT,     /* starts before those of the user's other connections */
};

/* What a request waits for, what it signals, when it is answered and how it is run. A zero-initialized order
 * waits for nothing, signals nothing and is answered when the request has ended. An order applies only to the
 * request that it is given to, and the library reads it only during that call. Requests of a client run in
 * order, so later ones also wait for the point. */
struct tma_order {
	struct tma_point wait;   /* the request starts when this point is reached */
	struct tma_point signal; /* set when it has ended without error; what it wrote is visible by then */
	uint32_t wait_ms;        /* after so many milliseconds of waiting it ends with TIMEOUT and has moved
	                            nothing; 0: as long as the service allows (its limit wait_deadline_ms) */
	enum tma_completion completion; /* must be DONE in calls that wait for their reply */
	void *user;                     /* for the caller's use: tma_next returns it with the ticket */
	enum tma_priority priority;
	uint32_t multiprocessors; /* of the device, that each launch for the request occupies at most; 0: as
	                             many as the service allows (its limit multiprocessors) */
	uint32_t host_threads;    /* threads of the service that move its bytes at once at most; 0: as many
	                             as the service allows (its limit host_threads) */
	uint32_t deadline_ms; /* it ends with TIMEOUT unless it has begun this many milliseconds after it was
	                         taken; 0: no deadline */
	uint64_t reserved[5];
};

/* Signal or wait from the host. word is the address of the 8 bytes in memory that is mapped in this process.
 * A signal makes what this thread has written visible to those that wait for it, and wakes sleeping waiters.
 * A wait returns 0, or TMA_PENDING if the point is not reached within timeout_ms milliseconds (-1: no limit).
 * INVALID_ARGUMENT: word is NULL or not aligned to 8 bytes; there is no error message, because there is no
 * client. */
TMA_API int tma_point_signal(void *word, uint64_t value);
TMA_API int tma_point_wait(const void *word, uint64_t value, int timeout_ms);

/* Signal or wait on a CUDA stream (CUstream, cudaStream_t) of the current context: the call enqueues the
 * operation and does not wait for it. word is the device's address of the word: in device memory, or, for a
 * memfd that is mapped in this process, what cuMemHostRegister and cuMemHostGetDevicePointer make of it. A
 * wait on a stream has no deadline. The client serves only to hold error messages; it need not be connected.
 * UNSUPPORTED: there is no CUDA driver, or the driver has no 64-bit stream memory operations. */
TMA_API int tma_stream_signal(tma_client *client, void *stream, uint64_t word, uint64_t value);
TMA_API int tma_stream_wait(tma_client *client, void *stream, uint64_t word, uint64_t value);

/* ---- Plans ------------------------------------------------------------------------------------------ */

/* A transform that was checked once and can be run many times, between any two places. */
typedef struct tma_plan tma_plan;

/* The position of element [0, ..., 0] of a tensor. */
struct tma_place {
	tma_region *region;
	uint64_t offset; /* bytes from the region's start */
	uint64_t reserved[2];
};

/* Prepares a plan of the transform. The regions and offsets of its tensors are ignored; an order is
 * INVALID_ARGUMENT. The transform is not used after the call. The plan belongs to the client until
 * tma_plan_release or tma_free. */
TMA_API int tma_plan_prepare(tma_client *client, const struct tma_transform *transform, tma_plan **ret);

/* Runs the plan from src to dst and waits for the reply, like tma_transform. order may be NULL. */
TMA_API int tma_plan_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                         const struct tma_order *order);

/* Releases the plan; runs in flight finish. The handle is invalid afterwards, whatever the call returns. NULL
 * is allowed and returns 0. */
TMA_API int tma_plan_release(tma_plan *plan);

/* ---- Items: many transforms in one request ---------------------------------------------------------- */

typedef struct tma_table tma_table;

struct tma_operands {
	struct tma_place scale, bias; /* a place without a region: the plan has no such tensor */
	struct tma_place amax_scale, amax_inverse;
	uint64_t reserved[2];
};

/* A transform, or a run of a plan: exactly one of the two pointers is NULL. */
struct tma_item {
	const struct tma_transform *transform; /* its order must be NULL */
	const tma_plan *plan;
	struct tma_place dst, src;  /* where a plan runs */
	int status;                 /* out: 0 or a negative TMA_* status; TMA_PENDING while in progress */
	const tma_table *dst_table; /* instead of dst: the plan runs once for each place */
	const tma_table *src_table; /* instead of src, beside dst_table; NULL: all of these runs have the
	                               place src. Each run counts against jobs_per_uid */
	const struct tma_operands *operands; /* of a plan whose scale or bias is a tensor; otherwise NULL */
	uint64_t reserved[1];
};

/* Runs n items in one request and waits for the reply. Items run in no particular order: none may read or
 * write what another one writes. An item that is refused or fails does not affect the others, but it keeps
 * the order's signal from being set, because the signal means that all succeeded. Returns 0, or the status of
 * the first item that did not succeed, whose error message is then the last error. If the request as a whole
 * is stopped, every item that it stopped has the status that stopped it. Items that do not fit into one
 * protocol message (about 350 runs do) are sent in several, one after the other: the first waits for the
 * order's point, the last sets its signal. order may be NULL. */
TMA_API int tma_run_items(tma_client *client, struct tma_item *items, size_t n,
                          const struct tma_order *order);

/* ---- Blocks: gather and scatter --------------------------------------------------------------------- */

/* One transform for each entry of a list of block numbers. A gather indexes the source, a scatter the
 * destination:
 *
 *     gather:  dst[i] = transform(src[index[i]])          scatter:  dst[index[i]] = transform(src[i])
 *
 * The list is either in the caller's memory and is sent with the request, which must then fit into 64 KiB, or
 * in a region, where it may change until the request uses it. An index of -1 skips its entry. An index out of
 * range makes the request fail, or, if the list is in a region, is skipped and counted. Zero-initialize the
 * struct and set the members that you need; index_dtype is always one of them, because its zero value is not
 * an index type. */
struct tma_blocks {
	const struct tma_transform *transform; /* moves block 0 of layer 0; its order must be NULL */
	size_t count;                          /* number of entries in the list */
	enum tma_dtype index_dtype;            /* TMA_INT32 or TMA_INT64 */
	const void *index;                     /* the entries; or, if NULL: */
	struct tma_place index_at;             /* their place in a region, aligned to their size */
	uint64_t limit;          /* number of blocks on the indexed side; 0: as many as fit into its region */
	uint64_t dst_step;       /* bytes from one block to the next; 0: the size of a block */
	uint64_t src_step;       /* likewise */
	uint32_t layers;         /* number of layers; the whole list is used for each. 0: one layer */
	uint64_t dst_layer_step; /* bytes from one layer to the next */
	uint64_t src_layer_step; /* likewise */
	const int64_t *dst_layers;     /* instead of a step: for each layer, bytes from dst to its block 0 */
	const int64_t *src_layers;     /* likewise, from src */
	const struct tma_order *order; /* NULL: none */
	const tma_table *dst_table;    /* instead of a step or a list: the place of block 0 of each layer.
	                                  The transform's dst then has no region, its offset is added to each
	                                  place, and layers may be 0 for as many as there are places */
	const tma_table *src_table;    /* likewise */
	const struct tma_place *dst_places; /* instead of a table, for layers that are moved together once:
	                                       the same places, as many as layers says (1024 at most), which
	                                       are sent with the request */
	const struct tma_place *src_places; /* likewise */
	uint64_t pairs;     /* not 0: each entry is two numbers, a block of src and one of dst */
	uint64_t dst_limit; /* with pairs, number of blocks of dst; 0: as many as fit into its region */
	uint64_t reserved[2];
};

/* Each of these calls waits for its reply; tma_last_result() then has the details, including how many entries
 * were moved. */
TMA_API int tma_gather(tma_client *client, const struct tma_blocks *blocks);
TMA_API int tma_scatter(tma_client *client, const struct tma_blocks *blocks);

/* ---- Asynchronous requests ------------------------------------------------------------------------- */

/* A submitted request, until tma_wait, tma_poll or tma_next takes the ticket. The value is opaque and never
 * 0. The requests of a client run in the order in which they were submitted. */
typedef uint64_t tma_ticket;

/* Each of these calls queues a request and does not wait for its reply. Nothing that the arguments point to
 * is used after the call, except for items: their statuses are written when the request ends, so they must
 * exist until its ticket is taken. All items must fit into one protocol message.
 *
 * A submit never waits for a service that is gone: if the connection is lost, it tries to connect once and
 * returns DISCONNECTED if the connection is not accepted at once. It waits in two cases only, each time
 * within the timeout: while the socket is full and more than 64 KiB are queued; and, after reconnecting, for
 * the replies that register the client's regions and prepare its plans, within the time set by
 * tma_set_reconnect. If the service refuses one of them for now (QUOTA, BUSY, NO_MEMORY), the submit returns
 * that status, and the next call tries again.
 *
 * A request whose order has TMA_COMPLETION_SIGNAL has no ticket; ret must be NULL then, and only then. Its
 * items need not exist after the call and keep the status TMA_PENDING; if one of them cannot be sent, none
 * is. */
TMA_API int tma_submit(tma_client *client, const struct tma_transform *transform, tma_ticket *ret);
TMA_API int tma_submit_ping(tma_client *client, tma_ticket *ret);
TMA_API int tma_submit_run(tma_client *client, const tma_plan *plan, struct tma_place dst,
                           struct tma_place src, const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_items(tma_client *client, struct tma_item *items, size_t n,
                             const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_gather(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);
TMA_API int tma_submit_scatter(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);

/* Returns the first error since the last call among requests without a ticket, or 0 if there was none. Reads
 * what has arrived and never blocks. If a connection ends after it has accepted such requests, that counts as
 * an error, because it is unknown whether they had ended. */
TMA_API int tma_take_error(tma_client *client);

/* Returns 1 if the service has checked and queued a request of TMA_COMPLETION_QUEUED or the request has
 * ended, 0 if neither is known yet, or NOT_FOUND. Does not read from the socket. */
TMA_API int tma_is_queued(tma_client *client, tma_ticket ticket);

/* Asks the service to cancel a request. Returns 1 if the request was canceled before it started, 0 if it
 * continues or had already ended, or a negative status. Take its ticket all the same: a canceled request ends
 * with CANCELED. */
TMA_API int tma_cancel(tma_client *client, tma_ticket ticket);

/* Turns batching on or off; it is off by default. While it is on, up to 64 KiB of submitted requests are held
 * back until tma_flush, tma_dispatch, tma_next or a call that waits sends them together. Requests still held
 * back when the connection is lost end with it, although they were never sent. */
TMA_API void tma_set_batching(tma_client *client, bool on);

/* Sends the requests held back, as far as the socket accepts them. Never blocks. */
TMA_API int tma_flush(tma_client *client);

/* Waits for a ticket's request to end and takes the ticket. *ret is the result; ret may be NULL. Returns the
 * status of the request. */
TMA_API int tma_wait(tma_client *client, tma_ticket ticket, struct tma_result *ret);

/* Returns TMA_PENDING while the ticket's request is in progress, and otherwise does the same as tma_wait.
 * Does not read from the socket: tma_dispatch, tma_next and the calls that wait do. */
TMA_API int tma_poll(tma_client *client, tma_ticket ticket, struct tma_result *ret);

/* A ticket that was taken. */
struct tma_completed {
	tma_ticket ticket;
	void *user; /* from the request's order; NULL without an order */
	struct tma_result result;
	uint64_t reserved[4];
};

/* Takes the ticket that ended first among those not taken yet. Returns 0 even if its request failed:
 * ret->result.status then says so, and tma_last_error returns its message. TMA_PENDING: none has ended within
 * timeout_ms milliseconds (0: never blocks; -1: no limit; the client's timeout does not apply). NOT_FOUND: no
 * ticket is outstanding. Each ticket is taken once, by tma_next, tma_wait or tma_poll. */
TMA_API int tma_next(tma_client *client, int timeout_ms, struct tma_completed *ret);

/* For event loops: poll tma_fd() for tma_events() (POLLIN, POLLOUT), call tma_dispatch(), then call
 * tma_next() with a timeout of 0 until it no longer returns 0. tma_dispatch never blocks and never connects;
 * it returns the number of requests that ended, or a negative status. tma_fd is -1 while the client is not
 * connected, and may change when a call reconnects. */
TMA_API int tma_fd(const tma_client *client);
TMA_API short tma_events(const tma_client *client);
TMA_API int tma_dispatch(tma_client *client);

/* ---- Submission rings ------------------------------------------------------------------------------ */

/* A submission ring starts runs of plans through shared memory, without a message for each. It suits programs
 * that start thousands of runs a second, or wait for each one. A connection has at most one ring, and the
 * ring ends with it (DISCONNECTED). Runs start in the order in which they were pushed, after the requests
 * sent before them, and count towards the same limits as requests. */
typedef struct tma_ring tma_ring;

struct tma_ring_end {
	uint64_t tag;   /* the tag given to tma_ring_push */
	int status;     /* 0 or a negative TMA_* status; there is no error message */
	uint64_t bytes; /* bytes read plus bytes written */
	uint64_t ns;    /* the engine's own time, nanoseconds */
	uint64_t reserved[4];
};

/* Opens the connection's ring. entries, a power of two from 2 to 4096, limits the runs that are in flight or
 * have ended without being taken. spin_us is how long after the last run the service keeps polling the ring
 * before it has to be woken by a message: at most its limit ring_spin_us, and less if few runs arrive.
 * Polling occupies a CPU; 0 suits programs that push many runs at once. ALREADY_EXISTS: the connection has a
 * ring. The ring belongs to the client until tma_ring_close or tma_free. */
TMA_API int tma_ring_open(tma_client *client, uint32_t entries, uint32_t spin_us, tma_ring **ret);

/* tma_ring_push puts a run into the ring; BUSY: the ring is full. If the service is not polling the ring, the
 * run starts only with tma_ring_flush, which wakes the service, or tma_ring_wait. */
TMA_API int tma_ring_push(tma_ring *ring, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                          uint64_t tag);
TMA_API int tma_ring_flush(tma_ring *ring);

/* Takes the run that ended first among those not taken yet: returns 0, or TMA_PENDING if none has ended.
 * Busy-polling may starve the service; use tma_ring_wait. */
TMA_API int tma_ring_poll(tma_ring *ring, struct tma_ring_end *ret);

/* The same, but waits: polls for spin_us microseconds, then sleeps. TMA_PENDING: the client's timeout has
 * passed; the ring continues. NOT_FOUND: no run is in flight. */
TMA_API int tma_ring_wait(tma_ring *ring, uint32_t spin_us, struct tma_ring_end *ret);

/* Closes the ring. BUSY: some runs have not been taken, and the ring stays open; a ring whose connection has
 * ended can always be closed. NULL is allowed and returns 0. */
TMA_API int tma_ring_close(tma_ring *ring);

/* ---- Documents: what the service says about itself --------------------------------------------------- */

/* A read-only tree of maps, lists, texts and numbers. It remains valid after its client is freed. */
typedef struct tma_document tma_document;

enum tma_document_kind {
	TMA_DOCUMENT_NULL,
	TMA_DOCUMENT_BOOL,
	TMA_DOCUMENT_INT,
	TMA_DOCUMENT_REAL,
	TMA_DOCUMENT_TEXT,
	TMA_DOCUMENT_LIST,
	TMA_DOCUMENT_MAP,
};

/* The caller frees *ret with tma_document_free(). */
TMA_API int tma_info(tma_client *client, tma_document **ret);    /* engine, device, limits, methods, dtypes */
TMA_API int tma_stats(tma_client *client, tma_document **ret);   /* counters of the whole service */
TMA_API int tma_regions(tma_client *client, tma_document **ret); /* this connection's */

/* Returns the connections to the service whose id is greater than after: a list of at most 256 maps, by
 * ascending id (see session_list in the protocol). To list them all, start with after = 0 and repeat with the
 * "session" of the last map until the list is empty. Root and the service's own user see every connection;
 * other users see only those of their own uid. */
TMA_API int tma_sessions(tma_client *client, uint64_t after, tma_document **ret);

/* Like tma_regions, for the connection that has this id in tma_sessions; 0 means this connection. NOT_FOUND:
 * there is no such connection, or this user may not see it. */
TMA_API int tma_session_regions(tma_client *client, uint64_t session, tma_document **ret);

/* Explains how the service would move a transform, without moving it. Regions may be NULL; their bases are
 * then assumed to be well aligned. An order is ignored. */
TMA_API int tma_explain(tma_client *client, const struct tma_transform *transform, tma_document **ret);

/* The same for engine "cpu" or "cuda", whether or not the service uses it; regions do not matter then. NULL
 * selects the service's own engine. */
TMA_API int tma_explain_for(tma_client *client, const struct tma_transform *transform, const char *engine,
                            tma_document **ret);

/* Frees the whole tree. NULL is allowed. */
TMA_API void tma_document_free(tma_document *document);

/* Nodes, keys and texts belong to their tree. */
TMA_API enum tma_document_kind tma_document_kind(const tma_document *node);
TMA_API size_t tma_document_count(const tma_document *node); /* entries of a list or map; otherwise 0 */

/* Returns entry i of a list or map, or NULL past the last. *ret_key is its key, or NULL in a list; ret_key
 * may be NULL. */
TMA_API const tma_document *tma_document_at(const tma_document *node, size_t i, const char **ret_key);

TMA_API const tma_document *tma_document_find(const tma_document *node,
                                              const char *key);  /* NULL: no such key */
TMA_API const char *tma_document_text(const tma_document *node); /* the string of a text; otherwise NULL */
TMA_API int64_t tma_document_int(const tma_document *node);      /* value of a number or bool; otherwise 0 */
TMA_API double tma_document_real(const tma_document *node);      /* value of a number; otherwise 0 */

/* Returns the tree as JSON (RFC 8259), on a single line if indent is 0, or NULL if memory is exhausted. The
 * caller frees it with free(). */
TMA_API char *tma_document_json(const tma_document *node, int indent);

#ifdef __cplusplus
}
#endif

#endif
