/* SPDX-License-Identifier: Apache-2.0 */
/* tmaclient.h - the client library of tmad, a service that copies, transposes and pads tensors.
 *
 *     cc app.c $(pkg-config --cflags --libs tmaclient)
 *
 * A client is one connection to the service. Memory is shared once, as a region; a tensor is a view of a
 * region; a transform moves one tensor into another:
 *
 *     dst[...] = pad(cast(permute(src, perm) * scale + bias), before, after, mode, value)
 *
 * permute and pad mean what np.transpose and np.pad mean in NumPy. A transform without a conversion casts and
 * calculates nothing, and never changes the bits of an element.
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
 * Every pointer must be given that is not said to be optional; a NULL in its place is INVALID_ARGUMENT.
 *
 * Zero-initialize every struct and set its members by name. Each struct ends with `reserved` members, which
 * leave room for the members of later versions: they must be zero in structs that the library reads, and are
 * zero in structs that it writes. Any other value is INVALID_ARGUMENT, so that an older library refuses what
 * it does not know instead of ignoring it.
 *
 * Only one thread at a time may use a client and its regions, tables, plans, tickets and rings; different
 * threads may use different clients at the same time. After fork(), the child must not use its parent's
 * clients of a service. Any thread may call the following at any time: the functions of the Vocabulary group,
 * those of the Layouts group with a client of NULL, tma_number_encode, tma_point_signal and tma_point_wait;
 * tma_region_data, tma_region_size, tma_region_kind, tma_region_fd and tma_region_handle until the region is
 * released; and the functions that read a document until it is freed. A signal handler may call only the
 * functions of the Vocabulary group and tma_point_signal. The library installs no signal handlers, keeps no
 * global state and starts no threads, but for one that watches the connection of a client whose requests are
 * in CUDA streams (tma_enqueue). libtma-local, which a client of "local:" or tma_enqueue loads, starts
 * threads that move bytes, and one for each client whose requests wait for points.
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

#define TMA_MAX_RANK  32
#define TMA_MAX_SPLIT 16

enum tma_status {
	TMA_PENDING = 1, /* not yet: from functions that poll or wait, and of items in progress; no error */
	TMA_OK = 0,
	TMA_INVALID_ARGUMENT = -1, /* an argument breaks a rule; repeating the call fails in the same way */
	TMA_OUT_OF_RANGE = -2,     /* a tensor, a place or the word of a timeline is not inside its region */
	TMA_OVERLAP = -3,          /* the destination overlaps itself or its source */
	TMA_NOT_FOUND = -4, /* no such region, table, plan, ticket or connection, or it no longer exists */
	TMA_ALREADY_EXISTS = -5, /* the client is already connected, or its connection already has a ring */
	TMA_UNSUPPORTED = -6,    /* this service, its engine or this machine's CUDA driver cannot do it */
	TMA_PERMISSION = -7,     /* the socket's mode, the service's user or a region's flags forbid it */
	TMA_QUOTA = -8,          /* a limit of the service would be exceeded; the error message names it */
	TMA_BUSY = -9,     /* in use, full or refused for now: let something finish, or take it, then retry */
	TMA_TIMEOUT = -10, /* a point was not reached, or the request had not begun, before its deadline;
	                      nothing was moved */
	TMA_CANCELED = -11,     /* canceled before it started, by tma_cancel or as a connection ended */
	TMA_DEVICE_LOST = -12,  /* the device failed and is being reopened; the next call reconnects */
	TMA_DEVICE = -13,       /* the device, or memory that was shared with it, failed */
	TMA_DISCONNECTED = -14, /* no service at the socket, or it went away; the next call reconnects */
	TMA_PROTOCOL = -15,     /* the peer sent something that tmad never sends; the connection is closed */
	TMA_NO_MEMORY = -16,    /* this process, the service or its device is out of memory */
	TMA_INTERNAL = -17,     /* a bug in the service, or a system call that failed unexpectedly */
	TMA_NO_REPLY = -18,     /* no reply before tma_set_timeout or tma_set_interrupt ended the wait: the
	                           connection is closed and the outcome is unknown; on "local:" neither, and
	                           nothing was moved. Reported by the library only, never by the service */
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
	TMA_CAST_IEEE,
};

TMA_API const char *tma_status_name(int status);            /* such as "QUOTA"; otherwise "UNKNOWN" */
TMA_API const char *tma_dtype_name(enum tma_dtype dtype);   /* such as "float32"; otherwise NULL */
TMA_API size_t tma_dtype_size(enum tma_dtype dtype);        /* bytes; 0 if there is no such type */
TMA_API const char *tma_pad_mode_name(enum tma_pad_mode m); /* such as "edge"; otherwise NULL */
TMA_API int tma_pad_mode_parse(const char *name);           /* an enum tma_pad_mode, or TMA_NOT_FOUND */
TMA_API const char *tma_version(void);                      /* the library's version, such as "0.2.0" */

/* Returns the type of a name such as "float8_e4m3fn", or of another that is in use for it ("fp8", "bf16",
 * "half"; "float" is float64, as in NumPy): an enum tma_dtype, or TMA_NOT_FOUND. */
TMA_API int tma_dtype_parse(const char *name);

/* ---- Connection ------------------------------------------------------------------------------------ */

typedef struct tma_client tma_client;

/* Returns a client that is not connected yet, or NULL if memory is exhausted. Free it with tma_free. */
TMA_API tma_client *tma_new(void);

/* If the connection is lost because the service went away (DISCONNECTED) or because its device failed
 * (DEVICE_LOST), the next call reconnects to the same path. Every region that was not released is registered
 * again, every table and plan is prepared again, and all keep their handles. Memory that the library or the
 * service created keeps its contents, except for CUDA IPC memory that the service created, which is lost.
 * tma_reconnects() counts reconnections. For this purpose each region of host memory, or of one allocation of
 * cuMemCreate, keeps a file descriptor open, and so does each allocation that tma_region_register_parts got.
 *
 * A blocking call that is interrupted because the service went away is repeated once on the new connection if
 * repeating it is harmless. This is the case for calls that move nothing. It is also the case for a call that
 * moves something if that call signals nothing, no ticket was in flight with it, and its connection had
 * accepted no request without a ticket and has no open ring. As destination and source do not overlap, the
 * repetition leaves the same bytes, provided that nobody writes to the source or to a list of indices before
 * the call returns. tma_result.repeats reports a repetition. Tickets are not repeated, nor is anything that
 * was in flight when a device failed: these requests end with DISCONNECTED or DEVICE_LOST, and how much they
 * have moved is unknown. A request of which no byte had been sent is sent on the new connection.
 *
 * While the service is still releasing what an earlier connection of the client held, it may refuse a region,
 * table or plan with QUOTA, BUSY or NO_MEMORY. The call that reconnects then retries until the time set by
 * tma_set_reconnect or the call's timeout has passed. If one of them is lost in the end, that call returns
 * the status with which it was refused, and the error message says which one it is. The client is connected
 * in this case: whatever was not lost works, and any use of what was lost fails with the same status.
 * tma_restore() tries again, as does the next connection; tma_region_release(), tma_table_release() and
 * tma_plan_release() give it up.
 *
 * After NO_REPLY or PROTOCOL a client stays closed, and its calls return DISCONNECTED, until the program
 * calls tma_connect: the service exists but is slow or misbehaves, and the program decides what to do.
 */

