/* SPDX-License-Identifier: Apache-2.0 */
/* The files of libtma-local share this: a session, where a request's tensors lie, and the methods.
 *
 * A session runs requests on the thread that calls it. Once a request has to wait for a point, it has another
 * session behind it, whose own thread runs that one and those that come after it (late.c). Both name the same
 * objects, and nothing else is common to them.
 */
#ifndef CLIENT_LOCAL_SESSION_H
#define CLIENT_LOCAL_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "door.h"
#include "engine.h"
#include "kernels/transform/blocks.h"
#include "kernels/transform/layer_table.h"
#include "kernels/transform/request.h"
#include "proto/clock.h"
#include "proto/wire/rpc.h"

struct local_region {
	uint64_t start; /* address */
	uint64_t size;  /* 0: there is no region of this id */
	bool writable;
};

struct device_counts;
struct local_items;
struct local_late;
struct local_plan;

/* Objects of a session by their ids: object i has the id i + 1, and is NULL if there is none of that id. */
struct local_ids {
	void **objects;
	uint64_t n;
};

/* Tables tell where the layers of one side of a request lie. Those of a session live until they are released.
 */
struct local_table {
	struct layer_table layers;
	bool has_addresses; /* Some entries have no region, so that nothing says where their memory ends. */
	atomic_uint_least64_t released; /* the id of a region of the table that is gone; 0: there is none */
	/* an engine whose device reaches all entries; NULL: none is known */
	_Atomic(const struct engine *) reached;
};

struct local_pin;
struct local_points;

/* Requests name these objects. An object that is released stays until the requests before its release have
 * ended. */
struct local_objects {
	atomic_bool is_shared;        /* two sessions share these: local_lock guards what follows */
	struct local_region *regions; /* region i has the id i + 1 */
	uint64_t n_regions;
	uint64_t first_free;     /* no region before it is free */
	struct local_ids plans;  /* struct local_plan */
	struct local_ids tables; /* struct local_table */
	uint64_t tables_made;
	struct local_pin *pins; /* the words of timelines that are pinned */
	uint64_t forks;         /* local_forks when the session was opened: a driver is the parent's alone */
};

/* A session counts these. Only its own thread adds, and any thread may read. Each name is the first of as
 * many counters as the comment beside it says. */
enum local_usage_of {
	USAGE_REQUESTS,                               /* by method */
	USAGE_ERRORS = USAGE_REQUESTS + METHOD_COUNT, /* by -status - 1 */
	USAGE_BYTES = USAGE_ERRORS + STATUS_COUNT,    /* read plus written, by family */
	USAGE_NS = USAGE_BYTES + FAMILY_COUNT,        /* the engines' own time, by family */
	USAGE_LATENCY = USAGE_NS + FAMILY_COUNT,      /* by bar */
	USAGE_REGIONS = USAGE_LATENCY + LATENCY_BARS, /* From here on, counts can fall again. */
	USAGE_MAPPED_BYTES,
	USAGE_PLANS,
	USAGE_TABLES,
	USAGE_COUNT
};

struct local_usage {
	atomic_uint_least64_t of[USAGE_COUNT];
	struct local_usage *next;
};

struct local_stats;

struct local_session {
	struct local_stream stream;
	struct rpc_decoder *decoder;
	struct rpc_request request;
	const char *methods[METHOD_COUNT]; /* names of those that need no service */
	uint32_t n_methods;
	struct engine_explanation explained;
	struct msg_rule rules[FAMILY_MOST_RULES];
	struct blocks_seen *seen;      /* scratch memory for lists; NULL: not needed yet */
	struct local_objects *objects; /* The first session of the client owns them. */
	struct local_late *late;       /* late requests; NULL: there were none, or this session runs them */
	int ended_fd;                  /* eventfd that is written when a late request has ended, or -1 */
	struct local_items *items;     /* items of the last submit; NULL: there was none */
	struct device_counts *counts;  /* one for each CUDA context in which it has launched */
	bool is_of_items;              /* the request that runs is an item of a submit */
	bool only_checks;              /* requests are only checked: nothing is moved or counted */
	struct local_usage usage;
	struct local_stats *stats;        /* of the last reply about statistics; NULL: there was none */
	struct msg_region_entry *entries; /* of the last reply that lists regions; NULL: there was none */
};

/* Runs a request of a method and sets its result. Returns 0, or a negative status with err. */
typedef int local_method(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err);

/* ---- session.c ------------------------------------------------------------------------------------- */

