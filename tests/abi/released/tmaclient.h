/* tmaclient.h - the client of tmad: tensor copy, transpose and pad as a service.
 *
 *     cc app.c $(pkg-config --cflags --libs tmaclient)
 *
 * A client is one connection. Memory is shared once, as a region; a tensor is a view of a region; a
 * transform moves one tensor into another:
 *
 *     dst[...] = pad(permute(src, perm), before, after, mode, value)
 *
 * with NumPy's meaning of permute (np.transpose) and pad (np.pad). A move never changes a bit of an
 * element. Destinations come before sources, as in memcpy. Many small moves go together: a plan is a
 * transform that was checked once, items are many transforms in one request, a gather or a scatter moves the
 * blocks of a list. An order says what a request waits for and signals in shared memory.
 *
 * Functions that can fail return 0 or a negative TMA_* status; tma_last_error() is then the sentence that
 * says what to change. Functions that poll or wait return 0 when what they look for has come, TMA_PENDING,
 * which is positive, when it has not come yet, and a negative status when something is wrong. A function that
 * fails or returns TMA_PENDING leaves *ret as it was, with one exception: when tma_wait or tma_poll takes a
 * ticket, *ret is the result of its request, which may have failed.
 *
 * Zero-initialize every struct and name the members that you need. Each struct ends with `reserved` members,
 * room for the members of later versions: they must be zero in what the library reads, and are zero in what
 * it writes. A value that is not zero is INVALID_ARGUMENT, so that an older library refuses what it does not
 * know instead of ignoring it.
 *
 * A client, with its regions, plans, tickets and rings, may be used by one thread at a time; different
 * clients may be used by different threads at the same time. After fork(), the child must not use the
 * clients of its parent. Any thread may call, at any time: the functions of the Vocabulary group,
 * tma_number_encode, tma_point_signal, tma_point_wait; tma_region_data, tma_region_size, tma_region_kind,
 * tma_region_fd and tma_region_handle while the region is not released; and the functions that read a
 * document while it is not freed. A signal handler may call the functions of the Vocabulary group and
 * tma_point_signal, and no others. The library starts no thread, installs no signal handler and keeps no
 * global state.
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

/* The version of this header. TMA_VERSION compares: #if TMA_VERSION >= 200 is 0.2.0 or later. */
#define TMA_VERSION_MAJOR 0
#define TMA_VERSION_MINOR 2
#define TMA_VERSION_PATCH 0
#define TMA_VERSION       (TMA_VERSION_MAJOR * 10000 + TMA_VERSION_MINOR * 100 + TMA_VERSION_PATCH)

#define TMA_MAX_RANK 32