/* Connects to the service, then registers and prepares again the regions, tables and plans of the client's
 * earlier connections. path is the path of the socket; NULL selects $TMAD_SOCKET if it is set, otherwise
 * /run/tmad/tmad.sock if it can be reached, otherwise $XDG_RUNTIME_DIR/tmad/tmad.sock; "@NAME" is the
 * abstract socket NAME, which has no file (unix(7)). The server must run as root, as this process's user or
 * as the user named by tma_set_server_uid; if it does not, the call returns PERMISSION. ALREADY_EXISTS: the
 * client is already connected. After any other error the client is not connected, unless the error is about a
 * region, table or plan as described above.
 *
 * With the path "local:" there is no service: libtma-local, of the same version as this library, moves memory
 * of this process: that of the host by the CPU, and that of a GPU in the default stream of the current CUDA
 * context. A request ends within the call that sends it, which nothing cuts short, unless its point has not
 * come, or it comes after a request of which that is so: these are late, and a thread of the client's runs
 * them in their order. They run in the CUDA context that was current when they were sent, and wait for their
 * points for 30 s at most unless their orders say how long. A call that waits for a late request ends as
 * tma_set_timeout and tma_set_interrupt say, and takes the request back unless it has started: it returns
 * NO_REPLY, nothing was moved, and the client stays connected. A region, table or plan may be released while
 * late requests name it; its memory has to stay until they have ended. Any memory of the process can be made
 * a region (tma_region_from_host_ptr), but need not be: if a tensor's region is NULL, its offset is the
 * address of its element [0, ..., 0], and so is that of a place. All requests work but those that need
 * others: submission rings, tma_sessions, and regions by descriptor or handle are UNSUPPORTED. tma_enqueue
 * launches into other streams, and does not wait. Requests that the call waits for move between a GPU and any
 * memory of the host: a tensor of the host's that is not pinned, or is pinned and has no gaps, has a copy in
 * the GPU's memory meanwhile unless it is moved as it is (NO_MEMORY: there is no room), and of a list of
 * blocks only those blocks have one that the list names; reshards, and tables only some of whose places are
 * the host's, want it pinned. If memory that a request names cannot be accessed, the process is killed, as by
 * an access of its own. After fork, the child may use its parent's clients of "local:", but not wait for
 * their descriptors (tma_fd); late requests are the parent's, and end as CANCELED in the child. UNSUPPORTED:
 * libtma-local is not installed, or has another version. */
TMA_API int tma_connect(tma_client *client, const char *path);

/* Tries again to register the regions and prepare the tables and plans that were lost in a reconnection, as
 * described above. Returns 0 if none is missing afterwards. */
TMA_API int tma_restore(tma_client *client);

/* Closes the connection and frees the client with all of its regions, tables, plans, tickets, rings and
 * results. Unmaps the memory created by tma_region_create. NULL is allowed. */
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

/* Lets the program end calls that wait, for example on Ctrl-C. While a call of this client waits for the
 * service, the library calls interrupted(arg) on the calling thread: at once when a signal handler has run on
 * that thread, and otherwise about ten times a second. When the function returns a value other than 0, the
 * call ends as if its timeout had passed: it returns NO_REPLY, the connection is closed, everything that was
 * in flight on it ends likewise, and the outcome is unknown. tma_next and tma_ring_wait return TMA_PENDING
 * instead, and nothing is lost. A call that is still trying to reconnect, or to register again what the
 * service refuses for now, returns the reason why it has not succeeded yet; the next call continues.
 *
 * A call whose reply has arrived meanwhile succeeds, so the program itself has to remember what its function
 * returned. The function must not use the client. It is not called while the library allocates memory, nor
 * while tma_ring_wait polls for spin_us. NULL, the default, ends no call. */
TMA_API void tma_set_interrupt(tma_client *client, int (*interrupted)(void *arg), void *arg);

/* Returns the number of times that the library has reconnected by itself since tma_connect. */
TMA_API uint32_t tma_reconnects(const tma_client *client);

/* Returns the error message of the last call that failed on this client, or "" if none has failed. The string
 * belongs to the client and is valid until the next call. */
TMA_API const char *tma_last_error(const tma_client *client);

/* Returns the status of the last call that failed on this client, whose message tma_last_error returns, or 0
 * if none has failed. */
TMA_API int tma_last_status(const tma_client *client);

/* Returns the socket path that tma_connect selected, or "" before that. The string belongs to the client. */
TMA_API const char *tma_socket_path(const tma_client *client);

/* Returns 0 if the service answers. */
TMA_API int tma_ping(tma_client *client);

/* ---- Regions --------------------------------------------------------------------------------------- */

typedef struct tma_region tma_region;

enum tma_region_kind {
	TMA_REGION_ANY,       /* when creating: what suits the service's engine; a memfd on the CPU */
	TMA_REGION_MEMFD,     /* host memory that both sides map */
	TMA_REGION_CUDA_IPC,  /* device memory shared by a CUDA IPC handle (cuIpcOpenMemHandle) */
	TMA_REGION_CUDA_FD,   /* device memory shared by a descriptor (cuMemImportFromShareableHandle) */
	TMA_REGION_CUDA_POOL, /* device memory of a pool (cudaMallocAsync) that is shared by a descriptor; the
	                         service creates none */
};

/* Creates a region of size bytes of zeroed memory, shared with the service. If the service has a device, this
 * is device memory: tma_region_data returns NULL, and tma_region_map maps it in this process. Otherwise it is
 * host memory. Host memory is allocated in this process and charged to its cgroup; NO_MEMORY: there is not
 * enough. The region belongs to the client until tma_region_release or tma_free.
 *
 * Host memory that a service can touch faster once it is sealed, which the service says, is sealed by the
 * first request that names the region (F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE): from then on its
 * descriptor maps it for reading only. Sealed memory cannot be mapped by another service. The call that
 * reconnects therefore moves its bytes to another file, which it maps at the same addresses. Pointers stay
 * valid, and no write of any thread is lost: threads that write meanwhile are held up until the file is in
 * place. Two things are different on that occasion. Where the process may not use userfaultfd for faults of
 * the kernel (vm.unprivileged_userfaultfd), a system call of another thread that writes to the memory then
 * fails with EFAULT. And what mlock, mprotect and madvise have set for the memory is lost.
 *
 * Other processes do not come along. If one can still write to the old memory, as a child that fork() has
 * made, or if a CUDA driver, a network card or direct I/O has it pinned, the call that reconnects tries until
 * the time set by tma_set_reconnect has passed, and returns BUSY; if one has written to it, the region is
 * lost, with NOT_FOUND. The library seals no memory of which tma_region_fd or tma_region_map was called
 * before the first request that names the region, none that the program registers, and none where the kernel
 * lacks userfaultfd for files in memory (Linux 5.19): use one of these for memory that others write to or
 * pin.
 *
 * A service with a GPU that does not trust the user seals host memory itself, whatever the program has called
 * before. The call that reconnects moves such memory, too. A region of which tma_region_fd or tma_region_map
 * was called is lost then (NOT_FOUND), if a request has named it: make another one. Where the kernel lacks
 * userfaultfd, threads have to keep from writing while the memory moves: a region is lost if one has written
 * meanwhile, and with it what that thread wrote. */
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
	TMA_REGION_READ_ONLY = 1, /* transforms may only read the region; its file may be open read-only */
};

/* Registers bytes [offset, offset + size) of a file in memory, which the service maps: a memfd, or a file of
 * tmpfs (shm_open, /dev/shm, also if it is unlinked) or hugetlbfs. The call first allocates any holes in the
 * range, in this process (NO_MEMORY if that fails): the service accepts no memory with holes, and a transform
 * that meets a hole punched later ends with DEVICE. So does every transform that uses the region while the
 * file ends before the range does; a service with a GPU needs the region to be registered anew after that. A
 * memfd can be protected from that (fcntl F_ADD_SEALS F_SEAL_SHRINK). A service with a GPU accepts an fd that
 * is open read-only only if it is a memfd sealed with F_SEAL_SHRINK and with F_SEAL_FUTURE_WRITE or
 * F_SEAL_WRITE.
 *
 * A service with a GPU that does not trust the caller's user (protocol.md, "Seals") seals the file with
 * F_SEAL_SHRINK and F_SEAL_FUTURE_WRITE before the first request that names the region: every process that
 * writes to the memory has to map it before that, and no later service can map it for writing. UNSUPPORTED:
 * the file cannot be sealed, as those of tmpfs.
 *
 * The caller keeps the fd and may close it when the call returns; the library keeps no mapping of it. */
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

