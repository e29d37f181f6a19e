/* SPDX-License-Identifier: Apache-2.0 */
/* State and functions that the files of libtma-local share: sessions, the places of a request's tensors, and
 * the methods.
 *
 * A session runs requests on the thread that calls it. When a request has to wait for a point, the session
 * opens a second session with a thread of its own. That thread runs this request and those after it (late.c).
 * The two sessions use the same objects, and share nothing else. The door is the table of functions by which
 * libtmaclient calls this library (door.h).
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
	uint64_t start; /* address of the first byte */
	uint64_t size;  /* bytes; 0: there is no region with this id */
	bool writable;
};

struct device_counts;
struct local_items;
struct local_late;
struct local_plan;

/* Objects of a session: object i has the id i + 1, and is NULL if no object has that id. */
struct local_ids {
	void **objects;
	uint64_t n;
};

/* A table of the places of the layers on one side of a request. A table that was prepared lives until it is
 * released; one that came with a request, until the request has ended. */
struct local_table {
	struct layer_table layers;
	bool has_addresses; /* Some entries have no region, so it is unknown where their memory ends. */
	atomic_uint_least64_t released; /* id of a region of the table that was released; 0: none */
	/* An engine whose device reaches all entries; NULL: none is known. */
	_Atomic(const struct engine *) reached;
};

struct local_pin;
struct local_points;

/* The objects that requests name. An object that is released stays until the requests sent before its release
 * have ended. */
struct local_objects {
	atomic_bool is_shared; /* Two sessions share the objects, so local_lock guards all other members. */
	struct local_region *regions; /* region i has the id i + 1 */
	uint64_t n_regions;
	uint64_t first_free;     /* no region before this index is free */
	struct local_ids plans;  /* elements are struct local_plan */
	struct local_ids tables; /* elements are struct local_table */
	uint64_t tables_made;
	struct local_pin *pins; /* words of timelines that are pinned for streams */
	/* value of local_forks when the session was opened; CUDA works only in the process that opened it */
	uint64_t forks;
};

/* The counters of a session. Only the session's own thread adds to them, and any thread may read them. Each
 * name is the index of the first of a group of counters, which the comment beside it describes. */
enum local_usage_of {
	USAGE_REQUESTS,                               /* requests, by method */
	USAGE_ERRORS = USAGE_REQUESTS + METHOD_COUNT, /* errors, by -status - 1 */
	USAGE_BYTES = USAGE_ERRORS + STATUS_COUNT,    /* bytes read plus written, by family */
	USAGE_NS = USAGE_BYTES + FAMILY_COUNT,        /* the engines' own time in nanoseconds, by family */
	USAGE_LATENCY = USAGE_NS + FAMILY_COUNT,      /* latencies, by bar (proto/clock.h) */
	USAGE_REGIONS = USAGE_LATENCY + LATENCY_BARS, /* From here on, counts can also decrease. */
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
	const char *methods[METHOD_COUNT]; /* names of the methods that need no service */
	uint32_t n_methods;
	struct engine_explanation explained;
	struct msg_rule rules[FAMILY_MOST_RULES];
	struct blocks_seen *seen;      /* scratch memory for checking lists; NULL: not needed yet */
	struct local_objects *objects; /* owned by the client's first session */
	struct local_late *late;       /* Late requests; NULL: there were none, or this session runs them. */
	int ended_fd;                  /* eventfd that is written when a late request has ended; -1: none */
	struct local_items *items;     /* outcomes of the items of the last submit; NULL: there was none */
	/* list with one entry for each CUDA context in which the session has launched */
	struct device_counts *counts;
	bool is_of_items; /* The request that is running is an item of a submit. */
	bool only_checks; /* Requests are only checked: nothing is moved or counted. */
	struct local_usage usage;
	struct local_stats *stats; /* lists of the last reply to stats; NULL: there was none */
	/* entries of the last reply that lists regions; NULL: there was none */
	struct msg_region_entry *entries;
};

/* Runs a request of a method and sets its result. Returns 0, or a negative status with err. */
typedef int local_method(struct local_session *session, const union params *params, union local_result *ret,
                         struct error *err);

/* ---- session.c ------------------------------------------------------------------------------------- */

/* local_session_new creates a session that uses these objects and runs on the CPU's engine of this process.
 * Returns 0, or a negative status with err. local_session_free takes NULL, and does not free the objects. */
int local_session_new(struct local_session **ret, struct local_objects *objects, struct error *err);
void local_session_free(struct local_session *session);