/* Makes a session that names these objects, and runs on the engine of this process. Returns 0, or NO_MEMORY
 * with err. local_session_free takes NULL, and leaves the objects alone. */
int local_session_new(struct local_session **ret, struct local_objects *objects, struct error *err);
void local_session_free(struct local_session *session);

/* Runs a request, as the door says. */
int local_session_run(struct local_session *session, enum method_id method, const union params *params,
                      union local_result *ret, struct error *err);

/* An answer needs to know this of its request. */
struct local_asked {
	uint32_t msgid;
	const struct method *method;
	enum completion completion;
};

/* Appends the answer to a request that has been run: its result or, unless failed is NULL, why there is none.
 * If is_queued is true, the request is answered twice, and "queued" has been sent already. Returns 0 or
 * NO_MEMORY. */
int local_session_answer(const struct local_asked *asked, bool is_queued, const union local_result *result,
                         const struct error *failed, struct buffer *replies);

/* ---- late.c ---------------------------------------------------------------------------------------- */

/* Requests that have to wait, and those that come after them, are late: a thread runs them in their order.
 * These take a session that has no such requests, too. */

/* Returns whether late requests are under way. */
bool local_late_is_busy(struct local_session *session);

/* Returns whether late requests are under way, or have ended since local_late_take. */
bool local_late_is_there(struct local_session *session);

/* Adds a request, of which the message is copied, at the end. It waits for a point before it runs. A release
 * of an object is not answered. Returns 0, or NO_MEMORY with err. */
int local_late_add(struct local_session *session, const struct local_asked *asked, const uint8_t *message,
                   size_t len, const struct local_points *points, bool is_release, struct error *err);

/* Takes back a request that has not started, and answers it with CANCELED if is_answered is true. Returns
 * false if there is no such request, or it has started. */
bool local_late_cancel(struct local_session *session, uint32_t msgid, bool is_answered);

/* These do what the door says. */
int local_late_take(struct local_session *session, struct buffer *replies, struct error *err);
bool local_late_await(struct local_session *session, int timeout_ms);

/* Takes back what has not started, and waits for what has. */
void local_late_free(struct local_session *session);

/* ---- objects.c ------------------------------------------------------------------------------------- */

/* This guards the objects that two sessions share, and all late requests. It is held for a look-up or an
 * answer, and no other lock is taken meanwhile. */
extern pthread_mutex_t local_lock;

/* This counts the forks that led to this process, which has none of its parent's threads. */
extern uint64_t local_forks;

/* Frees the objects and lets go of what is pinned for them. NULL is allowed. */
void local_objects_free(struct local_objects *objects);

/* Adds an object and returns its id, or 0 if out of memory. */
uint64_t local_ids_add(struct local_session *session, struct local_ids *ids, void *object);

/* Returns the object with this id, or NULL if there is none. */
void *local_ids_find(const struct local_session *session, const struct local_ids *ids, uint64_t id);

/* Takes out the object with this id, and returns it, or NULL if there is none. */
void *local_ids_take(struct local_session *session, struct local_ids *ids, uint64_t id);

/* Does what map of the door says. */
int local_map(struct local_session *session, const void *address, uint64_t size, bool writable, uint64_t *ret,
              struct error *err);

/* Returns whether there is a region with this id, and sets *ret to it if there is. */
bool local_region_find(const struct local_session *session, uint64_t id, struct local_region *ret);

/* Sets *ret to the region with this id. NOT_FOUND: there is none; the message calls the argument name. */
int local_region(const struct local_session *session, uint64_t id, const char *name, struct local_region *ret,
                 struct error *err);

local_method local_method_region_release, local_method_region_list;

/* ---- stats.c --------------------------------------------------------------------------------------- */

static inline void local_count(struct local_session *session, int what, uint64_t n)
{
	atomic_uint_least64_t *counter = &session->usage.of[what];

	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
	                      memory_order_relaxed);
}

static inline void local_count_move(struct local_session *session, enum family family, uint64_t bytes,
                                    uint64_t ns)
{
	local_count(session, USAGE_BYTES + (int)family, bytes);
	local_count(session, USAGE_NS + (int)family, ns);
}

/* Counts the latency of a request, which is the time that the engine took, since nothing is queued here. It
 * is not known for what is launched into a stream of the program's. */
static inline void local_count_latency(struct local_session *session, uint64_t ns)
{
	if (!session->stream.device || session->stream.is_awaited)
		local_count(session, USAGE_LATENCY + latency_bar(ns), 1);
}