/* Registers bytes [offset, offset + size) of an allocation of a memory pool. pool_fd is the pool's descriptor
 * (cuMemPoolExportToShareableHandle), pointer the 64 bytes of a CUmemPoolPtrExportData
 * (cuMemPoolExportPointer, cudaMemPoolExportPointer), allocation the number of bytes from that pointer on
 * that the caller allocated. The allocation must have completed on its stream; it must not be freed before
 * the region is released. The caller keeps pool_fd and may close it when the call returns.
 *
 * A forged pointer can crash the CUDA driver. The service therefore accepts pools only from root and from its
 * own user, unless its limit pool_regions_per_uid lets others have some (QUOTA). */
TMA_API int tma_region_register_cuda_pool(tma_client *client, int pool_fd, const void *pointer,
                                          uint64_t allocation, uint64_t offset, size_t size, unsigned flags,
                                          tma_region **ret);

/* A part of a region's memory: an allocation made by cuMemCreate, or memory that another region has. */
struct tma_region_part {
	int fd;        /* of the allocation; the caller keeps it, and may close it when the call returns */
	uint64_t size; /* bytes that cuMemCreate was asked for; of a region's memory, of whole allocations */
	tma_region *region; /* NULL: fd. Otherwise the part is memory of this region, which is not imported
	                       again */
	uint64_t offset;    /* of a region: bytes from the start of its first allocation to the part */
	uint64_t reserved[2];
};

/* Registers bytes [offset, offset + size) of n parts, which the service maps one after the other at
 * contiguous addresses. region must be one of tma_region_from_device_ptr (of memory that cuMemCreate made) or
 * of tma_region_register_parts; it may be released afterwards. An allocation may be there only once. An
 * overlap of destination and source in two regions that share allocations in this way is detected; it is not
 * if an allocation came with two descriptors. The call succeeds as a whole or leaves nothing behind. Beyond
 * 253 descriptors it takes several messages, and while it runs, their allocations count twice against the
 * limit mapped_bytes_per_uid. The library keeps a duplicate of each fd until the region is released. */
TMA_API int tma_region_register_parts(tma_client *client, const struct tma_region_part *parts, size_t n,
                                      uint64_t offset, size_t size, unsigned flags, tma_region **ret);

/* Registers size bytes of device memory at device_ptr: an allocation of cudaMalloc, of cuMemCreate or of a
 * memory pool (cudaMallocAsync), a part of one, or several allocations of cuMemCreate that follow one
 * another, such as an expandable segment of PyTorch. Finds the allocations and exports them, as descriptors
 * if cuMemCreate made them, as an IPC handle if cudaMalloc did, or as tma_region_register_cuda_pool
 * describes. A pool must have been made with handleTypes CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
 * (cudaMemPoolCreate). An allocation that another region of the client has is not imported again, so that a
 * range that has grown registers only what is new. Release the region before you free the memory: memory of
 * cudaMalloc or of a pool must not be freed while it is registered, and of cuMemCreate's the service keeps
 * the old allocation until then.
 *
 * If a region of exactly this range and these flags exists and the driver confirms that its memory is still
 * the same (CU_POINTER_ATTRIBUTE_BUFFER_ID of each allocation), the call returns that region once more and
 * sends nothing; it then has to be released as often as it was returned. If the memory was freed since and
 * other memory lies there now, the call registers that, and tma_region_find no longer finds the old region,
 * whose handle remains valid until it is released.
 *
 * A region of several allocations keeps no descriptors: after a reconnection they are exported anew, and a
 * region whose memory was freed by then is lost.
 *
 * OUT_OF_RANGE: the memory ends before the range does. UNSUPPORTED: there is no CUDA driver, or the memory
 * cannot be exported because it is managed memory, comes from a pool that has no POSIX file descriptors, such
 * as the device's default pool, was made by cuMemCreate without them, or is a range of several allocations,
 * one of which cuMemCreate did not make. */
TMA_API int tma_region_from_device_ptr(tma_client *client, const void *device_ptr, size_t size,
                                       unsigned flags, tma_region **ret);

/* Registers size bytes of host memory at ptr that this process has mapped with MAP_SHARED from a file in
 * memory, as tma_region_register_memfd takes it: a memfd, or a file of tmpfs or hugetlbfs. Such are Python's
 * shared_memory, a numpy.memmap of a file in /dev/shm, and tensors of PyTorch after share_memory_(). The
 * range may extend over several mappings that show contiguous bytes of one file.
 *
 * The call finds the file in /proc/self/maps and gets a descriptor of it: by the mapping itself
 * (/proc/self/map_files, which takes the capability CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN), by its path, or
 * by a descriptor of the file that the process has open. Keep a descriptor of a memfd, or of a file that has
 * been unlinked, until the call returns. It then does as tma_region_register_memfd, which says what the
 * service accepts and what happens if the file shrinks; the service gets a descriptor open for writing only
 * if some of the memory is mapped for writing.
 *
 * tma_region_find finds the region by its addresses, as long as the same file is mapped there. The region is
 * memory of the file, whatever becomes of the mapping. Each call makes another region, also for a range that
 * is registered already. An overlap of destination and source in two regions of one file is detected. Only
 * memory of tma_region_create that is sealed, or that the service seals, is a single region: for all of it,
 * the call returns that region once more, and each release takes back one of these handles; for part of it,
 * and with TMA_REGION_READ_ONLY, the call returns PERMISSION. The client keeps a descriptor of
 * /proc/self/maps from the first call on.
 *
 * INVALID_ARGUMENT: nothing is mapped at ptr, or a file that is not in memory. OUT_OF_RANGE: the mapping ends
 * before the range does. UNSUPPORTED: the memory is private to this process, such as that of malloc, or the
 * file cannot be found. PERMISSION: the memory is mapped for reading only, or the file cannot be opened for
 * writing; TMA_REGION_READ_ONLY allows both. */
TMA_API int tma_region_from_host_ptr(tma_client *client, const void *ptr, size_t size, unsigned flags,
                                     tma_region **ret);

/* Returns the address at which memory created by tma_region_create is mapped in this process, or NULL for
 * registered memory and for device memory, of which tma_region_map tells the address. */
TMA_API void *tma_region_data(const tma_region *region);

TMA_API size_t tma_region_size(const tma_region *region);               /* bytes */
TMA_API enum tma_region_kind tma_region_kind(const tma_region *region); /* ANY only for NULL */

/* Return what the memory is shared by: tma_region_fd a file descriptor, tma_region_handle the 64 bytes of a
 * CUDA IPC handle (NULL for other kinds, and on "local:"). The descriptor is that of the memory that
 * tma_region_create made; a duplicate of the one with which the region was registered; or, if
 * tma_region_from_device_ptr found a single allocation, that of this allocation (cuMemCreate) or of its pool.
 * It stands for the whole file or allocation, even if the region is only a part of it, and regions of one
 * allocation may have the same descriptor. It is -1 for CUDA IPC, for a range of several allocations and for
 * tma_region_register_parts. Descriptor and handle belong to the region and are valid until its last release:
 * do not close the descriptor, and duplicate it to keep it longer.
 *
 * If other processes are to write to memory that tma_region_create made, call tma_region_fd before the first
 * request that names the region: then the library does not seal it. Later, the descriptor of sealed memory
 * maps it for reading only, and a region of which it was asked for is lost (NOT_FOUND) when the service
 * restarts, because whoever has it cannot be told of the file to which the memory would move. So is a region
 * that the service has sealed by itself (see tma_region_create), whenever tma_region_fd was called. */
