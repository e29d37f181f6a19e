/* tmaclient.h - the client of tmad: tensor copy, transpose and pad as a service.
 *
 *     cc app.c $(pkg-config --cflags --libs tmaclient)
 *
 * A client is one connection. Memory is shared once, as a region; a tensor is a view of a region; a
 * transform moves one tensor into another:
 *
 *     dst[...] = pad(permute(src, perm), before, after, mode, value)
 *
 * with NumPy's meaning of permute (np.transpose) and pad (np.pad). Moving never changes a bit of an
 * element. Destinations come before sources, as in memcpy. Many small moves go together: a plan is a
 * transform that was checked once, items are many transforms in one request, a gather or a scatter moves the
 * blocks of a list. An order says what a request waits for and signals in shared memory.
 *
 * Functions that can fail return 0 or a negative TMA_* status; tma_last_error() is then the sentence that
 * says what to change. A client is not thread-safe; two clients in two threads are fine. The library
 * starts no thread, installs no signal handler and keeps no global state.
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

#define TMA_MAX_RANK 32

enum tma_status {
	TMA_OK = 0,
	TMA_INVALID_ARGUMENT = -1,
	TMA_OUT_OF_RANGE = -2, /* a tensor leaves its region */
	TMA_OVERLAP = -3,      /* the destination overlaps itself or its source */
	TMA_NOT_FOUND = -4,
	TMA_ALREADY_EXISTS = -5,
	TMA_UNSUPPORTED = -6,
	TMA_PERMISSION = -7,
	TMA_QUOTA = -8, /* a limit of the service; its name is in the message */
	TMA_BUSY = -9,
	TMA_TIMEOUT = -10, /* of tma_set_timeout; the connection is closed, the outcome unknown */
	TMA_CANCELED = -11,
	TMA_DEVICE_LOST = -12, /* the service's device failed under it; the next call connects again */
	TMA_DEVICE = -13,
	TMA_DISCONNECTED = -14, /* no service at the socket, or it went away; the next call connects again */
	TMA_PROTOCOL = -15,     /* the server sent what no tmad sends; the connection is closed */
	TMA_NO_MEMORY = -16,
	TMA_INTERNAL = -17,
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
TMA_API const char *tma_version(void);                      /* of the library, "0.1.0" */

/* ---- Connection ------------------------------------------------------------------------------------ */

typedef struct tma_client tma_client;

/* A client that is not connected; NULL when out of memory. */
TMA_API tma_client *tma_new(void);

/* A connection that ends because the service went away (DISCONNECTED), or that its device was lost under
 * (DEVICE_LOST), is made anew by the next call, at the same path: every region that has not been released is
 * registered again, every plan prepared again, and both keep their handles here. Memory that the service made
 * keeps its bytes, but for that of CUDA IPC, which is gone (its use is NOT_FOUND). tma_reconnects() counts. A
 * region costs a file descriptor for this.
 *
 * A blocking call that was under way when the service went away is made again on the new connection, once,
 * where twice is the same as once. That is any call that moves nothing (regions too: what the old connection
 * had made or registered went with it), and one that moves something, signals nothing and was alone: no
 * ticket was under way with it, and the connection had taken no request without a ticket. Destination and
 * source do not overlap, so it leaves the same bytes, as long as nobody writes to the source, or to a list of
 * indices, before the call returns. tma_result.repeats tells. Tickets are not repeated, nor is what a device
 * was lost under: they end with one of the two statuses, and nobody knows how far they came. A request of
 * which nothing had been sent yet is not lost that way.
 *
 * After TIMEOUT and PROTOCOL a client stays closed until tma_connect, and its calls are DISCONNECTED: the
 * service is there, but late or not what it should be, and what to do then is the program's to say. */

/* Connects, and registers the regions of a connection before that has ended. path: the socket; NULL looks at
 * $TMAD_SOCKET, /run/tmad/tmad.sock and $XDG_RUNTIME_DIR/tmad/tmad.sock. The server must run as root or as
 * this process's user, or as the one named by tma_set_server_uid (PERMISSION else). A client that is
 * connected is ALREADY_EXISTS. */
TMA_API int tma_connect(tma_client *client, const char *path);

/* Ends the connection and frees the client and every region, plan, ticket and result that came from it.
 * Unmaps the memory of tma_region_create. NULL is allowed. */
TMA_API void tma_free(tma_client *client);

/* Both before tma_connect. The timeout bounds each blocking call after it, tma_connect too, with all that it
 * connects again and repeats, milliseconds; -1 (the default): none. */
