/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of libtmaclient share: the connection, its requests under way, its regions.
 *
 * A request lives in a slot that is reused, so that calls allocate nothing once the table has grown. Its
 * msgid holds the slot and part of the slot's generation; a ticket holds the slot and all of it. One that is
 * answered only when it fails holds no slot once it is queued: its msgid has MSGID_SILENT where others have a
 * slot, and a number of its own. Tickets whose request has ended are a list through their slots, in the order
 * in which they ended, until somebody takes them. The connection ends at one place, client_break, which ends
 * every request too; after that sock is -1 and `ended` says why. on_reply runs while the reply's bytes are in
 * `in` and must not send.
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

#define CLIENT_MAX_FDS   16    /* that arrived and no reply has taken yet */
#define CLIENT_MAX_SLOTS 65535 /* what a msgid's half can name, but for the next */
#define MSGID_SILENT     0xffff
#define NO_SLOT          UINT32_MAX
#define NO_WORDS         UINT32_MAX
#define CLIENT_RETRY_MS  5000 /* tma_set_reconnect */

enum region_life {
	REGION_ASKED, /* the service has not answered yet */
	REGION_KNOWN, /* to the service, by id, while region->connection is the client's */
	REGION_GONE,  /* the connection could not have it: see error */
};

/* The file that a mapping shows is known by what /proc/self/maps tells of it. */
struct file_identity {
	unsigned major; /* of its device */
	unsigned minor;
	uint64_t inode;
};

/* This says whether a region's file may be sealed. Any thread may ask for the descriptor, and so change it.
 */
enum sealing {
	SEALING_NEVER,   /* the file is not the library's, or others may have it, or its address */
	SEALING_ALLOWED, /* the library has made the file, and nobody else knows of it but the service */
	SEALING_ASKED,   /* the same, and the service asks for it: the next request that names it does it */
	SEALING_DONE,
	SEALING_GIVEN, /* it is sealed, or will be, and others have got its descriptor or address */
};

/* Regions, tables and plans: what a later connection is told again. */
struct tma_region {
	tma_client *client;
	struct tma_region *next;
	enum region_life life;
	uint64_t id;
	uint32_t connection; /* that id is of */
	size_t size;
	uint64_t offset;
	uint64_t allocation; /* cuda_fd, cuda_pool: bytes of all of it; cuda_fd: 0: it ends with the region */
	bool writable;
	bool is_service_made; /* device memory */
	enum region_kind kind;
	int fd; /* memfd, cuda_fd, cuda_pool (the pool): owned, unless it is that of the only chunk; else -1
	         */
	size_t n_chunks;       /* of device memory; 0: they are not known */
	struct chunk **chunks; /* in the order of addresses; offset is in all of them */
	bool has_parts;        /* the service is told of its chunks, even if there is one */
	uint32_t handles;      /* given to the program and not released, beyond the first */
	uint64_t address;      /* of its first byte in this process, in a range set of the client's; else 0 */
	uint64_t here;         /* the launcher's id of the memory at here_address; 0: it has none */
	uint64_t here_address;
	struct file_identity file; /* The inode is 0 unless tma_region_from_host_ptr made the region. */
	const atomic_bool
	    *kept; /* It is true while the program keeps that memory mapped. NULL: it may be unmapped. */
	uint8_t handle[DEVICE_HANDLE_BYTES]; /* cuda_ipc; cuda_pool: the pointer exported from it */
	char device[DEVICE_UUID_TEXT]; /* or its number, until the service has said which; "": not told */
	_Atomic enum sealing sealing;
	atomic_bool must_seal; /* The file is the library's, and the service seals it before it uses it. */
	bool is_lost;          /* for good: it could not be moved */
	bool is_replaceable;   /* Its owner makes another one if it is lost, and no call reports the loss. */
	uint64_t session;      /* the service's id of the connection that asked for the seal */
	int64_t asked_ms;      /* when it did (clock_ms) */
	int left_fd; /* the file that it was moved from, until that is known to be its alone; else -1 */
	uint64_t left_hash;            /* of what was copied from it */
	void *data;                    /* mapped here; or NULL */
	struct device_mapping mapping; /* what tma_region_map made: of device memory; of a file, without a
	                                  device; size 0: nothing */
	struct error error;
};