TMA_API int tma_region_fd(const tma_region *region);
TMA_API const void *tma_region_handle(const tma_region *region);

/* Returns the UUID of the device that the memory is on, or for which the service has mapped host memory
 * first; "" if the service has no device. It is valid until the region's last release. */
TMA_API const char *tma_region_device(const tma_region *region);

/* Where a region's memory is in this process. */
struct tma_mapping {
	void *address; /* of the region's first byte; a device pointer (CUdeviceptr) if device is not -1 */
	size_t size;   /* bytes */
	int device;    /* CUDA's number of the device in this process (cuDeviceGet, cudaSetDevice); -1: it is
	                  host memory */
	uint64_t reserved[4];
};

/* Says where the region's memory is in this process, for a program that gives it to others than the service:
 * to a CUDA kernel, to a network card, or to an agent of NIXL, which registers it as
 *
 *     nixl_reg_dlist_t list(mapping.device < 0 ? DRAM_SEG : VRAM_SEG);
 *     list.addDesc(nixlBlobDesc((uintptr_t)mapping.address, mapping.size,
 *                               mapping.device < 0 ? 0 : mapping.device, ""));
 *
 * Memory that has an address keeps it: what tma_region_data returns, and what tma_region_from_host_ptr and
 * tma_region_from_device_ptr registered. Any other memory is mapped by the first call, and unmapped by the
 * region's last release: a file by mmap, for writing too if its descriptor allows that; memory of cuMemCreate
 * at new addresses, with access for its own device; memory that a CUDA IPC handle names by
 * cuIpcOpenMemHandle, which the driver refuses in the process that exported the handle. For device memory
 * that it maps, the call retains the device's primary context, the one that the CUDA runtime uses; the
 * thread's current context stays as it is. tma_region_find then finds the region by these addresses as well.
 * Reconnecting changes none of this. Deregister the memory wherever the address was registered before you
 * release the region. Call this before the first request that names the region: then the library does not
 * seal its memory, which could not move while it is pinned. Memory that the service seals by itself does not
 * move after this call, and is lost when the service restarts (see tma_region_create).
 *
 * Device memory takes a UCX that is built with CUDA: NIXL refuses to register as VRAM_SEG what UCX takes for
 * host memory. UCX recognizes memory of cuMemCreate. Its cuda_ipc, which connects the processes of a machine,
 * shares memory that has a CUDA IPC handle or a fabric handle, but not memory that has a file descriptor
 * alone, as TMA_REGION_CUDA_FD does. For network cards, UCX asks the driver for a dma-buf
 * (cuMemGetHandleForAddressRange); the service does not ask for memory that is gpuDirectRDMACapable. If cards
 * read and write the memory, therefore, allocate it yourself (cudaMalloc, or cuMemCreate with that flag), and
 * register it with tma_region_from_device_ptr. client/examples/nixl.cpp in tmad's sources is a program that
 * sends blocks of a KV cache to another host.
 *
 * The call sends nothing. NOT_FOUND: this process does not see the device (CUDA_VISIBLE_DEVICES).
 * UNSUPPORTED: there is no CUDA driver; or the region has parts or an exported pointer of a pool, which have
 * addresses in this process already, or had them before they were freed. DEVICE: the driver refused. */
TMA_API int tma_region_map(tma_region *region, struct tma_mapping *ret);

/* Releases the region. If tma_region_from_device_ptr or tma_region_from_host_ptr returned it several times,
 * each release takes back one of these handles; only the last one ends the region. The service keeps the
 * memory until the requests in flight and the tables that use it have ended. Unmaps what tma_region_create
 * and tma_region_map mapped. The handle is invalid after the last release, whatever the call returns. NULL is
 * allowed and returns 0. */
TMA_API int tma_region_release(tma_region *region);

/* ---- Tensors and transforms ------------------------------------------------------------------------ */

/* A view of a region. Zero-initialize it and set the members that you need:
 *     struct tma_tensor t = { .region = r, .dtype = TMA_FLOAT32, .rank = 2, .shape = { 64, 100 } }; */
struct tma_tensor {
	tma_region *region;
	uint64_t offset; /* bytes from the region's start to element [0, ..., 0]; without a region, which only
	                    a client of "local:" and tma_enqueue allow, the address of that element */
	enum tma_dtype dtype;
	int rank;                    /* 0 to TMA_MAX_RANK */
	int64_t shape[TMA_MAX_RANK]; /* outermost first */
	const int64_t *strides;      /* rank strides, in elements; they may be negative, and zero in a source.
	                                NULL: C order */
	const int64_t *split;        /* n_split pairs d, n: dimension d becomes two, as described below */
	int n_split;                 /* 0 to TMA_MAX_SPLIT */
	uint64_t reserved[2];
};

/* Splits see a tensor in blocks, as blocked layouts have it. They are carried out in turn: a pair d, n
 * replaces dimension d, of extent E, by two, of ceil(E / n) blocks and of the n elements of a block; later
 * pairs count the new dimensions. perm, before and after of the transform refer to the dimensions after all
 * splits, of which there may be TMA_MAX_RANK; before and after must be 0 for those that a split made, on
 * either side.
 *
 * shape remains that of the elements that exist. If n does not divide E, the last block is incomplete: in a
 * source, the elements that it lacks read as the transform's value (TMA_PAD_CONSTANT); in a destination, what
 * would go there is dropped. A split of the elements of a block must divide them evenly, and gather and
 * scatter take only splits into complete blocks. From NCHW, 50 channels, to nChw16c and back:
 *
 *     struct tma_tensor plain = { .region = a, .dtype = TMA_FLOAT32, .rank = 4, .shape = { 8, 50, 28, 28 } };
 *     struct tma_tensor blocked = { .region = b, .dtype = TMA_FLOAT32, .rank = 5,
 *                                   .shape = { 8, 4, 28, 28, 16 } };
 *
 *     plain.split = (int64_t[]){ 1, 16 };       (8, 50, 28, 28) is seen as (8, 4, 16, 28, 28)
 *     plain.n_split = 1;
 *     tma_transpose(client, &blocked, &plain, (int[]){ 0, 1, 3, 4, 2 });
 *     tma_transpose(client, &plain, &blocked, (int[]){ 0, 1, 4, 2, 3 });
 *
 * COL32, [M, N] as [N/32, M, 32]: split { 1, 32 } and perm { 1, 0, 2 }. Scale factors of mx and nv formats,
 * [M, K] as [M/128, K/4, 32, 4, 4]: split { 0, 128, 1, 32, 3, 4 }, seen as [M/128, 4, 32, K/4, 4], and perm
 * { 0, 3, 2, 1, 4 }. */

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

/* Scales that are computed on the way, one for each block of the destination: the largest magnitude of the
 * block, divided by the largest finite value of the destination's type. Elements are multiplied by its
 * inverse before they are cast. All of it is calculated in float32; dst and src are of floating types other
 * than float64, and dst may be cropped, but not padded.
 *
 * block has an extent for each dimension of dst; one that is larger than the dimension's means all of it, and
 * blocks at the end may be smaller. scale and inverse are tensors with an element for each block; at least
 * one of them is given. They are float32, or uint8 with power_of_two: the biased exponent of the number alone
 * (E8M0). They share bytes with no other tensor.
 *
 * The scale of a block of zeros is 1, and of one with a NaN NaN. None is below 2^-126, so inverses are
 * finite. Zero-initialize the struct and set the members that you need. */
struct tma_amax {
	const int64_t *block;
	const struct tma_tensor *scale;   /* NULL: it is not written */
	const struct tma_tensor *inverse; /* likewise */
	int power_of_two;                 /* scales are rounded up to powers of two */
	double least; /* 0 or more: the largest magnitude of a block is taken to be at least that */
	uint64_t reserved[8];
};