TMA_API void tma_set_timeout(tma_client *client, int timeout_ms);
TMA_API void tma_set_server_uid(tma_client *client, unsigned uid);

/* How long a call that finds the connection lost tries to reach the service again, within the timeout,
 * milliseconds: 5000 unless set; 0 tries once; -1 never connects again, and repeats nothing. One that failed
 * has the next ones try once each. */
TMA_API void tma_set_reconnect(tma_client *client, int ms);

/* How often the library has connected again by itself since tma_connect. */
TMA_API uint32_t tma_reconnects(const tma_client *client);

/* The sentence about the last call that failed on this client; "" before any did. Valid until the next
 * call. */
TMA_API const char *tma_last_error(const tma_client *client);

/* The socket's path that tma_connect chose; "" before. */
TMA_API const char *tma_socket_path(const tma_client *client);

/* Asks the service whether it answers. */
TMA_API int tma_ping(tma_client *client);

/* ---- Regions --------------------------------------------------------------------------------------- */

typedef struct tma_region tma_region;

enum tma_region_kind {
	TMA_REGION_ANY,      /* to create: what suits the service's engine best; a memfd on the CPU */
	TMA_REGION_MEMFD,    /* host memory; both sides map it */
	TMA_REGION_CUDA_IPC, /* device memory by a CUDA IPC handle (cuIpcOpenMemHandle) */
	TMA_REGION_CUDA_FD,  /* device memory by a descriptor (cuMemImportFromShareableHandle) */
};

/* New zeroed memory of size bytes, made by the service. Of the device, when it has one: tma_region_data is
 * NULL then, and the memory is reached by tma_region_fd or tma_region_handle. */
TMA_API int tma_region_create(tma_client *client, size_t size, tma_region **ret);

/* The same of a kind: TMA_REGION_MEMFD is memory that both sides map, whatever the engine. */
TMA_API int tma_region_create_kind(tma_client *client, enum tma_region_kind kind, size_t size,
                                   tma_region **ret);

enum tma_region_flags {
	TMA_REGION_READ_ONLY = 1, /* transforms may only read it; a memfd may be open read-only */
};

/* The service maps bytes [offset, offset + size) of a memfd, which must be sealed against shrinking
 * (fcntl F_ADD_SEALS F_SEAL_SHRINK). The fd stays the caller's and may be closed; the library does not
 * map it. */
TMA_API int tma_region_register_memfd(tma_client *client, int fd, uint64_t offset, size_t size,
                                      unsigned flags, tma_region **ret);

/* The same of device memory: an allocation of cuMemCreate, exported as a POSIX file descriptor, or the 64
 * bytes of a CUipcMemHandle (cudaIpcMemHandle_t), whose memory must not be freed before the region is
 * released. allocation: bytes that cuMemCreate was asked for, because a part cannot be mapped; 0: offset +
 * size, rounded up to the device's granularity. The driver does not say whether two descriptors are of one
 * allocation, so a destination that overlaps a source in another region of it is not refused as OVERLAP;
 * within one region it is. */
TMA_API int tma_region_register_cuda_fd(tma_client *client, int fd, uint64_t allocation, uint64_t offset,
                                        size_t size, unsigned flags, tma_region **ret);
TMA_API int tma_region_register_cuda_ipc(tma_client *client, const void *handle, uint64_t offset, size_t size,
                                         unsigned flags, tma_region **ret);

/* Registers size bytes of device memory from device_ptr on: finds their allocation and exports it, one of
 * cuMemCreate as a descriptor, one of cudaMalloc as an IPC handle. The memory must not be freed before the
 * region is released. UNSUPPORTED without a CUDA driver, and for memory that cannot be exported: managed
 * memory, pools (cudaMallocAsync), allocations of cuMemCreate without POSIX file descriptors. */
TMA_API int tma_region_from_device_ptr(tma_client *client, const void *device_ptr, size_t size,
                                       unsigned flags, tma_region **ret);

/* Where memory of tma_region_create is mapped here; NULL for a registered one and for device memory. */
TMA_API void *tma_region_data(const tma_region *region);

TMA_API size_t tma_region_size(const tma_region *region);               /* bytes */
TMA_API enum tma_region_kind tma_region_kind(const tma_region *region); /* never ANY, but of NULL */

/* What the memory is shared by, the region's own: the memfd or the allocation's descriptor, -1 for CUDA IPC;
 * the 64 bytes of the handle, NULL for the others. */