/* Implements `run` of the door. */
int local_session_run(struct local_session *session, enum method_id method, const union params *params,
                      union local_result *ret, struct error *err);

/* The parts of a request that its answer depends on. */
struct local_asked {
	uint32_t msgid;
	const struct method *method;
	enum completion completion;
};

/* Appends the answer to a request that was run to replies: its result or, unless failed is NULL, the error.
 * is_queued tells whether "queued" has been sent already, so that only the end is to be reported. Returns 0
 * or NO_MEMORY. */
int local_session_answer(const struct local_asked *asked, bool is_queued, const union local_result *result,
                         const struct error *failed, struct buffer *replies);

/* ---- late.c ---------------------------------------------------------------------------------------- */

/* Late requests are those that have to wait for a point, and those that come after them. A thread runs them
 * in order. The functions below also take a session without late requests. */

/* Returns whether late requests are under way. */
bool local_late_is_busy(struct local_session *session);

/* Returns whether late requests are under way, or have ended since the last local_late_take. */
bool local_late_is_there(struct local_session *session);

/* Appends a request to the late ones and copies its message. The request waits for points->wait before it
 * runs. A request that releases an object is not answered when it runs. Returns 0, or NO_MEMORY with err. */
int local_late_add(struct local_session *session, const struct local_asked *asked, const uint8_t *message,
                   size_t len, const struct local_points *points, bool is_release, struct error *err);

/* Cancels a request that has not started, and answers it with CANCELED if is_answered is true. Returns false
 * if there is no such request, or it has started. */
bool local_late_cancel(struct local_session *session, uint32_t msgid, bool is_answered);

/* local_late_take implements `take` of the door, and local_late_await implements `await`. */
int local_late_take(struct local_session *session, struct buffer *replies, struct error *err);
bool local_late_await(struct local_session *session, int timeout_ms);

/* Cancels the late requests that have not started, waits for the end of the one that has, and stops the
 * thread. */
void local_late_free(struct local_session *session);

/* ---- objects.c ------------------------------------------------------------------------------------- */

/* Guards the objects that two sessions share, and all late requests. It is held for a look-up or an answer
 * only, and no other lock is taken while it is held. */
extern pthread_mutex_t local_lock;

/* Number of forks that led from the first process to this one. A forked process has none of its parent's
 * threads. */
extern uint64_t local_forks;

/* Frees the objects, and unpins the words of timelines that were pinned for them. NULL is allowed. */
void local_objects_free(struct local_objects *objects);

/* Adds an object and returns its id, or 0 if out of memory. */
uint64_t local_ids_add(struct local_session *session, struct local_ids *ids, void *object);

/* Returns the object with this id, or NULL if there is none. */
void *local_ids_find(const struct local_session *session, const struct local_ids *ids, uint64_t id);

/* Removes the object with this id, and returns it, or NULL if there is none. */
void *local_ids_take(struct local_session *session, struct local_ids *ids, uint64_t id);

/* Implements `map` of the door. */
int local_map(struct local_session *session, const void *address, uint64_t size, bool writable, uint64_t *ret,
              struct error *err);

/* Looks up the region with this id. Returns whether it exists, and sets *ret to it if it does. */
bool local_region_find(const struct local_session *session, uint64_t id, struct local_region *ret);

/* Sets *ret to the region with this id. Returns 0 or NOT_FOUND; the message calls the argument `name`. */
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

/* Counts the latency of a request: the engine's time, because nothing is queued here. It is unknown for
 * requests that are launched into one of the program's streams. */
static inline void local_count_latency(struct local_session *session, uint64_t ns)
{
	if (!session->stream.device || session->stream.is_awaited)
		local_count(session, USAGE_LATENCY + latency_bar(ns), 1);
}

static inline void local_count_error(struct local_session *session, int status)
{
	local_count(session, USAGE_ERRORS - status - 1, 1);
}

/* local_usage_begin includes a session in the counts of the process, and local_usage_end excludes it.
 * is_connection tells whether the session counts as a connection; one for late requests does not. */
void local_usage_begin(struct local_session *session, bool is_connection);
void local_usage_end(struct local_session *session, bool is_connection);

local_method local_method_stats;

/* ---- places.c -------------------------------------------------------------------------------------- */

/* Finds the place of a tensor: in a region or, if has_region is false or id is 0, at the address `offset`. If
 * is_written is true, a read-only region is refused. Returns 0, or a negative status with err. */