/* What becomes of elements on their way into a destination of another type: dst = cast(src * scale + bias).
 *
 * Elements of any type but the complex ones can be cast to any other of these types. The formula is
 * calculated in float32, or in float64 if one side is float64 or an integer of 32 or 64 bits; the product and
 * the sum are each rounded to nearest even, as in NumPy, and so is the cast to a floating type. Also as in
 * NumPy, a cast to integers rounds towards zero, and a cast to bool is true for every value but zero.
 *
 * TMA_CAST_SATURATE takes the nearest value that the destination's type has, so infinities become its largest
 * finite value; NaN stays NaN in a floating type, and becomes 0 in an integer type. With TMA_CAST_EXACT the
 * request fails with OUT_OF_RANGE if any value is not one of the destination's type; the error message says
 * how many, and the destination has what is nearest to them. TMA_CAST_IEEE does what NumPy's astype does:
 * infinities stay, what is beyond the range of a floating type becomes infinity (NaN in float8_e4m3fn), and
 * integers that become integers without scale and bias keep their low bits; other numbers become integers as
 * with TMA_CAST_SATURATE.
 *
 * scale and bias are numbers, or tensors of float32 or float64 that broadcast against the permuted source,
 * before it is cropped and padded, as in NumPy: aligned at the last dimension, and an extent of 1 repeats.
 * They must not share bytes with the destination.
 *
 * amax computes the scales on the way, for blocks of the destination, instead of scale and bias.
 * Zero-initialize the struct and set the members that you need. */
struct tma_conversion {
	enum tma_cast cast;
	const struct tma_number *scale;        /* a real number; NULL: none */
	const struct tma_tensor *scale_tensor; /* instead of scale */
	const struct tma_number *bias;         /* likewise */
	const struct tma_tensor *bias_tensor;
	const struct tma_amax *amax; /* NULL: none */
	uint64_t reserved[7];
};

/* One transform. A NULL pointer leaves out its part: no permutation, no padding.
 *
 * A transform that is a request by itself may have further destinations, 64 at most, on any devices or in
 * host memory: each gets what dst gets. Each has the type and shape of dst, and may have strides of its own;
 * splits of dst apply to all. The source is read once, and large destinations reach several devices in a
 * chain along the fastest links. They must not share bytes with each other, the source, or what the transform
 * converts by, which must have no amax. */