struct table_place {
	tma_region *region; /* NULL: it was released, or offset is an address ("local:") */
	uint64_t offset;
};

struct tma_table {
	tma_client *client;
	struct tma_table *next;
	enum region_life life;
	uint64_t id;
	uint32_t connection; /* that id is of */
	size_t n;
	struct table_place *places;
	uint64_t *words; /* room for them as they travel, behind places */
	struct error error;
};

struct tma_plan {
	tma_client *client;
	struct tma_plan *next;
	enum region_life life;
	uint64_t id;
	uint32_t connection; /* that id is of */
	uint64_t here;       /* the launcher's id of it; 0: it has none */
	struct msg_transform params;
	struct error error;
};

/* Items of a call. A message has as many of them as it holds, from the first on. */
struct item_cursor {
	struct tma_item *items;
	size_t n;
	size_t first;   /* of them in the caller's array: those before went with other messages */
	bool is_whole;  /* one message has to hold all */
	bool is_later;  /* a message went before: no wait */
	bool is_failed; /* some before did not go well: no signal */
	size_t taken;   /* by the last message made, those too that it refused */
	size_t sent;    /* with it */
};

enum answer { ANSWER_UNKNOWN, ANSWER_YES, ANSWER_NO };

struct call;
struct request;

/* Fills what the caller waits for from a result. On failure sets err; STATUS_PROTOCOL ends the connection. */
typedef int reply_fn(tma_client *client, const struct rpc_reply *reply, const struct method *method,
                     void *arg, struct error *err);

/* Makes a request's parameters, which name regions, tables and plans by the ids that they have on the
 * connection there is now: 0, or the last error. */
typedef int params_fn(tma_client *client, const struct call *call, struct request *request,
                      union params *ret);

struct call {
	enum method_id method;
	const void *params;         /* the method's struct; NULL when it has no fields, or: */
	params_fn *fill;            /* makes it */
	const void *from;           /* for fill */
	struct item_cursor *cursor; /* the same, of items */
	const struct tma_order *order;
	int fd;          /* to send along; -1: none */
	bool brings_fds; /* fill says which to send along (client->out_fds) */
	bool is_submit;  /* does not wait: it may be kept unsent for a batch, and tries a lost connection once
	                  */
	bool has_ticket;
	reply_fn *on_reply;
	void *arg; /* for a blocking call it may be on the caller's stack */
};

/* A client of a service makes requests that libtma-local is to launch by the ids that the launcher has given
 * to regions and plans. */
enum launching {
	LAUNCHING_NOT,
	LAUNCHING_HERE,
	LAUNCHING_ELSEWHERE, /* Only the service can do it. */
};

enum request_state { REQUEST_FREE, REQUEST_WAITING, REQUEST_DONE };

struct request {
	enum request_state state;
	uint32_t generation;
	uint64_t start;  /* in the bytes that the client has queued, ever */
	bool is_unsent;  /* it ended with its connection, which took none of its bytes */
	bool may_repeat; /* it ended with its connection, and twice is the same as once */
	bool has_signal; /* twice would be another thing than once */
	bool is_queued;  /* answered as such: its end comes as a notification */
	enum completion completion;
	bool has_ticket;
	uint32_t next;    /* slot; while FREE: the next free one; of a ticket that is DONE: the one that ended
	                     after it, or NO_SLOT */
	uint32_t before;  /* slot; of a ticket that is DONE: the one that ended before it, or NO_SLOT */
	void *user;       /* of its order */
	bool is_enqueued; /* Nobody takes it: stream_order_on_end notes its end, and frees it. */
	uint32_t words;   /* Then: which words it closes, or NO_WORDS. */
	const struct method *method;
	reply_fn *on_reply;
	void *arg;                /* NULL: the request's own result */
	struct tma_item *items;   /* the caller's; NULL: it is not of items */
	size_t n_items;           /* that the message is of */
	uint32_t n_sent;          /* of them: the others were refused here */
	bool is_stopped;          /* all that were sent have one status, the request's */
	size_t first;             /* of them in the caller's array */
	size_t refused;           /* the first of them that was not sent, while error has a status */
	struct tma_result result; /* of what moves something */
	struct error error;       /* status 0: it went well */
};