TMA_API int tma_region_fd(const tma_region *region);
TMA_API const void *tma_region_handle(const tma_region *region);

/* Ends the region; requests under way that use it finish first, on the service's side. Unmaps what
 * tma_region_create mapped. The handle is gone whatever is returned. NULL is allowed (and 0). */
TMA_API int tma_region_release(tma_region *region);

/* ---- Tensors and transforms ------------------------------------------------------------------------ */

/* A view of a region. Zero-initialise and name what you need:
 *     struct tma_tensor t = { .region = r, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 64, 100 } }; */
struct tma_tensor {
	tma_region *region;
	uint64_t offset; /* of element [0, ..., 0] in the region, bytes */
	enum tma_dtype dtype;
	int rank;                    /* 0..TMA_MAX_RANK */
	int64_t shape[TMA_MAX_RANK]; /* outermost first */
	const int64_t
	    *strides; /* elements, rank of them, zero (source only) and negative allowed; NULL: C order */
};

enum tma_number_kind {
	TMA_NUMBER_INT,     /* i; zero-initialised: the integer 0 */
	TMA_NUMBER_UINT,    /* u */
	TMA_NUMBER_REAL,    /* re */
	TMA_NUMBER_COMPLEX, /* re, im */
};

struct tma_number {
	enum tma_number_kind kind;
	int64_t i;
	uint64_t u;
	double re, im;
};

/* The dtype's tma_dtype_size(dtype) little-endian bytes of a number, as a pad would write them. 0, or
 * INVALID_ARGUMENT when the dtype cannot hold it. */
TMA_API int tma_number_encode(enum tma_dtype dtype, const struct tma_number *number, uint8_t ret[16]);

struct tma_order;

/* One transform. What is zero or NULL is left out: no permutation, no padding. */
struct tma_transform {
	const struct tma_tensor *dst;
	const struct tma_tensor *src;
	const int *perm;       /* src->rank of them: dimension d of the result is dimension perm[d] of src */
	const int64_t *before; /* dst->rank of them, added before each dimension of dst; negative crops */
	const int64_t *after;
	enum tma_pad_mode mode;
	struct tma_number value;       /* of TMA_PAD_CONSTANT */
	const struct tma_order *order; /* where it is a request of its own; NULL: none. See Order */
};

struct tma_result {
	int status; /* 0 or a TMA_* status */
	char
	    path[24]; /* the family that moved it: "memcpy", "tile_copy", "strided" and others; "" of items */
	uint64_t bytes;      /* read plus written */
	uint64_t ns;         /* the engine's own time */
	uint32_t reconnects; /* tma_reconnects() when it ended */
	uint32_t repeats;    /* 1: it was made twice, because its first connection was lost under it */
	uint64_t moved;      /* of a gather or scatter: entries whose blocks were moved */
	uint64_t passed;     /* entries of -1 */
	uint64_t beyond;     /* entries out of range that were passed over: only of a list in a region */
};

/* Each waits for its reply. tma_last_result() says how it went. */
TMA_API int tma_copy(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src);
TMA_API int tma_transpose(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                          const int *perm);
TMA_API int tma_pad(tma_client *client, const struct tma_tensor *dst, const struct tma_tensor *src,
                    const int64_t *before, const int64_t *after, enum tma_pad_mode mode,
                    struct tma_number value);
TMA_API int tma_transform(tma_client *client, const struct tma_transform *transform);

/* Of the last request that was waited for, or of the last that moves something and could not be sent; valid
 * until the next call. */
TMA_API const struct tma_result *tma_last_result(const tma_client *client);

/* ---- Order ------------------------------------------------------------------------------------------ */

/* A timeline is a word of 64 bits in a region that may be written to, at a multiple of 8 bytes of its memory.
 * It goes up: a point of it has come when word - value, as a signed number, is not negative. Threads, CUDA
 * streams, processes and the service that share the memory order each other by it, without a message. */
struct tma_point {
	tma_region *region; /* NULL: no point */
	uint64_t offset;    /* of the word, bytes */
	uint64_t value;
};

enum tma_completion {
	TMA_COMPLETION_DONE,   /* answered when it has ended */
	TMA_COMPLETION_QUEUED, /* answered when it was checked and queued too: tma_is_queued */
	TMA_COMPLETION_SIGNAL, /* answered only when it was refused or failed; its signal says the rest. It
	                          has no ticket: see tma_take_error */
};