static inline void local_count_error(struct local_session *session, int status)
{
	local_count(session, USAGE_ERRORS - status - 1, 1);
}

/* local_usage_begin counts a session among those of the process, until local_usage_end. A session with
 * requests of its own counts as a connection. */
void local_usage_begin(struct local_session *session, bool is_connection);
void local_usage_end(struct local_session *session, bool is_connection);

local_method local_method_stats;

/* ---- places.c -------------------------------------------------------------------------------------- */

/* Sets where a tensor of a request lies: in a region or, without one, at the address that its offset is. If
 * is_written is true, a read-only region is refused. */
int local_place(const struct local_session *session, bool has_region, uint64_t id, uint64_t offset,
                bool is_written, const char *name, struct tensor_place *ret, struct error *err);

/* Returns whether a tensor of that shape has no element, and so needs no memory. */
bool local_is_empty(const struct int_list *shape);

/* Checks that the device of the program's stream reaches the place, if requests are launched into one. An
 * error calls the tensor by the argument's name without ".region". */
int local_check_reach(const struct local_session *session, const struct tensor_place *place, const char *name,
                      struct error *err);

/* Sets where a tensor lies and checks that the device of the program's stream reaches it, both as above;
 * ordinary memory of the host will do if the call waits (staging.h). */
int local_place_tensor(const struct local_session *session, const struct msg_tensor *tensor, bool is_written,
                       const char *name, struct tensor_place *ret, struct error *err);

/* Sets where all tensors of a transform lie. */
int local_places(const struct local_session *session, const struct msg_transform *t,
                 struct request_places *ret, struct error *err);

/* local_address returns the address of a place, and local_offset its offset in own. */
static inline uint64_t local_address(const struct tensor_place *place)
{
	return place->base + place->offset;
}

static inline uint64_t local_offset(const struct tensor_place *place, const struct engine_memory *own)
{
	return local_address(place) - own->base;
}

/* Returns a move that has the operands and the amax results of a transform. The caller sets its transform and
 * plan, and the memories and offsets of dst and src. */
struct engine_move local_operands(const struct msg_transform *t, const struct request_places *places,
                                  struct engine_memory *own);

/* ---- device.c -------------------------------------------------------------------------------------- */

/* These do what the door says (door.h). */
int local_stream_begin(struct local_session *session, void *stream, struct error *err);
void local_stream_end(struct local_session *session);
bool local_reaches(struct local_session *session, uint64_t address);
int local_stream_counts(struct local_session *session, void *stream, struct local_counts *ret,
                        struct error *err);

void local_counts_free(struct local_session *session);

/* Returns whether the address is memory of a device. */
bool local_is_on_device(uint64_t address);

/* Returns the CUDA context of the calling thread, or NULL, and makes one its own. */
void *local_context(void);
void local_enter(void *context);

/* Adds what the caches of all engines in CUDA contexts of this process have counted. */
void local_device_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* Returns whether the tensor is memory of a device, unless requests are launched into a stream already. */
bool local_needs_device(const struct local_session *session, const struct msg_tensor *tensor);

/* If is_needed is true, lets what follows run to its end in the default stream of the current CUDA context,
 * until local_stream_end. Sets *ret_has_begun in any case. Returns 0, or as stream_begin of the door does. */
int local_device_begin(struct local_session *session, bool is_needed, bool *ret_has_begun, struct error *err);

/* If nothing runs on a device, refuses operands and amax results of the transform that are memory of one
 * (UNSUPPORTED). */
int local_check_operands(const struct local_session *session, const struct msg_transform *t,
                         struct error *err);

/* Returns the share that an order asks for. What begins at once here has no deadline. */
static inline struct engine_share local_share(const struct order_fields *order)
{
	return (struct engine_share){ .priority = order->priority,
		                      .multiprocessors = (uint32_t)order->multiprocessors,
		                      .host_threads = (uint32_t)order->host_threads };
}

/* ---- points.c -------------------------------------------------------------------------------------- */

/* A request waits for one point and signals the other, by fields of its message. The addresses are those of
 * this process or, if the request is launched into a stream, those of the stream's device. */
struct local_points {
	const struct msg_wait *wait;     /* NULL: nothing */
	const struct msg_signal *signal; /* NULL: nothing */
	uint64_t wait_address, signal_address;
	uint64_t deadline_ms; /* within which the request has to begin; 0: none */
};

/* Finds the words of an order that has the fields of the mask (F(order, field)), and checks that a request
 * may use them. order may be NULL. */