enum tma_status {
	TMA_PENDING = 1, /* not yet: of functions that poll or wait, and of items under way; not an error */
	TMA_OK = 0,
	TMA_INVALID_ARGUMENT = -1, /* an argument breaks a rule; the call fails the same way when repeated */
	TMA_OUT_OF_RANGE = -2,     /* a tensor or a timeline's word leaves its region */
	TMA_OVERLAP = -3,          /* the destination overlaps itself or its source */
	TMA_NOT_FOUND = -4,        /* no such region, plan, ticket or connection, or no longer */
	TMA_ALREADY_EXISTS = -5,   /* the client is connected, or its connection has a ring already */
	TMA_UNSUPPORTED = -6,      /* this service, its engine or this machine's CUDA driver cannot do that */
	TMA_PERMISSION = -7,       /* the socket's mode, the service's user or a region's flags forbid it */
	TMA_QUOTA = -8,            /* a limit of the service would be exceeded; the sentence names it */
	TMA_BUSY = -9,         /* in use, full, or refused for now: finish or take something, then repeat */
	TMA_TIMEOUT = -10,     /* the point that a request waits for did not come; nothing was moved */
	TMA_CANCELED = -11,    /* canceled before it started, by tma_cancel or because a connection ended */
	TMA_DEVICE_LOST = -12, /* the service's device failed and is opened again; the next call reconnects */
	TMA_DEVICE = -13,      /* the device, or memory that was shared with it, failed */
	TMA_DISCONNECTED = -14, /* no service at the socket, or it went away; the next call reconnects */
	TMA_PROTOCOL = -15,     /* the peer sent what no tmad sends; the connection is closed */
	TMA_NO_MEMORY = -16,    /* this process, the service or its device has no memory left */
	TMA_INTERNAL = -17,     /* a bug of the service, or a system call that failed unexpectedly */
	TMA_NO_REPLY = -18,     /* no reply within tma_set_timeout: the connection is closed, the outcome
	                           unknown. Only the library reports it, never the service */
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

TMA_API const char *tma_status_name(int status);            /* "QUOTA"; "UNKNOWN" */
TMA_API const char *tma_dtype_name(enum tma_dtype dtype);   /* "float32"; NULL */
TMA_API size_t tma_dtype_size(enum tma_dtype dtype);        /* bytes; 0 */
TMA_API int tma_dtype_parse(const char *name);              /* an enum tma_dtype, or TMA_NOT_FOUND */
TMA_API const char *tma_pad_mode_name(enum tma_pad_mode m); /* "edge"; NULL */
TMA_API int tma_pad_mode_parse(const char *name);           /* an enum tma_pad_mode, or TMA_NOT_FOUND */
TMA_API const char *tma_version(void);                      /* of the library, "0.2.0" */

/* ---- Connection ------------------------------------------------------------------------------------ */

typedef struct tma_client tma_client;

/* A client that is not connected; NULL when out of memory. */
TMA_API tma_client *tma_new(void);

/* A connection that is lost because the service went away (DISCONNECTED) or because its device failed
 * (DEVICE_LOST) is replaced by the next call, at the same path: every region that was not released is
 * registered again, every plan is prepared again, and both keep their handles. Memory that the library or the
 * service made keeps its bytes, except for CUDA IPC memory of the service's, which is gone.
 * tma_reconnects() counts. Each region keeps a file descriptor open for this.
 *
 * A blocking call that was under way when the service went away is repeated once on the new connection, if
 * repeating it is harmless. That holds for calls that move nothing, and for a call that moves something,
 * signals nothing and was alone: no ticket was under way with it, and the connection had taken no request
 * without a ticket. Destination and source do not overlap, so that a repetition leaves the same bytes,
 * provided that nobody writes to the source or to a list of indices before the call returns.
 * tma_result.repeats tells. Tickets are not repeated, and neither is what was under way when a device
 * failed: they end with one of the two statuses, and how far they came is unknown. A request of which nothing
 * had been sent is sent on the new connection.
 *
 * While the service still releases what an earlier connection of the client held, it may refuse a region or a
 * plan with QUOTA, BUSY or NO_MEMORY. The call that reconnects then tries again until the time of
 * tma_set_reconnect, or its timeout, is over. If a region or plan is lost in the end, that call returns the
 * status with which it was refused, and the sentence says which it is. The client is connected then: what was
 * not lost works, and whatever uses what was lost fails with the same status. tma_restore() tries again, and
 * so does the next connection; tma_region_release() and tma_plan_release() give it up.
 *
 * After NO_REPLY and PROTOCOL a client stays closed, and its calls return DISCONNECTED, until the program
 * calls tma_connect: the service is there, but late or not what it should be, and the program decides what to
 * do.
 */

/* Connects, and registers and prepares again what belonged to the client's earlier connections. path: the
 * socket; NULL tries $TMAD_SOCKET, then /run/tmad/tmad.sock, then $XDG_RUNTIME_DIR/tmad/tmad.sock. The server
 * must run as root, as this process's user, or as the user named by tma_set_server_uid (PERMISSION
 * otherwise). ALREADY_EXISTS: the client is connected. After any other status than a region's or plan's, as
 * said above, it is not connected. */
TMA_API int tma_connect(tma_client *client, const char *path);

/* Registers and prepares again the regions and plans that the connection lost, as said above. Returns 0 when
 * all of them are back, or when none was lost. */
TMA_API int tma_restore(tma_client *client);

/* Closes the connection and frees the client with its regions, plans, tickets, rings and results. Unmaps the
 * memory of tma_region_create. NULL is allowed. */
TMA_API void tma_free(tma_client *client);

/* The timeout, in milliseconds, bounds every later call that waits for a reply, including tma_connect, and
 * with it the time to reconnect and to repeat. -1, the default: no limit. A call that exceeds it returns
 * NO_REPLY. tma_set_server_uid names a user as whom the server may run, besides root and this process's user;
 * the library checks whenever it connects. */
TMA_API void tma_set_timeout(tma_client *client, int timeout_ms);
TMA_API void tma_set_server_uid(tma_client *client, unsigned uid);

/* How long a blocking call that finds the connection lost tries to reach the service again, within the
 * timeout, in milliseconds: 5000 unless set. 0 tries once. -1 never reconnects and repeats nothing. After a
 * call that failed to reconnect, later calls try once each. */
TMA_API void tma_set_reconnect(tma_client *client, int ms);

/* How often the library has reconnected on its own since tma_connect. */
TMA_API uint32_t tma_reconnects(const tma_client *client);

/* The sentence about the last call that failed on this client; "" before any did. It belongs to the client
 * and is valid until the next call. */
TMA_API const char *tma_last_error(const tma_client *client);

/* The path of the socket that tma_connect chose; "" before. It belongs to the client. */
TMA_API const char *tma_socket_path(const tma_client *client);

/* Returns 0 if the service answers. */
TMA_API int tma_ping(tma_client *client);

/* ---- Regions --------------------------------------------------------------------------------------- */

typedef struct tma_region tma_region;

enum tma_region_kind {
	TMA_REGION_ANY,      /* to create: what suits the service's engine; a memfd on the CPU */
	TMA_REGION_MEMFD,    /* host memory; both sides map it */
	TMA_REGION_CUDA_IPC, /* device memory, shared by a CUDA IPC handle (cuIpcOpenMemHandle) */
	TMA_REGION_CUDA_FD,  /* device memory, shared by a descriptor (cuMemImportFromShareableHandle) */
};

/* Makes zeroed memory of size bytes and shares it. If the service has a device, it is device memory:
 * tma_region_data is NULL then, and tma_region_fd or tma_region_handle lead to the memory. Host memory is
 * made in this process and charged to its cgroup; NO_MEMORY when there is not enough. The region belongs to
 * the client; tma_region_release or tma_free ends it. */
TMA_API int tma_region_create(tma_client *client, size_t size, tma_region **ret);

/* The same, of one kind: TMA_REGION_MEMFD is memory that both sides map, whatever the engine. */
TMA_API int tma_region_create_kind(tma_client *client, enum tma_region_kind kind, size_t size,
                                   tma_region **ret);

enum tma_region_flags {
	TMA_REGION_READ_ONLY = 1, /* transforms may only read it; the memfd may be open read-only */
};

/* Has the service map bytes [offset, offset + size) of a memfd, which must be sealed against shrinking
 * (fcntl F_ADD_SEALS F_SEAL_SHRINK). Holes in the range are filled first, in this process (NO_MEMORY when
 * that fails): the service takes no memory with holes, and a transform that meets one made later ends with
 * DEVICE. A GPU's service takes an fd that is open read-only if the memfd is sealed with F_SEAL_FUTURE_WRITE
 * or F_SEAL_WRITE as well. The fd stays the caller's and may be closed when the call returns; the library
 * keeps no mapping of it. */
TMA_API int tma_region_register_memfd(tma_client *client, int fd, uint64_t offset, size_t size,
                                      unsigned flags, tma_region **ret);

/* The same for device memory: an allocation of cuMemCreate, exported as a POSIX file descriptor, or the 64
 * bytes of a CUipcMemHandle (cudaIpcMemHandle_t). The memory of a handle must not be freed before the region
 * is released. allocation: the bytes that cuMemCreate was asked for, because an allocation is mapped as a
 * whole; 0: offset + size, rounded up to the device's granularity. The driver does not tell whether two
 * descriptors belong to one allocation: an overlap of a destination with a source in another region of the
 * same allocation is not noticed, whereas an overlap within one region is OVERLAP. */
TMA_API int tma_region_register_cuda_fd(tma_client *client, int fd, uint64_t allocation, uint64_t offset,
                                        size_t size, unsigned flags, tma_region **ret);
TMA_API int tma_region_register_cuda_ipc(tma_client *client, const void *handle, uint64_t offset, size_t size,
                                         unsigned flags, tma_region **ret);

/* Registers size bytes of device memory at device_ptr: finds their allocation and exports it, as a descriptor
 * if cuMemCreate made it, as an IPC handle if cudaMalloc did. The memory must not be freed before the region
 * is released. UNSUPPORTED: there is no CUDA driver, or the memory cannot be exported because it is managed
 * memory, comes from a pool (cudaMallocAsync), or was made by cuMemCreate without POSIX file descriptors. */
TMA_API int tma_region_from_device_ptr(tma_client *client, const void *device_ptr, size_t size,
                                       unsigned flags, tma_region **ret);

/* Where memory of tma_region_create is mapped in this process; NULL for registered and for device memory. */
TMA_API void *tma_region_data(const tma_region *region);

TMA_API size_t tma_region_size(const tma_region *region);               /* bytes */
TMA_API enum tma_region_kind tma_region_kind(const tma_region *region); /* ANY only for NULL */

/* How the memory is shared: by a memfd or the descriptor of an allocation (-1 for CUDA IPC), or by the 64
 * bytes of a CUDA IPC handle (NULL for the others). Both belong to the region. */
TMA_API int tma_region_fd(const tma_region *region);
TMA_API const void *tma_region_handle(const tma_region *region);

/* Ends the region; the service first finishes the requests under way that use it. Unmaps what
 * tma_region_create mapped. The handle is invalid afterwards, whatever is returned. NULL is allowed, and
 * returns 0. */
TMA_API int tma_region_release(tma_region *region);

/* ---- Tensors and transforms ------------------------------------------------------------------------ */

/* A view of a region. Zero-initialize and name what you need:
 *     struct tma_tensor t = { .region = r, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 64, 100 } }; */
struct tma_tensor {
	tma_region *region;
	uint64_t offset; /* of element [0, ..., 0] in the region, bytes */
	enum tma_dtype dtype;
	int rank;                    /* 0 to TMA_MAX_RANK */
	int64_t shape[TMA_MAX_RANK]; /* outermost first */
	const int64_t *strides;      /* elements, rank of them; zero (of a source only) and negative ones are
	                                allowed. NULL: C order */
	uint64_t reserved[4];
};

enum tma_number_kind {
	TMA_NUMBER_INT,     /* i; zero-initialized: the integer 0 */
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

/* Writes a number as a pad would write it: tma_dtype_size(dtype) bytes, little-endian. INVALID_ARGUMENT: the
 * dtype cannot hold it. There is no sentence, since there is no client. */
TMA_API int tma_number_encode(enum tma_dtype dtype, const struct tma_number *number, uint8_t ret[16]);

struct tma_order;

/* One transform. A pointer that is NULL leaves its part out: no permutation, no padding. */
struct tma_transform {
	const struct tma_tensor *dst;
	const struct tma_tensor *src;
	const int *perm;       /* src->rank of them: dimension d of the result is dimension perm[d] of src */
	const int64_t *before; /* dst->rank of them, added before each dimension of dst; negative crops */
	const int64_t *after;
	enum tma_pad_mode mode;
	struct tma_number value;       /* of TMA_PAD_CONSTANT */
	const struct tma_order *order; /* if it is a request of its own; NULL: none. See Order */
	uint64_t reserved[8];
};

struct tma_result {
	int status;          /* 0 or a negative TMA_* status */
	char path[24];       /* the family that moved it: "memcpy", "tile_copy" and others; "" for items */
	uint64_t bytes;      /* read plus written */
	uint64_t ns;         /* the engine's own time */
	uint32_t reconnects; /* tma_reconnects() when it ended */
	uint32_t repeats;    /* 1: it ran twice, because its first connection was lost under it */
	uint64_t moved;      /* of a gather or scatter: entries whose blocks were moved */
	uint64_t passed;     /* entries that are -1 */
	uint64_t beyond;     /* entries out of range that were skipped; only of a list in a region */
	uint64_t reserved[8];
};

/* These wait for their reply. tma_last_result() says how it went. */
TMA_API int tma_copy(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src);
TMA_API int tma_transpose(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                          const int *perm);
TMA_API int tma_pad(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                    const int64_t *before, const int64_t *after, enum tma_pad_mode mode,
                    struct tma_number value);
TMA_API int tma_transform(tma_client *client, const struct tma_transform *transform);

/* The result of the last request that was waited for, polled to its end or taken by tma_next, or of the last
 * one that could not be sent. It belongs to the client and is valid until the next call. */
TMA_API const struct tma_result *tma_last_result(const tma_client *client);

/* ---- Order ------------------------------------------------------------------------------------------ */

/* A timeline is a 64-bit word in a writable region, at a multiple of 8 bytes of its memory. It only goes up:
 * a point of it has come when word - value, as a signed number, is not negative. Threads, CUDA streams,
 * processes and the service that share the memory order each other by it, without messages. */
struct tma_point {
	tma_region *region; /* NULL: no point */
	uint64_t offset;    /* of the word, bytes */
	uint64_t value;
	uint64_t reserved[2];
};

enum tma_completion {
	TMA_COMPLETION_DONE,   /* a reply when it has ended */
	TMA_COMPLETION_QUEUED, /* another one when it was checked and queued: see tma_is_queued */
	TMA_COMPLETION_SIGNAL, /* a reply only if it is refused or fails: its signal tells the rest. There is
	                          no ticket; see tma_take_error */
};

/* What a request waits for, what it signals and how it is answered; zero-initialized: nothing, and when it
 * has ended. The order applies to the one request that it is given to, and is read by that call. Later
 * requests of the same client wait for it too, since they run in order. */
struct tma_order {
	struct tma_point wait;   /* the request starts when this point has come */
	struct tma_point signal; /* set when it has ended without an error; what it wrote is then visible */
	uint32_t wait_ms; /* how long it waits: then it ends as TIMEOUT and has moved nothing. 0: as long as
	                     the service allows (its limit wait_deadline_ms) */
	enum tma_completion completion; /* DONE in calls that wait for their reply */
	void *user;                     /* the caller's: tma_next returns it with the ticket */
	uint64_t reserved[7];
};

/* The host's side, on memory that is mapped in this process; word: the address of its 8 bytes. A signal makes
 * what this thread wrote visible to whoever waits for it, and wakes the sleeping waiters. A wait returns 0,
 * or TMA_PENDING when the point has not come after timeout_ms milliseconds (-1: no limit). INVALID_ARGUMENT:
 * word is NULL or not at a multiple of 8; there is no sentence, since there is no client. */
TMA_API int tma_point_signal(void *word, uint64_t value);
TMA_API int tma_point_wait(const void *word, uint64_t value, int timeout_ms);

/* The client's side, on a CUDA stream (CUstream, cudaStream_t) of the current context: the operation is
 * enqueued, and the call does not wait for it. word: the address by which the device knows the word, in
 * device memory, or in a memfd that is mapped here what cuMemHostRegister and cuMemHostGetDevicePointer make
 * of it. The wait of a stream has no deadline. The client only holds the sentences of errors; it need not be
 * connected. UNSUPPORTED: there is no CUDA driver, or it has no 64-bit stream memory operations. */
TMA_API int tma_stream_signal(tma_client *client, void *stream, uint64_t word, uint64_t value);
TMA_API int tma_stream_wait(tma_client *client, void *stream, uint64_t word, uint64_t value);

/* ---- Plans ------------------------------------------------------------------------------------------ */

/* A transform without places that was checked once. */
typedef struct tma_plan tma_plan;

/* Where element [0, ..., 0] of a tensor is. */
struct tma_place {
	tma_region *region;
	uint64_t offset; /* bytes */
	uint64_t reserved[2];
};

/* Ignores the regions and offsets of the transform's tensors; an order is INVALID_ARGUMENT. The transform is
 * not used after the call. The plan belongs to the client; tma_plan_release or tma_free ends it. */
TMA_API int tma_plan_prepare(tma_client *client, const struct tma_transform *transform, tma_plan **ret);

/* Runs the plan between two places and waits for the reply, like tma_transform. order may be NULL. */
TMA_API int tma_plan_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                         const struct tma_order *order);

/* Ends the plan; runs under way finish. The handle is invalid afterwards, whatever is returned. NULL is
 * allowed, and returns 0. */
TMA_API int tma_plan_release(tma_plan *plan);

/* ---- Items: many transforms in one request ---------------------------------------------------------- */

/* A transform or a run of a plan: one of the two pointers is NULL. */
struct tma_item {
	const struct tma_transform *transform; /* without an order of its own */
	const tma_plan *plan;
	struct tma_place dst, src; /* of a run */
	int status;                /* out: 0 or a negative TMA_* status; TMA_PENDING while under way */
	uint64_t reserved[4];
};

/* Items run in no particular order: none may read or write what another one writes. An item that is refused
 * or fails does not affect the others, but the order's signal is not set, since it says that all went well.
 * Returns 0, or the status of the first item that did not go well, whose sentence is then the last error;
 * what stops the whole request becomes the status of every item that it stopped. If one message cannot hold
 * them (it holds about 350 runs), they are sent in several, one after the other: the first has the order's
 * wait, the last its signal. order may be NULL. */
TMA_API int tma_run_items(tma_client *client, struct tma_item *items, size_t n,
                          const struct tma_order *order);

/* ---- Blocks: gather and scatter --------------------------------------------------------------------- */

/* A transform of each block of a list. A gather indexes the source, a scatter the destination:
 *
 *     gather:  dst[i] = transform(src[index[i]])          scatter:  dst[index[i]] = transform(src[i])
 *
 * The list is either in the caller's memory and is sent with the request, which has to fit into 64 KiB, or in
 * a region, where it may change until it is used. An index of -1 skips its entry. An index out of range makes
 * the request fail or, if the list is in a region, is skipped and counted. Zero-initialize and name the
 * members that you need; index_dtype is always one of them, because zero is no type of an index. */
struct tma_blocks {
	const struct tma_transform *transform; /* of block 0 of layer 0, where its tensors are; no order */
	size_t count;                          /* entries of the list */
	enum tma_dtype index_dtype;            /* TMA_INT32 or TMA_INT64 */
	const void *index;                     /* the entries; or: */
	struct tma_place index_at;             /* where they are, at a multiple of their size */
	uint64_t limit;                /* blocks of the indexed side; 0: as many as fit into its region */
	uint64_t dst_step;             /* bytes from one block to the next; 0: the size of a block */
	uint64_t src_step;             /* likewise */
	uint32_t layers;               /* how often the list is used, once for each layer; 0: once */
	uint64_t dst_layer_step;       /* bytes from one layer to the next */
	uint64_t src_layer_step;       /* likewise */
	const int64_t *dst_layers;     /* instead, for each layer: bytes from dst to its block 0 */
	const int64_t *src_layers;     /* likewise, from src */
	const struct tma_order *order; /* NULL: none */
	uint64_t reserved[8];
};

/* These wait for their reply. tma_last_result() says how it went, and how many entries were moved. */
TMA_API int tma_gather(tma_client *client, const struct tma_blocks *blocks);
TMA_API int tma_scatter(tma_client *client, const struct tma_blocks *blocks);

/* ---- Asynchronous requests ------------------------------------------------------------------------- */

/* A request that was submitted, until tma_wait, tma_poll or tma_next takes it. Its value means nothing to the
 * caller; it is never 0. Requests of one client run in the order in which they were submitted. */
typedef uint64_t tma_ticket;

/* These queue a request and do not wait for it. What the arguments point to is not used after the call,
 * except for items: their statuses are written when the request ends, so that they have to exist until its
 * ticket is taken. Items have to fit into one message.
 *
 * A submit never waits while the service is gone: if the connection is lost, it tries to connect once, and
 * returns DISCONNECTED if nobody accepts at once. It waits in two cases, each time within the timeout: while
 * the socket is full and more than 64 KiB are queued; and after it has connected again, for the replies that
 * register the client's regions and prepare its plans, within the time of tma_set_reconnect. If the service
 * refuses one of them for now (QUOTA, BUSY, NO_MEMORY), the submit returns that status, and the next call
 * tries again.
 *
 * A request whose order has TMA_COMPLETION_SIGNAL has no ticket: ret is NULL then, and only then. Its items
 * need not exist after the call and keep the status TMA_PENDING; if one of them cannot be sent, none is. */
TMA_API int tma_submit(tma_client *client, const struct tma_transform *transform, tma_ticket *ret);
TMA_API int tma_submit_ping(tma_client *client, tma_ticket *ret);
TMA_API int tma_submit_run(tma_client *client, const tma_plan *plan, struct tma_place dst,
                           struct tma_place src, const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_items(tma_client *client, struct tma_item *items, size_t n,
                             const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_gather(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);
TMA_API int tma_submit_scatter(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);

/* Returns the first error of a request without a ticket since the last call, or 0 if there was none. Reads
 * what has arrived; never blocks. A connection that ends after it took such requests counts as an error:
 * whether they had ended is unknown. */
TMA_API int tma_take_error(tma_client *client);

/* Returns 1 once the service has checked and queued a request of TMA_COMPLETION_QUEUED or the request has
 * ended, 0 before, or NOT_FOUND. Reads nothing. */
TMA_API int tma_is_queued(tma_client *client, tma_ticket ticket);

/* Asks the service to cancel a request. Returns 1 if it was canceled before it started, 0 if it goes on or
 * had ended, or a negative status. Take its ticket all the same: a canceled request ends as CANCELED. */
TMA_API int tma_cancel(tma_client *client, tma_ticket ticket);

/* Many requests, one send: while this is on, up to 64 KiB of submitted requests are kept until tma_flush,
 * tma_dispatch, tma_next or a call that waits sends them. It is off unless set. Requests that are still kept
 * when the connection is lost end with it, although they were never sent. */
TMA_API void tma_set_batching(tma_client *client, bool on);

/* Sends what is kept, as far as the socket takes it. Never blocks. */
TMA_API int tma_flush(tma_client *client);

/* Waits for a ticket and takes it; *ret is its result (ret may be NULL). Returns the request's status. */
TMA_API int tma_wait(tma_client *client, tma_ticket ticket, struct tma_result *ret);

/* Returns TMA_PENDING while the ticket is under way; otherwise as tma_wait. Reads nothing: tma_dispatch,
 * tma_next and the calls that wait do. */
TMA_API int tma_poll(tma_client *client, tma_ticket ticket, struct tma_result *ret);

/* A ticket that was taken. */
struct tma_completed {
	tma_ticket ticket;
	void *user; /* of the request's order; NULL without an order */
	struct tma_result result;
	uint64_t reserved[4];
};

/* Takes the ticket that ended first among those that nobody has taken. Returns 0 even if its request failed:
 * ret->result.status says so, and tma_last_error is its sentence. TMA_PENDING: none ended within timeout_ms
 * milliseconds (0: never blocks; -1: no limit; the client's timeout plays no part). NOT_FOUND: no ticket is
 * outstanding. A ticket that tma_wait or tma_poll takes does not appear here, and the other way round. */
TMA_API int tma_next(tma_client *client, int timeout_ms, struct tma_completed *ret);

/* For event loops: poll tma_fd() for tma_events() (POLLIN, POLLOUT), call tma_dispatch(), then call
 * tma_next() with a timeout of 0 until it no longer returns 0. tma_dispatch never blocks and never connects;
 * it returns how many requests ended, or a negative status. tma_fd is -1 while the client is not connected,
 * and may change when a call reconnects. */
TMA_API int tma_fd(const tma_client *client);
TMA_API short tma_events(const tma_client *client);
TMA_API int tma_dispatch(tma_client *client);

/* ---- Submission rings ------------------------------------------------------------------------------ */

/* Runs of plans through shared memory, without a message for each: for programs that run thousands a second,
 * or wait for each. A connection has one ring at most, and the ring ends with it (DISCONNECTED). Runs start
 * in the order in which they were pushed, after what was sent before, and count towards the same limits as
 * requests. */
typedef struct tma_ring tma_ring;

struct tma_ring_end {
	uint64_t tag;   /* of the push */
	int status;     /* 0 or a negative TMA_* status, without a sentence */
	uint64_t bytes; /* read plus written */
	uint64_t ns;    /* the engine's own time */
	uint64_t reserved[4];
};

/* entries: a power of two from 2 to 4096, the most runs that are under way, or have ended and are not taken.
 * spin_us: how long after the last run the service keeps looking for another one before it has to be woken by
 * a message, at most its limit ring_spin_us, and less if few runs come. Looking occupies a CPU; 0 suits
 * programs that push many runs at once. The ring belongs to the client; tma_ring_close or tma_free ends it.
 */
TMA_API int tma_ring_open(tma_client *client, uint32_t entries, uint32_t spin_us, tma_ring **ret);

/* Puts a run into the ring. If the service is not looking, the run starts with tma_ring_flush or
 * tma_ring_wait. BUSY: the ring is full. */
TMA_API int tma_ring_push(tma_ring *ring, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                          uint64_t tag);
TMA_API int tma_ring_flush(tma_ring *ring);

/* Takes the run that ended first among those not taken: 0, or TMA_PENDING if none has ended. Busy-polling may
 * starve the service; use tma_ring_wait. */
TMA_API int tma_ring_poll(tma_ring *ring, struct tma_ring_end *ret);

/* The same, but waits: looks for spin_us microseconds, then sleeps. TMA_PENDING: the client's timeout passed,
 * and the ring goes on. NOT_FOUND: no run is under way. */
TMA_API int tma_ring_wait(tma_ring *ring, uint32_t spin_us, struct tma_ring_end *ret);

/* Ends the ring. BUSY: runs have not been taken, and the ring stays open. NULL is allowed, and returns 0. */
TMA_API int tma_ring_close(tma_ring *ring);

/* ---- Documents: what the service says about itself --------------------------------------------------- */

/* A read-only tree of maps, lists, texts and numbers. It does not need its client. */
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

/* The caller frees *ret: tma_document_free(). */
TMA_API int tma_info(tma_client *client, tma_document **ret);    /* engine, device, limits, methods, dtypes */
TMA_API int tma_stats(tma_client *client, tma_document **ret);   /* counters of the whole service */
TMA_API int tma_regions(tma_client *client, tma_document **ret); /* of this connection */

/* The connections to the service with an id greater than after: a list of at most 256 maps, by ascending id
 * (see session_list in the protocol). To see all of them, start with after = 0 and repeat with the last
 * map's "session" until the list is empty. Root and the service's own user see every connection, others those
 * of their own uid. */
TMA_API int tma_sessions(tma_client *client, uint64_t after, tma_document **ret);

/* As tma_regions, for the connection with that id in tma_sessions; 0: this one. NOT_FOUND: there is no such
 * connection, or this user may not see it. */
TMA_API int tma_session_regions(tma_client *client, uint64_t session, tma_document **ret);

/* How the service would move a transform, without moving it. Regions may be NULL: their bases are then
 * assumed to be well aligned. An order is ignored. */
TMA_API int tma_explain(tma_client *client, const struct tma_transform *transform, tma_document **ret);

/* The same for the engine "cpu" or "cuda", which need not be the service's; regions do not matter then. NULL:
 * the service's own. */
TMA_API int tma_explain_for(tma_client *client, const struct tma_transform *transform, const char *engine,
                            tma_document **ret);

/* Frees the whole tree. NULL is allowed. */
TMA_API void tma_document_free(tma_document *document);

/* Nodes belong to their tree, and so do keys and texts. */
TMA_API enum tma_document_kind tma_document_kind(const tma_document *node);
TMA_API size_t tma_document_count(const tma_document *node); /* of a list or map; otherwise 0 */

/* Entry i of a list or map, or NULL past the last. *ret_key is its key, NULL in a list; ret_key may be
 * NULL. */
TMA_API const tma_document *tma_document_at(const tma_document *node, size_t i, const char **ret_key);

TMA_API const tma_document *tma_document_find(const tma_document *node,
                                              const char *key);  /* NULL: not there */
TMA_API const char *tma_document_text(const tma_document *node); /* of a text; otherwise NULL */
TMA_API int64_t tma_document_int(const tma_document *node);      /* of a number or bool; otherwise 0 */
TMA_API double tma_document_real(const tma_document *node);      /* of a number; otherwise 0 */

/* The tree as JSON (RFC 8259); the caller frees it: free(). NULL: out of memory. indent 0: one line. */
TMA_API char *tma_document_json(const tma_document *node, int indent);

#ifdef __cplusplus
}
#endif

#endif