/* What a request waits for, sets, and how it is answered; zero-initialised: nothing, at its end. It is read
 * by the call that it is given to, and is of that request alone. Requests of one client that come after one
 * that waits, wait with it. */
struct tma_order {
	struct tma_point wait;   /* it starts when this has come */
	struct tma_point signal; /* set when it has ended without an error; what it wrote is then visible */
	uint32_t wait_ms; /* it ends as TIMEOUT, and has moved nothing, when the point has not come by then;
	                     0: as long as the service allows (its limit wait_deadline_ms) */
	enum tma_completion completion; /* DONE in calls that wait for their reply */
};

/* The host's side, on memory that is mapped here; word: the 8 bytes of it. A signal makes what this thread
 * wrote visible to who waits for it, and wakes whom sleeps. A wait is TIMEOUT after so many milliseconds; -1:
 * never. Of no client, so without a sentence: INVALID_ARGUMENT is a word that is NULL or not at a multiple
 * of 8. */
TMA_API int tma_point_signal(void *word, uint64_t value);
TMA_API int tma_point_wait(const void *word, uint64_t value, int timeout_ms);

/* The client's side on a CUDA stream (CUstream, cudaStream_t) of the context that is current: enqueued, and
 * not waited for. word: the address by which the device knows the word, of device memory or, of a memfd that
 * is mapped here, what cuMemHostRegister and cuMemHostGetDevicePointer make of it. A stream's wait has no
 * deadline. The client holds the errors' sentences, and need not be connected. UNSUPPORTED without a CUDA
 * driver, and with one that has no 64-bit stream memory operations. */
TMA_API int tma_stream_signal(tma_client *client, void *stream, uint64_t word, uint64_t value);
TMA_API int tma_stream_wait(tma_client *client, void *stream, uint64_t word, uint64_t value);

/* ---- Plans ------------------------------------------------------------------------------------------ */

/* A transform without places, checked once. */
typedef struct tma_plan tma_plan;

/* Where element [0, ..., 0] of a tensor is. */
struct tma_place {
	tma_region *region;
	uint64_t offset; /* bytes */
};

/* Regions and offsets of the transform's tensors are ignored; an order is INVALID_ARGUMENT. The transform may
 * go when the call returns. */
TMA_API int tma_plan_prepare(tma_client *client, const struct tma_transform *transform, tma_plan **ret);

/* Runs it between two places and waits for the reply, as tma_transform. order may be NULL. */
TMA_API int tma_plan_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                         const struct tma_order *order);

/* Ends the plan; runs under way finish. The handle is gone whatever is returned. NULL is allowed (and 0). */
TMA_API int tma_plan_release(tma_plan *plan);

/* ---- Items: many transforms in one request ---------------------------------------------------------- */

/* A transform, or a run of a plan: one of the two pointers is NULL. */
struct tma_item {
	const struct tma_transform *transform; /* without an order of its own */
	const tma_plan *plan;
	struct tma_place dst, src; /* of the plan's run */
	int status;                /* out: 0 or a TMA_* status; TMA_BUSY while the request is under way */
};

/* Items run in no order: none may read or write what another one writes. One that is refused or fails leaves
 * the others alone, but for the order's signal, which says that all went well. Returns 0, or the status of
 * the first item that did not go well, whose sentence is the last error; what stops the whole request becomes
 * the status of every item that it stopped. More items than a message holds (about 350 runs) go in several,
 * one after the other: the first has the order's wait, the last its signal. order may be NULL. */
TMA_API int tma_run_items(tma_client *client, struct tma_item *items, size_t n,
                          const struct tma_order *order);

/* ---- Blocks: gather and scatter --------------------------------------------------------------------- */

/* A transform of each block of a list. Of a gather the source is indexed, of a scatter the destination:
 *
 *     gather:  dst[i] = transform(src[index[i]])          scatter:  dst[index[i]] = transform(src[i])
 *
 * The list is in memory of the caller's and goes with the request, of which it has to leave room in 64 KiB;
 * or it is in a region, where it may change until it is used. An index of -1 passes an entry over. One that
 * is out of range has the request refused, or, in a region, is passed over and counted. Zero-initialise and
 * name what you need; what is zero is left out. */
