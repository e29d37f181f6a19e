/* SPDX-License-Identifier: Apache-2.0 */
/* State that the files of libtmaclient share: the connection, its requests under way, its regions, tables and
 * plans. One thread at a time uses a client, so nothing here is locked; members that any thread may read are
 * atomic.
 *
 * A request lives in a slot of the array client->requests. Slots are reused, so that calls allocate nothing
 * once the array has grown. Its msgid holds the slot and the low half of the slot's generation, which counts
 * the requests that the slot has held; its ticket holds the slot and the whole generation. A request that is
 * answered only if it fails (COMPLETION_SIGNAL) gives its slot back as soon as it is queued: its msgid has
 * MSGID_SILENT in place of a slot, and a sequence number in place of a generation. Tickets whose request has
 * ended form a list through their slots, in the order in which they ended, until the program takes them.
 *
 * The connection ends in one place, client_break, which also ends every request; afterwards sock is -1 and
 * `ended` says why. on_reply callbacks run while the bytes of the reply are in `in`, and must not send
 * anything.
 */
#ifndef CLIENT_CLIENT_H
#define CLIENT_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tmaclient.h"
#include "chunk.h"
#include "device.h"
#include "range_set.h"
#include "client/local/door.h"
#include "proto/wire/frame.h"
#include "proto/wire/rpc.h"
#include "proto/wire/socket.h"
#include "proto/status.h"

#define CLIENT_MAX_FDS   16    /* received descriptors that no reply has claimed yet */
#define CLIENT_MAX_SLOTS 65535 /* A msgid has 16 bits for the slot, and MSGID_SILENT takes one value. */
#define MSGID_SILENT     0xffff
#define NO_SLOT          UINT32_MAX
#define NO_WORDS         UINT32_MAX
#define CLIENT_RETRY_MS  5000 /* default of tma_set_reconnect */

enum region_life {
	REGION_ASKED, /* The service has not answered yet. */
	/* The service knows it by id, provided that `connection` is the client's current one. */
	REGION_KNOWN,
	REGION_GONE, /* The service refused it on this connection; `error` says why. */
};

/* Identity of a mapped file, as /proc/self/maps reports it. */
struct file_identity {
	unsigned major; /* device number of the file's device */
	unsigned minor;
	uint64_t inode;
};

/* Tells whether the library may seal a region's file. Any thread may change it, because any thread may ask
 * for the region's descriptor. */
enum sealing {
	/* The library did not make the file, or others may have its descriptor or its address. */
	SEALING_NEVER,
	SEALING_ALLOWED, /* The library made the file, and only the service knows of it. */
	/* Only the service knows of the file, and has asked for the seal: the next request that names the
	 * region seals the file. */
	SEALING_ASKED,
	SEALING_DONE,
	SEALING_GIVEN, /* The file is or will be sealed, and others have its descriptor or its address. */
};

/* Regions, tables and plans outlive a connection: each keeps what is needed to register it on the next
 * one. */
struct tma_region {
	tma_client *client;
	struct tma_region *next;
	enum region_life life;
	uint64_t id;
	uint32_t connection; /* the connection in which id is valid */
	size_t size;
	uint64_t offset;
	/* bytes of the whole allocation (cuda_fd, cuda_pool); 0 with cuda_fd: the allocation ends with the
	 * region */
	uint64_t allocation;
	bool writable;
	bool is_service_made; /* The service made the memory. */
	enum region_kind kind;
	/* Descriptor of the memfd, the allocation (cuda_fd) or the pool (cuda_pool); -1: none. The region
	 * owns it, unless it is the descriptor of its only chunk. */
	int fd;
	size_t n_chunks;       /* allocations of the device memory; 0: they are not known */
	struct chunk **chunks; /* in address order; offset counts from the start of the first one */
	bool has_parts;        /* The service is told of the chunks one by one, even if there is only one. */
	uint32_t handles;      /* handles that the program holds beyond the first */
	/* address of the region's first byte in this process, under which a range set of the client has it;
	 * 0: none */
	uint64_t address;
	/* the launcher's id (launch.c) of the memory at here_address; 0: the launcher does not know of it */
	uint64_t here;
	uint64_t here_address;
	struct file_identity file; /* Its inode is 0 unless tma_region_from_host_ptr made the region. */
	/* True while the program is known to keep the memory mapped. NULL: it may unmap the memory at any
	 * time. */
	const atomic_bool *kept;
	/* the IPC handle (cuda_ipc), or the pointer exported from the pool (cuda_pool) */
	uint8_t handle[DEVICE_HANDLE_BYTES];
	/* UUID of the device, or its number until the service has reported the UUID; "": unknown */
	char device[DEVICE_UUID_TEXT];
	_Atomic enum sealing sealing;
	atomic_bool must_seal; /* The library made the file, and the service seals it before using it. */
	bool is_lost;          /* The memory could not be moved; the region cannot be registered again. */
	/* Its owner (stream_order.c or the Python package) makes another region if this one is lost, and no
	 * call reports the loss. */
	bool is_replaceable;
	uint64_t session; /* the service's id of the session that asked for the seal */
	int64_t asked_ms; /* time at which it asked (clock_ms) */
	/* The file that the memory was moved from, until it is certain that nobody else has written to it;
	 * -1: none. */
	int left_fd;
	uint64_t left_hash; /* hash of the bytes that were copied from left_fd */
	void *data;         /* where the library has mapped the memory; NULL: nowhere */
	/* Mapping made by tma_region_map, of device memory or of a file (device < 0). size == 0: not
	 * mapped. */
	struct device_mapping mapping;
	struct error error;
};