struct tma_client {
	int sock;            /* -1: not connected */
	uint32_t connection; /* counts them */
	uint32_t reconnects; /* since tma_connect */
	int retry_ms;        /* tma_set_reconnect */
	bool is_given_up;    /* the last try to connect again failed */
	bool is_incomplete;  /* the connection has not been told of every region, table and plan */
	bool is_bound;       /* what is asked now is of this connection alone: none is made anew for it */
	bool is_device_lost; /* the service has said so, and ends the connection */
	bool is_batching;    /* tma_set_batching */
	int timeout_ms;
	int (*interrupted)(void *arg); /* tma_set_interrupt; NULL: never */
	void *interrupted_arg;
	bool is_interrupted; /* the last wait was */
	bool has_server_uid;
	unsigned server_uid;
	char path[108];
	struct error error; /* tma_last_error */
	struct error ended; /* why sock is -1; status 0: it never was connected */

	const struct local_door *door; /* of the library that answers instead of a service, and */
	struct local_session *local;   /* its session; NULL: there is a service, or no connection */
	pid_t local_pid;               /* of the process that made the session */
	bool has_late;                 /* The session has requests that wait, or that it has not told of. */
	struct local_session
	    *launcher;        /* launches for a client of a service; NULL: it has launched nothing */
	bool has_no_launcher; /* libtma-local cannot be loaded here */
	enum launching launching;

	struct stream_order *streams; /* that of the last connection that had one, and those before it */
	struct error stream_error; /* of requests in streams, the first that tma_enqueued has not told of */
	uint64_t stream_beyond;    /* of them, likewise, entries of lists that name no block */

	struct buffer in;
	struct buffer out;
	uint64_t sent; /* bytes that sockets took, ever */
	size_t
	    n_out_fds; /* the caller's; they go with the first byte of out, which then holds nothing else */
	int out_fds[SOCKET_MAX_FDS];
	struct frame_scan scan;
	struct rpc_decoder *decoder;
	int fds[CLIENT_MAX_FDS]; /* in the order they came */
	size_t n_fds;

	struct request *requests;
	uint32_t n_requests;
	uint32_t first_free; /* slot; n_requests: none */
	uint32_t n_tickets;  /* not taken */
	uint32_t first_done; /* slot: of the tickets whose request has ended; NO_SLOT: none */
	uint32_t last_done;
	uint32_t n_creating;      /* region_create under way: replies that take an fd */
	int n_ended;              /* requests ended since tma_dispatch began */
	uint32_t n_ended_tickets; /* ever; it wraps around */

	uint64_t n_silent;   /* requests of this connection that are answered only when they fail */
	struct error silent; /* tma_take_error */

	struct submit_item *items;      /* room for those of a message; NULL: none was made yet */
	struct msg_tensor *further_dst; /* likewise, of the largest that there was */
	size_t further_dst_room;
	struct msg_slice *slices; /* those of the last reshard; NULL: there was none */
	uint64_t *places; /* as they travel, those of the last gather or scatter with some; NULL: likewise */
	struct device_driver *driver; /* NULL: not looked for yet */

	uint32_t engine_of;   /* the connection that is_cpu is of; 0: none */
	bool is_cpu;          /* the service's engine */
	int64_t message_fds;  /* the service's limit, likewise */
	enum answer can_move; /* what is sealed (region_seal.c) */

	struct tma_region *regions;
	struct tma_table *tables;
	struct range_set writable;  /* regions whose memory has addresses here, by these */
	struct range_set read_only; /* likewise; those that transforms may only read */
	struct range_set chunks;    /* those of device memory that are current */
	int maps_fd; /* It is of /proc/self/maps once host memory was registered by its pointer, else -1. */
	struct tma_plan *plans;
	struct tma_ring *rings;
	struct tma_result last_result;
};

/* ---- client.c -------------------------------------------------------------------------------------- */

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Members of later versions of a struct: INVALID_ARGUMENT unless all of them are zero. */
int reserved_check(tma_client *client, const uint64_t *reserved, size_t n, const char *name);

/* The same without a client. */
int reserved_find(const uint64_t *reserved, size_t n, const char *name, struct error *err);