struct tma_blocks {
	const struct tma_transform *transform; /* of block 0 of layer 0, which its tensors say; no order */
	size_t count;                          /* entries of the list */
	enum tma_dtype index_dtype;            /* TMA_INT32 or TMA_INT64 */
	const void *index;                     /* the entries; or: */
	struct tma_place index_at;             /* where they are, at a multiple of their size */
	uint64_t limit;    /* blocks of the indexed side; 0: as many as lie in its region */
	uint64_t dst_step; /* bytes from a block to the next; 0: as many as a block takes */
	uint64_t src_step;
	uint32_t layers;         /* the list is gone through for each; 0: 1 */
	uint64_t dst_layer_step; /* bytes from a layer to the next */
	uint64_t src_layer_step;
	const int64_t *dst_layers; /* instead, one a layer: bytes from dst to its block 0 */
	const int64_t *src_layers;
	const struct tma_order *order; /* NULL: none */
};

/* Each waits for its reply. tma_last_result() says how it went, and counts the entries. */
TMA_API int tma_gather(tma_client *client, const struct tma_blocks *blocks);
TMA_API int tma_scatter(tma_client *client, const struct tma_blocks *blocks);

/* ---- Asynchronous requests ------------------------------------------------------------------------- */

/* Requests of one client run in the order submitted. A ticket is a small number, good until it is waited
 * for or polled to its end. */
typedef uint64_t tma_ticket;

/* Queues a request and returns at once (or when the socket takes it, if it is full). What is pointed to may
 * go when the call returns, but for items: their statuses are written at the request's end, so they have to
 * stay until the ticket has been waited for, or polled to its end. Items have to fit into one message.
 *
 * One whose order has TMA_COMPLETION_SIGNAL has no ticket: ret is NULL then, and only then. Its items keep
 * the status TMA_BUSY and may go too, and one that cannot be sent keeps all of them from it. */