struct tma_transform {
	const struct tma_tensor *dst;
	const struct tma_tensor *src;
	const int *perm;       /* src->rank + src->n_split entries: dimension d of the result is dimension
	                          perm[d] of src */
	const int64_t *before; /* dst->rank + dst->n_split entries: elements added before each dimension;
	                          negative crops */
	const int64_t *after;  /* likewise, after each dimension */
	enum tma_pad_mode mode;
	struct tma_number value;                 /* with TMA_PAD_CONSTANT */
	const struct tma_order *order;           /* for a transform that is a request by itself; NULL: none */
	const struct tma_conversion *conversion; /* NULL: dst and src have one type */
	const struct tma_tensor
	    *further_dst; /* n_further_dst of them; only for tma_transform, tma_submit and tma_enqueue */
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

/* An order says what a request waits for and until when it has to begin, what it signals, when it is answered
 * and how it is run. A zero-initialized order
 * waits for nothing, signals nothing and is answered when the request has ended. An order applies only to the
 * request that it is given to, and the library reads it only during that call. Requests of a client run in
 * order, so later ones also wait for the point. */
struct tma_order {
	struct tma_point wait;   /* the request starts when this point is reached */
	struct tma_point signal; /* set when it has ended without error; what it wrote is visible by then */
	uint32_t wait_ms;        /* after so many milliseconds of waiting it ends with TIMEOUT and has moved
	                            nothing; 0: as long as the service allows (its limit wait_deadline_ms),
	                            and on "local:" 30 s */
	enum tma_completion completion; /* must be DONE in calls that wait for their reply */
	void *user;                     /* for the caller's use: tma_next returns it with the ticket */
	enum tma_priority priority;
	uint32_t multiprocessors; /* of the device, that each launch for the request occupies at most; 0: as
	                             many as the service allows (its limit multiprocessors) */
	uint32_t host_threads;    /* threads of the service that move its bytes at once at most; 0: as many
	                             as the service allows (its limit host_threads) */
	uint32_t deadline_ms; /* it ends with TIMEOUT, and has moved nothing, unless it has begun this many
	                         milliseconds after the service, or on "local:" the library, took it;
	                         0: no deadline */
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
 * memfd that is mapped in this process, what cuMemHostRegister and cuMemHostGetDevicePointer make of it.
 * (Call tma_region_map first, so that the library does not seal memory that is pinned.) A wait on a stream
 * has no deadline. The client serves only to hold error messages; it need not be connected. UNSUPPORTED:
 * there is no CUDA driver, or the driver has no 64-bit stream memory operations. */
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

/* Finds a region of the client that has all of the size bytes at ptr, and sets *ret to the place of ptr in
 * it. Searched are the ranges that tma_region_from_device_ptr and tma_region_from_host_ptr registered, the
 * memory that tma_region_data returns, and what tma_region_map mapped. If several regions qualify, one that
 * transforms may write to is preferred. The call adds no handle: do not release the region for it, and *ret
 * is valid until the region's last handle is released. NOT_FOUND: no single region has all of these bytes.
 *
 * Memory of tma_region_from_host_ptr is found only if the kernel confirms that the same bytes of the same
 * file are mapped there. If others are, or nothing is, tma_region_find no longer finds the region, whose
 * handle remains valid until it is released. Since Linux 6.11 the question takes less than a microsecond; on
 * older kernels /proc/self/maps is read for it, up to the mapping.
 *
 * The call asks neither the driver nor the service. It therefore does not notice that device memory was freed
 * and other memory lies there now (tma_region_find_current and tma_region_from_device_ptr do), or that the
 * region was lost with its connection (its use fails). */
TMA_API int tma_region_find(tma_client *client, const void *ptr, size_t size, struct tma_place *ret);

/* The same, but finds device memory only if the driver confirms that it is still what was registered: it asks
 * for the CU_POINTER_ATTRIBUTE_BUFFER_ID of each allocation that has some of the size bytes, and of no other,
 * a single one as a rule. If one was freed, tma_region_find no longer finds any region that has it, not even
 * other bytes of that region; the regions' handles remain valid until they are released. The search continues
 * among the other regions. NOT_FOUND: none has all of these bytes, or those that had them are no longer
 * found; tma_region_from_device_ptr registers what is there now. Host memory is found as by tma_region_find.
 * On "local:" both calls find a region by its addresses alone, whatever memory lies there now. */
TMA_API int tma_region_find_current(tma_client *client, const void *ptr, size_t size, struct tma_place *ret);

/* Prepares a plan of the transform. The regions and offsets of its tensors, including those of a conversion,
 * are ignored; an order is INVALID_ARGUMENT. The transform is not used after the call. The plan belongs to
 * the client until tma_plan_release or tma_free. */
TMA_API int tma_plan_prepare(tma_client *client, const struct tma_transform *transform, tma_plan **ret);

/* Runs the plan from src to dst and waits for the reply, like tma_transform. order may be NULL. */
TMA_API int tma_plan_run(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                         const struct tma_order *order);

/* Releases the plan; runs in flight finish. The handle is invalid afterwards, whatever the call returns. NULL
 * is allowed and returns 0. */
TMA_API int tma_plan_release(tma_plan *plan);

/* ---- Tables: layers in many regions ------------------------------------------------------------------ */

/* The places of the layers on one side of a gather, a scatter or a run of a plan, each in a region of its
 * own: a cache of keys and values whose every layer, K and V, is an allocation is a table of twice as many
 * places as it has layers. The service checks the places when the table is prepared; a request then costs
 * about as much as one whose layers lie in one region, and is as few launches on a device. */
typedef struct tma_table tma_table;

/* Prepares a table of n places, at most 1024, whose regions are all of host memory or all of device memory. A
 * place outside its region is OUT_OF_RANGE, and the error message names its number. places is not used after
 * the call. The table belongs to the client until tma_table_release or tma_free, and is prepared again after
 * a reconnection. It holds the memory of its regions: if one is released first, the service keeps the memory
 * until the table is released too. Such a table works until the connection ends, but cannot be prepared
 * again: the call that reconnects then returns NOT_FOUND. On "local:", where nobody else holds the memory, it
 * is NOT_FOUND at once. Release tables before their regions. QUOTA: table_bytes_per_uid. */
TMA_API int tma_table_prepare(tma_client *client, const struct tma_place *places, size_t n, tma_table **ret);

/* Runs the plan once for each place of dst, from the place of src with the same number, in one request, and
 * waits for the reply, like tma_plan_run. Both tables must have the same number of places. order may be NULL.
 * tma_submit_run_tables does not wait (see the asynchronous requests). */
TMA_API int tma_plan_run_tables(tma_client *client, const tma_plan *plan, const tma_table *dst,
                                const tma_table *src, const struct tma_order *order);

/* Releases the table; requests in flight finish. The handle is invalid afterwards, whatever the call returns.
 * NULL is allowed and returns 0. */
TMA_API int tma_table_release(tma_table *table);

/* ---- Items: many transforms in one request ---------------------------------------------------------- */

/* The places of the tensors by which a plan converts, and of the scales that it computes. Such a plan runs as
 * an item, or as the only item of a request. */
struct tma_operands {
	struct tma_place scale, bias; /* a place without a region: the plan has no such tensor */
	struct tma_place amax_scale, amax_inverse;
	uint64_t reserved[2];
};

/* A transform, or a run of a plan: exactly one of transform and plan is NULL. */
struct tma_item {
	const struct tma_transform *transform; /* its order must be NULL */
	const tma_plan *plan;
	struct tma_place dst, src;  /* where a plan runs */
	int status;                 /* out: 0 or a negative TMA_* status; TMA_PENDING while in progress */
	const tma_table *dst_table; /* instead of dst: the plan runs once for each place */
	const tma_table *src_table; /* instead of src, beside dst_table; NULL: all of these runs have the
	                               place src. Each run counts against jobs_per_uid */
	const struct tma_operands *operands; /* of a plan whose scale or bias is a tensor, or that has amax;
	                                        otherwise NULL */
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
 * With pairs, which only a gather takes, an entry is two numbers, a block of the source and the block of the
 * destination that it is moved to: dst[index[i][1]] = transform(src[index[i][0]]). dst and src may then be
 * the same blocks, so that blocks move to other places within one cache, if the list is sent with the request
 * and no block is both read and written (OVERLAP).
 *
 * The list is either in the caller's memory and is sent with the request, which must then fit into 64 KiB, or
 * in a region, where it may change until the request uses it. An entry that is -1, or a pair with a -1, is
 * skipped. A number out of range makes the request fail, or, if the list is in a region, its entry is skipped
 * and counted. No block of the destination may be named twice, which is not checked for a list in a region.
 * Zero-initialize the
 * struct and set the members that you need; index_dtype is always one of them, because its zero value is not
 * an index type. */
struct tma_blocks {
	const struct tma_transform *transform; /* moves block 0 of layer 0; its order must be NULL */
	size_t count;                          /* number of entries in the list; a pair is one entry */
	enum tma_dtype index_dtype;            /* TMA_INT32 or TMA_INT64 */
	const void *index;                     /* the entries; or, if NULL: */
	struct tma_place index_at; /* their place in a region, aligned to the size of index_dtype */
	uint64_t limit;            /* number of blocks on the indexed side, with pairs on src; 0: as many as
	                              fit into its region */
	uint64_t dst_step;         /* bytes from one block to the next; 0: the size of a block */
	uint64_t src_step;         /* likewise */
	uint32_t layers;           /* number of layers; the whole list is used for each. 0: one layer */
	uint64_t dst_layer_step;   /* bytes from one layer to the next */
	uint64_t src_layer_step;   /* likewise */
	const int64_t *dst_layers; /* instead of a step: for each layer, bytes from dst to its block 0 */
	const int64_t *src_layers; /* likewise, from src */
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

/* ---- Slices: reshard -------------------------------------------------------------------------------- */

/* A tensor that holds a box of a larger one, the global tensor, which no memory has to hold as a whole. */
struct tma_slice {
	struct tma_tensor tensor; /* it is not split */
	const int64_t *start; /* tensor.rank indices: where its element [0, ..., 0] is in the global tensor;
	                         NULL: at 0 in each dimension */
	uint64_t reserved[2];
};

/* Puts the destinations together from the sources, in one request: what is needed when the tensor-parallel
 * size of a model changes. All slices have the type and the rank of the global tensor. Sources may have the
 * same elements; these are taken to be equal in each, and the nearest source is read. So may destinations,
 * but what is written shares no byte with another destination or with a source (OVERLAP). Each element of a
 * destination must be in some source; OUT_OF_RANGE names the first that is in none. From two halves of a
 * matrix of 4096 columns to its four quarters:
 *
 *     struct tma_slice halves[2], quarters[4];
 *     ...
 *     halves[1] = (struct tma_slice){ .tensor = { .region = r, .dtype = TMA_BFLOAT16, .rank = 2,
 *                                                 .shape = { 4096, 2048 } },
 *                                     .start = (int64_t[]){ 0, 2048 } };
 *     ...
 *     tma_reshard(client, &(struct tma_reshard){ .destinations = quarters, .n_destinations = 4,
 *                                                .sources = halves, .n_sources = 2 });
 *
 * Where the service has several devices, each destination is written by its own device, all at once. The
 * request is refused or fails as a whole. All slices must fit into one protocol message, as about 190 of two
 * dimensions do. Zero-initialize the struct and set the members that you need. */
struct tma_reshard {
	const struct tma_slice *destinations;
	size_t n_destinations;
	const struct tma_slice *sources;
	size_t n_sources;
	const int64_t *shape;          /* extents of the global tensor, in which all slices then have to lie;
	                                  NULL: they are not known */
	const struct tma_order *order; /* NULL: none */
	uint64_t reserved[6];
};

/* Waits for the reply; tma_last_result() then has the details, including the number of pieces. */
TMA_API int tma_reshard(tma_client *client, const struct tma_reshard *reshard);

/* ---- Layouts: KV caches and blocked tensors by name ------------------------------------------------- */

/* The library knows memory layouts by name, such as "vllm_nhd", and makes the strides of tensors from
 * them. `tmactl layouts` lists the names. A layout is never freed. Every function here works without a
 * connection: the client serves only to hold error messages, and NULL is allowed. Regions may be NULL where
 * the result is for a plan or an explanation. */
typedef struct tma_layout tma_layout;

TMA_API const tma_layout *tma_layout_find(const char *name);   /* NULL: there is no such layout */
TMA_API const tma_layout *tma_layout_at(size_t i);             /* each of them in turn; NULL past the last */
TMA_API const char *tma_layout_name(const tma_layout *layout); /* such as "nhd" */
TMA_API const char *tma_layout_doc(const tma_layout *layout);  /* who uses it */

/* Returns the order of a layout's dimensions, outermost first. Those of a KV cache are l (layers), k (keys
 * and values), n (blocks), t (tokens of a block), h (heads) and d (elements of a head); "l k n t h d" is nhd.
 * With g (groups of heads), h counts the heads of one group. Blocked tensors are written as in oneDNN: in "n
 * C h w 16c", 16c is a block of 16 channels, and C counts such blocks. */
TMA_API const char *tma_layout_order(const tma_layout *layout);

/* Returns whether the layout is one of blocked tensors (tma_layout_split). All others are of KV caches. */
TMA_API bool tma_layout_is_blocked(const tma_layout *layout);

/* A KV cache: C order in its layout's dimensions, with gaps only where a step says so. */
struct tma_layout_cache {
	const tma_layout *layout;
	tma_region *region;
	uint64_t offset; /* bytes from the region's start to the cache's first */
	enum tma_dtype dtype;
	uint32_t ranks;     /* tensor-parallel size R: the cache has only the heads of a rank; 0: 1 */
	uint32_t rank;      /* r has heads r * heads / R up to (r + 1) * heads / R, or, if there are more
	                       ranks than heads, the one head r * heads / R, as several ranks have */
	uint32_t unused;    /* 0 */
	int64_t layers;     /* 0: 1 */
	int64_t kv;         /* 0: 2, keys and values; 1: one of them, or what MLA caches */
	int64_t blocks;     /* 0: 1 */
	int64_t tokens;     /* of a block */
	int64_t heads;      /* KV heads of the model, over all ranks */
	int64_t head_size;  /* elements of a head */
	int64_t group;      /* heads of a group, in layouts that have groups; 0: 1 */
	int64_t layer_step; /* bytes from one layer to the next, where a layer is padded; 0: it is not */
	int64_t block_step; /* likewise, of blocks */
	uint64_t reserved[8];
};

/* A part of a cache. Each count of 0 stands for all that follow; zero-initialized, it is the whole cache.
 * Heads have their numbers in the model, whichever rank the cache is of. */
struct tma_layout_part {
	int64_t first_layer, layers;
	int64_t first_kv, kv;
	int64_t first_block, blocks;
	int64_t first_token, tokens;
	int64_t first_head, heads;
	uint64_t reserved[8];
};

/* Returns in *ret the bytes that a cache occupies. */
TMA_API int tma_layout_bytes(tma_client *client, const struct tma_layout_cache *cache, uint64_t *ret);

/* Makes *ret the tensor [layers, kv, blocks, tokens, heads, head_size] of a part of a cache. In a layout with
 * groups, a part of several groups has [groups, heads of a group] in place of heads. strides has room for
 * TMA_MAX_RANK entries; *ret points to it. part may be NULL: all of the cache. OUT_OF_RANGE: the cache does
 * not have all of the part. */
TMA_API int tma_layout_tensor(tma_client *client, const struct tma_layout_cache *cache,
                              const struct tma_layout_part *part, int64_t *strides, struct tma_tensor *ret);

/* A conversion: pass &move.transform to tma_transform, tma_plan_prepare, tma_explain or an item. The
 * transform points to the other members, so do not copy the struct. */
struct tma_layout_move {
	struct tma_transform transform;
	struct tma_tensor dst, src;
	int64_t dst_strides[TMA_MAX_RANK], src_strides[TMA_MAX_RANK];
	uint64_t reserved[8];
};

/* Makes *ret the one transform that copies a part of one cache to a part of another one, each in its own
 * layout and of its own tensor-parallel size. Parts may be NULL. If neither names heads, all those are copied
 * that both caches have: between a cache of all heads and one of a rank, those of the rank. Otherwise the
 * counts of the two parts must be equal. */
TMA_API int tma_layout_convert(tma_client *client, const struct tma_layout_cache *dst,
                               const struct tma_layout_part *dst_part, const struct tma_layout_cache *src,
                               const struct tma_layout_part *src_part, struct tma_layout_move *ret);

/* The same for a list of blocks: makes *ret a gather, or with scatter a scatter, of blocks with all of their
 * layers, and *move its transform. Set index_dtype and index or index_at, and count unless the list has an
 * entry for each block of the side that it does not index. Entries count from the first block of the indexed
 * side's part. *ret points to *move, which must exist as long as *ret is used and must not be copied.
 *
 * If the layers of one side lie apart, each an allocation of its own, describe one of them: a cache of one
 * layer stands for as many as the other side has, and you set dst_layers or src_layers for it, or a table of
 * the layers' places (dst_table or src_table). The cache of a side with a table has no region, and its offset
 * is added to each place. If its keys and values lie apart as well, describe the keys of a layer (kv is 1):
 * the request then has twice as many layers, the keys of layer 0, its values, the keys of layer 1 and so on,
 * and you set the layers of both sides: tma_layout_layer_offsets returns those of the other one. If both
 * sides have tables, describe one layer of each, or its keys. */
TMA_API int tma_layout_blocks(tma_client *client, const struct tma_layout_cache *dst,
                              const struct tma_layout_part *dst_part, const struct tma_layout_cache *src,
                              const struct tma_layout_part *src_part, bool scatter,
                              struct tma_layout_move *move, struct tma_blocks *ret);

/* Returns in ret the offsets of a part's layers, in bytes from the keys of its first layer: 0 for these keys,
 * then the offsets of that layer's values, of the keys of its second layer and so on. ret has room for the
 * part's layers times its kv. part may be NULL: all of the cache. */
TMA_API int tma_layout_layer_offsets(tma_client *client, const struct tma_layout_cache *cache,
                                     const struct tma_layout_part *part, int64_t *ret);

/* What a blocked layout makes of a plain tensor. The plain tensor is split (see tma_tensor) and its parts are
 * permuted: dimension d of the blocked tensor is dimension perm[d] of the result; inverse leads back. Give
 * split and n_split to the plain tensor, rank and shape to the blocked one, and perm to the transform, or
 * inverse where the blocked tensor is the source. The padding of a blocked destination becomes the
 * transform's value. */
struct tma_layout_blocking {
	int rank;                    /* of the blocked tensor */
	int64_t shape[TMA_MAX_RANK]; /* of the blocked tensor, which is in C order; includes the padding */
	int n_split;                 /* number of pairs */
	int64_t split[2 * TMA_MAX_RANK];
	int perm[TMA_MAX_RANK];
	int inverse[TMA_MAX_RANK];
	uint64_t reserved[8];
};

/* shape is that of the plain tensor, [n, c, h, w] with d before h for three dimensions, [o, i, h, w] of
 * weights, or [rows, columns]. */
TMA_API int tma_layout_split(tma_client *client, const tma_layout *layout, int rank, const int64_t *shape,
                             struct tma_layout_blocking *ret);

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
 * the replies that register the client's regions and prepare its tables and plans, within the time set by
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
TMA_API int tma_submit_run_tables(tma_client *client, const tma_plan *plan, const tma_table *dst,
                                  const tma_table *src, const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_items(tma_client *client, struct tma_item *items, size_t n,
                             const struct tma_order *order, tma_ticket *ret);
TMA_API int tma_submit_gather(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);
TMA_API int tma_submit_scatter(tma_client *client, const struct tma_blocks *blocks, tma_ticket *ret);
TMA_API int tma_submit_reshard(tma_client *client, const struct tma_reshard *reshard, tma_ticket *ret);

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
 * timeout_ms milliseconds (0: never blocks; -1: no limit; the client's timeout does not apply), or the wait
 * was interrupted (tma_set_interrupt). NOT_FOUND: no ticket is outstanding. Each ticket is taken once, by
 * tma_next, tma_wait or tma_poll. */
TMA_API int tma_next(tma_client *client, int timeout_ms, struct tma_completed *ret);

/* For event loops: poll tma_fd() for tma_events() (POLLIN, POLLOUT), call tma_dispatch(), then call
 * tma_next() with a timeout of 0 until it no longer returns 0. tma_dispatch never blocks and never connects;
 * it returns the number of requests that ended, or a negative status. tma_fd is -1 while the client is not
 * connected, and may change when a call reconnects. */
TMA_API int tma_fd(const tma_client *client);
TMA_API short tma_events(const tma_client *client);
TMA_API int tma_dispatch(tma_client *client);

/* ---- CUDA streams of the program ---------------------------------------------------------------------- */

/* Each of these calls puts a request into a stream of the program's own, a CUstream or cudaStream_t: the
 * request starts when the device has done what was in the stream before, and what comes into the stream later
 * waits for it. The host waits for neither.
 *
 * The request is launched by the calling thread, through libtma-local, if the device of the stream reaches
 * all of its memory: that of its own, that of other devices with peer access, and pinned memory of the host.
 * The memory needs an address in this process. A tensor's region is NULL and its offset the address of
 * element [0, ..., 0], or the region's address is known (tma_region_from_device_ptr, tma_region_map,
 * tma_region_from_host_ptr, tma_region_data). A client of "local:" launches all of its requests, and one that
 * is connected to a service those that it can; the service sees nothing of these. Such a call costs about as
 * much as a kernel launch; a long list, several items or amax add a copy and an allocation in the stream. The
 * first one in a CUDA context loads the kernels, and the first one with a layout plans it. What the call is
 * given can be freed or changed once it has returned, but for the tensors, which must live until the stream
 * has passed. Lists of blocks may be of any length: one at index_at in ordinary memory of the host is read
 * and checked before the call returns, as if it were at index; one in memory that the device reaches is read
 * when the device comes to it.
 *
 * A list of 4 MiB or more between a device and pinned memory of the host goes by way of scratch memory of the
 * device and the copy engine, so that other kernels hardly notice it. That takes 256 MiB of the device at
 * most, or 512 MiB where these are at most 1/32 of what is free; 288 MiB are kept for the next list. If the
 * list is at index_at in memory of the device, and names blocks that go to the host, it is fetched and
 * checked first: the call does so only if the stream has nothing left to do, and waits half a millisecond at
 * most. A kernel moves over the bus what does not qualify, and what is captured.
 *
 * A stream that is captured takes what is launched. A graph keeps what its requests need except their tensors
 * and the client, which must not be freed while the graph is used. Each launch of it moves what the tensors
 * then contain; lists and numbers are those of the call. A graph contains no allocations of the library's: it
 * can be cloned, used as a child, and instantiated any number of times, but what makes scales (amax) must not
 * run twice at a time. Capturing a long list, a split or amax allocates memory of the device and waits until
 * it is there.
 *
 * On "local:" the stream itself waits for an order's point and sets its signal, also each time that a graph
 * is launched; of several destinations or items, it waits before the first, and signals behind the last. A
 * request that is refused does neither. A stream waits for as long as it takes, so wait_ms and deadline_ms
 * are UNSUPPORTED. The word lies in memory of the device, or anywhere in that of the host but in managed
 * memory: eight bytes that are not pinned are pinned as they are, until the region is released. That, like
 * tma_free, waits until the devices have done all that they have been given. Requests of the client that are
 * late, because they wait for a point outside of streams, are not waited for.
 *
 * The service does what cannot be launched here: a request with host memory that is not pinned, with memory
 * of another process that is not mapped here, with tables, or with an order's signal or deadline_ms, and
 * every request where libtma-local is not installed or has no kernels for the device. The stream and the
 * service then wait for each other by a timeline of the library's. The call returns when the request has been
 * sent; how the request ends, tma_enqueued tells. If it is refused or fails, or the service goes away, the
 * stream goes on. The order's signal is set by the service; its wait is refused, as the stream can wait
 * itself (tma_stream_wait). wait_ms and deadline_ms limit the time until the stream comes to the request, or
 * to each of its destinations and items, as does the service's limit wait_deadline_ms (TIMEOUT). The requests
 * of a client start in the order of the calls, also those in different streams: where one stream waits for
 * another, each needs a client of its own. Until the stream has come to the request, the client's later
 * requests wait behind it, and so may other calls that wait for the service. At most 128 requests of a client
 * are under way; a call beyond that waits until a stream has come past the first of them (BUSY: the client's
 * timeout has passed). As a submit does, the call tries a lost connection once. The stream must not be in
 * capture. tma_free ends the requests that have not started; memory of 4 KiB is left behind if a stream still
 * has to come past one of them.
 *
 * The stream must belong to the current context of the calling thread. If the thread has none, that of the
 * stream becomes current and stays so, if libtma-local is there. NULL is the legacy default stream of the
 * current context. Several threads may enqueue at once, each with a client of its own.
 *
 * Besides the errors of tma_transform, tma_gather and the like, there are these. INVALID_ARGUMENT: the stream
 * is of another context than the current one; or, without a service, a tensor is memory of another context or
 * of the host that is not pinned (calls that wait take that). UNSUPPORTED: the client has a service, and the
 * order a wait; the service has to do the request, and the stream is captured, or the driver is missing or
 * too old; or, without a service, the device is older than compute capability 9.0 or has no peer access to
 * that of a tensor, or the order has points and the stream is captured by a driver that takes none into
 * graphs. Of an order's other members only multiprocessors counts for what is launched here. DEVICE_LOST: the
 * program's context has failed, for good.
 *
 * tma_last_result() then has the kernel family and the bytes of what was launched; its other fields, and all
 * of them for what the service does, mean nothing. An exact cast that changes values does not fail the call:
 * tma_enqueued counts them, or, if the service does the request, returns its error. */
TMA_API int tma_enqueue(tma_client *client, const struct tma_transform *transform, void *stream);
TMA_API int tma_enqueue_run(tma_client *client, const tma_plan *plan, struct tma_place dst,
                            struct tma_place src, const struct tma_order *order, void *stream);
TMA_API int tma_enqueue_gather(tma_client *client, const struct tma_blocks *blocks, void *stream);
TMA_API int tma_enqueue_scatter(tma_client *client, const struct tma_blocks *blocks, void *stream);

/* Enqueues n items, in their order, each as a request of its own, and sets the status of each: 0, or why it
 * was not enqueued. Returns 0, or the status of the first that failed, whose error message is then the last
 * error. order may be NULL; a service's client gives it no points (UNSUPPORTED). */
TMA_API int tma_enqueue_items(tma_client *client, struct tma_item *items, size_t n,
                              const struct tma_order *order, void *stream);

/* This is what a client's requests on streams have counted. */
struct tma_enqueued {
	uint64_t changed; /* elements whose values exact casts have changed */
	uint64_t beyond;  /* entries of lists in memory of the device that were out of range and skipped */
	uint64_t reserved[6];
};

/* Waits for the stream, which must not be in capture, and sets *ret to what the client's requests have
 * counted since the last call, on all streams of that context. Requests in other streams may not have ended,
 * and are then counted by a later call. If requests that the service did have failed since the last call, in
 * any stream, returns the status of the first of them, whose error message is then the last error; a later
 * call returns the counts. */
TMA_API int tma_enqueued(tma_client *client, void *stream, struct tma_enqueued *ret);

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

/* tma_ring_push puts a run into the ring; BUSY: the ring is full. A plan whose scale or bias is a tensor, or
 * that has amax, is INVALID_ARGUMENT: it runs as an item. If the service is not polling the ring, the
 * run starts only with tma_ring_flush, which wakes the service, or tma_ring_wait. */
TMA_API int tma_ring_push(tma_ring *ring, const tma_plan *plan, struct tma_place dst, struct tma_place src,
                          uint64_t tag);
TMA_API int tma_ring_flush(tma_ring *ring);

/* Takes the run that ended first among those not taken yet: returns 0, or TMA_PENDING if none has ended.
 * Busy-polling may starve the service; use tma_ring_wait. */
TMA_API int tma_ring_poll(tma_ring *ring, struct tma_ring_end *ret);

/* The same, but waits: polls for spin_us microseconds, then sleeps. TMA_PENDING: the client's timeout has
 * passed, or the wait was interrupted (tma_set_interrupt); the ring continues. NOT_FOUND: no run is in
 * flight. */
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
TMA_API int tma_stats(tma_client *client, tma_document **ret);   /* of the service, or of this process */
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