int local_place(const struct local_session *session, bool has_region, uint64_t id, uint64_t offset,
                bool is_written, const char *name, struct tensor_place *ret, struct error *err);

/* Returns whether a tensor of this shape has no elements, and therefore needs no memory. */
bool local_is_empty(const struct int_list *shape);

/* If requests are launched into a stream, checks that its device reaches the place. Errors call the tensor
 * `name`, without the suffix ".region". */
int local_check_reach(const struct local_session *session, const struct tensor_place *place, const char *name,
                      struct error *err);

/* Finds the place of a tensor and checks that the device of the stream reaches it. If the call waits,
 * ordinary host memory is accepted as well (staging.h). Returns 0, or a negative status with err. */
int local_place_tensor(const struct local_session *session, const struct msg_tensor *tensor, bool is_written,
                       const char *name, struct tensor_place *ret, struct error *err);

/* Finds the places of all tensors of a transform, each as local_place_tensor does. Returns 0, or a negative
 * status with err. */
int local_places(const struct local_session *session, const struct msg_transform *t,
                 struct request_places *ret, struct error *err);

/* local_address returns the address of a place, and local_offset its offset in the engine's memory `own`. */
static inline uint64_t local_address(const struct tensor_place *place)
{
	return place->base + place->offset;
}

static inline uint64_t local_offset(const struct tensor_place *place, const struct engine_memory *own)
{
	return local_address(place) - own->base;
}

/* Returns a move that has the operands and the amax results of a transform. The caller sets the transform,
 * the plan, and the memories and offsets of dst and src. */
struct engine_move local_operands(const struct msg_transform *t, const struct request_places *places,
                                  struct engine_memory *own);

/* ---- device.c -------------------------------------------------------------------------------------- */

/* These implement the functions of the door with the same names (door.h). */
int local_stream_begin(struct local_session *session, void *stream, struct error *err);
void local_stream_end(struct local_session *session);
bool local_reaches(struct local_session *session, uint64_t address);
int local_stream_counts(struct local_session *session, void *stream, struct local_counts *ret,
                        struct error *err);

void local_counts_free(struct local_session *session);

/* Returns whether the address lies in memory of a device. */
bool local_is_on_device(uint64_t address);

/* local_context returns the CUDA context of the calling thread, or NULL. local_enter makes a context
 * current. */
void *local_context(void);
void local_enter(void *context);

/* Adds to *plans and *maps the counts of the caches of plans and of tensor maps of all engines of CUDA
 * contexts in this process. */
void local_device_stats(struct engine_cache_stats *plans, struct engine_cache_stats *maps);

/* Returns whether the tensor lies in memory of a device and no stream is in use yet, so that the request has
 * to begin one (local_device_begin). */
bool local_needs_device(const struct local_session *session, const struct msg_tensor *tensor);

/* If is_needed is true, runs what follows in the default stream of the current CUDA context, waiting for each
 * job, until local_stream_end. Sets *ret_has_begun to whether it does. Returns 0, or as stream_begin of the
 * door does. */
int local_device_begin(struct local_session *session, bool is_needed, bool *ret_has_begun, struct error *err);

/* If the request runs on the CPU, refuses operands and amax results in memory of a device (UNSUPPORTED). */
int local_check_operands(const struct local_session *session, const struct msg_transform *t,
                         struct error *err);

/* Returns the share of the engine that an order asks for. The order's deadline is left out, because a job
 * begins at once here. */
static inline struct engine_share local_share(const struct order_fields *order)
{
	return (struct engine_share){ .priority = order->priority,
		                      .multiprocessors = (uint32_t)order->multiprocessors,
		                      .host_threads = (uint32_t)order->host_threads };
}

/* ---- points.c -------------------------------------------------------------------------------------- */

/* The points of a request, by the fields of its message. Addresses are those of this process or, if the
 * request is launched into a stream, those of the stream's device. */
struct local_points {
	const struct msg_wait *wait;     /* NULL: the request waits for nothing */
	const struct msg_signal *signal; /* NULL: the request signals nothing */
	uint64_t wait_address, signal_address;
	uint64_t deadline_ms; /* milliseconds within which the request has to begin; 0: no deadline */
};

/* Finds the words of an order whose fields are in the mask `has` (F(order, field)), and checks that the
 * request may use them. order may be NULL. Returns 0, or a negative status with err. */
int local_points_find(const struct local_session *session, const struct order_fields *order, uint64_t has,
                      struct local_points *ret, struct error *err);