/* Checks a pointer to what a call writes: INVALID_ARGUMENT if it is NULL. what names that in words. */
int pointer_check(const void *pointer, const char *name, const char *what, struct error *err);

/* Checks the argument ret likewise, and the client itself, without which there is no message. */
int client_check_ret(tma_client *client, const void *ret, const char *what);

/* The CUDA driver, looked for once: client->driver. */
int client_find_driver(tma_client *client);

/* Sets the client's last error and returns status. */
int client_fail(tma_client *client, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* NO_MEMORY because a descriptor could not be had, with a message that begins with `what`, the thing that
 * needs it, and that names the limit which was reached; error is the errno. */
int client_fail_descriptor(tma_client *client, const char *what, int error);

/* 0 when connected; else DISCONNECTED, and the last error says since when. */
int client_check(tma_client *client);

/* 0 when connected, or to be connected again by the next request; else as client_check. */
int client_check_usable(tma_client *client);

/* Connects to client->path; waits until the deadline while the service's queue is full (NO_REPLY). */
int client_open(tma_client *client, int64_t deadline);

/* ---- reconnect.c ----------------------------------------------------------------------------------- */

enum patience {
	PATIENCE_NONE, /* of a submit: what is not possible now is the next call's to do */
	PATIENCE_FULL, /* as long as tma_set_reconnect says */
};

/* Before a request: connects again when the connection is lost. 0 when there is one that has every region,
 * table and plan; else the error, which may be that of one of these that was lost: then there is one, too. */
int client_ready(tma_client *client, int64_t deadline, enum patience patience);

/* Regions, tables and plans that are GONE, but may be had again, are to be asked for. */
void client_seek_lost(tma_client *client);

/* After client_open: registers the regions of connections before this one, and prepares their tables and
 * plans. */
int client_rejoin(tma_client *client, int64_t deadline, enum patience patience);

/* ---- local.c --------------------------------------------------------------------------------------- */

/* Stands for a socket's path; the client then moves memory of its own process without a service. */
#define LOCAL_PATH "local:"

bool local_is_path(const char *path);

/* Loads the library and opens a session with it: client->local, and client->sock. Returns 0, or the last
 * error. local_close does nothing if there is none. */
int local_open(tma_client *client);
void local_close(tma_client *client);

/* Loads the library: client->door. Returns 0, or UNSUPPORTED with err. */
int local_find_door(tma_client *client, struct error *err);

/* Makes the region's bytes at an address of this process known to the session. */
int local_register(tma_region *region, const void *address);

/* Returns whether the client has no service, and nothing that comes before the next request. */
bool local_is_idle(const tma_client *client);

/* Runs a transform to one destination without the bytes of a request; its result is the last result then. The
 * client must be idle, and the transform wait for no point. */
int local_transform(tma_client *client, const struct tma_transform *t);

/* Has the session take all requests that wait to be sent, and appends its replies to what has come. Returns
 * false if that has ended the connection. */
bool local_exchange(tma_client *client);

/* Appends the replies to late requests that have ended to what has come. Returns false as local_exchange
 * does.
 */
bool local_receive(tma_client *client);

/* Waits until one has ended, and returns true; or false after so many milliseconds (-1: any number), or when
 * a signal handler has run. */
bool local_await(tma_client *client, int timeout_ms);

/* Takes back a late request that has not started: true, and there is no reply. Otherwise it will end. */
bool local_take_back(tma_client *client, uint32_t slot);

/* Makes the client's descriptor readable, since so many tickets have ended, or what nobody waits for has
 * failed; and takes that back, returning how many have ended since the last time. */
void local_tell(tma_client *client, int n_ended);
int local_take_ended(tma_client *client);

/* A late request has ended that nobody but this call has waited for. */
void local_untell(tma_client *client);

/* ---- launch.c -------------------------------------------------------------------------------------- */

/* Only the service can do the request. It has not been launched, and no error is set. */
#define LAUNCH_ELSEWHERE 1

/* Begins a launch into a stream. Returns 0, LAUNCH_ELSEWHERE or the last error. After 0 the caller makes the
 * request, has launch_run launch it unless that has failed, and passes the result of these to launch_end,
 * which returns it, or LAUNCH_ELSEWHERE in its place. */
int launch_begin(tma_client *client, void *stream);
int launch_run(tma_client *client, enum method_id method, const union params *params,
               union local_result *ret);
int launch_end(tma_client *client, int rc);

/* Sets *ret to what has been counted since the last time, as the door's stream_counts. */
int launch_counts(tma_client *client, void *stream, struct local_counts *ret);

/* The launcher's ids of a region and a plan, which it is told of when it needs them. */
int launch_region(tma_client *client, tma_region *region, uint64_t *ret);
int launch_plan(tma_client *client, tma_plan *plan, uint64_t *ret);

/* The region, or the plan, is on its way to be freed. */
void launch_forget_region(const tma_region *region);
void launch_forget_plan(const tma_plan *plan);

/* Closes the launcher, if there is one. */
void launch_close(tma_client *client);

/* Marks what is being made as a request that only the service can do. Returns UNSUPPORTED, and sets no error.
 */
int launch_elsewhere(tma_client *client);

/* ---- stream_order.c -------------------------------------------------------------------------------- */

/* Has the service do a request in the order of a stream: when the stream has come to it, and before the
 * stream goes on. The host waits for neither. An order's signal is passed on; it has no wait. Returns 0 when
 * the request is sent, and the stream waits for it; or the last error. How it ends is told by
 * stream_order_wait. */
int stream_order_enqueue(tma_client *client, const struct call *call, void *stream);

/* Waits for the stream, and for the results of what it has passed. Returns the first error of an enqueued
 * request since the last time, or why it cannot wait, as the last error; or 0. */
int stream_order_wait(tma_client *client, void *stream);

/* A request that was enqueued has ended. */
void stream_order_on_end(tma_client *client, uint32_t slot);

/* The connection ends: streams that wait for its requests go on. */
void stream_order_stop(tma_client *client);

/* Frees what no stream still has to look at. The connection has ended. */
void stream_order_free(tma_client *client);

/* ---- io.c ------------------------------------------------------------------------------------------ */

/* Closes the connection: every request under way ends with this error. */
void client_break(tma_client *client, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The connection's buffers and fds, empty again. */
void client_reset(tma_client *client);

/* When the blocking call that starts now has to end, milliseconds of the monotonic clock; -1: never. */
int64_t client_deadline(const tma_client *client);

/* Milliseconds until then; -1: no end. */
int client_left_ms(int64_t deadline);

/* Sends what the socket takes. Never blocks. */
void client_flush(tma_client *client);

/* Sends what the socket takes and reads what has arrived. Never blocks. */
void client_pump(tma_client *client);

/* Waits until something can be sent or read, then does it. False when there is no time left or the wait was
 * interrupted: then, too, what had come is read. */
bool client_poll(tma_client *client, int64_t deadline);

/* Waits for a time. False: it was interrupted. */
bool client_pause(tma_client *client, int ms);

/* How long to wait for, of left_ms (-1: no end), until the program is to be asked whether it has enough of
 * it. */
int client_slice_ms(const tma_client *client, int left_ms);

/* Asks the program: client->is_interrupted. */
bool client_ask_interrupted(tma_client *client);

/* Sends and reads until the request in this slot is no longer under way, or at most keep bytes wait to be
 * sent. what names the call in the error of a timeout. */
void client_wait_reply(tma_client *client, uint32_t slot, int64_t deadline);
void client_wait_sent(tma_client *client, size_t keep, int64_t deadline, const char *what);

/* The next fd that came with replies, the caller's to close; -1: none. */
int client_take_fd(tma_client *client);

/* ---- call.c ---------------------------------------------------------------------------------------- */

/* Sends the request and waits for its reply: 0, or the error, which is the last error then. */
int client_call(tma_client *client, const struct call *call);
int client_call_until(tma_client *client, const struct call *call, int64_t deadline);

/* Starts the request and waits for its end, on a second connection when it may be repeated there. */
int request_run(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot);

/* Queues the request and, unless it is kept for a batch, sends what the socket takes, on a new connection
 * when it finds the old one lost. One that brings an fd is alone in the queue. */
int request_start(tma_client *client, const struct call *call, int64_t deadline, uint32_t *ret_slot);

/* The same for a request of COMPLETION_SIGNAL: it has no slot afterwards. */
int request_post(tma_client *client, const struct call *call, int64_t deadline);

/* An error of such a request, the first of them to be kept. */
void client_keep_silent(tma_client *client, const struct error *error);

/* Gives the slot of a request that has ended back. */
void request_free(tma_client *client, uint32_t slot);

/* A result on its way to the request that asked, for io.c. */
void request_end(tma_client *client, uint32_t slot, const struct error *error);

static inline uint32_t request_msgid(const struct request *request, uint32_t slot)
{
	return (request->generation & 0xffff) << 16 | slot;
}

/* The request a reply's msgid names, its slot in *ret_slot; NULL when none such is under way. */
struct request *request_find(tma_client *client, uint32_t msgid, uint32_t *ret_slot);

/* ---- transform.c ----------------------------------------------------------------------------------- */

/* A tensor as it travels; name is what errors call it. */
int tensor_params(tma_client *client, const struct tma_tensor *t, const char *name, struct msg_tensor *ret);

/* What its containers declare, as frame_scan counts. */
uint64_t tensor_elements(const struct msg_tensor *tensor);

/* Adds a conversion to the fields of its transform. */
int conversion_params(tma_client *client, const struct tma_conversion *conversion, struct msg_transform *ret);

/* A transform as it travels, without its order; INVALID_ARGUMENT when it cannot. */
int transform_params(tma_client *client, const struct tma_transform *t, struct msg_transform *ret);

/* INVALID_ARGUMENT when a transform that is no request of its own has further destinations, or an order, of
 * which `what` is said. */
int transform_check_part(tma_client *client, const struct tma_transform *t, const char *what);

/* What its parameters are in a message, as frame_scan counts them: without the map itself. */
uint64_t transform_elements(const struct msg_transform *t);

/* fill of a call whose from is a struct tma_transform, or NULL. It sends the call's order. */
params_fn transform_fill;

/* Of a reply that is a struct msg_transform_done. */
reply_fn on_transform_done;

/* Returns the call of one of the methods that take a transform. t may be NULL. */
struct call call_of_transform(enum method_id method, const struct tma_transform *t);

/* Copies the fields of the reply to the result. */
void result_of_transform(struct tma_result *ret, const struct msg_transform_done *done);

/* A path that is too long is cut. */
void result_set_path(struct tma_result *result, struct bytes path);

/* ---- blocks.c -------------------------------------------------------------------------------------- */

/* Returns the call of METHOD_gather or METHOD_scatter. blocks may be NULL. */
struct call call_of_blocks(enum method_id method, const struct tma_blocks *blocks);

/* Copies the fields of the reply to the result. */
void result_of_blocks(struct tma_result *ret, const struct msg_blocks_done *done);

/* ---- items.c --------------------------------------------------------------------------------------- */

/* Encodes an item for a request. Returns 0, or INVALID_ARGUMENT. */
int item_params(tma_client *client, const struct tma_item *item, struct submit_item *ret);

/* ---- ticket.c -------------------------------------------------------------------------------------- */

/* A call that moves something, at once: its result is the last result then. */
int move_call(tma_client *client, const struct call *call);

/* The same by ticket. */
int move_submit(tma_client *client, struct call *call, tma_ticket *ret);

/* The slot of a request that a ticket is of; NOT_FOUND when it is of none. */
int ticket_slot(tma_client *client, tma_ticket ticket, uint32_t *ret_slot);

/* The request's result becomes the last one, its slot free. */
int ticket_end(tma_client *client, uint32_t slot, struct tma_result *ret);

/* Nothing was made of the request: the last result says so. Returns status. */
int move_unsent(tma_client *client, int status);

/* ---- order.c --------------------------------------------------------------------------------------- */

/* order_check_waiting checks the order of a call that waits for its reply, order_check_ticket that of a call
 * that returns a ticket in *ret, which must be NULL for TMA_COMPLETION_SIGNAL alone. order may be NULL. Both
 * return 0 or INVALID_ARGUMENT. */
int order_check_waiting(tma_client *client, const struct tma_order *order);
int order_check_ticket(tma_client *client, const struct tma_order *order, const tma_ticket *ret);

/* Sets the fields of an order, which may be NULL, in the struct of message m at p. Returns 0 or a negative
 * status. */
#define order_fill(m, client, order_, p) order_params(client, order_, &(p)->order, &(p)->has, F(m, wait))

/* order_fill calls this, which adds to *has the bits F(order, field) of the fields that it sets, multiplied
 * by unit, the message's bit of `wait`. */
int order_params(tma_client *client, const struct tma_order *order, struct order_fields *ret, uint64_t *has,
                 uint64_t unit);

/* ---- plan.c ---------------------------------------------------------------------------------------- */

/* A plan of the client that can be used, as it travels. */
int plan_param(tma_client *client, const tma_plan *plan, uint64_t *ret);

/* A run of a plan as it travels, without its order. */
int run_params(tma_client *client, const tma_plan *plan, struct tma_place dst, struct tma_place src,
               struct msg_plan_run *ret);

/* A run of a plan, which its call points to until it is sent. */
struct plan_run {
	const tma_plan *plan;
	struct tma_place dst, src;
};

/* Returns the call of a run, which must live as long as the call. */
struct call call_of_run(const struct plan_run *run, const struct tma_order *order);

/* Prepares a plan, again or for the first time. */
int plan_prepare(tma_plan *plan, int64_t deadline);

void client_free_plans(tma_client *client);

/* ---- table.c --------------------------------------------------------------------------------------- */

/* The id of the table that an argument, name, is: INVALID_ARGUMENT when it is of another client. */
int table_param(tma_client *client, const tma_table *table, const char *name, uint64_t *ret);

/* Prepares a table, again or for the first time. */
int table_prepare(tma_table *table, int64_t deadline);

/* The region is on its way to be freed. */
void client_forget_region(tma_client *client, const tma_region *region);

void client_free_tables(tma_client *client);

/* ---- ring.c ---------------------------------------------------------------------------------------- */

/* Returns whether the connection has a ring that is open. Its runs are not answered on the connection, which
 * makes them like requests without a ticket. */
bool client_has_ring(const tma_client *client);

/* Frees every ring, without a word to the service; their memory is a region. */
void client_free_rings(tma_client *client);

/* ---- items.c --------------------------------------------------------------------------------------- */

/* The request has ended with error, or 0: so have its items that were under way. What the request then ends
 * with is the first item's. */
void items_end(struct request *request, struct error *error);

/* The first error in the reply to items that nobody waits for, which comes when some did not go well;
 * PROTOCOL when it is no such reply. */
int items_silent_error(const struct rpc_reply *reply, struct error *ret);

/* ---- service.c ------------------------------------------------------------------------------------- */

/* Of a reply that says no more than that it went well. */
reply_fn on_true;

/* ---- vocabulary.c ---------------------------------------------------------------------------------- */

/* The number as it travels; STATUS_INVALID_ARGUMENT when its kind is none. */
int scalar_from_number(const struct tma_number *number, struct scalar *ret);

/* ---- memory.c -------------------------------------------------------------------------------------- */

/* Whether the service moves bytes on the CPU, where memory is host memory: asked once a connection. */
int client_is_cpu(tma_client *client, bool *ret);

/* How many descriptors a message may bring: what the service and the kernel allow. Asked likewise. */
int client_message_fds(tma_client *client, int64_t deadline, size_t *ret);

/* A memfd, mapped here, whose pages are there. */
struct host_file {
	int fd;
	void *data;
};
int host_file_make(tma_client *client, size_t size, struct host_file *ret);

/* Makes such a file, and makes it the region's memory. */
int region_make(tma_region *region);

/* Makes the pages that a registered file lacks in the region's range. */
int region_fill(tma_region *region);

/* Widens a range of a file to whole pages, as the file maps. */
struct stat;
void region_widen(const struct stat *st, uint64_t *start, uint64_t *end);

/* ---- region.c -------------------------------------------------------------------------------------- */

/* A region of the client's, of which the service does not know yet. */
int region_new(tma_client *client, size_t size, tma_region **ret);

/* Unmaps and frees the region, without a word to the service. */
void region_free(tma_region *region);

/* region_free of every region. */
void client_free_regions(tma_client *client);

/* The id of the region that an argument, name, is: INVALID_ARGUMENT when it is of another client. The region
 * is sealed, if it is to be. */
int region_param(tma_client *client, tma_region *region, const char *name, uint64_t *ret);

/* The reserved members of a place, which is an argument of that name. */
int place_check(tma_client *client, const struct tma_place *place, const char *name);

/* The same of a place, which has to have a region. */
int place_param(tma_client *client, struct tma_place place, const char *name, struct region_place *ret);

/* ---- region_seal.c --------------------------------------------------------------------------------- */

/* Keeps what the reply to a registration says about seals. */
void region_note_seals(tma_region *region, const struct msg_region_registered *done);

/* Seals a region that is to be sealed, where what is sealed can be moved. */
void region_seal(tma_region *region);

/* Tells whether the region is sealed, or may be sealed by the service at any time. */
bool region_is_sealed(const tma_region *region);

/* Others than the service may get at the memory: the library does not seal it any more. */
void region_share(tma_region *region);

/* Notes that a driver or a network card may pin the memory as well. If the service seals it all the same, it
 * cannot move. */
void region_pin(tma_region *region);

/* Notes that others may have the file's descriptor. They could not be told of the file that the memory moves
 * to once it is sealed. */
void region_give_fd(tma_region *region);

/* Moves what is sealed to a file that a service can map. BUSY: somebody else still uses the old file, and the
 * call is to be repeated. With is_lost the region has ended. */
int region_move(tma_region *region, int64_t deadline);

/* ---- region_create.c ------------------------------------------------------------------------------- */

/* Maps the region's memfd here. */
int region_map_data(tma_region *region);

/* ---- region_map.c ---------------------------------------------------------------------------------- */

/* Ends what tma_region_map made. */
void region_unmap(tma_region *region);

/* ---- region_register.c ----------------------------------------------------------------------------- */

/* What a registration begins with: checks, and a region of that kind. */
int region_prepare(tma_client *client, enum region_kind kind, uint64_t offset, size_t size, unsigned flags,
                   tma_region **ret);
int region_check_flags(tma_client *client, unsigned flags);

/* Of a reply to a registration; arg is the region. */
reply_fn on_region_registered;

/* Tells the service of a region's memory, again or for the first time. */
int region_register(tma_region *region, int64_t deadline);

/* The end of every registration: region_register; the region is freed when that fails. */
int region_finish(tma_region *region, tma_region **ret);

/* ---- region_host.c --------------------------------------------------------------------------------- */

/* Tells whether the bytes at start, which lie in the region's range, still are the file that was registered
 * there. The kernel is asked only about regions of tma_region_from_host_ptr that are not kept. */
bool region_is_mapped(const tma_region *region, uint64_t start, size_t size);

/* Makes memory of this process a region of a client without a service. */
int region_share_here(tma_client *client, enum region_kind kind, const void *ptr, size_t size, unsigned flags,
                      tma_region **ret);

/* ---- region_parts.c -------------------------------------------------------------------------------- */

/* As region_register, by the region's chunks. */
int region_register_parts(tma_region *region, int64_t deadline);

/* The device that the service is told of; of one that it is not told of, nothing. */
struct device_name region_device_name(const tma_region *region);

/* What the service says of it; "": nothing. PROTOCOL. */
int region_keep_device(tma_region *region, struct bytes uuid, struct error *err);

/* ---- region_device.c ------------------------------------------------------------------------------- */

/* Has tma_region_find find the region, whose first byte is at start here; on failure it is released. */
int region_keep_range(tma_region *region, uint64_t start);

/* The same; false, and the region as it was, when out of memory. */
bool region_add_range(tma_region *region, uint64_t start);
void region_forget_range(tma_region *region);

/* ---- document.c ------------------------------------------------------------------------------------ */

/* The tree of a reply's msgpack_object, in one allocation; NULL with err. */
tma_document *document_new(const void *object, struct error *err);

/* A text's bytes, which may hold NULs, and whether an int is to be read as unsigned; for json.c. */
const char *document_bytes(const tma_document *node, size_t *ret_len);
bool document_uint(const tma_document *node, uint64_t *ret);

#endif