TMA_API int tma_submit(tma_client *client, const struct tma_transform *transform, tma_ticket *ret);
TMA_API int tma_submit_ping(tma_client *client, tma_ticket *ret);
TMA_API int tma_submit_run(tma_client *client, const tma_plan *plan, struct tma_place dst,
                           struct tma_place src, const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_items(tma_client *client, struct tma_item *items, size_t n,
                             const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_gather(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);
TMA_API int tma_submit_scatter(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);

/* The first error among requests without a ticket since this was asked last; 0: none has come. Reads what has
 * arrived, and never blocks. A connection that ends after it took such requests is an error too: nobody knows
 * whether they had ended. */
TMA_API int tma_take_error(tma_client *client);

/* Whether the service has checked and queued a request of TMA_COMPLETION_QUEUED, or it has ended: 1, or 0 as
 * long as neither is known, or NOT_FOUND. Reads nothing. */
TMA_API int tma_is_queued(tma_client *client, tma_ticket ticket);

/* Asks the service to give a request up: 1 when it had not started, and ends as CANCELED, which its ticket is
 * still to be waited for; 0 when it goes on, or had ended; or a negative status. */
TMA_API int tma_cancel(tma_client *client, tma_ticket ticket);

/* Many requests, one send: while on, what is submitted is kept, up to 64 KiB, until tma_flush, tma_dispatch
 * or a call that waits sends it. Off unless set. What was kept when the connection is found lost ends with
 * it, though nothing of it was sent. */
TMA_API void tma_set_batching(tma_client *client, bool on);

/* Sends what is kept, as far as the socket takes it. Never blocks. */
TMA_API int tma_flush(tma_client *client);

/* Waits for a ticket; *ret (may be NULL) is its result. Returns the request's status. */
TMA_API int tma_wait(tma_client *client, tma_ticket ticket, struct tma_result *ret);

/* TMA_BUSY while the ticket is under way (tma_last_error stays), else as tma_wait. Reads nothing. */
TMA_API int tma_poll(tma_client *client, tma_ticket ticket, struct tma_result *ret);

/* For other event loops: poll tma_fd() for tma_events() (POLLIN, POLLOUT), then call tma_dispatch(), which
 * never blocks, never connects, and returns how many tickets it ended or a negative status. -1 when not
 * connected; tma_fd() may be another one after a call that connected again. */
TMA_API int tma_fd(const tma_client *client);
TMA_API short tma_events(const tma_client *client);
TMA_API int tma_dispatch(tma_client *client);

/* ---- Submission rings ------------------------------------------------------------------------------ */

/* Runs of plans through shared memory, without a message each: for those who run thousands a second, or wait
 * for each. A ring is of one connection, which has one at most, and goes with it (DISCONNECTED). Runs start
 * in the order pushed, behind what was sent before, and end in the same limits and accounts as requests. */
typedef struct tma_ring tma_ring;

struct tma_ring_end {
	uint64_t tag;   /* of the push */
	int status;     /* 0 or a TMA_* status, without a sentence */
	uint64_t bytes; /* read plus written */
	uint64_t ns;    /* the engine's own time */
};

/* entries: a power of two from 2 to 4096; as many runs are under way, or ended and not taken, at most.
 * spin_us: how long the service looks by itself for more after the last before it has to be woken by a
 * message, at most its limit ring_spin_us, and less where little comes; that takes a CPU, and 0 is fine for
 * those who push many at once.
 */
TMA_API int tma_ring_open(tma_client *client, uint32_t entries, uint32_t spin_us, tma_ring **ret);

/* Puts a run into the ring; one that the service does not look for by itself starts with tma_ring_flush or
 * tma_ring_wait. BUSY: it is full. */
TMA_API int tma_ring_push(tma_ring *ring, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                          uint64_t tag);
TMA_API int tma_ring_flush(tma_ring *ring);

/* The next end, in the order that runs ended: 1 when there was one, 0 when not. Who does nothing else while
 * it is 0 takes the CPU that the service may need: tma_ring_wait gives it up. */
TMA_API int tma_ring_poll(tma_ring *ring, struct tma_ring_end *ret);

/* The same, and waits for it: looks for it for spin_us, and then sleeps. 0 when there was one; NOT_FOUND when
 * none is under way; TIMEOUT of tma_set_timeout, and the ring goes on. */
TMA_API int tma_ring_wait(tma_ring *ring, uint32_t spin_us, struct tma_ring_end *ret);

/* BUSY while ends have not been taken. NULL is allowed (and 0). */
TMA_API int tma_ring_close(tma_ring *ring);

/* ---- Documents: what the service says of itself ------------------------------------------------------ */

/* A read-only tree of maps, lists, texts and numbers. */
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

/* *ret is the caller's to free: tma_document_free(). */
TMA_API int tma_info(tma_client *client, tma_document **ret);    /* engine, device, limits, methods, dtypes */
TMA_API int tma_stats(tma_client *client, tma_document **ret);   /* counters of the whole service */
TMA_API int tma_regions(tma_client *client, tma_document **ret); /* the connection's own */

/* Connections to the service with an id greater than after: a list by ascending id of at most 256, each a map
 * (see session_list in the protocol). All of them: from after 0 on, again with the last one's "session" until
 * the list is empty. Root and the service's own user see every connection, others those of their own uid. */
TMA_API int tma_sessions(tma_client *client, uint64_t after, tma_document **ret);

/* As tma_regions, of the connection with that id in tma_sessions; 0: this one's. NOT_FOUND: there is none, or
 * none that this user sees. */
TMA_API int tma_session_regions(tma_client *client, uint64_t session, tma_document **ret);

/* The plan of a transform, not run. Regions may be NULL: bases are then taken to be well aligned. An order is
 * ignored. */
TMA_API int tma_explain(tma_client *client, const struct tma_transform *transform, tma_document **ret);

/* The same as the engine "cpu" or "cuda" would move it, which need not be the service's; regions have no say
 * then. NULL: the service's own. */
TMA_API int tma_explain_for(tma_client *client, const struct tma_transform *transform, const char *engine,
                            tma_document **ret);

/* Frees the whole tree. NULL is allowed. */
TMA_API void tma_document_free(tma_document *document);

/* Nodes are borrowed from their tree. */
TMA_API enum tma_document_kind tma_document_kind(const tma_document *node);
TMA_API size_t tma_document_count(const tma_document *node); /* of a list or map; 0 else */

/* Entry i of a list or map; NULL past the last. *ret_key (may be NULL) is its key, NULL in a list. */
TMA_API const tma_document *tma_document_at(const tma_document *node, size_t i, const char **ret_key);

TMA_API const tma_document *tma_document_find(const tma_document *node,
                                              const char *key);  /* NULL: not there */
TMA_API const char *tma_document_text(const tma_document *node); /* of a text; NULL else */
TMA_API int64_t tma_document_int(const tma_document *node);      /* of a number or bool; 0 else */
TMA_API double tma_document_real(const tma_document *node);      /* of a number; 0 else */

/* The tree as JSON (RFC 8259), a text to free(); NULL when out of memory. indent 0: one line. */
TMA_API char *tma_document_json(const tma_document *node, int indent);

#ifdef __cplusplus
}
#endif

#endif