struct table_place {
	tma_region *region; /* NULL: the region was released, or (on "local:") offset is an address */
	uint64_t offset;
};

struct tma_table {
	tma_client *client;
	struct tma_table *next;
	enum region_life life;
	uint64_t id;
	uint32_t connection; /* the connection in which id is valid */
	size_t n;
	struct table_place *places;
	uint64_t *words; /* encoded places, 2 * n words; part of the allocation of places */
	struct error error;
};

struct tma_plan {
	tma_client *client;
	struct tma_plan *next;
	enum region_life life;
	uint64_t id;
	uint32_t connection; /* the connection in which id is valid */
	uint64_t here;       /* the launcher's id of the plan; 0: the launcher has not been told of it */
	struct msg_transform params;
	struct error error;
};

/* Cursor over the items of a call, which go out in one or several messages. Each message takes as many as it
 * can hold, from `items` on; the caller then advances the cursor by `taken`. */
struct item_cursor {
	struct tma_item *items;
	size_t n;
	/* index of items[0] in the caller's array; earlier items went out in earlier messages */
	size_t first;
	bool is_whole; /* All items must fit into one message. */
	bool is_later; /* An earlier message has gone out, so this one does not wait for the order's point. */
	bool is_failed; /* An earlier item was refused or failed, so the signal must not be set. */
	size_t taken;   /* items that the last message used up, including those that were refused here */
	size_t sent;    /* items that the last message carries */
};

enum answer { ANSWER_UNKNOWN, ANSWER_YES, ANSWER_NO };

struct call;
struct request;

/* Decodes a result into what the caller waits for. Returns 0 or a negative status with err; STATUS_PROTOCOL
 * ends the connection. */
typedef int reply_fn(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                     void *arg, struct error *err);

/* Encodes a request's parameters, which name regions, tables and plans by their ids on the current
 * connection. Returns 0, or a negative status that is the last error. */
typedef int params_fn(tma_client *client, const struct call *call, struct request *request,
                      union params *ret);

struct call {
	enum method_id method;
	const void *params; /* the method's struct; NULL if the method has no fields, or if fill makes them */
	params_fn *fill;    /* makes the parameters; NULL: params has them */
	const void *from;   /* argument of fill */
	struct item_cursor *cursor; /* argument of fill if the request consists of items; otherwise NULL */
	const struct tma_order *order;
	int fd;          /* descriptor to send with the request, which the caller keeps; -1: none */
	bool brings_fds; /* fill sets the descriptors to send (client->out_fds). */
	/* The call does not wait for its reply. It may stay unsent until a batch is sent (tma_set_batching),
	 * and it makes only one attempt to replace a lost connection. */
	bool is_submit;
	bool has_ticket;
	reply_fn *on_reply;
	/* for on_reply; NULL: the request's own result. In a blocking call it may point to the caller's
	 * stack. */
	void *arg;
};

/* Tells how requests are being encoded. While a client of a service tries to launch a request through
 * libtma-local, regions and plans are named by the ids of the launcher, not of the service. */
enum launching {
	LAUNCHING_NOT,
	LAUNCHING_HERE,
	LAUNCHING_ELSEWHERE, /* Only the service can do the request. */
};

enum request_state { REQUEST_FREE, REQUEST_WAITING, REQUEST_DONE };

struct request {
	enum request_state state;
	uint32_t generation;
	uint64_t start;  /* position of its first byte among all bytes that the client has ever queued */
	bool is_unsent;  /* The connection ended before any byte of the request was sent. */
	bool may_repeat; /* The connection ended, and running the request twice does no harm. */
	bool has_signal; /* The request signals a point, so it must not run twice. */
	bool is_queued;  /* The reply "queued" has arrived; the end is reported by a notification. */
	enum completion completion;
	bool has_ticket;
	/* Slot. FREE: the next free slot. DONE with a ticket: the ticket that ended next, or NO_SLOT. */
	uint32_t next;
	uint32_t before; /* Slot. DONE with a ticket: the ticket that ended before, or NO_SLOT. */
	void *user;      /* the order's `user`, for tma_next */
	/* A request in a stream: the program cannot take it; stream_order_on_end records its end and frees
	 * it. */
	bool is_enqueued;
	/* If is_enqueued: index of the pair of words (stream_order.c) that this request closes, or
	 * NO_WORDS. */
	uint32_t words;
	const struct method *method;
	reply_fn *on_reply;
	void *arg;              /* for on_reply; NULL: result */
	struct tma_item *items; /* the caller's items; NULL: the request does not consist of items */
	size_t n_items;         /* items that the message used up */
	uint32_t n_sent;        /* items that the message carries; the others were refused here */
	bool is_stopped;        /* The request ended as a whole: every item that was sent has its status. */
	size_t first;           /* index of items[0] in the caller's array */
	/* index within items of the first one that was refused here; valid if error.status is set before the
	 * reply */
	size_t refused;
	struct tma_result result; /* outcome of a request that moves data */
	struct error error;       /* status 0: no error */
};