int local_points_find(const struct local_session *session, const struct order_fields *order, uint64_t has,
                      struct local_points *ret, struct error *err);

/* Returns 1 if the point has come or there is none, 0 if it has not, or a negative status. */
int local_points_look(struct local_session *session, const struct local_points *points, struct error *err);

/* Returns when a wait that begins now ends, in milliseconds of the monotonic clock. */
int64_t local_points_deadline(const struct local_points *points);

/* Waits until the point has come. TIMEOUT: it has not before deadline_ms, of the monotonic clock; CANCELED:
 * *stops is true before it has. */
int local_points_wait(struct local_session *session, const struct local_points *points, int64_t deadline_ms,
                      const atomic_bool *stops, struct error *err);

/* Sets the signal's word after all that the session has moved. */
int local_points_signal(struct local_session *session, const struct local_points *points, struct error *err);

/* local_points_before has the stream wait into which a request is going to be launched, at its first launch
 * or, if there is none, at local_points_after. local_points_after has the stream signal if the request was
 * launched (r is 0), and returns r, or the reason why the stream does not signal. */
void local_points_before(struct local_session *session, const struct local_points *points);
int local_points_after(struct local_session *session, const struct local_points *points, int r,
                       struct error *err);

/* Lets go of the words of a region that were pinned for streams, or of all words. */
void local_unpin(struct local_objects *objects, uint64_t region);
void local_unpin_all(struct local_objects *objects);

/* ---- transform.c ----------------------------------------------------------------------------------- */

/* Checks a transform to one destination, between its places, and moves it or launches it. local_check_move
 * only checks it, and sets *ret to its destination. */
int local_move(struct local_session *session, const struct msg_transform *t, struct msg_transform_done *ret,
               struct error *err);
int local_check_move(struct local_session *session, const struct msg_transform *t,
                     struct request_destination *ret, struct error *err);

/* Runs a transform to its end, or launches it. */
int local_transform_run(struct local_session *session, const struct msg_transform *params,
                        struct msg_transform_done *ret, struct error *err);

local_method local_method_transform, local_method_explain;

/* ---- further.c ------------------------------------------------------------------------------------- */

/* Runs a transform that has several destinations, all of which are checked before anything is moved. */
int local_further_run(struct local_session *session, const struct msg_transform *params,
                      struct msg_transform_done *ret, struct error *err);

/* ---- blocks.c -------------------------------------------------------------------------------------- */

local_method local_method_gather, local_method_scatter;

/* Runs a gather, or a scatter, of which nothing has been checked. */
int local_blocks_run(struct local_session *session, const struct msg_blocks *p, bool scatter,
                     struct msg_blocks_done *ret, struct error *err);

/* ---- tables.c -------------------------------------------------------------------------------------- */

/* Sets *ret to the table of a side's layers, or to NULL if the side has none. One that came with the request
 * belongs to the caller until local_table_put, which may be given NULL. */
int local_table_get(struct local_session *session, const struct request_layers *fields,
                    struct local_table **ret, struct error *err);
void local_table_put(struct local_table *table);

/* Places the tensor where the table says: its offset is added to the first entry. */
void local_table_place(const struct local_table *table, struct msg_tensor *tensor);

/* Returns whether all entries lie in ordinary memory of the host, of which a request that waits has a copy on
 * the device of its stream; or a negative status. */
int local_table_is_on_host(const struct local_session *session, const struct local_table *table,
                           struct error *err);

/* Checks that the device of the program's stream reaches all entries, if requests are launched into one. An
 * error calls the table name. */
int local_table_check_reach(const struct local_session *session, struct local_table *table, const char *name,
                            struct error *err);

/* Tells the tables that a region has been released: those that have it cannot be used any more. */
void local_tables_forget(struct local_objects *objects, uint64_t region);

local_method local_method_table_prepare, local_method_table_release;

/* ---- reshard.c ------------------------------------------------------------------------------------- */

local_method local_method_reshard;

/* ---- plans.c --------------------------------------------------------------------------------------- */

/* Runs a plan to its end, between the places of the run. */
int local_plan_run(struct local_session *session, const struct msg_plan_run *run,
                   struct msg_transform_done *ret, struct error *err);

local_method local_method_plan_prepare, local_method_plan_run, local_method_plan_release;

/* ---- items.c --------------------------------------------------------------------------------------- */

/* NULL is allowed. */
void local_items_free(struct local_items *items);

local_method local_method_submit;

#endif