/* Returns 1 if the point has been reached or there is none, 0 if it has not, or a negative status. */
int local_points_look(struct local_session *session, const struct local_points *points, struct error *err);

/* Returns the deadline of a wait that begins now, in milliseconds of the monotonic clock. */
int64_t local_points_deadline(const struct local_points *points);

/* Waits until the point is reached. Returns 0, TIMEOUT if deadline_ms (of the monotonic clock) passed first,
 * CANCELED if *stops became true first, or another negative status with err. */
int local_points_wait(struct local_session *session, const struct local_points *points, int64_t deadline_ms,
                      const atomic_bool *stops, struct error *err);

/* Sets the signal's word, after everything that the session has moved. */
int local_points_signal(struct local_session *session, const struct local_points *points, struct error *err);

/* local_points_before has the stream wait for the point just before the request's first launch.
 * local_points_after takes the request's status r. If r is 0, it has the stream set the signal; if the
 * request launched nothing, it first has the stream wait for the point. It returns r, or the error of the
 * wait or the signal. */
void local_points_before(struct local_session *session, const struct local_points *points);
int local_points_after(struct local_session *session, const struct local_points *points, int r,
                       struct error *err);

/* local_unpin unpins the words of a region that were pinned for streams, local_unpin_all those of all
 * regions. */
void local_unpin(struct local_objects *objects, uint64_t region);
void local_unpin_all(struct local_objects *objects);

/* ---- transform.c ----------------------------------------------------------------------------------- */

/* local_move checks a transform with one destination, between its places, and moves or launches it.
 * local_check_move only checks it, and sets *ret to its destination. */
int local_move(struct local_session *session, const struct msg_transform *t, struct msg_transform_done *ret,
               struct error *err);
int local_check_move(struct local_session *session, const struct msg_transform *t,
                     struct request_destination *ret, struct error *err);

/* Runs a transform to its end, or launches it. */
int local_transform_run(struct local_session *session, const struct msg_transform *params,
                        struct msg_transform_done *ret, struct error *err);

local_method local_method_transform, local_method_explain;

/* ---- further.c ------------------------------------------------------------------------------------- */

/* Runs a transform with several destinations. All of them are checked before anything is moved. */
int local_further_run(struct local_session *session, const struct msg_transform *params,
                      struct msg_transform_done *ret, struct error *err);

/* ---- blocks.c -------------------------------------------------------------------------------------- */

local_method local_method_gather, local_method_scatter;

/* Runs a gather or, if scatter is true, a scatter, with all checks. */
int local_blocks_run(struct local_session *session, const struct msg_blocks *p, bool scatter,
                     struct msg_blocks_done *ret, struct error *err);

/* ---- tables.c -------------------------------------------------------------------------------------- */

/* Sets *ret to the table of a side's layers, or to NULL if the side has none. The caller passes it to
 * local_table_put, which takes NULL and frees a table that came with the request. */
int local_table_get(struct local_session *session, const struct request_layers *fields,
                    struct local_table **ret, struct error *err);
void local_table_put(struct local_table *table);

/* Places the tensor at the first entry of the table, from which the tensor's own offset then counts. */
void local_table_place(const struct local_table *table, struct msg_tensor *tensor);

/* Returns 1 if all entries lie in ordinary host memory, 0 if not, or a negative status. Requests that wait
 * make a copy of such memory on the stream's device. */
int local_table_is_on_host(const struct local_session *session, const struct local_table *table,
                           struct error *err);

/* If requests are launched into a stream, checks that its device reaches all entries. Errors call the table
 * `name`. */
int local_table_check_reach(const struct local_session *session, struct local_table *table, const char *name,
                            struct error *err);

/* Marks the tables that contain the region, which was released, as unusable. The caller must hold local_lock
 * if the objects are shared. */
void local_tables_forget(struct local_objects *objects, uint64_t region);

local_method local_method_table_prepare, local_method_table_release;

/* ---- reshard.c ------------------------------------------------------------------------------------- */

local_method local_method_reshard;

/* ---- plans.c --------------------------------------------------------------------------------------- */

/* Runs a plan between the places of the run, or launches it. */
int local_plan_run(struct local_session *session, const struct msg_plan_run *run,
                   struct msg_transform_done *ret, struct error *err);

local_method local_method_plan_prepare, local_method_plan_run, local_method_plan_release;

/* ---- items.c --------------------------------------------------------------------------------------- */

/* Frees the outcomes of a submit. NULL is allowed. */
void local_items_free(struct local_items *items);

local_method local_method_submit;

#endif