struct tma_client {
	int sock;            /* socket, or eventfd of a "local:" client; -1: not connected */
	uint32_t connection; /* number of the current connection, counted from 1; 0: there was none yet */
	uint32_t reconnects; /* reconnections since tma_connect */
	int retry_ms;        /* milliseconds; see tma_set_reconnect */
	bool is_given_up;    /* The last attempt to reconnect failed. */
	bool is_incomplete;  /* Not every region, table and plan is registered on this connection yet. */
	/* The request that is being sent is only valid on this connection, so no other one may be opened for
	 * it. */
	bool is_bound;
	bool is_device_lost; /* The service reported DEVICE_LOST and is about to close the connection. */
	bool is_batching;    /* see tma_set_batching */
	int timeout_ms;
	int (*interrupted)(void *arg); /* see tma_set_interrupt; NULL: waits are never interrupted */
	void *interrupted_arg;
	bool is_interrupted; /* The last wait was interrupted. */
	bool has_server_uid;
	unsigned server_uid;
	char path[108];
	struct error error; /* see tma_last_error */
	struct error ended; /* Reason why sock is -1; status 0: it never was connected. */

	const struct local_door *door; /* libtma-local's functions; NULL: it has not been loaded */
	/* session that answers a "local:" client; NULL: the client has a service or no connection */
	struct local_session *local;
	pid_t local_pid; /* the process that opened `local`; a forked child differs from it */
	bool has_late;   /* Late requests of the session are under way, or have replies to take (door.h). */
	struct local_session
	    *launcher; /* session that launches for a client of a service; NULL: none has been opened */
	bool has_no_launcher; /* libtma-local cannot be loaded. */
	enum launching launching;

	/* state of requests in streams, an entry for each connection that has had any, newest first */
	struct stream_order *streams;
	/* first error of requests in streams that tma_enqueued has not reported yet */
	struct error stream_error;
	/* list entries that named no block, summed over the requests in streams since the last
	 * tma_enqueued */
	uint64_t stream_beyond;

	struct buffer in;
	struct buffer out;
	uint64_t sent; /* bytes that sockets have accepted, over all connections */
	/* Descriptors to send, owned by callers; they go with the first byte of out, which then holds one
	 * request only. */
	size_t n_out_fds;
	int out_fds[SOCKET_MAX_FDS];
	struct frame_scan scan;
	struct rpc_decoder *decoder;
	int fds[CLIENT_MAX_FDS]; /* received descriptors, in order of arrival */
	size_t n_fds;

	struct request *requests;
	uint32_t n_requests;
	uint32_t first_free; /* slot; n_requests: none is free */
	uint32_t n_tickets;  /* tickets that have not been taken */
	uint32_t first_done; /* slot of the first ticket whose request has ended; NO_SLOT: none */
	uint32_t last_done;
	uint32_t n_creating;      /* region_create requests under way, whose replies may bring a descriptor */
	int n_ended;              /* requests that have ended since tma_dispatch began */
	uint32_t n_ended_tickets; /* tickets that have ended, in total; wraps around */

	uint64_t n_silent;   /* requests of this connection that are answered only if they fail */
	struct error silent; /* see tma_take_error */

	struct submit_item *items;      /* buffer for the items of a message; NULL: not needed yet */
	struct msg_tensor *further_dst; /* buffer for further destinations; NULL: not needed yet */
	size_t further_dst_room;
	struct msg_slice *slices; /* slices of the last reshard; NULL: there was none */
	/* encoded places of the last gather or scatter that had a list of them; NULL: there was none */
	uint64_t *places;
	struct device_driver *driver; /* NULL: not loaded yet */

	uint32_t engine_of;   /* the connection for which is_cpu and message_fds are known; 0: none */
	bool is_cpu;          /* The service's engine is the CPU. */
	int64_t message_fds;  /* the service's limit of descriptors in a message */
	enum answer can_move; /* whether sealed memory can be moved (region_seal.c) */

	struct tma_region *regions;
	struct tma_table *tables;
	/* regions that transforms may write to, by their addresses in this process */
	struct range_set writable;
	/* regions that transforms may only read, by their addresses in this process */
	struct range_set read_only;
	struct range_set chunks; /* current chunks of device memory, by address */
	int maps_fd; /* /proc/self/maps, open from the first tma_region_from_host_ptr on; otherwise -1 */
	struct tma_plan *plans;
	struct tma_ring *rings;
	struct tma_result last_result;
};

/* ---- client.c -------------------------------------------------------------------------------------- */

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Checks the reserved members of the public struct that errors call `name`. Returns 0, or INVALID_ARGUMENT if
 * any is not zero. */
int reserved_check(tma_client *client, const uint64_t *reserved, size_t n, const char *name);

/* Does what reserved_check does, for callers without a client. */
int reserved_find(const uint64_t *reserved, size_t n, const char *name, struct error *err);

/* Checks the pointer to an output argument. Returns 0, or INVALID_ARGUMENT if it is NULL; `what` completes
 * the message "it is where ...", such as "the region goes". */
int pointer_check(const void *pointer, const char *name, const char *what, struct error *err);

/* Checks the argument ret like pointer_check. Returns INVALID_ARGUMENT without a message if client is
 * NULL. */
int client_check_ret(tma_client *client, const void *ret, const char *what);

/* Loads the CUDA driver into client->driver unless it is loaded. Returns 0 or the last error. */
int client_find_driver(tma_client *client);

/* Sets the client's last error and returns status. */
int client_fail(tma_client *client, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets the last error to NO_MEMORY because no descriptor was available. `what` names the thing that needs
 * one, and begins the message; error is the errno. */
int client_fail_descriptor(tma_client *client, const char *what, int error);

/* Returns 0 if the client is connected, otherwise DISCONNECTED, with the reason as the last error. */
int client_check(tma_client *client);

/* Returns 0 if the client is connected or the next request may reconnect, otherwise what client_check
 * returns. */
int client_check_usable(tma_client *client);

/* Connects to client->path. While the service's queue of connections is full, it waits, at most until the
 * deadline. Returns 0 or the last error, which is NO_REPLY if the deadline has passed. */
int client_open(tma_client *client, int64_t deadline);

/* ---- reconnect.c ----------------------------------------------------------------------------------- */

enum patience {
	PATIENCE_NONE, /* A submit does not wait: whatever is not possible now is left to the next call. */
	PATIENCE_FULL, /* Retries for as long as tma_set_reconnect says. */
};

/* Prepares the connection for a request, and reconnects if it was lost. Returns 0 once every region, table
 * and plan is registered. Otherwise returns the last error; if one of them was lost, the client is connected
 * all the same. */
int client_ready(tma_client *client, int64_t deadline, enum patience patience);

/* Finds the lost regions, tables and plans that may be available again, and marks them for registration. */
void client_seek_lost(tma_client *client);

/* Registers the regions of earlier connections and prepares their tables and plans, after client_open.
 * Returns as client_ready does. */
int client_rejoin(tma_client *client, int64_t deadline, enum patience patience);

/* ---- local.c --------------------------------------------------------------------------------------- */

/* Path that selects libtma-local, which moves memory of this process, in place of a service. */
#define LOCAL_PATH "local:"

bool local_is_path(const char *path);

/* local_open loads libtma-local and opens a session, and sets client->local and client->sock. Returns 0 or
 * the last error. local_close closes the session, if there is one. */
int local_open(tma_client *client);
void local_close(tma_client *client);

/* Loads libtma-local and sets client->door. Returns 0, or UNSUPPORTED with err. */
int local_find_door(tma_client *client, struct error *err);

/* Registers the region with the session of a "local:" client, as the memory at address. Returns 0 or the last
 * error. */
int local_register(tma_region *region, const void *address);

/* Returns whether the client is a "local:" one and nothing has to happen before its next request: all is
 * registered, and no request is unsent or late. */
bool local_is_idle(const tma_client *client);

/* Runs a transform with one destination directly, without encoding a message. The client must be idle
 * (local_is_idle), and the transform must not wait for a point. The result becomes the last result. */
int local_transform(tma_client *client, const struct tma_transform *t);

/* Passes all queued requests to the session and appends its replies to client->in. Returns false if this
 * ended the connection. */
bool local_exchange(tma_client *client);

/* Appends the replies of late requests that have ended to client->in. Returns false if this ended the
 * connection. */
bool local_receive(tma_client *client);

/* Waits until a late request has ended and returns true. Returns false after timeout_ms milliseconds (-1: no
 * limit) or once a signal handler has run. */
bool local_await(tma_client *client, int timeout_ms);

/* Cancels a late request that has not started, and returns true: no reply follows. Returns false if it has
 * started, and so will end. */
bool local_take_back(tma_client *client, uint32_t slot);

/* local_tell makes the client's descriptor readable: n_ended tickets have ended, or, if it is 0, a request
 * without a ticket has failed. local_take_ended resets the descriptor and returns the number of tickets that
 * have ended since its last call. */
void local_tell(tma_client *client, int n_ended);
int local_take_ended(tma_client *client);

/* Subtracts one ended ticket from the descriptor's count, because only the current call waited for the late
 * request that has ended. */
void local_untell(tma_client *client);

/* ---- launch.c -------------------------------------------------------------------------------------- */

/* Result of a launch function: only the service can do the request. Nothing was launched, and no error is
 * set. */
#define LAUNCH_ELSEWHERE 1

/* launch_begin begins a launch into a stream and returns 0, LAUNCH_ELSEWHERE or the last error. If it
 * returned 0, the caller encodes the request, and calls launch_run if that succeeded. It then passes the
 * resulting status to launch_end, which returns that status, or LAUNCH_ELSEWHERE in its place. */
int launch_begin(tma_client *client, void *stream);
int launch_run(tma_client *client, enum method_id method, const union params *params,
               union local_result *ret);
int launch_end(tma_client *client, int rc);

/* Sets *ret to the counts since the last call (stream_counts in door.h). Returns 0 or the last error. */
int launch_counts(tma_client *client, void *stream, struct local_counts *ret);

/* Set *ret to the launcher's id of the region or plan, and register it with the launcher if necessary. Return
 * 0, the last error, or what launch_elsewhere returns. */
int launch_region(tma_client *client, tma_region *region, uint64_t *ret);
int launch_plan(tma_client *client, tma_plan *plan, uint64_t *ret);

/* Release the region or plan in the launcher, before it is freed. */
void launch_forget_region(const tma_region *region);
void launch_forget_plan(const tma_plan *plan);

/* Closes the launcher. Does nothing if there is none. */
void launch_close(tma_client *client);

/* Marks the request that is being encoded as one that only the service can do. Returns UNSUPPORTED and sets
 * no error. */
int launch_elsewhere(tma_client *client);

/* ---- stream_order.c -------------------------------------------------------------------------------- */

/* Has the service do a request in the order of a stream: it starts when the stream reaches it, and the stream
 * continues when it has ended. The host waits for neither. The call's order may have a signal, but no wait.
 * Returns 0 once the request is sent and the stream waits for it, otherwise the last error. stream_order_wait
 * reports how the request ended. */
int stream_order_enqueue(tma_client *client, const struct call *call, void *stream);

/* Waits for the stream and for the replies of the requests that it has passed. Returns the first error of an
 * enqueued request since the last call, or the reason why it cannot wait, as the last error; otherwise 0. */
int stream_order_wait(tma_client *client, void *stream);

/* Records the end of an enqueued request and frees its slot. */
void stream_order_on_end(tma_client *client, uint32_t slot);

/* Stops the thread that watches the connection, when the connection ends. Streams that wait for requests of
 * this connection are released. */
void stream_order_stop(tma_client *client);

/* Frees the words that no stream needs any more. The connection must have ended. */
void stream_order_free(tma_client *client);

/* ---- io.c ------------------------------------------------------------------------------------------ */

/* Closes the connection. Every request under way ends with this status and message. */
void client_break(tma_client *client, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Empties the connection's buffers and closes the descriptors that it has received. */
void client_reset(tma_client *client);

/* Returns the deadline of a blocking call that starts now, in milliseconds of the monotonic clock; -1:
 * none. */
int64_t client_deadline(const tma_client *client);

/* Returns the milliseconds that are left until the deadline, at least 0; -1: there is no deadline. */
int client_left_ms(int64_t deadline);

/* Sends as much as the socket accepts. Never blocks. */
void client_flush(tma_client *client);

/* Sends as much as the socket accepts and reads what has arrived. Never blocks. */
void client_pump(tma_client *client);

/* Waits until the socket can be read or written, then does so. Returns false once the deadline has passed or
 * the wait was interrupted; what had arrived has been read in that case, too. */
bool client_poll(tma_client *client, int64_t deadline);

/* Sleeps for ms milliseconds. Returns false if the wait was interrupted. */
bool client_pause(tma_client *client, int ms);

/* Returns the maximum number of milliseconds to wait before the program is asked whether it wants to
 * interrupt the call. left_ms is the time that the call has left (-1: no limit). */
int client_slice_ms(const tma_client *client, int left_ms);

/* Asks the program whether to interrupt the call. Returns the answer and keeps it in
 * client->is_interrupted. */
bool client_ask_interrupted(tma_client *client);

/* client_wait_reply sends and reads until the request in the slot has ended. client_wait_sent does so until
 * at most keep bytes are unsent, and `what` names its call in error messages. At the deadline, both close the
 * connection to a service, whereas a late request on "local:" is canceled. */
void client_wait_reply(tma_client *client, uint32_t slot, int64_t deadline);
void client_wait_sent(tma_client *client, size_t keep, int64_t deadline, const char *what);

/* Returns the next descriptor that came with replies, which the caller then owns; -1: there is none. */
int client_take_fd(tma_client *client);

/* ---- call.c ---------------------------------------------------------------------------------------- */

/* Sends the request and waits for its reply: client_call for as long as tma_set_timeout allows,
 * client_call_until until the deadline. Both return 0 or the last error. */
int client_call(tma_client *client, const struct call *call);
int client_call_until(tma_client *client, const struct call *call, int64_t deadline);

/* Starts the request and waits until it has ended. The request is repeated once on a new connection if the
 * first connection was lost and repetition does no harm. Returns 0 and sets *ret_slot to the slot of the
 * ended request, which the caller frees, or returns the last error if the request could not be sent. */
int request_run(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot);

/* Queues the request and sends as much as the socket accepts, unless it is kept for a batch. Reconnects if
 * the old connection turns out to be lost. A request with a descriptor waits until the queue is empty, and is
 * queued alone. */
int request_start(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot);

/* Does what request_start does, for a request of COMPLETION_SIGNAL, which has no slot afterwards. */
int request_post(tma_client *client, const struct call *call, int64_t deadline);

/* Keeps the error of a request without a ticket for tma_take_error. Only the first one is kept. */
void client_keep_silent(tma_client *client, const struct error *error);

/* Returns the slot of an ended request to the free list. */
void request_free(tma_client *client, uint32_t slot);

/* Ends the request in the slot with error, whose status is 0 if it succeeded. io.c and client_break call
 * it. */
void request_end(tma_client *client, uint32_t slot, const struct error *error);

static inline uint32_t request_msgid(const struct request *request, uint32_t slot)
{
	return (request->generation & 0xffff) << 16 | slot;
}

/* Returns the request under way that a reply's msgid names and sets *ret_slot to its slot, or returns
 * NULL. */
struct request *request_find(tma_client *client, uint32_t msgid, uint32_t *ret_slot);

/* ---- transform.c ----------------------------------------------------------------------------------- */

/* Encodes a tensor, which errors call `name`. Returns 0 or the last error. */
int tensor_params(tma_client *client, const struct tma_tensor *t, const char *name, struct msg_tensor *ret);

/* Returns the number of elements that the tensor's containers declare, as frame_scan counts them. */
uint64_t tensor_elements(const struct msg_tensor *tensor);

/* Adds the fields of a conversion to those of its transform. Returns 0 or the last error. */
int conversion_params(tma_client *client, const struct tma_conversion *conversion, struct msg_transform *ret);

/* Encodes a transform without its order and further destinations. Returns 0 or the last error. */
int transform_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret);

/* Returns INVALID_ARGUMENT if a transform that is part of another request has further destinations or an
 * order; `what` is what the message says of that order. t may be NULL. */
int transform_check_part(tma_client *client, const struct tma_transform *t, const char *what);

/* Returns the number of elements that the parameters declare, as frame_scan counts them, without the map
 * itself. */
uint64_t transform_elements(const struct msg_transform *t);

/* `fill` of a call whose `from` is a struct tma_transform or NULL. Encodes the call's order, too. */
params_fn transform_fill;

/* Decodes a struct msg_transform_done; arg is a struct tma_result. */
reply_fn on_transform_done;

/* Returns the call of a method that takes a transform. t may be NULL: fill then fails. */
struct call call_of_transform(enum method_id method, const struct tma_transform *t);

/* Copies the fields of a reply to the result. */
void result_of_transform(struct tma_result *ret, const struct msg_transform_done *done);

/* Sets the result's path, truncated to the size of that member. */
void result_set_path(struct tma_result *result, struct bytes path);

/* ---- blocks.c -------------------------------------------------------------------------------------- */

/* Returns the call of METHOD_gather or METHOD_scatter. blocks may be NULL: fill then fails. */
struct call call_of_blocks(enum method_id method, const struct tma_blocks *blocks);

/* Copies the fields of a reply to the result. */
void result_of_blocks(struct tma_result *ret, const struct msg_blocks_done *done);

/* ---- items.c --------------------------------------------------------------------------------------- */

/* Encodes an item. Returns 0 or the last error. */
int item_params(tma_client *client, const struct tma_item *item, struct submit_item *ret);

/* ---- ticket.c -------------------------------------------------------------------------------------- */

/* Runs a blocking call that moves data. The outcome becomes the last result. Returns its status. */
int move_call(tma_client *client, const struct call *call);

/* Starts a call that moves data, and sets *ret to its ticket. ret is NULL for TMA_COMPLETION_SIGNAL. Returns
 * 0 or the last error. */
int move_submit(tma_client *client, struct call *call, tma_ticket *ret);

/* Sets *ret_slot to the slot of the ticket's request. Returns 0, or NOT_FOUND if the ticket is not
 * outstanding. */
int ticket_slot(tma_client *client, tma_ticket ticket, uint32_t *ret_slot);

/* Makes the result of an ended request the last result, sets *ret to it (ret may be NULL), and frees the
 * slot. Returns the request's status. */
int ticket_end(tma_client *client, uint32_t slot, struct tma_result *ret);

/* Records in the last result that a request could not be sent. Returns status. client may be NULL. */
int move_unsent(tma_client *client, int status);

/* ---- order.c --------------------------------------------------------------------------------------- */

/* order_check_waiting checks the order of a call that waits for its reply. order_check_ticket checks that of
 * a call that returns a ticket in *ret; ret must be NULL for TMA_COMPLETION_SIGNAL, and only then. order may
 * be NULL. Both return 0 or INVALID_ARGUMENT. */
int order_check_waiting(tma_client *client, const struct tma_order *order);
int order_check_ticket(tma_client *client, const struct tma_order *order, const tma_ticket *ret);

/* Sets the fields of an order, which may be NULL, in the struct of message m at p. Returns 0 or a negative
 * status. */
#define order_fill(m, client, order_, p) order_params(client, order_, &(p)->order, &(p)->has, F(m, wait))

/* Implements order_fill. Adds to *has the bits F(order, field) of the fields that it sets, multiplied by
 * unit, which is the message's bit of `wait`. */
int order_params(tma_client *client, const struct tma_order *order, struct order_fields *ret, uint64_t *has,
                 uint64_t unit);

/* ---- plan.c ---------------------------------------------------------------------------------------- */

/* Sets *ret to the id of a plan, which must belong to the client and not be lost. Returns 0 or the last
 * error. */
int plan_param(tma_client *client, const tma_plan *plan, uint64_t *ret);

/* Encodes a run of a plan without its order. Returns 0 or the last error. */
int run_params(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
               struct msg_plan_run *ret);

/* Arguments of a run of a plan, which its call points to. */
struct plan_run {
	const tma_plan *plan;
	struct tma_place dst, src;
};

/* Returns the call of a run. run must live as long as the call. */
struct call call_of_run(const struct plan_run *run, const struct tma_order *order);

/* Prepares a plan on the current connection, for the first time or again. Returns 0 or the last error. */
int plan_prepare(tma_plan *plan, int64_t deadline);

void client_free_plans(tma_client *client);

/* ---- table.c --------------------------------------------------------------------------------------- */

/* Sets *ret to the id of the table that is passed as argument `name`. Returns 0, or the last error if it
 * belongs to another client or is lost. */
int table_param(tma_client *client, const tma_table *table, const char *name, uint64_t *ret);

/* Prepares a table on the current connection, for the first time or again. Returns 0 or the last error. */
int table_prepare(tma_table *table, int64_t deadline);

/* Removes a region from all tables, because it is about to be freed. */
void client_forget_region(tma_client *client, const tma_region *region);

void client_free_tables(tma_client *client);

/* ---- ring.c ---------------------------------------------------------------------------------------- */

/* Returns whether the connection has an open ring. Runs of a ring are not answered on the connection, so they
 * count like requests without a ticket. */
bool client_has_ring(const tma_client *client);

/* Frees every ring without telling the service. The rings' memory belongs to regions, which are freed
 * separately. */
void client_free_rings(tma_client *client);

/* ---- items.c --------------------------------------------------------------------------------------- */

/* Gives the items that are still pending the status of the request, which has ended with error (status 0: it
 * succeeded). Replaces *error by the error of the first item that was refused here, unless an earlier item
 * failed. */
void items_end(struct request *request, struct error *error);

/* Sets *ret to the first error in the reply to items that nobody waits for; such a reply comes only if some
 * failed. Returns 0, or PROTOCOL if it is no such reply. */
int items_silent_error(const struct rpc_reply *reply, struct error *ret);

/* ---- service.c ------------------------------------------------------------------------------------- */

/* Accepts a reply that carries no result. */
reply_fn on_true;

/* ---- vocabulary.c ---------------------------------------------------------------------------------- */

/* Converts a public number to its encoded form. Returns 0, or STATUS_INVALID_ARGUMENT if its kind is unknown;
 * there is no error message. */
int scalar_from_number(const struct tma_number *number, struct scalar *ret);

/* ---- memory.c -------------------------------------------------------------------------------------- */

/* Sets *ret to whether the service moves bytes on the CPU, so that "any" memory is host memory. Asks the
 * service once per connection. */
int client_is_cpu(tma_client *client, bool *ret);

/* Sets *ret to the maximum number of descriptors in a message, which the service and the kernel limit. Asks
 * the service once per connection. */
int client_message_fds(tma_client *client, int64_t deadline, size_t *ret);

/* A memfd that is mapped in this process, with all of its pages allocated. The caller of host_file_make owns
 * the descriptor and the mapping. */
struct host_file {
	int fd;
	void *data;
};
int host_file_make(tma_client *client, size_t size, struct host_file *ret);

/* Makes a host_file and makes it the region's memory. Returns 0 or the last error. */
int region_make(tma_region *region);

/* Allocates the pages that a registered file lacks in the region's range. Returns 0 or the last error. */
int region_fill(tma_region *region);

/* Widens [*start, *end) to whole pages of the file, which may be huge pages. */
struct stat;
void region_widen(const struct stat *st, uint64_t *start, uint64_t *end);

/* ---- region.c -------------------------------------------------------------------------------------- */

/* Creates a region that the service does not know of yet, and links it into the client's list. Returns 0 or
 * the last error. */
int region_new(tma_client *client, size_t size, tma_region **ret);

/* Unmaps and frees the region without telling the service. */
void region_free(tma_region *region);

/* Frees every region without telling the service. */
void client_free_regions(tma_client *client);

/* Sets *ret to the id of the region that errors call `name`, and seals the region if the service has asked
 * for it. Returns 0, or the last error if it belongs to another client or is lost. */
int region_param(tma_client *client, tma_region *region, const char *name, uint64_t *ret);

/* Checks the reserved members of a place, which errors call `name`. Returns 0 or the last error. */
int place_check(tma_client *client, const struct tma_place *place, const char *name);

/* Encodes a place, which errors call `name`. The place must have a region, except on "local:" and in
 * launches, where an address is allowed. */
int place_param(tma_client *client, struct tma_place place, const char *name, struct region_place *ret);

/* ---- region_seal.c --------------------------------------------------------------------------------- */

/* Records what the reply to a registration says about seals. */
void region_note_seals(tma_region *region, const struct msg_region_registered *done);

/* Seals a region that is SEALING_ASKED, provided that sealed memory can be moved. */
void region_seal(tma_region *region);

/* Returns whether the region is sealed, or may be sealed by the service at any time. */
bool region_is_sealed(const tma_region *region);

/* Records that others besides the service may access the memory. The library no longer seals it. */
void region_share(tma_region *region);

/* Records that a driver or a network card may pin the memory. If the service seals the memory all the same,
 * the memory cannot be moved. */
void region_pin(tma_region *region);

/* Records that others may have the file's descriptor. Once the file is sealed, the memory cannot be moved,
 * because they could not be told of the new file. */
void region_give_fd(tma_region *region);

/* Moves sealed memory to a file that a service can map for writing. Returns 0 or the last error. BUSY:
 * another process still uses the old file, so the call has to be repeated. If it sets is_lost, the region
 * cannot be used any more. */
int region_move(tma_region *region, int64_t deadline);

/* ---- region_create.c ------------------------------------------------------------------------------- */

/* Maps the region's memfd into this process and sets region->data. Returns 0 or the last error. */
int region_map_data(tma_region *region);

/* ---- region_map.c ---------------------------------------------------------------------------------- */

/* Undoes tma_region_map. Does nothing if the region is not mapped. */
void region_unmap(tma_region *region);

/* ---- region_register.c ----------------------------------------------------------------------------- */

/* Begins a registration: region_prepare checks the flags and creates a region of that kind.
 * region_check_flags only checks. Both return 0 or the last error. */
int region_prepare(tma_client *client, enum region_kind kind, uint64_t offset, size_t size, unsigned flags,
                   tma_region **ret);
int region_check_flags(tma_client *client, unsigned flags);

/* Decodes the reply to a registration; arg is the region. */
reply_fn on_region_registered;

/* Registers the region on the current connection, for the first time or again. Returns 0 or the last
 * error. */
int region_register(tma_region *region, int64_t deadline);

/* Ends a registration with region_register. Sets *ret to the region, or frees it on failure. */
int region_finish(tma_region *region, tma_region **ret);

/* ---- region_host.c --------------------------------------------------------------------------------- */

/* Returns whether the bytes at start, which lie in the region's range, are still those that were registered.
 * Asks the kernel only for regions of tma_region_from_host_ptr whose mapping the program may remove. */
bool region_is_mapped(const tma_region *region, uint64_t start, size_t size);

/* Makes memory of this process a region of a "local:" client. Returns 0 or the last error. */
int region_share_here(tma_client *client, enum region_kind kind, const void *ptr, size_t size, unsigned flags,
                      tma_region **ret);

/* ---- region_parts.c -------------------------------------------------------------------------------- */

/* Does what region_register does, for a region whose chunks the service is told of one by one. */
int region_register_parts(tma_region *region, int64_t deadline);

/* Returns the region's device for a message; an empty name if it is unknown. */
struct device_name region_device_name(const tma_region *region);

/* Stores the device's UUID from a reply; "": the reply has none. Returns 0, or PROTOCOL with err if it is too
 * long. */
int region_keep_device(tma_region *region, struct bytes uuid, struct error *err);

/* ---- region_device.c ------------------------------------------------------------------------------- */

/* Enters the region, whose first byte is at address start, into the range set that tma_region_find searches.
 * On failure it releases the region and returns the last error. */
int region_keep_range(tma_region *region, uint64_t start);

/* region_add_range does the same, but returns false and leaves the region alone if out of memory.
 * region_forget_range removes the region from its range set. */
bool region_add_range(tma_region *region, uint64_t start);
void region_forget_range(tma_region *region);

/* ---- document.c ------------------------------------------------------------------------------------ */

/* Converts a msgpack_object into a tree that is a single allocation. Returns NULL with err on failure. */
tma_document *document_new(const void *object, struct error *err);

/* For json.c. document_bytes returns the bytes of a text, which may contain NULs. document_uint returns
 * whether an int exceeds INT64_MAX and, if so, sets *ret to its value. */
const char *document_bytes(const tma_document *node, size_t *ret_len);
bool document_uint(const tma_document *node, uint64_t *ret);

#endif
